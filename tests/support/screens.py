"""Screens as files that a person can review: the text, a map of styles beneath it, and one table of all styles.

A style letter stands for how a cell looks in each theme (`THEMES`); `styles.txt` says what that is. A row of the map is
run-length coded: `a12b3` are twelve cells of a and three of b. A cell that differs, in text or in any theme's style,
makes another file.
"""

from __future__ import annotations

import os
import string
from collections.abc import Iterable
from functools import cache
from itertools import groupby, zip_longest
from pathlib import Path

from rich.cells import get_character_cell_size
from rich.segment import Segment
from rich.style import Style

THEMES = ("dark", "light", "mono")
LETTERS = string.ascii_lowercase + string.ascii_uppercase
_STYLES = "styles.txt"
_HEADING = "the look of each letter in the maps: foreground, background, attributes"
_RULE = "--- styles"

Cells = list[list[tuple[str, str]]]
"""Rows of (text, style) a cell; the second cell of a wide character has no text."""


@cache
def style_text(style: Style | None) -> str:
    """A style in words: `#d7d7d7 on #101418 bold`."""
    if style is None:
        return "default on default"
    names = [colour.name if colour is not None else "default" for colour in (style.color, style.bgcolor)]
    flags = ("bold", "dim", "italic", "underline", "reverse", "strike", "blink")
    return " ".join([f"{names[0]} on {names[1]}", *(flag for flag in flags if getattr(style, flag))])


def cells_of(rows: Iterable[Iterable[Segment]]) -> Cells:
    """Every cell of rows of segments."""
    out: Cells = []
    for row in rows:
        cells: list[tuple[str, str]] = []
        for segment in row:
            style = style_text(segment.style)
            if segment.text.isascii():
                cells += [(char, style) for char in segment.text]
                continue
            for char in segment.text:
                width = get_character_cell_size(char)
                if width == 0 and cells:  # a mark on the character before
                    cells[-1] = (cells[-1][0] + char, cells[-1][1])
                else:
                    cells += [(char, style), *[("", style)] * (width - 1)]
        out.append(cells)
    return out


class Shelf:
    """The files of a directory. With UPDATE_SNAPSHOTS set they are written, else compared."""

    def __init__(self, directory: Path, update: bool | None = None) -> None:
        self.directory = directory
        self.update = bool(os.environ.get("UPDATE_SNAPSHOTS")) if update is None else update
        self.styles = self._read_styles()
        self.seen: set[str] = set()

    def check(self, name: str, cells: dict[str, Cells]) -> None:
        """Compare one screen, as it is in each theme, with its file. Raises `AssertionError` with the first lines."""
        self.seen.add(name)
        text = self.text(name, cells)
        path = self.directory / f"{name}.txt"
        if self.update:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
            return
        known = path.read_text(encoding="utf-8") if path.is_file() else ""
        if text != known:
            pairs = enumerate(zip_longest(known.split("\n"), text.split("\n")), start=1)
            lines = [f"{n}\n  is   {new}\n  was  {old}" for n, (old, new) in pairs if old != new]
            raise AssertionError(
                f"{path.name} differs in {len(lines)} lines, UPDATE_SNAPSHOTS=1 writes it anew:\n"
                + "\n".join(lines[:12])
            )

    def text(self, name: str, cells: dict[str, Cells]) -> str:
        """The file's content. Raises `AssertionError` when the themes do not show the same text."""
        first, *others = (cells[theme] for theme in THEMES)
        shown = ["".join(char for char, _ in row).rstrip() for row in first]
        for theme, other in zip(THEMES[1:], others, strict=True):
            rows = ["".join(char for char, _ in row).rstrip() for row in other]
            unlike = [f"{a}\n{b}" for a, b in zip(shown, rows, strict=True) if a != b]
            assert not unlike, f"{name}: {theme} has another text\n" + "\n".join(unlike[:12])
        maps = []
        for rows in zip(*(cells[theme] for theme in THEMES), strict=True):
            letters = [self._letter(tuple(style for _, style in cell)) for cell in zip(*rows, strict=True)]
            maps.append("".join(f"{letter}{len(list(run))}" for letter, run in groupby(letters)))
        return "\n".join([*shown, _RULE, *maps]) + "\n"

    def _letter(self, look: tuple[str, ...]) -> str:
        letter = self.styles.get(look)
        if letter is None:
            free = (one for one in LETTERS if one not in self.styles.values())
            letter = self.styles[look] = next(free) if self.update else "?"
        return letter

    def _read_styles(self) -> dict[tuple[str, ...], str]:
        path = self.directory / _STYLES
        if not path.is_file():
            return {}
        out = {}
        for row in path.read_text(encoding="utf-8").splitlines()[2:]:
            letter, *looks = (part.strip() for part in row.split("|"))
            out[tuple(looks)] = letter
        return out

    def close(self) -> None:
        """Write the table of the styles that are in use, when files are written."""
        if not self.update:
            return
        used = self.letters_used()
        rows = sorted((pair for pair in self.styles.items() if pair[1] in used), key=lambda p: LETTERS.index(p[1]))
        columns = [("", *THEMES), *((letter, *look) for look, letter in rows)]
        widths = [max(len(row[at]) for row in columns) for at in range(len(columns[0]))]
        lines = [" | ".join(part.ljust(width) for part, width in zip(row, widths, strict=True)) for row in columns]
        path = self.directory / _STYLES
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("\n".join([_HEADING, *(line.rstrip() for line in lines)]) + "\n", encoding="utf-8")

    def files(self) -> list[str]:
        """Names of all screens that have a file."""
        return sorted(path.stem for path in self.directory.glob("*.txt") if path.name != _STYLES)

    def letters_used(self) -> set[str]:
        """The letters in all maps."""
        found: set[str] = set()
        for name in self.files():
            _, _, maps = (self.directory / f"{name}.txt").read_text(encoding="utf-8").partition(f"{_RULE}\n")
            found |= {char for char in maps if char.isalpha()}
        return found
