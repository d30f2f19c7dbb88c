"""The definition of a group's advantages, to check the cookbook's against."""

from __future__ import annotations

import math
from collections.abc import Sequence

from console.findings import Finding

TOLERANCE = 1e-6


def group_advantages(rewards: Sequence[float]) -> list[float]:
    """Reward minus the group's mean, not divided by the standard deviation. Shapes: (G,) to (G,); empty stays empty."""
    if not rewards:
        return []
    mean = math.fsum(rewards) / len(rewards)
    return [reward - mean for reward in rewards]


def check_advantages(rewards: Sequence[float], advantages: Sequence[float], *, where: str = "group") -> Finding | None:
    """A finding when the advantages of a group are not reward minus mean, within `TOLERANCE` of the rewards' scale.

    Args:
        rewards: (G,) of the trials that train; advantages: (G,) as the cookbook computed them, in the same order.
        where: names the group in the finding.
    """
    if len(rewards) != len(advantages):
        return _finding(where, f"{len(advantages)} advantages for {len(rewards)} rewards")
    scale = max([1.0, *(abs(reward) for reward in rewards if math.isfinite(reward))])
    for index, (expected, got) in enumerate(zip(group_advantages(rewards), advantages, strict=True)):
        # Written so that NaN on either side is a finding as well.
        if not abs(expected - got) <= TOLERANCE * scale:
            return _finding(where, f"trial {index + 1} has advantage {got:g}, reward minus mean is {expected:g}")
    return None


def _finding(where: str, message: str) -> Finding:
    return Finding(
        code="advantages.definition",
        object=where,
        message=message,
        remedy="the installed cookbook computes advantages otherwise; install the locked version",
    )
