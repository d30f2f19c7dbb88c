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
from console.training.checkpoints import SaveRequests
from console.training.dataset import HarborGroup
from console.training.figures import BatchFigures
from console.training.groups import GroupResult


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
        start_step: the step at which the loop begins.

    Attributes:
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
    ) -> None:
        self._main_loop, self._emit = main_loop, emit
        self._run_group, self._release_group, self._should_stop = run_group, release_group, should_stop
        self.quarantined = quarantined
        self.policy_version, self._max_steps = policy_version, max_steps
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
        self.emit(ev.StepStarted(step=step, groups=len(batch), policy_version=self.policy_version))
        self.stage = "rollout"
        self.saves.weights_are(whole=True)

    def forget_step(self) -> None:
        """Let go of the step's captured calls; they can be hundreds of megabytes."""
        self.groups, self.figures = [], []

    async def begin_training(self) -> None:
        """The rollouts are in; the batch is prepared and trained on, once a save that is under way has ended."""
        async with self.saves.lock:
            self.stage = "training"
            self.saves.weights_are(whole=False)
        self.emit(ev.RunPhase(phase="training"))

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
