"""Processes in pseudo-terminals of their own: what they write, when, what they show, and what they cost."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import select
import signal
import struct
import termios
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

ROOT = Path(__file__).resolve().parent.parent
_SYNC_ASKED, _SYNC_KNOWN = b"\x1b[?2026$p", b"\x1b[?2026;2$y"


@dataclass
class Cost:
    """Of one process for a while: bytes a second to its terminal, share of a core, resident bytes at the end."""

    bytes_per_second: float
    cpu: float
    rss: int


def cpu_seconds(pid: int) -> float:
    """Processor seconds of a process so far, to the nanosecond (`psutil` counts ticks of 10 ms)."""
    total = 0
    for task in Path(f"/proc/{pid}/task").iterdir():
        try:
            total += int((task / "schedstat").read_bytes().split()[0])
        except OSError:
            continue  # a thread that has ended just now
    return total / 1e9


def rss(pid: int) -> int:
    """Resident bytes of a process."""
    return int(psutil.Process(pid).memory_info().rss)


class Terminal:
    """A program on a terminal of `columns` x `rows`.

    Attributes:
        began: when it was started, `time.perf_counter()`; size: bytes that it has written.
        screen: with `emulate` what the terminal shows (`pyte`), else None.
    """

    def __init__(self, command: Sequence[str], columns: int = 120, rows: int = 40, emulate: bool = False) -> None:
        environment = {**os.environ, "TERM": "xterm-256color", "COLORTERM": "truecolor", "LANG": "C.UTF-8"}
        for name in ("NO_COLOR", "LC_ALL", "LC_CTYPE"):
            environment.pop(name, None)
        self.size = 0
        self._seen = bytearray()
        self.screen = None
        if emulate:
            import pyte

            self.screen = pyte.Screen(columns, rows)
            self._stream = pyte.ByteStream(self.screen)
        self.began = time.perf_counter()
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.chdir(ROOT)
            os.execvpe(command[0], list(command), environment)
        fcntl.ioctl(self.fd, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def read(self, wait: float) -> tuple[int, float]:
        """Take what it writes within `wait` seconds, one piece: how many bytes, and when they came."""
        ready, _, _ = select.select([self.fd], [], [], wait)
        if not ready:
            return 0, time.perf_counter()
        try:
            data = os.read(self.fd, 1 << 16)
        except OSError as error:
            raise RuntimeError(f"the console has ended:\n{self.text}") from error
        came = time.perf_counter()
        if _SYNC_ASKED in data:
            os.write(self.fd, _SYNC_KNOWN)
        self.size += len(data)
        if self.screen is not None:
            self._stream.feed(data)
        else:
            self._seen = (self._seen + data)[-(1 << 20) :]
        return len(data), came

    def drain(self, seconds: float) -> int:
        """Take everything for a while; how many bytes."""
        before, end = self.size, time.perf_counter() + seconds
        while (left := end - time.perf_counter()) > 0:
            self.read(min(left, 0.1))
        return self.size - before

    def quiet(self, seconds: float = 0.03, at_most: float = 2.0) -> None:
        """Wait until it has written nothing for `seconds`."""
        end = time.perf_counter() + at_most
        while time.perf_counter() < end and self.read(seconds)[0]:
            pass

    def until(self, shown: Callable[[], bool], seconds: float = 60.0) -> float:
        """Wait until `shown` is true of what was written; when the bytes came that made it so."""
        end, came = time.perf_counter() + seconds, time.perf_counter()
        while not shown():
            if time.perf_counter() > end:
                raise TimeoutError(f"the console does not show it:\n{self.text}")
            size, now = self.read(0.05)
            came = now if size else came
        return came

    def until_text(self, text: str, seconds: float = 60.0) -> float:
        """Wait for a text; when its bytes came."""
        data = text.encode()
        return self.until(
            (lambda: text in self.text) if self.screen is not None else (lambda: data in self._seen), seconds
        )

    def press(self, keys: str) -> float:
        """Type; when it was typed."""
        os.write(self.fd, keys.encode())
        return time.perf_counter()

    @property
    def text(self) -> str:
        """What the screen shows, or without one what was written last."""
        return "\n".join(self.screen.display) if self.screen is not None else self._seen.decode(errors="replace")

    @property
    def rss(self) -> int:
        """Resident bytes now."""
        return rss(self.pid)

    def close(self) -> None:
        """End the program, in order if it will."""
        os.kill(self.pid, signal.SIGTERM)
        end = time.monotonic() + 5
        while os.waitpid(self.pid, os.WNOHANG)[0] == 0:
            with contextlib.suppress(RuntimeError):
                self.read(0.05)
            if time.monotonic() > end:
                os.kill(self.pid, signal.SIGKILL)
        os.close(self.fd)

    def __enter__(self) -> Terminal:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def watch(terminals: Sequence[Terminal], seconds: float, warm: float = 2.5) -> list[Cost]:
    """What each of some running programs costs over the same `seconds`, after `warm` seconds."""
    _drain_all(terminals, warm)
    before = [(terminal.size, cpu_seconds(terminal.pid)) for terminal in terminals]
    start = time.perf_counter()
    _drain_all(terminals, seconds)
    span = time.perf_counter() - start
    return [
        Cost((terminal.size - size) / span, (cpu_seconds(terminal.pid) - cpu) / span, terminal.rss)
        for terminal, (size, cpu) in zip(terminals, before, strict=True)
    ]


def _drain_all(terminals: Sequence[Terminal], seconds: float) -> None:
    end, by_fd = time.perf_counter() + seconds, {terminal.fd: terminal for terminal in terminals}
    while (left := end - time.perf_counter()) > 0:
        for fd in select.select(list(by_fd), [], [], min(left, 0.1))[0]:
            by_fd[fd].read(0)
