"""One benchmark run from its start to its end: Harbor in a process of its own, and the journal of what it does."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from console.bench.running.options import BenchOptions
from console.control.registry import register, socket_path
from console.engine.benchmark.course import Course, whole
from console.engine.benchmark.dispatch import Dispatch
from console.engine.benchmark.endpoint import EndpointWatch
from console.engine.benchmark.ends import failed
from console.engine.benchmark.harbor import HarborProcess
from console.engine.benchmark.orders import Orders
from console.engine.benchmark.sandboxes import SandboxWatch
from console.engine.benchmark.trials import Trials
from console.engine.board import Board
from console.engine.cause import COMPLETED, STOPPED, Cause, CauseKeeper, one_line
from console.engine.ending import Ending
from console.engine.tasks import settle, spawn
from console.engine.versions import installed
from console.errors import QuarterdeckError
from console.journal import events as ev
from console.journal.layout import JournalWriteError
from console.records.manifest import Manifest, renew_manifest
from console.records.redact import redact

if TYPE_CHECKING:
    from console.state.reduce import RunView

WATCH_SECONDS = 1.0
LINGER_SECONDS = 20.0
"""How long Harbor's process may stay when its job has ended."""
LINGER_END_SECONDS = 5.0
SANDBOXES_END_SECONDS = 10.0

log = logging.getLogger(__name__)


class BenchEngine:
    """Runs one Harbor job.

    Attributes:
        board: the journal and what is made of it; harbor: its process; course: what becomes of the job's trials.

    Args:
        run_dir, run_id: where and under which name.
        owner_fd: descriptor that reads EOF when the command that owns the run has ended, None when nobody owns it.
    """

    def __init__(self, options: BenchOptions, run_dir: Path, run_id: str, owner_fd: int | None = None) -> None:
        self.options, self.run_dir, self.run_id, self._owner_fd = options, run_dir, run_id, owner_fd
        self._name = options.name or str(options.job["job_name"])
        self._causes, self._ending, self._end = CauseKeeper(), Ending(), asyncio.Event()
        self._tasks: set[asyncio.Task[Any]] = set()
        self.harbor = HarborProcess(options.job, run_dir, run_id)
        self.board = Board(run_dir, run_id, socket_path(run_id), Orders(self))
        self.board.on_failure = self._journal_failed
        self.board.on_moved = lambda: self.end(self._moved())
        self.course = Course(options, self.harbor, self.emit, self.end)
        self._sandboxes = SandboxWatch(run_dir)
        self._patience: tuple[float, ...] = ()
        self._complete_since: float | None = None
        self._drained = False

    # --- what orders act on ----------------------------------------

    @property
    def view(self) -> RunView:
        """The view of the journal so far."""
        return self.board.view

    def now(self) -> float:
        """The run's time, Unix seconds."""
        return self.board.clock.now()

    def emit(self, event: ev.Event) -> None:
        """Append an event."""
        self.board.emit(event)

    @property
    def trials(self) -> Trials | None:
        """What became of the trials, None before Harbor has resolved the job."""
        return self.course.trials

    @property
    def dispatch(self) -> Dispatch:
        """How many trials may be at work."""
        return self.course.dispatch

    @property
    def ending(self) -> bool:
        """Whether the run is ending."""
        return self._end.is_set()

    def stop_now(self, by: str, *, why: str = "", soon: bool = False) -> None:
        """End the run; Harbor cancels its trials. `soon`: whoever asks will not wait for the sandboxes."""
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
        self.end(self._moved() if self.board.moved else failed(error))

    def _moved(self) -> Cause:
        reason = f"the run directory {self.run_dir} was moved or removed while the run went on"
        return Cause(status="failed", exit_code=7, reason=one_line(reason))

    # --- the run ----------------------------------------

    async def start(self) -> None:
        """Bind the socket, write the first event and register the run; until then nothing of it is visible.

        Raises:
            QuarterdeckError, OSError: it cannot be done; what was begun is taken back.
        """
        begun = False
        try:
            await self.board.start()
            versions, config = installed(), _shown(self.options)
            renew_manifest(
                self.run_dir,
                Manifest(run_id=self.run_id, name=self._name, created=time.time(), versions=versions, config=config),
            )
            self.emit(self._started(versions, config))
            begun = True
            register(
                run_id=self.run_id,
                run_dir=self.run_dir,
                name=self._name,
                pid=os.getpid(),
                socket=self.board.server.path,
                started=time.time(),
            )
        except BaseException as error:
            cause = failed(error)
            finished = ev.RunFinished(status="failed", exit_code=cause.exit_code, reason=cause.reason)
            await self.board.close(finished if begun else None)
            raise

    def _started(self, versions: dict[str, str], config: ev.Scalars) -> ev.RunStarted:
        job, retry = self.options.job, self.options.job.get("retry")
        agents = [agent for agent in job.get("agents") or () if isinstance(agent, dict)]
        models = [str(agent.get("model_name") or "") for agent in agents]
        return ev.RunStarted(
            run_id=self.run_id,
            name=self._name,
            run_dir=str(self.run_dir),
            pid=os.getpid(),
            socket=str(self.board.server.path),
            model=", ".join(dict.fromkeys(filter(None, models))),
            gateway_url=str(redact(self.options.endpoint)) or None,
            versions=versions,
            config=config,
            steps=1,
            group_size=whole(job.get("n_attempts"), 1),
            on_failure="retry" if isinstance(retry, dict) and whole(retry.get("max_retries"), 0) else "drop",
            resumed_from=0 if self.view.state.engines else None,
            owned=self._owner_fd is not None,
            tunables={"concurrency": self.dispatch.limit},
            thresholds={
                "bench_infra_window": self.options.infra_window,
                # Whoever wants no advice gets no alarm: no share is so large.
                "bench_infra_share": 2.0 if self.options.throttle == "off" else self.options.infra_share,
            },
            kind="benchmark",
        )

    async def run(self) -> Cause:
        """The whole run; returns the cause of its end. Never raises for what goes wrong in the run itself."""
        self._watch_signals()
        try:
            await self._run()
        except asyncio.CancelledError:
            raise
        except (QuarterdeckError, OSError) as error:
            self._causes.give(self._moved() if self.board.moved else failed(error))
        except Exception as error:
            log.exception("the engine failed")
            self._causes.give(failed(error))
        finally:
            cause = await self._wind_up()
        return cause

    async def _run(self) -> None:
        self.emit(ev.RunPhase(phase="starting", detail="Harbor resolves the job"))
        await self.harbor.start()
        spawn(self._watch(), self._tasks)
        if self.options.endpoint:
            spawn(EndpointWatch(self.options.endpoint, self.options.key_name, self.emit).run(), self._tasks)
        if await self._unless_ending(self.course.listen()):
            await self._unless_ending(asyncio.ensure_future(self.harbor.wait()))

    async def _unless_ending(self, work: asyncio.Future[Any]) -> bool:
        """Wait for the work or for the end, whichever comes first; whether the work was done. Raises what it raised."""
        end = asyncio.ensure_future(self._end.wait())
        try:
            await asyncio.wait({work, end}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            end.cancel()
        if work.done():
            work.result()
        return work.done()

    async def _watch(self) -> None:
        """What is looked at now and then."""
        while True:
            await asyncio.sleep(WATCH_SECONDS)
            with contextlib.suppress(JournalWriteError):  # the board ends the run
                await asyncio.to_thread(self.harbor.trim_log)
                if (stats := await asyncio.to_thread(self._sandboxes.news)) is not None:
                    self.emit(stats)
                self._check_drained()
                await self._check_lingering()

    def _check_drained(self) -> None:
        """Twice in a row: a trial that had passed before Harbor heard of the stop has been told of by then."""
        drained, self._drained = self._drained, self.course.drained
        if drained and self._drained and not self.ending and not self.course.complete:
            left = self.trials.left if self.trials is not None else 0
            more = (
                f"; {left} of its trials had not begun: quarterdeck bench mop-up {self.options.job_dir}" if left else ""
            )
            reason = one_line(f"stopped by the operator{more}")
            self.end(Cause(status="stopped", exit_code=STOPPED.exit_code, reason=reason))

    async def _check_lingering(self) -> None:
        """A job that is done is done, whatever keeps its process."""
        if self.ending or not self.course.complete or self.harbor.exit_code is not None:
            return
        now = time.monotonic()
        if self._complete_since is None:
            if await asyncio.to_thread(self.course.ended_on_disk):
                self._complete_since = now
        elif now - self._complete_since >= LINGER_SECONDS:
            text = (
                f"Harbor wrote the end of the job, and its process was still there {LINGER_SECONDS:.0f} s later: ended"
            )
            self.emit(ev.Note(text=text, level="warning"))
            self._patience = (LINGER_END_SECONDS, LINGER_END_SECONDS)
            self.end(COMPLETED)

    # --- signals and the owner ----------------------------------------

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
        """Harbor first, then what is known of its trials; the journal last, so that it holds everything."""
        self._end.set()
        self._ending.begin(urgent=False)
        if not await self._ending.within(self.harbor.end(*self._patience)):
            self.harbor.kill()
            text = "Harbor was killed before its sandboxes were gone: quarterdeck reap tells what is left"
            with contextlib.suppress(OSError):
                self.emit(ev.Note(text=text, level="warning"))
        self.harbor.close()
        await settle(self._tasks, 1.0)
        left: list[str] = []
        with contextlib.suppress(OSError):
            self._causes.give(await self.course.conclude(self._causes.cause))
            left = await self._sandboxes.settle(self.harbor.owner, SANDBOXES_END_SECONDS)
            if (stats := self._sandboxes.news()) is not None:
                self.emit(stats)
        cause = self._causes.final(left)
        with contextlib.suppress(OSError):
            self.board.check_alarms()
        done = self.board.view.state.steps_done
        finished = ev.RunFinished(status=cause.status, exit_code=cause.exit_code, reason=cause.reason, steps=done)
        await self.board.close(finished)
        if cause.exit_code == 7:
            log.error("the run failed: %s", cause.reason)
        return cause


def _shown(options: BenchOptions) -> ev.Scalars:
    """What the run was started with, as far as it is a plain value."""
    job = options.job
    shown: ev.Scalars = {f"job.{key}": value for key, value in job.items() if isinstance(value, str | int | float)}
    shown |= {
        "throttle": options.throttle,
        "early_stop": options.early_stop,
        "endpoint": str(redact(options.endpoint)),
        "job_file": options.job_file,
    }
    return shown
