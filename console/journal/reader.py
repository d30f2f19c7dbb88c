"""Reads a journal: finished, killed, still being written, torn or partly corrupt.

What cannot be read is skipped and listed in `Journal.damage`. Nothing is ever written.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from console.errors import RecordingError
from console.journal.chunk import Chunk, PlainChunk, SealedChunk, block_at
from console.journal.events import Event, Snapshot
from console.journal.layout import PLAIN, Damage, list_chunks, read_event
from console.journal.rows import RowsFile
from console.journal.scan import ChunkIndex


class Record(NamedTuple):
    """An event and the line it stands on (without newline)."""

    line: bytes
    event: Event


class Journal:
    """A journal directory, read-only.

    The events of a journal are those on intact lines of its chunks, in order of `seq`; where the chunks have lost a
    finished step or an engine start, the side file's copy takes its place.

    Args:
        directory: the `journal` directory of a run.

    Raises:
        RecordingError: it is not a directory or cannot be listed.
    """

    def __init__(self, directory: Path | str) -> None:
        self.directory = Path(directory)
        self._chunks: dict[int, Chunk] = {}
        self._rows = RowsFile(self.directory)
        self._found: dict[Damage, None] = {}
        self.refresh()

    # --- what there is ---

    def refresh(self) -> None:
        """Take in what was written since. Reading methods see the journal as of the last refresh."""
        try:
            listed = list_chunks(self.directory)
        except OSError as error:
            raise RecordingError(
                f"{self.directory}: cannot be read as a journal ({error.strerror}); name a run directory"
            ) from error
        chunks: dict[int, Chunk] = {}
        for first_seq, forms in listed.items():
            known = self._chunks.get(first_seq)
            # The plain form is whole as long as it is there; a sealed one never goes back.
            if isinstance(known, SealedChunk) or (known is not None and PLAIN in forms):
                chunks[first_seq] = known
            else:
                chunks[first_seq] = self._open(first_seq, plain=PLAIN in forms)
        self._chunks = chunks
        for first_seq in list(chunks):
            self._refresh_chunk(first_seq)
        self._rows.refresh()

    def _open(self, first_seq: int, plain: bool) -> Chunk:
        return PlainChunk(self.directory, first_seq) if plain else SealedChunk(self.directory, first_seq)

    def _refresh_chunk(self, first_seq: int) -> None:
        chunk = self._chunks[first_seq]
        try:
            chunk.refresh()
        except FileNotFoundError:
            self._chunks[first_seq] = self._open(first_seq, plain=False)
        except OSError as error:
            raise RecordingError(f"{chunk.path}: cannot be read ({error.strerror})") from error

    @property
    def last_seq(self) -> int:
        """`seq` of the last event, 0 for an empty journal."""
        return max((self._index(first).last_seq for first in self._last(2)), default=0)

    @property
    def first_ts(self) -> float | None:
        """Unix seconds of the first event, None for an empty journal."""
        return next((ts for first in self._chunks if (ts := self._index(first).first_ts) is not None), None)

    @property
    def last_ts(self) -> float | None:
        """Unix seconds of the last event, None for an empty journal."""
        return next((self._index(first).last_ts for first in self._last() if self._index(first).blocks), None)

    @property
    def damage(self) -> list[Damage]:
        """What could not be read, as far as it was tried: complete after all events were read."""
        known = [item for chunk in self._chunks.values() for item in chunk.damage()]
        return list(dict.fromkeys([*known, *self._rows.damage, *self._found]))

    @property
    def end_lost(self) -> bool:
        """Whether something was written after the last event that can be read; of use once nobody writes any more."""
        end = self.last_seq
        last = next((self._chunks[first] for first in self._last(1)), None)
        if any(seq > end for seq in self._rows.rows) or (isinstance(last, SealedChunk) and last.cut):
            return True
        return end > 0 and next((event.seq for _, event in self._chunk_records(end - 1)), None) != end

    def _last(self, count: int | None = None) -> list[int]:
        return list(reversed(self._chunks))[:count]

    def _index(self, first_seq: int) -> ChunkIndex:
        chunk = self._chunks[first_seq]
        try:
            return chunk.index
        except OSError as error:
            raise RecordingError(f"{chunk.path}: cannot be read ({error.strerror})") from error

    # --- reading ---

    def events(self, after_seq: int = 0, until_seq: int | None = None) -> Iterator[Event]:
        """Events with `after_seq < seq <= until_seq`, in order."""
        for record in self.records(after_seq, until_seq):
            yield record.event

    def lines(self, after_seq: int = 0) -> Iterator[bytes]:
        """As `events`, the lines as they are on disk, without newlines."""
        for record in self.records(after_seq):
            yield record.line

    def records(self, after_seq: int = 0, until_seq: int | None = None) -> Iterator[Record]:
        """As `events`, with their lines."""
        end = self.last_seq
        if until_seq is not None:
            end = min(end, until_seq)
        rows = self._rows.rows
        spare = sorted(seq for seq in rows if after_seq < seq <= end)
        spare.reverse()
        last = after_seq
        for line, event in self._chunk_records(after_seq):
            seq = event.seq
            if seq > end:
                break
            if seq <= last:
                continue
            while spare and spare[-1] < seq:  # lost in the chunks
                yield Record(*rows[spare.pop()])
            if seq != last + 1:
                self._gap(last + 1, seq - 1)
            last = seq
            if spare and spare[-1] == seq:
                spare.pop()
                line, event = rows[seq]
            yield Record(line, event)
        if last < end:
            self._gap(last + 1, end)
        while spare:
            yield Record(*rows[spare.pop()])

    def _chunk_records(self, after_seq: int) -> Iterator[tuple[bytes, Event]]:
        starts = list(self._chunks)
        for number, first_seq in enumerate(starts):
            if number + 1 < len(starts) and starts[number + 1] <= after_seq + 1:
                continue
            position = None
            while True:
                index = self._index(first_seq)
                if position is None:
                    position = block_at(index, after_seq + 1)
                if position >= len(index.blocks):
                    break
                block = index.blocks[position]
                chunk = self._chunks[first_seq]
                try:
                    lines = chunk.lines(block)
                except FileNotFoundError:  # sealed under our feet
                    self._chunks[first_seq] = self._open(first_seq, plain=False)
                    position = None
                    continue
                position += 1
                if lines is None:
                    self._note(Damage(chunk.path.name, block.offset, block.size, "cannot be unpacked"))
                    continue
                for line in lines:
                    event = read_event(line)
                    if event is None or not block.first_seq <= event.seq <= block.last_seq:
                        self._note(Damage(chunk.path.name, block.offset, len(line), "not an event of its frame"))
                    elif event.seq > after_seq:
                        after_seq = event.seq
                        yield line, event

    def _note(self, damage: Damage) -> None:
        self._found[damage] = None

    def _gap(self, first: int, last: int) -> None:
        self._note(Damage("", 0, 0, f"events {first} to {last} are missing"))

    # --- seeking ---

    def nearest_snapshot(self, seq: int | None = None, ts: float | None = None) -> Snapshot | None:
        """The last readable snapshot at or before the given event number and time; None when there is none."""
        for first_seq in self._last():
            for found_seq, found_ts in reversed(self._index(first_seq).snapshots):
                if (seq is not None and found_seq > seq) or (ts is not None and found_ts > ts):
                    continue
                record = next(self._chunk_records(found_seq - 1), None)
                if record is not None and record[1].seq == found_seq and isinstance(record[1], Snapshot):
                    return record[1]
        return None

    def seq_at(self, ts: float) -> int:
        """`seq` of the last event at or before `ts` (Unix seconds), 0 when there is none."""
        for first_seq in self._last():
            for block in reversed(self._index(first_seq).blocks):
                if block.first_ts <= ts:
                    found = block.first_seq
                    for event in self.events(block.first_seq - 1, block.last_seq):
                        if event.ts > ts:
                            break
                        found = event.seq
                    return found
        return 0

    def step_rows(self) -> list[Event]:
        """All `StepFinished` and `RunStarted` events, in order (a start with `resumed_from` undoes later steps)."""
        return [record.event for record in self.row_records()]

    def row_records(self) -> list[Record]:
        """As `step_rows`, with their lines."""
        end = self.last_seq
        rows = {seq: Record(*row) for seq, row in self._rows.rows.items() if seq <= end}
        for first_seq in list(self._chunks):
            for seq in self._index(first_seq).rows:
                if seq not in rows:
                    record = next(self._chunk_records(seq - 1), None)
                    if record is not None and record[1].seq == seq:
                        rows[seq] = Record(*record)
        return [rows[seq] for seq in sorted(rows)]

    def follow(self, after_seq: int = 0) -> Follower:
        """A cursor that keeps up with the writer."""
        return Follower(self, after_seq)


class Follower:
    """Reads what is new at each `poll`. It has its own place and shares the journal with nobody.

    Attributes:
        seq: the last event that was handed out.
    """

    def __init__(self, journal: Journal, after_seq: int) -> None:
        self.journal = journal
        self.seq = after_seq

    def poll(self) -> list[Record]:
        """The events since the last poll, empty when there are none. Raises RecordingError."""
        self.journal.refresh()
        found = list(self.journal.records(self.seq))
        if found:
            self.seq = found[-1].event.seq
        return found
