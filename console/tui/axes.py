"""What surrounds a plot: value labels on the left, steps below, the cursor, and the spans that the terminal gets."""

from __future__ import annotations

from dataclasses import dataclass

from console.tui.columns import Columns
from console.tui.glyphs import marks
from console.tui.scale import XScale, YScale, x_scale, x_ticks
from console.tui.text import Line, Span, fit, width

LABEL = 6
_TICK, _TICK_ASCII = "┬", "+"
_CURSOR, _CURSOR_ASCII = "▴", "^"
_POLICY, _POLICY_ASCII = "▸", ">"

Cells = list[list[tuple[str, str]]]
"""Rows of (character, role), one a cell."""


@dataclass(frozen=True)
class Look:
    """How a chart is looked at.

    Attributes:
        cursor: step whose column is marked; policy: the step that the policy is at, marked on the axis.
        log: logarithmic y axis; smoothing: weight of the past in the moving average, 0 for none.
        grows: steps will be added, leave room for them; legend: name the parts of the chart below it, where it fits.
    """

    cursor: int | None = None
    policy: int | None = None
    log: bool = False
    smoothing: float = 0.0
    grows: bool = True
    legend: bool = True
    ascii: bool = False


@dataclass(frozen=True)
class Area:
    """How the rows of a plot are used: `body` rows of `cells` cells, then axis, step labels and legend as they fit."""

    cells: int
    body: int
    label: int
    axis: bool
    steps: bool
    legend: bool


def area(cells: int, rows: int, label: int, legend: bool) -> Area:
    """The use of `cells` x `rows`; a small plot has no axis line, and legends give way first."""
    with_legend = legend and rows >= 8
    left = rows - with_legend
    axis, steps = left >= 6, left >= 3
    return Area(cells - label - 1, left - axis - steps, label, axis, steps, with_legend)


def steps_scale(columns: Columns, look: Look, place: Area) -> XScale:
    """The scale of the steps, the one that is under way included. Needs a row."""
    last = columns.steps[-1] if look.policy is None else max(columns.steps[-1], look.policy)
    return x_scale(columns.steps[0], last, place.cells, 1 if look.ascii else 2, look.grows)


def label_width(y: YScale) -> int:
    """Cells for the value labels."""
    return min(9, max(LABEL, *(len(text) for _, text in y.ticks)))


def surround(body: Cells, place: Area, x: XScale, y: YScale, look: Look, legend: Line, fine_rows: int) -> list[Line]:
    """The whole plot: `body` with axes, cursor and legend. `fine_rows`: dots of a cell's height."""
    signs = marks(look.ascii)
    cursor = x.cell(look.cursor) if look.cursor is not None else None
    labels: dict[int, str] = {}
    for value, text in reversed(y.ticks):
        labels.setdefault(y.dot(value, len(body) * fine_rows) // fine_rows, text)
    out: list[Line] = []
    for row, cells in enumerate(body):
        text = labels.get(row, "")
        edge = signs.axis if text else signs.bar
        spans = [Span(text[: place.label].rjust(place.label), "muted"), Span(edge, "rule")]
        out.append((*spans, *_packed(cells, cursor, signs.bar)))
    ticks = x_ticks(x)
    if place.axis:
        out.append(_axis(place, x, look, ticks, cursor))
    if place.steps:
        out.append((Span(" " * (place.label + 1)), Span(_step_labels(ticks, x.cells), "muted")))
    if place.legend:
        lead = max(0, min(place.label + 1, place.label + 1 + x.cells - width(legend)))  # a long one begins further left
        out.append((Span(" " * lead), *fit(legend, place.label + 1 + x.cells - lead)))
    return out


def _packed(cells: list[tuple[str, str]], cursor: int | None, bar: str) -> list[Span]:
    spans: list[Span] = []
    text, current = "", ""
    for at, (char, role) in enumerate(cells):
        if at == cursor:
            char = bar if char == " " else char
            role = f"{role or 'muted'}+selected"
        if role != current and text:
            spans.append(Span(text, current))
            text = ""
        current = role
        text += char
    if text:
        spans.append(Span(text, current))
    return spans


def _axis(place: Area, x: XScale, look: Look, ticks: list[tuple[int, str]], cursor: int | None) -> Line:
    signs = marks(look.ascii)
    chars = [signs.rule] * x.cells
    roles = ["rule"] * x.cells
    for cell, _ in ticks:
        chars[cell] = _TICK_ASCII if look.ascii else _TICK
    if look.policy is not None and x.first <= look.policy <= x.first + x.span:
        at = x.cell(look.policy)
        chars[at], roles[at] = _POLICY_ASCII if look.ascii else _POLICY, "key"
    if cursor is not None:
        chars[cursor], roles[cursor] = _CURSOR_ASCII if look.ascii else _CURSOR, "key"
    corner = Span(" " * place.label + signs.bottom_left, "rule")
    return (corner, *_packed(list(zip(chars, roles, strict=True)), None, signs.bar))


def _step_labels(ticks: list[tuple[int, str]], cells: int) -> str:
    row = [" "] * cells
    for cell, text in ticks:
        begin = min(max(0, cell - len(text) // 2), cells - len(text))
        if begin >= 0:
            row[begin : begin + len(text)] = text
    return "".join(row)


def empty(cells: int, rows: int, text: str) -> list[Line]:
    """A plot of nothing, that says why."""
    out: list[Line] = [() for _ in range(rows)]
    out[(rows - 1) // 2] = (Span(text[:cells].center(cells), "muted"),)
    return out
