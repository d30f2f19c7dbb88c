"""The reducer's part for benchmarks: the job, its limit, and counts over its trials."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from console.journal import events as ev
from console.state.bench_model import BENCH_RECENT_KEPT, BenchState
from console.state.model import TrialState

if TYPE_CHECKING:
    from console.state.reduce import RunView


def _planned(view: RunView, e: ev.BenchPlanned) -> None:
    b = view.state.bench
    b.job_dir, b.job_name, b.harbor, b.dataset = e.job_dir, e.job_name, e.harbor, e.dataset
    b.agents, b.models, b.tasks, b.attempts, b.trials = e.agents, e.models, e.tasks, e.attempts, e.trials
    b.stood, b.concurrency, b.parent, b.mop_up = e.done, e.concurrency, e.parent, e.mop_up
    if not b.limited_by:
        b.limit = e.concurrency
        view.state.tunables["concurrency"] = e.concurrency


def _limited(view: RunView, e: ev.BenchLimited) -> None:
    b = view.state.bench
    before = view.state.tunables.get("concurrency")
    if e.limit > 0 and e.limit != before:  # after a pause it is what it was
        b.limit_since = e.ts
        view.state.tunables["concurrency"] = e.limit
    b.limit, b.limited_by, b.why = max(0, e.limit), e.by, e.why


def count(bench: BenchState, e: ev.TrialFinished) -> None:
    """A try ended; the class that its trial had before, if any, was forgotten."""
    bench.finished[e.outcome] = bench.finished.get(e.outcome, 0) + 1
    _spend(bench, e.prompt_tokens, e.cached_tokens, e.sampled_tokens, e.cost_usd, e.seconds, 1)
    if not e.reused:
        bench.recent.append(e.outcome)
        del bench.recent[:-BENCH_RECENT_KEPT]


def forget(bench: BenchState, trial: TrialState, *, same_try: bool = False) -> None:
    """The trial's outcome no longer stands: it is tried again, or, with `same_try`, told anew."""
    if trial.outcome is None:
        return
    left = bench.finished.get(trial.outcome, 0) - 1
    if left > 0:
        bench.finished[trial.outcome] = left
    else:
        bench.finished.pop(trial.outcome, None)
    if same_try:
        t = trial
        _spend(bench, t.prompt_tokens, t.cached_tokens, t.sampled_tokens, t.cost_usd, t.seconds, -1)


def _spend(
    b: BenchState, prompt: int, cached: int, sampled: int, cost: float | None, seconds: dict[str, float], sign: int
) -> None:
    b.prompt_tokens += sign * prompt
    b.cached_tokens += sign * cached
    b.sampled_tokens += sign * sampled
    if cost is not None and math.isfinite(cost):
        b.cost_usd = (b.cost_usd or 0.0) + sign * cost
    b.seconds += sign * seconds.get("total", 0.0)
    b.agent_seconds += sign * seconds.get("agent", 0.0)


HANDLERS: dict[type[ev.Event], Callable[[RunView, Any], None]] = {
    ev.BenchPlanned: _planned,
    ev.BenchLimited: _limited,
}
