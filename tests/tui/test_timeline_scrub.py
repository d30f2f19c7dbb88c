"""Scrubbing, going to a moment and to alarms, as keys do it: on the real desk, with the clock turned by hand."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from console.records.run_dir import RunRecord
from console.state.reduce import fold
from console.tui.desk import Desk
from console.tui.layout import Box
from console.tui.pages.scrub import REST_SECONDS
from console.tui.replay import ReplaySource
from console.tui.text import plain


class Shell:
    """Answers prompts with what the test wants."""

    answer: str | None = None

    async def prompt(self, label: str, *args: object, **options: object) -> str | None:
        return self.answer

    def spawn(self, work: Awaitable[None]) -> None:
        self.spawned = asyncio.ensure_future(work)

    def __getattr__(self, name: str) -> Callable[..., None]:
        return lambda *args, **options: None


class Table:
    """The desk on the operated recording, paused at the end of step 7."""

    def __init__(self, path: Path) -> None:
        self.now = 0.0
        self.source = ReplaySource(RunRecord(path), speed=1.0, clock=lambda: self.now)
        self.source.read_marks(30)
        self.shell = Shell()
        self.desk = Desk(self.source, self.shell, clock=lambda: self.now)  # type: ignore[arg-type]
        self.source.goto("s7")
        self.source.playing = True
        self.paint()

    async def press(self, *keys: str) -> None:
        for key in keys:
            await self.desk.press(key)
            await asyncio.sleep(0)
            await asyncio.sleep(0)

    def rest(self, seconds: float = REST_SECONDS) -> None:
        self.now += seconds
        self.desk.tick()

    def paint(self) -> str:
        painted = self.desk.page.paint(self.desk.scene(), Box(0, 2, 120, 35))
        return "\n".join(plain(one) for lines in painted.lines.values() for one in lines)

    @property
    def message(self) -> str:
        return plain(self.desk.scene().message)


@pytest.fixture(scope="module")
def operated_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from quarterdeck_recordings import Plan, make

    path = tmp_path_factory.mktemp("operated") / "run"
    make(path, Plan(operated=True))
    return path


@pytest.fixture
def table(operated_run: Path) -> Table:
    return Table(operated_run)


async def test_only_the_bar_moves_until_the_key_rests(table: Table) -> None:
    seq, picture = table.source.view.state.seq, table.paint()
    await table.press("vertical_line")
    assert table.desk.page.id == "scrub" and not table.source.playing
    assert table.source.link().scrub == pytest.approx(table.source.now())
    for _ in range(8):
        await table.press("right")
        table.rest(REST_SECONDS / 2)
        assert table.source.view.state.seq == seq and table.paint() == picture
    found = table.source.link().scrub
    assert found is not None and found > table.source.now() and table.message.endswith("esc goes back")
    table.rest()
    assert table.source.view.state.seq > seq and table.paint() != picture
    assert table.source.now() == pytest.approx(found)
    # A rest without a key does not read the recording again.
    view = table.source.view
    table.rest(5.0)
    assert table.source.view is view


async def test_escape_goes_back_and_enter_stays(table: Table) -> None:
    seq, now = table.source.view.state.seq, table.source.now()
    await table.press("vertical_line", "end")
    table.rest()
    assert table.source.at_end
    await table.press("escape")
    assert (table.source.view.state.seq, table.source.now(), table.source.playing) == (seq, now, True)
    assert table.desk.page.id == "run" and table.source.link().scrub is None
    await table.press("vertical_line", "pagedown", "enter")
    assert table.desk.page.id == "run" and not table.source.playing
    first, last = table.source.timeline.first_ts or 0, table.source.timeline.last_ts or 0
    assert table.source.now() == pytest.approx(now + 0.1 * (last - first))
    events = list(table.source.record.journal.events())
    assert table.source.view == fold(e for e in events if e.ts <= table.source.now())


async def test_steps_alarms_and_the_ends_are_one_key_away(table: Table) -> None:
    line = table.source.timeline
    ends = {mark.step: mark.ended for mark in line.steps}
    await table.press("vertical_line", "down")
    assert table.source.scrub == ends[8]
    await table.press("up", "up")
    assert table.source.scrub == ends[6]
    await table.press("exclamation_mark")
    assert line.marks is not None
    assert table.source.scrub == next(a.ts for a in line.marks.alarms if a.ts > ends[6])
    await table.press("home", "up", "left")
    assert table.source.scrub == line.first_ts
    await table.press("end", "down", "right")
    assert table.source.scrub == line.last_ts
    await table.press("exclamation_mark")
    assert table.source.scrub == line.last_ts and "no alarm" in table.message
    await table.press("home", "space")
    assert table.source.playing and table.desk.page.id == "run" and table.source.view.state.seq <= 2


async def test_going_to_what_was_typed(table: Table) -> None:
    table.shell.answer = "s3"
    await table.press("ctrl+g")
    await table.shell.spawned
    assert table.desk.state.steps_done == 4
    table.shell.answer = "14:14"
    await table.press("ctrl+g")
    await table.shell.spawned
    assert table.source.now() == pytest.approx(1_790_000_040.0)
    table.shell.answer = "25:00"
    await table.press("ctrl+g")
    await table.shell.spawned
    assert "no such time" in table.message and table.source.now() == pytest.approx(1_790_000_040.0)
    table.shell.answer = None
    await table.press("ctrl+g")
    await table.shell.spawned
    assert table.source.now() == pytest.approx(1_790_000_040.0)


async def test_the_next_alarm_in_time(table: Table) -> None:
    table.source.jump(to_end=False)
    seen = []
    for _ in range(12):
        await table.press("exclamation_mark")
        if "no alarm opens" in table.message:
            break
        if table.source.view.state.alarms:
            seen.append((table.source.view.state.seq, max(a.level for a in table.source.view.state.alarms.values())))
    assert table.source.timeline.marks is not None
    assert {seq for seq, _ in seen} == {a.seq for a in table.source.timeline.marks.alarms}
    assert not table.source.playing
