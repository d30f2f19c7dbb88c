"""The replay clock: whatever is pressed, the view equals the fold of the events up to where it stands."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from console.control.client import new_command
from console.errors import ControlError
from console.journal import events as ev
from console.records.run_dir import RunRecord
from console.state.reduce import fold
from console.tui.replay import IDLE_SECONDS, MAX, ReplaySource, parse_speed


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
