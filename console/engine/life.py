"""The life of one engine's process, whatever it runs: how it starts, what may end it, and its last words."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import time
from abc import ABC, abstractmethod
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from console.control.registry import register, socket_path
from console.engine.board import Board
from console.engine.cause import STOPPED, Cause, CauseKeeper, one_line
from console.engine.ending import Ending
from console.engine.versions import installed
from console.errors import QuarterdeckError
from console.journal import events as ev
from console.records.manifest import Manifest, renew_manifest

if TYPE_CHECKING:
    from console.control.dispatch import CommandHandler
    from console.state.reduce import RunView

log = logging.getLogger(__name__)


class EngineLife(ABC):
    """An engine from its start to its end; what it runs is its subclass's.

    Attributes:
        board: the journal and what is made of it.

    Args:
        run_dir, run_id, name: where, under which name in the registry, and under which one for people.
        handler: carries out commands.
        owner_fd: descriptor that reads EOF when the command that owns the run has ended, None when nobody owns it.

    Raises:
        UsageError: another engine writes the journal of this run directory.
        ControlError: the socket cannot be opened.
    """

    _plain: ClassVar[tuple[type[Exception], ...]] = (QuarterdeckError,)
    """Errors that say all there is to say; any other one is a mistake of ours, and logged with its traceback."""

    def __init__(self, run_dir: Path, run_id: str, name: str, handler: CommandHandler, owner_fd: int | None) -> None:
        self.run_dir, self.run_id, self._name, self._owner_fd = run_dir, run_id, name, owner_fd
        self._causes, self._ending, self._end = CauseKeeper(), Ending(), asyncio.Event()
        self._tasks: set[asyncio.Task[Any]] = set()
        self.board = Board(run_dir, run_id, socket_path(run_id), handler)
        self.board.on_failure = self._journal_failed
        self.board.on_moved = lambda: self.end(self._moved())

    # --- what differs ----------------------------------------

    @abstractmethod
    def _config(self) -> ev.Scalars:
        """What the run was started with, as plain values without secrets."""

    @abstractmethod
    def _begin(self, versions: dict[str, str], config: ev.Scalars) -> None:
        """Write `RunStarted`, and what belongs right behind it."""

    @abstractmethod
    async def _run(self) -> None:
        """The run itself. What it raises is the cause of the end, unless there is one already."""

    @abstractmethod
    async def _close_down(self) -> Cause:
        """End what runs, as long as the ending allows, and tell what is left; returns the cause of the end."""

    @abstractmethod
    def _stands_for(self, error: BaseException) -> Cause:
        """The cause that an error stands for."""

    # --- what anybody may ask ----------------------------------------

    @property
    def view(self) -> RunView:
        """The view of the journal so far."""
        return self.board.view

    def now(self) -> float:
        """The run's time, Unix seconds."""
        return self.board.clock.now()

    def emit(self, event: ev.Event) -> None:
        """Append an event. Raises `JournalWriteError`; the run then ends."""
        self.board.emit(event)

    # --- the start ----------------------------------------

    async def start(self) -> None:
        """Bind the socket, write the first event and register the run; until then nothing of it is visible.

        Raises:
            QuarterdeckError, OSError: it cannot be done; what was begun is taken back.
        """
        engines = self.view.state.engines
        try:
            await self.board.start()
            versions, config = installed(), self._config()
            self._manifest = renew_manifest(
                self.run_dir,
                Manifest(run_id=self.run_id, name=self._name, created=time.time(), versions=versions, config=config),
            )
            self._begin(versions, config)
            register(
                run_id=self.run_id,
                run_dir=self.run_dir,
                name=self._name,
                pid=os.getpid(),
                socket=self.board.server.path,
                started=time.time(),
            )
        except BaseException as error:
            cause = self._stands_for(error)
            finished = ev.RunFinished(status="failed", exit_code=cause.exit_code, reason=cause.reason)
            begun = self.view.state.engines > engines
            await self.board.close(finished if begun else None)
            raise

    # --- the run ----------------------------------------

    async def run(self) -> Cause:
        """The whole run; returns the cause of its end. Never raises for what goes wrong in the run itself."""
        self._watch_signals()
        try:
            await self._run()
        except Exception as error:
            if not isinstance(error, self._plain):
                log.exception("the engine failed")
            self._causes.give(self._cause_of(error))
        finally:
            cause = await self._wind_up()
        return cause

    async def _unless_ending(self, work: asyncio.Future[Any]) -> bool:
        """Wait for the work or for the end, whichever comes first; whether the work was done. Raises what it raised.

        Work that was not done goes on.
        """
        end = asyncio.ensure_future(self._end.wait())
        try:
            await asyncio.wait({work, end}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            end.cancel()
        if work.done():
            work.result()
        return work.done()

    # --- what ends it ----------------------------------------

    @property
    def ending(self) -> bool:
        """Whether the run is ending."""
        return self._end.is_set()

    def stop_now(self, by: str, *, why: str = "", soon: bool = False) -> None:
        """End the run; its trials are cancelled. `soon`: whoever asks will not wait for the sandboxes."""
        self.emit(ev.StopRequested(when="now", by=by))
        reason = one_line(f"stopped now by {by}{f': {why}' if why else ''}")
        self.end(Cause(status="stopped", exit_code=STOPPED.exit_code, reason=reason), urgent=soon)

    def end(self, cause: Cause, *, urgent: bool = False) -> None:
        """Begin to end for this cause; the first one counts. `urgent`: whoever asked kills in some seconds."""
        self._causes.give(cause)
        self._ending.begin(urgent=urgent)
        if not self._end.is_set():
            self._end.set()
            with contextlib.suppress(OSError):
                self.emit(ev.RunPhase(phase="stopping", detail=one_line(cause.reason, 200)))

    def _journal_failed(self, error: OSError) -> None:
        """What the journal does not hold did not happen, so the run cannot go on."""
        if not self.ending:
            log.error("the run ends: %s", error)
        cause = Cause(status="failed", exit_code=7, reason=one_line(str(error)))
        self.end(self._moved() if self.board.moved else cause)

    def _moved(self) -> Cause:
        reason = f"the run directory {self.run_dir} was moved or removed while the run went on"
        return Cause(status="failed", exit_code=7, reason=one_line(reason))

    def _cause_of(self, error: BaseException) -> Cause:
        """What an error stands for. When the run directory is gone, all else that fails follows from it."""
        return self._moved() if self.board.moved else self._stands_for(error)

    def _watch_signals(self) -> None:
        loop = asyncio.get_running_loop()
        for sig, code in ((signal.SIGTERM, 143), (signal.SIGINT, 130), (signal.SIGHUP, 129)):
            cause = Cause(status="stopped", exit_code=code, reason=f"ended by {sig.name}")
            loop.add_signal_handler(sig, self._signalled, sig, cause)
        if self._owner_fd is not None:
            loop.add_reader(self._owner_fd, self._owner_gone)

    def _signalled(self, sig: signal.Signals, cause: Cause) -> None:
        """The first signal ends the run in order, and soon; another one that comes while it ends, at once."""
        if self._ending.urgent:
            log.warning("%s again: the run ends without waiting for its sandboxes", sig.name)
            self._ending.hurry()
        else:
            self.end(cause, urgent=True)

    def _owner_gone(self) -> None:
        assert self._owner_fd is not None
        if os.read(self._owner_fd, 1) == b"":
            asyncio.get_running_loop().remove_reader(self._owner_fd)
            cause = Cause(status="stopped", exit_code=129, reason="the command that owned the run has ended")
            self.end(cause, urgent=True)

    # --- the end ----------------------------------------

    async def _wind_up(self) -> Cause:
        """What runs first, and the journal last, so that it holds everything."""
        self._end.set()
        self._ending.begin(urgent=False)
        cause = await self._close_down()
        with contextlib.suppress(OSError):
            self.board.check_alarms()
        done = self.view.state.steps_done
        finished = ev.RunFinished(status=cause.status, exit_code=cause.exit_code, reason=cause.reason, steps=done)
        await self.board.close(finished)
        if cause.exit_code == 7:
            log.error("the run failed: %s", cause.reason)
        return cause
