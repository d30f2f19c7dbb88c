"""The call journal: every answered model call on the disk before its reply leaves."""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from pathlib import Path

import msgspec

from console.capture.base import CapturedCall
from console.capture.turns import CallText
from console.errors import CaptureError


class CallLog:
    """Appends one JSON line a call to `<directory>/calls-NNNNNN.jsonl`, a new file each step.

    The line reaches the operating system before the reply leaves; it survives the death of the process.
    """

    def __init__(self, directory: Path) -> None:
        directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._directory = directory
        self._step = -1
        self._fd: int | None = None

    def write(self, step: int, key: str, number: int, call: CapturedCall, text: CallText | None = None) -> None:
        """Append one call, whole or not at all. `text`: what it said. Raises `OSError` when it cannot be written."""
        if step != self._step or self._fd is None:
            self._drop()
            path = self._directory / f"calls-{step:06d}.jsonl"
            self._fd, self._step = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600), step
            _end_torn_line(self._fd)
        record = {"trial": key, "call": number, "ts": time.time(), **msgspec.structs.asdict(call)}
        if text is not None:
            record |= msgspec.structs.asdict(text)
        line = msgspec.json.encode(record) + b"\n"
        size = os.fstat(self._fd).st_size
        view = memoryview(line)
        try:
            while view:
                view = view[os.write(self._fd, view) :]
        except OSError:
            with contextlib.suppress(OSError):
                os.ftruncate(self._fd, size)
            raise

    async def sync(self) -> None:
        """Force what was written to the disk, off the loop. Raises `CaptureError` when the disk refuses."""
        if self._fd is None:
            return
        fd = os.dup(self._fd)  # the file may be left for the next step's meanwhile
        try:
            await asyncio.to_thread(os.fsync, fd)
        except OSError as error:
            raise CaptureError(
                f"{self._directory}: captured calls cannot be put on the disk ({error.strerror}); "
                "make room, then resume the run"
            ) from error
        finally:
            os.close(fd)

    async def close(self) -> None:
        """Sync and close the current file. Raises `CaptureError`."""
        try:
            await self.sync()
        finally:
            self._drop()

    def _drop(self) -> None:
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None


def _end_torn_line(fd: int) -> None:
    """A file of an engine that was killed may end in the middle of a line: what follows begins a new one."""
    size = os.fstat(fd).st_size
    if size and os.pread(fd, 1, size - 1) != b"\n":
        os.write(fd, b"\n")
