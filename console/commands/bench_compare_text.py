"""The answers of `quarterdeck bench compare`: text, Markdown, CSV, JSON."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from console.bench.compare import Comparison, Flip, Paired, p_text, points, points_range
from console.bench.figures.tables import Column, Kind, Table, to_csv, to_markdown, to_text
from console.bench.rows import counted
from console.bench.sides import Difference
from console.commands.bench_text import clean, columns, laid_out, paragraph, path_text

_TESTS = {"mcnemar-exact": "exact McNemar test", "sign-flip": "sign-flip permutation test"}
_METHODS = {
    "newcombe": "Newcombe", "bootstrap-bca": "bootstrap over tasks", "bootstrap-percentile": "bootstrap over tasks",
}  # fmt: skip


def as_json(found: Comparison) -> dict[str, Any]:
    """One object: the asked mode's figures at the top, the other modes', the differences and warnings behind them."""
    asked: dict[str, Any] = msgspec.to_builtins(found.asked)
    rest: dict[str, Any] = msgspec.to_builtins(found)
    del rest["asked"]
    for figures in rest["modes"].values():  # the lists are there once, for the mode that was asked for
        del figures["better_a"], figures["better_b"], figures["excluded"]
    return {"v": 1, **asked, **rest}


def as_csv(found: Sequence[Comparison]) -> Iterator[str]:
    """A row for each pair and task that was compared with a difference."""
    columns_ = [Column(name, name) for name in ("side_a", "side_b", "mode", "task", "ahead")]
    columns_ += [Column("mean_a", "mean_a", Kind.SHARE), Column("mean_b", "mean_b", Kind.SHARE)]
    columns_ += [Column("trials_a", "trials_a"), Column("trials_b", "trials_b")]
    rows = []
    for one in found:
        for ahead, flips in ((one.a.label, one.asked.better_a), (one.b.label, one.asked.better_b)):
            for flip in flips:
                paths = " ".join(flip.paths_a), " ".join(flip.paths_b)
                rows.append((one.a.label, one.b.label, one.asked.mode, flip.task, ahead, flip.a, flip.b, *paths))
    return to_csv(Table(name="flips", title="", columns=tuple(columns_), rows=tuple(rows)))


def as_text(found: Sequence[Comparison], flips: int) -> Iterator[str]:
    """Lines for a terminal, what matters first."""
    width = columns()
    yield from _legend(found, width)
    for one in found:
        yield ""
        yield from _comparison(one, flips, width)


def as_markdown(found: Sequence[Comparison], flips: int) -> Iterator[str]:
    """The same as tables."""
    for one in found:
        tables = [_mode_table(one), *([_difference_table(one)] if one.differences else [])]
        tables += [_flip_table(name, some[:flips]) for name, some in _ways(one) if some]
        if one.asked.excluded:
            tables.append(_excluded_table(one.asked))
        yield to_markdown(tables)
        yield ""
        for line in (one.asked.verdict, one.disagreement, *one.warnings):
            if line:
                yield f"{clean(line, 2000)}."
                yield ""


def _legend(found: Sequence[Comparison], width: int) -> Iterator[str]:
    seen: dict[str, None] = {}
    for one in found:
        for side in (one.a, one.b):
            if side.label in seen:
                continue
            seen[side.label] = None
            said = f"{side.name or 'unknown agent'}, {counted(side.trials, 'attempt')} of {counted(side.tasks, 'task')}"
            yield from paragraph(said, width, f"{side.label}  ")
            for job in side.jobs[:6]:
                yield f"   {path_text(job, width - 3)}"


def _comparison(one: Comparison, flips: int, width: int) -> Iterator[str]:
    asked = one.asked
    yield from paragraph(f"{asked.verdict}.", width)
    if one.disagreement:
        yield from paragraph(f"{one.disagreement}.", width, "! ")
    for warning in one.warnings:
        yield from paragraph(f"{warning}.", width, "! ")
    yield ""
    if asked.tasks:
        yield from _figures(one, width)
        yield ""
    yield to_text([_mode_table(one)], width)
    if one.differences:
        yield ""
        yield "What differs beside the score"
        for difference in one.differences:
            yield from _difference(difference, one, width)
    for name, some in _ways(one):
        if some:
            yield ""
            yield f"{name}: {counted(len(some), 'task')}"
            yield from _flips(some[:flips], width)
            if len(some) > flips:
                yield f"  and {len(some) - flips} more (--flips {len(some)}, --json has all)"
    if asked.excluded:
        yield ""
        yield "Not compared"
        for why, tasks in asked.excluded.items():
            said = ", ".join(tasks[:8]) + (f", and {len(tasks) - 8} more" if len(tasks) > 8 else "")
            yield from paragraph(f"{why}: {counted(len(tasks), 'task')}: {said}", width, "  ", "    ")


def _figures(one: Comparison, width: int) -> Iterator[str]:
    asked, a, b = one.asked, one.a.label, one.b.label
    assert asked.effect is not None and asked.p is not None
    said = f"{b} - {a}: {points(asked.effect, '+')} points"
    if asked.ci95 is not None:
        method = _METHODS.get(asked.ci_method, asked.ci_method)
        said += f", 95 % interval {points_range(asked.ci95)} ({method})"
    errors = [("", asked.se), (" within tasks", asked.se_within)]
    said += "".join(f", standard error{what} {100 * value:.1f}" for what, value in errors if value is not None)
    yield from paragraph(said, width, "  ", "    ")
    if asked.only_a is not None:
        said = f"passed by both {asked.both}, only {a} {asked.only_a}, only {b} {asked.only_b}, neither {asked.neither}"
        yield from paragraph(said, width, "  ", "    ")
    said = f"{_TESTS.get(asked.test, asked.test)}: p {p_text(asked.p)}"
    said += "" if asked.mid_p is None else f" (mid-p {p_text(asked.mid_p)})"
    said += "" if asked.p_holm is None else f", adjusted for all pairs (Holm) {p_text(asked.p_holm)}"
    yield from paragraph(said, width, "  ", "    ")
    yield from paragraph(f"by {asked.mode}: {asked.rule}", width, "  ", "    ")


def _mode_table(one: Comparison) -> Table:
    a, b = one.a.label, one.b.label
    names = (Column("mode", "mode"), Column("tasks", "tasks", Kind.COUNT), Column(a, "mean_a", Kind.SHARE))
    columns_ = (
        *names,
        Column(b, "mean_b", Kind.SHARE),
        Column(f"{b} - {a}", "effect", Kind.POINTS),  # a text with its sign, but read as a number
        Column("95 % interval", "ci95", Kind.POINTS),
    )
    rows = tuple(
        (
            m.mode,
            m.tasks,
            m.mean_a,
            m.mean_b,
            _signed(m.effect),
            _signed_range(m.ci95),
            None if m.p is None else f"{m.p:.2g}",
        )
        for m in one.modes.values()
    )
    title = "By every mode, in points"
    return Table(name="modes", title=title, columns=(*columns_, Column("p", "p", Kind.SCORE)), rows=rows)


def _signed(value: float | None) -> str | None:
    return None if value is None else points(value, "+")


def _signed_range(found: tuple[float, float] | None) -> str | None:
    return None if found is None else points_range(found)


def _difference(found: Difference, one: Comparison, width: int) -> Iterator[str]:
    of = f" (in {counted(found.tasks, 'task')})" if found.tasks else ""
    said = f"{found.name}{of}: {one.a.label} {', '.join(found.a)}; {one.b.label} {', '.join(found.b)}. {found.why}"
    yield from paragraph(clean(said, 600), width, "  ! " if found.weighty else "    ", "    ")


def _difference_table(one: Comparison) -> Table:
    columns_ = (Column("setting", "setting"), Column(one.a.label, "a"), Column(one.b.label, "b"), Column("why", "why"))
    rows = tuple((d.name, ", ".join(d.a), ", ".join(d.b), d.why) for d in one.differences)
    return Table(name="differences", title="What differs beside the score", columns=columns_, rows=rows)


def _ways(one: Comparison) -> tuple[tuple[str, list[Flip]], tuple[str, list[Flip]]]:
    return (f"{one.b.label} is better", one.asked.better_b), (f"{one.a.label} is better", one.asked.better_a)


def _flips(flips: Sequence[Flip], width: int) -> Iterator[str]:
    digits = "g" if all(_whole(flip) for flip in flips) else ".2f"
    rows = [(flip.task, f"{flip.a:{digits}} -> {flip.b:{digits}}") for flip in flips]
    for flip, line in zip(flips, laid_out(rows, width - 2, flexible=0)):
        yield f"  {line}"
        for paths in (flip.paths_a, flip.paths_b):
            more = f" and {len(paths) - 1} more" if len(paths) > 1 else ""
            yield f"      {path_text(os.fspath(paths[0]), width - 6 - len(more))}{more}"


def _whole(flip: Flip) -> bool:
    return float(flip.a).is_integer() and float(flip.b).is_integer()


def _flip_table(name: str, flips: Sequence[Flip]) -> Table:
    columns_ = (Column("task", "task"), Column("A", "a", Kind.SCORE), Column("B", "b", Kind.SCORE))
    paths = (Column("trials A", "trials_a"), Column("trials B", "trials_b"))
    rows = tuple((f.task, f.a, f.b, " ".join(f.paths_a), " ".join(f.paths_b)) for f in flips)
    return Table(name="flips", title=name, columns=(*columns_, *paths), rows=rows)


def _excluded_table(asked: Paired) -> Table:
    columns_ = (Column("why", "why"), Column("tasks", "number", Kind.COUNT), Column("which", "tasks"))
    rows = tuple((why, len(tasks), ", ".join(tasks)) for why, tasks in asked.excluded.items())
    return Table(name="excluded", title="Not compared", columns=columns_, rows=rows)
