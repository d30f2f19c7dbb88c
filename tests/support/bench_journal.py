"""A benchmark's events for tests of what is made of them: a job, its trials, their ends."""

from __future__ import annotations

from typing import Any

from console.journal import events as ev
from console.state.reduce import RunView, apply, fold


def begun(trials: int = 6, attempts: int = 1, limit: int = 2, at: float = 100.0) -> RunView:
    """A job of so many tasks, none of them begun."""
    view = fold([
        ev.RunStarted(ts=at, run_id="b", kind="benchmark", steps=1),
        ev.BenchPlanned(ts=at, tasks=trials, attempts=attempts, trials=trials * attempts, concurrency=limit),
        ev.StepStarted(ts=at, step=0, groups=trials, policy_version=0),
        *(ev.GroupStarted(ts=at, step=0, group=n, task=f"task-{n}", size=attempts) for n in range(trials)),
    ])  # fmt: skip
    assert view.state.kind == "benchmark"
    return view


def begin(view: RunView, group: int, ts: float, trial: int = 0, try_: int = 0) -> None:
    """Its agent begins to work."""
    apply(view, ev.TrialPhase(ts=ts, step=0, group=group, trial=trial, try_=try_, phase="agent"))


def end(view: RunView, group: int, ts: float, took: float = 10.0, trial: int = 0, **fields: Any) -> None:
    """A try ends: passed, unless `fields` say otherwise."""
    fields = {"outcome": "completed", "reward": 1.0, "seconds": {"total": took, "agent": took}} | fields
    apply(view, ev.TrialFinished(ts=ts, step=0, group=group, trial=trial, **fields))
