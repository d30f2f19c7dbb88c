"""The line at the foot of the screen, the list that is searched by typing, and the confirmation that wants a name."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from console.records.run_dir import RunRecord
from console.resources import themes_dir
from console.state.sanitize import sanitize
from console.tui.app import ConsoleApp
from console.tui.replay import ReplaySource
from console.tui.text import plain, width
from console.tui.themes import Themes
from console.tui.widgets.dialog import ConfirmTyped
from console.tui.widgets.finder import Finder
from console.tui.widgets.prompt import LONGEST, Prompt

HOSTILE = "\x1b]0;PWNED\x07\x1b[2Ja\u202eb\nc\x9b31m"


class Line:
    """A prompt, and what it said."""

    def __init__(self, **options) -> None:
        self.given: list[str | None] = []
        self.heard: list[str] = []
        self.prompt = Prompt(":", self.given.append, changed=self.heard.append, **options)

    def type(self, *keys: str) -> str:
        for key in keys:
            self.prompt.press(key, key if len(key) == 1 else " " if key == "space" else None)
        return self.prompt.text


def test_editing() -> None:
    line = Line(initial="abc")
    assert line.type("d") == "abcd"
    assert line.type("left", "left", "x") == "abxcd"
    assert line.type("home", "y", "end", "z") == "yabxcdz"
    assert line.type("left", "backspace", "delete") == "yabxc"
    assert line.type("home", "delete", "right", "ctrl+k") == "a"
    assert line.type("end", "space", "b", "c", "space", "d", "ctrl+w") == "a bc "
    assert line.type("ctrl+w", "ctrl+w", "backspace", "left") == ""
    assert line.type("q", "ctrl+u") == "" and line.heard[-2:] == ["q", ""]
    assert line.type("f9", "ctrl+x", "pageup") == "" and line.given == []
    line.type("q", "enter")
    assert line.given == ["q"]


def test_what_is_typed_replaces_a_default_and_other_keys_keep_it() -> None:
    for key in ("left", "right", "home", "end"):
        assert Line(initial="60", replace=True).type(key, "end", "5") == "605"
    assert Line(initial="60", replace=True).type("backspace", "5") == "65"
    line = Line(initial="60", replace=True)
    assert [span.text for span in line.prompt.lines(40) if span.role == "reverse"] == ["60", " "]
    assert line.type("3", "0") == "30"
    line = Line(initial="60", replace=True)
    line.prompt.insert("\r\n")  # nothing that can be shown replaces nothing
    line.prompt.insert("30\n")
    assert line.prompt.text == "30"
    line.type("enter")
    assert line.given == ["30"]


def test_escape_and_ctrl_c_give_up() -> None:
    for key in ("escape", "ctrl+c"):
        line = Line(initial="abc", history=[])
        line.type(key)
        assert line.given == [None] and line.prompt._history == []


def test_history_keeps_the_draft_and_no_repetitions() -> None:
    history = ["one", "two"]
    line = Line(history=history)
    assert line.type("d", "up") == "two" and line.type("up") == "one" and line.type("up") == "one"
    assert line.type("down") == "two" and line.type("down") == "d" and line.type("down") == "d"
    line.type("up", "enter")
    assert line.given == ["two"] and history == ["one", "two"]
    second = Line(history=history)
    second.type("x", "enter")
    assert history == ["one", "two", "x"]


def test_completion_fills_what_is_shared_then_goes_round() -> None:
    words = ["page metrics", "page monitor", "pause"]
    line = Line(complete=lambda text: [w for w in words if w.startswith(text)])
    assert line.type("p", "tab") == "pa" and line.type("g", "tab") == "page m"
    assert (
        line.type("tab") == "page metrics" and line.type("tab") == "page monitor" and line.type("tab") == "page metrics"
    )
    assert line.type("ctrl+u", "p", "a", "u", "tab") == "pause"
    assert line.type("ctrl+u", "z", "tab", "tab") == "z"


@given(st.text(max_size=200), st.integers(20, 120))
def test_whatever_is_pasted_stays_on_one_clean_line(text: str, cells: int) -> None:
    line = Line()
    line.prompt.insert(text)
    line.prompt.insert(text)
    assert line.prompt.text == sanitize(line.prompt.text, limit=LONGEST) and "\n" not in line.prompt.text
    painted = line.prompt.lines(cells)
    assert width(painted) == cells and any(span.role == "reverse" for span in painted)


def test_hostile_text_and_a_very_long_one() -> None:
    line = Line(initial=HOSTILE, hint=HOSTILE)
    assert line.prompt.text == "ab c"
    line.prompt.insert("x" * 10 * LONGEST)
    line.prompt.insert("x" * 10 * LONGEST)
    assert len(line.prompt.text) == LONGEST
    assert "PWNED" not in plain(line.prompt.lines(80)) and width(line.prompt.lines(80)) == 80


def test_the_cursor_is_always_seen() -> None:
    line = Line(initial="0123456789" * 20)
    for key in ["home", *["right"] * 150, *["left"] * 90, "end"]:
        line.type(key)
        painted = line.prompt.lines(40)
        cursor = next(span for span in painted if span.role == "reverse")
        assert cursor.text == (line.prompt.text + " ")[line.prompt.at] and width(painted) == 40


# --- in the app ----------------------------------------


@pytest.fixture
def app(recording: Path) -> ConsoleApp:
    source = ReplaySource(RunRecord(recording), at_end=True)
    return ConsoleApp(source, Themes(themes_dir()))


async def shown(app: ConsoleApp, pilot, screen_lines: Callable) -> list[str]:
    app.repaint()
    await pilot.pause()
    return screen_lines(app)


@pytest.mark.parametrize("size", [(80, 24), (40, 8)])
async def test_a_prompt_takes_keys_and_paste_until_it_is_closed(app: ConsoleApp, screen_lines, size) -> None:
    from textual.events import Paste

    heard: list[str] = []
    answers: list[str | None] = []

    async def ask() -> None:
        answers.append(await app.prompt("note", changed=heard.append))

    async with app.run_test(size=size) as pilot:
        app.spawn(ask())
        await pilot.pause()
        await pilot.press("q", "question_mark", "T")
        app.screen.post_message(Paste(HOSTILE))
        await pilot.pause()
        assert (await shown(app, pilot, screen_lines))[-1].startswith(" note q?Tab c")
        await pilot.press("enter", "j")
        await pilot.pause()
        assert answers == ["q?Tab c"] and heard[-1] == "q?Tab c" and not app._exit
        app.screen.post_message(Paste("q"))  # without a prompt it is no key
        await pilot.pause()
        assert not app._exit
        app.spawn(ask())
        await pilot.pause()
        app.spawn(ask())  # the first one is given up
        await pilot.pause()
        await pilot.press("up", "enter")
        await pilot.pause()
    assert answers == ["q?Tab c", None, "q?Tab c"]


async def test_the_palette_finds_actions_pages_and_themes(app: ConsoleApp, screen_lines) -> None:
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.press("ctrl+p", *"light", "enter")
        await pilot.pause()
        assert app.theme == "light"
        await pilot.press("ctrl+p", *"config", "enter")
        await pilot.pause()
        assert app.desk.page.id == "config"
        await pilot.press("ctrl+p", *"zzzz")
        text = "\n".join(await shown(app, pilot, screen_lines))
        assert "nothing is called so" in text and "0 of" in text
        await pilot.press("enter")
        assert isinstance(app.screen, Finder)
        await pilot.press("escape", "ctrl+p", "down", "down", "up")
        assert isinstance(app.screen, Finder) and app.screen._at == 1
        await pilot.press("escape")
        await pilot.pause()
        assert app.desk.page.id == "config" and app.theme == "light"


async def test_the_palette_offers_exactly_what_can_be_done(app: ConsoleApp) -> None:
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.press("ctrl+p")
        box = app.screen
        assert isinstance(box, Finder)
        ids = {id for id, _, _ in box._entries}
        assert {"play", "goto", "help", "page_metrics", "theme mono", ":goto "} <= ids
        assert not {"pause", "stop_now", "cancel_group", "freeze", ":set "} & ids  # of a live run
        await pilot.press(*"goto")
        assert box._found[0][0] == "goto"


async def test_a_name_must_be_typed_in_full_and_enter_be_fresh(app: ConsoleApp, monkeypatch) -> None:
    from textual.events import Paste

    answers: list[bool] = []

    async def ask() -> None:
        answers.append(await app.confirm("Stop", "all is lost", "stop the run", typed="demo"))

    def later(box: ConfirmTyped) -> None:
        box._clock = lambda: box._last + 10.0

    async with app.run_test(size=(80, 24)) as pilot:
        for keys in (["enter"], ["escape"], [*"dem", "enter"], [*"demos", "enter"], ["y", "enter"], ["ctrl+c"]):
            app.spawn(ask())
            await pilot.pause()
            assert isinstance(app.screen, ConfirmTyped)
            later(app.screen)
            await pilot.press(*keys)
            await pilot.pause()
        assert answers == [False] * 6
        app.spawn(ask())
        await pilot.pause()
        box = app.screen
        assert isinstance(box, ConfirmTyped)
        now = box._clock()
        box._clock = lambda: now
        box.post_message(Paste("demo\n"))
        await pilot.press("enter")  # what was pasted with it, or auto-repeat
        await pilot.pause()
        assert app.screen is box and len(answers) == 6
        box._clock = lambda: now + 10.0
        await pilot.press("enter")
        await pilot.pause()
    assert answers[-1] is True and len(answers) == 7


async def test_long_questions_and_lists_fit_a_small_screen(app: ConsoleApp, screen_lines) -> None:
    async def ask() -> None:
        await app.confirm("Cancel", "\n".join(f"group {i} is lost" for i in range(40)), "cancel them")

    async with app.run_test(size=(60, 16)) as pilot:
        app.spawn(ask())
        await pilot.pause()
        assert "group 0 " in "".join(screen_lines(app)) and "n  no, back" in "".join(screen_lines(app))
        await pilot.press("pagedown", "pagedown", "pagedown", "down", "pagedown")
        await pilot.pause()
        assert "group 39 " in "".join(screen_lines(app)) and "n  no, back" in "".join(screen_lines(app))
        await pilot.press("n", "ctrl+p", "pagedown", "pagedown")
        await pilot.pause()
        box = app.screen
        assert isinstance(box, Finder)
        assert box._found[box._at][2][:20] in "".join(screen_lines(app))
        await pilot.resize_terminal(30, 7)
        await pilot.press("pagedown")
        await pilot.pause()
        assert box._found[box._at][2][:8] in "".join(screen_lines(app))
