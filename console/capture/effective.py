"""The sampling parameters that a call is sampled with, from what the agent asked for and what the run allows."""

from __future__ import annotations

import math
from typing import Literal

import msgspec

from console.capture.chat import Sampling
from console.capture.refusals import bad_request

TEMPERATURE_LIMIT = 2.0
STOPS_AT_MOST = 64
STOP_CHARS = 1000
_INT32 = 2**31 - 1
_SEEDS = 2**31
"""Seeds are folded below this: gateways and their engines hold them in 32 signed bits."""


class Effective(msgspec.Struct, frozen=True, kw_only=True):
    """What a call is sampled with.

    Attributes:
        max_tokens: 1 or more; temperature: 0 to 2; top_p: above 0, at most 1; top_k: -1 for off, else 1 or more.
        seed: 0 to 2^31 - 1; stop: the agent's stop strings.
        given: names of the parameters that the agent gave itself; overridden: those whose value was replaced.
    """

    max_tokens: int
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = -1
    seed: int | None = None
    stop: tuple[str, ...] = ()
    given: tuple[str, ...] = ()
    overridden: tuple[str, ...] = ()


def checked(sampling: Sampling) -> None:
    """Raise `RefusedError` for a value that is out of range; it names the field."""
    if sampling.max_tokens is not None and sampling.max_tokens < 1:
        raise bad_request("max_tokens", "must be 1 or more")
    # Written so that NaN, which compares as false with everything, is refused too.
    if sampling.temperature is not None and not 0.0 <= sampling.temperature <= TEMPERATURE_LIMIT:
        raise bad_request("temperature", f"must be from 0 to {TEMPERATURE_LIMIT:g}")
    if sampling.top_p is not None and not 0.0 < sampling.top_p <= 1.0:
        raise bad_request("top_p", "must be above 0 and at most 1")
    if sampling.top_k is not None and sampling.top_k < -1:
        raise bad_request("top_k", "must be 1 or more; -1 or 0 switch it off")
    if sampling.seed is not None and not -(2**63) <= sampling.seed < 2**63:
        raise bad_request("seed", "must be a 64-bit integer")
    if len(sampling.stop) > STOPS_AT_MOST or not all(0 < len(stop) <= STOP_CHARS for stop in sampling.stop):
        raise bad_request("stop", f"must be at most {STOPS_AT_MOST} strings of 1 to {STOP_CHARS} characters")


def effective(
    sampling: Sampling, *, mode: Literal["agent", "force"], default_max_tokens: int, room: int | None
) -> Effective:
    """The parameters of a call whose values were `checked`.

    Args:
        sampling: as the agent asked; mode: agent or force; default_max_tokens: where the agent names none.
        room: tokens that may be sampled at most (1 or more), None when that is not known.
    """
    asked = default_max_tokens if sampling.max_tokens is None else sampling.max_tokens
    values = Effective(
        max_tokens=min(asked, _INT32 if room is None else room),
        temperature=1.0 if sampling.temperature is None else sampling.temperature,
        top_p=1.0 if sampling.top_p is None else sampling.top_p,
        top_k=min(sampling.top_k, _INT32) if sampling.top_k is not None and sampling.top_k >= 1 else -1,
        seed=None if sampling.seed is None else sampling.seed % _SEEDS,
        stop=sampling.stop,
        given=tuple(
            name
            for name in ("max_tokens", "temperature", "top_p", "top_k", "seed", "stop")
            if getattr(sampling, name) not in (None, ())
        ),
    )
    if mode == "agent":
        return values
    forced = {"temperature": 1.0, "top_p": 1.0, "top_k": -1}
    overridden = tuple(name for name, value in forced.items() if not math.isclose(getattr(values, name), value))
    return msgspec.structs.replace(values, overridden=overridden, **forced)
