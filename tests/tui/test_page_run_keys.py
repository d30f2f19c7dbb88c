"""What keys do on the run page: moving, zoom, filter, marks, sorting, panes, and what they select."""

from __future__ import annotations

from pathlib import Path

import pytest

from console.errors import UsageError
from console.journal import events as ev
from console.records.run_dir import RunRecord
from console.resources import themes_dir
from console.state.reduce import RunView, apply, fold
from console.tui.app import ConsoleApp
from console.tui.compose import compose, layout_for
from console.tui.frame import as_text
from console.tui.layout import Box
from console.tui.pages.page import Painted
from console.tui.pages.run import RunPage
from console.tui.panes import header
from console.tui.panes.alarm import alarm
from console.tui.picture import Scene, Selection, ordered
from console.tui.replay import ReplaySource
from console.tui.source import Link
from console.tui.text import plain
from console.tui.themes import Themes
from console.tui.widgets.pane import to_ascii

HELD = (2, 4)


def app_at(
    recording: Path, kind: type[ev.Event] = ev.TrialHeld, extra: int = 60, ascii_only: bool = False
) -> ConsoleApp:
    """A paused replay, some events after the first one of a type."""
    record = RunRecord(recording)
    source = ReplaySource(record)
    source.playing = False
    seq = next(e.seq for e in record.journal.events() if isinstance(e, kind))
    source.play_to(seq + extra)
    return ConsoleApp(source, Themes(themes_dir()), "dark")


def shown(app: ConsoleApp) -> list[str]:
    """The lines of the page, pane after pane."""
    return [plain(line) for pane in app._main._panes.values() if pane.display for line in pane.lines]


def at(app: ConsoleApp) -> tuple[int | None, int]:
    """The selected group and trial."""
    return app.desk.selection.group, app.desk.selection.trial


def screen_of(view: RunView, width: int, height: int, ascii_only: bool = False) -> list[str]:
    """Header and page of a live run as text, a row a line, without the key line."""
    selection = Selection()
    now = view.state.ts
    groups = ordered(view.state, selection, now)
    scene = Scene(view, Link("ok"), now, selection, groups, selection.settle(groups), ascii=ascii_only)
    head = [header.header(scene, width), header.plumbing(scene, width), *alarm(scene, width, 1 + (height - 16) // 4)]
    layout = layout_for(scene, Box(0, len(head), width, height - 1 - len(head)))
    lines = compose(scene, layout) | {"head": head}
    return as_text(Painted(layout.boxes | {"head": Box(0, 0, width, len(head))}, lines), width, height).split("\n")


@pytest.mark.parametrize(
    ("name", "size", "ascii_only"),
    [
        ("80x24", (80, 24), False), ("120x40", (120, 40), False), ("200x60", (200, 60), False),
        ("120x40-ascii", (120, 40), True),
    ],
)  # fmt: skip
def test_snapshot_of_the_page(
    recording: Path, name: str, size: tuple[int, int], ascii_only: bool, matches_snapshot
) -> None:
    events = list(RunRecord(recording).journal.events())
    held = next(e.seq for e in events if isinstance(e, ev.TrialHeld))
    lines = screen_of(fold(e for e in events if e.seq <= held + 60), *size, ascii_only)
    assert any("SandboxError" in line for line in lines) and any("HELD" in line for line in lines)
    if ascii_only:
        lines = [to_ascii(line) for line in lines]
        assert not any("?" in line for line in lines)
    matches_snapshot(f"run-{name}", lines)


async def test_everything_of_200_columns_is_one_key_away_at_80(recording: Path) -> None:
    wide, narrow = app_at(recording), app_at(recording)
    async with wide.run_test(size=(200, 60)) as pilot:
        await pilot.pause()
        assert {"groups", "detail", "tail", "events", "capture", "reward", "loss", "mix", "policy", "time"} <= {
            name for name, pane in wide._main._panes.items() if pane.display
        }
    seen: set[str] = set()
    async with narrow.run_test(size=(80, 32)) as pilot:
        for key in "123456":
            await pilot.press(key)
            await pilot.pause()
            seen |= {name for name, pane in narrow._main._panes.items() if pane.display}
            await pilot.press("escape")
    assert {"groups", "trials", "detail", "events", "capture", "reward", "loss", "policy", "time"} <= seen


async def test_zoom_shows_one_pane_and_escape_brings_the_rest_back(recording: Path) -> None:
    app = app_at(recording)
    async with app.run_test(size=(120, 40)) as pilot:
        await pilot.press("tab", "z")
        await pilot.pause()
        panes = {name for name, pane in app._main._panes.items() if pane.display}
        assert "trials" in panes and not panes & {"groups", "events", "capture"}
        await pilot.press("tab")
        await pilot.pause()
        assert app._main._panes["detail"].display and "trials" not in app._main._panes
        assert "why" in "\n".join(shown(app))
        await pilot.press("escape")
        await pilot.pause()
        assert app._main._panes["groups"].display and app._main._panes["capture"].display
        assert app.desk.selection.focus == "groups"


async def test_a_filter_follows_what_is_typed_and_escape_clears_it(recording: Path) -> None:
    app = app_at(recording)
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.press("slash", *"class:infra")
        await pilot.pause()
        assert [g.group for g in app.desk.scene().groups] == [HELD[0]]
        await pilot.press("enter")
        await pilot.pause()
        text = "\n".join(shown(app))
        assert "/class:infra" in text and "1 of 4" in text and "1 of 8" in text
        assert at(app) == HELD
        await pilot.press("escape")
        await pilot.pause()
        assert len(app.desk.scene().groups) == 4 and at(app) == HELD


async def test_a_filter_given_up_is_as_before_and_a_bad_one_is_told(recording: Path) -> None:
    app = app_at(recording)
    async with app.run_test(size=(80, 24)) as pilot:
        page = app.desk.page
        assert isinstance(page, RunPage)
        page.set_filter("archive")
        await pilot.press("slash", *"xyz")
        assert app.desk.scene().groups == []
        assert "no group passes the filter" in "\n".join(shown(app))
        await pilot.press("escape")
        await pilot.pause()
        assert app.desk.selection.filter.text == "archive"
        await pilot.press("slash", "ctrl+u", *"klass:x", "enter")
        await pilot.pause()
        assert "no key klass" in "\n".join(shown(app))
        with pytest.raises(UsageError):
            page.set_filter("g:x")
        assert app.desk.selection.filter.text == "archive"


async def test_sorting_goes_round(recording: Path) -> None:
    app = app_at(recording)
    orders = {}
    async with app.run_test(size=(80, 24)) as pilot:
        for _ in range(4):
            orders[app.desk.selection.sort] = [g.group for g in app.desk.scene().groups]
            await pilot.press("o")
        assert app.desk.selection.sort == "attention"
        tasks = {g.group: g.task for g in app.desk.state.groups.values()}
        means = {g.group: g.reward_mean or 0.0 for g in app.desk.state.groups.values()}
    assert orders["attention"][0] == HELD[0]
    assert orders["number"] == [0, 1, 2, 3]
    assert [tasks[g] for g in orders["task"]] == sorted(tasks.values())
    assert [means[g] for g in orders["reward"]] == sorted(means.values())


async def test_marks_belong_to_a_step(recording: Path) -> None:
    app = app_at(recording)
    async with app.run_test(size=(80, 24)) as pilot:
        page = app.desk.page
        assert isinstance(page, RunPage)
        first, second = [g.group for g in app.desk.scene().groups[:2]]
        page.do_mark()
        page.do_mark()
        assert app.desk.selection.marked == {first, second}
        app.desk.shell.repaint()
        await pilot.pause()
        assert "marked 2" in "\n".join(shown(app)) and sum(line[1:2] == "*" for line in shown(app)) == 2
        app.desk.selection.group = first
        page.do_mark()
        assert app.desk.selection.marked == {second}
        app.desk.state.step = 99
        app.desk.scene()
        assert not app.desk.selection.marked


async def test_arrows_walk_through_the_tree(recording: Path) -> None:
    app = app_at(recording)
    async with app.run_test(size=(200, 60)) as pilot:
        order = [g.group for g in app.desk.scene().groups]
        assert at(app) == HELD
        await pilot.press("2", "G")
        assert at(app) == (HELD[0], 7)
        await pilot.press("j")
        assert at(app) == (order[1], 0)
        await pilot.press("k")
        assert at(app) == (HELD[0], 7)
        await pilot.press("1", "G")
        assert app.desk.selection.group == order[-1]
        await pilot.press("g")
        assert app.desk.selection.group == order[0]
        await pilot.press("D")
        await pilot.pause()
        assert app._main._panes["trials"].display


@pytest.mark.parametrize("size", [(80, 24), (200, 60)])
async def test_clicks_select(recording: Path, size: tuple[int, int]) -> None:
    app = app_at(recording)
    async with app.run_test(size=size) as pilot:
        await pilot.pause()
        page = app.desk.page
        lines = [plain(line) for line in app._main._panes["groups"].lines]
        row = next(i for i, line in enumerate(lines) if " g4 " in line)
        page.click("groups", row, 5)
        assert app.desk.selection.group == 3 and app.desk.selection.focus == "groups"
        app.desk.shell.repaint()
        pane = "groups" if size[0] > 160 else "trials"
        rows = [plain(line) for line in app._main._panes[pane].lines]
        chosen = max(i for i, line in enumerate(rows) if " t6 " in line)
        page.click(pane, chosen, 5)
        assert at(app) == (3, 5) and app.desk.selection.focus == "trials"
        page.click(pane, 500, 5)
        page.click("events", 3, 0)
        assert at(app) == (3, 5) and app.desk.selection.focus == "events"


async def test_next_alarm_goes_where_the_alarm_is(recording: Path) -> None:
    app = app_at(recording)
    async with app.run_test(size=(80, 24)) as pilot:
        state = app.desk.state
        page = app.desk.page
        for key, text in (("stalled.g1/t3", "g1/t3 has been in verify"), ("disk.low", "little room")):
            event = ev.AlarmOpened(key=key, level="warning", text=text, remedy="look", ts=state.ts, seq=state.seq + 1)
            apply(app.source.view, event)
        await pilot.press("j", "exclamation_mark")
        assert at(app) == HELD and app.desk.selection.focus == "trials"
        page.do_next_alarm()
        assert at(app) == (0, 2)
        page.do_next_alarm()
        await pilot.pause()
        assert at(app) == (0, 2) and "no alarm opens after this" in "\n".join(shown(app))
        app.source.mode = "live"  # there, what names no group is told
        page.do_next_alarm()
        await pilot.pause()
        assert at(app) == (0, 2) and "3/3 little room: look" in "\n".join(shown(app))
        page.do_next_alarm()
        await pilot.pause()
        assert at(app) == HELD and "1/3 g3/t5 SandboxError is held" in "\n".join(shown(app))


async def test_a_hidden_alarm_takes_the_filter_away(recording: Path) -> None:
    app = app_at(recording)
    async with app.run_test(size=(80, 24)) as pilot:
        app.desk.page.set_filter("!class:infra")
        assert HELD[0] not in [g.group for g in app.desk.scene().groups]
        await pilot.press("exclamation_mark")
        assert at(app) == HELD and not app.desk.selection.filter


async def test_events_scroll_and_come_back(recording: Path) -> None:
    app = app_at(recording)
    async with app.run_test(size=(80, 40)) as pilot:
        await pilot.press("4", "j", "j")
        await pilot.pause()
        assert "2 newer above" in "\n".join(shown(app))
        await pilot.press("g")
        assert app.desk.selection.events_up == 0
        await pilot.press("G", "tab")
        assert app.desk.selection.events_up == 0
