"""A captured trial as the cookbook's trajectory.

A trajectory names the whole prompt of each transition, and the prompts of a long trial overlap nearly whole. Here they
are lists of the same pieces, so that a trial of 60 turns costs as much memory as its last turn.
"""

from __future__ import annotations

from array import array

import tinker
from tinker_cookbook.completers import TokensWithLogprobs
from tinker_cookbook.rl.types import Trajectory, Transition

from console.capture.captured import CapturedTrial, Segment
from console.errors import CaptureError

_SHARED_IDS = 2**20
"""Ids below this are one int object each, whatever vocabulary they are of."""

_ints: list[int] = []


def trajectory(captured: CapturedTrial) -> Trajectory:
    """The segments as transitions, one for each turn, without step rewards.

    The cookbook makes a datum of transitions whose prompts extend the one before and its sample: one for each segment.
    Two segments in a row must not look like that by accident. The segment with the longest first prompt comes first:
    no segment then fits into the first prompt of the next one.

    A sample of no tokens has nothing to train and is left out. `stop_reason` of the trajectory stays None, or the
    cookbook would clamp the rewards of trials that hit a limit.

    Raises:
        CaptureError: a turn's tokens and log-probs differ in length, or an id is negative.
    """
    segments = sorted(captured.segments, key=_first_prompt, reverse=True)
    transitions = [transition for segment in segments for transition in _transitions(segment)]
    if transitions:
        transitions[-1].episode_done = True
    return Trajectory(transitions, tinker.ModelInput.empty(), stop_reason=None)


def _first_prompt(segment: Segment) -> int:
    """Tokens before a segment's first sample."""
    length = 0
    for turn in segment.turns:
        length += len(turn.prompt_new)
        if turn.tokens_T:
            break
    return length


def _transitions(segment: Segment) -> list[Transition]:
    pieces: list[tinker.EncodedTextChunk] = []
    transitions: list[Transition] = []
    for turn in segment.turns:
        if len(turn.tokens_T) != len(turn.logprobs_T):
            raise CaptureError(
                f"sample {turn.node} has {len(turn.tokens_T)} tokens and {len(turn.logprobs_T)} log-probs"
            )
        if turn.prompt_new:
            pieces.append(_piece(_shared(turn.prompt_new)))
        if not turn.tokens_T:
            continue
        tokens_T = _shared(turn.tokens_T)
        prompt = tinker.ModelInput.model_construct(chunks=list(pieces))
        stop_reason: tinker.StopReason = "length" if turn.stop_reason == "length" else "stop"
        action = TokensWithLogprobs(tokens_T, turn.logprobs_T.tolist(), stop_reason)
        transitions.append(Transition(prompt, action, 0.0, False))
        pieces.append(_piece(tokens_T))
    return transitions


def _piece(ids: list[int]) -> tinker.EncodedTextChunk:
    """A chunk that holds this very list; the model's own checks would copy it."""
    return tinker.EncodedTextChunk.model_construct(tokens=ids)


def _shared(ids: array[int]) -> list[int]:
    """The ids as a list of int objects that all lists share. An int takes 28 bytes, its place in a list 8."""
    if min(ids) < 0:
        raise CaptureError(f"a token id is negative: {min(ids)}")
    top = max(ids)
    if top >= _SHARED_IDS:
        return ids.tolist()
    if top >= len(_ints):
        _ints.extend(range(len(_ints), top + 1))
    return [_ints[token] for token in ids]
