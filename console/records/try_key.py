"""The engine's name of a try, `s3.g1.t2.y0`: what its route, its files and Harbor's directories are named after."""

from __future__ import annotations

import re

TrialPlace = tuple[int, int, int]
"""Step, group and trial, all from 0."""
TryPlace = tuple[int, int, int, int]
"""Step, group, trial and try, all from 0."""

_KEY = re.compile(r"s(\d{1,9})\.g(\d{1,9})\.t(\d{1,9})\.y(\d{1,9})", re.ASCII)


def try_key(place: TryPlace) -> str:
    """The key of a try. No two tries of a run have the same, whichever engine ran them."""
    step, group, trial, try_ = place
    return f"s{step}.g{group}.t{trial}.y{try_}"


def place_of(key: str) -> TryPlace | None:
    """Where in the run the try of a key stands; None for what is no key of a try."""
    found = _KEY.fullmatch(key)
    if found is None:
        return None
    step, group, trial, try_ = map(int, found.groups())
    return step, group, trial, try_
