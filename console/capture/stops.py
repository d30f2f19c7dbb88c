"""The agent's own stop strings, honoured by cutting the sample.

The sampler is told where turns end and nothing else. A sample cut behind the first token with which its text contains
a stop string is distributed as one that was stopped there; what was cut off is neither shown, kept nor trained.
"""

from __future__ import annotations

from collections.abc import Sequence


def tokens_kept(raw: str, pieces: Sequence[str], stops: Sequence[str]) -> int | None:
    """How many tokens stay, the one that completes a stop string among them; None when there is no stop string.

    Args:
        raw: the sample's text; pieces: what each token adds to it.
    """
    ends = [at + len(stop) for stop in stops if (at := raw.find(stop)) >= 0]
    if not ends:
        return None
    length = 0
    for number, piece in enumerate(pieces, 1):
        length += len(piece)
        if length >= min(ends):
            return number
    return len(pieces)


def first_stop(text: str, stops: Sequence[str]) -> tuple[int, str] | None:
    """Where the earliest stop string begins, and which it is: the longest one where several begin."""
    found = [(at, stop) for stop in stops if (at := text.find(stop)) >= 0]
    return min(found, key=lambda hit: (hit[0], -len(hit[1])), default=None)


def before_stop(text: str, stops: Sequence[str]) -> str:
    """The text up to the earliest stop string."""
    hit = first_stop(text, stops)
    return text if hit is None else text[: hit[0]]
