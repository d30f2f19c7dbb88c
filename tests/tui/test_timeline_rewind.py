"""A look back at a live run: its recording at the same moment, what happens meanwhile, and the way back."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from small_engine import SmallEngine

from console.errors import ControlError
from console.journal import events as ev
from console.records.run_dir import RunRecord
from console.state.reduce import fold, state_of
from console.tui import rewind
from console.tui.desk import Desk
from console.tui.live import LiveSource
from console.tui.panes.timeline import timeline_rows
from console.tui.replay import ReplaySource
from console.tui.source import Source
from console.tui.text import plain


class Shell:
    """Switches as the app does, and keeps what was said."""

    def __init__(self) -> None:
        self.desk: Desk | None = None
        self.told: list[str] = []

    def switch(self, source: Source) -> None:
        assert self.desk is not None
        before = self.desk.source
        self.desk.use(source)
        self.work = asyncio.gather(before.close(), source.start())

    def spawn(self, work: Awaitable[None]) -> None:
        self.spawned = asyncio.ensure_future(work)

    def __getattr__(self, name: str) -> Callable[..., None]:
        return lambda *args, **options: None


async def until(true: Callable[[], Any]) -> None:
    async with asyncio.timeout(10):
        while not true():  # noqa: ASYNC110
            await asyncio.sleep(0.01)


@pytest.fixture
async def engine(tmp_path: Path) -> AsyncIterator[SmallEngine]:
    """An engine in the middle of its second step, with many snapshots."""
    one = SmallEngine(tmp_path / "run", tmp_path / "s", snapshot_events=20)
    await one.server.start()
    one.begin()
    one.step(0)
    for n in range(60):
        one.writer.append(ev.Note(text=f"note {n}"))
    yield one
    await one.close()


@pytest.fixture
async def watch(engine: SmallEngine) -> AsyncIterator[Callable[[bool], Awaitable[Desk]]]:
    opened: list[Desk] = []

    async def begin(local: bool) -> Desk:
        source = LiveSource(str(engine.socket), engine.run_id, local=local, author="ada@bridge")
        shell = Shell()
        shell.desk = desk = Desk(source, shell)  # type: ignore[arg-type]
        opened.append(desk)
        await source.start()
        await until(lambda: desk.state.seq == engine.writer.last_seq)
        return desk

    yield begin
    for desk in opened:
        await desk.source.close()


@pytest.mark.parametrize("local", [True, False])
async def test_there_and_back(engine: SmallEngine, watch, local: bool) -> None:
    desk: Desk = await watch(local)
    here = desk.state.seq
    desk.selection.sort = "number"
    await rewind.look_back(desk)
    replay = desk.source
    assert isinstance(replay, ReplaySource) and not replay.playing
    assert replay.view.state.seq == here and replay.view == fold(RunRecord(engine.run_dir).journal.events(0, here))
    assert (replay.record.path == engine.run_dir) == local
    snapshot = replay.record.journal.nearest_snapshot(seq=here)
    assert snapshot is not None and state_of(snapshot) is not None  # seeks need not read from the start
    assert desk.selection.sort == "number"
    link = replay.link()
    assert link.status == "replay" and link.behind == 0.0

    # The run goes on meanwhile, and an alarm opens.
    engine.step(1)
    engine.writer.append(ev.AlarmOpened(key="disk.low", level="critical", text="4 GB free"))
    engine.writer.append(ev.AlarmOpened(key="slow", level="warning", text="slower than usual"))
    replay.read_marks(5.0)

    def taken_in() -> bool:
        replay._last_refresh = -10.0
        replay.poll()
        return replay.timeline.last_seq == engine.writer.last_seq and "4 GB free" in replay.link().news

    await until(taken_in)
    assert replay.view.state.seq == here and (replay.link().behind or 0.0) > 0.0
    for seq in (3, 40, here, engine.writer.last_seq):
        replay.seek(seq)
        assert replay.view == fold(RunRecord(engine.run_dir).journal.events(0, seq))
    await rewind.come_back(desk, replay)
    assert isinstance(desk.source, LiveSource)
    await until(lambda: desk.source.link().status == "ok" and desk.state.seq == engine.writer.last_seq)
    assert desk.source.address.author == "ada@bridge"
    await desk.shell.work  # type: ignore[attr-defined]
    assert local or not replay.record.path.exists()


async def test_the_end_of_the_live_run_is_told_in_a_look_back(engine: SmallEngine, watch) -> None:
    desk: Desk = await watch(True)
    await rewind.look_back(desk)
    replay = desk.source
    assert isinstance(replay, ReplaySource)
    engine.writer.append(ev.AlarmOpened(key="disk.low", level="critical", text="4 GB free"))
    engine.writer.append(ev.RunFinished(status="failed", exit_code=4, reason="a trial \x1b[2Jfailed"))
    replay.read_marks(5.0)

    def taken_in() -> bool:
        replay._last_refresh = -10.0
        replay.poll()
        return replay.link().urgent

    await until(taken_in)
    desk.tick()
    said = "the live run has ended meanwhile (failed, exit 4): a trial failed"
    assert replay.link().news == said
    assert f"{said}; B goes there" in plain(desk.scene().message)
    note = timeline_rows(desk.scene(), 120)[-1]
    assert plain(note).startswith(f" !  {said}") and note[0].role == "alert"
    desk.say("something else")
    desk.tick()
    assert plain(desk.scene().message) == " something else"  # it is told once


async def test_the_end_of_a_look_back_leads_to_the_present(engine: SmallEngine, watch) -> None:
    desk: Desk = await watch(True)
    await desk.act("rewind")
    await until(lambda: desk.source.mode == "replay")
    await desk.act("start")
    assert desk.state.seq == 1
    await desk.act("end")
    await until(lambda: desk.source.at_end)
    assert desk.source.mode == "replay"
    await desk.act("end")
    await until(lambda: desk.source.mode == "live")


async def test_a_journal_that_is_too_large_stays_where_it_is(
    engine: SmallEngine, watch, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(rewind, "FETCH_LIMIT", 1000)
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    desk: Desk = await watch(False)
    with pytest.raises(ControlError, match="larger than"):
        await rewind.look_back(desk)
    assert desk.source.mode == "live"
    assert not list(tmp_path.glob("quarterdeck-*"))


async def test_another_runs_directory_is_not_taken_for_this_one(engine: SmallEngine, watch, tmp_path: Path) -> None:
    desk: Desk = await watch(True)
    assert rewind.local_record(desk.state) is not None
    desk.state.run_id = "another"
    assert rewind.local_record(desk.state) is None
    desk.state.run_dir = str(tmp_path / "nowhere")
    assert rewind.local_record(desk.state) is None
