"""A job in which everything fails in the same way says nothing, however long it runs: it is ended early."""

from __future__ import annotations

import re

from console.bench.advice import ADVICE, Advice
from console.bench.model import Judged
from console.outcomes.classes import SCORED, OutcomeClass

_VARIABLE = re.compile(r"\b(?:0x)?[0-9a-f]*\d[0-9a-f]*\b|\d+", re.IGNORECASE)
_SILENT = frozenset({OutcomeClass.CANCELLED, OutcomeClass.UNREADABLE})
_BY_CAUSE = {"key": "credentials", "quota": "quota"}
_SAID = 160
_ENDED = Advice("", "cure what the text says, and begin again with one task")
"""The usual advice would have the job stopped first, which is what comes of this."""


class EarlyStop:
    """Looks at the first trials that end, until one differs.

    A trial that was graded differs, whatever its grade: tasks that are too hard are a result.

    Args:
        trials: how many have to fail alike; tasks: of the job. Where it has several, those of one prove nothing.
    """

    def __init__(self, trials: int, tasks: int) -> None:
        self._needed, self._several = max(1, trials), tasks > 1
        self._seen = 0
        self._alike: tuple[str, ...] | None = None
        self._tasks: set[str] = set()
        self._over = False

    def ended(self, judged: Judged) -> str:
        """A trial came to its last end; why the job is to end now, "" for going on."""
        if self._over or judged.outcome in _SILENT:
            return ""
        alike = _alike(judged)
        if judged.outcome in SCORED or self._alike not in (None, alike):
            self._over = True
            return ""
        self._alike, self._seen = alike, self._seen + 1
        self._tasks.add(judged.trial.task)
        if self._seen < self._needed or (self._several and len(self._tasks) < 2):
            return ""
        self._over = True
        said = " ".join(judged.evidence.text.split())[:_SAID]
        what = f"{judged.outcome}/{judged.cause}" if judged.cause else str(judged.outcome)
        return f"the first {self._seen} trials all failed the same way, {what}: {said}; {_advice(judged).remedy}"


def _alike(judged: Judged) -> tuple[str, ...]:
    """What is the same in failures that are the same: the texts without what differs from trial to trial."""
    error = judged.trial.errors[0] if judged.trial.errors else None
    text = f"{error.type}: {error.message}" if error is not None else judged.evidence.text
    for name in (judged.trial.name, judged.trial.task, judged.trial.short_task):
        text = text.replace(name, "*") if len(name) > 3 else text
    return judged.outcome.value, judged.cause, judged.rule, _VARIABLE.sub("#", text)[:300]


def _advice(judged: Judged) -> Advice:
    if judged.outcome is OutcomeClass.CONFIGURATION and judged.cause in _BY_CAUSE:
        return ADVICE[_BY_CAUSE[judged.cause]]
    return ADVICE.get(f"same_failure:{judged.rule}") or _ENDED
