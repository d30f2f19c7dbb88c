"""Reading the reward a trial trains on out of what the verifier wrote."""

from __future__ import annotations

import math

import msgspec

NON_FINITE = frozenset({"nan", "inf", "-inf", "infinity", "-infinity"})


class RewardPolicy(msgspec.Struct, kw_only=True, frozen=True):
    """What counts as a reward, fixed at the start of a run.

    Attributes:
        reward_key: key of the verifier's rewards; reward_limit: largest magnitude that is believed.
        verifier_faults: `reject` or `score` a zero behind which the verifier did not work.
        require_samples: a trial without a captured sample is `no_samples`; off for modes that do not train.
    """

    reward_key: str = "reward"
    reward_limit: float = 1e6
    verifier_faults: str = "reject"
    require_samples: bool = True


class Reward(msgspec.Struct, frozen=True):
    """A number, or the fault that kept it from being one, with the text that shows it."""

    value: float | None
    fault: str = ""
    evidence: str = ""


def read_reward(rewards: dict[str, float | str | bool | None] | None, policy: RewardPolicy) -> Reward:
    """The reward under `policy.reward_key`, or why there is none: missing, non_numeric, non_finite, too_large."""
    key = policy.reward_key
    if rewards is None:
        return Reward(None, "missing", "the verifier left no rewards")
    if key not in rewards:
        known = ", ".join(sorted(rewards)) or "nothing"
        return Reward(None, "missing", f"no key {key!r} among the rewards: {known}")
    raw = rewards[key]
    if raw is None:
        return Reward(None, "missing", f"{key} is null")
    if isinstance(raw, bool) or not isinstance(raw, int | float):
        finite = not (isinstance(raw, str) and raw.strip().lower().lstrip("+") in NON_FINITE)
        return Reward(None, "non_numeric" if finite else "non_finite", f"{key} is {raw!r}")
    try:
        value = float(raw)
    except OverflowError:
        return Reward(None, "too_large", f"{key} does not fit a float")
    if not math.isfinite(value):
        return Reward(None, "non_finite", f"{key} is {value}")
    if abs(value) > policy.reward_limit:
        return Reward(None, "too_large", f"{key} is {value:g}, above the limit {policy.reward_limit:g}")
    return Reward(value)
