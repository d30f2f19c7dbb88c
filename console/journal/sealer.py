"""The writer's slow work in a thread of its own, one piece after the other: sealing chunks, syncing."""

from __future__ import annotations

import contextlib
import logging
import os
import queue
import threading
from collections.abc import Callable
from pathlib import Path

from console.journal.layout import SEALED, chunk_name
from console.journal.sealed import seal

_log = logging.getLogger(__name__)


class Sealer:
    """Seals complete plain chunks. One that cannot be sealed stays plain: nothing is lost by it.

    Attributes:
        error: why the last piece of work failed, None when it did not.
    """

    def __init__(self, directory: Path) -> None:
        self.error: str | None = None
        self._directory = directory
        self._queue: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None

    def put(self, first_seq: int) -> None:
        """Seal the chunk soon."""
        self._do(lambda: self._seal(first_seq))

    def sync(self, fd: int) -> None:
        """Put the file on the disk soon. `fd` may be closed meanwhile. Raises OSError."""
        own = os.dup(fd)

        def work() -> None:
            try:
                os.fdatasync(own)
            finally:
                os.close(own)

        self._do(work)

    def close(self) -> None:
        """Wait until all is done."""
        if self._thread is not None:
            self._queue.put(None)
            self._thread.join()
            self._thread = None

    def _do(self, work: Callable[[], None]) -> None:
        self._queue.put(work)
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="journal-sealer", daemon=True)
            self._thread.start()

    def _run(self) -> None:
        while (work := self._queue.get()) is not None:
            try:
                work()
                self.error = None
            except Exception as error:
                self.error = str(error)
                _log.warning("%s: %s", self._directory, error)

    def _seal(self, first_seq: int) -> None:
        try:
            seal(self._directory, first_seq)
        except Exception:
            with contextlib.suppress(OSError):
                (self._directory / (chunk_name(first_seq) + SEALED + ".tmp")).unlink()
            raise
