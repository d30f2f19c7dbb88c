"""Writes a journal: one writer a directory, whole lines, gapless numbers."""

from __future__ import annotations

import logging
import os
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from types import TracebackType

import msgspec

from console.errors import RecordingError, UsageError
from console.journal import events as ev
from console.journal.encoding import encode_readable
from console.journal.layout import (
    LINE_LIMIT,
    PLAIN,
    ROWS_FILE,
    JournalWriteError,
    chunk_name,
    list_chunks,
)
from console.journal.lock import take_lock
from console.journal.reader import Journal
from console.journal.rows import RowsFile, encode_row, write_rows
from console.journal.scan import ROW_TYPES
from console.journal.sealed import sync_directory
from console.journal.sealer import Sealer

CHUNK_BYTES = 16 << 20
SNAPSHOT_EVENTS = 5_000
FLUSH_SECONDS = 5.0
SNAPSHOT_SHARE = 3
"""Events between two snapshots take at least this many times a snapshot's bytes."""

Subscriber = Callable[[bytes, ev.Event], None]
SnapshotSource = Callable[[], tuple[bytes, int]]

_DURABLE = frozenset(
    {
        ev.CommandAccepted,
        ev.CommandFinished,
        ev.StopRequested,
        ev.CheckpointSaved,
        ev.RunStarted,
        ev.RunFinished,
    }
)
"""Events that are on the disk, with those before them, when `append` returns. A request for a command is none of them:
nothing is done before it is accepted or refused."""
_log = logging.getLogger(__name__)


class JournalWriter:
    """The one writer of a journal directory. All methods belong to one thread (the engine's main loop).

    Each event goes to the operating system before `append` returns, so that the death of the process loses nothing;
    audit, checkpoint, critical alarm, start and end events are also on the disk by then.

    Args:
        directory: made when missing (0700).
        snapshot: returns the encoded open state after all events so far, and the number of steps done. Called inside
            `append`, before the event is written.
        clock: Unix seconds; `ts` never goes backwards, whatever it says.

    Attributes:
        last_seq, last_ts: of the last event, 0 before any.

    Raises:
        UsageError: another process writes this journal, or the directory cannot be used.
    """

    def __init__(
        self,
        directory: Path | str,
        *,
        snapshot: SnapshotSource | None = None,
        clock: Callable[[], float] = time.time,
        chunk_bytes: int = CHUNK_BYTES,
        snapshot_events: int = SNAPSHOT_EVENTS,
    ) -> None:
        self.directory = Path(directory)
        self.last_seq = 0
        self.last_ts = 0.0
        self._snapshot = snapshot
        self._clock = clock
        self._chunk_bytes = chunk_bytes
        self._snapshot_events = snapshot_events
        self._subscribers: list[Subscriber] = []
        self._pending: deque[tuple[bytes, ev.Event]] = deque()
        self._notifying = False
        self._closed = False
        self._fd = -1
        self._rows_fd = -1
        self._first_seq = 0
        self._size = 0
        self._new_name = False
        self._torn = False
        self._repaired = 0
        self._flushed = 0.0
        self._synced_seq = 0
        self._events_since = self._bytes_since = 0
        self._snapshot_bytes = 0
        self._snapshot_due = False
        self._lock = take_lock(self.directory)
        try:
            self._sealer = Sealer(self.directory)
            self._resume()
        except BaseException as error:
            self._release()
            if isinstance(error, OSError):
                raise UsageError(f"{self.directory}: cannot be written ({error.strerror})") from error
            raise

    # --- opening ---

    def _resume(self) -> None:
        for leftover in self.directory.glob("*.tmp"):
            leftover.unlink()
        try:
            journal = Journal(self.directory)
        except RecordingError as error:
            raise UsageError(str(error)) from error
        self.last_seq, self.last_ts = journal.last_seq, journal.last_ts or 0.0
        chunks = list_chunks(self.directory)
        active = next(reversed(chunks), 0)
        if active and PLAIN in chunks[active] and len(chunks[active]) == 1:
            self._open_chunk(active)
        else:
            active = 0
        for first_seq, forms in chunks.items():
            if PLAIN in forms and first_seq != active:
                self._sealer.put(first_seq)
        self._check_rows(journal)
        self._rows_fd = _open_append(self.directory / ROWS_FILE)
        self._repaired = self._cut_torn_tail() if active else 0
        self._snapshot_due = self.last_seq > 0

    def _cut_torn_tail(self) -> int:
        data_end = self._size
        kept = data_end
        with (self.directory / (chunk_name(self._first_seq) + PLAIN)).open("rb") as file:
            while kept > 0:
                start = max(0, kept - (1 << 20))
                file.seek(start)
                newline = file.read(kept - start).rfind(b"\n")
                if newline >= 0:
                    kept = start + newline + 1
                    break
                kept = start
        if kept < data_end:
            os.ftruncate(self._fd, kept)
            self._size = kept
        return data_end - kept

    def _check_rows(self, journal: Journal) -> None:
        """Make the side file again when it lacks something, has too much, or is torn."""
        wanted = journal.row_records()
        side = RowsFile(self.directory)
        side.refresh()
        if list(side.rows) != [record.event.seq for record in wanted] or side.damage or side.torn:
            write_rows(self.directory, (record.line for record in wanted))

    def _open_chunk(self, first_seq: int) -> None:
        path = self.directory / (chunk_name(first_seq) + PLAIN)
        self._fd = _open_append(path)
        self._first_seq = first_seq
        self._size = os.fstat(self._fd).st_size
        self._new_name = self._size == 0

    # --- writing ---

    def append(self, event: ev.Event) -> ev.Event:
        """Number, date and write an event; returns it as a reader will see it (a non-finite number is null there).

        Subscribers are called before this returns. A subscriber may append: that event comes after this one.

        Raises:
            JournalWriteError: it could not be written, and the journal is as it was before; or it was, but the disk
                failed to make it durable.
            ValueError: the event cannot be encoded, or is too large.
        """
        if self._closed:
            raise JournalWriteError(f"{self.directory}: the journal is closed")
        if not self._notifying:
            self._tell_repair()
            self._take_snapshot()
        event = self._write(event)
        if not self._notifying:
            self._notify()
        return event

    def _tell_repair(self) -> None:
        """Record a repair with the first event, so that subscribers hear of it."""
        if self._repaired:
            torn, self._repaired = self._repaired, 0
            self._write(ev.JournalRepaired(dropped_bytes=torn))
            self._notify()

    def _write(self, event: ev.Event) -> ev.Event:
        event.seq = self.last_seq + 1
        event.ts = max(self._clock(), self.last_ts)
        line, event = encode_readable(event)
        if len(line) > LINE_LIMIT:
            raise ValueError(f"an event of {len(line)} bytes is too large for the journal (limit 16 MiB)")
        if self._fd < 0:
            self._begin_chunk(event.seq)
        self._put(line + b"\n")
        self.last_seq, self.last_ts = event.seq, event.ts
        self._events_since += 1
        self._bytes_since += len(line) + 1
        if type(event) in ROW_TYPES:
            self._put_row(line)
        self._pending.append((line, event))
        if type(event) in _DURABLE or (isinstance(event, ev.AlarmOpened) and event.level == "critical"):
            self.sync()
        if self._size >= self._chunk_bytes:
            self._rotate()
        return event

    def _put(self, data: bytes) -> None:
        """Write whole lines or nothing."""
        written = 0
        try:
            if self._torn:  # end the part that could not be taken back: one damaged line
                self._size = os.fstat(self._fd).st_size
                data = b"\n" + data
            while written < len(data):
                written += os.write(self._fd, data[written:] if written else data)
        except OSError as error:
            if written:
                self._undo()
            raise JournalWriteError(
                f"{self.directory}: cannot write the journal ({error.strerror}); make room, then resume the run"
            ) from error
        self._size += len(data)
        self._torn = False

    def _undo(self) -> None:
        """Take back a line that was written in part."""
        try:
            os.ftruncate(self._fd, self._size)
        except OSError:
            self._torn = True

    def _begin_chunk(self, first_seq: int) -> None:
        try:
            self._open_chunk(first_seq)
        except OSError as error:
            raise JournalWriteError(f"{self.directory}: cannot begin a chunk ({error.strerror})") from error

    def _rotate(self) -> None:
        # No sync here, it can take long: the sealed form is on the disk before this one goes.
        os.close(self._fd)
        self._fd = -1
        self._sealer.put(self._first_seq)
        self._snapshot_due = True

    def _put_row(self, line: bytes) -> None:
        """Best effort: the side file can be made again, and is when a writer opens the journal next."""
        if self._rows_fd < 0:
            return
        row = encode_row(line)
        try:
            if os.write(self._rows_fd, row) == len(row):
                return
        except OSError:
            pass
        _log.warning("%s: cannot write the side file", self.directory)
        os.close(self._rows_fd)
        self._rows_fd = -1

    def _take_snapshot(self) -> None:
        due = self._events_since >= self._snapshot_events
        if not (due and self._bytes_since >= SNAPSHOT_SHARE * self._snapshot_bytes) and not self._snapshot_due:
            return
        self._snapshot_due = False
        self._events_since = self._bytes_since = 0
        if self._snapshot is None or self.last_seq == 0:
            return
        try:
            state, steps_done = self._snapshot()
        except Exception:
            _log.exception("no snapshot: the state cannot be encoded")
            return
        self._snapshot_bytes = len(state)
        if len(state) >= LINE_LIMIT // 2:
            return
        if self._fd >= 0 and self._size + len(state) >= self._chunk_bytes:
            self._rotate()  # so that it begins the next chunk
        self._write(ev.Snapshot(state=msgspec.Raw(state), steps_done=steps_done))
        self._events_since = self._bytes_since = 0
        self._snapshot_due = False

    def flush(self) -> None:
        """To be called about once a second: bounds what a power failure can take.

        What was written more than `FLUSH_SECONDS` ago goes to the disk, in the background. Raises JournalWriteError.
        """
        now = time.monotonic()
        if self._fd < 0 or self._synced_seq == self.last_seq or now - self._flushed < FLUSH_SECONDS:
            return
        self._flushed, self._synced_seq = now, self.last_seq
        try:
            self._sealer.sync(self._fd)
        except OSError as error:
            raise JournalWriteError(f"{self.directory}: cannot be synced ({error.strerror})") from error

    def sync(self) -> None:
        """Put what was written on the disk now. Raises JournalWriteError."""
        if self._fd < 0:
            return
        self._synced_seq = self.last_seq
        try:
            os.fdatasync(self._fd)
            if self._new_name:
                sync_directory(self.directory)
                self._new_name = False
        except OSError as error:
            raise JournalWriteError(f"{self.directory}: the disk failed ({error.strerror})") from error

    # --- subscribers ---

    def subscribe(self, callback: Subscriber) -> Callable[[], None]:
        """Call back with each event's line (no newline) and the event, in order; returns what ends it."""
        self._subscribers.append(callback)

        def end() -> None:
            if callback in self._subscribers:
                self._subscribers.remove(callback)

        return end

    def _notify(self) -> None:
        self._notifying = True
        try:
            while self._pending:
                line, event = self._pending.popleft()
                for callback in tuple(self._subscribers):
                    try:
                        callback(line, event)
                    except JournalWriteError:
                        raise
                    except Exception:
                        _log.exception("a subscriber of the journal failed")
        finally:
            self._notifying = False

    # --- closing ---

    def close(self, *, seal: bool = True) -> None:
        """End the journal in order: everything on disk, chunks sealed. A second call does nothing.

        A chunk that cannot be sealed stays plain, which readers accept. Raises JournalWriteError.
        """
        if self._closed:
            return
        try:
            self._tell_repair()
            self._closed = True
            self.sync()
            if self._fd >= 0 and seal:
                self._sealer.put(self._first_seq)
            self._sealer.close()
        finally:
            self._release()

    def _release(self) -> None:
        for fd in (self._fd, self._rows_fd, self._lock):
            if fd >= 0:
                os.close(fd)
        self._fd = self._rows_fd = self._lock = -1
        self._closed = True

    def __enter__(self) -> JournalWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _open_append(path: Path) -> int:
    return os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
