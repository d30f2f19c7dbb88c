"""Where the plots of the metrics page go at each size, and titles that fit them."""

from __future__ import annotations

from typing import NamedTuple

from console.tui.layout import Box
from console.tui.panes.figures import rows_for
from console.tui.text import Span, width

MOST_PLOTS = 9
_NAMES_WIDE = 27
_TABLE_WIDE = 42


class Grid(NamedTuple):
    """Where plots go: their boxes, how many beside each other, and the boxes of the list and of the table."""

    plots: tuple[Box, ...]
    columns: int
    names: Box | None = None
    table: Box | None = None


def arrange(body: Box, entries: int, charts: int) -> Grid:
    """Small: a list beside one or two plots. Else plots in a grid, with the table of `entries` beside or below it."""
    x, y, wide, high = body
    if wide < 100 or high < 24:
        names = Box(x, y, _NAMES_WIDE, high)
        rows = min(2 if high >= 16 else 1, max(1, charts))
        return Grid(_cells(Box(x + names.width, y, wide - names.width, high), 1, rows), 1, names)
    table = None
    if wide >= 160:
        table = Box(x + wide - _TABLE_WIDE, y, _TABLE_WIDE, high)
        wide -= _TABLE_WIDE
    else:
        rows = rows_for(wide, entries) + 1
        if high - rows >= 22:
            table = Box(x, y + high - rows, wide, rows)
            high -= rows
    columns, rows = max(2, min(3, wide // 50)), max(2, min(3, high // 11))
    columns = min(columns, max(1, charts))
    rows = min(rows, max(1, -(-charts // columns)))
    return Grid(_cells(Box(x, y, wide, high), columns, rows), columns, None, table)


def _cells(box: Box, columns: int, rows: int) -> tuple[Box, ...]:
    xs = [box.x + box.width * i // columns for i in range(columns + 1)]
    ys = [box.y + box.height * i // rows for i in range(rows + 1)]
    return tuple(Box(xs[c], ys[r], xs[c + 1] - xs[c], ys[r + 1] - ys[r]) for r in range(rows) for c in range(columns))


def fitting_title(left: str, right: str, cells: int) -> tuple[str, str]:
    """A title that fits: the value is told before the notes, and before the step."""
    for one, two in (
        (left, right),
        (left.partition("  ")[0], right),
        (left.partition("  ")[0], right.partition("  ")[2]),
    ):
        if width((Span(one), Span(two))) + 6 <= cells:
            return one, two
    return left.partition("  ")[0], ""
