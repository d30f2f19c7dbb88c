"""The answer of `quarterdeck bench triage` on a terminal."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from console.bench.attempts import VALID
from console.bench.detectors import Detectors, Finding, alike
from console.bench.figures.modes import told_by_class
from console.bench.model import Judged
from console.bench.rows import counted
from console.commands.bench_text import clean, columns, laid_out, paragraph, path_text
from console.outcomes.classes import OutcomeClass
from console.outcomes.meaning import class_meaning, rule_meaning

if TYPE_CHECKING:
    from console.bench.session import Session

ORDER = (
    OutcomeClass.COMPLETED, OutcomeClass.AGENT_TIMEOUT, OutcomeClass.CONTEXT_OVERFLOW, OutcomeClass.OUTPUT_LIMIT,
    OutcomeClass.AGENT_FAILURE, OutcomeClass.INFRASTRUCTURE, OutcomeClass.BAD_REWARD, OutcomeClass.CONFIGURATION,
    OutcomeClass.CANCELLED, OutcomeClass.AMBIGUOUS, OutcomeClass.UNREADABLE,
)  # fmt: skip
"""Graded classes first, then those that say nothing of the agent."""
_ROOMY = 64
"""Cells of a line that has both the figures of a class and what it means."""
_SUMS = ("count", "positive", "zero")
_TASKS_NAMED = 6
_JOBS_NAMED = 12
_RULES_NAMED = 3
_EXAMPLES = 3
"""Failures of one cause that are shown, none of them like another, and how many kinds of them are kept apart."""
_KINDS = 1000


class _Group:
    """The trials of one class and cause: how many, and an example of each kind of failure among them."""

    def __init__(self, example: Judged) -> None:
        self.example = example
        self.kinds: dict[str, tuple[int, Judged]] = {}
        self.tasks: Counter[str] = Counter()
        self.rules: Counter[str] = Counter()
        self.count = self.positive = self.zero = 0

    def add(self, judged: Judged) -> None:
        self.count += 1
        self.tasks[judged.trial.short_task or judged.trial.name] += 1
        self.rules[judged.rule] += 1
        self.positive += judged.reward is not None and judged.reward > 0
        self.zero += judged.reward is not None and judged.reward <= 0
        if _telling(judged) > _telling(self.example):
            self.example = judged
        kind = alike(judged)
        if judged.evidence.text and (kind in self.kinds or len(self.kinds) < _KINDS):
            count, first = self.kinds.get(kind, (0, judged))
            self.kinds[kind] = count + 1, max(first, judged, key=_telling)

    def others(self) -> list[tuple[int, Judged]]:
        """Examples of failures that are not like `example`, the most frequent first, each with how many there are."""
        found = [of_kind for kind, of_kind in self.kinds.items() if kind != alike(self.example)]
        return sorted(found, key=lambda of_kind: -of_kind[0])


def triage_text(
    session: Session, stream: Iterable[Judged], wanted: Callable[[Judged], bool] | None, *, each: bool
) -> Iterator[str]:
    """Lines, after everything was read.

    Args:
        wanted: which trials are shown, None for all; findings are then left out, as they rest on all of them.
        each: a line for each trial that did not simply complete, or was asked for.
    """
    width, partial = columns(), wanted is not None
    groups: dict[tuple[OutcomeClass, str], _Group] = {}
    notes: dict[str, tuple[int, Judged]] = {}
    lines: list[tuple[str, ...]] = []
    detectors = Detectors(session.jobs)
    resultless: Counter[Path] = Counter()
    for judged in stream:
        resultless[judged.trial.job] += judged.trial.problem == "incomplete"
        if wanted is not None and not wanted(judged):
            continue
        detectors.add(judged)
        key = judged.outcome, judged.cause
        groups.setdefault(key, _Group(judged)).add(judged)
        for rule in judged.notes:
            count, first = notes.get(rule, (0, judged))
            notes[rule] = count + 1, first
        if each and (partial or key != (OutcomeClass.COMPLETED, "")):
            lines.append(_trial_line(judged))
    yield from _jobs(session, resultless, width)
    yield ""
    if not groups:
        yield "no trial is of this class" if partial else "no trial"
        return
    yield from _table(groups, width)
    yield from _failures(groups, width)
    if notes:
        yield from _notes(notes, width)
    if not partial:
        yield from _findings(detectors.findings(), width)
    if lines:
        yield ""
        yield "trials"
        yield from laid_out(
            [("TASK", "TRY", "CLASS", "REWARD", "TRIAL"), *lines], width, flexible=4, right=(3,), path=True
        )


def _jobs(session: Session, resultless: Counter[Path], width: int) -> Iterator[str]:
    """A line a job. `resultless`: job directory to trials without a result."""
    for job in session.jobs[:_JOBS_NAMED]:
        read = session.counts.get(job.path, 0)
        state = "running now" if job.running else "finished" if job.finished else "not finished"
        if state == "not finished" and job.planned and read - resultless[job.path] >= job.planned:
            # Its process was killed after the last trial, before it wrote that it had ended.
            state = "complete, though its end was not recorded"
        trials = (
            counted(read, "trial") if job.planned is None else f"{read:,} of {counted(job.planned, 'planned trial')}"
        )
        said = f"{trials}, {state}" + (f", Harbor {clean(job.harbor, 20)}" if job.harbor else "")
        room = width - len(said) - 2
        if room < 12:
            yield path_text(os.fspath(job.path), width)
            yield from paragraph(said, width, "  ")
        else:
            yield f"{path_text(os.fspath(job.path), room)}  {said}"
    if len(session.jobs) > _JOBS_NAMED:
        yield f"and {len(session.jobs) - _JOBS_NAMED} more jobs"


def _table(groups: dict[tuple[OutcomeClass, str], _Group], width: int) -> Iterator[str]:
    size = max(len(outcome.value) for outcome, _ in groups)
    roomy = width >= _ROOMY
    wide = 8 if roomy else max(5, 2 + len(f"{sum(group.count for group in groups.values()):,}"))
    yield f"{'CLASS':<{size}}{'TRIALS':>8}{'> 0':>{wide}}{'= 0':>{wide}}"
    for outcome in ORDER:
        found = [group for (one, _), group in groups.items() if one is outcome]
        if found:
            graded = outcome in VALID or any(group.positive for group in found)
            count, positive, zero = (f"{sum(getattr(g, name) for g in found):,}" for name in _SUMS)
            rewards = f"{positive:>{wide}}{zero:>{wide}}" if graded else " " * 2 * wide
            line = f"{outcome.value:<{size}}{count:>8}{rewards}"
            causes = {cause for one, cause in groups if one is outcome}
            meaning = class_meaning(outcome, causes.pop() if len(causes) == 1 else "")
            if roomy:
                yield from paragraph(meaning, width, f"{line}  ")
            else:
                yield line.rstrip()
                yield from paragraph(meaning, width, "  ")


def _failures(groups: dict[tuple[OutcomeClass, str], _Group], width: int) -> Iterator[str]:
    for (outcome, cause), group in sorted(groups.items(), key=lambda one: (ORDER.index(one[0][0]), -one[1].count)):
        if outcome is OutcomeClass.COMPLETED and not cause:
            continue
        yield ""
        name = f"{outcome.value}/{cause}" if cause else outcome.value
        yield from paragraph(
            f"{name}: {counted(group.count, 'trial')} of {counted(len(group.tasks), 'task')}", width, "", "  "
        )
        yield from paragraph(_said(group.example.rule), width, "  ")
        yield from _example(group.example, width)
        others = group.others()
        for count, other in others[: _EXAMPLES - 1]:
            yield from _example(other, width, f"in {counted(count, 'trial')}: ")
        if len(others) >= _EXAMPLES:
            more = counted(len(others) - _EXAMPLES + 1, "more kind")
            yield f"    and {more} of failure: see --trials or --json"
        if outcome is OutcomeClass.AGENT_FAILURE:
            yield from paragraph(_reckoned(group), width, "  ")
        yield from paragraph(_others(group), width, "  ") if len(group.rules) > 1 else ()
        if group.count > 1:
            yield from paragraph(_task_list(group.tasks), width, "  tasks: ", "         ")


def _reckoned(group: _Group) -> str:
    """What the verifier wrote all the same, and what becomes of it."""
    wrote = group.positive + group.zero
    said = f"the verifier wrote a reward for {wrote:,} of them, {group.positive:,} above 0" if wrote else "no reward"
    return f"{said}: {told_by_class(OutcomeClass.AGENT_FAILURE)}; by the exception's type in the other modes of tally"


def _said(rule: str) -> str:
    return rule_meaning(rule) or f"by the rule {rule}"


def _others(group: _Group) -> str:
    """What decided on those of the group that the example does not speak for."""
    others = [(rule, count) for rule, count in group.rules.most_common() if rule != group.example.rule]
    named = "; ".join(f"{_said(rule)} ({count:,})" for rule, count in others[:_RULES_NAMED])
    more = f"; and {len(others) - _RULES_NAMED} more" if len(others) > _RULES_NAMED else ""
    return f"and {sum(count for _, count in others):,} by other rules: {named}{more}"


def _task_list(tasks: Counter[str]) -> str:
    named = [f"{task} x{count}" if count > 1 else task for task, count in tasks.most_common(_TASKS_NAMED)]
    return ", ".join(named) + (f", and {len(tasks) - _TASKS_NAMED} more" if len(tasks) > _TASKS_NAMED else "")


def _example(judged: Judged, width: int, before: str = "") -> Iterator[str]:
    """Where the evidence is, as a path that can be opened, and what it says, behind `before`."""
    evidence, trial = judged.evidence, judged.trial
    where = os.path.join(os.fspath(trial.path), evidence.file) if evidence.file else os.fspath(trial.path)
    place = f":{evidence.line}" if evidence.line is not None else ""
    sure = f"  ({judged.confidence.value} confidence)" if judged.confidence.value != "high" else ""
    if evidence.text:
        yield from paragraph(f"{before}{clean(evidence.text, 2 * width - 24)}{sure}", width, "  > ", "    ")
    yield f"    {path_text(where, width - 4 - len(place))}{place}"


def _notes(notes: dict[str, tuple[int, Judged]], width: int) -> Iterator[str]:
    yield ""
    yield "also seen, and not decisive"
    for rule, (count, first) in sorted(notes.items(), key=lambda one: -one[1][0]):
        said = f"{counted(count, 'trial')}, {rule_meaning(rule) or rule}; e.g. {first.trial.short_task}: "
        yield from paragraph(said + first.notes[rule], width, "  ")


def _findings(findings: Sequence[Finding], width: int) -> Iterator[str]:
    if not findings:
        return
    yield ""
    yield "findings about the job as a whole"
    for finding in findings:
        yield from paragraph(finding.text, width, "  ! ")
        if finding.consequence:
            yield from paragraph(finding.consequence, width, "    so: ")
        if finding.remedy:
            yield from paragraph(finding.remedy, width, "    do: ")
        if finding.trials:
            yield f"    e.g. {path_text(os.fspath(finding.trials[0]), width - 9)}"


def _trial_line(judged: Judged) -> tuple[str, ...]:
    trial = judged.trial
    kind = f"{judged.outcome.value}/{judged.cause}" if judged.cause else judged.outcome.value
    number = f"{judged.attempt}.{judged.try_}"
    reward = "-" if judged.reward is None else f"{judged.reward:g}"
    return clean(trial.short_task or "-", 28), number, kind, reward, os.fspath(trial.path)


def _telling(judged: Judged) -> tuple[bool, bool, int]:
    """An example with a line and a text tells more than one without."""
    evidence = judged.evidence
    order = ("low", "medium", "high")
    return bool(evidence.text), evidence.line is not None, order.index(judged.confidence.value)
