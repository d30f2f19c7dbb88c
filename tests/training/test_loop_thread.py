"""The training thread: cancelled early and late, failing, and what it undoes of the cookbook when it ends."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest
from tinker_cookbook import checkpoint_utils
from tinker_cookbook.rl import train
from tinker_cookbook.utils import ml_log

from console.journal import events as ev
from console.training.loop import TrainingThread
from console.training.observe import observed
from console.training.runtime import Runtime, StopAfterStepError


def runtime(**changes: Any) -> Runtime:
    async def run_group(*_: Any) -> Any:
        raise AssertionError("no group here")

    values: dict[str, Any] = {
        "main_loop": asyncio.get_running_loop(), "emit": lambda event: None, "run_group": run_group,
        "release_group": run_group, "should_stop": lambda step: False,
    }  # fmt: skip
    return Runtime(**values | changes)


@pytest.fixture
def main(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], Any]], None]:
    """Puts a loop of the test's in the place of the cookbook's."""

    def put(body: Callable[[], Any]) -> None:
        async def fake(config: Any) -> None:
            await body()

        monkeypatch.setattr(train, "main", fake)

    return put


async def test_a_cancellation_before_the_loop_began_still_ends_it(main):
    main(lambda: asyncio.sleep(3600))
    thread = TrainingThread(runtime(), None)
    thread.cancel()
    async with asyncio.timeout(20):
        result = await thread.start()
    assert result.status == "failed" and isinstance(result.error, asyncio.CancelledError)


async def test_a_cancellation_reaches_the_running_loop(main):
    begun = threading.Event()

    async def body() -> None:
        begun.set()
        await asyncio.sleep(3600)

    main(body)
    thread = TrainingThread(runtime(), None)
    finished = thread.start()
    await asyncio.to_thread(begun.wait, 20)
    thread.cancel()
    async with asyncio.timeout(20):
        assert isinstance((await finished).error, asyncio.CancelledError)


async def test_a_failure_is_told_and_not_raised(main):
    async def body() -> None:
        raise ValueError("of the cookbook")

    main(body)
    result = await TrainingThread(runtime(), None).start()
    assert result.status == "failed" and str(result.error) == "of the cookbook"


@pytest.mark.parametrize(("finished", "saved", "expected"), [(0, -1, []), (3, 3, []), (3, 2, [(3, "stop")])])
async def test_a_stop_between_steps_saves_what_is_not_saved(main, finished, saved, expected):
    run, saves = runtime(), []

    class Manager:
        async def save_at(self, steps: int, kind: str) -> None:
            saves.append((steps, kind))

    async def body() -> None:
        run.checkpoints, run.finished_steps, run.last_saved = Manager(), finished, saved
        raise StopAfterStepError

    main(body)
    assert (await TrainingThread(run, None).start()).status == "stopped"
    assert saves == expected


async def test_a_batch_is_refused_once_a_stop_is_asked_for():
    events: list[ev.Event] = []
    run = runtime(should_stop=lambda step: step >= 1, emit=events.append)
    run.on_batch(0, [])
    with pytest.raises(StopAfterStepError):
        run.on_batch(1, [])
    await asyncio.sleep(0)
    assert [type(event) for event in events] == [ev.StepStarted]


NAMES = [
    (ml_log, "setup_logging"), (checkpoint_utils, "CheckpointManager"), (train, "print_group"), (train, "train_step"),
    (train, "compute_advantages"),
]  # fmt: skip


async def test_the_cookbook_is_as_it_was_afterwards_also_when_runs_overlap():
    before = [getattr(module, name) for module, name in NAMES]
    hanging, later = observed(runtime()), observed(runtime())
    hanging.__enter__()
    later.__enter__()
    ours = [getattr(module, name) for module, name in NAMES]
    assert not set(map(id, before)) & set(map(id, ours))
    hanging.__exit__(None, None, None)
    assert [getattr(module, name) for module, name in NAMES] == ours
    later.__exit__(None, None, None)
    assert [getattr(module, name) for module, name in NAMES] == before
