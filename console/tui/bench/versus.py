"""The comparison as lines and rows: its warnings first, then who is ahead and whether that is chance. Pure."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from console.bench.compare import Comparison, Flip, compare_all, p_text, points, points_range, side_of
from console.bench.sides import Difference
from console.bench.sides import Side as Compared
from console.errors import UsageError
from console.state.sanitize import sanitize
from console.tui.bench.reading import Seen, Side, Survey
from console.tui.text import Line, Span, cell, line, wrap

LETTERS = "ABCDEFGH"
_TESTS = {"mcnemar-exact": "exact McNemar test", "sign-flip": "sign-flip permutation test"}
_METHODS = {
    "newcombe": "Newcombe", "bootstrap-bca": "bootstrap over tasks", "bootstrap-percentile": "bootstrap over tasks",
}  # fmt: skip


@dataclass(frozen=True)
class Pairs:
    """Every pair of runs, each compared. `members`: label to the trials of that run."""

    found: tuple[Comparison, ...]
    members: dict[str, tuple[Seen, ...]]


def pairs(survey: Survey, mode: str) -> Pairs:
    """Compare the runs of the survey with each other: those of the first side come first.

    Raises:
        UsageError: there is one run only, or there are too many.
    """
    labels = iter(LETTERS)
    sides: list[Compared] = []
    members: dict[str, tuple[Seen, ...]] = {}
    for side in survey.sides:
        named = [group for group in side.merged.groups if group.group.agent or group.group.model]
        for group in named or side.merged.groups:
            label = next(labels, "")
            if not label:
                raise UsageError(f"more than {len(LETTERS)} runs are too many to compare each with each")
            jobs = [job for job in side.jobs if str(job.path) in group.jobs]
            sides.append(side_of(label, group, jobs))
            of_group = {id(row) for row in group.tries}
            members[label] = tuple(seen for seen in side.trials if id(seen.row) in of_group)
    if len(sides) < 2:
        raise UsageError("there is one run only: name the other one, too: quarterdeck bench look DIR --against DIR")
    return Pairs(tuple(compare_all(sides, mode)), members)


def first_pair(found: Pairs, survey: Survey) -> int:
    """The pair to show first: the first run of each side."""
    if survey.against is None:
        return 0
    second = sum(1 for _ in _groups(survey.side))
    label = LETTERS[second] if second < len(LETTERS) else ""
    return next((i for i, one in enumerate(found.found) if (one.a.label, one.b.label) == ("A", label)), 0)


def _groups(side: Side) -> Iterator[object]:
    named = [group for group in side.merged.groups if group.group.agent or group.group.model]
    yield from named or side.merged.groups


# --- what is said ---


def alerts(one: Comparison) -> list[str]:
    """What must not be overlooked: the warnings, and that the modes disagree."""
    return [*one.warnings, *([one.disagreement] if one.disagreement else [])]


def head_lines(one: Comparison, cells: int) -> list[Line]:
    """Warnings, verdict, figures, the table of pairs, the other modes and what differs, in at most `cells`."""
    out: list[Line] = []
    for text in alerts(one):
        out += [line(Span(f" {'!' if i == 0 else ' '} ", "alert"), *row)
                for i, row in enumerate(wrap(sanitize(f"{text}."), cells - 4, "limit+bold"))]  # fmt: skip
    said = f"By {one.asked.mode}: {one.asked.verdict}."
    out += [line(Span("   "), *row) for row in wrap(sanitize(said), cells - 4, "bold")]
    out.append(())
    for side in (one.a, one.b):
        said = f"{side.name or 'unknown agent'}, {side.trials:,} attempts of {side.tasks:,} tasks"
        out.append(line(Span(f" {side.label} ", "key"), cell(f" {said}", cells - 3).rstrip()))
        out += [line(Span(f"    {_end(job, cells - 4)}", "muted")) for job in side.jobs[:2]]
    out.append(())
    out += _figures(one, cells)
    out += _modes(one, cells)
    if one.differences:
        out += [(), line(Span(" What differs beside the score", "title"))]
        for difference in one.differences:
            out += _difference(difference, one, cells)
    if one.asked.excluded:
        out += [(), line(Span(" Not compared", "title"))]
        for why, tasks in one.asked.excluded.items():
            named = ", ".join(tasks[:6]) + (f", and {len(tasks) - 6} more" if len(tasks) > 6 else "")
            out += _wrapped(f"{why}: {len(tasks)}: {named}", cells)
    return out


def _wrapped(text: str, cells: int, role: str = "") -> list[Line]:
    return [line(Span(" " * (3 if i == 0 else 5)), *row) for i, row in enumerate(wrap(sanitize(text), cells - 6, role))]


def _figures(one: Comparison, cells: int) -> list[Line]:
    asked, a, b = one.asked, one.a.label, one.b.label
    if asked.effect is None or asked.p is None:
        return _wrapped(f"by {asked.mode}: {asked.rule}", cells, "muted")
    out: list[Line] = []
    if asked.both is not None:
        counts = (("both passed", asked.both), (f"only {a}", asked.only_a), (f"only {b}", asked.only_b),
                  ("neither", asked.neither))  # fmt: skip
        out.append(line(*(Span(f"   {name:<12}", "muted") for name, _ in counts)))
        out.append(line(*(Span(f"   {value or 0:<12,}", "bold") for _, value in counts)))
    said = f"{b} - {a}: {points(asked.effect, '+')} points"
    if asked.ci95 is not None:
        method = _METHODS.get(asked.ci_method, asked.ci_method)
        said += f", 95 % interval {points_range(asked.ci95)} ({method})"
    out += _wrapped(said, cells, "bold")
    said = f"{_TESTS.get(asked.test, asked.test)}: p {p_text(asked.p)}"
    said += "" if asked.mid_p is None else f" (mid-p {p_text(asked.mid_p)})"
    said += "" if asked.p_holm is None else f", adjusted for all pairs (Holm) {p_text(asked.p_holm)}"
    out += _wrapped(said, cells)
    return out + _wrapped(f"by {asked.mode}: {asked.rule}", cells, "muted")


def _modes(one: Comparison, cells: int) -> list[Line]:
    a, b = one.a.label, one.b.label
    out: list[Line] = [(), line(Span(" By every mode, in points", "title"))]
    names = ("mode", "tasks", a, b, f"{b}-{a}", "95 %", "p")
    out.append(line(Span(_cells(names, cells), "muted")))
    for found in one.modes.values():
        means = (found.mean_a, found.mean_b)
        values = (
            found.mode,
            str(found.tasks),
            *("--" if mean is None else f"{100 * mean:.1f}" for mean in means),
            "--" if found.effect is None else points(found.effect, "+"),
            "--" if found.ci95 is None else points_range(found.ci95),
            "--" if found.p is None else p_text(found.p).removeprefix("= "),
        )
        out.append(line(Span(_cells(values, cells), "bold" if found.mode == one.asked.mode else "")))
    return out


def _cells(values: Sequence[str], cells: int) -> str:
    """A row of the table; narrow screens have no interval in it."""
    mode, tasks, a, b, effect, between, p = values
    interval = f" {between:>15}" if cells >= 80 else ""
    return f"   {mode:<21} {tasks:>6} {a:>6} {b:>6} {effect:>6}{interval} {p:>7}"


def _difference(found: Difference, one: Comparison, cells: int) -> list[Line]:
    of = f" (in {found.tasks} tasks)" if found.tasks else ""
    text = f"{found.name}{of}: {one.a.label} {', '.join(found.a)}; {one.b.label} {', '.join(found.b)}. {found.why}"
    rows = wrap(sanitize(text, limit=600), cells - 6, "limit" if found.weighty else "")
    return [line(Span(" ! " if found.weighty and i == 0 else "   ", "alert" if found.weighty and i == 0 else ""), *row)
            for i, row in enumerate(rows)]  # fmt: skip


def _end(path: str, cells: int) -> str:
    clean = sanitize(path, limit=1000)
    return clean if len(clean) <= cells else f"…{clean[len(clean) - cells + 1 :]}"


# --- the tasks that flipped ---


@dataclass(frozen=True)
class FlipRow:
    """A task on which the sides differ: `ahead` is the label of the side that is better on it."""

    ahead: str
    flip: Flip

    @property
    def key(self) -> str:
        """By which it is known."""
        return self.flip.task


def flip_rows(one: Comparison) -> list[FlipRow]:
    """Those on which B is better first, each way the largest difference first."""
    ways = ((one.b.label, one.asked.better_b), (one.a.label, one.asked.better_a))
    return [FlipRow(ahead, flip) for ahead, flips in ways for flip in flips]


# --- one task ---


@dataclass(frozen=True)
class TaskRow:
    """The trials of a task that stand side by side, None where one side has no more."""

    a: Seen | None
    b: Seen | None


def task_rows(found: Pairs, one: Comparison, task: str) -> list[TaskRow]:
    """Both sides' trials of a task, by attempt and try; also those that another try stands for."""
    sides = [
        sorted(_of_task(found.members[label], task), key=lambda seen: (seen.row.attempt, seen.row.try_, seen.path))
        for label in (one.a.label, one.b.label)
    ]
    return [TaskRow(a, b) for a, b in itertools.zip_longest(*sides)]


def _of_task(trials: Sequence[Seen], task: str) -> Iterator[Seen]:
    return (seen for seen in trials if seen.row.task == task)
