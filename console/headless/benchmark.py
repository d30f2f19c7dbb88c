"""What a headless benchmark run prints besides what every run does: one record for each try that ended."""

from __future__ import annotations

import math
from typing import Any

from console.state import benchmark
from console.state.bench_words import left_text, passed_text, share_text
from console.state.benchmark import Passed
from console.state.lines import trial_name
from console.state.model import GroupState, RunState, TrialState
from console.state.sanitize import sanitize
from console.state.words import plural, span

Record = dict[str, Any]


def to_trial_record(state: RunState, group: GroupState, trial: TrialState, version: int) -> Record:
    """A try that ended: attempts and tries count from 1; a later try of a trial replaces it.

    `class` and `cause` are those of `bench triage`; `reward` is what the verifier wrote, null for infrastructure and
    the like; `seconds` and `cost_usd` are null when they are not known; `stood`:
    it ended in an earlier run of the job; `done`, `trials`: of the whole job, this one included.
    """
    return {
        "v": version, "type": "trial", "trial": trial_name(group.group, trial.trial), "task": sanitize(group.task, 200),
        "attempt": trial.trial + 1, "try": trial.try_ + 1, "class": trial.outcome, "cause": sanitize(trial.cause, 120),
        "rule": sanitize(trial.rule, 120), "evidence": sanitize(trial.evidence, 300), "reward": _finite(trial.reward),
        "exception": sanitize(trial.exception, 120) if trial.exception else None,
        "seconds": _finite(trial.seconds.get("total")),
        "tokens": {
            "prompt": trial.prompt_tokens, "cached": trial.cached_tokens, "sampled": trial.sampled_tokens
        },
        "cost_usd": _finite(trial.cost_usd), "trial_dir": trial.trial_dir, "stood": trial.reused,
        "done": state.bench.done, "trials": total(state), "ts": trial.finished,
    }  # fmt: skip


def trial_text(state: RunState, group: GroupState, trial: TrialState, now: float | None) -> str:
    """The same for a person, with what passed so far; with the time left as of `now`, when it is asked for."""
    said = [(trial.outcome or "").replace("_", " ")]
    if trial.reward is not None and benchmark.score_of(trial) is not None:
        said.append(f"r {trial.reward:g}")
    elif trial.cause:
        said.append(trial.cause.replace("_", " "))
    if trial.exception:
        said.append(trial.exception)
    took = trial.seconds.get("total")
    if took is not None:
        said.append(f"in {span(took)}")
    if trial.try_:
        said.append(f"try {trial.try_ + 1}")
    if trial.reused:
        said.append("stood from before")
    head = f"{state.bench.done}/{total(state)} {trial_name(group.group, trial.trial)} {sanitize(group.task, 60)}:"
    parts = [f"{head} {' '.join(sanitize(one, 80) for one in said)}", f"passed {passed_text(state, False)}"]
    if now is not None and (left := time_left(state, now)):
        parts.append(left)
    return "; ".join(parts)


def time_left(state: RunState, now: float) -> str:
    """Time left at `now` with its bounds, as the console tells it; empty when it is not known."""
    text = left_text(benchmark.seconds_left(state, now))
    return f"left {text}" if text else ""


def progress_line(state: RunState, now: float) -> str:
    """How the job stands, for the line a minute."""
    b = state.bench
    parts = [f"{b.done} of {total(state)} trials ended, {benchmark.at_work(state)} at work of {b.limit}, {state.phase}"]
    failed, of = benchmark.infra_window(state)
    parts.append(f"passed {passed_text(state, False)}")
    if of:
        parts.append(f"infrastructure {failed} of the last {of}")
    if left := time_left(state, now):
        parts.append(left)
    return "; ".join(parts)


def counts_record(state: RunState) -> Record:
    """The job in figures: trials by class, what passed by two rules, tokens, cost."""
    b = state.bench
    failed, of = benchmark.infra_window(state)
    return {
        "job_dir": sanitize(b.job_dir, 400) or None,
        "trials": total(state),
        "done": b.done,
        "counts": dict(b.finished),
        "passed": {
            "infra-excluded": _passed_record(benchmark.infra_excluded(state)),
            "error-aware": _passed_record(benchmark.error_aware(state)),
        },
        "infrastructure_window": {"failed": failed, "of": of},
        "tokens": {"prompt": b.prompt_tokens, "cached": b.cached_tokens, "sampled": b.sampled_tokens},
        "cost_usd": _finite(b.cost_usd),
    }


def bench_record(state: RunState, now: float) -> Record:
    """The same of a job that may still run, with what was planned, its limit, and the time left."""
    b = state.bench
    left = benchmark.seconds_left(state, now)
    return {
        **counts_record(state),
        "job_name": sanitize(b.job_name, 200) or None,
        "harbor": sanitize(b.harbor, 40) or None,
        "dataset": sanitize(b.dataset, 200) or None,
        "agents": [sanitize(name, 200) for name in b.agents],
        "models": [sanitize(name, 200) for name in b.models],
        "tasks": b.tasks,
        "attempts": b.attempts,
        "stood": b.stood,
        "at_work": benchmark.at_work(state),
        "concurrency": b.concurrency,
        "limit": b.limit,
        "limit_why": sanitize(b.why, 200) or None,
        "seconds_left": None if left is None else {"low": left.low, "likely": left.likely, "high": left.high},
        "parent": sanitize(b.parent, 400) or None,
        "mop_up": b.mop_up or None,
    }


def bench_lines(state: RunState, now: float) -> list[str]:
    """What `ctl status` says of it."""
    b = state.bench
    which = f", mop-up {b.mop_up} of {b.parent}" if b.mop_up else ""
    lines = [
        f"job      {b.job_dir or '--'}{which}",
        f"what     {b.dataset or '--'}: {plural(b.tasks, 'task')}, {plural(b.attempts, 'attempt')} each; "
        f"{', '.join(b.agents[:4]) or '--'}; {', '.join(b.models[:4]) or state.model or '--'}",
    ]
    left = time_left(state, now)
    stood = f", {b.stood} stood from before" if b.stood else ""
    lines.append(f"trials   {b.done} of {total(state)} ended{stood}" + (f"; {left}" if left else ""))
    if state.exit_code is None:
        why = f", by {b.limited_by}: {b.why}" if b.why else ""
        lines.append(f"at work  {benchmark.at_work(state)} of {b.limit} at once{why}")
    counted = ", ".join(f"{n} {name.replace('_', ' ')}" for name, n in sorted(b.finished.items(), key=lambda x: -x[1]))
    lines.append(f"ended    {counted or '--'}")
    aware = share_text(benchmark.error_aware(state))
    lines.append(f"passed   {passed_text(state)}; {aware} error-aware")
    failed, of = benchmark.infra_window(state)
    lines.append(f"infra    {failed} of the last {of}" if of else "infra    --")
    cost = "" if b.cost_usd is None else f", ${b.cost_usd:,.2f}"
    lines.append(
        f"tokens   {b.prompt_tokens:,} prompt ({b.cached_tokens:,} cached), {b.sampled_tokens:,} sampled{cost}"
    )
    return lines


def total(state: RunState) -> int:
    """Trials of the job, as far as they are known."""
    return max(state.bench.trials, sum(len(group.trials) for group in state.groups.values()))


def _passed_record(passed: Passed) -> Record:
    interval = None if passed.low is None else [passed.low, passed.high]
    return {
        "numerator": passed.sum, "denominator": passed.of, "value": passed.value, "left_out": passed.left_out,
        "ci95": interval,
    }  # fmt: skip


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None
