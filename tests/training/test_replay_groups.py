"""Groups whose trials ended under an earlier engine: what is told, what trains, what runs, and in which batch."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from recorded_runs import CANCELLED, INFRA, RUNNING, RecordedRun
from trial_stage import LOST, Stage
from whole_runs import until

from console.errors import UsageError
from console.journal import events as ev
from console.training import lineage
from console.training.dataset import HarborDataset, HarborGroup
from console.training.groups import GroupRun
from console.training.replay import ResumePlan
from console.training.runtime import Runtime
from console.training.slots import Dispatch
from console.training.trial_context import FailurePolicy, PolicyStopError, TrialBrokenError


@pytest.fixture
async def stage() -> Stage:
    return Stage()


@pytest.fixture
def run(tmp_path: Path) -> Iterator[RecordedRun]:
    recorded = RecordedRun(tmp_path / "run")
    recorded.engine()
    recorded.save(0)
    yield recorded
    recorded.close()


def group_of(stage: Stage, found: ResumePlan, weights: str, size: int = 4, **policy: Any) -> GroupRun:
    context = stage.context(FailurePolicy(**policy), Dispatch(8))
    recorded = found.group(0, 0, weights)
    return GroupRun(context, HarborGroup(Path("task0"), 0, 0, recorded.size or size, recorded=recorded), None)


def told(stage: Stage) -> dict[tuple[int, int], bool]:
    """Ends of trials by trial and try: whether each was one of before."""
    return {(e.trial, e.try_): e.reused for e in stage.events if isinstance(e, ev.TrialFinished)}


async def test_only_the_others_run_and_all_train(stage, run):
    run.begin(0)
    run.group(0, 0, {0: 1.0, 1: INFRA, 2: 0.25, 3: RUNNING}, ended=False)
    group = group_of(stage, run.plan(), run.weights)
    assert [trial.try_ for trial in group.trials] == [0, 1, 0, 1]
    stage.gate.set()
    result = await group.run()
    assert sorted(route.key for route in stage.routes) == ["s0.g0.t1.y1", "s0.g0.t3.y1"]
    assert told(stage) == {(0, 0): True, (1, 1): False, (2, 0): True, (3, 1): False}
    assert [(t.trial, t.try_, t.verdict.reward) for t in result.trials] == [
        (0, 0, 1.0), (1, 1, 1.0), (2, 0, 0.25), (3, 1, 1.0)
    ]  # fmt: skip
    assert all(t.captured is not None for t in result.trials) and not any(t.counted for t in result.trials)
    stage.check(group)
    assert len(stage.view.state.recent) == 2, "what was told before is not told again"


async def test_a_trial_of_before_needs_no_place_and_no_pause_holds_it(stage, run):
    run.begin(0)
    run.group(0, 0, {0: 1.0, 1: 0.5}, ended=False)
    group = group_of(stage, run.plan(), run.weights)
    stage.dispatch.pause(True)
    result = await asyncio.wait_for(group.run(), 10)
    assert result.rewards == [1.0, 0.5] and stage.routes == []


async def test_the_policys_tries_are_counted_anew_and_no_key_is_used_twice(stage, run):
    run.begin(0)
    run.group(0, 0, {0: 1.0, 1: INFRA}, tries={1: 2}, ended=False)
    stage.script |= {f"s0.g0.t1.y{n}": LOST for n in (3, 4)}
    stage.gate.set()
    group = group_of(stage, run.plan(), run.weights, on_failure="retry", max_tries=3)
    result = await group.run()
    assert [route.key for route in stage.routes] == [f"s0.g0.t1.y{n}" for n in (3, 4, 5)]
    assert result.kept and group.trials[1].tries == 3
    stage.script["s0.g0.t1.y5"] = LOST
    with pytest.raises(PolicyStopError):
        await group_of(stage, run.plan(), run.weights, on_failure="retry", max_tries=3).run()


async def test_what_an_operator_cancelled_stays_cancelled(stage, run):
    run.begin(0)
    run.group(0, 0, {0: 1.0, 1: 0.5, 2: CANCELLED, 3: 0.0}, ended=False)
    group = group_of(stage, run.plan(), run.weights)
    result = await group.run()
    assert (result.outcomes, result.rewards) == ({"completed": 3, "cancelled": 1}, [1.0, 0.5, 0.0])
    assert told(stage)[2, 0] is True and stage.routes == []


async def test_a_group_that_was_cancelled_runs_nothing_and_does_not_train(stage, run):
    run.begin(0)
    run.group(0, 0, {0: 1.0, 1: 0.5, 2: RUNNING}, size=4, ended=False)
    run.emit(ev.CommandRequested(id="c", command="cancel_group", args={"group": 0}, author="ada"))
    run.emit(ev.CommandAccepted(id="c"))
    group = group_of(stage, run.plan(), run.weights)
    assert not group.may_train
    result = await group.run()
    assert (result.kept, result.reason, stage.routes) == (False, "cancelled by ada", [])
    assert set(told(stage)) == {(0, 0), (1, 0), (2, 1), (3, 0)}


async def test_a_replayed_group_ends_as_it_ended(stage, run):
    run.begin(0)
    run.group(0, 0, {0: 1.0, 1: CANCELLED}, reason="1 scored of 2 trials, 2 needed")
    run.finish(0, [], kept=0)
    found = run.plan()
    assert found.replayed == [0]
    result = await group_of(stage, found, found.weights).run()
    assert (result.kept, result.reason) == (False, "1 scored of 2 trials, 2 needed")
    assert set(told(stage).values()) == {True}


async def test_a_file_that_goes_between_plan_and_use_ends_the_run(stage, run):
    run.begin(0)
    run.group(0, 0, {0: 1.0, 1: 0.5}, ended=False)
    found = run.plan()
    run.file("s0.g0.t1.y0").unlink()
    with pytest.raises(TrialBrokenError, match=r"g1/t2 .*s0\.g0\.t1\.y0"):
        await group_of(stage, found, run.weights).run()


# --- batches ----------------------------------------------------------------------------------------------------------


def runtime(found: ResumePlan, events: list[ev.Event], **options: Any) -> Runtime:
    async def nothing(*_: Any) -> Any:
        raise AssertionError

    return Runtime(
        main_loop=asyncio.get_running_loop(), emit=events.append, run_group=nothing, release_group=nothing,
        should_stop=lambda step: False, plan=found, **options,
    )  # fmt: skip


def dataset(run: RecordedRun, names: str, found: Runtime, quarantined: tuple[str, ...] = ()) -> HarborDataset:
    tasks = [Path("tasks") / name for name in names.split()]
    return HarborDataset(tasks, 3, 2, 2, found.on_batch, lambda: quarantined, found)


async def test_a_batch_that_was_begun_has_the_tasks_that_it_began_with(run):
    """Whatever was left out since, and however the order changed."""
    run.begin(0, size=2)
    run.group(0, 0, {0: 1.0, 1: RUNNING}, task="c", ended=False)
    run.group(0, 1, {0: RUNNING, 1: RUNNING, 2: RUNNING}, task="a", ended=False)
    events: list[ev.Event] = []
    found = run.plan()
    batch = dataset(run, "a b c d", runtime(found, events), quarantined=("c",)).get_batch(0)
    assert [(g.task, g.size, g.batch, g.needs_sampler) for g in batch] == [
        (Path("tasks/c"), 2, 2, True), (Path("tasks/a"), 3, 2, True)
    ]  # fmt: skip
    other = msgspec_with(found, "others")
    batch = dataset(run, "a b c d", runtime(other, events), quarantined=("c",)).get_batch(0)
    assert [g.task.name for g in batch] == ["a", "b"], "begun from other weights, it is another batch"
    assert [g.recorded.tries for g in batch] == [{0: 1, 1: 1}, {0: 1, 1: 1, 2: 1}]
    await until(lambda: len(events) == 2)
    assert [(e.weights, e.replayed, e.groups) for e in events] == [(run.weights, False, 2), ("others", False, 2)]


def msgspec_with(found: ResumePlan, weights: str) -> ResumePlan:
    import msgspec

    return msgspec.structs.replace(found, weights=weights)


async def test_a_task_that_is_gone_is_missed_only_where_it_must_run(run):
    run.begin(0, size=2)
    keys = run.group(0, 0, {0: 1.0, 1: 0.5}, task="gone") + run.group(0, 1, {0: 1.0, 1: 0.5}, task="b")
    weights = run.weights
    run.finish(0, keys, kept=2)
    run.begin(1, size=2)
    run.group(1, 0, {0: 1.0, 1: RUNNING}, task="gone", ended=False)
    events: list[ev.Event] = []
    ours = runtime(run.plan(), events)
    batches = dataset(run, "a b c d", ours)
    assert [g.task.name for g in batches.get_batch(0)] == ["gone", "b"] and ours.replaying
    assert ours.weights == weights
    ours.weights = run.weights
    with pytest.raises(UsageError, match="step 1 was begun with task gone, which is not in the tasks directory"):
        batches.get_batch(1)


async def test_the_name_of_the_weights_follows_what_is_trained(run):
    """A batch that came to something else than it did before does not pass for the same."""
    run.begin(0)
    keys = run.group(0, 0, {0: 1.0, 1: 0.5})
    run.finish(0, keys)
    run.step(1, {0: 1.0, 1: 0.5})
    events: list[ev.Event] = []
    for kept in (keys, keys[:1], []):
        found = run.plan()
        ours = runtime(found, events)
        ours.on_batch(0, [])
        ours.groups = [_result(kept)] if kept else []
        ours.trained(1)
        assert ours.weights == lineage.after(found.weights, found.recipe, kept)
        assert (ours.recorded_batch(1) is not None) is (kept == keys)


def _result(keys: list[str]) -> Any:
    from console.outcomes.classes import OutcomeClass, Verdict
    from console.training.groups import GroupResult
    from console.training.trial_run import TrialResult

    verdict = Verdict(outcome=OutcomeClass.COMPLETED, reward=1.0)
    trials = [TrialResult(trial=int(key.split(".t")[1][0]), try_=0, verdict=verdict) for key in keys]
    return GroupResult(group=0, kept=True, trials=trials)


class Manager:
    """Saves, or fails to."""

    def __init__(self, fails: bool = False) -> None:
        self.saved: list[int] = []
        self.free, self.fails = asyncio.Event(), fails

    async def save_beginning(self, steps: int) -> None:
        await self.free.wait()
        if self.fails:
            raise ConnectionError("gone\nfor good")
        self.saved.append(steps)


@pytest.mark.parametrize("fails", [False, True])
async def test_what_the_run_begins_with_is_saved_before_it_changes(run, fails):
    events: list[ev.Event] = []
    ours = runtime(run.plan(), events, save_beginning=True)
    ours.checkpoints = Manager(fails)
    ours.on_batch(0, [])
    training = asyncio.ensure_future(ours.begin_training())
    await asyncio.sleep(0.01)
    assert not training.done(), "training would change what is being saved"
    ours.checkpoints.free.set()
    await training
    ours.end_step()
    ours.on_batch(1, [])
    await ours.begin_training()
    assert ours.checkpoints.saved == ([] if fails else [0])
    notes = [event.text for event in events if isinstance(event, ev.Note)]
    assert len(notes) == fails and all("not saved (ConnectionError: gone for good)" in note for note in notes)
