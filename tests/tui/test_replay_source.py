"""The replay clock: whatever is pressed, the view equals the fold of the events up to where it stands."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from console.control.client import new_command
from console.errors import ControlError, RecordingError
from console.journal import events as ev
from console.records.run_dir import RunRecord
from console.resources import themes_dir
from console.state.reduce import fold
from console.tui import replay
from console.tui.app import ConsoleApp
from console.tui.opening import notice_of, open_record
from console.tui.replay import IDLE_SECONDS, MAX, ReplaySource, parse_speed
from console.tui.themes import Themes


class Clock:
    """A wall clock that is turned by hand."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from console.journal.writer import JournalWriter

    path = tmp_path_factory.mktemp("small")
    moments = iter([0.0, 1.0, 2.0, 3.0, 500.0, 500.5, 501.0, 502.0, 503.0, 504.0])
    with JournalWriter(path / "journal", clock=lambda: 1000.0 + next(moments)) as writer:
        writer.append(ev.RunStarted(run_id="r", name="r", steps=2))
        for step in range(2):
            writer.append(ev.StepStarted(step=step, groups=1, policy_version=step))
            writer.append(ev.GroupStarted(step=step, group=0, task="t", size=1))
            writer.append(ev.TrialFinished(step=step, group=0, trial=0, outcome="completed", reward=1.0))
            writer.append(ev.StepFinished(step=step, reward_mean=1.0, policy_version=step + 1))
        writer.append(ev.RunFinished(status="completed", exit_code=0, steps=2))
    return path


KEYS = ["toggle", "event", "back", "step", "step back", "start", "end", "faster", "slower", "wait"]


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(presses=st.lists(st.sampled_from(KEYS), max_size=25))
def test_the_view_is_always_the_fold_up_to_its_event(small: Path, presses: list[str]) -> None:
    clock = Clock()
    source = ReplaySource(RunRecord(small), clock=clock)
    events = list(source.record.journal.events())
    for key in presses:
        match key:
            case "toggle":
                source.toggle()
            case "event" | "back":
                source.step_event(key == "event")
            case "step" | "step back":
                source.step_training(key == "step")
            case "start" | "end":
                source.jump(key == "end")
            case "faster" | "slower":
                source.change_speed(key == "faster")
            case _:
                clock.now += 0.7
                source.poll()
        seq = source.view.state.seq
        assert 1 <= seq <= len(events)
        assert source.view == fold(events[:seq])
        assert 0.0 <= source.link().fraction <= 1.0
        assert events[seq - 1].ts <= source.now() <= events[-1].ts
        assert source.at_end == (seq == len(events))


@pytest.mark.parametrize("speed", [0.25, 1.0, 64.0, MAX])
def test_every_speed_ends_in_the_same_view(small: Path, speed: float) -> None:
    clock = Clock()
    source = ReplaySource(RunRecord(small), speed, clock=clock)
    polls = 0
    while not source.at_end:
        clock.now += 0.25
        source.poll()
        polls += 1
        assert polls < 1000
    assert source.view == source.record.view_at_end()
    assert (polls == 1) == (speed == MAX)


def test_a_long_gap_is_cut_to_the_idle_limit(small: Path) -> None:
    clock = Clock()
    source = ReplaySource(RunRecord(small), 1.0, clock=clock)
    while source.view.state.seq < 5:
        clock.now += 0.25
        source.poll()
    assert clock.now - 100.0 <= 3.0 + IDLE_SECONDS + 0.5


def test_training_steps_are_walked_in_both_directions(small: Path) -> None:
    source = ReplaySource(RunRecord(small))
    source.step_training(forward=True)
    assert source.view.state.steps_done == 1
    source.step_training(forward=True)
    assert source.view.state.steps_done == 2
    source.step_training(forward=True)
    assert source.at_end and source.view.state.status == "finished"
    source.step_training(forward=False)
    assert source.view.state.steps_done == 2 and not source.at_end


def test_the_default_speed_makes_a_recording_watchable(small: Path, recording: Path) -> None:
    assert ReplaySource(RunRecord(small)).speed == 16.0
    assert ReplaySource(RunRecord(recording)).speed == 2.0


async def test_commands_are_refused(small: Path) -> None:
    with pytest.raises(ControlError, match="recording"):
        await ReplaySource(RunRecord(small)).command(new_command("stop_now"))


def test_a_run_that_goes_on_is_taken_in(tmp_path: Path) -> None:
    from console.journal.writer import JournalWriter

    clock = Clock()
    with JournalWriter(tmp_path / "journal") as writer:
        writer.append(ev.RunStarted(run_id="r"))
        source = ReplaySource(RunRecord(tmp_path), MAX, at_end=True, clock=clock)
        writer.append(ev.Note(text="news"))
        source.toggle()
        source.playing = True
        for _ in range(3):
            clock.now += 1.5
            source.poll()
    assert source.view.state.lines[-1].text == "news"


@pytest.mark.parametrize(("text", "speed"), [("max", MAX), ("0.25", 0.25), ("64x", 64.0), ("2", 2.0)])
def test_speeds_are_read(text: str, speed: float) -> None:
    assert parse_speed(text) == speed


@pytest.mark.parametrize("text", ["", "fast", "0.1", "65", "-1", "nan"])
def test_other_speeds_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r".*"):
        parse_speed(text)


# --- the picture, and trouble ---


def play(source: ReplaySource, clock: Clock) -> None:
    """By the clock, four polls a second."""
    source.toggle()
    while not source.at_end:
        clock.now += 0.25
        source.poll()


def step_by_step(source: ReplaySource, clock: Clock) -> None:
    """Event by event."""
    while not source.at_end:
        source.step_event(forward=True)


@pytest.mark.parametrize("size", [(80, 24), (120, 40)])
async def test_the_final_picture_is_the_same_at_any_speed(recording: Path, screen_lines, size: tuple[int, int]) -> None:
    async def final(speed: float, how: Callable[[ReplaySource, Clock], None]) -> list[str]:
        clock = Clock()
        source = ReplaySource(RunRecord(recording), speed, clock=clock, seq=1)
        source.read_marks(30)
        app = ConsoleApp(source, Themes(themes_dir()))
        async with app.run_test(size=size) as pilot:
            source.jump(to_end=False)
            how(source, clock)
            assert source.at_end and not source.playing and not source.trouble
            app.repaint()
            await pilot.pause()
            return screen_lines(app)

    pictures = [await final(speed, play) for speed in (1.0, 64.0, MAX)] + [await final(1.0, step_by_step)]
    assert "REPLAY paused" in pictures[0][0] and "step 15/15" in pictures[0][0]
    for other in pictures[1:]:
        assert other == pictures[0]


def test_at_its_end_a_finished_run_stands_still_and_plays_again(small: Path) -> None:
    clock = Clock()
    source = ReplaySource(RunRecord(small), MAX, clock=clock)
    clock.now += 1
    source.poll()
    assert source.at_end and not source.playing
    source.toggle()
    assert source.playing and source.view.state.seq == 1


def test_an_event_that_cannot_be_shown_pauses_and_is_passed_over(small: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = replay.apply

    def apply(view: object, event: ev.Event) -> None:
        real(view, event)  # type: ignore[arg-type]
        if event.seq == 4:
            raise ZeroDivisionError("reward \x1b[31m per nobody")

    monkeypatch.setattr(replay, "apply", apply)
    clock = Clock()
    source = ReplaySource(RunRecord(small), MAX, clock=clock)
    clock.now += 1
    source.poll()
    assert not source.playing and "event #4 cannot be shown (ZeroDivisionError" in source.link().detail
    assert "\x1b" not in source.link().detail
    source.toggle()
    clock.now += 1
    source.poll()
    assert source.at_end and not source.link().detail
    source.seek(6)
    assert source.view.state.seq == 6 and "#4" in source.trouble
    source.jump(to_end=False)
    source.step_event(forward=True)
    source.step_event(forward=True)
    with pytest.raises(RecordingError, match="#4"):
        source.step_event(forward=True)
    source.step_event(forward=True)
    assert source.view.state.seq == 5


async def test_a_moment_that_cannot_be_painted_pauses(
    recording: Path, screen_lines, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock()
    source = ReplaySource(RunRecord(recording), 1.0, clock=clock)
    source.read_marks(30)
    app = ConsoleApp(source, Themes(themes_dir()))
    async with app.run_test(size=(80, 24)) as pilot:
        page = app.desk.page
        paint = page.paint

        def broken(*args: object) -> object:
            if source.view.state.steps_done == 3:
                raise IndexError("no such row")
            return paint(*args)  # type: ignore[arg-type]

        monkeypatch.setattr(page, "paint", broken)
        source.goto("s2")
        source.playing = True
        app.repaint()
        await pilot.pause()
        assert not source.playing
        app.repaint()
        await pilot.pause()
        text = "\n".join(screen_lines(app))
        assert "this moment cannot be shown (IndexError): no such row" in text and "REPLAY paused" in text
        await pilot.press("right_curly_bracket")
        await pilot.pause()
        assert "cannot be shown" not in "\n".join(screen_lines(app)) and source.view.state.steps_done == 4
    assert app.crash_file is None


def test_what_is_missing_is_said_by_number_and_time(recording: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    shutil.copytree(recording, run)
    chunk = next((run / "journal").glob("*.jsonl.zst"))
    data = bytearray(chunk.read_bytes())
    second = data.index(b"\x28\xb5\x2f\xfd", 100)
    data[second + 40 : second + 60] = b"\x00" * 20
    chunk.write_bytes(bytes(data))
    source = ReplaySource(open_record(run), 1.0)
    notice = notice_of(source)
    marks = source.timeline.marks
    assert marks is not None and len(marks.holes) == 1
    hole = marks.holes[0]
    assert notice.startswith(f"events {hole.first_seq} to {hole.last_seq} (14:1") and "cannot be read" in notice
    assert source.link().news == notice
    # Whatever is left can be gone to, on either side of the hole and into it.
    events = list(source.record.journal.events())
    kept = [e for e in events if hole.first_seq <= e.seq <= hole.last_seq]
    assert kept and all(isinstance(e, ev.StepFinished) for e in kept)  # the side file's
    assert hole.last_seq - hole.first_seq + 1 - len(kept) + len(events) == source.timeline.last_seq
    for seq in (hole.first_seq - 1, hole.first_seq + 5, hole.last_seq + 1, source.timeline.last_seq):
        source.seek(seq)
        assert source.view == fold(e for e in events if e.seq <= seq)
    source.seek(hole.last_seq + 1)
    source.step_event(forward=False)
    assert source.view.state.seq == kept[-1].seq


def test_a_torn_tail_is_said(small: Path, tmp_path: Path) -> None:
    from console.journal.writer import JournalWriter

    with JournalWriter(tmp_path / "journal") as writer:
        for n in range(5):
            writer.append(ev.Note(text=f"n{n}"))
        writer.close(seal=False)
    chunk = next((tmp_path / "journal").glob("0*.jsonl"))
    chunk.write_bytes(chunk.read_bytes()[:-9])
    source = ReplaySource(open_record(tmp_path))
    assert "unfinished line" in notice_of(source) and source.timeline.last_seq == 4
    assert notice_of(ReplaySource(open_record(small))) == ""


def test_a_later_schema_is_said(tmp_path: Path) -> None:
    from console.journal.writer import JournalWriter

    with JournalWriter(tmp_path / "journal") as writer:
        writer.append(ev.RunStarted(run_id="r", schema=99))
    assert "later version (schema 99)" in notice_of(ReplaySource(open_record(tmp_path)))
