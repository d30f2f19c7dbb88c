"""Everything by keyboard: each action is reached from the start by keys alone, and what it does is seen."""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from page_bench import Clock
from small_engine import SmallEngine
from walking import LiveRecording, home, opened, press, settle

from console.control.messages import Viewer
from console.control.registry import state_dir
from console.journal import events as ev
from console.records.run_dir import RunRecord
from console.resources import themes_dir
from console.tui.actions import ACTIONS, BY_ID
from console.tui.app import ConsoleApp
from console.tui.desk import Desk
from console.tui.empty import EmptySource
from console.tui.live import LiveSource
from console.tui.main import PLAIN_LOOK
from console.tui.pages import PAGES
from console.tui.pages.help import entries
from console.tui.panes.events import key_line
from console.tui.replay import ReplaySource
from console.tui.text import plain
from console.tui.themes import Themes
from console.tui.widgets import dialog
from console.tui.widgets.finder import Finder

CHANGED = object()
HELD = (2, 4)
"""Group and trial that wait in the recording, and are selected from the start."""


@dataclass(frozen=True)
class Way:
    """How an action is reached and what is seen of it.

    Attributes:
        probe: what is looked at, before the action's key and after it; want: what it must be then.
        before, after: keys that lead there, and those that answer what is asked.
    """

    probe: Callable[[Any], object]
    want: object = CHANGED
    before: str = ""
    after: str = ""


def page(app: Any) -> str:
    return app.desk.page.id


def tab(app: Any) -> object:
    return getattr(app.desk.page, "_tab", None)


def prompt(app: Any) -> object:
    return None if app._main._prompt is None else app._main._prompt.label


def chosen(app: Any) -> tuple[int | None, int]:
    return app.desk.selection.group, app.desk.selection.trial


def focus(app: Any) -> str:
    return app.desk.selection.focus


def of_page(name: str) -> Callable[[Any], object]:
    """An attribute of the page on top, with dots."""

    def probe(app: Any) -> object:
        found = app.desk.page
        for part in name.split("."):
            found = getattr(found, part, None)
        return found

    return probe


def of_source(name: str) -> Callable[[Any], object]:
    return lambda app: getattr(app.source, name)


def seq(app: Any) -> int:
    return app.source.view.state.seq


def gone(app: Any) -> bool:
    return app._exit


RETRIED = "ctrl+g # 4 3 4 5 enter : t r i a l space g 3 / t 5 enter f3".replace(" : ", " colon ")
TRIAL, TOKENS, SEARCH = "f3", "f3 c", "f3 slash d a t a enter"

IN_A_REPLAY: dict[str, Way] = {
    # --- everywhere ---
    "help": Way(page, "help"),
    "palette": Way(lambda a: type(a.screen), Finder),
    "command_line": Way(prompt, ":"),
    "back": Way(page, "run", "m"),
    "quit": Way(gone, True),
    "interrupt": Way(lambda a: type(a.screen), dialog.Choice),
    # --- pages ---
    "page_run": Way(page, "run", "m"),
    "page_trial": Way(page, "trial"),
    "page_events": Way(page, "events"),
    "page_metrics": Way(page, "metrics"),
    "page_alarms": Way(page, "alarms"),
    "page_config": Way(page, "config"),
    "page_runs": Way(page, "runs"),
    "open": Way(page, "trial"),
    "transcript": Way(tab, "transcript"),
    "verifier": Way(tab, "verifier"),
    "tokens": Way(tab, "tokens"),
    "log": Way(tab, "log"),
    "result": Way(tab, "result", TRIAL),
    "why": Way(tab, "why"),
    # --- moving ---
    "up": Way(chosen, before="down down"),
    "down": Way(chosen),
    "page_up": Way(chosen, before="G"),
    "page_down": Way(chosen),
    "first": Way(chosen, before="G"),
    "last": Way(chosen),
    "left": Way(focus, "groups", "right"),
    "right": Way(focus, "trials"),
    "next_pane": Way(focus, "trials"),
    "previous_pane": Way(focus, "groups", "tab"),
    "pane_1": Way(focus, "groups", "tab"),
    "pane_2": Way(focus, "trials"),
    "pane_3": Way(focus, "detail"),
    "pane_4": Way(focus, "events"),
    "pane_5": Way(focus, "capture"),
    "pane_6": Way(focus, "reward"),
    "next_alarm": Way(chosen, HELD, "down down"),
    "previous_trial": Way(of_page("_target.trial"), 3, TRIAL),
    "next_trial": Way(of_page("_target.trial"), 5, TRIAL),
    "previous_try": Way(of_page("_target.try_"), 0, RETRIED),
    "next_try": Way(of_page("_target.try_"), -1, f"{RETRIED} left_parenthesis"),
    "previous_call": Way(of_page("_feed.call"), 0, TOKENS),
    "next_call": Way(of_page("_feed.call"), 1, f"{TOKENS} comma"),
    "token_table": Way(of_page("_feed.table"), True, TOKENS),
    # --- looking ---
    "filter": Way(prompt, "filter"),
    "next_match": Way(of_page("text.matches"), before=SEARCH),
    "previous_match": Way(of_page("text.matches"), before=SEARCH),
    "sort": Way(lambda a: a.desk.selection.sort, "number"),
    "zoom": Way(lambda a: a.desk.selection.zoom, "groups"),
    "density": Way(lambda a: a.desk.selection.tree, False),
    "follow": Way(of_page("text.follow"), False, TRIAL),
    "wrap": Way(of_page("text.wrap"), False, TRIAL),
    "figures": Way(of_page("_table"), True, "m"),
    "log_scale": Way(of_page("_logs"), frozenset({"loss"}), "m tab"),
    "smooth": Way(of_page("_smoothing"), 0.9, "m"),
    "yank": Way(lambda a: (state_dir() / "yank.txt").exists(), True),
    "export": Way(prompt, "export to"),
    "slower_paint": Way(lambda a: a.desk.paints_per_second, 2.0),
    "faster_paint": Way(lambda a: a.desk.paints_per_second, 4.0, "minus"),
    "mouse": Way(lambda a: a.desk.looking._mouse, True),
    "theme": Way(lambda a: a.theme),
    # --- replay ---
    "play": Way(of_source("playing"), True),
    "previous_event": Way(seq),
    "next_event": Way(seq),
    "previous_step": Way(lambda a: a.source.view.state.steps_done, 12, "right_curly_bracket"),
    "next_step": Way(lambda a: a.source.view.state.steps_done, 13),
    "slower": Way(of_source("speed"), 1.0),
    "faster": Way(of_source("speed"), 4.0),
    "start": Way(seq, 1),
    "end": Way(of_source("at_end"), True),
    "goto": Way(prompt, "go to"),
    "scrub": Way(page, "scrub"),
}


def orders(app: Any) -> list[tuple[str, dict[str, object]]]:
    return [(one.command, dict(one.args)) for one in app.engine.handler.done]


def order(command: str, **args: object) -> list[tuple[str, dict[str, object]]]:
    return [(command, args)]


ON_A_LIVE_RUN: dict[str, Way] = {
    "detach": Way(gone, True),
    "cancel_group": Way(orders, order("cancel_group", group=1, step=1), after="y"),
    "cancel_trial": Way(orders, order("cancel_trial", group=1, trial=1, step=1), after="y"),
    "retry": Way(orders, order("retry", group=1, step=1)),
    "retry_all": Way(orders, order("retry")),
    "stop_after_step": Way(orders, order("stop_after_step", on=True)),
    "pause": Way(orders, order("pause")),
    "checkpoint": Way(orders, order("checkpoint")),
    "tune": Way(orders, order("set", parallel=2), after="ctrl+u p a r a l l e l = 2 enter y"),
    "quarantine": Way(orders, order("quarantine", task="task-1", on=True)),
    "ack": Way(orders, order("ack", alarm="gateway.down")),
    "ack_all": Way(orders, order("ack")),
    "shelve": Way(orders, order("shelve", alarm="gateway.down", minutes=60), after="enter"),
    "note": Way(orders, order("note", text="well"), after="w e l l enter"),
    "stop_now": Way(orders, order("stop_now"), "ctrl+c", "c f i r s t enter"),
    "watch": Way(lambda a: any(v.acts for v in a.source.presence), False),
    "mark": Way(lambda a: a.desk.selection.marked, {1}),
    "freeze": Way(lambda a: a.desk.frozen is not None, True),
    "rewind": Way(of_source("mode"), "replay"),
}


def test_every_action_has_a_way() -> None:
    assert set(IN_A_REPLAY) | set(ON_A_LIVE_RUN) == {action.id for action in ACTIONS if action.kind != "bench"}
    assert not set(IN_A_REPLAY) & set(ON_A_LIVE_RUN)
    assert [a.id for a in ACTIONS if not a.keys] == ["stop_now"]


async def until(true: Callable[[], object]) -> None:
    async with asyncio.timeout(10):
        while not true():  # noqa: ASYNC110
            await asyncio.sleep(0.005)


# --- a recording ---


async def test_every_key_in_a_replay_does_what_it_says(
    operated: Path, monkeypatch: pytest.MonkeyPatch, tmp_path
) -> None:
    monkeypatch.setenv("QUARTERDECK_STATE_DIR", str(tmp_path / "state"))
    record = RunRecord(operated)
    held = next(e.seq for e in record.journal.events() if isinstance(e, ev.TrialHeld))
    retried = next(e.seq for e in record.journal.events() if isinstance(e, ev.TrialRetried))
    assert retried < 4345 < retried + 40  # `RETRIED` types that number
    clock = Clock()
    source = ReplaySource(record, 2.0, clock=clock, seq=held + 60)
    source.read_marks(30)
    app = ConsoleApp(source, Themes(themes_dir()))
    async with opened(app, (80, 24), clock) as pilot:
        await settle(app, pilot, clock)
        moment = source.view.state.seq
        for id, way in sorted(IN_A_REPLAY.items(), key=lambda pair: pair[0] == "quit"):
            for key in BY_ID[id].keys if id != "quit" else ("q",):
                source.playing, source.speed = False, 2.0
                app.desk.paints_per_second, app.desk.looking._mouse = 4.0, False
                (state_dir() / "yank.txt").unlink(missing_ok=True)
                await home(app, pilot, clock, moment)
                app.repaint()
                await press(app, pilot, *way.before.split())
                before = way.probe(app)
                await press(app, pilot, key, *way.after.split())
                after = way.probe(app)
                assert after != before, (id, key, before)
                assert way.want in (CHANGED, after), (id, key, after)


@pytest.mark.parametrize("key", ["q", "ctrl+q"])
async def test_keys_that_leave(operated: Path, key: str) -> None:
    clock = Clock()
    app = ConsoleApp(ReplaySource(RunRecord(operated), clock=clock, seq=100), Themes(themes_dir()))
    async with opened(app, (80, 24), clock) as pilot:
        await press(app, pilot, key)
        assert app._exit


# --- a live run, over its socket ---


@pytest.fixture
async def engine(tmp_path: Path) -> AsyncIterator[SmallEngine]:
    """An engine in step 1 of a run named first, with a held trial in the second group and an alarm."""
    with tempfile.TemporaryDirectory(prefix="qd-") as short:
        small = SmallEngine(tmp_path, Path(short) / "s.sock")
        await small.server.start()
        append = small.writer.append
        append(ev.RunStarted(run_id="run-1", name="first", steps=3, tunables={"parallel": 4.0}, hold_timeout=600.0))
        small.step(0)
        append(ev.StepStarted(step=1, groups=2, policy_version=1))
        for group in range(2):
            append(ev.GroupStarted(step=1, group=group, task=f"task-{group}", size=2))
            for trial in range(2):
                append(ev.TrialPhase(step=1, group=group, trial=trial, phase="agent"))
        at = {"step": 1, "group": 1, "trial": 1}
        append(ev.TrialFinished(**at, outcome="infrastructure", cause="sandbox", exception="BoxError", retryable=True))
        append(ev.TrialHeld(**at, deadline=time.time() + 500))
        append(ev.AlarmOpened(key="gateway.down", level="critical", text="no gateway"))
        yield small
        await small.close()


@pytest.mark.parametrize("id", list(ON_A_LIVE_RUN))
async def test_every_key_on_a_live_run_does_what_it_says(
    engine: SmallEngine, id: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dialog, "FRESH_SECONDS", 0.0)
    way = ON_A_LIVE_RUN[id]
    app = ConsoleApp(LiveSource(str(engine.socket), local=False), Themes(themes_dir()))
    app.engine = engine  # type: ignore[attr-defined]
    async with app.run_test(size=(80, 24)) as pilot:
        await until(lambda: app.source.view.state.seq >= engine.writer.last_seq and app.source.presence)
        app.repaint()
        await press(app, pilot, *way.before.split())
        before = way.probe(app)
        assert before != way.want
        source = app.source
        await press(app, pilot, *BY_ID[id].keys[:1])
        for key in way.after.split():  # to a question that comes over the socket
            await until(lambda: isinstance(app.screen, dialog.Dialog) or app._main._prompt is not None)
            await press(app, pilot, key)
        await until(lambda: way.probe(app) == way.want)
        if app.source is not source:
            await app.source.close()


# --- help, keys and palette tell the same, on every page and in every mode ---

MODES = ("live", "alone", "read-only", "no watch", "over", "dead", "replay", "no run")


@pytest.fixture
def console(operated: Path) -> Callable[[str, str], ConsoleApp]:
    """A console in a mode, with a page on top; it is not started."""
    record = RunRecord(operated)
    held = next(e.seq for e in record.journal.events() if isinstance(e, ev.TrialHeld))

    def make(mode: str, page_id: str) -> ConsoleApp:
        if mode == "no run":
            source: Any = EmptySource()
        elif mode == "replay":
            source = ReplaySource(record, clock=Clock(), seq=held + 60)
        else:
            source = LiveRecording(record, Clock(), record.journal.last_seq if mode == "over" else held + 60)
            source.status = {"over": "ended", "dead": "dead"}.get(mode, "ok")
            source.acts = mode not in ("no watch", "read-only")
            if mode != "live":
                source.presence = tuple(
                    Viewer(author=v.author, acts=v.you != (mode == "no watch")) for v in source.presence
                )
            if mode == "alone":
                source.presence = ()
        app = ConsoleApp(source, Themes(themes_dir()), read_only=mode == "read-only")
        if app.desk.page.id != page_id:
            app.desk.show(page_id)
        return app

    return make


def pages_in(mode: str) -> list[str]:
    if mode == "no run":
        return ["runs"]
    return [one for one in PAGES if one != "help" and (one != "scrub" or mode == "replay")]


@pytest.mark.parametrize("mode", MODES)
async def test_help_keys_palette_and_key_line_tell_the_same(console, mode: str) -> None:
    for page_id in pages_in(mode):
        desk = console(mode, page_id).desk
        same_in_help(desk)
        one_thing_a_key(desk)
        listed_in_palette(desk, mode)
        at_80_columns(desk, mode)
    at_80_columns(console(mode, "help").desk, mode)


def same_in_help(desk: Desk) -> None:
    """Every key in the help leads to its action; every key that leads to something here is in it, or says why not."""
    told = entries(desk, desk.page)
    reached = {(key, desk.meant(key).id) for entry in told for key in entry.keys}  # type: ignore[union-attr]
    meant = {(key, action) for entry in told for action in entry.actions for key in BY_ID[action].keys}
    assert reached == meant, (desk.page.id, reached ^ meant)
    for key in desk.keymap.by_key:
        action = desk.meant(key)
        if action is not None and desk.is_here(action):
            assert (key, action.id) in reached or desk.why_not(action), (desk.page.id, key)


def one_thing_a_key(desk: Desk) -> None:
    for key, ids in desk.keymap.by_key.items():
        can = [id for id in ids if desk.available(desk.keymap[id])]
        assert len(can) <= 1, (desk.page.id, key, can)


def listed_in_palette(desk: Desk, mode: str) -> None:
    listed = {action.id for action in desk.typing.actions()}
    can = {action.id for action in desk.keymap.actions if desk.available(action)}
    assert can - listed <= MOVING and not MOVING & listed, (desk.page.id, can - listed - MOVING)
    # Beyond the page's own: orders, which name what they are about themselves.
    assert {desk.keymap[id].kind for id in listed - can} <= {"command"}
    assert (mode in ("live", "alone")) == bool(listed & {"pause", "stop_now", "cancel_group"})


def at_80_columns(desk: Desk, mode: str) -> None:
    page_id, text = desk.page.id, plain(key_line(desk.scene(), 80))
    if page_id == "scrub":  # it says how to scrub instead, and it says all of it
        assert "esc goes back" in text
        return
    assert text.startswith(
        f" ? help  {'' if mode in ('replay', 'no run', 'over', 'dead') else 'd detach  '}q quit  "
    ), text
    assert (" esc back " in text) == (len(desk._pages) > 1), (page_id, text)
    labels, acts = set(text.split()), mode in ("live", "alone")
    assert ("stop" in labels) == (acts and page_id not in ("config", "runs", "help")), text
    if page_id in ("run", "trial") and acts:
        assert {"cancel", "retry"} <= labels, text


MOVING = {
    "up", "down", "left", "right", "page_up", "page_down", "first", "last", *(f"pane_{n}" for n in range(1, 7)),
    "palette", "command_line",
}  # fmt: skip
"""Not in the palette: they are on keys that every page has."""


async def test_clicks_are_the_terminals_own_unless_they_are_asked_for(console, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[bool] = []
    monkeypatch.setattr(ConsoleApp, "take_mouse", lambda self, on: asked.append(on))
    app = console("replay", "run")
    async with app.run_test(size=(80, 24)) as pilot:
        await press(app, pilot, "m", "escape")
        assert not asked and not PLAIN_LOOK.mouse
        await press(app, pilot, "M", "M")
    assert asked == [True, False]
