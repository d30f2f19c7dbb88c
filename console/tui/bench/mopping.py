"""What a mop-up of the marked trials would run, and the command that does it: the plan of `bench mop-up` itself."""

from __future__ import annotations

import glob
import os
import shlex
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from console.bench.mop_up.choice import DEFAULT_CLASSES, NOT_NAMED, Attempt, Note, Wish, attempts_of, choose
from console.bench.mop_up.family import family_of
from console.bench.mop_up.plan import Plan, make_plan
from console.bench.rows import Identity
from console.bench.rules.user import UserRules
from console.errors import UsageError
from console.outcomes.classes import OutcomeClass
from console.records.redact import redact
from console.state.sanitize import sanitize
from console.tui.bench.reading import Seen, Side
from console.tui.text import Line, Span, line, wrap

_ASKED_ELSEWHERE = (OutcomeClass.COMPLETED, OutcomeClass.CONFIGURATION)
"""Classes that a mark alone does not choose: graded ones need --force, wrong options --mended."""
_SHOWN = 400


@dataclass(frozen=True)
class MopUp:
    """The mop-up of one run.

    Attributes:
        root: the job's directory; arguments: of `quarterdeck bench`, the directory among them.
        plan: what would run and what is left out, None where there can be none, and `trouble` says why.
        marked: trials of the run that are marked; graded: those of them that are completed, which stand.
    """

    root: Path
    arguments: tuple[str, ...]
    plan: Plan | None
    trouble: str = ""
    marked: int = 0
    graded: int = 0

    @property
    def command(self) -> str:
        """As a shell takes it."""
        return f"quarterdeck bench {shlex.join(self.arguments)}"


@dataclass(frozen=True)
class _Run:
    """Jobs that measured the same: a job with its mop-ups, and those that repeat it by hand."""

    roots: tuple[Path, ...]
    mop_ups: frozenset[str]
    jobs: frozenset[str]


def mop_ups(side: Side, marks: Collection[str], rules: UserRules | None = None, cache: bool = True) -> list[MopUp]:
    """The mop-up of each run that has something marked, or of each run when nothing is. Reads the directories.

    Raises:
        UsageError: a job that can have no mop-up: a single trial, one whose parent is gone.
    """
    marked = [seen for seen in side.trials if seen.path in marks]
    out = []
    for run in _runs(side):
        some = [seen for seen in marked if os.path.realpath(seen.row.job) in run.jobs]
        if some or not marked:
            out.append(_mop_up(side, run, some, rules, cache))
    return out


def _runs(side: Side) -> list[_Run]:
    """The jobs by what they measured, each run's in the order of merging."""
    order = list(dict.fromkeys([*(job for group in side.merged.groups for job in group.jobs),
                                *(str(job.path) for job in side.jobs)]))  # fmt: skip
    measured: dict[str, set[Identity]] = {job: set() for job in order}
    for row in side.merged.rows:
        measured[row.job].add(row.group)
    families = {job: family_of(Path(job)) for job in order}
    by_what: dict[frozenset[Identity], dict[str, None]] = {}
    for job in order:
        root = str(families[job].root)
        by_what.setdefault(frozenset(measured.get(root) or measured[job]), {})[job] = None
    place = {str(job.path): at for at, job in enumerate(side.jobs)}
    found = sorted(by_what.values(), key=lambda jobs: min(place.get(job, len(place)) for job in jobs))
    return [
        _Run(
            roots=tuple(dict.fromkeys(families[job].root for job in jobs)),
            mop_ups=frozenset(os.path.realpath(each.path) for job in jobs for each in families[job].mop_ups),
            jobs=frozenset(os.path.realpath(job) for job in jobs),
        )
        for jobs in found
    ]


def _mop_up(side: Side, run: _Run, marked: Sequence[Seen], rules: UserRules | None, cache: bool) -> MopUp:
    # A name is looked for as a glob, and must find no other one.
    tasks = tuple(dict.fromkeys(glob.escape(seen.whole or seen.task) for seen in marked))
    classes = _classes(side, run, tasks, {seen.path for seen in marked})
    arguments = ["mop-up", *map(str, run.roots)]
    arguments += [part for name, _ in classes for part in ("--class", name)]
    arguments += [part for task in tasks for part in ("--task", task)]
    arguments += ["--rules", os.path.abspath(rules.path)] if rules is not None else []
    plan, trouble = None, ""
    try:
        plan = make_plan(run.roots, Wish(classes=classes, tasks=tasks), rules=rules, cache=cache)
    except UsageError as error:
        trouble = str(error)
    graded = sum(seen.row.outcome is OutcomeClass.COMPLETED for seen in marked)
    return MopUp(run.roots[0], tuple(arguments), plan, trouble, len(marked), graded)


def _classes(side: Side, run: _Run, tasks: tuple[str, ...], marked: Collection[str]) -> tuple[tuple[str, str], ...]:
    """Classes of the marked trials that are not chosen unless they are named; a mark names them."""
    if not tasks:
        return ()
    notes = [Note(seen.whole, seen.rule, seen.evidence.text, seen.evidence.file) for seen in side.trials]
    again = [str(job.path) for job in side.jobs if os.path.realpath(job.path) in run.mop_ups]
    attempts = [one for one in attempts_of(side.merged, notes, again) if one.trial in marked]
    left = choose(attempts, Wish()).left
    return tuple((name, "*") for name in sorted({one.outcome.value for one in left if not _elsewhere(one)}))


def _elsewhere(one: Attempt) -> bool:
    return one.outcome in _ASKED_ELSEWHERE or one.final or one.cause == "running"


# --- as lines ---


def mop_up_lines(found: MopUp, cells: int) -> list[Line]:
    """What would run and why, what is left out and why, and the command, in lines of at most `cells`."""
    out = [line(Span(f" {_end(str(found.root), cells - 2)}", "title"))]
    plan = found.plan
    if plan is None:
        return out + _said(found.trouble, cells, "limit")
    chosen, left = plan.choice.chosen, [one for one in plan.choice.left if one.why != NOT_NAMED]
    amount = f"{_amount(len(chosen), 'attempt')} of {_amount(len({one.short for one in chosen}), 'task')}"
    asked = f"of {_amount(found.marked, 'marked trial')}" if found.marked else f"nothing marked: {DEFAULT_CLASSES}"
    out += _said(f"{asked}: {amount}", cells, "bold")
    out += [one for text in (*plan.problems, *plan.notes) for one in _said(str(redact(text)), cells, "limit")]
    out += [(), line(Span(" would run", "title"))] if chosen else [(), *_said("nothing would run", cells, "bold")]
    out += _rows(chosen, cells, "")
    if left:
        out += [(), line(Span(f" left out: {_amount(len(left), 'attempt')}", "title")), *_rows(left, cells, "muted")]
    out.append(())
    out += [one for text in _stands(found, plan, len(left)) for one in _said(text, cells)]
    if plan.jobs:
        out += [(), line(Span(" new jobs", "title"))]
        for job in plan.jobs:
            out += _said(f"{job.path}: {_amount(job.trials, 'trial')}", cells)
        out += [(), line(Span(" command", "title")), *_said(found.command, cells, "key")]
    return out


def _stands(found: MopUp, plan: Plan, left: int) -> Iterable[str]:
    """What is not run again, beside the table."""
    if left < len(plan.choice.left):
        others = _amount(len(plan.choice.left) - left, "further attempt")
        yield f"{others} that did not complete: of tasks without a mark"
    if found.graded:
        stands = "is graded and stands" if found.graded == 1 else "are graded and stand"
        why = "to roll such a one again inflates a figure; `bench mop-up DIR --task NAME --force` does it all the same"
        yield f"{_amount(found.graded, 'marked trial')} {stands}: {why}"
    if plan.choice.standing and not found.marked:
        stands = "stands" if plan.choice.standing == 1 else "stand"
        yield f"{_amount(plan.choice.standing, 'completed attempt')} {stands}: never run again by class"
    if plan.lost:
        yield f"{_amount(plan.lost, 'planned attempt')} left nothing on disk, and no file tells of which tasks"


def _rows(attempts: Sequence[Attempt], cells: int, role: str) -> list[Line]:
    """By class and reason, with the tasks beneath; a task of several attempts has their number behind it."""
    groups: dict[tuple[str, str], Counter[str]] = defaultdict(Counter)
    for one in attempts:
        groups[one.kind, one.why][sanitize(one.short or "?", limit=120)] += 1
    out: list[Line] = []
    for (kind, why), tasks in sorted(groups.items(), key=lambda item: -item[1].total()):
        out += _said(f"{kind} ({tasks.total():,}): {why}", cells, role)
        named = [name if count == 1 else f"{name} x{count}" for name, count in sorted(tasks.items())]
        more = f", and {len(named) - _SHOWN:,} more" if len(named) > _SHOWN else ""
        out += [line("  ", *one) for one in _said(", ".join(named[:_SHOWN]) + more, cells - 2, "muted")]
    return out


def _said(text: str, cells: int, role: str = "") -> list[Line]:
    return [line(Span("   "), *row) for row in wrap(sanitize(text, limit=40_000), cells - 4, role)]


def _end(path: str, cells: int) -> str:
    clean = sanitize(path, limit=1000)
    return clean if len(clean) <= cells else f"…{clean[len(clean) - cells + 1 :]}"


def _amount(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def the_one(found: Sequence[MopUp]) -> MopUp:
    """The only one that runs something. Raises UsageError where there is none, or where there are several."""
    ready = [one for one in found if one.plan is not None and one.plan.jobs]
    if not ready:
        raise UsageError(next((one.trouble for one in found if one.trouble), "a mop-up would run nothing"))
    if len(ready) > 1:
        names = ", ".join(one.root.name for one in ready[:4])
        raise UsageError(f"one run at a time can be mopped up, and this is about {len(ready)} ({names}): mark in one")
    return ready[0]
