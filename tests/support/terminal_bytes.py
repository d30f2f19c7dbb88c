"""A strict reader of what a console wrote to a terminal: anything that the console does not use itself is an error.

It knows every sequence that may come, so that one that came out of a foreign text cannot pass unnoticed, and it keeps
the terminal's modes, so that what was switched on and not off again is seen.
"""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass, field
from itertools import pairwise

_TOKEN = re.compile(
    r"(?P<progress>\r\x1b\[K)"
    r"|\x1b\[(?P<private>[<=>?]?)(?P<numbers>[0-9;]*)(?P<between>[ -/]*)(?P<final>[@-~])"
    r"|(?P<clipboard>\x1b\]52;c;[A-Za-z0-9+/=]*\x07)"
    r"|(?P<text>[^\x00-\x1f\x7f-\x9f]+)"
    r"|(?P<row>\r\n(?=\x1b\[\d+;1H))"
    r"|(?P<control>[\r\n\x07])"
)
ALTERNATE, CURSOR, WRAP = 1049, 25, 7
MODES = {ALTERNATE: False, CURSOR: True, WRAP: True, 1000: False, 1004: False, 1006: False, 2004: False, 2026: False}
"""Private modes that the console sets, and how a terminal has them to begin with."""
_QUERIES = ("2026", "2048")
_KITTY_FLAGS = "25"
_ATTRIBUTES = {"", "0", "1", "2", "3", "4", "7", "9", "39", "49", *map(str, (*range(30, 38), *range(40, 48))),
               *map(str, (*range(90, 98), *range(100, 108)))}  # fmt: skip
_COLOURS = re.compile(r"[34]8;(?:2;\d{1,3};\d{1,3};\d{1,3}|5;\d{1,3})(?=;|$)")
_UNSEEN = ("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp")
_INVISIBLE = re.compile(r"[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u3164\uffa0\ufe00-\ufe0f\U000e0100-\U000e01ef]")


class Intruder(AssertionError):
    """Something in the output is not the console's own."""


@dataclass
class Terminal:
    """What the bytes did to a terminal.

    Attributes:
        modes: private modes by number; keyboards: kitty keyboard flags that are pushed; pen: attributes are set.
        bells, clipboards: how often each was used; painted: characters written on the alternate screen.
    """

    modes: dict[int, bool] = field(default_factory=lambda: dict(MODES))
    keyboards: int = 0
    pen: bool = False
    bells: int = 0
    clipboards: int = 0
    painted: int = 0

    @property
    def untouched(self) -> bool:
        """Whether everything is as it was before."""
        return self.modes == MODES and self.keyboards == 0 and not self.pen


def read(
    data: bytes, columns: int, rows: int, *, bells: int = 0, clipboards: int = 0, palette: bool = False
) -> Terminal:
    """Read what was written to a terminal of at most that size.

    `bells` and `clipboards`: how many there may be; `palette`: the terminal's 256 colours may be used.

    Raises:
        Intruder: there is something that the console does not use; the message shows where.
    """
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise Intruder(f"not UTF-8: {data[max(0, error.start - 40) : error.end + 40]!r}") from None
    terminal = Terminal()
    at = 0
    while at < len(text):
        found = _TOKEN.match(text, at)
        why = "no sequence of the console" if found is None else _take(terminal, found, columns, rows, palette)
        if why:
            raise Intruder(f"{why}: {text[max(0, at - 60) : at]!r} >>> {text[at : at + 60]!r}")
        assert found is not None
        at = found.end()
    for name, used, allowed in (("bells", terminal.bells, bells), ("clipboards", terminal.clipboards, clipboards)):
        if used > allowed:
            raise Intruder(f"{used} {name}, where there may be {allowed}")
    return terminal


def _take(terminal: Terminal, found: re.Match[str], columns: int, rows: int, palette: bool) -> str:
    """Let a token work; what is wrong with it, if anything."""
    if (text := found["text"]) is not None:
        if terminal.modes[ALTERNATE]:
            terminal.painted += len(text)
        return _fault_of_text(text)
    if found["progress"] is not None:
        return "a line of progress on the alternate screen" if terminal.modes[ALTERNATE] else ""
    if found["row"] is not None:
        return ""
    if found["clipboard"] is not None:
        terminal.clipboards += 1
        return ""
    if (control := found["control"]) is not None:
        if control == "\x07":
            terminal.bells += 1
        return "a line break on the alternate screen" if control != "\x07" and terminal.modes[ALTERNATE] else ""
    return _fault_of_csi(terminal, found, columns, rows, palette)


def _fault_of_csi(terminal: Terminal, found: re.Match[str], columns: int, rows: int, palette: bool) -> str:
    private, numbers, between, final = found["private"], found["numbers"], found["between"], found["final"]
    kind = f"{private}{between}{final}"
    if kind == "m":
        plain = _COLOURS.sub("", numbers).strip(";")
        if set(re.split(";+", plain)) - _ATTRIBUTES or (";5;" in f";{numbers}" and not palette):
            return "an attribute or a colour that the console does not use"
        terminal.pen = numbers not in ("", "0")
        return ""
    if kind == "H":
        place = re.fullmatch(r"(\d+);(\d+)", numbers)
        inside = place is not None and 1 <= int(place[1]) <= rows and 1 <= int(place[2]) <= columns
        return "" if inside else "a place outside of the screen"
    if kind in ("?h", "?l"):
        if not numbers.isdigit() or int(numbers) not in MODES:
            return "a mode that the console does not use"
        terminal.modes[int(numbers)] = final == "h"
        return ""
    if kind == "?$p":
        return "" if numbers in _QUERIES else "a query that the console does not make"
    if kind == ">u" and numbers == _KITTY_FLAGS:
        terminal.keyboards += 1
        return ""
    if kind == "<u" and numbers == "":
        terminal.keyboards -= 1
        return ""
    return "a sequence that the console does not use"


def _fault_of_text(text: str) -> str:
    if text.isascii():
        return ""
    for char in set(text):
        if unicodedata.category(char) in _UNSEEN or _INVISIBLE.match(char):
            return f"U+{ord(char):04X} is not to be seen"
    marks = [unicodedata.category(char) in ("Mn", "Me") for char in text]
    if any(a and b and c for (a, b), (_, c) in pairwise(pairwise(marks))):
        return "more than two marks on one character"
    return ""
