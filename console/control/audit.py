"""`audit.jsonl`: who asked for what, written and synced before it is done, and what came of it."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path

import msgspec

from console.control.commands import Command, CommandResult
from console.journal.events import Scalars


class AuditLine(msgspec.Struct, kw_only=True, omit_defaults=True):
    """One line.

    Attributes:
        stage: intent or result of a command, or watch (the lease to act passes; `text` says from whom to whom).
        peer: pid and uid that sent it; status, text: of the result.
    """

    v: int = 1
    ts: float
    stage: str
    id: str
    command: str
    args: Scalars = {}
    author: str = ""
    reason: str = ""
    peer: str = ""
    status: str = ""
    text: str = ""


class AuditLog:
    """Appends to the file; each line is on the disk when the method returns. Any thread may call."""

    def __init__(self, path: Path) -> None:
        """Open for appending, 0600. Raises `OSError`."""
        self._lock = threading.Lock()
        self._fd = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        size = os.fstat(self._fd).st_size
        if size and os.pread(self._fd, 1, size - 1) != b"\n":
            os.write(self._fd, b"\n")  # a crash tore the last line; the next one must not continue it

    def intent(self, command: Command, peer: str = "") -> None:
        """Before anything is done. Raises `OSError` when it cannot be written: then nothing may be done."""
        self._append("intent", command, peer)

    def result(self, command: Command, result: CommandResult, peer: str = "") -> None:
        """After it was done or refused."""
        self._append("result", command, peer, result.status, result.text)

    def watch(self, by: str, previous: str, peer: str = "") -> None:
        """Before the lease passes to `by` (empty: to nobody). Raises `OSError`: then it may not pass."""
        text = f"{previous or 'nobody'} -> {by or 'nobody'}"
        self._write(
            AuditLine(
                ts=time.time(), stage="watch", id="", command="watch", author=by or previous, peer=peer, text=text
            )
        )

    def close(self) -> None:
        """Close the file; further lines are an error."""
        with self._lock:
            fd, self._fd = self._fd, -1  # the number may soon be another file's
        if fd >= 0:
            os.close(fd)

    def _append(self, stage: str, command: Command, peer: str, status: str = "", text: str = "") -> None:
        self._write(
            AuditLine(
                ts=time.time(), stage=stage, id=command.id, command=command.command, args=command.args,
                author=command.author, reason=command.reason, peer=peer, status=status, text=text,
            )
        )  # fmt: skip

    def _write(self, line: AuditLine) -> None:
        data = msgspec.json.encode(line, order="deterministic") + b"\n"
        with self._lock:
            while data:
                data = data[os.write(self._fd, data) :]
            os.fsync(self._fd)


def read_audit(path: Path) -> list[AuditLine]:
    """All intact lines, oldest first; torn ones are skipped. Raises `OSError`."""
    lines = []
    for line in path.read_bytes().splitlines():
        try:
            lines.append(msgspec.json.decode(line, type=AuditLine))
        except msgspec.DecodeError:
            continue
    return lines
