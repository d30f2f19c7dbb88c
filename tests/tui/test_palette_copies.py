"""Copies and files of what is shown, clicks, and the terminal's own means."""

from __future__ import annotations

import csv
import json
import stat
from pathlib import Path

import pytest
from textual.events import MouseScrollDown
from typing_in import fill, typed

from console.control.registry import state_dir
from console.records.run_dir import RunRecord
from console.resources import themes_dir
from console.tui.app import ConsoleApp
from console.tui.pages.config import ConfigPage
from console.tui.replay import ReplaySource
from console.tui.themes import Themes
from console.tui.widgets import dialog


@pytest.fixture(autouse=True)
def own_places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("QUARTERDECK_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def app(recording: Path) -> ConsoleApp:
    return ConsoleApp(ReplaySource(RunRecord(recording), at_end=True), Themes(themes_dir()))


class Wire:
    """What the app writes to its terminal beside the screen."""

    def __init__(self, app: ConsoleApp, monkeypatch: pytest.MonkeyPatch) -> None:
        self.text = ""
        assert app._driver is not None
        monkeypatch.setattr(app._driver, "write", self._take)

    def _take(self, data: str) -> None:
        self.text += data


async def test_yank_copies_the_screen_or_what_the_page_offers(
    app: ConsoleApp, screen_lines, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.press("question_mark", "Y")
        kept = state_dir() / "yank.txt"
        assert stat.S_IMODE(kept.stat().st_mode) == 0o600
        assert "Signs of the trials" in kept.read_text() and app.clipboard == kept.read_text()
        monkeypatch.setattr(ConfigPage, "yank_text", lambda self: "one\x1b]52;c;x\x07\ntwo\x00")
        await pilot.press("i", "Y")
        assert app.clipboard == kept.read_text() == "one\ntwo"
        assert "7 characters copied; also in " in "".join(screen_lines(app)[-2:])
        monkeypatch.setattr(ConfigPage, "yank_text", lambda self: "x" * 100_000)
        await pilot.press("Y")
        assert app.clipboard == "one\ntwo" and len(kept.read_text()) == 100_000
        assert "too many for a terminal's clipboard" in "".join(screen_lines(app)[-2:])
        monkeypatch.setattr(ConfigPage, "yank_text", lambda self: None)
        await pilot.press("Y")
        app.desk._message = ()  # it says what was done, in place of the last rows
        app.repaint()
        await pilot.pause()
        lines = [line.rstrip() for line in screen_lines(app)]
        assert kept.read_text().split("\n")[:-1] == lines[:-1]


@pytest.mark.parametrize("suffix", ["txt", "svg", "json", "csv"])
async def test_the_view_is_written_as_its_suffix_says(
    app: ConsoleApp, screen_lines, tmp_path: Path, suffix: str
) -> None:
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.press("ctrl+e")
        await pilot.pause()
        assert screen_lines(app)[-1].startswith(" export to demo-run.txt")
        await fill(app, pilot, f"out.{suffix}")
        await pilot.pause()
        path = tmp_path / f"out.{suffix}"
        assert f"export: {path.stat().st_size} bytes in out.{suffix}" in screen_lines(app)[-1]
        text = path.read_text()
        before = path.stat().st_mtime_ns
        await typed(app, pilot, f"export out.{suffix}")
        await pilot.pause()
        assert isinstance(app.screen, dialog.Confirm)
        await pilot.press("enter")  # the focus is on No
        await pilot.pause()
        assert path.stat().st_mtime_ns == before and "not done" in screen_lines(app)[-1]
    match suffix:
        case "txt":
            assert "Groups" in text and "REPLAY" in text and "\x1b" not in text
        case "svg":
            assert text.startswith("<svg") and "REPLAY" in text
        case "json":
            found = json.loads(text)
            assert found["state"]["steps_done"] == 15 and len(found["history"]) == 15
        case "csv":
            rows = list(csv.DictReader(text.splitlines()))
            assert len(rows) == 15 and float(rows[0]["reward_mean"]) >= 0 and int(rows[0]["outcome_completed"]) > 0
    assert [p.name for p in tmp_path.iterdir() if p.name.startswith(".")] == []


async def test_a_file_that_cannot_be_written_is_one_line(app: ConsoleApp, screen_lines, tmp_path: Path) -> None:
    async with app.run_test(size=(80, 24)) as pilot:
        for name, says in (("nowhere/x.txt", "No such file"), ("x.pdf", "end the name in one of .txt"), ("x", ".txt")):
            await typed(app, pilot, f"export {name}")
            await pilot.pause()
            assert says in " ".join(screen_lines(app)[-2:])
    assert sorted(p.name for p in tmp_path.iterdir()) == []


async def test_clicks_are_taken_only_when_asked_for(app: ConsoleApp, screen_lines, monkeypatch) -> None:
    async with app.run_test(size=(80, 24)) as pilot:
        wire = Wire(app, monkeypatch)
        await pilot.press("M")
        assert wire.text == "\x1b[?1000h\x1b[?1006h"
        wire.text = ""
        await pilot.press("M")
        assert wire.text == "\x1b[?1000l\x1b[?1006l"
        chosen = app.desk.selection.group
        event = {"widget": None, "x": 0, "y": 0, "delta_x": 0, "delta_y": 0, "button": 1, "shift": False, "meta": False,
                 "ctrl": False}  # fmt: skip
        app.screen.post_message(MouseScrollDown(**event))
        await pilot.pause()
        assert app.desk.selection.group != chosen
        clicks: list[tuple[str, int, int]] = []
        monkeypatch.setattr(app.desk.page, "click", lambda *at: clicks.append(at))
        for x, y in ((5, 4), (79, 0), (0, 23)):
            await pilot.mouse_down(offset=(x, y))
    assert [name for name, _, _ in clicks] == ["groups", "header", "keys"]
    assert clicks[0][2] == 5 and clicks[1] == ("header", 0, 79)


async def test_the_bell_and_a_notification_that_obeys_nobody(recording: Path, monkeypatch) -> None:
    for notify in (False, True):
        source = ReplaySource(RunRecord(recording), at_end=True)
        app = ConsoleApp(source, Themes(themes_dir()), notify=notify)
        async with app.run_test(size=(80, 24)):
            wire = Wire(app, monkeypatch)
            monkeypatch.setattr(ConsoleApp, "is_headless", False)
            app.ring("lost \x1b]52;c;eA==\x07it\x9c\x07")
            monkeypatch.undo()
        assert wire.text == ("\x07\x1b]9;lost it\x07" if notify else "\x07")


async def test_painting_less_often_answers_keys_all_the_same(
    app: ConsoleApp, screen_lines, monkeypatch: pytest.MonkeyPatch
) -> None:
    painted: list[float] = []
    clock = 1000.0

    def ticks(seconds: int) -> int:
        """Paints in so many seconds in which there is always something new."""
        nonlocal clock
        painted.clear()
        for _ in range(4 * seconds):
            clock += 0.25
            app.source.version += 1
            app._main.tick()
        return len(painted)

    async with app.run_test(size=(80, 24)) as pilot:
        with monkeypatch.context() as patch:
            patch.setattr(app.desk, "clock", lambda: clock)
            patch.setattr(app._main, "paint", lambda: painted.append(clock))
            for rate, most in ((4.0, 40), (2.0, 20), (1.0, 10), (0.5, 5), (0.25, 3)):
                app.desk.paints_per_second = rate
                assert most - 1 <= ticks(10) <= most, rate
            app.desk.paints_per_second = 4.0
        for _ in range(6):
            await pilot.press("minus")
        assert "painted every 4 seconds" in screen_lines(app)[-1] and app.desk.paints_per_second == 0.25
        await pilot.press("j")
        await pilot.pause()
        assert any(line.startswith(("> g2", ">  g2")) for line in screen_lines(app))
        for _ in range(6):
            await pilot.press("plus")
        assert app.desk.paints_per_second == 4.0
