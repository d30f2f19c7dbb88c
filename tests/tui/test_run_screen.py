"""The run screen through the real app, driven by a recording and by events."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from rich.cells import cell_len

from console.journal import events as ev
from console.records.run_dir import RunRecord
from console.resources import themes_dir
from console.state.sanitize import sanitize
from console.tui.app import ConsoleApp
from console.tui.replay import ReplaySource
from console.tui.themes import Themes

SIZES = [(80, 24), (120, 40), (200, 60), (100, 30), (60, 16), (58, 14), (20, 3)]


def app_on(
    recording: Path, until: type[ev.Event] | None = None, ascii_only: bool = False, theme: str = "dark"
) -> ConsoleApp:
    """A paused replay, right after the first event of a type plus some more, or at the end."""
    record = RunRecord(recording)
    source = ReplaySource(record)
    source.playing = False
    seqs = [e.seq for e in record.journal.events() if until is not None and isinstance(e, until)]
    source.play_to(seqs[0] + 60 if seqs else record.journal.last_seq)
    return ConsoleApp(source, Themes(themes_dir()), theme, ascii_only)


@pytest.mark.parametrize(("width", "height"), SIZES)
@pytest.mark.parametrize("moment", [ev.TrialHeld, ev.StepStarted, None])
async def test_every_size_paints_whole_lines(
    recording: Path, width: int, height: int, moment: type[ev.Event] | None, screen_lines
) -> None:
    app = app_on(recording, moment)
    async with app.run_test(size=(width, height)) as pilot:
        await pilot.pause()
        lines = screen_lines(app)
    assert len(lines) == height
    assert {cell_len(line) for line in lines} == {width}
    if width >= 60:
        assert "need" not in lines[0]
        text = "\n".join(lines)
        assert all(word in text for word in ("REPLAY", "step", "Groups", "Trials", "q quit"))
    else:
        assert lines[0].startswith(f"terminal {width}x{height}, need 60x16"[: width - 1])


async def test_resize_keeps_the_selection(recording: Path, screen_lines) -> None:
    app = app_on(recording, ev.TrialHeld)
    async with app.run_test(size=(200, 60)) as pilot:
        await pilot.press("j", "j", "tab", "j")
        before = (app.desk.selection.group, app.desk.selection.trial)
        for size in ((60, 15), (120, 40), (80, 24)):
            await pilot.resize_terminal(*size)
            await pilot.pause()
            assert {cell_len(line) for line in screen_lines(app)} == {size[0]}
        assert (app.desk.selection.group, app.desk.selection.trial) == before


async def test_the_selection_follows_a_held_trial_until_the_operator_moves(recording: Path) -> None:
    app = app_on(recording, ev.TrialHeld)
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.pause()
        assert (app.desk.selection.group, app.desk.selection.trial) == (2, 4)
        await pilot.press("j")
        chosen = app.desk.selection.group
        assert chosen != 2
        await pilot.press("right_square_bracket", "right_square_bracket")
        assert app.desk.selection.group == chosen
        await pilot.press("exclamation_mark")
        assert (app.desk.selection.group, app.desk.selection.trial) == (2, 4)


async def test_theme_key_goes_through_all_themes(recording: Path) -> None:
    app = app_on(recording)
    async with app.run_test(size=(80, 24)) as pilot:
        seen = []
        for _ in app.themes.loaded:
            await pilot.press("T")
            seen.append(app.theme)
            background = app.screen._compositor.render_strips()[0]
            assert background.cell_length == 80
    assert sorted(seen) == sorted(app.themes.loaded)


async def test_nothing_is_painted_when_nothing_changes(recording: Path) -> None:
    app = app_on(recording, ev.TrialHeld)
    async with app.run_test(size=(120, 40)) as pilot:
        async with asyncio.timeout(10):
            while not app.source.marked:  # noqa: ASYNC110  the whole recording is looked over beside the screen
                await asyncio.sleep(0.01)
        app.repaint()
        await pilot.pause()
        painted = []
        original = app._display
        app._display = lambda screen, renderable: (painted.append(renderable), original(screen, renderable))  # type: ignore[method-assign]
        for _ in range(5):
            app._main.tick()
            app._main.paint()
            await pilot.pause()
        assert painted == []
        await pilot.press("j")
        await pilot.pause()
        assert painted


HOSTILE = "\x1b]0;PWNED\x07\x1b[2J\x1b[H\x9b31m\x1b]52;c;aGk=\x1b\\\u202eALL PASSED\u200b\ud800\r\n\t[red]x[/red]"


async def test_hostile_text_reaches_no_cell(tmp_path: Path, screen_lines) -> None:
    from console.journal.writer import JournalWriter

    at = {"step": 0, "group": 0, "trial": 0}
    hostile = HOSTILE.replace("\ud800", "")  # a lone surrogate cannot be written as JSON in the first place
    with JournalWriter(tmp_path / "journal") as writer:
        for event in (
            ev.RunStarted(run_id=hostile, name=hostile, model=hostile, gateway_url=hostile, steps=1),
            ev.RunPhase(phase=hostile, detail=hostile),
            ev.StepStarted(step=0, groups=1, policy_version=0),
            ev.GroupStarted(step=0, group=0, task=hostile, size=2),
            ev.TrialPhase(**at, phase=hostile),
            ev.TrialFinished(
                **at, outcome="infrastructure", cause=hostile, rule=hostile, evidence=hostile * 20, exception=hostile,
                trial_dir=hostile, seconds={hostile: 1.0}, retryable=True,
            ),
            ev.TrialHeld(**at, deadline=1.0),
            ev.TrialFinished(step=0, group=0, trial=1, outcome=hostile, cause=hostile),
            ev.GatewayHealth(reachable=False, detail=hostile),
            ev.SandboxStats(live=0, left=[hostile]),
            ev.CheckpointSaved(name=hostile, step=0),
            ev.AlarmOpened(key=hostile, level="critical", text=hostile, remedy=hostile),
            ev.CommandRequested(id="c", command=hostile, args={"group": 0}, author=hostile),
            ev.CommandAccepted(id="c", effect=hostile),
            ev.Note(text=hostile, level="error"),
            ev.GroupFinished(step=0, group=0, kept=False, reason=hostile),
        ):  # fmt: skip
            writer.append(event)
    for size, keys in (((80, 24), []), ((120, 40), []), ((120, 40), ["enter"]), ((60, 16), []), ((50, 9), [])):
        source = ReplaySource(RunRecord(tmp_path), at_end=True)
        app = ConsoleApp(source, Themes(themes_dir()))
        async with app.run_test(size=size) as pilot:
            await pilot.press(*keys)
            await pilot.pause()
            lines = screen_lines(app)
            title = app.title
        text = "".join(lines)
        assert text == sanitize(text, limit=10**6), [line for line in lines if line != sanitize(line)]
        assert "PWNED" not in text and "PWNED" not in title
        assert {cell_len(line) for line in lines} == {size[0]}
