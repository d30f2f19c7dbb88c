"""A console in a real pseudo-terminal, read by a terminal emulator and by a strict reader of its bytes."""

from __future__ import annotations

import codecs
import fcntl
import importlib.util
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import tempfile
import termios
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import NamedTuple
from unicodedata import combining

import psutil
import pyte
import pytest
from wcwidth import wcwidth

sys.path.insert(0, str(Path(__file__).resolve().parent))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "control"))

import terminal_bytes

ROOT = Path(__file__).resolve().parents[2]
PROBE = b"\x1b[?2026$p"
_INCOMPLETE = re.compile(
    rb"(?:\x1b(?:\[[<=>?]?[0-9;]*[ -/]*|\][^\x07]*)?|[\xc2-\xdf]|[\xe0-\xef][\x80-\xbf]?|[\xf0-\xf4][\x80-\xbf]{0,2})$"
)
ENGINE = ROOT / "tests" / "control" / "small_engine.py"


class Terminal:
    """A process on a pty.

    Attributes:
        raw: every byte it wrote; screen: what a terminal would show; status: how it ended, None while it runs.
        bells, clipboards, palette: what `terminal_bytes.read` lets pass when the test is over.
    """

    def __init__(
        self, command: list[str], columns: int = 80, rows: int = 24, env: dict[str, str] | None = None
    ) -> None:
        environment = {**os.environ, "TERM": "xterm-256color", "COLORTERM": "truecolor", "LANG": "C.UTF-8", "TZ": "UTC"}
        for name in ("NO_COLOR", "LC_ALL", "LC_CTYPE"):
            environment.pop(name, None)
        environment.update(env or {})
        self.screen = pyte.Screen(columns, rows)
        self._stream = pyte.Stream(self.screen)
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self.raw = bytearray()
        self.status: int | None = None
        self.bells = self.clipboards = 0
        self.palette = False
        self._largest = [columns, rows]
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.chdir(ROOT)
            os.execvpe(command[0], command, environment)
        self._attributes = termios.tcgetattr(self.fd)
        self._modes = set(self.screen.mode)
        self.resize(columns, rows)

    # --- the terminal's side ---

    def resize(self, columns: int, rows: int) -> None:
        self._largest = [max(columns, self._largest[0]), max(rows, self._largest[1])]
        self.screen.resize(rows, columns)
        fcntl.ioctl(self.fd, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def pump(self, seconds: float) -> int:
        """Read for so long; the number of bytes that came."""
        before, end = len(self.raw), time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0 and self.status is None:
            if not self._read(min(left, 0.05)):
                self.reap()
        return len(self.raw) - before

    def settle(self, quiet: float = 0.025, at_most: float = 0.2, came: bool = False) -> None:
        """Read until something came and then nothing for `quiet` seconds; `came`: it has come already."""
        end = time.monotonic() + at_most
        while (now := time.monotonic()) < end and self.status is None:
            if self._read(quiet if came else end - now):
                came = True
            elif came:
                return

    def _read(self, wait: float) -> bool:
        """Read once; whether anything came."""
        ready, _, _ = select.select([self.fd], [], [], max(0.0, wait))
        if not ready:
            return False
        try:
            data = os.read(self.fd, 65536)
        except OSError:
            data = b""
        if not data:
            self.reap(wait=True)
            return False
        if PROBE in data:
            os.write(self.fd, b"\x1b[?2026;2$y")
        self.raw += data
        text = self._decoder.decode(data)
        # The emulator takes a mark of combining class 0 for the end of the text.
        self._stream.feed(text if text.isascii() else "".join(c for c in text if wcwidth(c) or combining(c)))
        return True

    def until(self, condition: Callable[[], bool], seconds: float = 40.0) -> None:
        end = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < end and self.status is None, f"status {self.status}\n{self.text}"
            self.pump(0.05)

    def see(self, *texts: str) -> None:
        self.until(lambda: all(text in self.text for text in texts))

    def press(self, keys: str) -> None:
        os.write(self.fd, keys.encode("utf-8", "surrogateescape"))

    def paste(self, text: str) -> None:
        """As a terminal does that brackets what is pasted."""
        self.press(f"\x1b[200~{text}\x1b[201~")

    def signal(self, number: int) -> None:
        os.kill(self.pid, number)

    def repaint(self) -> None:
        """Have the whole screen painted anew: the console takes the terminal again when it is continued."""
        before = self.raw.count(b"\x1b[?1049h")
        self.signal(signal.SIGCONT)
        self.until(lambda: self.raw.count(b"\x1b[?1049h") > before)
        self.settle(quiet=0.2, at_most=2.0, came=True)

    def drop(self) -> None:
        """The line drops: nobody is at the other end any more."""
        os.close(self.fd)
        self.fd = os.open(os.devnull, os.O_RDONLY)

    def ends(self, seconds: float = 15.0) -> int:
        """The exit status, once it has ended."""
        end = time.monotonic() + seconds
        while self.status is None and time.monotonic() < end:
            if os.isatty(self.fd):
                self.pump(0.1)
            else:
                time.sleep(0.05)
                self.reap()
        assert self.status is not None, self.text
        return self.status

    def busy(self, seconds: float) -> float:
        """The share of a core that the process takes; nothing is read meanwhile."""
        process = psutil.Process(self.pid)
        before = sum(process.cpu_times()[:2])
        time.sleep(seconds)
        return (sum(process.cpu_times()[:2]) - before) / seconds

    # --- what can be seen ---

    @property
    def lines(self) -> list[str]:
        # Not the emulator's own `display`, which fails on half of a wide character.
        rows = (self.screen.buffer[y] for y in range(self.screen.lines))
        return ["".join(row[x].data for x in range(self.screen.columns)) for row in rows]

    @property
    def text(self) -> str:
        return "\n".join(self.lines)

    @property
    def damage(self) -> dict[str, object]:
        """What of the terminal is not as it was before; empty when everything is."""
        after, before, written = termios.tcgetattr(self.fd), self._attributes, self.written()
        found: dict[str, object] = {
            "line discipline": [pair for pair in zip(before, after) if pair[0] != pair[1]],
            "modes": {mode: on for mode, on in written.modes.items() if on != terminal_bytes.MODES[mode]},
            "emulator": self.screen.mode ^ self._modes,
            "title": self.screen.title + self.screen.icon_name,
            "keyboard flags pushed": written.keyboards,
            "pen": written.pen,
        }
        return {name: value for name, value in found.items() if value}

    @property
    def said(self) -> str:
        """What was written after the alternate screen was left."""
        return self.raw.decode(errors="replace").rpartition("\x1b[?1004l")[2].strip()

    def written(self) -> terminal_bytes.Terminal:
        """What the bytes did. Raises `Intruder` when some are not the console's own."""
        columns, rows = self._largest
        return terminal_bytes.read(
            self.whole(), columns, rows, bells=self.bells, clipboards=self.clipboards, palette=self.palette
        )

    def whole(self) -> bytes:
        """The output, without a sequence or a character at its end that is not complete yet."""
        return _INCOMPLETE.sub(b"", bytes(self.raw))

    def close(self) -> None:
        if self.status is None:
            os.kill(self.pid, signal.SIGKILL)
            self.reap(wait=True)
        os.close(self.fd)

    def reap(self, wait: bool = False) -> None:
        if self.status is not None:
            return
        pid, status = os.waitpid(self.pid, 0 if wait else os.WNOHANG)
        if pid:
            self.status = os.waitstatus_to_exitcode(status)


@pytest.fixture
def terminal() -> Iterator[Callable[..., Terminal]]:
    """Opens terminals; after the test they are closed, and every byte that came must be the console's own."""
    opened: list[Terminal] = []

    def make(code: str, *arguments: str, **options) -> Terminal:
        opened.append(Terminal([sys.executable, "-c", code, *arguments], **options))
        return opened[-1]

    yield make
    for one in opened:
        one.close()
    for one in opened:
        one.written()


def load(name: str, path: Path) -> ModuleType:
    """A module by its file, once."""
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, path)
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        spec.loader.exec_module(module)
    return sys.modules[name]


@pytest.fixture(scope="session")
def pty_recording(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A short finished run."""
    module = load("quarterdeck_recordings", ROOT / "tests" / "recordings" / "make.py")
    path = tmp_path_factory.mktemp("pty") / "demo"
    module.make(path, module.Plan(steps=6, held_step=3))
    return path


class LiveRun(NamedTuple):
    """The engine of a run, a process of its own."""

    process: subprocess.Popen[bytes]
    socket: Path
    run_dir: Path


@pytest.fixture
def start_engine(tmp_path: Path) -> Iterator[Callable[..., LiveRun]]:
    """Starts engines; `program` is one like `small_engine.py`."""
    with tempfile.TemporaryDirectory(prefix="qd-") as short:
        started: list[subprocess.Popen[bytes]] = []

        def start(*options: str, program: Path = ENGINE) -> LiveRun:
            number = len(started)
            socket, run_dir = Path(short) / f"{number}.sock", tmp_path / f"run-{number}"
            process = subprocess.Popen(
                [sys.executable, str(program), str(run_dir), str(socket), *options],
                stdout=subprocess.PIPE,
                stdin=subprocess.DEVNULL,
                cwd=ROOT,
                start_new_session=True,
            )
            started.append(process)
            assert process.stdout is not None and process.stdout.readline() == b"ready\n"
            return LiveRun(process, socket, run_dir)

        yield start
        for process in started:
            process.kill()
            process.wait()
            if process.stdout is not None:
                process.stdout.close()


@pytest.fixture
def live_engine(start_engine: Callable[..., LiveRun]) -> LiveRun:
    """One step every second."""
    return start_engine("--steps", "60", "--interval", "1")
