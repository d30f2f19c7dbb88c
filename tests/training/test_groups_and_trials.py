"""Trials and groups, cancelled, held, retried and broken at every moment, with a launcher that does as it is told."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import msgspec
import pytest
from trial_stage import BUG, GOOD, LOST, Route, Stage
from whole_runs import until

from console.errors import UsageError
from console.journal import events as ev
from console.training.groups import GroupResult, GroupRun
from console.training.trial_context import PolicyStopError, TrialBrokenError
from console.training.trial_run import TrialRun


@pytest.fixture
async def stage() -> Stage:
    return Stage()


def held(trial: TrialRun) -> Callable[[], bool]:
    return lambda: trial.held is not None


async def ended(group: GroupRun, task: asyncio.Task[GroupResult]) -> GroupResult | BaseException:
    async with asyncio.timeout(10):
        return (await asyncio.gather(task, return_exceptions=True))[0]


async def test_a_group_trains_on_its_scored_trials(stage):
    group = stage.group()
    stage.gate.set()
    result = await group.run()
    assert result.kept and result.rewards == [1.0] * 3 and result.zero_variance
    assert result.outcomes == {"completed": 3}
    stage.check(group)


@pytest.mark.parametrize("moment", ["before", "queued", "opening", "running", "held", "twice"])
async def test_a_trial_cancelled_at_any_moment_leaves_its_group(stage, moment):
    group = stage.group(parallel=2, on_failure="hold")
    last = group.trials[2]
    stage.script["s0.g0.t2.y0"] = LOST
    if moment == "before":
        last.cancel("operator")
    if moment == "opening":
        stage.opening.clear()
    task = asyncio.ensure_future(group.run())
    await until(lambda: moment == "opening" or len(stage.running) == 2)
    if moment == "queued":
        last.cancel("operator")
        await until(lambda: last.done)
        assert len(stage.running) == 2, "it did not wait for a free slot"
    elif moment == "opening":
        await asyncio.sleep(0.01)
        group.trials[0].cancel("operator")
        stage.opening.set()
        last = group.trials[0]
        stage.script.clear()
    elif moment in ("running", "twice"):
        last = group.trials[0]
        last.cancel("operator")
        if moment == "twice":
            await asyncio.sleep(0)
            last.cancel("operator")
        stage.script.clear()
    stage.gate.set()
    if moment == "held":
        await until(held(last))
        last.cancel("operator")
    result = await ended(group, task)
    assert isinstance(result, GroupResult) and result.kept and len(result.trials) == 2
    assert result.outcomes == {"completed": 2, "cancelled": 1}
    assert last.result is not None and last.result.verdict.cause == "operator"
    stage.check(group)


@pytest.mark.parametrize("moment", ["before", "opening", "running", "held"])
@pytest.mark.parametrize("how", ["group", "run", "both"])
async def test_a_group_ended_at_any_moment_leaves_nothing(stage, moment, how):
    group = stage.group(size=4, parallel=2, on_failure="hold")
    stage.script["s0.g0.t0.y0"] = LOST
    if moment == "opening":
        stage.opening.clear()
    task = asyncio.ensure_future(group.run())
    if moment == "opening":
        await asyncio.sleep(0.01)
    elif moment == "running":
        await until(lambda: len(stage.running) == 2)
    elif moment == "held":
        stage.gate.set()
        await until(lambda: group.trials[0].held is not None and stage.view.state.groups[0].trials[3].phase == "done")
    if how in ("group", "both"):
        group.cancel("operator")
    if how in ("run", "both"):
        task.cancel()
        await asyncio.sleep(0)
        task.cancel()
    stage.opening.set()
    result = await ended(group, task)
    if how == "group":
        assert isinstance(result, GroupResult) and not result.kept and result.trials == []
        assert result.reason == "cancelled by operator"
    else:
        assert isinstance(result, asyncio.CancelledError)
    if moment == "before" and how != "group":
        assert stage.events[1:] == [], "it never began"
        return
    stage.check(group)


async def test_a_slot_is_free_while_a_trial_is_held(stage):
    group = stage.group(size=2, parallel=1, on_failure="hold")
    stage.script["s0.g0.t0.y0"] = LOST
    stage.gate.set()
    task = asyncio.ensure_future(group.run())
    await until(lambda: group.trials[0].held is not None and group.trials[1].done)
    assert group.trials[0].retry() and not group.trials[0].retry()
    result = await ended(group, task)
    assert isinstance(result, GroupResult) and len(result.trials) == 2
    assert stage.most == 1
    stage.check(group)


async def test_a_retry_that_fails_is_held_again_and_only_the_last_try_trains(stage):
    group = stage.group(size=2, on_failure="hold")
    stage.script |= {"s0.g0.t0.y0": LOST, "s0.g0.t0.y1": LOST}
    stage.gate.set()
    task = asyncio.ensure_future(group.run())
    for number in (0, 1):
        await until(lambda n=number: group.trials[0].held is not None and group.trials[0].held.try_ == n)
        assert group.trials[0].retry()
    result = await ended(group, task)
    assert isinstance(result, GroupResult)
    assert [trial.try_ for trial in result.trials] == [2, 0]
    assert [route.key for route in stage.routes if ".t0." in route.key] == [f"s0.g0.t0.y{n}" for n in range(3)]
    trained = result.trials[0].captured
    assert trained is not None and list(trained.segments[0].turns[0].tokens_T) == [hash("s0.g0.t0.y2") % 97]
    assert [e.try_ for e in stage.events if isinstance(e, ev.TrialRetried)] == [1, 2]
    assert len([e for e in stage.events if isinstance(e, ev.TrialHeld)]) == 2
    stage.check(group)


async def test_a_fault_that_no_retry_cures_is_not_retried(stage):
    group = stage.group(size=2, on_failure="hold")
    stage.script["s0.g0.t0.y0"] = BUG
    stage.gate.set()
    task = asyncio.ensure_future(group.run())
    await until(held(group.trials[0]))
    assert not group.trials[0].retry()
    group.cancel("operator")
    result = await ended(group, task)
    assert isinstance(result, GroupResult) and not result.kept
    stage.check(group)


async def test_a_held_trial_that_is_cancelled_keeps_what_had_failed(stage):
    group = stage.group(size=3, on_failure="hold")
    stage.script |= {"s0.g0.t0.y0": LOST, "s0.g0.t1.y0": LOST}
    stage.gate.set()
    task = asyncio.ensure_future(group.run())
    await until(lambda: all(t.held is not None for t in group.trials[:2]))
    group.trials[0].cancel("ada")
    assert group.trials[1].retry()
    await ended(group, task)
    last = {e.trial: e for e in stage.events if isinstance(e, ev.TrialFinished)}
    assert (last[0].outcome, last[0].cause, last[0].exception) == ("cancelled", "operator", "RunnerLostError")
    assert last[0].evidence.startswith("cancelled by ada; before: infrastructure ")
    assert "gone" in last[0].evidence and last[1].outcome == "completed" and last[1].exception is None
    stage.check(group)


async def test_retries_are_counted_and_bounded(stage):
    group = stage.group(size=2, on_failure="retry", max_tries=2)
    stage.script |= {"s0.g0.t0.y0": LOST, "s0.g0.t0.y1": LOST}
    stage.gate.set()
    with pytest.raises(PolicyStopError, match=r"^step 0 g1/t1 \(task\): infrastructure runner: RunnerLostError: gone$"):
        await group.run()
    assert stage.finished()[(0, 0)] == stage.finished()[(0, 1)] == 1
    stage.check(group)


@pytest.mark.parametrize("reported", [LOST, BUG, "silent"])
async def test_a_failure_under_stop_cancels_the_siblings(stage, reported):
    group = stage.group(size=4, parallel=2)
    stage.script["s0.g0.t0.y0"] = reported
    task = asyncio.ensure_future(group.run())
    await until(lambda: len(stage.running) == 2)
    release = group.trials[1]
    stage.script["s0.g0.t1.y0"] = GOOD
    stage.gate.set()
    error = await ended(group, task)
    assert isinstance(error, PolicyStopError) and error.exit_code == 4
    assert release.result is not None
    causes = {e.cause for e in stage.events if isinstance(e, ev.TrialFinished) and e.outcome == "cancelled"}
    assert causes <= {"group"} and stage.outcomes()[3] == "cancelled"
    stage.check(group)


@pytest.mark.parametrize(
    ("error", "code"), [(OSError("no file descriptors"), 7), (RuntimeError("a bug"), 7), (UsageError("key: x"), 2)]
)
async def test_what_breaks_the_engine_itself_ends_the_group_with_its_name(stage, error, code):
    group = stage.group(size=3, on_failure="hold")
    stage.script["s0.g0.t1.y0"] = error
    stage.gate.set()
    ended_with = await ended(group, asyncio.ensure_future(group.run()))
    assert isinstance(ended_with, TrialBrokenError) and ended_with.exit_code == code
    assert "g1/t2 (task)" in str(ended_with) and str(error) in str(ended_with)
    assert stage.outcomes()[1] == "infrastructure"
    stage.check(group)


async def test_a_group_with_one_scored_trial_is_dropped(stage):
    group = stage.group(size=3, parallel=3)
    task = asyncio.ensure_future(group.run())
    await until(lambda: len(stage.running) == 3)
    for trial in group.trials[:2]:
        trial.cancel("operator")
    await until(lambda: len(stage.running) == 1)
    stage.gate.set()
    result = await ended(group, task)
    assert isinstance(result, GroupResult) and not result.kept and "1 scored of 3" in result.reason
    stage.check(group)


async def test_the_hold_ends_at_its_deadline(stage):
    group = stage.group(size=2, on_failure="hold", hold_timeout=0.05)
    stage.script["s0.g0.t0.y0"] = LOST
    stage.gate.set()
    with pytest.raises(PolicyStopError):
        await group.run()
    stage.check(group)


async def test_a_hold_follows_a_time_out_that_changes(stage):
    group = stage.group(size=2, on_failure="hold", hold_timeout=600)
    stage.script["s0.g0.t0.y0"] = LOST
    stage.gate.set()
    task = asyncio.ensure_future(group.run())
    await until(held(group.trials[0]))
    stage.policy.hold_timeout = 1200.0
    group.trials[0].move_deadline()
    first, second = [e for e in stage.events if isinstance(e, ev.TrialHeld)]
    assert second.deadline - first.deadline == pytest.approx(600, abs=5)
    assert stage.view.state.groups[0].trials[0].hold_deadline == second.deadline
    group.trials[1].move_deadline()
    assert len([e for e in stage.events if isinstance(e, ev.TrialHeld)]) == 2, "it is not held"
    stage.policy.hold_timeout = 0.01
    group.trials[0].move_deadline()
    error = await ended(group, task)
    assert isinstance(error, PolicyStopError)
    stage.check(group)


async def test_a_decision_at_the_very_deadline_counts(stage):
    group = stage.group(size=2, on_failure="hold", hold_timeout=600)
    stage.script["s0.g0.t0.y0"] = LOST
    stage.gate.set()
    task = asyncio.ensure_future(group.run())
    await until(held(group.trials[0]))
    deadline = group.trials[0]._deadline
    assert deadline is not None
    deadline.reschedule(0)
    assert group.trials[0].retry("ada")
    result = await ended(group, task)
    assert isinstance(result, GroupResult) and [trial.try_ for trial in result.trials] == [1, 0]
    assert [e.by for e in stage.events if isinstance(e, ev.TrialRetried)] == ["ada"]
    stage.check(group)


async def test_tries_are_bounded_for_the_operator_too(stage):
    group = stage.group(size=2, on_failure="hold", max_tries=2)
    stage.script |= {"s0.g0.t0.y0": LOST, "s0.g0.t0.y1": LOST}
    stage.gate.set()
    task = asyncio.ensure_future(group.run())
    await until(held(group.trials[0]))
    assert group.trials[0].retry()
    await until(lambda: group.trials[0].try_ == 1 and group.trials[0].held is not None)
    assert not group.trials[0].retry()
    stage.policy.max_tries = 3
    assert group.trials[0].retry()
    assert isinstance(await ended(group, task), GroupResult)
    stage.check(group)


async def test_a_pause_keeps_trials_and_retries_in_the_queue(stage):
    group = stage.group(size=3, parallel=1, on_failure="hold")
    stage.script["s0.g0.t0.y0"] = LOST
    task = asyncio.ensure_future(group.run())
    await until(lambda: len(stage.running) == 1)
    stage.dispatch.pause(True)
    stage.gate.set()
    await until(held(group.trials[0]))
    assert group.trials[0].retry()
    for _ in range(20):
        await asyncio.sleep(0)
    assert stage.running == set() and [t.queued for t in group.trials] == [True, True, True]
    assert group.slots.waiting == 3
    group.trials[1].cancel("ada")
    await until(lambda: group.trials[1].done)
    stage.dispatch.pause(False)
    result = await ended(group, task)
    assert isinstance(result, GroupResult) and [t.try_ for t in result.trials] == [1, 0]
    cancelled = next(e for e in stage.events if isinstance(e, ev.TrialFinished) and e.outcome == "cancelled")
    assert (cancelled.cause, cancelled.evidence) == ("operator", "cancelled by ada")
    stage.check(group)


async def test_more_parallel_trials_begin_at_once_and_fewer_when_places_are_free(stage):
    group = stage.group(size=6, parallel=1)
    task = asyncio.ensure_future(group.run())
    await until(lambda: len(stage.running) == 1)
    stage.dispatch.resize(4)
    await until(lambda: len(stage.running) == 4)
    stage.dispatch.resize(2)
    for _ in range(20):
        await asyncio.sleep(0)
    assert len(stage.running) == 4, "none is stopped"
    stage.most = 0
    for trial in group.trials[:3]:
        trial.cancel("ada")
    await until(lambda: len(stage.running) == 2)
    assert group.slots.taken == 2
    stage.gate.set()
    result = await ended(group, task)
    assert isinstance(result, GroupResult) and len(result.trials) == 3
    stage.check(group)


async def test_a_group_that_ended_can_be_discarded(stage):
    group = stage.group()
    stage.gate.set()
    assert (await group.run()).kept and group.may_train
    group.cancel("ada")
    group.cancel("bob")
    assert group.result is not None and not group.result.kept and group.result.trials == []
    assert group.result.reason == "cancelled by ada" and group.result.outcomes == {"completed": 3}
    assert [e.kept for e in stage.events if isinstance(e, ev.GroupFinished)] == [True, False]
    assert stage.view.state.groups[0].kept is False


async def test_a_trial_whose_turn_comes_with_a_pause_waits_for_its_end() -> None:
    stage = Stage()
    group = stage.group(size=1, parallel=1)
    task = asyncio.ensure_future(group.run())
    while not group.slots.taken:  # noqa: ASYNC110 - the very moment
        await asyncio.sleep(0)
    stage.dispatch.pause(True)
    for _ in range(20):
        await asyncio.sleep(0)
    assert not stage.running and not [e for e in stage.events if isinstance(e, ev.TrialPhase)]
    stage.dispatch.pause(False)
    stage.gate.set()
    await ended(group, task)
    assert next(e.phase for e in stage.events if isinstance(e, ev.TrialPhase)) == "create"


async def test_the_trials_token_stays_out_of_what_is_told_of_its_end(stage, monkeypatch):
    monkeypatch.setattr(Route, "api_key", "zx81-secret")
    group = stage.group(on_failure="stop")
    said = "401 for zx81-secret, see zx81-secret"
    stage.script["s0.g0.t0.y0"] = BUG | {"exception_message": said, "verifier_output": said}
    stage.gate.set()
    with pytest.raises(PolicyStopError) as stopped:
        await group.run()
    told = [event for event in stage.events if isinstance(event, ev.TrialFinished) and event.trial == 0]
    assert told[0].evidence.endswith("401 for [redacted], see [redacted]")
    assert "zx81" not in f"{stopped.value} {stage.events}"


async def test_what_a_trial_was_refused_is_in_the_journal(stage, monkeypatch):
    seal = Route.seal

    async def sealed(route):
        return msgspec.structs.replace(await seal(route), refused={"request": 60})

    monkeypatch.setattr(Route, "seal", sealed)
    group = stage.group(size=1)
    stage.gate.set()
    await group.run()
    (end,) = [event for event in stage.events if isinstance(event, ev.TrialFinished)]
    assert end.refused == {"request": 60} and stage.view.state.groups[0].trials[0].refused == end.refused
