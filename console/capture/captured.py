"""What a sealed trial hands to training: every sampled token once, in sequences that extend.

Ids and log-probs stay in arrays: a batch of long trials has millions of them.
"""

from __future__ import annotations

from array import array

import msgspec

from console.outcomes.classes import CallEvidence


class Turn(msgspec.Struct, kw_only=True, frozen=True):
    """One answered call within a segment.

    Attributes:
        node: the sample's name; prompt_new: ids between the end of the turn before and this sample, the whole prompt
            for the first turn of a segment; tokens_T, logprobs_T: sampled ids and their log-probs, of equal length.
        stop_reason: stop or length.
    """

    node: str
    prompt_new: array[int]
    tokens_T: array[int]
    logprobs_T: array[float]
    stop_reason: str = "stop"


class Segment(msgspec.Struct, kw_only=True, frozen=True):
    """A sequence that is trained as one: turn k's prompt is everything before it. `kind`: main, sub or summary.

    A segment that forks off another repeats the common beginning in its first turn's prompt, where nothing is trained.
    """

    turns: list[Turn]
    reason: str = "first"
    kind: str = "main"


class CapturedTrial(msgspec.Struct, kw_only=True, frozen=True):
    """All that one route captured.

    Attributes:
        segments: what may be trained; excluded: answered calls that are not, by reason.
        evidence: what happened to the calls; prompt_tokens: as sent to the sampler, summed over the calls.
        bridged: calls whose prompt extends an earlier call's; unbridged: the others by reason (`first` among them).
        refused: requests that got an error instead of a sample, by kind of failure as `CallEvidence` names them.
        policy_version: of the weights that sampled all of it, None when it is not known.
    """

    segments: list[Segment]
    evidence: CallEvidence
    excluded: dict[str, int] = {}
    prompt_tokens: int = 0
    bridged: int = 0
    unbridged: dict[str, int] = {}
    refused: dict[str, int] = {}
    policy_version: int | None = None
