"""How `quarterdeck bench` writes to a terminal: safe, and within its columns."""

from __future__ import annotations

import shutil
import sys
import textwrap
from collections.abc import Iterator, Sequence

from rich.cells import cell_len, set_cell_size

from console.commands.parsing import WIDEST
from console.state.sanitize import sanitize

PIPE_WIDTH = 80
"""Cells of a line where there is no terminal."""
_LEAST_PATH = 20
"""Cells of a path's end that still tell which one it is."""


def columns() -> int:
    """Cells that a line may take."""
    return min(WIDEST, shutil.get_terminal_size().columns) if sys.stdout.isatty() else PIPE_WIDTH


def clean(text: object, cells: int) -> str:
    """A text of others on one line, safe for a terminal, cut where it is seen to so many cells."""
    said = sanitize(text, limit=max(cells, 8) * 2).strip()
    if cell_len(said) <= cells:
        return said
    return set_cell_size(said, max(0, cells - 2)).rstrip() + ".."


def path_text(path: str, cells: int) -> str:
    """A path, safe for a terminal, its beginning left out where it is too long."""
    said = sanitize(path)
    if cell_len(said) <= cells:
        return said
    said = said[-max(1, cells - 2) :]
    while cell_len(said) > cells - 2 > 0:
        said = said[1:]
    return ".." + said


def paragraph(text: str, width: int, first: str = "", then: str | None = None) -> list[str]:
    """A text of ours or of others, sanitised, as lines of at most so many cells, each with what stands before it."""
    then = " " * len(first) if then is None else then
    said = sanitize(text)
    for characters in (width, width // 2):  # the latter where characters take two cells
        lines = textwrap.wrap(
            said, characters, initial_indent=first, subsequent_indent=then, break_on_hyphens=False
        ) or [first.rstrip()]
        if all(cell_len(line) <= width for line in lines):
            return lines
    return [set_cell_size(line, width).rstrip() for line in lines]


def laid_out(
    rows: Sequence[Sequence[str]], width: int, flexible: int = -1, right: Sequence[int] = (), *, path: bool = False
) -> Iterator[str]:
    """Rows as lines of at most `width` cells, but for what must not be cut: one column gives way; those in `right`
    are aligned there.

    Args:
        path: the column that gives way has paths, which keep their ends; where there is little room they have lines of
            their own.
    """
    if not rows:
        return
    widths = [max(cell_len(row[at]) for row in rows) for at in range(len(rows[0]))]
    flexible %= len(widths)
    room = width - sum(widths) + widths[flexible] - 2 * (len(widths) - 1)
    below = path and room < min(widths[flexible], _LEAST_PATH)
    widths[flexible] = max(8, min(widths[flexible], room))
    for row in rows:
        cells = []
        for at, (cell, size) in enumerate(zip(row, widths)):
            if at == flexible and below:
                continue
            text = path_text(cell, size) if at == flexible and path else clean(cell, size)
            pad = " " * (size - cell_len(text))
            cells.append(pad + text if at in right else text + pad)
        yield "  ".join(cells).rstrip()
        if below:
            yield f"    {path_text(row[flexible], max(8, width - 4))}"
