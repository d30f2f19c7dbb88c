"""All entries of the run that this console can know of: from the journal when it is here, else from the state's lines.

What happens while it is looked at comes from the desk's log.
"""

from __future__ import annotations

import asyncio
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from console.errors import RecordingError
from console.journal.reader import Journal
from console.records.manifest import read_manifest
from console.state.sanitize import sanitize
from console.tui.event_log import KEPT, Entry, Read, entries_of, read_entries

if TYPE_CHECKING:
    from console.tui.desk import Desk

_SLACK = 1_000


class History:
    """The entries, oldest first.

    Attributes:
        entries: bounded; resets: counts how often they became others, rather than more.
        missing: events up to this number were not read, 0 when all were; note: why the journal could not be read.
    """

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self.entries: list[Entry] = []
        self.resets = self.missing = 0
        self.note = ""
        self._jumps = -1
        self._taken = 0
        self._reading = False

    def sync(self) -> list[Entry]:
        """Take in what happened; what is new. After a reset, everything is: see `resets`."""
        log = self._desk.log
        if log.jumps != self._jumps:
            self._begin()
        new = min(log.total - self._taken, len(log.entries))
        if new <= 0:
            return []
        self._taken = log.total
        added = list(islice(log.entries, len(log.entries) - new, None))
        self.entries += added
        if len(self.entries) > KEPT + _SLACK:
            del self.entries[:-KEPT]
        return added

    def _begin(self) -> None:
        """After a jump: what the state still says; on a thread what the journal says."""
        log, lines = self._desk.log, self._desk.state.lines
        first, self._jumps, self._taken = self._jumps < 0, log.jumps, log.total
        now = [*entries_of(lines[: max(0, len(lines) - len(log.entries))]), *log.entries]
        if first or self._desk.source.mode == "replay":
            self.entries = now
        else:  # a new connection: what was known stays known
            last = self.entries[-1].ts if self.entries else 0.0
            later = [e for e in now if e.ts > last]
            if later and len(later) == len(now):
                gap = "some events before this one are not known here"
                later.insert(0, Entry(0, later[0].ts, gap, level="warning"))
            self.entries += later
        self.resets += 1
        if not self._reading:
            self._reading = True
            self._desk.shell.spawn(self._read())

    async def _read(self) -> None:
        """Read the journal up to now; again when the view jumped meanwhile, once however often it did."""
        try:
            jumps = -1
            while jumps != self._jumps:
                jumps = self._jumps
                await self._read_once(jumps)
        finally:
            self._reading = False

    async def _read_once(self, jumps: int) -> None:
        state, log = self._desk.state, self._desk.log
        record = getattr(self._desk.source, "record", None)
        try:
            found = await asyncio.to_thread(_from_journal, record, state.seq, state.run_dir, state.run_id)
        except (RecordingError, OSError) as error:
            self.note = f"the journal cannot be read: {sanitize(str(error), limit=200)}"
            self.resets += 1
            return
        if found is None or jumps != log.jumps:
            return
        self.note, self.missing = "", found.after
        self._taken = log.total
        self.entries = [*found.entries, *(e for e in log.entries if e.seq > found.last)]
        self.resets += 1
        self._desk.shell.repaint()


def _from_journal(record: object, until: int, run_dir: str, run_id: str) -> Read | None:
    """Entries of the recording, or of the run's own journal when it is on this machine; None when it is not."""
    journal = getattr(record, "journal", None)
    if journal is not None:
        # The source reads its own journal on the event loop, so this thread opens one for itself.
        directory = getattr(journal, "directory", None)
        return read_entries(Journal(directory) if directory is not None else journal, until)
    if not run_dir or not run_id:
        return None
    try:
        if read_manifest(Path(run_dir)).run_id != run_id:
            return None
    except RecordingError:
        return None
    return read_entries(Journal(Path(run_dir) / "journal"), until)
