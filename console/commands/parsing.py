"""What the smaller commands share: their parsers, and what they print."""

from __future__ import annotations

import argparse
import re
import shutil
import sys
import textwrap
from collections.abc import Sequence
from typing import NoReturn

from console.errors import UsageError

WIDEST = 120
"""Cells; a wider line is hard to read."""
_COLUMN = re.compile(r" *\S.* {2,}(?=\S)")


def wrapped(text: str, width: int | None = None) -> str:
    """Help text for a terminal of so many columns (None: of ours; 80 where there is none).

    Lines at the margin that follow one another are a paragraph. An indented line goes on under its last column, or,
    when it is a command, in a form that a shell takes.
    """
    width = width or min(WIDEST, shutil.get_terminal_size().columns)
    lines: list[str] = []
    paragraph: list[str] = []
    for line in [*text.splitlines(), ""]:
        if line and not line.startswith(" ") and not _COLUMN.match(line):
            paragraph.append(line)
            continue
        if paragraph:
            lines += textwrap.wrap(" ".join(paragraph), width, break_long_words=False, break_on_hyphens=False)
            paragraph = []
        lines += _hanging(line, width)
    return "\n".join(lines[:-1]) + ("\n" if text.endswith("\n") else "")


def _hanging(line: str, width: int) -> list[str]:
    if len(line) <= width:
        return [line]
    margin = len(line) - len(line.lstrip())
    found = _COLUMN.match(line)
    command = found is None and line[margin:].startswith("quarterdeck ")
    indent = len(found[0]) if found is not None and len(found[0]) <= width // 2 else margin + 4 * command
    parts = textwrap.wrap(
        line, width - 2 * command, subsequent_indent=" " * indent, break_long_words=False, break_on_hyphens=False
    )
    return [f"{part} \\" for part in parts[:-1]] + parts[-1:] if command else parts


class _Help(argparse.RawDescriptionHelpFormatter):
    """Texts as written, as far as the terminal is wide enough."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, width=min(WIDEST, shutil.get_terminal_size().columns))

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        return wrapped(text)


class Parser(argparse.ArgumentParser):
    """A parser of `quarterdeck NAME` that keeps its examples as written and complains in one line."""

    def __init__(self, name: str, description: str, epilog: str) -> None:
        super().__init__(
            prog=f"quarterdeck {name}",
            description=description,
            epilog=epilog,
            formatter_class=_Help,
            allow_abbrev=False,
        )

    def error(self, message: str) -> NoReturn:
        """Raises `UsageError` instead of printing the usage and ending the process."""
        raise UsageError(f"{message}: see `{self.prog} --help`")


def say(text: str) -> None:
    """A line on stdout."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def table(rows: Sequence[Sequence[str]]) -> str:
    """Rows of equally many cells as lines, each column as wide as its longest cell, none with blanks at its end."""
    widths = [max(map(len, column)) for column in zip(*rows)]
    return "\n".join("  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip() for row in rows)
