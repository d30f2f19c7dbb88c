"""The alarms of a run: pure functions over the view, so that headless, console and replay agree.

A rule says what is wrong now, not what was; `alarm_keeper` makes alarms of it that open and close.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from console.state import (
    rules_bench,
    rules_capture,
    rules_gateway,
    rules_learning,
    rules_run,
    rules_sandboxes,
    rules_trials,
)
from console.state.findings import Finding, Look
from console.state.reduce import RunView
from console.state.words import BENCHMARK

Rule = Callable[[Look], Iterator[Finding]]

RULES: tuple[Rule, ...] = (
    *rules_trials.WHATEVER,
    *rules_sandboxes.WHATEVER,
    *rules_gateway.WHATEVER,
    *rules_run.WHATEVER,
    *rules_capture.WHATEVER,
)
RULES_WHILE_LIVE: tuple[Rule, ...] = (
    *rules_gateway.WHILE_LIVE,
    *rules_run.WHILE_LIVE,
    *rules_trials.WHILE_LIVE,
    *rules_capture.WHILE_LIVE,
    *rules_learning.WHILE_LIVE,
)
"""These advise on a run that goes on; one that ends needs no advice."""
BENCH_RULES: tuple[Rule, ...] = (
    *rules_bench.WHATEVER,
    *rules_sandboxes.WHATEVER,
    rules_run.disk,
    rules_run.memory,
)
BENCH_RULES_WHILE_LIVE: tuple[Rule, ...] = (*rules_bench.WHILE_LIVE, rules_run.loop_lag, rules_run.clock)
"""Of a benchmark: it trains nothing and captures nothing."""

TROUBLES = frozenset(
    {
        "gateway.unreachable", "gateway.slow", "gateway.queue", "gateway.backoff", "trials.infrastructure",
        "bench.infrastructure",
    }
)  # fmt: skip
ADVICE = ("limit.", "step.slow")
"""While one of the troubles holds, advice about limits and speed would only lead astray: they follow from it."""


def alarms(view: RunView, now: float) -> dict[str, Finding]:
    """Everything that is wrong at `now` (Unix seconds), by key."""
    if view.state.status not in ("live", "stopping"):
        return {}
    look = Look(view, now)
    bench = view.state.kind == BENCHMARK
    rules = BENCH_RULES if bench else RULES
    if view.state.status == "live":
        rules += BENCH_RULES_WHILE_LIVE if bench else RULES_WHILE_LIVE
    found = {finding.key: finding for rule in rules for finding in rule(look)}
    if TROUBLES & found.keys():
        found = {key: finding for key, finding in found.items() if not key.startswith(ADVICE)}
    return found
