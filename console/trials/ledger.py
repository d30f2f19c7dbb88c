"""Writing the sandbox ledger: a record is on the disk before what it announces, and the event loop does not wait.

A thread writes what has come together and syncs once for all of it, so that trials that start at one time share the
disk's answer. Several processes append to one ledger: each record is one write to a file opened with O_APPEND.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import queue
import socket
import threading
import time
from pathlib import Path

from console.errors import QuarterdeckError
from console.records.sandbox_ledger import Record, encode
from console.trials.roots import start_ticks

_LINGER = 0.002
"""Seconds that the first record of a group waits for others; the disk's own time gathers the rest."""


class LedgerError(QuarterdeckError):
    """The ledger cannot be written; what it would have announced must not be done."""


def process_name(pid: int) -> str:
    """A process of this machine, as the ledger names it: `<pid>-<start ticks>`, empty when there is none."""
    ticks = start_ticks(pid)
    return "" if ticks is None else f"{pid}-{ticks}"


def is_alive(process: str) -> bool:
    """Whether a process of the ledger, of this machine and since its start, still runs."""
    pid, _, ticks = process.partition("-")
    return pid.isdigit() and ticks.isdigit() and start_ticks(int(pid)) == int(ticks)


def this_boot() -> str:
    """The kernel's name for the time since the machine started, empty where it has none."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


def this_host() -> str:
    """The machine's name."""
    return socket.gethostname()


def append(path: Path, *records: Record) -> None:
    """Write records from a thread that may wait; on the disk on return. Raises LedgerError."""
    if not records:
        return
    file = _File(path)
    try:
        file.write([encode(record) for record in records])
    finally:
        file.close()


class _File:
    """An open ledger. A line that was torn by a full disk is ended before the next one."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._fd = -1
        self._torn = False

    def write(self, lines: list[bytes]) -> None:
        """One write a line, then one sync. Raises LedgerError."""
        try:
            if self._fd < 0:
                self._open()
            for line in lines:
                whole = b"\n" + line if self._torn else line
                self._torn = True
                if os.write(self._fd, whole) != len(whole):
                    raise OSError(28, "No space left on device")
                self._torn = False
            os.fdatasync(self._fd)
        except OSError as error:
            raise LedgerError(f"the sandbox ledger {self._path} cannot be written: {error.strerror}") from error

    def _open(self) -> None:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        new = not self._path.exists()
        flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        self._fd = os.open(self._path, flags, 0o600)
        size = os.fstat(self._fd).st_size
        self._torn = size > 0 and os.pread(self._fd, 1, size - 1) != b"\n"
        if new:
            directory = os.open(self._path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                os.fsync(directory)
            finally:
                os.close(directory)

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


class LedgerWriter:
    """The ledger of one process; its methods belong to one event loop.

    Args:
        path: the ledger file; it and its directory are made with the first record.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._queue: queue.SimpleQueue[tuple[bytes, asyncio.Future[None]] | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None

    async def write(self, record: Record) -> None:
        """Returns once the record is on the disk. A cancelled call may have written it.

        Raises:
            LedgerError: it is not, or not surely.
        """
        loop = asyncio.get_running_loop()
        if self._thread is None:
            self._thread = threading.Thread(target=self._serve, args=(loop,), name="sandbox-ledger", daemon=True)
            self._thread.start()
        done: asyncio.Future[None] = loop.create_future()
        self._queue.put((encode(record), done))
        await done

    def close(self) -> None:
        """After the last record. Idempotent."""
        if self._thread is not None:
            self._queue.put(None)
            self._thread.join()
            self._thread = None

    def _serve(self, loop: asyncio.AbstractEventLoop) -> None:
        file = _File(self.path)
        ending = False
        while not ending:
            group = [self._queue.get()]
            if group[0] is not None:
                time.sleep(_LINGER)
            with contextlib.suppress(queue.Empty):
                while True:
                    group.append(self._queue.get_nowait())
            ending = None in group
            items = [item for item in group if item is not None]
            error: LedgerError | None = None
            try:
                if items:
                    file.write([line for line, _ in items])
            except LedgerError as failed:
                error = failed
            with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits
                loop.call_soon_threadsafe(_tell, [done for _, done in items], error)
        file.close()


def _tell(waiting: list[asyncio.Future[None]], error: LedgerError | None) -> None:
    for done in waiting:
        if done.done():
            continue
        if error is None:
            done.set_result(None)
        else:
            done.set_exception(error)
