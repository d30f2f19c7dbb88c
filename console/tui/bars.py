"""Charts of stacked bars: what became of the trials of each step, and where its time went.

Each part fills its cells with a sign of its own, so that no part is told by colour alone.
"""

from __future__ import annotations

from bisect import bisect_left

from console.tui.axes import Area, Cells, Look, area, empty, label_width, steps_scale, surround
from console.tui.columns import Columns, Key
from console.tui.scale import XScale, YScale, y_scale
from console.tui.series import FIGURES, OUTCOME_PARTS, SECONDS_PARTS, Chart, Part
from console.tui.text import Line, Span, line, width

_BAR_GAP = 3
"""Bars of at least so many cells have a gap between them."""


def bar_chart(columns: Columns, chart: Chart, look: Look, cells: int, rows: int) -> list[Line]:
    """A chart of stacked bars in `rows` lines of at most `cells`."""
    if not columns.steps:
        return empty(cells, rows, "no step has finished yet")
    place, x, y = bar_scales(columns, chart, look, cells, rows)
    shares = chart.form == "outcomes"
    parts = parts_of(columns, chart)
    body: Cells = [[(" ", "")] * place.cells for _ in range(place.body)]
    for cell in range(place.cells):
        span = _rows_of(columns, x, cell)
        if span is None:
            continue
        values = _shares(columns, parts, *span) if shares else _seconds(columns, parts, *span)
        heights = stack(values, place.body, y.high, each=shares)
        row = place.body - 1
        for part, height in zip(parts, heights, strict=True):
            for _ in range(height):
                body[row][cell] = (part.sign(look.ascii), part.role)
                row -= 1
    return surround(body, place, x, y, look, _legend(columns, parts, chart, look, place.label + place.cells), 1)


def bar_scales(columns: Columns, chart: Chart, look: Look, cells: int, rows: int) -> tuple[Area, XScale, YScale]:
    """Where the parts of a chart of bars go, and its scales. Needs a row."""
    if chart.form == "outcomes":
        y = YScale(0.0, 1.0, ((0.0, "0%"), (0.5, "50%"), (1.0, "100%")))
    else:
        totals = [v for v in columns.values(Key("seconds_total")) if v == v and v > 0]
        y = y_scale(0.0, max(totals, default=1.0), max(1, rows - 3), "seconds", 0.0)
    place = area(cells, rows, label_width(y), look.legend)
    return place, steps_scale(columns, look, place), y


def parts_of(columns: Columns, chart: Chart) -> list[Part]:
    """The parts that occur, from the bottom up."""
    if chart.form == "outcomes":
        return [part for part in OUTCOME_PARTS if part.id in columns.classes]
    return list(SECONDS_PARTS)


def _column(part: Part) -> Key:
    return Key(part.id if part.id in FIGURES else f"outcome:{part.id}")


def _rows_of(columns: Columns, x: XScale, cell: int) -> tuple[int, int] | None:
    """First and end index of the rows that a cell stands for; None for a gap, and where no step has been yet."""
    begin = bisect_left(columns.steps, x.start(cell * x.fine))
    end = bisect_left(columns.steps, x.start((cell + 1) * x.fine), begin)
    near = x.middle(cell)
    wide = (x.dots - 1) / x.fine / x.span
    if wide >= _BAR_GAP and x.middle(cell + 1) != near:
        return None
    if begin < end:
        return begin, end
    at = bisect_left(columns.steps, near)
    return (at, at + 1) if at < len(columns.steps) and columns.steps[at] == near else None


def _shares(columns: Columns, parts: list[Part], begin: int, end: int) -> list[float]:
    """Of all trials of the rows."""
    sums = [sum(columns.values(_column(part))[begin:end]) for part in parts]
    total = sum(sums)
    return [s / total for s in sums] if total > 0 else [0.0] * len(parts)


def _seconds(columns: Columns, parts: list[Part], begin: int, end: int) -> list[float]:
    """Of the longest step of the rows: a slow step is never averaged away."""
    totals = columns.values(Key("seconds_total"))
    longest = max(range(begin, end), key=lambda i: totals[i] if totals[i] == totals[i] else -1.0)
    values = [columns.values(_column(part))[longest] for part in parts]
    return [v if v == v and v > 0 else 0.0 for v in values]


def stack(values: list[float], rows: int, top: float, each: bool) -> list[int]:
    """Rows of each part of a bar, `rows` for a sum of `top`, rounded so that the sum is right.

    With `each`, a part that is not zero has at least one row, as long as there are rows.
    """
    total = sum(values)
    if total <= 0 or top <= 0:
        return [0] * len(values)
    height = max(1, round(rows * min(1.0, total / top)))
    exact = [height * v / total for v in values]
    found = [int(e) for e in exact]
    if each:
        # From the top: the classes that stop a run are there, and must be seen first.
        for i in reversed(range(len(values))):
            if values[i] > 0 and found[i] == 0 and sum(n > 0 for n in found) < height:
                found[i] = 1
    while sum(found) > height:
        found[max(range(len(found)), key=lambda i: found[i])] -= 1
    for i in sorted(range(len(values)), key=lambda i: exact[i] - found[i], reverse=True):
        if sum(found) < height and values[i] > 0:
            found[i] += 1
    if sum(found) < height:
        found[max(range(len(found)), key=lambda i: exact[i])] += height - sum(found)
    return found


def _legend(columns: Columns, parts: list[Part], chart: Chart, look: Look, cells: int) -> Line:
    """Sign, name and value of each part; without the names where they have no room."""
    row = columns.row(look.cursor)
    at = columns.at(look.cursor)
    named: list[Span] = []
    short: list[Span] = []
    for n, part in enumerate(parts):
        gap = Span("  " if n else "")
        value = columns.values(_column(part))[at] if at is not None else 0.0
        text = f"{value:.0f}" if chart.form == "outcomes" else FIGURES[part.id].text(row) if row is not None else "--"
        sign = Span(part.sign(look.ascii), part.role)
        named += [gap, sign, Span(f" {part.name} ", "muted"), Span(text)]
        short += [gap, sign, Span(f" {text}")]
    return line(*(named if width(named) <= cells else short))
