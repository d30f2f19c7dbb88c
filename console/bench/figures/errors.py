"""Standard errors of a mean over tasks and attempts. Each answers another question, so they are named apart.

Notation: task i of T has n_i attempts with scores x_ij in [0, 1] or beyond, mean p_i and sample variance s_i^2 (n_i - 1
below the sum); N is the sum of n_i. `per` is what the value averages over: "attempt" for sum x / N, "task" for the mean
of p_i. Both agree where all n_i are one.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from scipy import stats


def within_tasks(scores_T: Sequence[Sequence[float]], per: str = "attempt") -> float | None:
    """Standard error with the tasks fixed: how far the same tasks would give another value if they were run again.

    sqrt(sum_i w_i^2 s_i^2 / n_i), w_i = 1 / T per task and n_i / N per attempt. For scores of 0 and 1 and per task this
    is sqrt(sum_i p_i (1 - p_i) / (n_i - 1)) / T, which the Terminal-Bench leaderboard prints; s_i^2 / n_i is the
    unbiased estimate of a task mean's variance (any text on sampling, e.g. Cochran, Sampling Techniques, 2.4).

    Args:
        scores_T: the scores of each task's attempts.

    Returns:
        None without tasks, and as soon as one task has a single attempt: its variance is unknown, not zero.
    """
    if not scores_T or any(len(scores) < 2 for scores in scores_T):
        return None
    sizes = [len(scores) for scores in scores_T]
    counts_T = np.asarray(sizes, dtype=float)
    flat = np.asarray([score for scores in scores_T for score in scores], dtype=float)
    first_T = np.cumsum([0, *sizes[:-1]])
    means_T = np.add.reduceat(flat, first_T) / counts_T
    squares_T = np.add.reduceat((flat - np.repeat(means_T, sizes)) ** 2, first_T)
    weights_T = 1 / len(counts_T) if per == "task" else counts_T / counts_T.sum()
    return float(np.linalg.norm(weights_T * np.sqrt(squares_T / (counts_T - 1) / counts_T)))


def across_tasks(scores_T: Sequence[Sequence[float]], per: str = "attempt") -> float | None:
    """Standard error with the tasks as a sample of all tasks like them: how far other tasks would give another value.

    Per task sd(p_i) / sqrt(T), T - 1 below the sum. Per attempt the cluster-robust error of the pooled mean m,
    sqrt(sum_i (sum_j (x_ij - m))^2) / N (Miller, arXiv 2411.00640), times sqrt(T / (T - 1)) so that both are one
    where all n_i are equal. It includes the spread within tasks.

    Returns:
        None for fewer than two tasks.
    """
    tasks = len(scores_T)
    if tasks < 2:
        return None
    if per == "task":
        return float(stats.sem([math.fsum(scores) / len(scores) for scores in scores_T]))
    return clustered(scores_T) * math.sqrt(tasks / (tasks - 1))


def clustered(scores_T: Sequence[Sequence[float]]) -> float:
    """Cluster-robust standard error of the pooled mean as in Miller (arXiv 2411.00640), without a correction for few
    tasks. Raises `ValueError` without an attempt."""
    counts_T = np.asarray([len(scores) for scores in scores_T], dtype=float)
    if not counts_T.sum():
        raise ValueError("no attempt")
    sums_T = np.asarray([math.fsum(scores) for scores in scores_T])
    mean = sums_T.sum() / counts_T.sum()
    return float(np.linalg.norm(sums_T - counts_T * mean) / counts_T.sum())
