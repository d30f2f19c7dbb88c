"""95 % intervals of a mean over tasks and attempts: Wilson's for single passes and failures, else tasks resampled."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from scipy import stats

RESAMPLES = 10_000
_SEED = 20_240_807
"""Fixed, so that the same trials always give the same interval."""
_DRAWS = 20_000_000
"""Tasks times resamples at most: many tasks need fewer resamples, and memory and time are bounded."""
FEW_TASKS = 30
"""Below so many tasks a bootstrap over tasks is too narrow (arXiv 2503.01747)."""
LEVEL = 0.95


class Interval(NamedTuple):
    """`method`: wilson, bootstrap-bca, bootstrap-percentile."""

    low: float
    high: float
    method: str


def interval(scores_T: Sequence[Sequence[float]], per: str = "attempt") -> Interval | str:
    """The interval of sum x / N (`per` "attempt") or of the mean of the task means ("task"), or why there is none.

    Wilson's on the number of passes where each task has one attempt, and where every attempt passed or failed, when
    resampling would say that the value is certain; for several attempts a task it is then too narrow, as these are not
    independent. Otherwise the bootstrap over tasks. `scores_T`: the scores of each task's attempts.
    """
    flat = [score for scores in scores_T for score in scores]
    if not flat:
        return "nothing is counted"
    binary = all(score in (0, 1) for score in flat)
    passes = int(math.fsum(flat)) if binary else 0
    if binary and (len(flat) == len(scores_T) or passes in (0, len(flat))):
        return wilson(passes, len(flat))
    found = over_tasks(scores_T, per)
    if found is not None:
        return found
    if binary and len(scores_T) > 1:
        return wilson(passes, len(flat))
    return "there is one task only" if len(scores_T) == 1 else "all tasks have the same mean"


def wilson(passes: int, attempts: int) -> Interval:
    """Wilson's score interval of a share (J. Am. Stat. Assoc. 22:209, 1927), without correction for continuity.

    Raises:
        ValueError: no attempts, or more passes than attempts.
    """
    found = stats.binomtest(passes, attempts).proportion_ci(LEVEL, method="wilson")
    return Interval(float(found.low), float(found.high), "wilson")


def over_tasks(scores_T: Sequence[Sequence[float]], per: str = "attempt") -> Interval | None:
    """Bootstrap with whole tasks drawn with replacement, so that attempts of one task stay together.

    Bias-corrected and accelerated (Efron, J. Am. Stat. Assoc. 82:171, 1987) where that is defined, else percentiles.
    The seed is fixed. 10,000 resamples, fewer from 2,000 tasks on. None for fewer than two tasks, or where all tasks
    have the same mean, so that resampling says nothing.
    """
    counts_T = np.asarray([len(scores) for scores in scores_T], dtype=float)
    sums_T = np.asarray([math.fsum(scores) for scores in scores_T])
    if len(sums_T) < 2 or np.ptp(sums_T / counts_T) < 1e-12:
        return None
    if per == "task":
        counts_T, sums_T = np.ones_like(counts_T), sums_T / counts_T
    tasks = len(sums_T)

    def value(sums: np.ndarray, counts: np.ndarray, axis: int) -> np.ndarray:
        total: np.ndarray = sums.sum(axis=axis) / counts.sum(axis=axis)
        return total

    for method in ("BCa", "percentile"):
        with np.errstate(all="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # scipy warns where BCa is not defined, which is handled here
            found = stats.bootstrap(
                (sums_T, counts_T),
                value,
                paired=True,
                vectorized=True,
                confidence_level=LEVEL,
                n_resamples=min(RESAMPLES, max(1_000, _DRAWS // tasks)),
                batch=max(1, 1_000_000 // tasks),
                method=method,
                rng=np.random.default_rng(_SEED),
            ).confidence_interval
        if math.isfinite(found.low) and math.isfinite(found.high):
            return Interval(float(found.low), float(found.high), f"bootstrap-{method.lower()}")
    return None
