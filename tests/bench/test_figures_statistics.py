"""Standard errors, intervals and pass@k against values worked elsewhere, and at their edges."""

from __future__ import annotations

import itertools
import math
import random
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from console.bench.figures import pass_at
from console.bench.figures.errors import across_tasks, clustered, within_tasks
from console.bench.figures.intervals import interval, over_tasks, wilson

type Scores = list[list[float]]


def tasks_of(*kinds: tuple[int, int, int]) -> Scores:
    """Scores of tasks: (number of tasks, passes, attempts) of each kind."""
    return [[1.0] * passes + [0.0] * (n - passes) for number, passes, n in kinds for _ in range(number)]


def pairs(scores: Scores) -> list[tuple[int, int]]:
    return [(len(task), int(sum(task))) for task in scores]


SIXTEEN = tasks_of(
    (1, 3, 16), (2, 8, 16), (2, 9, 16), (2, 10, 16), (4, 11, 16), (7, 12, 16), (11, 13, 16), (8, 14, 16), (6, 15, 16),
    (49, 0, 16),
)  # fmt: skip
"""92 tasks of 16 attempts that have the passes (530) and the pass@k of a public run; its counts are not known."""
FIVE = tasks_of((15, 5, 5), (19, 4, 5), (4, 3, 5), (2, 2, 5), (2, 1, 5), (47, 0, 5))
"""89 tasks of 5 attempts with 169 passes and a pass@2 of 398 / 890: the arithmetic of a published evaluation."""


@pytest.mark.parametrize(
    ("passes", "attempts", "low", "high"),
    [
        (53, 69, 65.6, 85.2), (53, 85, 51.7, 71.9), (4, 85, 1.8, 11.5), (42, 81, 41.1, 62.4), (169, 445, 33.6, 42.6),
        (0, 10, 0.0, 27.75), (10, 10, 72.25, 100.0), (1, 1, 20.65, 100.0),
    ],
)  # fmt: skip
def test_wilson_has_the_worked_values(passes: int, attempts: int, low: float, high: float) -> None:
    found = wilson(passes, attempts)
    assert (100 * found.low, 100 * found.high) == pytest.approx((low, high), abs=0.051)
    z, n, p = 1.959963984540054, attempts, passes / attempts
    half = z * math.sqrt(p * (1 - p) / n + z * z / (4 * n * n))
    middle = p + z * z / (2 * n)
    exact = ((middle - half) / (1 + z * z / n), (middle + half) / (1 + z * z / n))
    assert (found.low, found.high) == pytest.approx(exact, abs=1e-12)


def test_the_run_of_sixteen_attempts_has_its_published_errors() -> None:
    assert (len(SIXTEEN), sum(map(sum, SIXTEEN))) == (92, 530)
    at = pass_at.over_tasks(pairs(SIXTEEN), (1, 2, 5, 16))
    assert [round(100 * value, 2) for value, _ in at.values()] == [36.01, 43.76, 46.38, 46.74]
    assert 100 * (within_tasks(SIXTEEN) or 0) == pytest.approx(0.73, abs=0.005)
    assert 100 * (across_tasks(SIXTEEN) or 0) == pytest.approx(4.16, abs=0.005)
    assert 100 * clustered(SIXTEEN) == pytest.approx(4.14, abs=0.005)


def test_the_run_of_five_attempts_has_the_errors_that_its_passes_imply() -> None:
    assert (len(FIVE), sum(map(sum, FIVE))) == (89, 169)
    at = pass_at.over_tasks(pairs(FIVE), pass_at.KS)
    assert round(100 * at[1][0], 2) == 37.98 and round(100 * at[2][0], 2) == 44.72
    assert 44.94 <= 100 * at[3][0] <= 51.01  # and never the 56.76 that was published beside it
    assert 100 * (within_tasks(FIVE) or 0) == pytest.approx(1.23, abs=0.005)
    assert 100 * (across_tasks(FIVE) or 0) == pytest.approx(4.54, abs=0.005)
    assert sorted(at) == [1, 2, 3, 4, 5]


def test_pass_at_k_is_the_share_of_draws_with_a_pass() -> None:
    for n, c in itertools.product(range(1, 7), range(7)):
        if c > n:
            continue
        marks = [1] * c + [0] * (n - c)
        for k in range(1, n + 1):
            draws = list(itertools.combinations(marks, k))
            assert pass_at.pass_at_k(n, c, k) == pytest.approx(Fraction(sum(map(any, draws)), len(draws)))
            assert pass_at.pass_all_k(n, c, k) == pytest.approx(Fraction(sum(map(all, draws)), len(draws)))


def test_pass_at_k_is_exact_where_floating_binomials_overflow() -> None:
    assert pass_at.pass_at_k(5000, 1, 2500) == pytest.approx(0.5)
    assert pass_at.pass_at_k(5000, 0, 2500) == 0.0


@pytest.mark.parametrize(("n", "c", "k"), [(3, 1, 4), (3, 1, 0), (3, 4, 1), (0, 0, 1), (3, -1, 1)])
def test_pass_at_k_beyond_the_attempts_is_refused(n: int, c: int, k: int) -> None:
    for estimate in (pass_at.pass_at_k, pass_at.pass_all_k):
        with pytest.raises(ValueError, match=r"undefined|passes"):
            estimate(n, c, k)


def test_pass_at_k_counts_the_tasks_that_support_it() -> None:
    found = pass_at.over_tasks([(5, 1), (2, 1), (1, 0)], (1, 2, 5, 6))
    assert {k: tasks for k, (_, tasks) in found.items()} == {1: 3, 2: 2, 5: 1}
    assert found[2][0] == pytest.approx((0.4 + 1.0) / 2)


counts = st.integers(2, 8).flatmap(lambda n: st.lists(st.integers(0, n).map(lambda c: (n, c)), min_size=2, max_size=12))


@given(counts)
def test_equal_attempts_obey_the_identities_of_the_estimators(tasks: list[tuple[int, int]]) -> None:
    n, total = tasks[0][0], len(tasks)
    scores = tasks_of(*((1, c, n) for n, c in tasks))
    at = [value for value, _ in pass_at.over_tasks(tasks, range(1, n + 1)).values()]
    alls = [value for value, _ in pass_at.over_tasks(tasks, range(1, n + 1), pass_at.pass_all_k).values()]
    mean = sum(c for _, c in tasks) / (n * total)
    assert at[0] == pytest.approx(mean) and alls[0] == pytest.approx(mean)
    steps = [b - a for a, b in itertools.pairwise(at)]
    assert all(step >= -1e-9 for step in steps)
    assert all(b <= a + 1e-9 for a, b in itertools.pairwise(steps))
    assert all(b <= a + 1e-9 for a, b in itertools.pairwise(alls))
    for per in ("task", "attempt"):
        within = within_tasks(scores, per)
        assert within is not None and within**2 == pytest.approx((at[1] - at[0]) / (n * total), abs=1e-12)
    assert across_tasks(scores, "attempt") == pytest.approx(across_tasks(scores, "task"), abs=1e-12)


@given(st.lists(st.lists(st.sampled_from([0.0, 1.0, 0.25]), min_size=2, max_size=6), min_size=2, max_size=8))
def test_errors_of_unequal_attempts_follow_their_formulas(scores: Scores) -> None:
    def variance(task: list[float]) -> float:
        mean = sum(task) / len(task)
        return sum((x - mean) ** 2 for x in task) / (len(task) - 1)

    tasks, total = len(scores), sum(map(len, scores))
    means = [sum(task) / len(task) for task in scores]
    pooled = sum(map(sum, scores)) / total
    per_task = math.sqrt(sum(variance(task) / len(task) for task in scores)) / tasks
    per_attempt = math.sqrt(sum(len(task) * variance(task) for task in scores)) / total
    assert within_tasks(scores, "task") == pytest.approx(per_task, abs=1e-12)
    assert within_tasks(scores, "attempt") == pytest.approx(per_attempt, abs=1e-12)
    middle = sum(means) / tasks
    across = math.sqrt(sum((mean - middle) ** 2 for mean in means) / (tasks * (tasks - 1)))
    assert across_tasks(scores, "task") == pytest.approx(across, abs=1e-12)
    robust = math.sqrt(sum((sum(task) - len(task) * pooled) ** 2 for task in scores)) / total
    assert clustered(scores) == pytest.approx(robust, abs=1e-12)


def test_errors_that_the_data_cannot_give_are_none() -> None:
    assert within_tasks([]) is None and across_tasks([]) is None
    assert within_tasks([[1.0, 0.0], [1.0]]) is None  # a single attempt has an unknown variance, not zero
    assert across_tasks([[1.0, 0.0]]) is None
    assert within_tasks([[1.0, 1.0], [1.0, 1.0]]) == 0.0 and across_tasks([[1.0, 1.0], [1.0, 1.0]]) == 0.0
    with pytest.raises(ValueError, match="no attempt"):
        clustered([])


def test_single_attempts_and_certain_values_have_wilsons_interval() -> None:
    assert interval(tasks_of((53, 1, 1), (32, 0, 1))) == wilson(53, 85)
    assert interval(tasks_of((30, 0, 4))) == wilson(0, 120)
    assert interval(tasks_of((30, 4, 4))) == wilson(120, 120)
    assert interval(tasks_of((1, 0, 5))) == wilson(0, 5)


def test_what_resampling_cannot_tell_is_said() -> None:
    assert interval([]) == "nothing is counted"
    assert interval([[0.5, 0.25]]) == "there is one task only"
    assert interval([[1.0, 0.0]]) == "there is one task only"
    assert interval([[0.5], [0.5], [0.5]]) == "all tasks have the same mean"
    assert interval([[1.0, 0.0], [0.0, 1.0]]) == wilson(2, 4)


@pytest.mark.parametrize("per", ["task", "attempt"])
def test_the_bootstrap_resamples_tasks_and_not_attempts(per: str) -> None:
    found = interval(SIXTEEN, per)
    assert not isinstance(found, str) and found.method == "bootstrap-bca"
    value = 530 / 1472
    # Nearly normal with so many tasks: the reach is that of the error across tasks, and not of 1472 attempts.
    assert (found.high - found.low) / 2 == pytest.approx(1.96 * 0.0416, rel=0.05)
    assert found.low < value < found.high
    assert interval(SIXTEEN, per) == found


@settings(max_examples=15, deadline=None)
@given(st.lists(st.lists(st.sampled_from([0.0, 0.5, 1.0]), min_size=1, max_size=3), min_size=2, max_size=6))
def test_a_bootstrap_stays_within_the_task_means(scores: Scores) -> None:
    found = over_tasks(scores)
    means = [sum(task) / len(task) for task in scores]
    if found is None:
        assert max(means) - min(means) < 1e-9
    else:
        assert min(means) - 1e-9 <= found.low <= found.high <= max(means) + 1e-9


def test_the_weights_of_an_interval_are_those_of_its_value() -> None:
    rng = random.Random(3)
    scores = [[1.0] * rng.randint(5, 9) for _ in range(40)] + [[0.0] for _ in range(40)]
    by_task, by_attempt = interval(scores, "task"), interval(scores, "attempt")
    assert not isinstance(by_task, str) and not isinstance(by_attempt, str)
    assert by_task.low < 0.5 < by_task.high < by_attempt.high and by_attempt.low > 0.75
