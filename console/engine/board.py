"""The engine's one truth: it appends events to the journal, keeps the view they reduce to, and serves both.

Everything that happens in a run passes `Board.emit`, on the main loop.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from console.control.audit import AuditLog
from console.control.dispatch import CommandDispatcher, CommandHandler
from console.control.messages import last_word
from console.control.past import PastLines
from console.control.server import ControlServer
from console.engine.clocks import RunClock
from console.engine.host import HostWatch
from console.engine.tasks import settle, spawn
from console.journal import events as ev
from console.journal.layout import JournalWriteError
from console.journal.writer import JournalWriter
from console.state.alarm_keeper import AlarmKeeper
from console.state.alarms import alarms
from console.state.model import encode_state
from console.state.reduce import RunView, apply

if TYPE_CHECKING:
    from console.engine.notify import Notifier

ALARM_SECONDS = 1.0

log = logging.getLogger(__name__)


class Board:
    """Journal, view, alarms and socket of one run.

    Attributes:
        on_failure: called when the journal takes an event no more; the run must end, for nothing else is true.
        on_moved: called when the run directory is no longer where it was.
        clock: the run's time; notifier: told of every event, to be set before `start`; None: nobody wants to be told.

    Args:
        run_dir: the run's directory; run_id: its name in the registry; socket_path: where to listen.
        handler: carries out commands.

    Raises:
        UsageError: another engine writes this journal.
        ControlError: the socket cannot be opened.
    """

    def __init__(self, run_dir: Path, run_id: str, socket_path: Path, handler: CommandHandler) -> None:
        self.run_dir, self.run_id = run_dir, run_id
        journal_dir = run_dir / "journal"
        self.view = RunView()
        if journal_dir.is_dir():
            from console.records.run_dir import RunRecord

            self.view = RunRecord(run_dir).view_at_end()
        self.clock = RunClock(self.view.state.ts)
        self._journal = JournalWriter(journal_dir, snapshot=self._snapshot, clock=self.clock.now)
        self._audit = AuditLog(run_dir / "audit.jsonl")
        self.dispatcher = CommandDispatcher(self.emit, self._audit, handler)
        self.server = ControlServer(
            socket_path,
            run_id=run_id,
            run_dir=run_dir,
            view=lambda: self.view,
            past=PastLines(journal_dir),
            dispatcher=self.dispatcher,
            clock=self.clock.now,
        )
        self._journal.subscribe(self._written)
        self._keeper = AlarmKeeper()
        self._tasks: set[asyncio.Task[Any]] = set()
        self._closed = self._rules_failed = False
        self.notifier: Notifier | None = None
        self.on_failure: Callable[[OSError], None] = lambda error: None
        self.on_moved: Callable[[], None] = lambda: None
        self._host = HostWatch(run_dir, self.emit, lambda: self.on_moved())

    async def start(self) -> None:
        """Bind the socket and begin to watch for alarms and over the host."""
        await self.server.start()
        spawn(self._watch_alarms(), self._tasks)
        spawn(self._host.run(), self._tasks)
        if self.notifier is not None:
            self.notifier.start()

    def emit(self, event: ev.Event) -> None:
        """Append an event; the view has it when this returns. After the last event, nothing is taken any more.

        Raises:
            JournalWriteError: the disk refuses it (an `OSError`); `on_failure` was told.
        """
        if self._closed:
            return
        try:
            self._journal.append(event)
        except OSError as error:
            self.on_failure(error)
            raise

    @property
    def moved(self) -> bool:
        """Whether the run directory is no longer where it was."""
        return self._host.moved

    def _written(self, line: bytes, event: ev.Event) -> None:
        apply(self.view, event)
        self.server.publish(line, event)
        if self.notifier is not None:
            self.notifier.see(event, self.view.state)

    def _snapshot(self) -> tuple[bytes, int]:
        return encode_state(self.view.state), len(self.view.history.rows)

    def check_alarms(self) -> None:
        """Open what is wrong, close what is over, after the delays of the rules."""
        now = self.clock.now()
        for event in self._keeper.step(alarms(self.view, now), now):
            self.emit(event)

    async def _watch_alarms(self) -> None:
        while True:
            await asyncio.sleep(ALARM_SECONDS)
            try:
                self.check_alarms()
            except JournalWriteError:
                pass  # `emit` told of it
            except Exception:  # a rule that fails must not take the journal's flush with it
                if not self._rules_failed:
                    log.exception("the alarm rules failed")
                self._rules_failed = True
            try:
                self._journal.flush()
            except OSError as error:
                self.on_failure(error)

    async def close(self, finished: ev.RunFinished | None) -> None:
        """Close commands, write the last event if there is one, close the journal, then the socket. Never raises.

        Last of all, messages about the end are sent, within a few seconds.
        """
        await settle(self._tasks, 1.0)
        await self.dispatcher.close()
        if finished is not None:
            try:
                self.emit(finished)
            except OSError:  # then viewers hear of it in this way
                self.server.last_word = last_word(finished.status, finished.exit_code, finished.reason)
        self._closed = True
        for what in (self._journal, self._audit):
            try:
                what.close()
            except OSError as error:
                log.error("%s", error)
        try:
            await self.server.close()
        except OSError as error:
            log.error("closing the socket: %s", error)
        if self.notifier is not None:
            await self.notifier.close()
