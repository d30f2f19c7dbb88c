"""The captured calls of a run (`capture/calls-NNNNNN.jsonl`, one file a step) by trial, while they are being written.

An index keeps where each trial's lines lie and goes on from where it stopped, so that looking again costs what is new.
"""

from __future__ import annotations

import os
import re
from array import array
from collections.abc import Iterator
from pathlib import Path

import msgspec

from console.records.regular import open_regular

CHUNK = 1 << 20
SCAN_BYTES = 128 << 20
"""Bytes of a file that are looked through at most before an answer is given."""
LONGEST_LINE = 64 << 20
_HEAD = 256
_LINE = re.compile(rb'\{"trial":"([^"\\]{1,120})","call":(\d{1,9})[,}]')
_END = ord("}")


class CallMessage(msgspec.Struct, kw_only=True, omit_defaults=True):
    """A chat message as the agent sent it. `cut`: characters that were left out of `text`."""

    role: str
    text: str
    cut: int = 0


class CallLine(msgspec.Struct, kw_only=True):
    """A line of the call log, without its numbers.

    Attributes:
        call: number of the call within its try; ts: Unix seconds of its end, None in old files.
        seconds, stop_reason: as captured; prompt_P, tokens_T, logprobs_T: JSON, decoded on demand.
        messages: of the request, those that no earlier call of the try had; kept: messages before them.
        reply: what was sampled as text, without the token that ends it; None when it was not written down.
        reply_cut: characters left out of it; pieces: the text of each sampled token.
    """

    call: int = 0
    ts: float | None = None
    seconds: float | None = None
    stop_reason: str = ""
    prompt_P: msgspec.Raw = msgspec.Raw(b"[]")
    tokens_T: msgspec.Raw = msgspec.Raw(b"[]")
    logprobs_T: msgspec.Raw = msgspec.Raw(b"[]")
    messages: list[CallMessage] = []
    kept: int = 0
    reply: str | None = None
    reply_cut: int = 0
    pieces: msgspec.Raw = msgspec.Raw(b"[]")

    @property
    def prompt_tokens(self) -> int:
        """Tokens of the prompt."""
        return _length(self.prompt_P)

    @property
    def sampled_tokens(self) -> int:
        """Tokens sampled."""
        return _length(self.tokens_T)

    def tokens(self) -> Iterator[tuple[int, str, float]]:
        """Id, text (empty when it was not written down) and log-prob of each sampled token. Raises ValueError."""
        ids = _ints.decode(self.tokens_T)
        pieces = _texts.decode(self.pieces)
        texts = pieces if len(pieces) == len(ids) else [""] * len(ids)
        return zip(ids, texts, _floats.decode(self.logprobs_T), strict=True)


class _Lines:
    """Where the lines of one try lie; `first` is where the newest run of calls begins (a resumed step counts anew)."""

    __slots__ = ("first", "last_call", "offsets", "sizes")

    def __init__(self) -> None:
        self.offsets, self.sizes = array("Q"), array("L")
        self.first, self.last_call = 0, -1


class StepCalls:
    """The call log of one step.

    Attributes:
        complete: everything that was written when it was last looked at is indexed.
    """

    def __init__(self, path: Path) -> None:
        """Nothing is read before `refresh`; the file may come later."""
        self.path = path
        self.complete = False
        self._forget()

    def _forget(self) -> None:
        self._tries: dict[str, _Lines] = {}
        self._inode, self._offset, self._line = 0, 0, 0
        self._head, self._last = b"", 0

    def refresh(self) -> bool:
        """Look at what is new, `SCAN_BYTES` at most. False when there is no such file. Raises OSError."""
        fd = open_regular(self.path)
        if fd is None:
            self._forget()
            self.complete = True
            return False
        try:
            status = os.fstat(fd)
            if status.st_ino != self._inode or status.st_size < self._line:
                self._forget()
                self._inode = status.st_ino
            self.complete = self._scan(fd)
        finally:
            os.close(fd)
        return True

    def _scan(self, fd: int) -> bool:
        left = SCAN_BYTES
        while left > 0:
            chunk = os.pread(fd, CHUNK, self._offset)
            if not chunk:
                # A line without an end may still be taken back: it is read again when it has one.
                self._offset, self._head = self._line, b""
                return True
            start = 0
            while (end := chunk.find(b"\n", start)) >= 0:
                head = self._head + chunk[start : min(end, start + _HEAD)]
                self._add(head, self._offset + end, chunk[end - 1] if end > start else self._last)
                start = end + 1
                self._line, self._head = self._offset + start, b""
            self._head += chunk[start : start + _HEAD - len(self._head)]
            self._last = chunk[-1]
            self._offset += len(chunk)
            left -= len(chunk)
        return False

    def _add(self, head: bytes, end: int, last: int) -> None:
        match = _LINE.match(head)
        if match is None or last != _END:  # torn by a kill
            return
        key, call = match.group(1).decode("utf-8", "replace"), int(match.group(2))
        lines = self._tries.setdefault(key, _Lines())
        if call <= lines.last_call:
            lines.first = len(lines.offsets)
        lines.last_call = call
        lines.offsets.append(self._line)
        lines.sizes.append(end - self._line)

    def __contains__(self, key: str) -> bool:
        return key in self._tries

    def span(self, key: str) -> tuple[int, int]:
        """Positions of the try's calls: the first, and one behind the last; (0, 0) when there are none."""
        lines = self._tries.get(key)
        return (0, 0) if lines is None else (lines.first, len(lines.offsets))

    def read(self, key: str, position: int) -> tuple[CallLine | None, int]:
        """The call at a position, None when its line cannot be read; and the bytes that it cost. Raises OSError."""
        lines = self._tries.get(key)
        if lines is None or position >= len(lines.offsets):  # the file was replaced just now
            return None, 0
        offset, size = lines.offsets[position], lines.sizes[position]
        if size > LONGEST_LINE:
            return None, 0
        fd = open_regular(self.path)
        if fd is None:
            return None, 0
        try:
            data = os.pread(fd, size, offset)
        finally:
            os.close(fd)
        try:
            return _line.decode(data), size
        except (ValueError, RecursionError):
            return None, size


def _length(numbers: msgspec.Raw) -> int:
    """How many numbers a JSON list of numbers has."""
    data = bytes(numbers)
    return data.count(b",") + 1 if any(c not in b"[] \t" for c in data[:64]) else 0


_line: msgspec.json.Decoder[CallLine] = msgspec.json.Decoder(CallLine)
_ints = msgspec.json.Decoder(list[int])
_floats = msgspec.json.Decoder(list[float])
_texts = msgspec.json.Decoder(list[str])
