"""Alarms as the engine raises them, and what it reports of its machine."""

from __future__ import annotations

import asyncio
import shutil
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from console.engine import board as board_module
from console.engine import host
from console.engine.board import Board
from console.engine.host import HostWatch, measure
from console.journal import events as ev
from console.journal.reader import Journal


class Nobody:
    def describe(self, command: Any) -> tuple[bool, str]:
        return True, ""

    async def execute(self, command: Any) -> tuple[bool, str]:
        return True, ""


@pytest.fixture
async def board(tmp_path: Path) -> AsyncIterator[Board]:
    made = Board(tmp_path / "run", "r", tmp_path / "s.sock", Nobody())
    made.emit(ev.RunStarted(run_id="r", on_failure="hold"))
    yield made
    await made.close(None)


def alarm_events(board: Board) -> list[ev.Event]:
    events = Journal(board.run_dir / "journal").events()
    return [e for e in events if isinstance(e, ev.AlarmOpened | ev.AlarmClosed)]


def hold(board: Board, trial: int) -> None:
    at = {"step": 0, "group": 0, "trial": trial}
    board.emit(ev.TrialFinished(outcome="infrastructure", exception="BoxError", retryable=True, **at))
    board.emit(ev.TrialHeld(deadline=board.view.state.ts + 600.0, **at))


async def test_an_alarm_is_written_once_and_when_it_changes(board: Board) -> None:
    board.emit(ev.StepStarted(step=0, groups=1, policy_version=0))
    board.emit(ev.GroupStarted(step=0, group=0, task="t", size=2))
    hold(board, 0)
    for _ in range(3):
        board.check_alarms()
    hold(board, 1)
    for _ in range(3):
        board.check_alarms()
    board.emit(ev.GroupFinished(step=0, group=0, kept=False))
    for _ in range(3):
        board.check_alarms()
    first, second, closed = alarm_events(board)
    assert isinstance(first, ev.AlarmOpened) and isinstance(second, ev.AlarmOpened)
    assert (first.key, first.level, first.text) == ("held.g1", "critical", "g1/t1 infrastructure BoxError: held")
    assert first.consequence.startswith("the run stops at ") and first.action == "retry" and first.remedy
    assert second.text == "g1/t1 infrastructure BoxError and 1 more: held" and isinstance(closed, ev.AlarmClosed)
    assert not board.view.state.alarms["held.g1"].open, "nobody has acknowledged it"


async def test_the_thresholds_of_the_run_count(board: Board) -> None:
    board.emit(ev.RunStarted(run_id="r", thresholds={"gateway_down_seconds": 0.0}))
    board.emit(ev.GatewayHealth(reachable=False, detail="refused"))
    board.check_alarms()
    assert [e.key for e in alarm_events(board)] == ["gateway.unreachable"]


async def test_a_rule_that_fails_does_not_keep_the_journal_from_the_disk(
    board: Board, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(board_module, "ALARM_SECONDS", 0.01)
    monkeypatch.setattr(board_module, "alarms", lambda view, now: 1 / 0)
    await board.start()
    board.emit(ev.Note(text="late"))
    for _ in range(500):
        await asyncio.sleep(0.02)
        if [e for e in Journal(board.run_dir / "journal").events() if isinstance(e, ev.Note)]:
            break
    else:
        raise AssertionError("never flushed")
    await asyncio.sleep(0.1)
    assert caplog.text.count("the alarm rules failed") == 1


async def test_the_board_reports_its_host(board: Board, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host, "TICK_SECONDS", 0.01)
    monkeypatch.setattr(host, "LOOK_SECONDS", 0.02)
    await board.start()
    for _ in range(500):
        await asyncio.sleep(0.02)
        if board.view.state.host.reported:
            break
    seen = board.view.state.host
    assert seen.disk_total == shutil.disk_usage(board.run_dir).total and 0 < seen.disk_free <= seen.disk_total
    assert 0 < seen.rss < seen.memory_total <= psutil.virtual_memory().total
    assert seen.loop_lag >= 0.0


@pytest.mark.parametrize("how", ["moved", "removed", "replaced"])
async def test_a_run_directory_that_is_gone_is_told(board: Board, monkeypatch: pytest.MonkeyPatch, how: str) -> None:
    monkeypatch.setattr(host, "TICK_SECONDS", 0.01)
    monkeypatch.setattr(host, "LOOK_SECONDS", 0.02)
    told: list[bool] = []
    board.on_moved = lambda: told.append(board.moved)
    await board.start()
    await asyncio.sleep(0.1)
    assert not told and not board.moved
    away = board.run_dir.rename(board.run_dir.with_name("away"))
    if how == "removed":
        shutil.rmtree(away)
    elif how == "replaced":
        board.run_dir.mkdir()
    for _ in range(500):
        await asyncio.sleep(0.02)
        if told:
            break
    assert told and all(told)


async def test_children_count_as_memory_of_the_engine(tmp_path: Path) -> None:
    alone = measure(tmp_path).rss
    code = (
        "import sys; x = bytearray(80_000_000); x[::4096] = b'1' * len(x[::4096]); print(flush=True); sys.stdin.read()"
    )
    child = await asyncio.create_subprocess_exec(
        "python3", "-c", code, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
    )
    await child.stdout.readline()
    assert measure(tmp_path).rss - alone > 60_000_000
    child.stdin.close()
    await child.wait()


async def test_a_blocked_loop_is_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host, "TICK_SECONDS", 0.02)
    monkeypatch.setattr(host, "LOOK_SECONDS", 0.3)
    told: list[ev.HostStats] = []
    watch = asyncio.create_task(HostWatch(tmp_path, told.append).run())
    await asyncio.sleep(0.05)
    time.sleep(0.4)  # noqa: ASYNC251 - the loop is blocked on purpose
    for _ in range(500):
        await asyncio.sleep(0.02)
        if told:
            break
    watch.cancel()
    assert told[0].loop_lag >= 0.3


def test_reports_are_made_when_a_figure_moved_or_a_minute_passed(tmp_path: Path) -> None:
    told: list[ev.HostStats] = []
    watch = HostWatch(tmp_path, told.append)

    def look(now: float, lag: float = 0.0, **figures: int) -> int:
        watch._lag = max(watch._lag, lag)
        before = len(told)
        watch.report(ev.HostStats(**({"disk_free": 1000, "rss": 100, "memory_total": 1000} | figures)), now)
        return len(told) - before

    assert look(0.0) == 1
    assert look(5.0) == 0 and look(10.0, disk_free=950) == 0 and look(15.0, lag=0.09) == 0
    assert look(20.0, disk_free=880) == 1 and look(25.0, disk_free=880, rss=115) == 1
    assert look(30.0, disk_free=880, rss=115, lag=0.5) == 1 and told[-1].loop_lag == 0.5
    assert look(35.0, disk_free=880, rss=115) == 1 and told[-1].loop_lag == 0.0, "that it is over is news, too"
    assert look(85.0, disk_free=880, rss=115) == 0 and look(90.0, disk_free=880, rss=115) == 1
