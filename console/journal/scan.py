"""Which lines of a chunk count, and where they lie.

A scan goes over a chunk once, from its start, and may go on when the chunk has grown. Reader, writer and sealing share
it, so that they agree on each line.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from console.journal import events as ev
from console.journal.layout import LINE_LIMIT, Damage, read_event

BLOCK_EVENTS = 1024
BLOCK_BYTES = 256 << 10
_SHORTEST_LINE = 32


class Block(msgspec.Struct, array_like=True):
    """Consecutive lines that are read together.

    Attributes:
        offset, size: bytes in the chunk file: lines of a plain chunk, one frame of a sealed one.
        first_seq, last_seq: of its accepted events; first_ts: Unix seconds.
        raw: bytes of the lines (= size in a plain chunk).
    """

    offset: int
    size: int
    first_seq: int
    last_seq: int
    first_ts: float
    raw: int


class ChunkIndex(msgspec.Struct):
    """Where things are in a chunk. `snapshots` and `rows` hold the seqs of Snapshot events and of side file events."""

    blocks: list[Block] = []
    snapshots: list[tuple[int, float]] = []
    rows: list[int] = []
    last_seq: int = 0
    last_ts: float = 0.0
    damage: list[tuple[int, int, str]] = []

    @property
    def first_ts(self) -> float | None:
        """`ts` of the first event, None for a chunk without events."""
        return self.blocks[0].first_ts if self.blocks else None


ROW_TYPES = frozenset({ev.StepFinished, ev.RunStarted})
"""Events that are kept in the side file too."""


class Scan:
    """Decides on the lines of one plain chunk, in order.

    An event is accepted when its `seq` follows the one before, or when damaged bytes in between explain what is
    missing, or when the next line agrees with it. So a damaged number costs one line, not all that follow.

    Attributes:
        index: of what was accepted so far.
        offset: bytes consumed: whole lines only.
        rejected: offset to size of damaged lines.
    """

    def __init__(self, first_seq: int) -> None:
        self.index = ChunkIndex(last_seq=first_seq - 1)
        self.offset = 0
        self.rejected: dict[int, int] = {}
        self._slack = 0
        self._held: tuple[int, int, ev.Event] | None = None
        self._overlong = False

    @property
    def damage(self) -> list[tuple[int, int, str]]:
        """Damage so far; a last line that no neighbour confirms counts as long as it is the last."""
        held = self._held
        return self.index.damage + ([(held[0], held[1], _reason(held[2]))] if held is not None else [])

    @property
    def held(self) -> tuple[int, int] | None:
        """Offset and size of a last line that waits for the next one to confirm it."""
        return self._held[:2] if self._held is not None else None

    def feed(self, data: bytes) -> int:
        """Take bytes from `offset` on; returns how many were consumed (up to the last newline)."""
        end = data.rfind(b"\n") + 1
        if end == 0:
            if len(data) <= LINE_LIMIT:
                return 0
            # A line without end: give up on it now, and on its rest when its newline comes.
            self._reject(self.offset, len(data), "line longer than 16 MiB")
            self.offset += len(data)
            self._overlong = True
            return len(data)
        lines = data[: end - 1].split(b"\n")
        for first in range(0, len(lines), BLOCK_EVENTS):
            self._run(lines[first : first + BLOCK_EVENTS])
        return end

    def _run(self, lines: list[bytes]) -> None:
        """Up to a block of lines: all at once when nothing is wrong with them, else one by one."""
        size = sum(map(len, lines)) + len(lines)
        if self._held is None and not self._overlong and size <= BLOCK_BYTES and self._accept_all(lines, size):
            self.offset += size
            return
        for line in lines:
            self._line(line, self.offset, len(line) + 1)
            self.offset += len(line) + 1

    def _accept_all(self, lines: list[bytes], size: int) -> bool:
        events = list(map(read_event, lines))
        index = self.index
        seq = index.last_seq
        for event in events:
            seq += 1
            if event is None or event.seq != seq or type(event) is ev.Snapshot:
                return False
        first, last = events[0], events[-1]
        assert first is not None and last is not None
        index.rows += [event.seq for event in events if event is not None and type(event) in ROW_TYPES]
        index.last_seq, index.last_ts = last.seq, last.ts
        self._slack = 0
        block = index.blocks[-1] if index.blocks else None
        if (
            block is None
            or last.seq - block.first_seq >= BLOCK_EVENTS
            or self.offset + size - block.offset > BLOCK_BYTES
        ):
            index.blocks.append(Block(self.offset, size, first.seq, last.seq, first.ts, size))
        else:
            block.last_seq, block.size = last.seq, self.offset + size - block.offset
            block.raw = block.size
        return True

    def finish(self, size: int) -> None:
        """The chunk is complete and has `size` bytes: what nothing confirms or ends is damage."""
        if self._held is not None:
            self._reject_held()
        if size > self.offset:
            self._reject(self.offset, size - self.offset, "unfinished line")
            self.offset = size

    def _line(self, line: bytes, offset: int, size: int) -> None:
        event = None if self._overlong else read_event(line)
        if event is None:
            if self._held is not None:
                self._reject_held()
            self._reject(offset, size, "rest of a long line" if self._overlong else "not an event")
            self._overlong = False
            return
        if self._held is not None:
            held_offset, held_size, held = self._held
            if event.seq == held.seq + 1:
                self._held = None
                self._accept(held_offset, held_size, held)
            else:
                self._reject_held()
        last = self.index.last_seq
        if last < event.seq <= last + 1 + self._slack // _SHORTEST_LINE:
            self._accept(offset, size, event)
        elif event.seq > last:
            self._held = (offset, size, event)
        else:
            self._reject(offset, size, _reason(event))

    def _reject_held(self) -> None:
        assert self._held is not None
        offset, size, event = self._held
        self._held = None
        self._reject(offset, size, _reason(event))

    def _reject(self, offset: int, size: int, reason: str) -> None:
        self.rejected[offset] = size
        self.index.damage.append((offset, size, reason))
        self._slack += max(size, _SHORTEST_LINE)

    def _accept(self, offset: int, size: int, event: ev.Event) -> None:
        index = self.index
        self._slack = 0
        index.last_seq, index.last_ts = event.seq, event.ts
        snapshot = type(event) is ev.Snapshot
        if snapshot:
            index.snapshots.append((event.seq, event.ts))
        elif type(event) in ROW_TYPES:
            index.rows.append(event.seq)
        block = index.blocks[-1] if index.blocks else None
        # A snapshot begins a block: a seek reads nothing before it.
        if (
            block is None
            or snapshot
            or event.seq - block.first_seq >= BLOCK_EVENTS
            or offset + size - block.offset > BLOCK_BYTES
        ):
            index.blocks.append(Block(offset, size, event.seq, event.seq, event.ts, size))
            return
        block.last_seq, block.size = event.seq, offset + size - block.offset
        block.raw = block.size


def _reason(event: ev.Event) -> str:
    return f"event number {event.seq} is out of order"


def lines_of(data: bytes, offset: int = 0, rejected: dict[int, int] | None = None) -> Iterator[bytes]:
    """The lines of a block's bytes without newlines; damaged ones (by file offset) are left out."""
    if not rejected:
        yield from data.removesuffix(b"\n").split(b"\n")
        return
    start = 0
    while start < len(data):
        stop = data.index(b"\n", start) + 1
        if offset + start not in rejected:
            yield data[start : stop - 1]
        start = stop


def as_damage(file: str, found: list[tuple[int, int, str]]) -> list[Damage]:
    """The index's notes as `Damage` of that file."""
    return [Damage(file, offset, size, reason) for offset, size, reason in found]
