"""A console in a real pseudo-terminal, read by a terminal emulator."""

from __future__ import annotations

import fcntl
import importlib.util
import os
import pty
import select
import signal
import struct
import sys
import termios
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pyte
import pytest

ROOT = Path(__file__).resolve().parents[2]
PROBE = b"\x1b[?2026$p"


class Terminal:
    """A process on a pty.

    Attributes:
        raw: every byte it wrote; screen: what a terminal would show.
    """

    def __init__(
        self, command: list[str], columns: int = 80, rows: int = 24, env: dict[str, str] | None = None
    ) -> None:
        environment = {**os.environ, "TERM": "xterm-256color", "COLORTERM": "truecolor", "LANG": "C.UTF-8", "TZ": "UTC"}
        for name in ("NO_COLOR", "LC_ALL", "LC_CTYPE"):
            environment.pop(name, None)
        environment.update(env or {})
        self.screen = pyte.Screen(columns, rows)
        self._stream = pyte.ByteStream(self.screen)
        self.raw = bytearray()
        self.status: int | None = None
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.chdir(ROOT)
            os.execvpe(command[0], command, environment)
        self.resize(columns, rows)

    def resize(self, columns: int, rows: int) -> None:
        self.screen.resize(rows, columns)
        fcntl.ioctl(self.fd, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def pump(self, seconds: float) -> int:
        """Read for so long; the number of bytes that came."""
        before, end = len(self.raw), time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0 and self.status is None:
            ready, _, _ = select.select([self.fd], [], [], min(left, 0.05))
            if not ready:
                self._reap()
                continue
            try:
                data = os.read(self.fd, 65536)
            except OSError:
                data = b""
            if not data:
                self._reap(wait=True)
                break
            if PROBE in data:
                os.write(self.fd, b"\x1b[?2026;2$y")
            self.raw += data
            self._stream.feed(data)
        return len(self.raw) - before

    def until(self, condition: Callable[[], bool], seconds: float = 20.0) -> None:
        end = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < end and self.status is None, f"status {self.status}\n{self.text}"
            self.pump(0.05)

    def see(self, text: str) -> None:
        self.until(lambda: text in self.text)

    def press(self, keys: str) -> None:
        os.write(self.fd, keys.encode())

    def signal(self, number: int) -> None:
        os.kill(self.pid, number)

    def ends(self, seconds: float = 15.0) -> int:
        """The exit status, once it has ended."""
        end = time.monotonic() + seconds
        while self.status is None and time.monotonic() < end:
            self.pump(0.1)
        assert self.status is not None, self.text
        return self.status

    @property
    def text(self) -> str:
        return "\n".join(self.screen.display)

    @property
    def restored(self) -> bool:
        """Whether the alternate screen was left, the cursor shown, and line editing and echo are on again."""
        flags = termios.tcgetattr(self.fd)[3]
        out = bytes(self.raw)
        left = out.rfind(b"\x1b[?1049l") > out.rfind(b"\x1b[?1049h")
        cursor = out.rfind(b"\x1b[?25h") > out.rfind(b"\x1b[?25l")
        return left and cursor and bool(flags & termios.ICANON) and bool(flags & termios.ECHO)

    def close(self) -> None:
        if self.status is None:
            os.kill(self.pid, signal.SIGKILL)
            self._reap(wait=True)
        os.close(self.fd)

    def _reap(self, wait: bool = False) -> None:
        pid, status = os.waitpid(self.pid, 0 if wait else os.WNOHANG)
        if pid:
            self.status = os.waitstatus_to_exitcode(status)


@pytest.fixture
def terminal() -> Iterator[Callable[..., Terminal]]:
    """Opens terminals and closes them after the test."""
    opened: list[Terminal] = []

    def make(code: str, *arguments: str, **options) -> Terminal:
        opened.append(Terminal([sys.executable, "-c", code, *arguments], **options))
        return opened[-1]

    yield make
    for one in opened:
        one.close()


@pytest.fixture(scope="session")
def pty_recording(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A short finished run."""
    spec = importlib.util.spec_from_file_location("quarterdeck_recordings", ROOT / "tests" / "recordings" / "make.py")
    assert spec is not None and spec.loader is not None
    module = sys.modules.get("quarterdeck_recordings")
    if module is None:
        module = importlib.util.module_from_spec(spec)
        sys.modules["quarterdeck_recordings"] = module
        spec.loader.exec_module(module)
    path = tmp_path_factory.mktemp("pty") / "demo"
    module.make(path, module.Plan(steps=6, held_step=3))
    return path
