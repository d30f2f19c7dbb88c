"""The console on a live run: a real journal, a real socket, real commands; only what they do is recorded, not done."""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
from small_engine import SmallEngine

from console.control.client import author
from console.journal import events as ev
from console.resources import themes_dir
from console.tui import live
from console.tui.app import ConsoleApp
from console.tui.farewell import farewell
from console.tui.live import LiveSource
from console.tui.themes import Themes
from console.tui.widgets import dialog


@pytest.fixture
async def engine(tmp_path: Path) -> AsyncIterator[SmallEngine]:
    """An engine in step 1 with a held trial in the second group."""
    with tempfile.TemporaryDirectory(prefix="qd-") as short:
        small = SmallEngine(tmp_path, Path(short) / "s.sock")
        await small.server.start()
        small.begin(steps=3, pid=0)
        small.step(0)
        append = small.writer.append
        append(ev.StepStarted(step=1, groups=2, policy_version=1))
        for group in range(2):
            append(ev.GroupStarted(step=1, group=group, task=f"task-{group}", size=2))
            for trial in range(2):
                append(ev.TrialPhase(step=1, group=group, trial=trial, phase="agent"))
        at = {"step": 1, "group": 1, "trial": 1}
        append(ev.TrialFinished(**at, outcome="infrastructure", cause="sandbox", exception="BoxError", retryable=True))
        append(ev.TrialHeld(**at, deadline=time.time() + 500))
        yield small
        await small.close()


@pytest.fixture
def new_app(engine: SmallEngine) -> Callable[..., ConsoleApp]:
    def make(**options) -> ConsoleApp:
        return ConsoleApp(LiveSource(str(engine.socket), local=False), Themes(themes_dir()), **options)

    return make


async def until(pilot, condition: Callable[[], bool]) -> None:
    """Let the app work until the condition holds."""
    async with asyncio.timeout(10):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.01)


async def connected(app: ConsoleApp, pilot) -> None:
    await until(pilot, lambda: app.source.view.state.seq > 0)
    app.repaint()
    await pilot.pause()


def shown(app: ConsoleApp, screen_lines) -> str:
    app.repaint()
    return "\n".join(screen_lines(app))


async def test_attach_shows_the_run_and_what_needs_the_operator(new_app, screen_lines) -> None:
    app = new_app()
    async with app.run_test(size=(80, 24)) as pilot:
        await connected(app, pilot)
        text = shown(app, screen_lines)
    assert " LIVE " in text and "g2/t2 BoxError held" in text and "r retry" in text
    assert "step 1/3" in text and "task-1" in text and "HELD" in text


async def test_cancel_asks_with_the_engines_words_and_a_stale_yes_is_ignored(
    new_app, engine: SmallEngine, screen_lines, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = new_app()
    async with app.run_test(size=(80, 24)) as pilot:
        await connected(app, pilot)
        await pilot.press("x")
        await until(pilot, lambda: "cancel_group would be done" in shown(app, screen_lines))
        assert "no, back" in shown(app, screen_lines)
        box = app.screen
        assert isinstance(box, dialog.Confirm)
        now = box._last
        box._clock = lambda: now + 0.1
        await pilot.press("y", "y", "y")  # auto-repeat: never a fresh press
        assert app.screen is box and engine.handler.done == []
        await pilot.press("enter")  # the focus is on No
        await until(pilot, lambda: app.screen is not box)
        assert engine.handler.done == []
        await pilot.press("x")
        await until(pilot, lambda: isinstance(app.screen, dialog.Confirm))
        fresh = app.screen
        fresh._clock = lambda: now + 1000.0  # type: ignore[attr-defined]
        await pilot.press("y")
        await until(pilot, lambda: bool(engine.handler.done))
        await until(pilot, lambda: "cancel g2: done" in shown(app, screen_lines))
    command = engine.handler.done[0]
    assert (command.command, command.args, command.dry_run) == ("cancel_group", {"group": 1, "step": 1}, False)


async def test_the_way_of_a_command_is_visible(new_app, engine: SmallEngine, screen_lines) -> None:
    gate = asyncio.Event()
    engine.handler.hook = lambda command: gate.wait()
    app = new_app()
    async with app.run_test(size=(120, 40)) as pilot:
        await connected(app, pilot)
        await pilot.press("r")
        await until(pilot, lambda: "retry g2 accepted: retry would be done" in shown(app, screen_lines))
        assert "retrying" in shown(app, screen_lines).split("Trials of")[0]
        gate.set()
        await until(pilot, lambda: "retry g2: done: retry done" in shown(app, screen_lines))
    assert engine.handler.done[0].args == {"group": 1, "step": 1}


async def test_retry_of_a_trial_of_a_group_and_of_all(new_app, engine: SmallEngine, screen_lines) -> None:
    app = new_app()
    async with app.run_test(size=(80, 24)) as pilot:
        await connected(app, pilot)
        await pilot.press("tab", "r")
        await until(pilot, lambda: len(engine.handler.done) == 1)
        await pilot.press("R")
        await until(pilot, lambda: len(engine.handler.done) == 2)
        await pilot.press("shift+tab", "j", "r")
        await until(pilot, lambda: "nothing waits in g1: g2/t2 does" in shown(app, screen_lines))
    assert [c.args for c in engine.handler.done] == [{"group": 1, "trial": 1, "step": 1}, {}]


async def test_stop_after_step_is_a_latch(new_app, engine: SmallEngine, screen_lines) -> None:
    def hook(command) -> None:
        engine.writer.append(ev.StopRequested(when="after_step" if command.args["on"] else ""))

    engine.handler.hook = hook
    app = new_app()
    async with app.run_test(size=(80, 24)) as pilot:
        await connected(app, pilot)
        await pilot.press("s")
        await until(pilot, lambda: "the run stops after step 1 · s takes it back" in screen_lines(app)[-1])
        assert " STOPPING AFTER STEP " in shown(app, screen_lines)
        assert farewell(app.source) == f"the run stops after step 1 (asked for by {author()}): quarterdeck attach run-1"
        await pilot.press("j")  # any key takes the notice away: the key itself says it now
        assert "s take stop back" in shown(app, screen_lines)
        await pilot.press("s")
        await until(pilot, lambda: " LIVE " in shown(app, screen_lines))
        assert "the stop is taken back" in screen_lines(app)[-1]
    assert [c.args for c in engine.handler.done] == [{"on": True}, {"on": False}]


async def test_ctrl_c_offers_a_choice_with_a_harmless_default(new_app, engine: SmallEngine, screen_lines) -> None:
    app = new_app()
    async with app.run_test(size=(80, 24)) as pilot:
        await connected(app, pilot)
        await pilot.press("ctrl+c")
        await until(pilot, lambda: "stop now" in shown(app, screen_lines))
        await pilot.press("enter")
        await pilot.pause()
        assert engine.handler.done == [] and app.return_value is None
        await pilot.press("ctrl+c", "c")
        await until(pilot, lambda: "stop_now would be done" in shown(app, screen_lines))
        await pilot.press("n")
        await pilot.pause()
        assert engine.handler.done == []
        await pilot.press("ctrl+c", "s")
        await until(pilot, lambda: [c.command for c in engine.handler.done] == ["stop_after_step"])


@pytest.mark.parametrize("keys", [["q"], ["d"], ["ctrl+c", "d"], ["ctrl+q"]])
async def test_leaving_never_stops_a_run(new_app, engine: SmallEngine, keys: list[str]) -> None:
    app = new_app()
    async with app.run_test(size=(80, 24)) as pilot:
        await connected(app, pilot)
        for key in keys:
            await pilot.press(key)
            await pilot.pause()
        await until(pilot, lambda: app._exit)
    assert (app.return_code or 0) == 0
    assert engine.handler.done == [] and engine.view.state.status == "live"
    assert farewell(app.source) == "the run goes on: quarterdeck attach run-1"


async def test_read_only_hides_and_refuses(new_app, engine: SmallEngine, screen_lines) -> None:
    app = new_app(read_only=True)
    async with app.run_test(size=(120, 40)) as pilot:
        await connected(app, pilot)
        assert "cancel group" not in screen_lines(app)[-1]
        for key in ("x", "X", "r", "R", "s"):
            await pilot.press(key)
            await pilot.pause()
            assert "read-only" in screen_lines(app)[-1]
    assert engine.handler.done == []


async def test_two_consoles_of_one_user_and_the_watch_that_is_taken(new_app, engine: SmallEngine, screen_lines) -> None:
    app = new_app()
    other = live.LiveSource(str(engine.socket), engine.run_id, local=False, author=f"{author()}:pts/77")
    assert live.viewer_name().startswith(f"{author()}:")
    async with app.run_test(size=(120, 30)) as pilot:
        await connected(app, pilot)
        await until(pilot, lambda: any(v.you and v.acts for v in app.source.presence))
        await other.start()
        await until(pilot, lambda: len(other.presence) == 2)
        await pilot.press("W", "W")
        await until(pilot, lambda: "you have the watch" in screen_lines(app)[-1])
        await other.take_watch()
        await until(pilot, lambda: any(v.acts and not v.you for v in app.source.presence))
        app._main.tick()
        await pilot.pause()
        text = screen_lines(app)
        assert f"{author()}:pts/77 took the watch" in "".join(text[-2:]) and "you have the watch" not in "".join(text)
        assert f"watch: {author().partition('@')[0]}:pts/77" in text[0]
    await other.close()


async def test_a_refused_command_says_why(new_app, engine: SmallEngine, screen_lines) -> None:
    app = new_app()
    engine.handler.describe = lambda command: (False, "g2 already joined")  # type: ignore[method-assign]
    async with app.run_test(size=(80, 24)) as pilot:
        await connected(app, pilot)
        for key in ("x", "r"):
            await pilot.press(key)
            await until(pilot, lambda: "refused: g2 already joined" in screen_lines(app)[-1])
    assert engine.handler.done == []


async def test_silence_is_stale_and_a_lost_engine_is_said(
    new_app, engine: SmallEngine, screen_lines, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = new_app()
    async with app.run_test(size=(80, 24)) as pilot:
        await connected(app, pilot)
        monkeypatch.setattr(live, "STALE_AFTER", -1.0)
        assert " STALE " in shown(app, screen_lines)
        monkeypatch.undo()
        await engine.server.close()
        await until(pilot, lambda: " LINK LOST " in shown(app, screen_lines))
        await pilot.press("r")
        await until(pilot, lambda: "no connection" in " ".join(screen_lines(app)[-2:]))
        app.source._local = True  # type: ignore[attr-defined]
        app.source.view.state.pid = 2**22 + 1  # no process has this number
        assert " DEAD " in shown(app, screen_lines) and "the engine is gone" in shown(app, screen_lines)
        monkeypatch.setattr(app.source, "now", lambda: 5e9)  # hours later everything reads as at the last event
        text = shown(app, screen_lines)
        assert (
            "ROLLOUT 00:00" in text
            and "as of" in text
            and " 1 alarm " in text
            and "sandboxes unknown" in text
            and "were live" in text
        )
        assert not any(label in screen_lines(app)[-1] for label in ("x cancel", "r retry", "s stop"))
        for key in ("x", "X", "r", "R", "s"):
            await pilot.press(key)
            assert (
                f" {key} (" in screen_lines(app)[-1]
                and "the engine is gone, nobody takes commands" in screen_lines(app)[-1]
            )
        app.source.view.state.run_dir = "/runs/my run"
        assert farewell(app.source) == (
            "the engine is gone: quarterdeck train with the same options resumes it; "
            "quarterdeck replay '/runs/my run' shows what was recorded"
        )


async def test_the_end_of_the_run_is_shown_and_can_close_the_console(
    new_app, engine: SmallEngine, screen_lines
) -> None:
    app = new_app(leave_after=0.01)
    async with app.run_test(size=(80, 24)) as pilot:
        await connected(app, pilot)
        engine.finish()
        await until(pilot, lambda: " FINISHED " in shown(app, screen_lines))
        await pilot.press("x")
        await until(pilot, lambda: app._exit)
    for action in ("watch", "cancel_trial"):
        assert app.desk.why_not(app.desk.keymap[action]).endswith(": the run is over")
    assert engine.handler.done == []
    assert farewell(app.source) == "run run-1 finished, exit 0: reward 0.25 in 1 step"
    state, rows = app.source.view.state, app.source.view.history.rows
    rows.append(ev.StepFinished(step=1, reward_mean=0.98))
    state.steps_done = 2
    assert farewell(app.source) == "run run-1 finished, exit 0: reward 0.25 -> 0.98 in 2 steps"
    state.status, state.exit_code, state.reason = "failed", 7, "disk\nfull"
    assert farewell(app.source) == "run run-1 failed, exit 7: disk full"


@pytest.mark.parametrize(("size", "rows"), [((80, 24), 3), ((120, 40), 2), ((60, 16), 1)])
async def test_why_a_run_did_not_complete_is_read_whole(
    new_app, engine: SmallEngine, screen_lines, size: tuple[int, int], rows: int
) -> None:
    reason = " ".join(f"word{i}" for i in range(28))
    app = new_app()
    async with app.run_test(size=size) as pilot:
        await connected(app, pilot)
        engine.finish("failed", 7, reason)
        await until(pilot, lambda: " FAILED " in shown(app, screen_lines))
        await pilot.pause()  # the panes make room
        lines = screen_lines(app)
    assert "failed, exit 7" in lines[0]
    said = " ".join(" ".join(line.split()) for line in lines[2 : 2 + rows])
    assert said == f"! {reason}" if rows > 1 else said.startswith("! word0 word1") and said.endswith("…")
    assert "Groups" in lines[2 + rows]


@pytest.mark.parametrize(("more", "others", "says"), [
    (0, 0, " 1 alarm  g2/t2 BoxError held: stops in "),
    (7, 2, " 4 alarms  g2/t2 BoxError +7 held: stops in "),
])  # fmt: skip
async def test_the_countdown_and_the_keys_fit_at_80_columns(
    new_app, engine: SmallEngine, screen_lines, more: int, others: int, says: str
) -> None:
    append = engine.writer.append
    if more:
        append(ev.GroupStarted(step=1, group=2, task="task-2", size=8))
    for trial in range(more):
        at = {"step": 1, "group": 2, "trial": trial}
        append(ev.TrialFinished(**at, outcome="infrastructure", cause="runner", exception="RunnerLostError" * 3))
        append(ev.TrialHeld(**at, deadline=time.time() + 600))
    for group in (1, 2):
        append(ev.AlarmOpened(key=f"held.g{group + 1}", level="critical", text="held"))
    for i in range(others):
        append(ev.AlarmOpened(key=f"other.{i}", level="warning", text="x"))
    app = new_app()
    async with app.run_test(size=(80, 24)) as pilot:
        await connected(app, pilot)
        row = shown(app, screen_lines).split("\n")[2]
        assert says in row and row.endswith(" r retry  x cancel ")
        app.source.view.state.groups[1].trials[1].exception = "AVeryLongNameOfAnExceptionThatIsCutError"
        row = shown(app, screen_lines).split("\n")[2]
    assert "stops in " in row and "r retry  x cancel" in row and len(row) == 80
