"""The reducer's part for groups and trials. An event that does not fit the step at hand changes nothing."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from console.journal import events as ev
from console.state import reduce_bench
from console.state.benchmark import scores_of
from console.state.lines import trial_name
from console.state.model import EVIDENCE_KEPT, RECENT_KEPT, GroupState, RunState, TrialBrief, TrialState
from console.state.words import BENCHMARK

if TYPE_CHECKING:
    from console.state.reduce import RunView


def mean_and_std(values: list[float]) -> tuple[float | None, float | None]:
    """Mean and population standard deviation; (None, None) for no values."""
    if not values:
        return None, None
    mean = math.fsum(values) / len(values)
    return mean, math.sqrt(math.fsum((v - mean) ** 2 for v in values) / len(values))


def _group_started(view: RunView, e: ev.GroupStarted) -> None:
    trials = [TrialState(trial=i, phase_since=e.ts, last_event=e.ts) for i in range(min(e.size, 4096))]
    view.state.groups[e.group] = GroupState(group=e.group, task=e.task, trials=trials, started=e.ts)


def _group_finished(view: RunView, e: ev.GroupFinished) -> None:
    group = _group(view.state, e.step, e.group)
    if group is not None:
        group.finished, group.kept, group.reason = e.ts, e.kept, e.reason
        group.reward_mean, group.reward_std, group.zero_variance = e.reward_mean, e.reward_std, e.zero_variance
        for trial in group.trials:
            if trial.phase == "held":
                trial.phase, trial.hold_deadline = "done", None


def _group(state: RunState, step: int, group: int) -> GroupState | None:
    return state.groups.get(group) if state.step == step else None


def _trial(state: RunState, step: int, group: int, trial: int) -> TrialState | None:
    found = _group(state, step, group)
    return found.trials[trial] if found is not None and 0 <= trial < len(found.trials) else None


_OVER = ("done", "held")
"""Phases of a try that ended: what still arrives of it is late."""


def _trial_phase(view: RunView, e: ev.TrialPhase) -> None:
    t = _trial(view.state, e.step, e.group, e.trial)
    if t is None or e.try_ < t.try_:
        return
    if e.try_ > t.try_:
        _new_try(view.state, t, e.try_)
    if t.phase not in _OVER:
        t.phase, t.phase_since, t.last_event = e.phase, e.ts, e.ts
        if e.phase == "agent" and view.state.kind == BENCHMARK:
            t.last_event = 0.0  # nobody tells of its model calls: its silence says nothing
        if t.started is None and e.phase != "queued":
            t.started = e.ts


def _new_try(state: RunState, t: TrialState, number: int) -> None:
    if state.kind == BENCHMARK:
        reduce_bench.forget(state.bench, t)
    t.try_, t.phase, t.outcome, t.cause, t.rule, t.evidence = number, "queued", None, "", "", ""
    t.reward, t.retryable, t.exception, t.trial_dir, t.hold_deadline = None, False, None, None, None
    t.turns = t.prompt_tokens = t.sampled_tokens = t.segments = t.bridged = 0
    t.unbridged, t.excluded, t.refused, t.reused, t.cached_tokens, t.cost_usd = {}, {}, {}, False, 0, None
    t.started = t.finished = None
    t.seconds = {}


def _trial_turn(view: RunView, e: ev.TrialTurn) -> None:
    # An engine that is killed has reported no total since: what its calls told of counts until the next report.
    c = view.state.capture
    c.calls, c.failed = c.calls + e.answered, c.failed + (not e.answered)
    c.prompt_tokens, c.sampled_tokens = c.prompt_tokens + e.prompt_tokens, c.sampled_tokens + e.sampled_tokens
    c.unreported_prompt += e.prompt_tokens
    c.unreported_sampled += e.sampled_tokens
    t = _trial(view.state, e.step, e.group, e.trial)
    if t is not None and e.try_ == t.try_ and t.phase not in _OVER:
        t.turns = max(t.turns, e.turn)
        t.prompt_tokens += e.prompt_tokens
        t.sampled_tokens += e.sampled_tokens
        t.last_event = e.ts


def _trial_finished(view: RunView, e: ev.TrialFinished) -> None:
    group, t = _group(view.state, e.step, e.group), _trial(view.state, e.step, e.group, e.trial)
    if group is None or t is None or e.try_ < t.try_:
        return
    if e.try_ > t.try_:
        _new_try(view.state, t, e.try_)
    bench = view.state.kind == BENCHMARK
    if bench:
        reduce_bench.forget(view.state.bench, t, same_try=True)
        reduce_bench.count(view.state.bench, e)
    t.phase, t.phase_since, t.finished, t.last_event = "done", e.ts, e.ts, e.ts
    t.outcome, t.cause, t.rule, t.evidence, t.reward = e.outcome, e.cause, e.rule, e.evidence, e.reward
    t.retryable, t.exception, t.trial_dir, t.seconds = e.retryable, e.exception, e.trial_dir, e.seconds
    t.turns, t.prompt_tokens, t.sampled_tokens = e.turns, e.prompt_tokens, e.sampled_tokens
    t.segments, t.bridged, t.unbridged, t.excluded = e.segments, e.bridged, e.unbridged, e.excluded
    t.refused, t.reused, t.cached_tokens, t.cost_usd = e.refused, e.reused, e.cached_tokens, e.cost_usd
    t.hold_deadline = None
    rewards = scores_of(group.trials) if bench else [x.reward for x in group.trials if x.reward is not None]
    group.reward_mean, group.reward_std = mean_and_std(rewards)
    if e.reused:  # it was told when it ended
        return
    recent = view.state.recent
    recent.append(
        TrialBrief(
            ts=e.ts, name=trial_name(e.group, e.trial), task=group.task, outcome=e.outcome, cause=e.cause,
            exception=e.exception or "", seconds=e.seconds.get("total"), calls=e.turns,
            segments=e.segments,
        )
    )  # fmt: skip
    if bench:
        last = recent[-1]
        last.rule, last.evidence = e.rule, e.evidence[:EVIDENCE_KEPT]
        last.sampled, last.agent = e.sampled_tokens, e.seconds.get("agent")
    del recent[:-RECENT_KEPT]


def _trial_held(view: RunView, e: ev.TrialHeld) -> None:
    t = _trial(view.state, e.step, e.group, e.trial)
    if t is not None and e.try_ == t.try_:
        if t.phase != "held":
            t.phase, t.phase_since = "held", e.ts
        t.hold_deadline, t.last_event = e.deadline, e.ts


def _trial_retried(view: RunView, e: ev.TrialRetried) -> None:
    t = _trial(view.state, e.step, e.group, e.trial)
    if t is not None and e.try_ > t.try_:
        _new_try(view.state, t, e.try_)
        t.phase, t.phase_since, t.last_event = "retrying", e.ts, e.ts


HANDLERS: dict[type[ev.Event], Callable[[RunView, Any], None]] = {
    ev.GroupStarted: _group_started,
    ev.GroupFinished: _group_finished,
    ev.TrialPhase: _trial_phase,
    ev.TrialTurn: _trial_turn,
    ev.TrialFinished: _trial_finished,
    ev.TrialHeld: _trial_held,
    ev.TrialRetried: _trial_retried,
}
