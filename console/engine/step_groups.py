"""The groups of the current step on the main loop, from their start until the whole batch has ended."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any

from console.engine.tasks import settle

if TYPE_CHECKING:
    from console.training.dataset import HarborGroup
    from console.training.groups import GroupResult, GroupRun
    from console.training.trial_run import TrialRun


class StepGroups:
    """Knows every group that can still be acted on.

    A group that has ended waits here for the slowest one, as it would in the cookbook; until the batch is complete
    it can be discarded.

    Attributes:
        active: those groups, by index.
    """

    def __init__(self) -> None:
        self.active: dict[int, GroupRun] = {}
        self._tasks: set[asyncio.Task[Any]] = set()
        self._step = -1
        self._ended: set[int] = set()
        self._complete = asyncio.Event()

    @property
    def step(self) -> int | None:
        """The step whose groups ran last, None before the first."""
        return self._step if self._step >= 0 else None

    @property
    def trials(self) -> list[TrialRun]:
        """The trials of these groups."""
        return [trial for group in self.active.values() for trial in group.trials]

    async def run(self, run: GroupRun) -> GroupResult:
        """A group's trials to their end. Raises what the group raises."""
        if run.step != self._step:
            self._step, self._ended, self._complete = run.step, set(), asyncio.Event()
        self.active[run.group] = run
        try:
            return await self._kept(run.run())
        except BaseException:
            self._forget(run)
            raise

    async def release(self, group: HarborGroup) -> GroupResult:
        """Wait until all groups of the batch have ended; what the group came to."""
        return await self._kept(self._release(self.active[group.group], group.batch))

    async def _release(self, run: GroupRun, batch: int) -> GroupResult:
        complete = self._complete
        self._ended.add(run.group)
        if len(self._ended) >= batch:
            complete.set()
        try:
            await complete.wait()
        finally:
            self._forget(run)
        assert run.result is not None
        return run.result

    async def _kept(self, work: Coroutine[Any, Any, GroupResult]) -> GroupResult:
        """The work, ended by `close` if that comes first."""
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            return await work
        finally:
            self._tasks.discard(task)

    def _forget(self, run: GroupRun) -> None:
        if self.active.get(run.group) is run:
            del self.active[run.group]

    async def close(self, seconds: float) -> None:
        """Cancel all groups and wait for them, at most so many seconds."""
        await settle(self._tasks, seconds)
