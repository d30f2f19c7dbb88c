"""One benchmark run from its start to its end: Harbor in a process of its own, and the journal of what it does."""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from pathlib import Path
from typing import ClassVar

from console.bench.running.options import BenchOptions
from console.engine.benchmark.course import Course, whole
from console.engine.benchmark.dispatch import Dispatch
from console.engine.benchmark.endpoint import EndpointWatch
from console.engine.benchmark.ends import failed
from console.engine.benchmark.harbor import HarborProcess
from console.engine.benchmark.orders import Orders
from console.engine.benchmark.sandboxes import SandboxWatch
from console.engine.benchmark.trials import Trials
from console.engine.cause import COMPLETED, STOPPED, Cause, one_line
from console.engine.life import EngineLife
from console.engine.tasks import settle, spawn
from console.errors import QuarterdeckError
from console.journal import events as ev
from console.journal.layout import JournalWriteError
from console.records.redact import redact

WATCH_SECONDS = 1.0
LINGER_SECONDS = 20.0
"""How long Harbor's process may stay when its job has ended."""
LINGER_END_SECONDS = 5.0
SANDBOXES_END_SECONDS = 10.0


class BenchEngine(EngineLife):
    """Runs one Harbor job.

    Attributes:
        board: the journal and what is made of it; harbor: its process; course: what becomes of the job's trials.

    Args:
        run_dir, run_id: where and under which name.
        owner_fd: descriptor that reads EOF when the command that owns the run has ended, None when nobody owns it.
    """

    _plain: ClassVar[tuple[type[Exception], ...]] = (QuarterdeckError, OSError)

    def __init__(self, options: BenchOptions, run_dir: Path, run_id: str, owner_fd: int | None = None) -> None:
        super().__init__(run_dir, run_id, options.name or str(options.job["job_name"]), Orders(self), owner_fd)
        self.options = options
        self.harbor = HarborProcess(options.job, run_dir, run_id)
        self.course = Course(options, self.harbor, self.emit, self.end)
        self._sandboxes = SandboxWatch(run_dir)
        self._patience: tuple[float, ...] = ()
        self._complete_since: float | None = None
        self._drained = False

    # --- what orders act on ----------------------------------------

    @property
    def trials(self) -> Trials | None:
        """What became of the trials, None before Harbor has resolved the job."""
        return self.course.trials

    @property
    def dispatch(self) -> Dispatch:
        """How many trials may be at work."""
        return self.course.dispatch

    # --- the run ----------------------------------------

    def _stands_for(self, error: BaseException) -> Cause:
        return failed(error)

    def _config(self) -> ev.Scalars:
        return _shown(self.options)

    def _begin(self, versions: dict[str, str], config: ev.Scalars) -> None:
        job, retry = self.options.job, self.options.job.get("retry")
        agents = [agent for agent in job.get("agents") or () if isinstance(agent, dict)]
        models = [str(agent.get("model_name") or "") for agent in agents]
        started = ev.RunStarted(
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
        self.emit(started)

    async def _run(self) -> None:
        self.emit(ev.RunPhase(phase="starting", detail="Harbor resolves the job"))
        await self.harbor.start()
        spawn(self._watch(), self._tasks)
        if self.options.endpoint:
            spawn(EndpointWatch(self.options.endpoint, self.options.key_name, self.emit).run(), self._tasks)
        if await self._unless_ending(self.course.listen()):
            await self._unless_ending(asyncio.ensure_future(self.harbor.wait()))

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
            again = f"; {left} of its trials had not begun: quarterdeck bench mop-up {self.options.family_dir}"
            reason = one_line(f"stopped by the operator{again if left else ''}")
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

    # --- the end ----------------------------------------

    async def _close_down(self) -> Cause:
        """Harbor first, then what is known of its trials."""
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
        return self._causes.final(left)


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
