"""Statistics of two runs on the same tasks. Distributions, resampling and intervals are scipy's.

Differences are always B minus A, shares between 0 and 1. scipy takes a second to load, which a comparison that was kept
does not need: only the functions import it.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence

import msgspec

RESAMPLES = 10_000
_SEED = 20_240_807
"""Fixed, so that the same two runs always give the same interval."""
NEGLIGIBLE = 1e-12
"""Differences below are rounding."""
FEW_TASKS = 30
"""Below so many tasks resampled intervals are too narrow (arXiv 2503.01747)."""


class Interval(msgspec.Struct, frozen=True, kw_only=True):
    """95 % interval. `method`: newcombe, bootstrap-bca, bootstrap-percentile."""

    low: float
    high: float
    method: str


def mcnemar(only_a: int, only_b: int) -> tuple[float, float]:
    """Exact two-sided McNemar test of the discordant tasks, and its mid-p variant.

    With n = only_a + only_b and k the smaller one, p = min(1, 2 P(X <= k)) for X ~ Binomial(n, 1/2), and mid-p takes
    P(X = k) off the double sum (Fagerland, Lydersen, Laake, BMC Med Res Methodol 13:91, 2013). Without a discordant
    task both are 1.
    """
    from scipy import stats

    total, least = only_a + only_b, min(only_a, only_b)
    if total == 0:
        return 1.0, 1.0
    exact = float(stats.binomtest(least, total).pvalue)
    doubled = 2 * float(stats.binom.cdf(least, total, 0.5))
    return exact, min(1.0, doubled - float(stats.binom.pmf(least, total, 0.5)))


def paired_proportions(both: int, only_a: int, only_b: int, neither: int) -> Interval:
    """Interval of (only_b - only_a) / tasks for one yes or no a task and run; also where nothing differs.

    Newcombe's square-and-add interval with Wilson's limits of each run, his method 10 (Stat Med 17:2635, 1998).

    Raises:
        ValueError: there is no task.
    """
    from scipy import stats

    tasks = both + only_a + only_b + neither
    if tasks == 0:
        raise ValueError("no task in common")
    first, second = both + only_b, both + only_a  # passes of B and of A
    one, two = (stats.binomtest(count, tasks).proportion_ci(method="wilson") for count in (first, second))
    margins = first * (tasks - first) * second * (tasks - second)
    product: float = both * neither - only_a * only_b
    if product > 0:
        product = max(product - tasks / 2, 0.0)  # his correction for continuity
    phi = product / math.sqrt(margins) if margins else 0.0
    p, q = first / tasks, second / tasks

    def reach(mine: float, other: float) -> float:
        return math.sqrt(max(0.0, mine * mine - 2 * phi * mine * other + other * other))

    middle = p - q
    return Interval(
        low=max(-1.0, middle - reach(p - one.low, two.high - q)),
        high=min(1.0, middle + reach(one.high - p, q - two.low)),
        method="newcombe",
    )


def mean_interval(differences_T: Sequence[float]) -> Interval | None:
    """Interval of the mean difference, the T tasks resampled: bias-corrected and accelerated, plain percentiles where
    that is not defined. None for fewer than two tasks or where all differences are one, when resampling says nothing.
    """
    import numpy as np
    from scipy import stats

    values = np.asarray(differences_T, dtype=float)
    if len(values) < 2 or np.ptp(values) < NEGLIGIBLE:
        return None
    method, found = "", None
    for method in ("BCa", "percentile"):
        with np.errstate(all="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore", stats.DegenerateDataWarning)
            found = stats.bootstrap(
                (values,), np.mean, n_resamples=RESAMPLES, batch=1_000, method=method, rng=np.random.default_rng(_SEED)
            ).confidence_interval
        if math.isfinite(found.low) and math.isfinite(found.high):
            break
    assert found is not None
    return Interval(low=float(found.low), high=float(found.high), method=f"bootstrap-{method.lower()}")


def standard_error(differences_T: Sequence[float]) -> float | None:
    """sd(d) / sqrt(T) of paired differences, T - 1 below the sum (Miller, arXiv 2411.00640); None for one task."""
    from scipy import stats

    return float(stats.sem(differences_T)) if len(differences_T) > 1 else None


def sign_flip(differences_T: Sequence[float]) -> float:
    """Two-sided permutation test of a mean of zero: the sign of each task's difference is as likely the other one.

    All 2^T signs where there are at most 10,000 of them, else as many drawn ones (then p is at least 1 / 10,001).
    Tasks without a difference change no mean and are left out first. 1 for fewer than two that have one.
    """
    import numpy as np
    from scipy import stats

    values = np.asarray([value for value in differences_T if abs(value) > NEGLIGIBLE], dtype=float)
    if len(values) < 2:
        return 1.0
    found = stats.permutation_test(
        (values,),
        lambda sample, axis: np.round(np.mean(sample, axis=axis), 9),  # equal means are equal: sums differ in rounding
        permutation_type="samples",
        vectorized=True,
        n_resamples=RESAMPLES,
        batch=1_000,
        rng=np.random.default_rng(_SEED),
    )
    return min(1.0, float(found.pvalue))


def holm(p_values: Sequence[float]) -> list[float]:
    """Adjusted p-values of m tests in the given order: of the i-th smallest, the largest (m - j + 1) p_j of j <= i
    (Holm, Scand J Stat 6:65, 1979); scipy has no such correction.
    """
    adjusted, highest = [0.0] * len(p_values), 0.0
    for rank, index in enumerate(sorted(range(len(p_values)), key=lambda i: p_values[i])):
        highest = max(highest, min(1.0, (len(p_values) - rank) * p_values[index]))
        adjusted[index] = highest
    return adjusted
