"""Orders that steer a live run: typed or by key, over a real socket; only what they do is recorded, not done."""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
from small_engine import SmallEngine
from typing_in import fill, typed

from console.errors import UsageError
from console.journal import events as ev
from console.resources import themes_dir
from console.tui import bell
from console.tui.app import ConsoleApp
from console.tui.farewell import farewell
from console.tui.live import LiveSource
from console.tui.operating import parse_tunables, silent_until
from console.tui.orders import summed
from console.tui.themes import Themes
from console.tui.widgets import dialog

KNOWN: dict[str, float | None] = {"parallel": 4.0, "hold_timeout": 600.0, "max_tries": 3.0, "token_budget": None}


@pytest.fixture
async def engine(tmp_path: Path) -> AsyncIterator[SmallEngine]:
    """An engine in step 0 with three groups and two alarms."""
    with tempfile.TemporaryDirectory(prefix="qd-") as short:
        small = SmallEngine(tmp_path, Path(short) / "s.sock")
        await small.server.start()
        append = small.writer.append
        append(ev.RunStarted(run_id="run-1", name="first", steps=3, tunables=dict(KNOWN), hold_timeout=600.0))
        append(ev.StepStarted(step=0, groups=3, policy_version=0))
        for group in range(3):
            append(ev.GroupStarted(step=0, group=group, task=f"task-{group}", size=2))
            append(ev.TrialPhase(step=0, group=group, trial=0, phase="agent"))
        append(ev.AlarmOpened(key="disk.low", level="warning", text="the disk is nearly full"))
        append(ev.AlarmOpened(key="gateway.down", level="critical", text="no gateway"))
        yield small
        await small.close()


@pytest.fixture
def app(engine: SmallEngine) -> ConsoleApp:
    return ConsoleApp(LiveSource(str(engine.socket), local=False), Themes(themes_dir()))


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.01)


async def connected(app: ConsoleApp) -> None:
    await until(lambda: app.source.view.state.seq > 0)
    app.repaint()


def last(app: ConsoleApp, screen_lines) -> str:
    app.repaint()
    return screen_lines(app)[-1]


async def say_yes(app: ConsoleApp, pilot) -> None:
    await until(lambda: isinstance(app.screen, dialog.Confirm))
    box = app.screen
    assert isinstance(box, dialog.Confirm)
    box._last -= 10.0  # the question has been there for a while
    await pilot.press("y")


def sent(engine: SmallEngine) -> list[tuple[str, dict[str, object]]]:
    return [(c.command, dict(c.args)) for c in engine.handler.done]


@pytest.mark.parametrize(
    ("text", "changes"),
    [
        ("parallel=4 hold_timeout=600", {}),
        ("parallel=2", {"parallel": 2}),
        ("hold-timeout=900.5 token_budget=1_000_000", {"hold_timeout": 900.5, "token_budget": 1000000}),
        ("token_budget=none", {}),
        ("time_budget=none", {"time_budget": None}),
        ("", {}),
    ],
)
def test_what_a_line_of_tunables_changes(text: str, changes: dict[str, object]) -> None:
    assert parse_tunables(text, KNOWN) == changes


@pytest.mark.parametrize(
    "text", ["paralel=2", "parallel", "parallel=", "parallel=0", "parallel=-1", "parallel=inf", "parallel=nan",
             "parallel=none", "max_tries=x\x1b[2J", "=2"],
)  # fmt: skip
def test_a_bad_line_of_tunables_is_one_line(text: str) -> None:
    with pytest.raises(UsageError) as error:
        parse_tunables(text, KNOWN)
    assert str(error.value).isprintable()


async def test_tuning_begins_with_what_is_and_asks_with_the_engines_words(
    app: ConsoleApp, engine: SmallEngine, screen_lines
) -> None:
    async with app.run_test(size=(100, 30)) as pilot:
        await connected(app)
        await pilot.press("equals_sign")
        await until(lambda: "parallel=4 hold_timeout=600 max_tries=3 token_budget=none" in last(app, screen_lines))
        await pilot.press("enter")
        await until(lambda: "nothing is changed" in last(app, screen_lines))
        await pilot.press("equals_sign")
        await fill(app, pilot, "parallel=2")
        await until(lambda: isinstance(app.screen, dialog.Confirm))
        assert "set would be done" in "\n".join(screen_lines(app))
        await pilot.press("enter")  # the focus is on No
        await until(lambda: "not done" in last(app, screen_lines))
        await typed(app, pilot, "set parallel=2 max_tries=5")
        await say_yes(app, pilot)
        await until(lambda: "set parallel max_tries: done" in last(app, screen_lines))
        await typed(app, pilot, "set parallel=x")
        await until(lambda: "parallel wants a number above 0, not x" in last(app, screen_lines))
    assert sent(engine) == [("set", {"parallel": 2, "max_tries": 5})]


async def test_quarantine_needs_no_question_and_says_how_to_take_it_back(
    app: ConsoleApp, engine: SmallEngine, screen_lines
) -> None:
    def hook(command) -> None:
        engine.writer.append(ev.TaskQuarantined(task=command.args["task"], on=command.args["on"]))

    engine.handler.hook = hook
    async with app.run_test(size=(80, 24)) as pilot:
        await connected(app)
        await pilot.press("j", "Q")
        await until(lambda: "quarantine done · Q takes it back" in last(app, screen_lines))
        await pilot.press("Q")
        await until(lambda: len(engine.handler.done) == 2)
        await typed(app, pilot, "quarantine task-2")
        await until(lambda: len(engine.handler.done) == 3)
    assert sent(engine) == [
        ("quarantine", {"task": "task-1", "on": True}),
        ("quarantine", {"task": "task-1", "on": False}),
        ("quarantine", {"task": "task-2", "on": True}),
    ]


async def test_alarms_are_acknowledged_and_shelved_the_most_urgent_one_first(
    app: ConsoleApp, engine: SmallEngine, screen_lines
) -> None:
    def hook(command) -> None:
        if command.command == "ack":
            engine.writer.append(ev.AlarmAcked(key=command.args["alarm"], by="me"))

    engine.handler.hook = hook
    async with app.run_test(size=(80, 24)) as pilot:
        await connected(app)
        assert "a ack" in last(app, screen_lines)
        await pilot.press("a")
        await until(lambda: len(engine.handler.done) == 1)
        await until(lambda: bool(app.desk.state.alarms["gateway.down"].acked_by))
        await pilot.press("h", "3", "0", "enter")
        await until(lambda: len(engine.handler.done) == 2)
        await until(lambda: "disk.low: silent until " in last(app, screen_lines))
        assert "(30 min)" in last(app, screen_lines)
        await typed(app, pilot, "shelve disk 5")
        await until(lambda: len(engine.handler.done) == 3)
        await typed(app, pilot, "ack nothing")
        await until(lambda: "no alarm nothing: there are disk.low, gateway.down" in last(app, screen_lines))
        await pilot.press("h")
        await fill(app, pilot, "soon")
        await until(lambda: "minutes wants a number not below 0" in last(app, screen_lines))
        for minutes in ("10081", "0.5"):
            await pilot.press("h")
            await fill(app, pilot, minutes)
            await until(lambda: f"{minutes} minutes: give 1 to 10080 (7 days)" in last(app, screen_lines))  # noqa: B023
        engine.handler.hook = None
        await pilot.press("A")
        await until(lambda: len(engine.handler.done) == 4)
    assert sent(engine) == [
        ("ack", {"alarm": "gateway.down"}),
        ("shelve", {"alarm": "disk.low", "minutes": 30}),
        ("shelve", {"alarm": "disk.low", "minutes": 5}),
        ("ack", {}),
    ]


def test_until_when_an_alarm_is_silent() -> None:
    noon = 1_790_000_000 // 86400 * 86400 + 12 * 3600.0
    assert silent_until(noon, 30) == "silent until 12:30 (30 min)"
    assert silent_until(noon, 1440) == "silent until Tue 22 Sep 12:00 (1440 min)"


async def test_a_note_is_typed_and_an_empty_one_is_none(app: ConsoleApp, engine: SmallEngine, screen_lines) -> None:
    async with app.run_test(size=(80, 24)) as pilot:
        await connected(app)
        await pilot.press("semicolon")
        await fill(app, pilot, "  ")
        await pilot.press("semicolon")
        await fill(app, pilot, "quit? no")
        await until(lambda: "note: done" in last(app, screen_lines))
    assert sent(engine) == [("note", {"text": "quit? no"})]


async def test_stop_now_wants_the_name_of_the_run(app: ConsoleApp, engine: SmallEngine, screen_lines) -> None:
    async with app.run_test(size=(80, 24)) as pilot:
        await connected(app)
        for keys in ([*"y", "enter"], ["escape"], [*"first", "enter"]):
            await typed(app, pilot, "stop-now")
            await until(lambda: isinstance(app.screen, dialog.ConfirmTyped))
            box = app.screen
            assert isinstance(box, dialog.ConfirmTyped) and engine.handler.done == []
            box._clock = lambda: time.monotonic() + 1000 * time.monotonic()
            await pilot.press(*keys)
            await until(lambda: app.screen is app._main)
        await until(lambda: "stop the run now: done" in last(app, screen_lines))
    assert sent(engine) == [("stop_now", {})]


async def test_marked_groups_are_cancelled_after_one_question(
    app: ConsoleApp, engine: SmallEngine, screen_lines, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine.handler.describe = lambda command: (  # type: ignore[method-assign]
        (False, "g2 has joined already")
        if command.args.get("group") == 1
        else (True, "stops 2 running trials; the step goes on with 4 groups")
    )
    async with app.run_test(size=(80, 24)) as pilot:
        await connected(app)
        app.desk.selection.marked = {0, 1, 2}
        await pilot.press("x")
        await until(lambda: isinstance(app.screen, dialog.Confirm))
        text = "\n".join(screen_lines(app))
        assert "Cancel g1, g2, g3" in text and "g2: g2 has joined already" in text and "y cancel 2 groups" in text
        assert text.count("goes on with") == 1 and "the step goes on with 3 groups" in text
        await pilot.press("n")
        await until(lambda: "not done" in last(app, screen_lines))
        assert app.desk.selection.marked == {0, 1, 2} and engine.handler.done == []
        await pilot.press("x")
        await say_yes(app, pilot)
        await until(lambda: "cancel g1, g3: done" in last(app, screen_lines))
        assert app.desk.selection.marked == set()
    assert sent(engine) == [("cancel_group", {"group": group, "step": 0}) for group in (0, 2)]


@pytest.mark.parametrize(
    ("left", "end"),
    [
        ([4, 4], "the step goes on with 3 groups"),
        ([2, 2], "the step goes on with 1 group"),
        ([1, 1], "the step has no group left and trains nothing"),
        ([3, 2], "the step goes on with 2 groups"),  # the first one would not have trained
    ],
)
def test_what_is_left_of_a_step_without_several_groups(left: list[int], end: str) -> None:
    texts = [f"g{i}: discards 1 scored; the step goes on with {n} group{'s' * (n > 1)}" for i, n in enumerate(left)]
    assert summed(texts) == [*(f"g{i}: discards 1 scored" for i in range(len(left))), end]
    assert summed(["g1: would be done"]) == ["g1: would be done"]


@pytest.mark.parametrize(("key", "title"), [("x", "Cancel g1 task-0"), ("X", "Cancel g1/t1 task-0")])
async def test_a_question_about_a_step_closes_when_the_step_is_over(
    app: ConsoleApp, engine: SmallEngine, screen_lines, key: str, title: str
) -> None:
    async with app.run_test(size=(80, 24)) as pilot:
        await connected(app)
        await pilot.press(key)
        await until(lambda: isinstance(app.screen, dialog.Confirm))
        assert title in "\n".join(screen_lines(app))
        engine.writer.append(ev.StepStarted(step=1, groups=3, policy_version=1))
        engine.writer.append(ev.GroupStarted(step=1, group=0, task="another", size=2))
        await until(lambda: not isinstance(app.screen, dialog.Confirm))
        await until(lambda: "step 0 is over: nothing was cancelled" in last(app, screen_lines))
    assert sent(engine) == []


async def test_a_yes_that_comes_with_the_next_step_cancels_nothing(
    app: ConsoleApp, engine: SmallEngine, screen_lines, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dialog, "OVER_SECONDS", 1000.0)
    async with app.run_test(size=(80, 24)) as pilot:
        await connected(app)
        await pilot.press("x")
        await until(lambda: isinstance(app.screen, dialog.Confirm))
        engine.writer.append(ev.StepStarted(step=1, groups=3, policy_version=1))
        await until(lambda: app.desk.state.step == 1)
        await say_yes(app, pilot)
        await until(lambda: "step 0 is over: nothing was cancelled" in last(app, screen_lines))
    assert sent(engine) == []


async def test_orders_from_a_held_picture_are_about_its_step(
    app: ConsoleApp, engine: SmallEngine, screen_lines
) -> None:
    async with app.run_test(size=(80, 24)) as pilot:
        await connected(app)
        await pilot.press("P")
        engine.writer.append(ev.StepStarted(step=1, groups=3, policy_version=1))
        engine.writer.append(ev.GroupStarted(step=1, group=0, task="another", size=2))
        await until(lambda: app.desk.state.step == 1)
        for key, what in (("x", "cancelled"), ("X", "cancelled"), ("r", "tried again")):
            await pilot.press(key)
            await until(lambda: f"step 0 is over: nothing was {what}" in last(app, screen_lines))  # noqa: B023
    assert sent(engine) == []


async def test_pause_is_a_latch_and_the_last_words_say_it(app: ConsoleApp, engine: SmallEngine, screen_lines) -> None:
    def hook(command) -> None:
        engine.writer.append(ev.DispatchPaused(paused=command.command == "pause", by="ada@host"))

    engine.handler.hook = hook
    async with app.run_test(size=(80, 24)) as pilot:
        await connected(app)
        await pilot.press("p")
        await until(lambda: "pause done · p goes on" in last(app, screen_lines) and app.desk.state.paused)
        assert farewell(app.source) == "dispatch is paused (by ada@host), the run waits: quarterdeck attach run-1"
        await pilot.press("j")
        assert "p resume" in last(app, screen_lines)
        await pilot.press("p")
        await until(lambda: not app.desk.state.paused)
    assert sent(engine) == [("pause", {}), ("resume", {})]


async def test_orders_are_no_keys_where_the_run_is_not_shown(
    app: ConsoleApp, engine: SmallEngine, screen_lines
) -> None:
    async with app.run_test(size=(80, 24)) as pilot:
        await connected(app)
        for page in ("question_mark", "i", "u"):
            await pilot.press(page)
            for key in ("x", "r", "R", "s", "p"):
                await pilot.press(key)
                assert "works where the run is shown: esc goes back" in last(app, screen_lines)
            await pilot.press("escape")
        await pilot.press("i", "colon", *"checkpoint", "enter")  # by name it is meant
        await until(lambda: len(engine.handler.done) == 1)
    assert sent(engine) == [("checkpoint", {})]


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("groop 2", "no command :groop: did you mean :group"),
        ("zzzz", "no command :zzzz; tab lists them"),
        ("stop", "no command :stop: did you mean :stop-after-step, :stop-now, "),
        ("filter class:foo", "filter: no class foo: there are "),
        ("\x1b]0;x\x07", "no command :; tab"),
        ("group 9", "no group g9 is shown: there are g1 to g3"),
        ("group x", "'x' is no group or trial: write g3 or g3/t5"),
        ("trial 7", "no trial t7 in g1: it has 2"),
        ("trial", ":trial wants more: trial 5, trial g3/t5"),
        ("page nowhere", "no page nowhere: there are run"),
        ("theme nothing", "no theme 'nothing': there are"),
        ("goto s3", "works in a replay only"),
        ("pause now", ":pause takes nothing after it"),
        ("retry g", "'g' is no group or trial"),
        ("export x.pdf", "end the name in one of .txt, .svg, .json, .csv"),
        (f"export {__file__}", "end the name in one of .txt, .svg, .json, .csv"),  # before it asks to overwrite
    ],
)
async def test_a_command_that_cannot_be_is_one_line(
    app: ConsoleApp, engine: SmallEngine, words: str, says: str
) -> None:
    app.source.view = engine.view
    with pytest.raises(UsageError) as error:
        await app.desk.typing.run(words)
    assert says in str(error.value) and str(error.value).isprintable()


async def test_typed_commands_move_the_selection_and_the_page(app: ConsoleApp, screen_lines) -> None:
    async with app.run_test(size=(80, 24)) as pilot:
        await connected(app)
        for words, at in (("group 2", (1, 0)), ("trial 2", (1, 1)), ("trial g3/t2", (2, 1)), ("group g1", (0, 0))):
            await app.desk.typing.run(words)
            assert (app.desk.selection.group, app.desk.selection.trial) == at
        await pilot.press("colon", *"confi", "tab", "enter")
        await pilot.pause()
        assert app.desk.page.id == "config"
        await pilot.press("colon", *"theme m", "tab", "enter")
        await pilot.pause()
        assert app.theme == "mono"
        await pilot.press("colon", "up", "up", "enter")
        await typed(app, pilot, "q")
        await until(lambda: app._exit)


async def test_the_picture_is_held_while_the_run_goes_on(app: ConsoleApp, engine: SmallEngine, screen_lines) -> None:
    async with app.run_test(size=(80, 24)) as pilot:
        await connected(app)
        await pilot.press("P")
        app.repaint()
        before = screen_lines(app)
        assert " FROZEN 00:00 " in before[0]
        engine.writer.append(ev.GroupStarted(step=0, group=3, task="task-3", size=2))
        await until(lambda: 3 in app.desk.state.groups)
        app.repaint()
        assert screen_lines(app)[1:-1] == before[1:-1] and len(app.desk.scene().groups) == 3
        await pilot.press("j")  # what is held can be looked over
        assert app.desk.selection.group == 1
        await pilot.press("P")
        app.repaint()
        await pilot.pause()
        assert "task-3" in "\n".join(screen_lines(app)) and " LIVE " in screen_lines(app)[0]


async def test_the_bell_rings_once_for_what_is_critical_and_new(
    app: ConsoleApp, engine: SmallEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    rung: list[str] = []
    monkeypatch.setattr(app, "ring", rung.append)
    append = engine.writer.append

    async def settle() -> None:
        await until(lambda: app.source.view.state.seq == engine.view.state.seq)
        app._main.tick()

    async with app.run_test(size=(80, 24)):
        await connected(app)
        app._main.tick()
        assert rung == []  # what was open already when the console came is on the screen
        append(ev.AlarmOpened(key="w", level="warning", text="careful"))
        append(ev.AlarmOpened(key="c", level="critical", text="lost\x1b]52;c;x\x07 it"))
        append(ev.AlarmOpened(key="d", level="critical", text="more"))
        append(ev.AlarmOpened(key="e", level="critical", text="over already"))
        append(ev.AlarmClosed(key="e"))
        await settle()
        assert rung == ["first: lost it and 1 more"]
        append(ev.AlarmOpened(key="f", level="critical", text="later"))
        await settle()
        assert len(rung) == 1  # too soon
        monkeypatch.setattr(bell, "QUIET_SECONDS", 0.0)
        app._main.tick()
        assert rung[1:] == ["first: later"]
        append(ev.AlarmOpened(key="g", level="critical", text="acknowledged at once"))
        append(ev.AlarmAcked(key="g", by="ada"))
        await settle()
    assert len(rung) == 2
