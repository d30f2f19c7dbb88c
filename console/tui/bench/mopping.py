"""What a mop-up of the marked trials would run: the plan, and the command that does it. Reads lineage files only."""

from __future__ import annotations

import os
import shlex
from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from console.bench.mop_up.choice import DEFAULT_CLASSES, Attempt, Choice, Note, Wish, attempts_of, choose
from console.bench.mop_up.family import Family, family_of, left_out
from console.errors import UsageError
from console.outcomes.classes import OutcomeClass
from console.state.sanitize import sanitize
from console.tui.bench.reading import Seen, Side
from console.tui.text import Line, Span, cell, line, wrap

_ASKED_ELSEWHERE = (OutcomeClass.COMPLETED, OutcomeClass.CONFIGURATION)
"""Classes that a mark alone does not choose: graded ones need --force, wrong options --mended."""
NOT_NAMED = "not named by --task"
"""Why `choose` leaves out what nobody asked for."""
_SHOWN = 400


@dataclass(frozen=True)
class Plan:
    """One job's mop-up.

    Attributes:
        root: its directory; arguments: of `quarterdeck bench`, the directory among them.
        choice: what would run and what is left out; marked: trials of the job that are marked; unread: mop-ups beside
            it that were not read, so that the command may choose less.
    """

    root: Path
    arguments: tuple[str, ...]
    choice: Choice
    marked: int
    unread: tuple[Path, ...] = ()

    @property
    def command(self) -> str:
        """As a shell takes it."""
        return f"quarterdeck bench {shlex.join(self.arguments)}"


def plans(side: Side, marks: Collection[str], rules: str = "") -> list[Plan]:
    """A plan for each job that has something marked, or for each job when nothing is.

    Args:
        rules: path of the rule file that judged, "" without one.

    Raises:
        UsageError: a job that can have no mop-up: a single trial, one whose parent is gone.
    """
    marked = [seen for seen in side.trials if seen.path in marks]
    families: dict[Path, Family] = {}
    root_of: dict[str, Path] = {}
    jobs = {seen.row.job for seen in marked} if marked else {str(job.path) for job in side.jobs}
    for job in sorted(jobs):
        family = family_of(Path(job))
        families[family.root] = family
        root_of[job] = family.root
    by_root: dict[Path, list[Seen]] = defaultdict(list)
    for seen in marked:
        by_root[root_of[seen.row.job]].append(seen)
    unread = left_out(job.path for job in side.jobs)
    return [_plan(side, family, by_root.get(root, []), rules, unread) for root, family in families.items()]


def _plan(side: Side, family: Family, marked: Sequence[Seen], rules: str, unread: Iterable[Path]) -> Plan:
    members = {os.path.realpath(path) for path in family.paths}
    attempts = [one for one in _attempts(side, family) if os.path.realpath(os.path.dirname(one.trial)) in members]
    tasks = tuple(dict.fromkeys(seen.whole or seen.task for seen in marked))
    classes = _classes(attempts, tasks, {seen.path for seen in marked})
    arguments = ["mop-up", str(family.root)]
    arguments += [part for name, _ in classes for part in ("--class", name)]
    arguments += [part for task in tasks for part in ("--task", task)]
    arguments += ["--rules", os.path.abspath(rules)] if rules else []
    choice = (
        choose(attempts, Wish(classes=classes, tasks=tasks)) if attempts else Choice(chosen=(), left=(), standing=0)
    )
    others = tuple(path for path in unread if path in family.paths)
    return Plan(family.root, tuple(arguments), choice, len(marked), others)


def _attempts(side: Side, family: Family) -> list[Attempt]:
    notes = [Note(seen.whole, seen.rule, seen.evidence.text, seen.evidence.file) for seen in side.trials]
    again = {os.path.realpath(each.path) for each in family.mop_ups}
    return attempts_of(side.merged, notes, [str(job.path) for job in side.jobs if os.path.realpath(job.path) in again])


def _classes(
    attempts: Sequence[Attempt], tasks: tuple[str, ...], marked: Collection[str]
) -> tuple[tuple[str, str], ...]:
    """Classes of the marked trials that are not chosen unless they are named; a mark names them."""
    if not tasks:
        return ()
    left = choose(attempts, Wish(tasks=tasks)).left
    names = {one.outcome.value for one in left if one.trial in marked and one.outcome not in _ASKED_ELSEWHERE}
    return tuple((name, "*") for name in sorted(names))


def plan_lines(plan: Plan, cells: int) -> list[Line]:
    """What would run and why, what is left out and why, and the command, in lines of at most `cells`."""
    chosen, left = plan.choice.chosen, [one for one in plan.choice.left if one.why != NOT_NAMED]
    tasks = len({one.short for one in chosen})
    asked = (
        f"of {_amount(plan.marked, 'marked trial')}: {_amount(len(chosen), 'attempt')} of {_amount(tasks, 'task')}"
        if plan.marked
        else f"nothing is marked, so the usual choice ({DEFAULT_CLASSES}): {_amount(len(chosen), 'attempt')} of "
        f"{_amount(tasks, 'task')}"
    )
    out = [line(Span(f" {_end(str(plan.root), cells - 2)}", "title"))]
    out += _said(asked, cells, "bold")
    if plan.unread:
        names = ", ".join(path.name for path in plan.unread[:4])
        out += _said(f"! mop-ups beside it were not read ({names}): name them too, what they mended may be chosen here",
                     cells, "limit+bold")  # fmt: skip
    out.append(())
    if chosen:
        out.append(line(Span(" would run", "title")))
        out += _rows(chosen, cells, "")
    else:
        out += _said("nothing would run", cells, "bold")
    if left:
        out += [(), line(Span(f" left out: {_amount(len(left), 'attempt')}", "title"))]
        out += _rows(left, cells, "muted")
    if len(left) < len(plan.choice.left):
        others = _amount(len(plan.choice.left) - len(left), "further attempt")
        out += [(), *_said(f"{others} that did not complete: of tasks without a mark", cells)]
    if plan.choice.standing:
        stands = "stands" if plan.choice.standing == 1 else "stand"
        said = f"{_amount(plan.choice.standing, 'completed attempt')} {stands}: never run again by class"
        out += [(), *_said(said, cells)]
    if chosen:
        out += [(), line(Span(" command", "title"))]
        out += _said(sanitize(plan.command, limit=4000), cells, "key")
    return out


def _rows(attempts: Sequence[Attempt], cells: int, role: str) -> list[Line]:
    name = max(16, min(30, cells // 3))
    kind = 26 if cells >= 76 else 18
    out = [
        line(
            Span(f"   {cell(one.short or '?', name)} {cell(one.kind, kind)} ", role),
            Span(cell(one.why, max(8, cells - name - kind - 6)).rstrip(), "muted"),
        )
        for one in attempts[:_SHOWN]
    ]
    if len(attempts) > _SHOWN:
        out.append(line(Span(f"   and {len(attempts) - _SHOWN:,} more", "muted")))
    return out


def _said(text: str, cells: int, role: str = "") -> list[Line]:
    return [line(Span("   "), *row) for row in wrap(sanitize(text, limit=4000), cells - 4, role)]


def _end(path: str, cells: int) -> str:
    clean = sanitize(path, limit=1000)
    return clean if len(clean) <= cells else f"…{clean[len(clean) - cells + 1 :]}"


def _amount(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def refuse_none(found: Sequence[Plan]) -> Plan:
    """The only plan that runs something. Raises UsageError where there is none, or where there are several."""
    ready = [plan for plan in found if plan.choice.chosen]
    if not ready:
        raise UsageError("a mop-up would run nothing")
    if len(ready) > 1:
        names = ", ".join(plan.root.name for plan in ready[:4])
        raise UsageError(f"one job at a time can be mopped up, and this is about {len(ready)} ({names}): mark in one")
    return ready[0]
