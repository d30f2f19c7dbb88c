"""Which attempts are run again: by the class of what stands for them once a job and its mop-ups are merged.

What is graded stands. An infrastructure failure says nothing of the agent and is run again, a limited number of times:
a task that fails so in every pass is accepted as final. Between these lies what only the operator can decide.
"""

from __future__ import annotations

import fnmatch
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Literal

import msgspec

from console.bench.attempts import VALID
from console.bench.merge import Merged
from console.bench.mop_up.source import TaskRef
from console.bench.rows import Identity, counted
from console.errors import UsageError
from console.outcomes.classes import OutcomeClass

NOT_NAMED = "not named by --task"
"""Why an attempt is left out that nobody asked about; screens leave it out of their list."""

type Fate = Literal["run", "left", "stands"]

CEILING = 3
"""Mop-ups of an attempt, all ended by infrastructure, after which it is accepted as final. The first run is not one of
them: three retries failed, and a fourth would tell nothing new."""

CURABLE = frozenset(
    {"text.verifier_bootstrap", "bench.verifier_lock", "bench.verifier_programs", "bench.second_error"}
    | {"type.verifier"}
)
"""Rules of verifier faults that another try may cure."""
_DEFECTS = {"text.verifier_no_tests": "no test ran: a defect of the task, which another try does not cure"}

_DEFAULT = ("infrastructure", "bad_reward (a verifier that could not run)", "cancelled", "unreadable/incomplete")
DEFAULT_CLASSES = ", ".join(_DEFAULT)
"""What is chosen without being named, in words."""
MISSING = "missing"
"""Cause of a planned attempt of which nothing is on disk; its class is `unreadable`."""
_INCOMPLETE = ("incomplete", MISSING)


class Wish(msgspec.Struct, frozen=True, kw_only=True):
    """What the operator asks for.

    Attributes:
        classes: added to the usual ones, (class, glob of the cause); tasks, excepted: globs of task names, with or
            without their organisation, none for all.
        mended: wrong credentials and options were put right; force: graded attempts of the tasks named, too.
        ceiling: mop-ups that may end in infrastructure before an attempt is accepted as final.
    """

    classes: tuple[tuple[str, str], ...] = ()
    tasks: tuple[str, ...] = ()
    excepted: tuple[str, ...] = ()
    mended: bool = False
    force: bool = False
    ceiling: int = CEILING

    def names(self, outcome: OutcomeClass, cause: str) -> bool:
        """Whether a class was asked for by name."""
        return any(outcome.value == name and fnmatch.fnmatchcase(cause, glob) for name, glob in self.classes)


class Note(msgspec.Struct, gc=False):
    """What a row leaves out of a verdict: whole name of the task, rule, deciding text and file."""

    task: str
    rule: str
    text: str
    file: str


class Attempt(msgspec.Struct, frozen=True, kw_only=True):
    """An attempt and what stands for it.

    Attributes:
        group: agent, model and dataset; task: whole name; short: without its organisation; trial: directory of the try
            that stands for it, "" when there is none; outcome, cause, rule, text, file: of that try's verdict.
        passes: mop-ups of it that ended in infrastructure or a curable verifier fault; tries: of it in all.
        why: why it is chosen or left out, in one line; forced: it is graded, and chosen by force.
        final: accepted as final.
        planned, agent: of an attempt without a try, its task and the number of its agent, as the job's lock has them.
    """

    group: Identity
    task: str
    short: str
    trial: str = ""
    outcome: OutcomeClass = OutcomeClass.UNREADABLE
    cause: str = ""
    rule: str = ""
    text: str = ""
    file: str = ""
    passes: int = 0
    tries: int = 0
    why: str = ""
    forced: bool = False
    final: bool = False
    planned: TaskRef | None = None
    agent: int = 0

    @property
    def kind(self) -> str:
        """Class and cause as one word."""
        return f"{self.outcome.value}/{self.cause}" if self.cause else self.outcome.value


class Choice(msgspec.Struct, frozen=True, kw_only=True):
    """Attempts to run again, attempts left out although they are not completed, and how many completed ones stand."""

    chosen: tuple[Attempt, ...]
    left: tuple[Attempt, ...]
    standing: int


def check(wish: Wish) -> None:
    """Raises UsageError for what contradicts itself or the rules."""
    for name, cause in wish.classes:
        if name == OutcomeClass.COMPLETED:
            raise UsageError(
                "--class completed: graded trials are never chosen by class, for re-rolling them inflates a figure; "
                "one task again: --task NAME --force"
            )
        if name == OutcomeClass.CONFIGURATION and not wish.mended:
            raise UsageError(
                f"--class {name}{'' if cause == '*' else '/' + cause}: a wrong key or option fails again as long as it "
                "is wrong; say --mended when it was put right"
            )
    if wish.force and not wish.tasks:
        raise UsageError("--force: runs graded attempts again, and needs --task NAME to say whose")
    if wish.ceiling < 1:
        raise UsageError(f"--ceiling {wish.ceiling}: must be at least 1")


def attempts_of(merged: Merged, notes: Sequence[Note], mop_ups: Iterable[str]) -> list[Attempt]:
    """Every attempt that has a try, with what stands for it. `notes`: of `merged.rows`; mop_ups: their directories."""
    again = frozenset(mop_ups)
    tries: dict[tuple[Identity, str, str, int], list[int]] = defaultdict(list)
    for index, row in enumerate(merged.rows):
        if row.attempt:  # a copy has none
            tries[row.group, row.task, row.checksum, row.attempt].append(index)
    found = []
    for (group, *_), indices in tries.items():
        best = next((index for index in indices if merged.rows[index].chosen), indices[-1])
        row, note = merged.rows[best], notes[best]
        task = next((notes[index].task for index in (best, *indices) if notes[index].task), "")
        failed = [
            index
            for index in indices
            if merged.rows[index].job in again and _counts(merged.rows[index].outcome, notes[index].rule)
        ]
        found.append(
            Attempt(
                group=group, task=task, short=task.rsplit("/", 1)[-1], trial=row.path, outcome=row.outcome,
                cause=row.cause, rule=note.rule, text=note.text, file=note.file, passes=len(failed), tries=len(indices),
            )
        )  # fmt: skip
    return found


def choose(attempts: Iterable[Attempt], wish: Wish) -> Choice:
    """Sorts the attempts into chosen and left out. Raises UsageError for a task that none of them is of."""
    check(wish)
    attempts = list(attempts)
    for option, globs in (("--task", wish.tasks), ("--except", wish.excepted)):
        for glob in globs:
            if not any(_named(attempt, (glob,)) for attempt in attempts):
                raise UsageError(f"{option} {glob}: no attempt of the job is of a task of that name")
    judged = [_decided(attempt, wish) for attempt in attempts]
    return Choice(
        chosen=tuple(attempt for fate, attempt in judged if fate == "run"),
        left=tuple(attempt for fate, attempt in judged if fate == "left"),
        standing=sum(fate == "stands" for fate, _ in judged),
    )


def _decided(attempt: Attempt, wish: Wish) -> tuple[Fate, Attempt]:
    def said(fate: Fate, why: str, *, forced: bool = False, final: bool = False) -> tuple[Fate, Attempt]:
        return fate, msgspec.structs.replace(attempt, why=why, forced=forced, final=final)

    completed = attempt.outcome is OutcomeClass.COMPLETED
    if wish.tasks and not _named(attempt, wish.tasks):
        return said("stands" if completed else "left", "" if completed else NOT_NAMED)
    if _named(attempt, wish.excepted):
        return said("stands" if completed else "left", "" if completed else "named by --except")
    if not attempt.short:
        return said("left", "no file tells which task it is of")
    if completed:
        return said("run", "graded, run again by --force", forced=True) if wish.force else said("stands", "")
    if attempt.outcome is OutcomeClass.UNREADABLE and attempt.cause == "running":
        return said("left", "at work now")
    named = wish.names(attempt.outcome, attempt.cause)
    usual = _usual(attempt)
    if not (named or usual):
        if wish.force and attempt.outcome in VALID:
            return said("run", "graded, run again by --force", forced=True)
        if attempt.outcome is OutcomeClass.CONFIGURATION and wish.mended:
            return said("run", "mended, as --mended says")
        return said("left", _remark(attempt))
    if _counts(attempt.outcome, attempt.rule) and attempt.passes >= wish.ceiling:
        ended = f"{counted(attempt.passes, 'mop-up')} of it ended so too"
        return said("left", f"accepted as final: {ended}; --ceiling {attempt.passes + 1} tries once more", final=True)
    return said("run", usual or f"named by --class {attempt.outcome.value}")


def _usual(attempt: Attempt) -> str:
    """Why an attempt is chosen without being asked for, "" when it is not."""
    if attempt.outcome is OutcomeClass.INFRASTRUCTURE:
        return "infrastructure says nothing of the agent"
    if attempt.outcome is OutcomeClass.BAD_REWARD and attempt.rule in CURABLE:
        return "the verifier could not run"
    if attempt.outcome is OutcomeClass.CANCELLED:
        return "cancelled before its end"
    if attempt.outcome is OutcomeClass.UNREADABLE and attempt.cause in _INCOMPLETE:
        return "planned, and never begun" if attempt.cause == MISSING else "cut off before its end"
    return ""


def _remark(attempt: Attempt) -> str:
    """Why an attempt that is not completed is left out."""
    if attempt.rule in _DEFECTS:
        return _DEFECTS[attempt.rule]
    if attempt.outcome is OutcomeClass.CONFIGURATION:
        return "fails again until it is put right; then say --mended"
    told = _REMARKS.get(attempt.outcome, "nobody can say whether another try would help")
    return f"{told}; --class {attempt.outcome.value} takes it"


_REMARKS = {
    OutcomeClass.AGENT_TIMEOUT: "a result: the agent had its time",
    OutcomeClass.CONTEXT_OVERFLOW: "a result: the agent filled its context",
    OutcomeClass.OUTPUT_LIMIT: "a result: the agent reached its output limit",
    OutcomeClass.AGENT_FAILURE: "the agent's own failure",
    OutcomeClass.AMBIGUOUS: "the evidence contradicts itself",
    OutcomeClass.UNREADABLE: "its result cannot be read, and may be graded",
}


def _counts(outcome: OutcomeClass, rule: str) -> bool:
    """Whether a try that ended so is one of those that the ceiling counts."""
    return outcome is OutcomeClass.INFRASTRUCTURE or rule in CURABLE


def _named(attempt: Attempt, globs: Iterable[str]) -> bool:
    names = (attempt.task, attempt.short)
    return any(name == glob or fnmatch.fnmatchcase(name, glob) for name in names if name for glob in globs)
