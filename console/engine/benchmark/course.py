"""The course of a job: what the watch in Harbor tells becomes events, and what they add up to becomes orders."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from console.bench.rules.user import load_rules
from console.bench.running.options import BenchOptions
from console.engine.benchmark.dispatch import Dispatch
from console.engine.benchmark.early import EarlyStop
from console.engine.benchmark.ends import USAGE, ended_by_itself, refused
from console.engine.benchmark.harbor import HarborProcess
from console.engine.benchmark.judging import Judge
from console.engine.benchmark.throttle import ThrottlePolicy
from console.engine.benchmark.trials import TrialRun, Trials
from console.engine.cause import COMPLETED, Cause, one_line
from console.engine.tasks import spawn
from console.journal import events as ev
from console.outcomes.classes import OutcomeClass
from console.trials.job_plugin_protocol import (
    FromJob,
    Gate,
    JobEnded,
    JobFailed,
    JobPlanned,
    Judged,
    TrialBegan,
    TrialEnded,
    TrialPhased,
)

LAST_SECONDS = 10.0
"""For what Harbor said last to be taken in, once it has ended."""
POLICY_STOP = 4
HARBORS_OWN = 4
"""Trials at once of a job that does not say."""

log = logging.getLogger(__name__)


class Course:
    """Follows one job.

    Attributes:
        trials: what became of them, None before Harbor has resolved the job; dispatch: how many may be at work.

    Args:
        emit: appends an event; end: ends the run for a cause.

    Raises:
        UsageError: the rule file of the options is none.
    """

    def __init__(
        self,
        options: BenchOptions,
        harbor: HarborProcess,
        emit: Callable[[ev.Event], None],
        end: Callable[[Cause], None],
    ) -> None:
        self._options, self._harbor, self._emit, self._end = options, harbor, emit, end
        most = whole(options.job.get("n_concurrent_trials"), HARBORS_OWN)
        self.trials: Trials | None = None
        self.dispatch = Dispatch(most, emit, lambda gate: harbor.send(gate) if self.trials is not None else None)
        self._throttle = ThrottlePolicy(
            options.throttle, most, options.least, options.infra_window, options.infra_share
        )
        self._early: EarlyStop | None = None
        self._rules = load_rules(Path(options.rules)) if options.rules else None
        self._judge = Judge(Path(options.job_dir), self._rules)
        self._judging: set[asyncio.Task[Any]] = set()
        self._failed: JobFailed | None = None
        self._began = time.monotonic()
        self._listening: asyncio.Future[None] | None = None

    # --- while it goes on ----------------------------------------

    def listen(self) -> asyncio.Future[None]:
        """Begin to take in what Harbor says; done when it says no more."""
        self._listening = asyncio.ensure_future(self._listen())
        return self._listening

    async def _listen(self) -> None:
        while (message := await self._harbor.read()) is not None:
            await self._take(message)

    async def _take(self, message: FromJob) -> None:
        trials = self.trials
        if isinstance(message, JobPlanned):
            await self._planned(message)
        elif isinstance(message, JobFailed):
            self._failed = message
        elif isinstance(message, JobEnded) or trials is None:
            return
        elif (trial := trials.get(message.name)) is None:
            log.error("Harbor tells of %r, which it had not planned", message.name)
        elif isinstance(message, TrialBegan):
            trials.began(trial, message.try_)
        elif isinstance(message, TrialPhased):
            trials.phase(trial, message.try_, message.phase)
        elif isinstance(message, TrialEnded):
            spawn(self._ended(trials, trial, message), self._judging)

    async def _planned(self, plan: JobPlanned) -> None:
        """Harbor waits until it is told that trials may begin."""
        self._harbor.send(Gate(limit=0))  # it is heard, however long what stands takes to be judged
        self._harbor.forget_config()
        self._judge = Judge(Path(plan.job_dir), self._rules)
        trials = Trials(self._emit, plan)
        self.dispatch.planned(plan.concurrency)
        self._throttle.most = min(self._throttle.most, plan.concurrency)
        self._early = EarlyStop(self._options.early_stop_trials, trials.tasks) if self._options.early_stop else None
        standing = [trial for one in plan.trials if one.stands and (trial := trials.get(one.name)) is not None]
        self._emit(
            ev.BenchPlanned(
                job_dir=plan.job_dir,
                job_name=plan.job_name,
                harbor=plan.harbor,
                dataset=plan.dataset,
                agents=list(dict.fromkeys(trial.agent for trial in plan.trials)),
                models=list(dict.fromkeys(trial.model for trial in plan.trials if trial.model)),
                tasks=trials.groups,
                attempts=plan.attempts,
                trials=len(trials),
                done=len(standing),
                concurrency=plan.concurrency,
                parent=self._options.parent,
                mop_up=self._options.mop_up,
            )
        )
        if 0 < self._options.most_trials < len(trials):
            said = f"Harbor would run {len(trials)} trials, and {self._options.most_trials} were chosen: none was begun"
            self._end(Cause(status="failed", exit_code=USAGE, reason=f"{said}; the dataset is not what it was"))
            return
        trials.start()
        for trial in standing:
            trials.ended(trial, 0, await asyncio.to_thread(self._judge.look, trial.name), reused=True)
        self._began, self.trials = time.monotonic(), trials
        self.dispatch.tell()

    async def _ended(self, trials: Trials, trial: TrialRun, told: TrialEnded) -> None:
        """Judge a try. Harbor waits for the word, for it may delete the try, and begin another trial."""
        try:
            judged = await asyncio.to_thread(self._judge.look, trial.name)
            trials.ended(trial, told.try_, judged, again=told.again)
            change = self._throttle.ended(judged.outcome is OutcomeClass.INFRASTRUCTURE, self.dispatch.limit)
            if change is not None:
                self._throttle.changed()
                self.dispatch.change(change.limit, "policy", change.why)
            why = self._early.ended(judged) if self._early is not None and not told.again else ""
            if why and trials.left:
                self._end(Cause(status="stopped", exit_code=POLICY_STOP, reason=one_line(why)))
        finally:
            self._harbor.send(Judged(name=trial.name))

    def limit(self, limit: int, by: str) -> None:
        """Another number of trials at once, as an operator says; no policy exceeds it."""
        self._emit(ev.RunTuned(name="concurrency", old=self.dispatch.limit, new=limit, by=by))
        self._throttle.most = limit
        self._throttle.changed()
        self.dispatch.change(limit, by, "set by hand")

    @property
    def drained(self) -> bool:
        """Whether a stop that lets trials end has nothing more to wait for."""
        return self.dispatch.draining and (self.trials is None or not self.trials.at_work)

    @property
    def complete(self) -> bool:
        """Whether every trial of the job has its end."""
        return self.trials is not None and not self.trials.left

    # --- when Harbor has ended ----------------------------------------

    async def conclude(self, cause: Cause | None) -> Cause:
        """What Harbor left on the disk is what counts: results that were not told of, and trials without any.

        Args:
            cause: of the end so far.

        Returns:
            The cause of the end, where there was none.
        """
        last = {task for task in (self._listening, *self._judging) if task is not None}
        if last:
            await asyncio.wait(last, timeout=LAST_SECONDS)
        if self._judging:
            await asyncio.wait(set(self._judging), timeout=LAST_SECONDS)
        trials, code = self.trials, self._harbor.exit_code
        if trials is None:
            return cause or refused(self._failed, code)
        why, lost = cause.reason if cause is not None else "Harbor was gone before the trial had ended", 0
        for trial in [trial for trial in trials if trial.try_ >= 0 and not trial.final]:
            ended = await asyncio.to_thread(self._judge.ended, trial.name)
            judged = await asyncio.to_thread(self._judge.look, trial.name)
            trials.ended(trial, trial.try_, judged, lost="" if ended else why)
            lost += not ended
        if not trials.left and not lost and (cause is None or cause == COMPLETED):
            trials.finish(time.monotonic() - self._began)
            return COMPLETED
        if cause is not None:
            return cause
        if not trials.begun:
            return refused(self._failed, code)
        return ended_by_itself(self._failed, code, trials.left + lost, self._options.family_dir)

    def ended_on_disk(self) -> bool:
        """Whether Harbor wrote the end of the job. Reads a file."""
        from console.records.harbor.jobs import read_job

        with contextlib.suppress(OSError):
            return read_job(Path(self._options.job_dir)).finished
        return False


def whole(value: object, default: int) -> int:
    """A number of the job as far as it is one: what is wrong with the job is for Harbor to say."""
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else default
