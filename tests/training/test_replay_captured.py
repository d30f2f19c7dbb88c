"""What is read back from the disk for training is, to the last token and log-prob, what the trial handed to it."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from call_stage import BASH, Stage, called, echo, result, said, system, user
from capture_files import CallsFile
from scripted_sampler import Reply
from tinker_cookbook.rl.data_processing import trajectory_to_data

from console.capture.captured import CapturedTrial
from console.capture.chat import ChatMessage
from console.journal import events as ev
from console.records.capture_format import Sealed, SegmentLine
from console.training.recorded import RecordedTrial, recorded_trial
from console.training.trajectories import trajectory


def finished(captured: CapturedTrial) -> ev.TrialFinished:
    """As the engine tells the journal of it."""
    return ev.TrialFinished(
        step=0, group=0, trial=0, outcome="completed", reward=0.5, prompt_tokens=captured.prompt_tokens,
        sampled_tokens=captured.evidence.sampled_tokens, segments=len(captured.segments), bridged=captured.bridged,
        unbridged=captured.unbridged, excluded=captured.excluded, refused=captured.refused,
    )  # fmt: skip


async def talk(stage: Stage, rnd: random.Random) -> None:
    """An agent that goes on, goes back, asks again, calls on the side, and changes its history."""
    history: list[ChatMessage] = [system("Work."), user("Begin.")]
    histories = [list(history)]
    for number in range(rnd.randint(2, 9)):
        what = rnd.random()
        if what < 0.15:
            await stage.ask([user(f"A title, please: {number}")])
            continue
        if what < 0.3:
            history = list(rnd.choice(histories))  # the same request once more
            if rnd.random() < 0.6:
                history.append(user(f"Another way {number}."))  # a fork
        elif what < 0.4:
            history = [system("Work."), user(f"Summary of all before {number}.")]
        reply = await stage.ask(history, tools=[BASH])
        if rnd.random() < 0.15:
            continue  # asks again as if it had not heard
        history = [*history, echo(reply)]
        history.append(result(reply, f"out {number}") if reply.tool_calls else user(f"Go on {number}."))
        histories.append(list(history))


@pytest.mark.parametrize("seed", range(12))
async def test_segments_come_back_as_they_were(tmp_path: Path, seed: int):
    rnd = random.Random(seed)
    replies = [
        rnd.choice([called(f"ls {n}"), said(f"Answer {n}."), Reply("", end=False), Reply(said("long"), end=False)])
        for n in range(12)
    ]
    stage = Stage(tmp_path / "capture", replies, window=4096)
    await talk(stage, rnd)
    captured = await stage.calls.seal()
    await stage.close()
    end = finished(captured)
    found = recorded_trial(tmp_path, end, 3, counted=False)
    if not any(turn.tokens_T for segment in captured.segments for turn in segment.turns):
        assert found == "s0.g0.t0.y0: nothing of it can be trained"
        return
    assert isinstance(found, RecordedTrial)
    again = found.captured()
    assert again.segments == captured.segments
    assert (again.excluded, again.bridged, again.unbridged) == (captured.excluded, captured.bridged, captured.unbridged)
    assert (again.prompt_tokens, again.refused) == (captured.prompt_tokens, captured.refused)
    assert (again.evidence.calls, again.evidence.trained) == (captured.evidence.calls, captured.evidence.trained)
    before, after = (trajectory_to_data(trajectory(one), 0.25) for one in (captured, again))
    assert len(before) == len(after) > 0
    for a, b in zip(before, after):
        assert a.model_input.to_ints() == b.model_input.to_ints()
        for name, value in a.loss_fn_inputs.items():
            assert (value.to_numpy() == b.loss_fn_inputs[name].to_numpy()).all()


def test_forks_and_calls_that_are_not_trained_in_between(tmp_path: Path):
    """A segment goes on over a call that is left out; another one begins with all that is before its fork."""
    file = CallsFile(tmp_path, policy_version=3)
    first = file.call(prompt=[1, 2], tokens=[11], logprobs=[-0.1])
    left_out = file.call(prompt=[3], tokens=[12], logprobs=[-0.2])
    last = file.call(prompt=[4], tokens=[13], logprobs=[-0.3], status="length")
    fork = file.call(prompt=[5], parent=first, prompt_tokens=4, tokens=[14], logprobs=[-0.4])
    file.write(
        Sealed(
            calls=4, excluded={"superseded": 1}, excluded_nodes={"superseded": [left_out]},
            segments=[SegmentLine(nodes=[first, last], reason="first"), SegmentLine(nodes=[fork], reason="fork")],
        )
    )  # fmt: skip
    end = ev.TrialFinished(
        step=0, group=0, trial=0, outcome="completed", reward=1.0, segments=2, excluded={"superseded": 1}
    )
    found = recorded_trial(tmp_path, end, 3, counted=False)
    assert isinstance(found, RecordedTrial), found
    segments = found.captured().segments
    turns = [[(list(t.prompt_new), list(t.tokens_T), t.stop_reason) for t in one.turns] for one in segments]
    assert turns == [[([1, 2], [11], "stop"), ([3, 12, 4], [13], "length")], [([1, 2, 11, 5], [14], "stop")]]


def test_a_token_that_would_be_trained_twice_is_found(tmp_path: Path):
    file = CallsFile(tmp_path, policy_version=3)
    node = file.call(prompt=[1, 2], tokens=[11], logprobs=[-0.1])
    file.write(Sealed(calls=1, segments=[SegmentLine(nodes=[node]), SegmentLine(nodes=[node])]))
    end = ev.TrialFinished(step=0, group=0, trial=0, outcome="completed", reward=1.0, segments=2)
    assert "is a target 2 times" in str(recorded_trial(tmp_path, end, 3, counted=False))


async def test_a_file_that_tells_otherwise_than_the_journal_is_not_used(tmp_path: Path):
    stage = Stage(tmp_path / "capture", [said("One.")])
    await stage.ask([user("Go.")])
    captured = await stage.calls.seal()
    await stage.close()
    end = finished(captured)
    assert isinstance(recorded_trial(tmp_path, end, 3, counted=False), RecordedTrial)

    def why(version: int = 3, **changes: object) -> object:
        import msgspec

        return recorded_trial(tmp_path, msgspec.structs.replace(end, **changes), version, counted=False)

    assert "other segments" in str(why(segments=2))
    assert "other segments" in str(why(excluded={"aux": 1}))
    assert "policy version" in str(why(4)) or stage.file().opened.policy_version is None  # type: ignore[union-attr]
    assert str(why(step=1)).endswith("the file of its captured calls is gone")
    assert "was not scored" in str(why(outcome="infrastructure", reward=None))
    assert "was not scored" in str(why(reward=None))
