"""Gathers the marks of a timeline on a thread, and says what of a recording is missing."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from itertools import batched

from console.errors import RecordingError
from console.journal.layout import Damage
from console.records.run_dir import RunRecord
from console.records.timeline import Gap, Marks, MarkScan

BATCH = 1024
PUBLISHED_EVERY = 16
REST_SECONDS = 0.001
"""Slept between batches once nobody waits any more, so that the screen stays quick."""
HOLES_NAMED = 2


class MarkReader:
    """Reads a recording from its start, and goes on with what is written later.

    Attributes:
        marks: as far as they were gathered, None before anything was; complete: all that was there has been read.
        damage: what could not be read, known once it is complete.
    """

    def __init__(self, record: RunRecord) -> None:
        self.marks: Marks | None = None
        self.complete = False
        self.damage: list[Damage] = []
        self._record = record
        journal = record.journal
        first = journal.first_ts or 0.0
        self._scan = MarkScan(first, max(first, journal.last_ts or 0.0))
        self._thread: threading.Thread | None = None
        self._patience = 0.0

    def begin(self, wait: float = 0.0) -> None:
        """Start reading, and wait for the end so many seconds at most. Later calls only wait."""
        if self._thread is None:
            self._patience = time.monotonic() + wait
            self._thread = threading.Thread(target=self._read, name="timeline marks", daemon=True)
            self._thread.start()
        if wait > 0:
            self._thread.join(wait)

    def _read(self) -> None:
        scan = self._scan
        try:
            record = self._record.again()
            for count, events in enumerate(batched(record.journal.events(), BATCH)):
                scan.feed(events)
                if count % PUBLISHED_EVERY == PUBLISHED_EVERY - 1:
                    self.marks = scan.marks()
                if time.monotonic() > self._patience:
                    time.sleep(REST_SECONDS)
            scan.end(record.journal.last_seq, record.journal.last_ts or 0.0)
            self.damage = record.damage
        except RecordingError:
            pass  # whoever plays it meets the same trouble, and says so
        self.marks = scan.marks()
        self.complete = True

    def follow(self) -> None:
        """Take in what the record has by now. Nothing happens before all that was there has been read."""
        if self.complete and self._record.journal.last_seq > self._scan.seq:
            self._scan.feed(self._record.journal.events(self._scan.seq))
            self.marks = self._scan.marks()


def missing(holes: tuple[Gap, ...], damage: list[Damage], moment: Callable[[float], str]) -> str:
    """One line about what cannot be read, empty when everything can. `moment` puts Unix seconds in words."""
    if holes:
        named = [f"{_numbers(hole)} ({_span(moment(hole.start), moment(hole.end))})" for hole in holes[:HOLES_NAMED]]
        more = len(holes) - len(named)
        if more:
            named.append("one more stretch" if more == 1 else f"{more} more stretches")
        return f"{' and '.join(named)} cannot be read; the rest is shown"
    if not damage:
        return ""
    places = "one place" if len(damage) == 1 else f"{len(damage)} places"
    return f"the recording is damaged in {places} ({damage[0].reason}); what is readable is shown"


def _span(start: str, end: str) -> str:
    return start if start == end else f"{start} to {end}"


def _numbers(hole: Gap) -> str:
    if hole.first_seq == hole.last_seq:
        return f"event {hole.first_seq}"
    return f"events {hole.first_seq} to {hole.last_seq}"
