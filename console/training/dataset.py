"""The dataset: directories of Harbor tasks, in batches of groups, as the cookbook asks for them."""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import chz
from tinker_cookbook.rl.types import (
    Env,
    EnvGroupBuilder,
    Metrics,
    RLDataset,
    RLDatasetBuilder,
    StepResult,
    Trajectory,
)

from console.errors import UsageError
from console.outcomes.classes import OutcomeClass
from console.training.recorded import RecordedBatch, RecordedGroup
from console.training.tasks import find_tasks

CLASSES = [outcome.value for outcome in OutcomeClass]


class TrialEnv(Env):
    """Carries a scored trial's reward to the cookbook. Its steps happened elsewhere, in a Harbor sandbox."""

    def __init__(self, trial: int) -> None:
        self.trial = trial
        self.reward = 0.0
        self.outcome = OutcomeClass.COMPLETED

    async def initial_observation(self) -> Any:  # pragma: no cover - the strategy never asks
        raise RuntimeError("a Harbor trial has no step-wise observation")

    async def step(self, action: object, *, extra: object = None) -> StepResult:  # pragma: no cover
        raise RuntimeError("a Harbor trial is not driven step by step")


@dataclass
class HarborGroup(EnvGroupBuilder):
    """One group of a batch: a task, and where it stands in the run.

    Attributes:
        task: the task's directory; step, group: indices from 0; size: trials; batch: groups of its batch.
        recorded: what an earlier engine has of it, None for a run that knows of none.
    """

    task: Path
    step: int
    group: int
    size: int
    batch: int = 1
    recorded: RecordedGroup | None = None

    @property
    def needs_sampler(self) -> bool:
        """Whether a trial of it runs."""
        return self.recorded is None or not self.recorded.whole

    async def make_envs(self) -> Sequence[Env]:
        return [TrialEnv(i) for i in range(self.size)]

    async def compute_group_rewards(
        self, trajectory_group: list[Trajectory], env_group: Sequence[Env]
    ) -> list[tuple[float, Metrics]]:
        """The verifier's rewards, and every class as 0 or 1 (the cookbook averages only over keys that are there)."""
        result: list[tuple[float, Metrics]] = []
        for env in env_group:
            assert isinstance(env, TrialEnv)
            result.append((env.reward, {f"outcome/{c}": float(c == env.outcome.value) for c in CLASSES}))
        return result

    def logging_tags(self) -> list[str]:
        return ["harbor"]


class Recordings(Protocol):
    """What earlier engines have of the batches to come, sampled from the weights at hand."""

    def recorded_batch(self, step: int) -> RecordedBatch | None:
        """The batch as it was begun, None when it was not."""

    def recorded_group(self, step: int, group: int) -> RecordedGroup:
        """What is known of a group."""


class HarborDataset(RLDataset):
    """Batches of groups over the tasks.

    Args:
        tasks: task directories in epoch order; steps: number of batches; groups: groups a batch; size: trials a group.
        on_batch: called on the cookbook's thread with (step, groups) when a batch begins; may raise to end the loop.
        quarantined: names of the tasks to leave out, asked for each batch.
        recordings: of a run that is resumed: a batch that was begun has the tasks that it began with.
    """

    def __init__(
        self,
        tasks: list[Path],
        steps: int,
        groups: int,
        size: int,
        on_batch: Callable[[int, list[HarborGroup]], None],
        quarantined: Callable[[], Collection[str]] = frozenset,
        recordings: Recordings | None = None,
    ) -> None:
        self._tasks, self._steps, self._groups, self._size, self._on_batch = tasks, steps, groups, size, on_batch
        self._quarantined, self._recordings = quarantined, recordings

    def __len__(self) -> int:
        return self._steps

    def get_batch(self, index: int) -> list[HarborGroup]:
        chosen = self._chosen(index * self._groups, self._quarantined())
        recorded = self._recordings.recorded_batch(index) if self._recordings is not None else None
        if recorded is not None:
            chosen = self._as_begun(recorded, chosen)
        batch = [HarborGroup(task, index, g, self._size, len(chosen)) for g, task in enumerate(chosen)]
        if self._recordings is not None:
            for group in batch:
                group.recorded = self._recordings.recorded_group(index, group.group)
                group.size = group.recorded.size or self._size
        self._on_batch(index, batch)
        return batch

    def _as_begun(self, recorded: RecordedBatch, planned: list[Path]) -> list[Path]:
        """The tasks of a batch that was begun; of groups that were not, the planned ones.

        Raises:
            UsageError: a task is gone, and trials of it are to be run.
        """
        known = {task.name: task for task in self._tasks}
        chosen: list[Path] = []
        for index in range(recorded.size):
            group = recorded.groups.get(index)
            if group is None:
                chosen += planned[index : index + 1]
            elif group.task in known:
                chosen.append(known[group.task])
            elif group.whole:
                chosen.append(Path(group.task))
            else:
                raise UsageError(
                    f"step {recorded.step} was begun with task {group.task[:80]}, which is not in the tasks directory "
                    "any more; put it back, or begin another run with `quarterdeck fork`"
                )
        return chosen

    def _chosen(self, first: int, left_out: Collection[str]) -> list[Path]:
        """The batch's tasks. A task that is left out is replaced by the next of the order that is not in the batch.

        The order is a ring here. The batch is smaller when the tasks do not suffice.
        """
        planned = self._tasks[first : first + self._groups]
        if not left_out:
            return planned
        inside = {task.name for task in planned if task.name not in left_out}
        after = first + len(planned)
        ring = iter(self._tasks[after:] + self._tasks[:after])
        chosen: list[Path] = []
        for task in planned:
            if task.name in left_out:
                spare = next((t for t in ring if t.name not in left_out and t.name not in inside), None)
                if spare is None:
                    continue
                inside.add(spare.name)
                task = spare
            chosen.append(task)
        return chosen


@chz.chz
class HarborDatasetBuilder(RLDatasetBuilder):
    """Options of the dataset, under `config.dataset_builder`."""

    tasks_dir: str = chz.field(doc="Directory of Harbor task directories.")
    groups_per_batch: int = chz.field(default=4, doc="Tasks a batch.")
    group_size: int = chz.field(default=4, doc="Trials a task; advantages are computed within a group.")
    epochs: int = chz.field(default=1, doc="Passes over the dataset.")
    shuffle_seed: int | None = chz.field(
        default=None, doc="Seed of a new task order in each epoch; None keeps the order by name."
    )

    def task_order(self) -> list[Path]:
        """The tasks of all epochs, one after the other. Raises `UsageError` as `find_tasks` does."""
        tasks = find_tasks(self.tasks_dir)
        order: list[Path] = []
        for epoch in range(self.epochs):
            if self.shuffle_seed is None:
                order += tasks
            else:
                order += random.Random(f"{self.shuffle_seed}/{epoch}").sample(tasks, len(tasks))
        return order

    def batches(self) -> int:
        """Number of batches; the last one may be smaller."""
        return -(-len(self.task_order()) // self.groups_per_batch)

    async def __call__(self) -> tuple[RLDataset, RLDataset | None]:
        from console.training.runtime import current

        runtime = current()
        order = self.task_order()
        dataset = HarborDataset(
            order,
            self.batches(),
            self.groups_per_batch,
            self.group_size,
            runtime.on_batch,
            runtime.quarantined,
            runtime,
        )
        runtime.on_planned(len(dataset), len(set(order)))
        return dataset, None
