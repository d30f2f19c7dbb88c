"""What a terminal sends, before Textual makes keys of it: a paste is text and nothing else, and no byte is fatal.

Textual's parser looks for key sequences inside of a paste too. What was copied from a transcript may hold such, and the
letters behind them would be keys of the console: a paste could stop the run. And it ends the console when a byte is not
UTF-8. It offers no other place to put this right, so two names in its driver are replaced.
"""

from __future__ import annotations

import codecs
import select
import sys
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from textual._time import get_time
from textual._xterm_parser import XTermParser
from textual.drivers import linux_driver

if TYPE_CHECKING:
    from textual.message import Message

START, END = "\x1b[200~", "\x1b[201~"


class InputParser(XTermParser):
    """Textual's parser behind a filter."""

    def __init__(self, debug: bool = False) -> None:
        super().__init__(debug)
        self._filter = PasteFilter()

    def feed(self, data: str) -> Iterable[Message]:
        """Messages for what was read; nothing read is the end."""
        clean = self._filter.clean(data) if data else ""
        if clean or not data:
            yield from super().feed(clean)

    def tick(self) -> Iterable[Message]:
        """Messages that were waited for long enough: an escape that begins no sequence.

        The driver asks after each read, and then after 100 ms of silence; less than half of that is enough to tell.
        """
        if self._timeout_time is not None and sys.__stdin__ is not None:
            select.select([sys.__stdin__.fileno()], [], [], max(0.0, self._timeout_time - get_time()))
        yield from super().tick()


class PasteFilter:
    """Takes the escape characters out of what is pasted, wherever the reads cut it."""

    def __init__(self) -> None:
        self._pasting = False
        self._held = ""  # of a paste: what may be the beginning of its end
        self._last = ""  # of the rest: what may be the beginning of a paste, and was passed on

    def clean(self, data: str) -> str:
        """What to pass on of a piece of input; of a paste, what may be part of its end waits for the next piece."""
        out: list[str] = []
        while data:
            if self._pasting:
                text = self._held + data
                body, end, data = text.partition(END)
                self._held = "" if end else _beginning(body, END)
                out.append(body[: len(body) - len(self._held)].replace("\x1b", "") + end)
                self._pasting = not end
            else:
                before = len(self._last)
                text = self._last + data
                at = text.find(START)
                if at < 0:
                    out.append(data)
                    self._last = text[-len(START) + 1 :]
                    break
                stop = at + len(START)
                out.append(text[before:stop])
                data, self._last, self._pasting = text[stop:], "", True
        return "".join(out)


def _beginning(text: str, mark: str) -> str:
    """The longest end of `text` that `mark` begins with, short of all of it."""
    return next((mark[:n] for n in range(len(mark) - 1, 0, -1) if text.endswith(mark[:n])), "")


def _decoder(encoding: str) -> Callable[[], codecs.IncrementalDecoder]:
    make = codecs.getincrementaldecoder(encoding)
    return lambda: make("replace")


def install() -> None:
    """Have Textual's driver read with these."""
    vars(linux_driver).update(XTermParser=InputParser, getincrementaldecoder=_decoder)
