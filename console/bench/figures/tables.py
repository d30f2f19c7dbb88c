"""A tally as tables: one model, painted as text for a terminal, as Markdown and as CSV.

Values stay numbers in the model; `kind` of a column says how people read them. An undefined value is "-" in text and
Markdown, with the reason among the table's notes, and an empty cell in CSV.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from enum import StrEnum

import msgspec
from rich.cells import cell_len, set_cell_size

from console.records.tables import csv_lines
from console.state.sanitize import sanitize

WIDTH = 80
_GAP = 2
_LEAST = 12
"""Cells that a text column keeps when others need the room."""

type Value = str | int | float | tuple[float, float] | None


class Kind(StrEnum):
    """How a column's values are written: words, whole numbers, scores, shares in percent, errors of shares in points,
    intervals of shares, seconds, dollars, or as the unit beside them says."""

    TEXT = "text"
    COUNT = "count"
    SCORE = "score"
    SHARE = "share"
    POINTS = "points"
    RANGE = "range"
    SECONDS = "seconds"
    DOLLARS = "dollars"
    MIXED = "mixed"


class Column(msgspec.Struct, frozen=True):
    """`name`: the header; `key`: the header of CSV, with the unit in it; `csv_only`: people are not shown it."""

    name: str
    key: str
    kind: Kind = Kind.TEXT
    csv_only: bool = False


class Table(msgspec.Struct, frozen=True, kw_only=True):
    """One table. `notes`: what stands under it, a sentence each; `kinds`: of each row's values in columns of the kind
    `mixed`."""

    name: str
    title: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[Value, ...], ...]
    notes: tuple[str, ...] = ()
    kinds: tuple[Kind, ...] = ()

    def shown(self) -> tuple[list[Column], Iterator[list[str]]]:
        """The columns that people see, and the written cells of each row."""
        places = [index for index, column in enumerate(self.columns) if not column.csv_only]

        def lines() -> Iterator[list[str]]:
            for number, row in enumerate(self.rows):
                kinds = [self.columns[index].kind for index in places]
                mixed = self.kinds[number] if self.kinds else Kind.COUNT
                kinds = [mixed if kind is Kind.MIXED else kind for kind in kinds]
                yield [written(row[index], kind) for index, kind in zip(places, kinds, strict=True)]

        return [self.columns[index] for index in places], lines()


def to_text(tables: Iterable[Table], width: int = WIDTH) -> str:
    """Lines of at most `width` cells: aligned columns, or a block a row where these do not fit.

    Texts beyond the first column are cut to fit, numbers and the first column never; titles, notes and blocks are
    wrapped.
    """
    return "\n\n".join("\n".join(_text_lines(table, width)) for table in tables)


def to_markdown(tables: Iterable[Table]) -> str:
    """Tables as GitHub reads them, each under a heading; nothing in a cell is taken for markup."""
    return "\n\n".join("\n".join(_markdown_lines(table)) for table in tables)


def to_csv(table: Table) -> Iterator[str]:
    """One table with a header line, values in full precision: shares between 0 and 1, times in seconds, an interval in
    two columns. Texts are clean and no spreadsheet takes them for formulas."""
    columns: list[str] = []
    for column in table.columns:
        ranged = column.kind is Kind.RANGE
        columns.extend((f"{column.key}_low", f"{column.key}_high") if ranged else (column.key,))

    def cells(row: Sequence[Value]) -> list[str | int | float | bool | None]:
        found: list[str | int | float | bool | None] = []
        for column, value in zip(table.columns, row, strict=True):
            if column.kind is Kind.RANGE:
                found.extend(value if isinstance(value, tuple) else (None, None))
            else:
                found.append(value if not isinstance(value, tuple) else None)
        return found

    return csv_lines(columns, (cells(row) for row in table.rows))


def written(value: Value, kind: Kind) -> str:
    """A value as people read it: with its unit, "-" for one that is undefined."""
    if value is None:
        return "-"
    if isinstance(value, str):
        return sanitize(value)
    if isinstance(value, tuple):
        return f"{value[0] * 100:.1f} to {value[1] * 100:.1f} %"
    match kind:
        case Kind.SHARE:
            return f"{value * 100:.2f} %"
        case Kind.POINTS:
            return f"±{value * 100:.2f}"
        case Kind.SECONDS:
            return _seconds(value)
        case Kind.DOLLARS:
            return f"${value:,.2f}"
    return f"{value:,.0f}" if float(value).is_integer() else f"{value:,.4g}"


def _seconds(value: float) -> str:
    if value < 60:
        return f"{value:.1f} s"
    minutes, seconds = divmod(round(value), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours:,} h {minutes:02d} m" if hours else f"{minutes} m {seconds:02d} s"


def _text_lines(table: Table, width: int) -> Iterator[str]:
    yield from textwrap.wrap(sanitize(table.title), width) or [""]
    columns, lines = table.shown()
    cells = [[column.name for column in columns], *lines]
    sizes = [max(cell_len(cell) for cell in column) for column in zip(*cells, strict=True)]
    fitted = _fitted(sizes, [column.kind is Kind.TEXT for column in columns], width)
    if fitted is None:
        yield from _blocks(cells, width)
    else:
        for line in cells:
            parts = [
                _sized(cell, size, left=column.kind is Kind.TEXT)
                for cell, size, column in zip(line, fitted, columns, strict=True)
            ]
            yield (" " * _GAP).join(parts).rstrip()
    if not table.rows:
        yield "(nothing)"
    for note in table.notes:
        yield from textwrap.wrap(sanitize(note), width, initial_indent="  ", subsequent_indent="    ")


def _blocks(cells: Sequence[Sequence[str]], width: int) -> Iterator[str]:
    """A block for each row but the first, which has the names: a line for each value that is there."""
    for row in cells[1:]:
        for at, (name, value) in enumerate(zip(cells[0], row, strict=True)):
            if value or not at:
                margin = "  " if at else ""
                yield from _wrapped(f"{name}: {value}", width, margin, f"{margin}  ")


def _wrapped(text: str, width: int, first: str, then: str) -> list[str]:
    lines: list[str] = []
    for characters in (width, max(1, width // 2)):  # the latter where characters take two cells
        lines = textwrap.wrap(text, characters, initial_indent=first, subsequent_indent=then, break_on_hyphens=False)
        if all(cell_len(line) <= width for line in lines):
            break
    return lines


def _fitted(sizes: list[int], texts: Sequence[bool], width: int) -> list[int] | None:
    """Column widths that fit: the widest text but the first column gives a cell at a time, down to a least width.

    None when that is not enough.
    """
    sizes = list(sizes)
    over = sum(sizes) + _GAP * (len(sizes) - 1) - width
    while over > 0:
        room = [(size, -index) for index, size in enumerate(sizes) if index and texts[index] and size > _LEAST]
        if not room:
            return None
        sizes[-max(room)[1]] -= 1
        over -= 1
    return sizes


def _sized(cell: str, size: int, left: bool) -> str:
    if cell_len(cell) > size:
        return set_cell_size(cell, size - 1).rstrip() + "…"
    blank = " " * (size - cell_len(cell))
    return cell + blank if left else blank + cell


def _markdown_lines(table: Table) -> Iterator[str]:
    yield f"### {_escaped(table.title)}"
    yield ""
    columns, lines = table.shown()
    yield "| " + " | ".join(_escaped(column.name) for column in columns) + " |"
    yield "| " + " | ".join("---" if column.kind is Kind.TEXT else "---:" for column in columns) + " |"
    for cells in lines:
        yield "| " + " | ".join(map(_escaped, cells)) + " |"
    for note in table.notes:
        yield ""
        yield f"{_escaped(note)}"


def _escaped(text: str) -> str:
    return re.sub(r"([\\`*_\[\]<>|#~])", r"\\\1", sanitize(text))
