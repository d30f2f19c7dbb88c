"""What the console costs on a terminal: time to the first paint, bytes and processor time.

Each console runs in a pseudo-terminal of its own and follows a real engine socket; the same machine, in the same run,
also shows what a minimal Textual app and a stock table with sparklines cost. `python benchmarks/viewer.py [--json]`
"""

from __future__ import annotations

import argparse
import asyncio
import fcntl
import os
import pty
import random
import select
import signal
import statistics
import struct
import subprocess
import sys
import tempfile
import termios
import time
from dataclasses import dataclass
from pathlib import Path

import psutil
from report import Beside, Figure, add_json_option, emit

ROOT = Path(__file__).resolve().parent.parent
COLUMNS, ROWS = 120, 40
GROUPS, SIZE, DIRTY, HERTZ = 8, 8, 8, 4
WARM_SECONDS = 2.5

ATTACH = "import sys; from console.tui.main import attach; sys.exit(attach(sys.argv[1], run_dir=sys.argv[2]))"
MINIMAL = """
from textual.app import App
from textual.widgets import Static
class Minimal(App):
    def compose(self):
        yield Static("PAINTED Groups")
Minimal().run(mouse=False)
"""
STOCK = f"""
import random
from textual.app import App
from textual.containers import Horizontal
from textual.widgets import DataTable, Sparkline, Static
rnd = random.Random(7)
class Stock(App):
    CSS = "#top {{ height: 6; }} Sparkline {{ width: 1fr; height: 4; margin: 0 1; }} DataTable {{ height: 1fr; }}"
    def compose(self):
        yield Static("PAINTED Groups")
        with Horizontal(id="top"):
            for i in range(4):
                yield Sparkline([rnd.random() for _ in range(60)], id=f"s{{i}}")
        yield DataTable(cursor_type="row")
    def on_mount(self):
        table = self.query_one(DataTable)
        names = ("id", "group", "task", "state", "turn", "tokens", "elapsed", "reward")
        self.columns = table.add_columns(*names)
        self.cells = [[f"t{{i}}", f"g{{i // 8}}", "a-task", "agent", 0, 0, 0.0, "--"] for i in range({GROUPS * SIZE})]
        for i, row in enumerate(self.cells):
            table.add_row(*map(str, row), key=str(i))
        self.set_interval(1 / {HERTZ}, self.tick)
    def tick(self):
        table = self.query_one(DataTable)
        for i in rnd.sample(range({GROUPS * SIZE}), {DIRTY}):
            row = self.cells[i]
            row[4] += 1; row[5] += rnd.randint(50, 900); row[6] += 0.25
            for column in (4, 5, 6):
                table.update_cell(str(i), self.columns[column], str(row[column]))
        for i in range(4):
            spark = self.query_one(f"#s{{i}}", Sparkline)
            spark.data = [*spark.data[1:], rnd.random()]
Stock().run(mouse=False)
"""


@dataclass
class Cost:
    """Of one console: seconds to its first paint, then bytes a second, share of a core, resident bytes."""

    first_paint: float
    bytes_per_second: float = 0.0
    cpu: float = 0.0
    rss: int = 0


def run_on_pty(command: list[str], seconds: float) -> Cost:
    """Start it, wait for the word `Groups`, warm up, then watch it for `seconds` (0: only the first paint)."""
    environment = {**os.environ, "TERM": "xterm-256color", "COLORTERM": "truecolor", "LANG": "C.UTF-8"}
    for name in ("NO_COLOR", "LC_ALL"):
        environment.pop(name, None)
    began = time.perf_counter()
    pid, fd = pty.fork()
    if pid == 0:
        os.chdir(ROOT)
        os.execvpe(command[0], command, environment)
    fcntl.ioctl(fd, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
    try:
        seen, first = bytearray(), None
        while first is None:
            if time.perf_counter() - began > 60:
                raise TimeoutError(f"no first paint of {command[2][:60]!r}")
            seen += _read(fd, 0.05)
            if b"Groups" in seen:
                first = time.perf_counter() - began
        cost = Cost(first)
        if seconds:
            _drain(fd, WARM_SECONDS)
            process = psutil.Process(pid)
            before, start = process.cpu_times(), time.perf_counter()
            size = _drain(fd, seconds)
            after, span = process.cpu_times(), time.perf_counter() - start
            cost.bytes_per_second = size / span
            cost.cpu = (after.user + after.system - before.user - before.system) / span
            cost.rss = process.memory_info().rss
        return cost
    finally:
        os.kill(pid, signal.SIGTERM)
        end = time.monotonic() + 5
        while os.waitpid(pid, os.WNOHANG)[0] == 0:
            _read(fd, 0.05)
            if time.monotonic() > end:
                os.kill(pid, signal.SIGKILL)
        os.close(fd)


def _read(fd: int, wait: float) -> bytes:
    ready, _, _ = select.select([fd], [], [], wait)
    if not ready:
        return b""
    try:
        data = os.read(fd, 65536)
    except OSError:
        return b""
    if b"\x1b[?2026$p" in data:
        os.write(fd, b"\x1b[?2026;2$y")
    return data


def _drain(fd: int, seconds: float) -> int:
    end, size = time.perf_counter() + seconds, 0
    while (left := end - time.perf_counter()) > 0:
        size += len(_read(fd, min(left, 0.1)))
    return size


async def engine(run_dir: Path, socket: Path, busy: bool) -> None:
    """An engine with 64 trials at work; `busy`: eight of them finish a model call at each tick, four times a second."""
    from console.control.audit import AuditLog
    from console.control.dispatch import CommandDispatcher
    from console.control.past import PastLines
    from console.control.server import ControlServer
    from console.journal import events as ev
    from console.journal.writer import JournalWriter
    from console.state.model import encode_state
    from console.state.reduce import RunView, apply

    class Refuses:
        """Takes no commands."""

        def describe(self, command: object) -> tuple[bool, str]:
            return False, "this engine takes no commands"

        async def execute(self, command: object) -> tuple[bool, str]:
            return False, "this engine takes no commands"

    view = RunView()
    writer = JournalWriter(run_dir / "journal", snapshot=lambda: (encode_state(view.state), view.state.steps_done))
    audit = AuditLog(run_dir / "audit.jsonl")
    dispatcher = CommandDispatcher(writer.append, audit, Refuses())
    writer.subscribe(lambda line, event: apply(view, event))
    server = ControlServer(
        socket, run_id="bench", run_dir=run_dir, view=lambda: view, past=PastLines(run_dir / "journal"),
        dispatcher=dispatcher,
    )  # fmt: skip
    writer.subscribe(server.publish)
    await server.start()
    add, rnd = writer.append, random.Random(7)
    add(
        ev.RunStarted(run_id="bench", name="bench", pid=os.getpid(), steps=50, groups_per_batch=GROUPS, group_size=SIZE)
    )
    for step in range(12):
        add(ev.StepFinished(step=step, reward_mean=0.4 + step / 30, ppo_loss=5.0 / (step + 1), groups_kept=GROUPS,
                            entropy=0.5, kl_sample_train_v1=0.002, clip_fraction=0.01, seconds_total=40.0))  # fmt: skip
    add(ev.StepStarted(step=12, groups=GROUPS, policy_version=12))
    for group in range(GROUPS):
        add(ev.GroupStarted(step=12, group=group, task=f"task-number-{group}", size=SIZE))
        for trial in range(SIZE):
            add(ev.TrialPhase(step=12, group=group, trial=trial, phase="agent"))
    os.write(1, b"ready\n")
    turns, sampled, tick = [0] * (GROUPS * SIZE), 0, 0
    while True:
        await asyncio.sleep(1 / HERTZ)
        if not busy:
            continue
        tick += 1
        for i in rnd.sample(range(GROUPS * SIZE), DIRTY):
            turns[i] += 1
            said = rnd.randint(50, 900)
            sampled += said
            add(
                ev.TrialTurn(
                    step=12, group=i // SIZE, trial=i % SIZE, turn=turns[i], prompt_tokens=900, sampled_tokens=said
                )
            )
        if tick % HERTZ == 0:
            add(ev.CaptureStats(calls=sum(turns), prompt_tokens=900 * sum(turns), sampled_tokens=sampled, inflight=40))
            add(ev.GatewayHealth(reachable=True, latency_ms=rnd.uniform(20, 60), queued=rnd.randrange(5), running=32))


class Engine:
    """The engine above as a process."""

    def __init__(self, busy: bool) -> None:
        self._home = tempfile.TemporaryDirectory(prefix="qd-bench-")
        self.run_dir, self.socket = Path(self._home.name) / "run", Path(self._home.name) / "s"
        self.run_dir.mkdir()
        self._process = subprocess.Popen(
            [sys.executable, __file__, "--engine", str(self.run_dir), str(self.socket), *(["--busy"] if busy else [])],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, cwd=ROOT,
        )  # fmt: skip
        assert self._process.stdout is not None
        if self._process.stdout.readline() != b"ready\n":
            raise RuntimeError("the engine did not start")

    @property
    def attach(self) -> list[str]:
        """The console on it."""
        return [sys.executable, "-c", ATTACH, str(self.socket), str(self.run_dir)]

    def __enter__(self) -> Engine:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()
        self._home.cleanup()


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    add_json_option(parser)
    parser.add_argument("--seconds", type=float, default=10.0, help="how long each console is watched")
    parser.add_argument("--starts", type=int, default=5, help="how often each is started for the first paint")
    parser.add_argument("--engine", nargs=2, metavar=("RUN_DIR", "SOCKET"), help=argparse.SUPPRESS)
    parser.add_argument("--busy", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.engine:
        asyncio.run(engine(Path(args.engine[0]), Path(args.engine[1]), args.busy))
        return
    minimal = [sys.executable, "-c", MINIMAL]
    with Engine(busy=True) as live:
        ours, theirs = [], []
        for _ in range(args.starts):
            theirs.append(run_on_pty(minimal, 0).first_paint)
            ours.append(run_on_pty(live.attach, 0).first_paint)
        busy = run_on_pty(live.attach, args.seconds)
    stock = run_on_pty([sys.executable, "-c", STOCK], args.seconds)
    with Engine(busy=False) as quiet:
        idle = run_on_pty(quiet.attach, args.seconds)
    first, floor = statistics.median(ours), statistics.median(theirs)
    trials = f"{GROUPS * SIZE} trials, {DIRTY} dirty a tick, {HERTZ} Hz, {COLUMNS}x{ROWS}"
    emit(
        [
            Figure("first paint beyond a minimal Textual app", first - floor, "s", target=0.4),
            Figure("first paint", first, "s", beside=Beside("minimal Textual app", floor)),
            Figure(f"bytes, {trials}", busy.bytes_per_second / 1000, "KB/s", target=15.0,
                   beside=Beside("DataTable and Sparkline", stock.bytes_per_second / 1000)),
            Figure(f"processor, {trials}", busy.cpu * 100, "%", target=5.0,
                   beside=Beside("DataTable and Sparkline", stock.cpu * 100)),
            Figure("memory", busy.rss / 1e6, "MB", target=80.0,
                   beside=Beside("DataTable and Sparkline", stock.rss / 1e6)),
            Figure("bytes, idle run", idle.bytes_per_second / 1000, "KB/s", target=0.5),
            Figure("processor, idle run", idle.cpu * 100, "%", target=1.0),
        ],
        as_json=args.json,
    )  # fmt: skip


if __name__ == "__main__":
    main()
