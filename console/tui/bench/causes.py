"""The rows of the triage screen: what is wrong with the job as a whole, and its trials by class and cause. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from console.bench.detectors import Finding
from console.outcomes.classes import SCORED, OutcomeClass
from console.outcomes.meaning import CLASSES, rule_meaning
from console.records.redact import redact
from console.tui.bench.reading import Seen, Side
from console.tui.filters import Filter

_C = OutcomeClass
ORDER = (
    _C.INFRASTRUCTURE, _C.BAD_REWARD, _C.CONFIGURATION, _C.AGENT_FAILURE, _C.AMBIGUOUS, _C.UNREADABLE, _C.CANCELLED,
    _C.AGENT_TIMEOUT, _C.CONTEXT_OVERFLOW, _C.OUTPUT_LIMIT, _C.COMPLETED,
)  # fmt: skip
"""What says nothing of the agent first, what simply completed last."""
SORTS = ("attention", "count", "name")
_SURE = ("low", "medium", "high")


@dataclass(frozen=True)
class CauseRow:
    """One row.

    Attributes:
        kind: problem (a line that could not be read), finding, class, cause (of a class with several), note (seen, and
            not decisive); key: by which it is known when the list is made anew.
        label: class, class/cause, the finding's text, or what the note means: not yet made safe for a terminal.
        trials: those it stands for; count: how many there are, of which a finding names only some.
        share: of all trials, 0 to 1; tasks: number of different ones; positive: trials with a reward above 0.
        example: the trial whose evidence tells most, None without one.
        outcome: of class and cause; finding: of a finding.
    """

    kind: Literal["problem", "finding", "class", "cause", "note"]
    key: tuple[str, ...]
    label: str
    trials: tuple[Seen, ...] = ()
    count: int = 0
    share: float = 0.0
    tasks: int = 0
    positive: int = 0
    example: Seen | None = None
    outcome: OutcomeClass | None = None
    finding: Finding | None = None

    @property
    def opens(self) -> bool:
        """Whether there are trials behind it."""
        return bool(self.trials)


def cause_rows(side: Side, chosen: Filter, sort: str, fields: Callable[[Seen], dict[str, str]]) -> list[CauseRow]:
    """The rows, of the trials that pass the filter; problems and findings are there while nothing is filtered.

    Args:
        sort: one of `SORTS`, of classes and of causes within them.
        fields: what the filter looks at in a trial.
    """
    trials = [seen for seen in side.trials if not chosen or chosen.matches(fields(seen))]
    out: list[CauseRow] = []
    if not chosen:
        by_path = {seen.path: seen for seen in side.trials}
        out += [CauseRow("problem", ("problem", str(i)), str(redact(line))) for i, line in enumerate(side.problems)]
        out += [_of_finding(i, finding, by_path, len(trials)) for i, finding in enumerate(side.findings)]
    return out + _of_classes(trials, sort) + _of_notes(trials)


def _of_finding(number: int, finding: Finding, by_path: dict[str, Seen], total: int) -> CauseRow:
    found = tuple(by_path[str(path)] for path in finding.trials if str(path) in by_path)
    key = ("finding", finding.code, str(finding.job or ""), str(number))
    row = _row("finding", key, str(redact(finding.text)), found, total, finding=finding)
    return CauseRow(**{**vars(row), "count": finding.count, "share": finding.count / total if total else 0.0})


def _of_classes(trials: Sequence[Seen], sort: str) -> list[CauseRow]:
    classes: dict[OutcomeClass, dict[str, list[Seen]]] = defaultdict(lambda: defaultdict(list))
    for seen in trials:
        classes[seen.row.outcome][seen.row.cause].append(seen)
    out = []
    for outcome in sorted(classes, key=lambda one: _place(sort, one, sum(map(len, classes[one].values())))):
        causes = classes[outcome]
        everyone = [seen for some in causes.values() for seen in some]
        (only,) = causes if len(causes) == 1 else ("",)
        label = f"{outcome.value}/{only}" if only else outcome.value
        out.append(_row("class", ("class", outcome.value), label, everyone, len(trials), outcome=outcome))
        if len(causes) > 1:
            order = sorted(causes, key=lambda cause: (-len(causes[cause]) if sort != "name" else 0, cause))
            for cause in order:
                name = f"{outcome.value}/{cause or 'other'}"
                key = ("cause", outcome.value, cause)
                out.append(_row("cause", key, name, causes[cause], len(trials), outcome=outcome))
    return out


def _place(sort: str, outcome: OutcomeClass, count: int) -> tuple[object, ...]:
    known = ORDER.index(outcome) if outcome in ORDER else len(ORDER)
    return (-count, known) if sort == "count" else (outcome.value,) if sort == "name" else (known,)


def _of_notes(trials: Iterable[Seen]) -> list[CauseRow]:
    trials = list(trials)
    found: dict[str, list[Seen]] = defaultdict(list)
    for seen in trials:
        for rule in seen.notes:
            found[rule].append(seen)
    return [
        _row("note", ("note", rule), rule_meaning(rule) or rule, some, len(trials))
        for rule, some in sorted(found.items(), key=lambda one: -len(one[1]))
    ]


def _row(
    kind: Literal["problem", "finding", "class", "cause", "note"],
    key: tuple[str, ...],
    label: str,
    trials: Sequence[Seen],
    total: int,
    outcome: OutcomeClass | None = None,
    finding: Finding | None = None,
) -> CauseRow:
    return CauseRow(
        kind=kind,
        key=key,
        label=label,
        trials=tuple(trials),
        count=len(trials),
        share=len(trials) / total if total else 0.0,
        tasks=len({seen.task for seen in trials}),
        positive=sum(seen.row.reward is not None and seen.row.reward > 0 for seen in trials),
        example=max(trials, key=_telling, default=None),
        outcome=outcome,
        finding=finding,
    )


def _telling(seen: Seen) -> tuple[bool, bool, int]:
    """An example with a line and a text tells more than one without."""
    sure = _SURE.index(seen.confidence) if seen.confidence in _SURE else 0
    return bool(seen.evidence.text), seen.evidence.line is not None, sure


def said(row: CauseRow) -> list[tuple[str, str]]:
    """What the foot of the screen says of a row: (heading, text) pairs, texts not yet made safe for a terminal, but
    without what is shaped like a key."""
    return [(name, str(redact(text))) for name, text in _said(row)]


def _said(row: CauseRow) -> list[tuple[str, str]]:
    if row.finding is not None:
        finding = row.finding
        parts = [("", finding.text), ("so", finding.consequence), ("do", finding.remedy)]
        return [(name, text) for name, text in parts if text]
    out: list[tuple[str, str]] = []
    if row.kind == "problem":
        out.append(("", row.label))
    if row.outcome is not None:
        out.append(("", CLASSES[row.outcome]))
        if row.outcome not in SCORED and row.positive:
            out.append(("", f"{row.positive:,} of them have a reward above 0, which does not count"))
    if row.example is not None:
        seen = row.example
        if row.kind == "note":
            rule = row.key[1]
            out.append(("e.g.", f"{seen.task}: {seen.notes[rule]}"))
        else:
            out.append(("rule", rule_meaning(seen.rule) or seen.rule))
            if seen.evidence.text:
                place = f":{seen.evidence.line}" if seen.evidence.line is not None else ""
                out.append(("e.g.", f"{seen.task}: {seen.evidence.file}{place}: {seen.evidence.text}"))
    return out
