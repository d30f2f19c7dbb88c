"""How a captured trial becomes transitions: shared pieces, no sample in the wrong datum, no torn ones."""

from __future__ import annotations

from array import array

import pytest
from tinker_cookbook.rl.data_processing import trajectory_to_data

from console.capture.captured import CapturedTrial, Segment, Turn
from console.errors import CaptureError
from console.outcomes.classes import CallEvidence
from console.training.trajectories import trajectory


def turn(new: list[int], tokens: list[int], logprobs: list[float] | None = None, stop: str = "stop") -> Turn:
    values = [-t / 128 for t in tokens] if logprobs is None else logprobs
    return Turn(
        node="n0x0", prompt_new=array("i", new), tokens_T=array("i", tokens), logprobs_T=array("f", values),
        stop_reason=stop,
    )  # fmt: skip


def trial(*segments: list[Turn]) -> CapturedTrial:
    return CapturedTrial(segments=[Segment(turns=turns) for turns in segments], evidence=CallEvidence())


def trained(datum) -> list[int]:
    tokens, mask = (datum.loss_fn_inputs[name].to_numpy() for name in ("target_tokens", "mask"))
    return tokens[mask != 0].tolist()


def test_prompts_are_lists_of_shared_pieces():
    made = trajectory(trial([turn([5, 6], [7]), turn([8], [9, 10], stop="length"), turn([11], [12])]))
    assert [t.ob.to_ints() for t in made.transitions] == [[5, 6], [5, 6, 7, 8], [5, 6, 7, 8, 9, 10, 11]]
    assert [t.ac.tokens for t in made.transitions] == [[7], [9, 10], [12]]
    assert [t.ac.stop_reason for t in made.transitions] == ["stop", "length", "stop"]
    assert made.transitions[1].ac.logprobs == [-9 / 128, -10 / 128]
    pieces = {id(chunk) for t in made.transitions for chunk in t.ob.chunks}
    assert len(pieces) == 5, "each once, however many prompts have it"
    assert made.transitions[1].ob.chunks[1].tokens is made.transitions[0].ac.tokens


def test_ids_are_shared_objects():
    made = trajectory(trial([turn([150_000, 151_000], [150_000])]))
    first, *_ = made.transitions[0].ob.chunks[0].tokens
    assert first is made.transitions[0].ac.tokens[0]
    huge = trajectory(trial([turn([2**30], [1])]))
    assert huge.transitions[0].ob.to_ints() == [2**30]


def test_the_reward_is_no_part_of_it():
    made = trajectory(trial([turn([1], [2]), turn([3], [4])]))
    assert [t.reward for t in made.transitions] == [0.0, 0.0]
    assert [t.episode_done for t in made.transitions] == [False, True]
    assert made.stop_reason is None and made.final_ob.length == 0


@pytest.mark.parametrize(
    "segments",
    [
        [[turn([1, 2], [3])], [turn([1, 2, 3, 4], [5])]],
        [[turn([1, 2], [3])], [turn([1, 2, 3], [5])]],
        [[turn([1, 2], [3]), turn([4], [5])], [turn([1, 2, 3, 4, 5, 6], [7])], [turn([1, 2, 3, 4], [9])]],
        [[turn([1], [2], stop="length")], [turn([1, 2, 9], [3])], [turn([1, 2, 9, 3, 4], [5])]],
        [[turn([1, 2], [3])], [turn([1, 2], [3])]],
        [[turn([1, 2], [3]), turn([4], [5])], [turn([1, 2], []), turn([3, 4, 5], [6])]],
    ],
)
def test_segments_that_could_be_taken_for_one_stay_apart(segments):
    data = trajectory_to_data(trajectory(trial(*segments)), 1.0)
    assert len(data) == len(segments)
    expected = [[token for t in turns for token in t.tokens_T] for turns in segments]
    assert sorted(map(trained, data)) == sorted(expected)


def test_samples_of_no_tokens_have_nothing_to_train():
    made = trajectory(trial([turn([1], []), turn([2], [3])], [turn([4], [])]))
    assert [(t.ob.to_ints(), t.ac.tokens) for t in made.transitions] == [([1, 2], [3])]
    assert made.transitions[-1].episode_done
    assert trajectory(trial()).transitions == []


def test_torn_and_negative_ids_raise():
    with pytest.raises(CaptureError, match="2 tokens and 1 log-probs"):
        trajectory(trial([turn([1], [2, 3], [-1.0])]))
    with pytest.raises(CaptureError, match="negative: -1"):
        trajectory(trial([turn([1, -1], [2])]))
