"""The help tells the truth: every key in it does what it says, and every key that does something is in it."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from small_engine import SmallEngine

from console.records.run_dir import RunRecord
from console.resources import themes_dir
from console.tui.app import ConsoleApp
from console.tui.empty import EmptySource
from console.tui.keymap import load_keymap
from console.tui.layout import Box
from console.tui.live import LiveSource
from console.tui.pages import PAGES
from console.tui.pages.help import HelpPage, entries, keys_text
from console.tui.replay import ReplaySource
from console.tui.text import plain
from console.tui.themes import Themes

MODES = ("live", "read-only", "replay", "no run")


@pytest.fixture
async def new_app(tmp_path: Path, recording: Path):
    """A console that is not started, in a mode, with its page on top."""
    engine = SmallEngine(tmp_path, tmp_path / "s.sock")
    engine.begin()
    engine.step(0)

    def make(mode: str, page: str, **options) -> ConsoleApp:
        if mode == "replay":
            source = ReplaySource(RunRecord(recording), at_end=True)
        else:
            source = EmptySource() if mode == "no run" else LiveSource(str(engine.socket), view=engine.view)
        app = ConsoleApp(source, Themes(themes_dir()), read_only=mode == "read-only", **options)
        if app.desk.page.id != page:
            app.desk.show(page)
        return app

    yield make
    await engine.close()


def pages_of(mode: str) -> list[str]:
    if mode == "no run":
        return ["runs"]
    return [page for page in PAGES if page != "help" and (page != "scrub" or mode == "replay")]


@pytest.mark.parametrize("mode", MODES)
async def test_every_key_in_the_help_is_bound_and_every_bound_key_is_in_the_help(new_app, mode: str) -> None:
    for page in pages_of(mode):
        desk = new_app(mode, page).desk
        assert desk.page.id == page
        told = entries(desk, desk.page)
        # Every key in the help leads to its action, and to no other.
        for entry in told:
            reached = {desk.meant(key).id for key in entry.keys}
            assert reached <= set(entry.actions) and (len(reached) == len(entry.actions) or not entry.keys), entry
        # Every key that leads to an action that can be done here is in the help.
        here = {key for key in desk.keymap.by_key if (a := desk.meant(key)) and desk.available(a)}
        assert here <= {key for entry in told for key in entry.keys}, (page, here)
        if mode in ("replay", "no run", "read-only"):
            kinds = {desk.keymap[action].kind for entry in told for action in entry.actions}
            assert "command" not in kinds and ("live" not in kinds or mode == "read-only")


async def test_the_help_shows_all_entries_signs_and_how_to_leave(new_app) -> None:
    desk = new_app("live", "run").desk
    told = entries(desk, desk.page)
    page = desk.show("help")
    assert isinstance(page, HelpPage)
    text = "\n".join(
        plain(one) for section in page.sections(desk.scene(), 76) for row in section.rows for one in row.lines
    )
    for entry in told:
        assert f"{keys_text(entry.keys)} " in text or not entry.keys
        assert " ".join(entry.text.split()[:3]) in text
    for words in ("the run goes on", "quarterdeck attach", "infrastructure failure", ":set parallel=2", ":stop-now"):
        assert words in text


async def test_the_help_follows_other_keys(new_app, tmp_path: Path) -> None:
    path = tmp_path / "keys.yaml"
    path.write_text("pause: f9\nrewind: []\n")
    app = new_app("live", "run", keymap=load_keymap(path))
    told = {entry.actions: entry for entry in entries(app.desk, app.desk.page)}
    assert told[("pause",)].keys == ("f9",) and told[("rewind",)].keys == ()
    assert ("F9", "pause") in app.desk.key_labels()
    assert app.desk.why_not(app.desk.keymap["goto"]) == "^g (goto) works in a replay only"


async def test_help_is_about_the_page_beneath_and_closes(recording: Path, screen_lines, matches_snapshot) -> None:
    app = ConsoleApp(ReplaySource(RunRecord(recording), at_end=True), Themes(themes_dir()))
    async with app.run_test(size=(80, 24)) as pilot:
        async with asyncio.timeout(10):
            while not app.source.marked:  # type: ignore[attr-defined]  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        await pilot.press("question_mark")
        matches_snapshot("help-run-80x24", screen_lines(app))
        await pilot.press("G", "slash", *"overflow")
        await pilot.pause()
        lines = screen_lines(app)
        assert "Signs of the trials" in lines[2] and "context overflow" in "".join(lines)
        assert lines[-1].startswith(" /overflow")
        await pilot.press("enter", "escape")  # the filter goes first
        await pilot.pause()
        assert app.desk.page.id == "help" and "Leaving" in "".join(screen_lines(app))
        await pilot.press("i")  # another page takes its place
        assert app.desk.page.id == "config"
        await pilot.press("question_mark")
        assert app.desk.page.about.id == "config"  # type: ignore[attr-defined]
        await pilot.press("question_mark")
        assert app.desk.page.id == "config"
        await pilot.press("escape")
        assert app.desk.page.id == "run"


@pytest.mark.parametrize(
    ("words", "found"),
    [("retry", "r "), ("cancel-group", "x "), ("stop_now", ":stop-now"), ("snooze", "h "), ("exit", "q ")],
)
async def test_the_help_is_searched_by_ids_and_other_words(new_app, words: str, found: str) -> None:
    desk = new_app("live", "run").desk
    page = desk.show("help")
    page.set_filter(words)
    rows = [plain(one).strip() for one in page.paint(desk.scene(), Box(0, 0, 100, 60)).lines["text"]]
    assert any(row.startswith(found) for row in rows), rows


async def test_what_is_over_is_not_detached_from(new_app) -> None:
    desk = new_app("live", "run").desk
    assert ("d", "detach") in desk.key_labels()
    desk.state.status = "finished"
    assert ("q", "quit") in desk.key_labels() and ("d", "detach") not in desk.key_labels()


@pytest.mark.parametrize("mode", ["live", "replay"])
async def test_the_key_line_has_what_matters_at_80_columns(new_app, mode: str) -> None:
    from console.tui.panes.events import key_line

    for page in ("run", "trial", "events", "alarms", "metrics", "config", "runs", "help"):
        desk = new_app(mode, page).desk
        text = plain(key_line(desk.scene(), 80))
        assert len(text) == 80 and text.startswith(" ? help") and "q quit" in text
        assert ("d detach" in text) == (mode == "live")
        if page == "run":
            wanted = ("x cancel", "r retry", "s stop", "p pause") if mode == "live" else ("> ", "] ", "} ")
            assert all(label in text for label in wanted), text
