"""Where the cookbook's side of the process meets the engine's.

The cookbook's loop runs on a thread with an event loop of its own, and its config must be plain data (it is
deep-copied and dumped). So the strategy and the dataset builder hold nothing and look up the `Runtime` here: one run
per process.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from console.journal import events as ev
from console.training.dataset import HarborGroup
from console.training.figures import BatchFigures
from console.training.groups import GroupResult


class StopAfterStepError(Exception):
    """Raised out of `get_batch` to leave the cookbook's loop between two steps."""


class Runtime:
    """The engine as the training thread sees it. Every method here is called on the training thread.

    Args:
        main_loop: the engine's loop; run_group: runs one group there.
        emit: appends an event on the main loop (this class brings it there).
        should_stop: whether a stop after the step was asked for, asked between steps.
        policy_version: optimiser steps behind the weights at the start; max_steps: the bound of the run, if any.
    """

    def __init__(
        self,
        *,
        main_loop: asyncio.AbstractEventLoop,
        emit: Callable[[ev.Event], None],
        run_group: Callable[[HarborGroup, Any, int], Coroutine[Any, Any, GroupResult]],
        should_stop: Callable[[int], bool],
        policy_version: int = 0,
        max_steps: int | None = None,
    ) -> None:
        self._main_loop, self._emit = main_loop, emit
        self._run_group, self._should_stop = run_group, should_stop
        self.policy_version, self._max_steps = policy_version, max_steps
        self.step = -1
        self.groups: list[GroupResult] = []
        self.figures: list[BatchFigures] = []
        self.planned: int | None = None
        self.checkpoints: Any = None
        self.service: Any = None
        self.last_saved = -1
        self.finished_steps = 0

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

    def forget_step(self) -> None:
        """Let go of the step's captured calls; they can be hundreds of megabytes."""
        self.groups, self.figures = [], []

    def begin_training(self) -> None:
        """The rollouts are in; the batch is prepared and trained on."""
        self.emit(ev.RunPhase(phase="training"))

    async def run_group(self, group: HarborGroup, sampler: Any) -> GroupResult:
        """Run a group on the engine's loop and wait for it here. A cancellation crosses over."""
        coroutine = self._run_group(group, sampler, self.policy_version)
        result = await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(coroutine, self._main_loop))
        self.groups.append(result)
        return result


_current: list[Runtime] = []


def install(runtime: Runtime) -> None:
    """Make `runtime` the one that strategy and dataset find."""
    _current[:] = [runtime]


def current() -> Runtime:
    """The installed runtime. Raises `LookupError` outside an engine."""
    if not _current:
        raise LookupError("no training run in this process")
    return _current[0]
