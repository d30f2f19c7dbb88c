"""The one painting widget: it is given lines and repaints only the cells that differ from what it showed before."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest

from rich.cells import cell_len
from rich.segment import Segment
from textual.geometry import Region, Size
from textual.reactive import Reactive
from textual.strip import Strip
from textual.widget import Widget

from console.tui.text import Line
from console.tui.themes import Palette

_ASCII_TWINS = str.maketrans("…—│─·↑↓▸←→", ".-|-.^v><>")


_GAP = 8
"""Moving the cursor costs about as much as repainting so many cells."""


class Pane(Widget):
    """A rectangle of lines. Its size is set from outside; lines beyond it are not shown, missing ones are blank."""

    DEFAULT_CSS = "Pane { position: absolute; }"
    virtual_size = Reactive(Size(0, 0), repaint=False)
    """Nothing scrolls in a pane, so that another size needs no second layout, as Textual's own declaration wants it."""

    def __init__(self, palette: Palette, ascii_only: bool = False, id: str | None = None) -> None:
        super().__init__(id=id)
        self._palette = palette
        self._ascii = ascii_only
        self._lines: list[Line] = []
        self._strips: dict[int, Strip] = {}

    @property
    def lines(self) -> list[Line]:
        """What is shown."""
        return self._lines

    def use(self, palette: Palette) -> None:
        """Paint everything again in other colours."""
        self._palette = palette
        self._strips.clear()
        self.refresh()

    def show(self, lines: Sequence[Line]) -> None:
        """Show `lines`; only cells that changed are sent to the terminal."""
        dirty: list[Region] = []
        for y, (old, new) in enumerate(zip_longest(self._lines, lines, fillvalue=())):
            if old is new or old == new:
                continue
            self._strips.pop(y, None)
            dirty += [Region(first, y, end - first, 1) for first, end in changed(old, new)]
        self._lines = list(lines)
        if dirty:
            self.refresh(*dirty)

    def render_line(self, y: int) -> Strip:
        """A line as a strip of the widget's width."""
        width = self.size.width
        found = self._strips.get(y)
        if found is not None and found.cell_length == width:
            return found
        spans = self._lines[y] if y < len(self._lines) else ()
        style = self._palette.style
        segments = [Segment(to_ascii(text) if self._ascii else text, style(role)) for text, role in spans]
        strip = Strip(segments).adjust_cell_length(width, self._palette.base)
        self._strips[y] = strip
        return strip


def changed(old: Line, new: Line) -> list[tuple[int, int]]:
    """Runs of cells that differ, as (first, end); runs with less than `_GAP` cells between them are one."""
    a, b = _cells(old), _cells(new)
    if a is None or b is None:
        return [(0, max(sum(cell_len(s.text) for s in old), sum(cell_len(s.text) for s in new)))]
    runs: list[tuple[int, int]] = []
    for x, (before, after) in enumerate(zip_longest(a, b)):
        if before == after:
            continue
        if runs and x - runs[-1][1] < _GAP:
            runs[-1] = (runs[-1][0], x + 1)
        else:
            runs.append((x, x + 1))
    return runs


def _cells(spans: Line) -> list[tuple[str, str]] | None:
    """One (character, role) a cell, or None when some character is not one cell wide."""
    text = "".join(span.text for span in spans)
    if not text.isascii() and cell_len(text) != len(text):
        return None
    return [(char, span.role) for span in spans for char in span.text]


def to_ascii(text: str) -> str:
    """The text in ASCII, cell for cell: known signs become their twins, the rest question marks."""
    if text.isascii():
        return text
    text = text.translate(_ASCII_TWINS)
    return "".join(c if c.isascii() else "?" * cell_len(c) for c in text)
