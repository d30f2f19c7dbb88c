"""The same recording, replayed at any speed and by any way, ends in the same picture on every page."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from page_bench import Clock
from screens import Cells, cells_of
from walking import home, opened, press, settle

from console.records.run_dir import RunRecord
from console.resources import themes_dir
from console.tui.app import ConsoleApp
from console.tui.replay import MAX, ReplaySource
from console.tui.themes import Themes

SIZES = ((80, 24), (200, 60))
FAILED = "colon t r i a l space g 4 slash t 1 enter f3"
"""To the trial that failed in the last step."""
PAGES = {
    "run": "", "trial": "f3", "tokens": "f3 c", "why": f"{FAILED} b", "events": "E", "alarms": "L", "metrics": "m",
    "figures": "m t", "config": "i", "help": "question_mark", "leave": "ctrl+c",
}  # fmt: skip


def play(source: ReplaySource, clock: Clock, speed: float) -> None:
    """By the clock, four polls a second, to the end or for as long as `source.playing`."""
    source.speed = speed
    source.toggle()
    while source.playing:
        clock.now += 0.25
        source.poll()


def at(speed: float) -> Callable[[ReplaySource, Clock], None]:
    return lambda source, clock: play(source, clock, speed)


def event_by_event(source: ReplaySource, clock: Clock) -> None:
    while not source.at_end:
        source.step_event(forward=True)


def step_by_step(source: ReplaySource, clock: Clock) -> None:
    while not source.at_end:
        source.step_training(forward=True)


def with_seeks(source: ReplaySource, clock: Clock) -> None:
    """Back and forth, at changing speeds, over pauses."""
    last = source.timeline.last_seq
    for share, speed in ((0.9, 4.0), (0.1, 64.0), (0.6, 0.25), (0.3, 16.0)):
        source.seek(int(last * share))
        source.speed = speed
        source.toggle()
        for _ in range(40):
            clock.now += 0.25
            source.poll()
        source.toggle()
        source.step_event(forward=False)
        source.step_training(forward=True)
    source.next_alarm()
    play(source, clock, 2.0)


def jumped(source: ReplaySource, clock: Clock) -> None:
    source.jump(to_end=True)


WAYS: dict[str, Callable[[ReplaySource, Clock], None]] = {
    "1x": at(1.0), "0.25x": at(0.25), "64x": at(64.0), "max": at(MAX), "event by event": event_by_event,
    "step by step": step_by_step, "with seeks": with_seeks, "jumped": jumped,
}  # fmt: skip


async def pictures(run: Path, size: tuple[int, int], way: Callable[[ReplaySource, Clock], None]) -> dict[str, Cells]:
    """Every page at the end of the recording, to which one way has led."""
    clock = Clock()
    source = ReplaySource(RunRecord(run), clock=clock, seq=1)
    source.read_marks(30)
    app = ConsoleApp(source, Themes(themes_dir()))
    out = {}
    async with opened(app, size, clock) as pilot:
        await settle(app, pilot, clock)
        way(source, clock)
        assert source.at_end and not source.playing and not source.trouble
        source.speed = 1.0
        app.repaint()
        await settle(app, pilot, clock)
        for name, keys in PAGES.items():
            await press(app, pilot, *keys.split())
            await settle(app, pilot, clock, over=name == "leave")
            out[name] = cells_of(app.screen._compositor.render_strips())
            await home(app, pilot, clock, source.view.state.seq)
    return out


@pytest.mark.parametrize("size", SIZES, ids=lambda size: f"{size[0]}x{size[1]}")
async def test_every_page_ends_the_same(operated: Path, size: tuple[int, int]) -> None:
    first = await pictures(operated, size, WAYS["1x"])
    assert "REPLAY paused" in "".join(char for char, _ in first["run"][0])
    for name, way in WAYS.items():
        seen = await pictures(operated, size, way)
        unlike = [page for page in PAGES if seen[page] != first[page]]
        assert not unlike, f"{name} differs on {unlike}:\n{differences(first[unlike[0]], seen[unlike[0]])}"


def differences(one: Cells, other: Cells) -> str:
    rows = [("".join(c for c, _ in a), "".join(c for c, _ in b)) for a, b in zip(one, other, strict=True) if a != b]
    return "\n".join(f"{a.rstrip()}\n{b.rstrip()}" for a, b in rows[:8])
