"""Lines of the journal that are no longer in memory, read from its files on worker threads."""

from __future__ import annotations

import threading
from itertools import islice
from pathlib import Path

from console.journal.reader import Journal

BATCH = 2000


class PastLines:
    """Reads a journal that is being written. Calls from several threads wait for each other."""

    def __init__(self, directory: Path) -> None:
        """`directory`: the journal's; opened at the first call."""
        self._directory = directory
        self._journal: Journal | None = None
        self._lock = threading.Lock()

    def __call__(self, after_seq: int) -> list[bytes]:
        """Up to `BATCH` lines after the event, in order; empty when there are none (yet). Raises `RecordingError`."""
        with self._lock:
            if self._journal is None:
                self._journal = Journal(self._directory)
            else:
                self._journal.refresh()
            return list(islice(self._journal.lines(after_seq), BATCH))
