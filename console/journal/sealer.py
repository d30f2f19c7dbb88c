"""Seals chunks in a thread of its own, one after the other."""

from __future__ import annotations

import contextlib
import logging
import queue
import threading
from pathlib import Path

from console.journal.layout import SEALED, chunk_name
from console.journal.sealed import seal

_log = logging.getLogger(__name__)


class Sealer:
    """A queue of complete plain chunks to seal. A chunk that cannot be sealed stays plain: nothing is lost by it.

    Attributes:
        error: why the last chunk could not be sealed, None when it could.
    """

    def __init__(self, directory: Path) -> None:
        self.error: str | None = None
        self._directory = directory
        self._queue: queue.SimpleQueue[int | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None

    def put(self, first_seq: int) -> None:
        """Seal the chunk soon."""
        self._queue.put(first_seq)
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="journal-sealer", daemon=True)
            self._thread.start()

    def close(self) -> None:
        """Wait until all is sealed."""
        if self._thread is not None:
            self._queue.put(None)
            self._thread.join()
            self._thread = None

    def _run(self) -> None:
        while (first_seq := self._queue.get()) is not None:
            try:
                seal(self._directory, first_seq)
                self.error = None
            except Exception as error:
                self.error = f"{chunk_name(first_seq)}: {error}"
                _log.warning("%s: chunk %s cannot be sealed: %s", self._directory, chunk_name(first_seq), error)
                with contextlib.suppress(OSError):
                    (self._directory / (chunk_name(first_seq) + SEALED + ".tmp")).unlink()
