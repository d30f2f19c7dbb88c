"""pass@k and pass^k: whether one of k attempts, or each of them, solves a task. Only for scores of 0 and 1."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable

KS = (1, 2, 3, 4, 5, 8, 10, 16, 32, 64)
"""What is reported, as far as a task has so many attempts."""


def pass_at_k(attempts: int, passes: int, k: int) -> float:
    """Unbiased estimate that at least one of k attempts passes: 1 - C(n - c, k) / C(n, k) (Chen et al., arXiv
    2107.03374). Integers are exact here, where floating binomials overflow.

    Raises:
        ValueError: k below 1 or above the attempts, for which no estimate exists.
    """
    _check(attempts, passes, k)
    return 1 - math.comb(attempts - passes, k) / math.comb(attempts, k)


def pass_all_k(attempts: int, passes: int, k: int) -> float:
    """Unbiased estimate that all of k attempts pass: C(c, k) / C(n, k) (tau-bench, arXiv 2406.12045).

    Raises:
        ValueError: as for `pass_at_k`.
    """
    _check(attempts, passes, k)
    return math.comb(passes, k) / math.comb(attempts, k)


def over_tasks(
    tasks: Iterable[tuple[int, int]], ks: Iterable[int], estimate: Callable[[int, int, int], float] = pass_at_k
) -> dict[int, tuple[float, int]]:
    """k to (mean over the tasks with at least k attempts, their number); a k that no task supports is left out.

    Args:
        tasks: (attempts, passes) of each task; values for different k rest on different tasks where attempts differ.
    """
    kinds = Counter(tasks)
    found = {}
    for k in ks:
        supported = {kind: number for kind, number in kinds.items() if kind[0] >= k}
        total = sum(supported.values())
        if total:
            values = (number * estimate(*kind, k) for kind, number in supported.items())
            found[k] = (math.fsum(values) / total, total)
    return found


def _check(attempts: int, passes: int, k: int) -> None:
    if not 0 <= passes <= attempts:
        raise ValueError(f"{passes} passes of {attempts} attempts")
    if not 1 <= k <= attempts:
        raise ValueError(f"k = {k} of {attempts} attempts is undefined")
