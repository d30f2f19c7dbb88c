"""The side file: finished steps and engine starts, each with its `seq`, for plots that need no other event.

One object a line, `{"crc": N, "event": {...}}`; `crc` is zlib's CRC-32 of the event's bytes. It repeats what the chunks
say, so it can be made again at any time; a row that only it still has is used.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Iterable
from pathlib import Path

import msgspec

from console.journal.events import Event
from console.journal.layout import ROWS_FILE, Damage, read_event


class _Row(msgspec.Struct):
    crc: int
    event: msgspec.Raw


def encode_row(line: bytes) -> bytes:
    """The side file's line, with newline, for an event's line."""
    return b'{"crc":%d,"event":%s}\n' % (zlib.crc32(line), line)


class RowsFile:
    """Reads the side file, and goes on reading as it grows.

    Attributes:
        rows: seq to (line, event), in the file's order.
        damage: lines that are not intact; torn: the last line has no end.
    """

    def __init__(self, directory: Path) -> None:
        self.path = directory / ROWS_FILE
        self.rows: dict[int, tuple[bytes, Event]] = {}
        self.damage: list[Damage] = []
        self.torn = False
        self._offset = 0
        self._inode = 0

    def refresh(self) -> None:
        """Read what is new. A missing file has no rows; a replaced one is read again."""
        try:
            with self.path.open("rb") as file:
                status = os.fstat(file.fileno())
                if status.st_ino != self._inode or status.st_size < self._offset:
                    self._forget(status.st_ino)
                if status.st_size == self._offset:
                    return
                file.seek(self._offset)
                data = file.read()
        except OSError:
            self._forget(0)
            return
        end = data.rfind(b"\n") + 1
        self.torn = end < len(data)
        start = 0
        while start < end:
            stop = data.index(b"\n", start) + 1
            self._line(data[start : stop - 1], self._offset + start)
            start = stop
        self._offset += end

    def _forget(self, inode: int) -> None:
        self.rows, self.damage, self.torn, self._offset, self._inode = {}, [], False, 0, inode

    def _line(self, line: bytes, offset: int) -> None:
        try:
            row = _decoder.decode(line)
        except (ValueError, RecursionError):
            row = None
        event = read_event(bytes(row.event)) if row is not None and zlib.crc32(row.event) == row.crc else None
        if row is None or event is None:
            self.damage.append(Damage(self.path.name, offset, len(line) + 1, "not a row"))
        else:
            self.rows[event.seq] = (bytes(row.event), event)


def write_rows(directory: Path, lines: Iterable[bytes]) -> None:
    """Replace the side file. Raises OSError."""
    tmp = directory / (ROWS_FILE + ".tmp")
    with os.fdopen(os.open(tmp, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
        file.writelines(encode_row(line) for line in lines)
    os.replace(tmp, directory / ROWS_FILE)


_decoder = msgspec.json.Decoder(_Row)
