"""The list of runs: what needs attention first, opened with one key, and an empty one that teaches."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path

import pytest
from made_bench import BenchPlan, make_bench
from small_engine import SmallEngine

from console.control.registry import register
from console.journal import events as ev
from console.resources import themes_dir
from console.tui.app import ConsoleApp
from console.tui.empty import EmptySource
from console.tui.pages import runs as runs_page
from console.tui.run_list import RunList
from console.tui.themes import Themes

NOW = 1_800_000_000.0
DEAD_PID = 2**22 + 1


@pytest.fixture(autouse=True)
def own_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("QUARTERDECK_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.setattr(runs_page, "wall_clock", lambda: NOW)


async def recorded(tmp_path: Path, run_id: str, status: str | None, age: float, pid: int = DEAD_PID, **more) -> Path:
    """A registered run, ended with a status or not at all."""
    path = tmp_path / run_id
    path.mkdir()
    engine = SmallEngine(path, tmp_path / f"{run_id}.sock", run_id, clock=lambda: NOW - age)
    engine.writer.append(
        ev.RunStarted(run_id=run_id, name=more.get("name", run_id), run_dir=str(path), pid=pid, steps=3)
    )
    engine.step(0)
    if more.get("resumed"):
        engine.writer.append(ev.RunStarted(run_id=run_id, name=run_id, run_dir=str(path), pid=pid, steps=3))
    if status is not None:
        engine.finish(status, {"completed": 0, "stopped": 3}.get(status, 7))
    await engine.close()
    register(run_id, path, more.get("name", run_id), pid, None, NOW - age)
    return path


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.01)


@pytest.fixture
def app() -> ConsoleApp:
    return ConsoleApp(EmptySource(), Themes(themes_dir()))


async def listed(app: ConsoleApp, screen_lines) -> list[str]:
    await until(lambda: app.desk.page._runs is not None)  # type: ignore[attr-defined]
    app.repaint()
    return screen_lines(app)


async def test_those_that_need_attention_come_first(tmp_path: Path) -> None:
    for run_id, status, age in (
        ("done", "completed", 10),
        ("bad", "failed", 500),
        ("ended", "stopped", 20),
        ("lost", None, 90),
    ):
        await recorded(tmp_path, run_id, status, age)
    await recorded(tmp_path, "older", "failed", 9000)
    runs = RunList()
    assert [run.run_id for run in runs.read()] == ["lost", "bad", "older", "ended", "done"]
    assert runs.read()[0].reward == pytest.approx(0.25)


async def test_what_has_ended_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    await recorded(tmp_path, "done", "completed", 10)
    runs = RunList()
    assert len(runs.read()) == 1
    monkeypatch.setattr("console.tui.run_list.info_of", lambda entry: pytest.fail("read again"))
    assert len(runs.read()) == 1


async def test_an_empty_list_teaches(app: ConsoleApp, screen_lines, matches_snapshot) -> None:
    async with app.run_test(size=(80, 24)) as pilot:
        lines = await listed(app, screen_lines)
        matches_snapshot("runs-empty-80x24", lines)
        await pilot.press("enter")
        assert "there is no run to open" in screen_lines(app)[-1]
        for key in ("m", "f2", "x", "P", "B", "exclamation_mark", "d"):
            await pilot.press(key)
            assert "no run is open" in screen_lines(app)[-1], key
        await pilot.press("question_mark")
        assert app.desk.page.id == "help" and "LIVE" not in screen_lines(app)[0]
        await pilot.press("escape", "q")
        await until(lambda: app._exit)


@pytest.mark.parametrize("size", [(80, 24), (120, 40), (60, 16)])
async def test_the_list(tmp_path: Path, app: ConsoleApp, screen_lines, matches_snapshot, size: tuple[int, int]) -> None:
    await recorded(tmp_path, "night-run", "failed", 7200, name="a\x1b]0;PWNED\x07 very long name of a run that is cut")
    await recorded(tmp_path, "lost-run", None, 90)
    await recorded(tmp_path, "began-anew", "stopped", 8000, resumed=True)
    async with app.run_test(size=size) as pilot:
        lines = await listed(app, screen_lines)
        await pilot.pause()
    text = "\n".join(lines).replace(str(tmp_path), "/runs")
    assert "PWNED" not in text and "\x1b" not in text
    assert lines[0].startswith(" Runs  0 live, 3 recorded ")
    assert lines[2].startswith(">  lost-run ") and " dead " in lines[2] and " 1/3 " in lines[2] and " .250 " in lines[2]
    assert lines[3].startswith("   a very long name") and " failed " in lines[3] and " 2h00 " in lines[3]
    assert lines[4].startswith("   began-anew ") and " 1/3 " in lines[4], "as `runs` has it, whatever step is under way"
    assert "enter open" in lines[-1]


async def test_enter_opens_a_recording_and_the_list_is_one_key_away(
    tmp_path: Path, app: ConsoleApp, screen_lines
) -> None:
    await recorded(tmp_path, "one", "completed", 10)
    await recorded(tmp_path, "two", "completed", 20)
    async with app.run_test(size=(80, 24)) as pilot:
        await listed(app, screen_lines)
        await pilot.press("j", "enter")
        await until(lambda: app.desk.state.run_id == "two")
        app.repaint()
        await pilot.pause()
        assert app.desk.page.id == "run" and "the run is over: this is its recording" in screen_lines(app)[-1]
        await pilot.press("u")
        await listed(app, screen_lines)
        assert app.desk.page.id == "runs" and "REPLAY" in screen_lines(app)[0]
        await pilot.press("slash", *"name:one", "enter", "enter")
        await until(lambda: app.desk.state.run_id == "one")
        await pilot.press("u", "escape")
        await pilot.pause()
        assert app.desk.page.id == "run"
    assert app.last_run() is app.source


async def test_a_run_that_cannot_be_read_is_one_line(tmp_path: Path, app: ConsoleApp, screen_lines) -> None:
    path = await recorded(tmp_path, "one", "completed", 10)
    async with app.run_test(size=(80, 24)) as pilot:
        await listed(app, screen_lines)
        for file in (path / "journal").iterdir():
            file.write_bytes(b"")
        await pilot.press("enter")
        await until(lambda: "empty" in screen_lines(app)[-1])
        assert app.desk.no_run and app.desk.page.id == "runs"


async def test_a_live_run_opens_live_and_is_followed(tmp_path: Path, app: ConsoleApp, screen_lines) -> None:
    import os
    import tempfile

    with tempfile.TemporaryDirectory(prefix="qd-") as short:
        engine = SmallEngine(tmp_path / "live", Path(short) / "s.sock")
        await engine.server.start()
        engine.begin(pid=os.getpid())
        engine.writer.append(ev.AlarmOpened(key="a", level="critical", text="look"))
        register("run-1", tmp_path / "live", "first", os.getpid(), engine.socket, NOW)
        async with app.run_test(size=(80, 24)) as pilot:
            lines = await listed(app, screen_lines)
            assert lines[2].startswith(">! first ") and " live " in lines[2]
            await pilot.press("enter")
            await until(lambda: app.source.mode == "live" and app.source.link().status == "ok")
            engine.step(0)
            await until(lambda: app.desk.state.steps_done == 1)
            await pilot.press("u")
            await listed(app, screen_lines)
            await pilot.press("enter")  # it is open already
            await pilot.pause()
            assert app.desk.page.id == "run"
        await engine.close()
    record = json.dumps(sorted(type(event).__name__ for event in engine.handler.done))
    assert record == "[]"


async def test_of_a_benchmark_the_rate_is_told_with_its_rule(tmp_path: Path, app: ConsoleApp, screen_lines) -> None:
    make_bench(tmp_path / "bench", BenchPlan(tasks=24, attempts=1, ended=None, over=True, crowded=0.0, stood=0))
    register("tb21-0011", tmp_path / "bench", "tb21-full", DEAD_PID, None, NOW)
    async with app.run_test(size=(120, 40)):
        text = "\n".join(await listed(app, screen_lines))
    assert "33.3 %" in text and "infra-excluded" in text and ".410" not in text
