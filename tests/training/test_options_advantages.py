"""Advantages of a group against their definition."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from console.training.advantages import check_advantages, group_advantages

REWARDS = st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=16)


def test_reward_minus_mean_without_scaling() -> None:
    assert group_advantages([1.0, 0.0, 0.0, 0.0]) == [0.75, -0.25, -0.25, -0.25]
    assert group_advantages([0.5, 0.5, 0.5]) == [0.0, 0.0, 0.0]
    assert group_advantages([]) == []


@given(REWARDS)
def test_the_definition_passes(rewards: list[float]) -> None:
    assert check_advantages(rewards, group_advantages(rewards)) is None


@given(REWARDS, st.data())
def test_any_other_value_is_found(rewards: list[float], data: st.DataObject) -> None:
    advantages = group_advantages(rewards)
    index = data.draw(st.integers(0, len(rewards) - 1))
    off = 3e-6 * max([1.0, *map(abs, rewards)])
    advantages[index] += data.draw(st.sampled_from([off, -off, float("nan"), float("inf")]))
    finding = check_advantages(rewards, advantages, where="step 3 g2")
    assert finding is not None and finding.object == "step 3 g2" and f"trial {index + 1} " in finding.message


@pytest.mark.parametrize("advantages", [[0.5], [1.0, -1.0], [0.5, 0.5, -0.5]])
def test_wrong_lengths_and_divided_by_the_deviation(advantages: list[float]) -> None:
    assert check_advantages([1.0, 0.0], advantages) is not None
    assert check_advantages([1.0, 0.0], [0.5, -0.5]) is None
