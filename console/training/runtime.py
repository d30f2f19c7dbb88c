"""Where the cookbook's side of the process meets the engine's.

The cookbook's loop runs on a thread with an event loop of its own, and its config must be plain data (it is
deep-copied and dumped). So the strategy and the dataset builder hold nothing and look up the `Runtime` here: one run
per process.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Coroutine
from typing import Any, Literal

from console.journal import events as ev
from console.records.cookbook import FINAL
from console.records.try_key import try_key
from console.training import lineage
from console.training.checkpoints import SaveRequests
from console.training.dataset import HarborGroup
from console.training.figures import BatchFigures
from console.training.groups import GroupResult
from console.training.recorded import RecordedBatch, RecordedGroup
from console.training.replay import ResumePlan


class StopAfterStepError(Exception):
    """Raised out of `get_batch` to leave the cookbook's loop between two steps."""


class Runtime:
    """The engine as the training thread sees it. Every method here is called on the training thread.

    Args:
        main_loop: the engine's loop; run_group: runs one group there, to the end of its trials.
        release_group: waits there for the batch's other groups, and has the last word on what of the group trains.
        emit: appends an event on the main loop (this class brings it there).
        should_stop: whether a stop after the step was asked for, asked between steps.
        quarantined: names of the tasks that a new batch leaves out.
        policy_version: optimiser steps behind the weights at the start; max_steps: the bound of the run, if any.
        start_step: the step at which the loop begins; plan: what is recorded of it and of the steps after it.
        save_beginning: the weights at the start are like no others, and no checkpoint has them: save them.

    Attributes:
        weights: their name, see `lineage`; empty without a plan. replaying: the step is trained again as it was.
        stage: what the cookbook's loop is at; steps_done: the steps that are in the weights, and where a resume of
            them goes on; saves: checkpoints on request; last_saved, last_saved_name: the last full one.
    """

    def __init__(
        self,
        *,
        main_loop: asyncio.AbstractEventLoop,
        emit: Callable[[ev.Event], None],
        run_group: Callable[[HarborGroup, Any, int], Coroutine[Any, Any, GroupResult]],
        release_group: Callable[[HarborGroup], Coroutine[Any, Any, GroupResult]],
        should_stop: Callable[[int], bool],
        quarantined: Callable[[], Collection[str]] = frozenset,
        policy_version: int = 0,
        max_steps: int | None = None,
        start_step: int = 0,
        plan: ResumePlan | None = None,
        save_beginning: bool = False,
    ) -> None:
        self._main_loop, self._emit = main_loop, emit
        self._run_group, self._release_group, self._should_stop = run_group, release_group, should_stop
        self.quarantined = quarantined
        self.policy_version, self._max_steps = policy_version, max_steps
        self._plan = plan
        self.weights = plan.weights if plan is not None else ""
        self.replaying = False
        self._save_beginning = save_beginning
        self._beginning: asyncio.Task[None] | None = None
        self.step = -1
        self.groups: list[GroupResult] = []
        self.figures: list[BatchFigures] = []
        self.planned: int | None = None
        self.checkpoints: Any = None
        self.service: Any = None
        self.saves = SaveRequests(self)
        self.last_saved, self.last_saved_name = -1, ""
        self.finished_steps = 0
        self.steps_done = start_step
        self.stage: Literal["connecting", "rollout", "training", "between"] = "connecting"

    def emit(self, event: ev.Event) -> None:
        """Append an event to the journal; order is kept among events of this thread."""
        self._main_loop.call_soon_threadsafe(self._emit, event)

    @property
    def owes_final(self) -> bool:
        """Whether the run begins with a checkpoint that is not a run's last one."""
        return self._plan is not None and self._plan.checkpoint not in ("", FINAL)

    def on_planned(self, steps: int, tasks: int) -> None:
        """The dataset is loaded."""
        self.planned = min(steps, self._max_steps) if self._max_steps is not None else steps
        self.emit(ev.RunPlanned(steps=self.planned, tasks=tasks))

    def on_batch(self, step: int, batch: list[HarborGroup]) -> None:
        """A batch begins. Raises `StopAfterStepError` when a stop was asked for."""
        if self._should_stop(step):
            raise StopAfterStepError(f"stopped before step {step}")
        self.step = step
        self.forget_step()
        self.replaying = bool(batch) and all(group.recorded and group.recorded.replayed for group in batch)
        self.emit(
            ev.StepStarted(
                step=step,
                groups=len(batch),
                policy_version=self.policy_version,
                weights=self.weights,
                replayed=self.replaying,
            )
        )
        self.stage = "rollout"
        self.saves.weights_are(whole=True)
        if self._save_beginning:
            self._save_beginning = False
            self._beginning = asyncio.get_running_loop().create_task(self.saves.beginning())

    def recorded_batch(self, step: int) -> RecordedBatch | None:
        """The batch as an earlier engine began it from these weights, None when none did."""
        return self._plan.batch(step, self.weights) if self._plan is not None else None

    def recorded_group(self, step: int, group: int) -> RecordedGroup:
        """What is known of a group that is to be rolled out from these weights."""
        return self._plan.group(step, group, self.weights) if self._plan is not None else RecordedGroup()

    def forget_step(self) -> None:
        """Let go of the step's captured calls; they can be hundreds of megabytes."""
        self.groups, self.figures = [], []

    async def begin_training(self) -> None:
        """The rollouts are in; the batch is prepared and trained on, once a save that is under way has ended."""
        if self._beginning is not None:
            await self._beginning
            self._beginning = None
        async with self.saves.lock:
            self.stage = "training"
            self.saves.weights_are(whole=False)
        self.emit(ev.RunPhase(phase="training"))

    def trained(self, optimizer_steps: int) -> None:
        """The weights are others now: so many optimiser steps were taken on the batch."""
        self.policy_version += optimizer_steps
        if self._plan is None:
            return
        keys = [
            try_key((self.step, group.group, trial.trial, trial.try_))
            for group in self.groups
            if group.kept
            for trial in group.trials
        ]
        self.weights = lineage.after(self.weights, self._plan.recipe, keys)

    def end_step(self) -> None:
        """The step is trained, or had nothing to train on; its weights have been handed to the sampler."""
        self.finished_steps = self.steps_done = self.step + 1
        self.stage = "between"
        self.forget_step()
        self.saves.weights_are(whole=True)

    async def run_group(self, group: HarborGroup, sampler: Any) -> GroupResult:
        """Run a group on the engine's loop and wait for it here. A cancellation crosses over."""
        return await self._over_there(self._run_group(group, sampler, self.policy_version))

    async def release_group(self, group: HarborGroup) -> GroupResult:
        """Wait until every group of the batch has ended; what the group came to in the end."""
        result = await self._over_there(self._release_group(group))
        self.groups.append(result)
        return result

    async def _over_there(self, work: Coroutine[Any, Any, GroupResult]) -> GroupResult:
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, self._main_loop))


_current: list[Runtime] = []


def install(runtime: Runtime) -> None:
    """Make `runtime` the one that strategy and dataset find."""
    _current[:] = [runtime]


def current() -> Runtime:
    """The installed runtime. Raises `LookupError` outside an engine."""
    if not _current:
        raise LookupError("no training run in this process")
    return _current[0]
