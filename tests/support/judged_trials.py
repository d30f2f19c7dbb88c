"""Verdicts on constructed trials, for tests of what counts and merges them."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from console.bench.model import Judged
from console.outcomes.classes import OutcomeClass
from console.records.harbor.model import JobRecord, Phase, RecordedError, TrialRecord

C = OutcomeClass
JOBS = Path("/jobs")


def judged(
    task: str,
    outcome: OutcomeClass = C.COMPLETED,
    reward: float | None = None,
    cause: str = "",
    *,
    error: str = "",
    step_error: str = "",
    message: str = "",
    job: str | Path = "one",
    name: str = "",
    at: float = 0.0,
    seconds: float | None = 60.0,
    **fields: Any,
) -> Judged:
    """One verdict. `at`: when the trial began; `seconds`: how long it took, None for one without an end."""
    path = JOBS / job
    name = name or f"{task}__{at:g}".replace("/", "-")
    errors = [RecordedError(type=error, message=message)] if error else []
    errors += [RecordedError(type=step_error, step="first")] if step_error else []
    values: dict[str, Any] = {
        "agent": "terminus-2", "model": "openai/qwen", "dataset": "tb-2.1", "checksum": f"sum-of-{task}",
        "phases": {"agent": Phase(began=at, ended=at + 40)},
        "ended_from": "" if seconds is None else "result",
    }  # fmt: skip
    record = TrialRecord(
        job=path,
        path=path / name,
        name=name,
        task=task,
        errors=tuple(errors),
        began=at,
        ended=None if seconds is None else at + seconds,
        rewards=None if reward is None else {"reward": reward},
        **(values | fields),
    )
    return Judged(trial=record, outcome=outcome, cause=cause, reward=reward)


def clean(rewards: Iterable[float], prefix: str = "task", **fields: Any) -> list[Judged]:
    """A completed trial of a task of its own for each reward."""
    return [judged(f"{prefix}-{i}", C.COMPLETED, float(reward), **fields) for i, reward in enumerate(rewards)]


def timeouts(number: int, reward: float | None = 0.0, **fields: Any) -> list[Judged]:
    """Agents that used up their time, graded or not."""
    outcome, cause = (C.AGENT_TIMEOUT, "") if reward is not None else (C.BAD_REWARD, "missing")
    return [judged(f"slow-{i}", outcome, reward, cause, error="AgentTimeoutError", **fields) for i in range(number)]


def sandbox_failures(names: Iterable[str], error: str = "SandboxError", **fields: Any) -> list[Judged]:
    """Trials whose sandbox failed."""
    return [judged(name, C.INFRASTRUCTURE, None, "sandbox", error=error, **fields) for name in names]


def a_job(name: str | Path = "one", **fields: Any) -> JobRecord:
    """A job's record."""
    return JobRecord(path=JOBS / name, name=str(name), **fields)
