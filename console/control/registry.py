"""Which runs this user has: one line each in the state directory, judged by their journals and by live processes.

A process is the engine only if its start time also matches: process ids are used again.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import socket as sockets
import time
from pathlib import Path

import msgspec
import platformdirs
import psutil

from console.control.binding import PATH_LIMIT, ensure_private_dir
from console.control.client import greet
from console.errors import ControlError

STATE_DIR_VARIABLE = "QUARTERDECK_STATE_DIR"
START_TOLERANCE = 2.0
"""Seconds by which a process' start time may seem to move when the clock is set."""
FOREIGN_FRESH = 60.0
"""A run of another host counts as live while its journal was written within so many seconds."""

_FILE = "runs.jsonl"


class RunEntry(msgspec.Struct, kw_only=True, omit_defaults=True):
    """A line of the registry. `started`, `pid_started`: Unix seconds; `host`: where `pid` means something."""

    v: int = 1
    run_id: str
    run_dir: str
    name: str = ""
    pid: int = 0
    pid_started: float | None = None
    host: str = ""
    socket: str | None = None
    started: float = 0.0


def state_dir() -> Path:
    """The user's state directory, private; `QUARTERDECK_STATE_DIR` overrides it. Raises `ControlError`."""
    override = os.environ.get(STATE_DIR_VARIABLE)
    path = Path(override).expanduser().absolute() if override else platformdirs.user_state_path("quarterdeck")
    return ensure_private_dir(path)


def socket_path(run_id: str) -> Path:
    """Where the run's engine listens; short enough for a unix socket, in a private directory that outlives a log-out.

    Raises:
        ControlError: no private directory can be made.
    """
    name = run_id if re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,60}", run_id) else _digest(run_id)
    path = state_dir() / "sockets" / f"{name}.sock"
    if len(os.fsencode(path)) > PATH_LIMIT:
        # Two state directories may hold runs of one name, so the whole path is the name here.
        path = Path("/tmp") / f"quarterdeck-{os.getuid()}" / f"{_digest(str(path))}.sock"
    ensure_private_dir(path.parent)
    return path


def register(
    run_id: str, run_dir: Path | str, name: str, pid: int, socket: Path | str | None, started: float
) -> RunEntry:
    """Add a run, or a new engine of a known run. Raises `ControlError` when the registry cannot be written."""
    entry = RunEntry(
        run_id=run_id, run_dir=os.path.abspath(run_dir), name=name, pid=pid, pid_started=process_started(pid),
        host=sockets.gethostname(), socket=None if socket is None else os.fspath(socket), started=started,
    )  # fmt: skip
    path = state_dir() / _FILE
    try:
        fd = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX)
            size = os.fstat(fd).st_size
            torn = size > 0 and os.pread(fd, 1, size - 1) != b"\n"
            os.write(fd, (b"\n" if torn else b"") + msgspec.json.encode(entry) + b"\n")
        finally:
            os.close(fd)
    except OSError as error:
        raise ControlError(f"the run registry {path} cannot be written: {error.strerror}") from None
    return entry


def entries() -> list[RunEntry]:
    """The newest line of each run, in order of registration; of the runs of one directory the last one.

    Unreadable lines are skipped.
    """
    try:
        data = (state_dir() / _FILE).read_bytes()
    except FileNotFoundError:
        return []
    except OSError as error:
        raise ControlError(f"the run registry in {state_dir()} cannot be read: {error.strerror}") from None
    newest: dict[str, RunEntry] = {}
    places: dict[str, str] = {}
    for line in data.splitlines():
        try:
            entry = msgspec.json.decode(line, type=RunEntry)
        except msgspec.DecodeError:
            continue
        newest.pop(entry.run_id, None)
        before = places.get(entry.run_dir)
        if before not in (None, entry.run_id) and before in newest and newest[before].run_dir == entry.run_dir:
            del newest[before]  # the directory was made anew; nothing is left of the run that it held
        newest[entry.run_id] = entry
        places[entry.run_dir] = entry.run_id
    return list(newest.values())


def process_started(pid: int) -> float | None:
    """When the process started, Unix seconds; None when there is none (a zombie is none)."""
    try:
        process = psutil.Process(pid)
        return None if process.status() == psutil.STATUS_ZOMBIE else process.create_time()
    except psutil.Error:
        return None


def engine_alive(entry: RunEntry) -> bool:
    """Whether the engine of the entry runs: its process by id and start time, or, in doubt, whoever answers its socket.

    A run of another host is judged by how fresh its journal is.
    """
    if entry.host and entry.host != sockets.gethostname():
        return _written_within(Path(entry.run_dir) / "journal", FOREIGN_FRESH)
    started = process_started(entry.pid) if entry.pid > 0 else None
    if started is None:
        return False
    if entry.pid_started is not None and abs(started - entry.pid_started) <= START_TOLERANCE:
        return True
    return _answers(entry)


def _answers(entry: RunEntry) -> bool:
    if entry.socket is None:
        return False
    try:
        hello = greet(entry.socket, run=entry.run_id)
    except ControlError:
        return False
    return hello.run_id == entry.run_id


def _written_within(directory: Path, seconds: float) -> bool:
    try:
        newest = max((entry.stat().st_mtime for entry in os.scandir(directory)), default=0.0)
    except OSError:
        return False
    return time.time() - newest <= seconds


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()[:24]
