"""A machine that sleeps, and a time of day that is set, as the engine notices them."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from console.engine import host
from console.engine.board import Board
from console.engine.clocks import Clocks, ClockWatch, RunClock, read_clocks
from console.engine.commands import EngineCommands
from console.engine.host import HostWatch
from console.journal import events as ev
from console.journal.reader import Journal
from console.tui.live import LiveSource


class Hands:
    """Clocks that a test sets."""

    def __init__(self) -> None:
        self.now = Clocks(100.0, 500.0, 1_800_000_000.0)

    def __call__(self) -> Clocks:
        return self.now

    def pass_(self, awake: float = 0.0, asleep: float = 0.0, set_by: float = 0.0) -> None:
        monotonic, boot, wall = self.now
        self.now = Clocks(monotonic + awake, boot + awake + asleep, wall + awake + asleep + set_by)


@pytest.mark.parametrize(
    ("passed", "told"),
    [
        ({"awake": 0.5}, None),
        ({"awake": 3600.0}, None),
        ({"awake": 0.5, "asleep": 0.9}, None),
        ({"awake": 0.5, "set_by": -0.9}, None),
        ({"awake": 0.5, "asleep": 28800.0}, (28800.0, 0.0)),
        ({"awake": 0.5, "set_by": 3600.0}, (0.0, 3600.0)),
        ({"awake": 0.5, "set_by": -86400.0}, (0.0, -86400.0)),
        ({"awake": 0.5, "asleep": 60.0, "set_by": -7.0}, (60.0, -7.0)),
    ],
)
def test_each_jump_is_told_once(passed: dict[str, float], told: tuple[float, float] | None) -> None:
    hands = Hands()
    watch = ClockWatch(hands)
    hands.pass_(awake=0.5)
    assert watch.jump() is None
    hands.pass_(**passed)
    jump = watch.jump()
    assert (None if jump is None else (jump.slept, jump.stepped)) == told
    hands.pass_(awake=0.5)
    assert watch.jump() is None, "it is told once"
    hands.pass_(awake=0.5, asleep=2.0)
    again = watch.jump()
    assert again is not None and again.slept == 2.0, "the next one is told, too"


def test_real_clocks_that_are_read_a_thousand_times_do_not_jump() -> None:
    watch = ClockWatch()
    assert [watch.jump() for _ in range(1000)] == [None] * 1000
    first, second = read_clocks(), read_clocks()
    assert first.monotonic <= second.monotonic and first.boot <= second.boot


def test_a_machine_that_wakes_up_is_not_a_late_loop(tmp_path: Path) -> None:
    told: list[ev.Event] = []
    hands = Hands()
    watch = HostWatch(tmp_path, told.append, read=hands)
    hands.pass_(awake=4.0, asleep=900.0)
    watch.tick(late=3.5)
    assert [type(event) for event in told] == [ev.ClockJumped]
    watch.report(ev.HostStats(disk_free=1), 0.0)
    assert told[-1].loop_lag == 0.0
    hands.pass_(awake=4.0, set_by=50.0)
    watch.tick(late=3.5)
    watch.report(ev.HostStats(disk_free=1), 1000.0)
    assert told[-1].loop_lag == 3.5, "a time of day that was set is no excuse"


async def test_the_watch_looks_at_each_tick(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host, "TICK_SECONDS", 0.01)
    told: list[ev.Event] = []
    hands = Hands()
    watch = asyncio.create_task(HostWatch(tmp_path, told.append, read=hands).run())
    await asyncio.sleep(0.05)
    assert not told
    hands.pass_(asleep=60.0)
    for _ in range(500):
        await asyncio.sleep(0.01)
        if told:
            break
    await asyncio.sleep(0.05)
    watch.cancel()
    assert [(event.slept, event.stepped) for event in told] == [(60.0, 0.0)]


ASLEEP = """
    import asyncio, ctypes, json, os
    from pathlib import Path
    from console.engine import host

    host.TICK_SECONDS = 0.02
    libc = ctypes.CDLL(None, use_errno=True)
    told = []

    def checked(result):
        if result:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))

    async def main():
        watch = asyncio.create_task(host.HostWatch(Path("."), told.append).run())
        await asyncio.sleep(0.1)
        before = list(told)
        checked(libc.unshare(0x80))  # a new time namespace, in which the boot clock is an hour ahead
        Path("/proc/self/timens_offsets").write_text("boottime 3600 0")
        namespace = os.open("/proc/self/ns/time_for_children", os.O_RDONLY)
        checked(libc.setns(namespace, 0x80))
        for _ in range(500):
            await asyncio.sleep(0.02)
            if told:
                break
        await asyncio.sleep(0.1)
        watch.cancel()
        print(json.dumps([len(before), [[event.slept, event.stepped] for event in told]]))

    asyncio.run(main())
"""


def test_an_hour_of_sleep_as_the_kernels_clocks_show_it(tmp_path: Path) -> None:
    """A process enters a time namespace whose boot clock is an hour ahead: what a laptop's lid does to the clocks."""
    program = tmp_path / "asleep.py"
    program.write_text(textwrap.dedent(ASLEEP))
    done = subprocess.run(
        ["unshare", "--user", "--map-root-user", sys.executable, str(program)],
        capture_output=True, text=True, cwd=tmp_path, timeout=60,
        env=os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    before, told = json.loads(done.stdout)
    assert before == 0 and len(told) == 1
    assert told[0][0] == pytest.approx(3600.0, abs=1.0)
    # The namespace moves the boot clock alone, so that the time of day seems to be behind by as much.
    assert told[0][1] == pytest.approx(-3600.0, abs=1.0)


@pytest.mark.parametrize("set_by", [-18000.0, 18000.0])
def test_the_time_of_a_run_goes_on_whatever_the_time_of_day_does(set_by: float) -> None:
    hands = Hands()
    begun, clock = hands.now.wall, RunClock(read=hands)
    hands.pass_(awake=60.0, set_by=set_by)
    assert (clock.now() - begun, clock.ahead()) == (60.0, -set_by)
    hands.pass_(awake=5.0, asleep=3600.0)
    assert clock.now() - begun == 3665.0, "a sleeping machine's time passes"


def test_the_time_of_a_run_never_begins_before_its_last_event() -> None:
    hands = Hands()
    assert RunClock(hands.now.wall - 9.0, hands).now() == hands.now.wall
    clock = RunClock(hands.now.wall + 7200.0, hands)
    hands.pass_(awake=3.0)
    assert (clock.now() - hands.now.wall, clock.ahead()) == (7200.0, 7200.0)


@pytest.mark.parametrize("hours", [-5, 5])
async def test_a_time_of_day_that_is_set_is_an_alarm_and_moves_no_event(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, hours: int
) -> None:
    """The engine's board as it is, with the time of day set under it; a console that is attached sees ages right."""
    monkeypatch.setattr(host, "TICK_SECONDS", 0.01)
    monkeypatch.setattr("console.engine.board.ALARM_SECONDS", 0.02)
    monkeypatch.setattr("console.control.server.HEARTBEAT_SECONDS", 0.05)
    board = Board(tmp_path / "run", "r", tmp_path / "s" / "r.sock", EngineCommands(None))
    await board.start()
    board.emit(ev.RunStarted(run_id="r"))
    console = LiveSource(str(tmp_path / "s" / "r.sock"), local=False)
    await console.start()
    true = time.time
    monkeypatch.setattr(time, "time", lambda: true() + hours * 3600)
    async with asyncio.timeout(20):
        while "host.clock" not in board.view.state.alarms or not console.view.state.alarms:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        while abs(console.now() - true()) > 2.0:  # noqa: ASYNC110 - the next heartbeat
            await asyncio.sleep(0.01)
    board.emit(ev.Note(text="later"))
    alarm = board.view.state.alarms["host.clock"]
    assert ("set back by 5.0 h" if hours < 0 else "set forward by 5.0 h") in alarm.text
    await console.close()
    await board.close(None)
    times = [event.ts for event in Journal(tmp_path / "run" / "journal").events()]
    assert len(set(times)) == len(times) and times == sorted(times), "no two events at one time"
    assert abs(times[-1] - true()) < 2.0
