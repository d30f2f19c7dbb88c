"""What triage says of a trial, and what the figures are made of."""

from __future__ import annotations

from enum import StrEnum

import msgspec

from console.outcomes.classes import OutcomeClass
from console.records.harbor.model import TrialRecord


class Confidence(StrEnum):
    """How sure a verdict is: the type or the phase says it; a text says it; it is the best of several readings."""

    HIGH = "high"
    MEDIUM = "medium"
    LOW = "low"


class Evidence(msgspec.Struct, frozen=True, kw_only=True):
    """What decided.

    Attributes:
        file: relative to the trial's directory; of a user's override, the absolute path of the rule file.
        line: from 1, None where a file has no lines or the end of a very long one was read.
        text: at most 300 characters, not yet made safe for a terminal.
    """

    file: str = ""
    line: int | None = None
    text: str = ""


class Judged(msgspec.Struct, frozen=True, kw_only=True):
    """A trial and its verdict.

    Attributes:
        trial: its record.
        attempt: number of Harbor's repeat of the task within job, agent, model and task, from 1 in order of time.
        try_: number of the execution within the attempt, from 1; later executions come from mop-ups (merge.py).
        outcome, cause, rule: as in training; rules of bench alone begin with "bench.".
        reward: what the verifier said, None without a usable number. Present whether or not the class counts it.
        evidence, confidence: of the verdict.
        notes: rule id to one line, of what did not decide: runaway thinking, work done before an infrastructure error,
            a pass without activity, a verifier's fault behind an agent's error.
    """

    trial: TrialRecord
    attempt: int = 1
    try_: int = 1
    outcome: OutcomeClass
    cause: str = ""
    rule: str = ""
    reward: float | None = None
    evidence: Evidence = Evidence()
    confidence: Confidence = Confidence.HIGH
    notes: dict[str, str] = {}


class Sample(msgspec.Struct, frozen=True, kw_only=True):
    """One counted attempt: the task's short name and its score in [0, 1] or beyond."""

    task: str
    score: float


class Figures(msgspec.Struct, frozen=True, kw_only=True):
    """One accounting mode's answer.

    Attributes:
        mode: its name; rule: the rule in one sentence, printed beside the figure.
        numerator: sum of scores; denominator: attempts counted; value: numerator / denominator, or the mean of the
            tasks' means where the rule says so; None when nothing is counted.
        per: "attempt" or "task", what `value` averages over.
        excluded: class/cause to attempts left out; missing: planned attempts of which nothing is on disk.
        tasks: number of tasks counted; attempts_min, attempts_max: of a task.
        se_within: standard error with the tasks fixed, None unless each task has two attempts.
        se_across: standard error with the tasks as a sample, None for fewer than two.
        ci95: low and high, and `ci_method` by which (wilson, bootstrap); None when nothing is counted.
        pass_at, pass_all: k to (value, tasks with at least k attempts), of pass@k and pass^k; only for scores 0 and 1.
        coverage: denominator / planned attempts, those on disk where the plan is unknown; None when there are none.
        undecided: class/cause to those of `excluded` of which nobody can say whether they passed; bounds: the value if
            all of these had failed, and if all had passed, None without any or for scores beyond [0, 1].
        undefined: name of a figure to why it is None; warnings: what a reader of the value must know, a line each.
    """

    mode: str
    rule: str
    numerator: float
    denominator: int
    value: float | None
    per: str = "attempt"
    excluded: dict[str, int] = {}
    missing: int = 0
    tasks: int = 0
    attempts_min: int = 0
    attempts_max: int = 0
    se_within: float | None = None
    se_across: float | None = None
    ci95: tuple[float, float] | None = None
    ci_method: str = ""
    pass_at: dict[int, tuple[float, int]] = {}
    pass_all: dict[int, tuple[float, int]] = {}
    coverage: float | None = None
    undecided: dict[str, int] = {}
    bounds: tuple[float, float] | None = None
    undefined: dict[str, str] = {}
    warnings: tuple[str, ...] = ()
