"""The parts of an engine that commands act on, the real ones, over a stage of trials."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from trial_stage import Stage
from whole_runs import until

from console.control.commands import Command
from console.engine.commands import EngineCommands
from console.engine.steering import Steering
from console.errors import QuarterdeckError
from console.training.checkpoints import Saved
from console.training.dataset import HarborGroup
from console.training.groups import GroupResult, GroupRun
from console.training.options import parse
from console.training.trial_context import Totals


class Engine:
    """What `EngineCommands` needs. A checkpoint is `saved`, or fails when its steps are negative."""

    def __init__(self, tasks: Path, *words: str, on_failure: str = "hold", quarantined: tuple[str, ...] = ()) -> None:
        options = parse(
            [
                "config.model_name=a/b", "config.learning_rate=1e-3", "config.max_tokens=8", "config.log_path=run",
                f"config.dataset_builder.tasks_dir={tasks}", "harbor.trial_config=t.json",
                "harbor.max_parallel_trials_per_group=2", *words,
            ]
        )  # fmt: skip
        self.stage, self.totals = Stage(), Totals()
        self.steering = Steering(options, on_failure, self.totals, self.stage.emit, quarantined)
        self.view, self.emit = self.stage.view, self.stage.emit
        self.ending, self.saved = False, Saved(name="000001-request", steps=1, seconds=0.5)
        self._commands = EngineCommands(self)
        self._tasks: list[asyncio.Task[GroupResult]] = []

    def stop_now(self, by: str, *, why: str = "", soon: bool = False) -> None:
        self.ending = True

    def now(self) -> float:
        return self.view.state.ts

    def checkpoint_plan(self) -> tuple[bool, str]:
        return True, "saves"

    async def save_checkpoint(self) -> Saved:
        if self.saved.steps < 0:
            raise QuarterdeckError("not saved")
        return self.saved

    def begin(self, groups: int = 1, size: int = 3, step: int = 0) -> None:
        """A step of so many groups, as the cookbook's strategy runs them."""

        async def both(group: HarborGroup) -> GroupResult:
            await self.steering.groups.run(GroupRun(context, group, None))
            return await self.steering.groups.release(group)

        context = self.stage.context(self.steering.policy, self.steering.dispatch)
        made = [HarborGroup(Path("task"), step, i, size, groups) for i in range(groups)]
        self._tasks = [asyncio.ensure_future(both(group)) for group in made]

    async def end(self) -> list[GroupResult]:
        self.stage.gate.set()
        async with asyncio.timeout(10):
            return await asyncio.gather(*self._tasks)

    def asks(self, name: str, **args: Any) -> tuple[bool, str]:
        return self._commands.describe(Command(id="x", command=name, args=args, author="ada"))

    async def does(self, name: str, **args: Any) -> tuple[bool, str]:
        return await self._commands.execute(Command(id="x", command=name, args=args, author="ada"))

    def told(self, kind: type) -> list[Any]:
        return [event for event in self.stage.events if isinstance(event, kind)]

    async def running(self, number: int) -> None:
        await until(lambda: len(self.stage.running) == number)
