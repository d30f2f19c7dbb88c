"""The last journal lines in memory: what bridges the files, which lag behind, and the live stream."""

from __future__ import annotations

from collections import deque
from itertools import islice


class Tail:
    """A bounded, gapless run of the newest lines.

    Attributes:
        last: `seq` of the newest line seen, whether or not it is still held.
    """

    def __init__(self, last: int, limit_bytes: int = 4 * 1024 * 1024) -> None:
        """`last`: the newest event that the journal already has."""
        self.last = last
        self._limit = limit_bytes
        self._lines: deque[bytes] = deque()
        self._size = 0

    def add(self, seq: int, line: bytes) -> None:
        """Append the line of event `seq`; one that does not follow the last (a hole) starts the run anew."""
        if seq != self.last + 1:
            self._lines.clear()
            self._size = 0
        self.last = seq
        self._lines.append(line)
        self._size += len(line)
        while self._size > self._limit and len(self._lines) > 1:
            self._size -= len(self._lines.popleft())

    def after(self, seq: int) -> list[bytes] | None:
        """All lines after event `seq`, or None when some of them are no longer held."""
        if seq >= self.last:
            return []
        skip = len(self._lines) - (self.last - seq)
        return list(islice(self._lines, skip, None)) if skip >= 0 else None
