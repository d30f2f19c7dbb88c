"""Checkpoints on request: never while a step trains, one after the other, each state once."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from console.errors import QuarterdeckError
from console.journal import events as ev
from console.training.runtime import Runtime


class Manager:
    """Saves when it is let, into a list of (steps, name)."""

    def __init__(self, runtime: Runtime) -> None:
        self.runtime, self.saved, self.free, self.fails = runtime, [], asyncio.Event(), 0
        self.free.set()

    async def save_on_request(self, steps: int, name: str) -> str:
        self.runtime.emit(ev.RunPhase(phase="saving"))
        await self.free.wait()
        if self.fails:
            self.fails -= 1
            raise ConnectionError("gone")
        self.saved.append((steps, name))
        self.runtime.last_saved, self.runtime.last_saved_name = steps, name
        return name


@pytest.fixture
async def run() -> Any:
    async def nothing(*_: Any) -> Any:
        raise AssertionError

    runtime = Runtime(
        main_loop=asyncio.get_running_loop(), emit=lambda event: phases.append(getattr(event, "phase", "rollout")),
        run_group=nothing, release_group=nothing, should_stop=lambda step: False, start_step=2,
    )  # fmt: skip
    phases: list[str] = []
    runtime.checkpoints, runtime.phases = Manager(runtime), phases  # type: ignore[attr-defined]
    return runtime


async def turn() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


async def test_during_a_rollout_it_is_saved_at_once_and_the_phase_comes_back(run):
    run.on_batch(2, [])
    saved = await run.saves.save()
    assert (saved.name, saved.steps) == ("000002-request", 2) and saved.seconds is not None
    await turn()
    assert run.phases == ["rollout", "saving", "rollout"]
    again = await run.saves.save()
    assert (again.name, again.steps, again.seconds) == ("000002-request", 2, None)
    assert run.checkpoints.saved == [(2, "000002-request")]


@pytest.mark.parametrize("when", ["connecting", "training"])
async def test_it_waits_until_the_weights_are_whole(run, when):
    if when == "training":
        run.on_batch(2, [])
        await run.begin_training()
    asked = asyncio.ensure_future(run.saves.save())
    await turn()
    assert not asked.done() and run.checkpoints.saved == []
    if when == "training":
        run.end_step()
    run.on_batch(3 if when == "training" else 2, [])
    assert (await asked).steps == (3 if when == "training" else 2)


async def test_training_waits_for_a_save_and_a_save_that_came_too_late_waits_for_the_step(run):
    run.on_batch(2, [])
    run.checkpoints.free.clear()
    first = asyncio.ensure_future(run.saves.save())
    await turn()
    training = asyncio.ensure_future(run.begin_training())
    late = asyncio.ensure_future(run.saves.save())
    await turn()
    assert not training.done() and run.stage == "rollout"
    run.checkpoints.free.set()
    await training
    assert (await first).steps == 2 and run.stage == "training"
    run.last_saved = -1
    await turn()
    assert not late.done()
    run.end_step()
    assert (await late).steps == 3
    assert run.checkpoints.saved == [(2, "000002-request"), (3, "000003-request")]


async def test_a_save_that_fails_is_told_and_may_be_asked_for_again(run):
    run.on_batch(2, [])
    run.checkpoints.fails = 1
    with pytest.raises(QuarterdeckError, match="not saved, the run goes on: ConnectionError: gone"):
        await run.saves.save()
    await turn()
    assert run.phases[-1] == "rollout"
    assert (await run.saves.save()).name == "000002-request-2", "the gateway may know the first name"


async def test_what_was_asked_for_is_saved_before_the_loop_ends(run):
    run.on_batch(2, [])
    await run.begin_training()
    asked = asyncio.ensure_future(run.saves.save())
    await turn()
    run.step = 2
    run.end_step()
    await run.saves.settle()
    assert asked.done() and asked.result().steps == 3
