"""All figures of one step, as a table: for the screen, for the clipboard."""

from __future__ import annotations

import time
from typing import NamedTuple

from console.journal.events import StepFinished
from console.outcomes.classes import OutcomeClass
from console.state.sanitize import sanitize
from console.tui.glyphs import SIGNS
from console.tui.picture import Scene
from console.tui.series import FIGURES, Figure
from console.tui.text import Line, Span, cell, fit, line, number

_LEFT_OUT = frozenset({"reward_low", "reward_high"})
_NAME, _VALUE, _UNIT = 18, 10, 10
_COLUMN = _NAME + _VALUE + 1 + _UNIT + 1
_KNOWN = {str(kind) for kind in OutcomeClass}


class Entry(NamedTuple):
    """A row of the table. `role` colours the value."""

    name: str
    value: str
    unit: str
    about: str
    role: str = ""


def entries(row: StepFinished) -> list[Entry]:
    """Everything that is known of a step."""
    out = [
        Entry("finished", _moment(row.ts), "", "when the step ended, local time"),
        *(_entry(figure, row) for figure in FIGURES.values() if figure.id not in _LEFT_OUT),
    ]
    if row.replayed:
        out.append(Entry("applied again", "yes", "", "after a resume, trained again from what was captured before"))
    if row.recovered:
        out.append(
            Entry("recovered", "yes", "", "the engine that trained it ended before it could tell; its weights count")
        )
    outcomes = [_outcome(name, n) for name, n in sorted(row.outcomes.items(), key=_severity)]
    at = next(i for i, entry in enumerate(out) if entry.name == FIGURES["trials"].name) + 1
    out[at:at] = outcomes
    if row.nonfinite:
        names = sanitize(", ".join(row.nonfinite), limit=200)
        out.append(Entry("not finite", str(len(row.nonfinite)), "figures", f"NaN or infinite: {names}", "infra"))
    return out


def _entry(figure: Figure, row: StepFinished) -> Entry:
    if figure.id in row.nonfinite:
        return Entry(figure.name, "not finite", figure.unit, figure.about, "infra")
    # A duration carries its unit with it.
    return Entry(figure.name, exact(figure, row), "" if figure.kind == "seconds" else figure.unit, figure.about)


def exact(figure: Figure, row: StepFinished) -> str:
    """The value with all the digits that mean something; `--` when unknown."""
    value = figure.get(row)
    short = figure.say(value)
    if value is None or short == "--" or figure.kind == "seconds":
        return short
    if figure.kind == "count" or figure.id == "policy_version":
        return f"{value:,.0f}" if abs(value) < 1e9 else short
    return number(value, max(4, figure.digits))


def _outcome(name: str, trials: int) -> Entry:
    known = name in _KNOWN
    sign = SIGNS.get(name)
    about = sign.meaning if sign is not None else "trials that ended so" if known else "a class that is not known here"
    role = sign.role.removesuffix("+alert") if sign is not None else "pass" if known else "zero"
    return Entry("  " + sanitize(name, limit=_NAME - 2).replace("_", " "), str(trials), "trials", about, role)


def _severity(item: tuple[str, int]) -> tuple[int, str]:
    order = [str(kind) for kind in OutcomeClass]
    return (order.index(item[0]) if item[0] in order else len(order), item[0])


def _moment(ts: float) -> str:
    try:
        return time.strftime("%H:%M:%S", time.localtime(ts)) if ts > 0 else "--"
    except (OverflowError, ValueError, OSError):
        return "--"


def figures_title(row: StepFinished | None) -> tuple[str, str]:
    """Left and right part of the pane's title."""
    return (f"Step {row.step}", f"policy v{row.policy_version}") if row is not None else ("Step", "")


def rows_for(cells: int, count: int) -> int:
    """Rows that a table of `count` entries takes in as many columns as fit."""
    columns = max(1, cells // _COLUMN)
    return -(-count // columns)


def figure_columns(scene: Scene, row: StepFinished | None, cells: int, rows: int) -> list[Line]:
    """Name, value and unit, in columns filled from top to bottom; what has no room is left out."""
    if row is None:
        return [line(Span(" no step has finished yet", "muted"))]
    found = entries(row)
    columns = max(1, min(cells // _COLUMN, -(-len(found) // max(1, rows))))
    high = min(rows, -(-len(found) // columns))
    wide = cells // columns
    out: list[Line] = []
    for y in range(high):
        parts: list[Span] = []
        for x in range(columns):
            at = x * high + y
            parts += fit(_cells(found[at]), wide) if at < len(found) else fit((), wide)
        out.append(tuple(parts))
    return out


def figure_list(scene: Scene, row: StepFinished | None, cells: int, rows: int, top: int) -> list[Line]:
    """One entry a row with its definition, from entry `top` on."""
    if row is None:
        return [line(Span(" no step has finished yet", "muted"))]
    return [fit((*_cells(entry), Span(f" {entry.about}", "muted")), cells) for entry in entries(row)[top : top + rows]]


def figures_text(row: StepFinished) -> str:
    """The table for the clipboard: one entry a line, tabs between name, value and unit."""
    lines = [f"step\t{row.step}"]
    lines += [f"{e.name.strip()}\t{e.value}\t{e.unit}".rstrip("\t") for e in entries(row)]
    if row.nonfinite:
        lines.append(f"not finite\t{sanitize(', '.join(row.nonfinite), limit=400)}")
    return "\n".join(lines)


def _cells(entry: Entry) -> Line:
    return line(
        Span(f" {cell(entry.name, _NAME)}", "muted"),
        Span(cell(entry.value, _VALUE, right=True), entry.role),
        Span(f" {cell(entry.unit, _UNIT)}", "muted"),
    )
