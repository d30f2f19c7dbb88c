"""Trials and groups, cancelled, held, retried and broken at every moment, with a launcher that does as it is told."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from whole_runs import until

from console.capture.base import CapturedCall, CapturedTrial
from console.errors import UsageError
from console.journal import events as ev
from console.outcomes.classes import CallEvidence
from console.outcomes.rules import classify
from console.state.reduce import RunView, apply
from console.training.dataset import HarborGroup
from console.training.groups import GroupResult, GroupRun
from console.training.slots import Dispatch
from console.training.trial_context import FailurePolicy, PolicyStopError, Totals, TrialBrokenError, TrialContext
from console.training.trial_run import TrialRun
from console.trials.protocol import TrialProgress, TrialReport

GOOD: dict[str, Any] = {"rewards": {"reward": 1.0}}
LOST: dict[str, Any] = {"exception_type": "RunnerLostError", "exception_message": "gone", "exception_phase": "agent"}
BUG: dict[str, Any] = {"exception_type": "ZeroDivisionError", "exception_message": "bug", "exception_phase": "agent"}


class Route:
    """A route that remembers whether it was sealed."""

    url, api_key = "http://127.0.0.1:1", "token"

    def __init__(self, key: str, calls: int) -> None:
        self.key, self.sealed, self._calls = key, False, calls

    def stop(self) -> None:
        pass

    async def seal(self) -> CapturedTrial:
        await asyncio.sleep(0)
        self.sealed = True
        call = CapturedCall(
            prompt_P=[1], tokens_T=[hash(self.key) % 97], logprobs_T=[-1.0], stop_reason="stop", seconds=0
        )
        return CapturedTrial(
            calls=[call] * self._calls, evidence=CallEvidence(calls=self._calls, sampled_tokens=self._calls)
        )


class Stage:
    """Launcher, capture gateway and journal of a group under test.

    Attributes:
        script: key to what the try reports; keys that are missing report success. `gate`: keys wait for it.
    """

    def __init__(self) -> None:
        self.events: list[ev.Event] = []
        self.view = RunView()
        self.routes: list[Route] = []
        self.script: dict[str, Any] = {}
        self.gate = asyncio.Event()
        self.opening = asyncio.Event()
        self.opening.set()
        self.running: set[str] = set()
        self.most = 0
        self.inflight = 0
        self.emit(ev.StepStarted(step=0, groups=1, policy_version=0))

    def emit(self, event: ev.Event) -> None:
        event.seq, event.ts = len(self.events) + 1, float(len(self.events) + 1)
        self.events.append(event)
        apply(self.view, event)

    async def open_route(self, key: str, sampler: Any, on_call: Any) -> Route:
        await self.opening.wait()
        if isinstance(self.script.get(key), OSError):
            raise self.script[key]
        self.routes.append(Route(key, 0 if self.script.get(key) == "silent" else 1))
        return self.routes[-1]

    async def run(self, spec: Any, on_progress: Callable[[TrialProgress], None]) -> TrialReport:
        self.running.add(spec.key)
        self.most = max(self.most, len(self.running))
        try:
            on_progress(TrialProgress(key=spec.key, phase="environment"))
            await self.gate.wait()
            told = self.script.get(spec.key, GOOD)
            if isinstance(told, Exception):
                raise told
            return TrialReport(key=spec.key, **(GOOD if told == "silent" else told))
        finally:
            # As the real one: it ends when the sandbox is gone, however often it is cancelled.
            for _ in range(3):
                with contextlib.suppress(asyncio.CancelledError):
                    await asyncio.sleep(0)
            self.running.discard(spec.key)

    def group(self, size: int = 3, parallel: int = 3, **policy: Any) -> GroupRun:
        context = TrialContext(
            emit=self.emit, launcher=self, capture=self, trial_config=lambda *a: {}, classify=classify,
            policy=FailurePolicy(**policy), totals=Totals(), dispatch=Dispatch(parallel),
        )  # fmt: skip
        return GroupRun(context, HarborGroup(Path("task"), 0, 0, size), None)

    def finished(self) -> Counter[tuple[int, int]]:
        """How many ends each (trial, try) has."""
        return Counter((e.trial, e.try_) for e in self.events if isinstance(e, ev.TrialFinished))

    def outcomes(self) -> dict[int, str]:
        """Trial to the outcome of its last try, as the journal tells it."""
        return {e.trial: e.outcome for e in self.events if isinstance(e, ev.TrialFinished)}

    def check(self, group: GroupRun) -> None:
        """What holds of every group that has ended."""
        assert set(self.finished().values()) == {1}
        assert set(self.outcomes()) == set(range(len(group.trials)))
        assert all(route.sealed for route in self.routes)
        assert self.running == set()
        assert [type(e) for e in self.events].count(ev.GroupFinished) == 1
        assert isinstance(self.events[-1], ev.GroupFinished)
        assert [t.phase for t in self.view.state.groups[0].trials] == ["done"] * len(group.trials)
        told = Counter(trial.result.verdict.outcome.value for trial in group.trials if trial.result is not None)
        assert told == Counter(self.outcomes().values())


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
    assert trained is not None and trained.calls[0].tokens_T == [hash("s0.g0.t0.y2") % 97]
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


async def test_retries_are_counted_and_bounded(stage):
    group = stage.group(size=2, on_failure="retry", max_tries=2)
    stage.script |= {"s0.g0.t0.y0": LOST, "s0.g0.t0.y1": LOST}
    stage.gate.set()
    with pytest.raises(PolicyStopError, match=r"step 0 g1/t1 \(task\): infrastructure"):
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
