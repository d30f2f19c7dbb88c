"""What lies in a journal directory: file names, limits, damage.

    000000000001.jsonl.zst   a sealed chunk: independent zstd frames of whole lines
    000000000001.idx         its index (can be made again from the chunk)
    000000104731.jsonl       the active chunk: plain lines
    000000000001.damaged     lines that could not be read when the chunk was sealed, byte for byte
    steps.jsonl              side file: finished steps and engine starts (can be made again from the chunks)
    lock                     locked by the writer, holds its pid

A chunk is named after the `seq` of its first event. While a chunk is being sealed both forms of it may exist.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

from console.errors import QuarterdeckError
from console.journal.codec import decode_event
from console.journal.events import Event

PLAIN = ".jsonl"
SEALED = ".jsonl.zst"
INDEX = ".idx"
DAMAGED = ".damaged"
ROWS_FILE = "steps.jsonl"
LOCK_FILE = "lock"

LINE_LIMIT = 16 << 20
"""A longer line is damage, and a writer refuses it."""
FRAME_LIMIT = 64 << 20
"""A frame that unpacks to more is damage."""
TS_LIMIT = 253_402_300_800.0
"""Unix seconds of the year 10000: a later `ts` is damage, and no calendar can show it."""

_CHUNK = re.compile(r"(\d{12,15})(\.jsonl|\.jsonl\.zst)")


class JournalWriteError(QuarterdeckError, OSError):
    """The journal could not be written: the disk is full or failed. What was written before stays readable."""


@dataclass(frozen=True, slots=True)
class Damage:
    """A piece of a journal that cannot be read.

    Attributes:
        file: name of the file in the journal directory, "" for a gap that no file explains.
        offset, size: bytes of the file.
        reason: one line.
    """

    file: str
    offset: int
    size: int
    reason: str

    def __str__(self) -> str:
        where = f"{self.file} at byte {self.offset}, {self.size} bytes: " if self.file else ""
        return where + self.reason


def chunk_name(first_seq: int) -> str:
    """File name of a chunk without its extension."""
    return f"{first_seq:012d}"


def list_chunks(directory: Path) -> dict[int, set[str]]:
    """First seq to the forms present (`PLAIN`, `SEALED`), in order of seq. Raises OSError."""
    found: dict[int, set[str]] = {}
    with os.scandir(directory) as entries:
        for entry in entries:
            match = _CHUNK.fullmatch(entry.name)
            if match and int(match[1]) > 0:
                found.setdefault(int(match[1]), set()).add(match[2])
    return dict(sorted(found.items()))


def read_event(line: bytes) -> Event | None:
    """The event on a line, None when the line is damaged."""
    if len(line) > LINE_LIMIT:
        return None
    try:
        event = decode_event(line)
    except (ValueError, TypeError, OverflowError, RecursionError):
        return None
    return event if event.seq > 0 and 0.0 <= event.ts < TS_LIMIT else None
