"""A line plot with axes in one colour, drawn with Braille dots (eight to a cell) or, in ASCII, one mark to a cell."""

from __future__ import annotations

import itertools

from console.tui.glyphs import marks
from console.tui.text import Line, Span, number

_DOTS = ((0x01, 0x02, 0x04, 0x40), (0x08, 0x10, 0x20, 0x80))
_LABEL = 5


def plot(
    points: list[tuple[int, float]],
    cells: int,
    rows: int,
    ascii_only: bool = False,
    role: str = "accent",
    low: float | None = None,
    high: float | None = None,
    digits: int = 2,
) -> list[Line]:
    """`rows` lines of `cells` width: the curve over its steps, y labels on the left, x labels on the last line.

    `points` are (step, value), finite, in order of step. `low` and `high` widen the scale, they never cut a value off.
    """
    if rows < 2 or cells < _LABEL + 4:
        return []
    signs = marks(ascii_only)
    height, width = rows - 1, cells - _LABEL - 1
    if not points:
        return [(Span(" " * _LABEL, "muted"), Span(signs.axis, "rule")) for _ in range(height)] + [()]
    values = [v for _, v in points]
    floor = min(values) if low is None else min(low, *values)
    top = max(values) if high is None else max(high, *values)
    if top - floor < 1e-12:
        pad = abs(top) * 0.1 or 0.5
        floor, top = floor - pad, top + pad
    first, last = points[0][0], max(points[-1][0], points[0][0] + 1)
    grid = _Grid(width, height, ascii_only)
    fine_x, fine_y = grid.size
    spots = [
        (
            round((step - first) / (last - first) * (fine_x - 1)),
            round((top - value) / (top - floor) * (fine_y - 1)),
        )
        for step, value in points
    ]
    for a, b in itertools.pairwise(spots):
        grid.segment(a, b)
    grid.dot(*spots[-1])
    lines: list[Line] = []
    labelled = {0: top, height - 1: floor}
    if height >= 5:
        labelled[height // 2] = top - (top - floor) * (height // 2) / (height - 1)
    for y, text in enumerate(grid.lines()):
        label = number(labelled[y], digits)[:_LABEL] if y in labelled else ""
        lines.append((Span(label.rjust(_LABEL), "muted"), Span(signs.axis, "rule"), Span(text, role)))
    lines.append((Span(" " * (_LABEL + 1)), Span(_x_labels(first, points[-1][0], width), "muted")))
    return lines


def _x_labels(first: int, last: int, width: int) -> str:
    left, right = str(first), str(last)
    if first == last or len(left) + len(right) + 2 > width:
        return left.ljust(width) if len(left) <= width else " " * width
    middle = str((first + last) // 2)
    if last - first >= 4 and width >= len(left) + len(middle) + len(right) + 8:
        half = width // 2 - len(middle) // 2
        return left + middle.rjust(half + len(middle) - len(left)) + right.rjust(width - half - len(middle))
    return left + right.rjust(width - len(left))


class _Grid:
    """Dots, addressed finely, read back as text."""

    def __init__(self, width: int, height: int, ascii_only: bool) -> None:
        self._ascii = ascii_only
        self.size = (width, height) if ascii_only else (width * 2, height * 4)
        self._cells = [[0] * width for _ in range(height)]

    def dot(self, x: int, y: int) -> None:
        if self._ascii:
            self._cells[y][x] = 1
        else:
            self._cells[y // 4][x // 2] |= _DOTS[x % 2][y % 4]

    def segment(self, a: tuple[int, int], b: tuple[int, int]) -> None:
        """All dots from `a` to `b`, ends included."""
        (x0, y0), (x1, y1) = a, b
        count = max(abs(x1 - x0), abs(y1 - y0), 1)
        for i in range(count + 1):
            self.dot(round(x0 + (x1 - x0) * i / count), round(y0 + (y1 - y0) * i / count))

    def lines(self) -> list[str]:
        if self._ascii:
            return ["".join("*" if c else " " for c in row) for row in self._cells]
        return ["".join(chr(0x2800 + c) if c else " " for c in row) for row in self._cells]
