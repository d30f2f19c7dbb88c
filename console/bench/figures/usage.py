"""Tokens, cost and time of trials: sums, medians and 95th percentiles of what was recorded."""

from __future__ import annotations

import math
from collections.abc import Iterable

import msgspec

from console.bench.rows import Row


class Spread(msgspec.Struct, frozen=True, kw_only=True):
    """A quantity over trials. `known`: trials that record it; the rest is None when none does. Percentiles interpolate
    linearly between the nearest two trials."""

    known: int
    total: float | None = None
    median: float | None = None
    p95: float | None = None


class Usage(msgspec.Struct, frozen=True, kw_only=True):
    """What trials took. Tokens count, `cost_usd` is in US dollars, the times are in seconds; agents that were killed
    often record no tokens or too few."""

    trials: int
    input_tokens: Spread
    cached_tokens: Spread
    output_tokens: Spread
    cost_usd: Spread
    agent_seconds: Spread
    verify_seconds: Spread
    total_seconds: Spread


def usage(rows: Iterable[Row]) -> Usage:
    """The usage of all of `rows`."""
    rows = list(rows)
    names = [name for name in Usage.__struct_fields__ if name != "trials"]
    return Usage(trials=len(rows), **{name: spread(getattr(row, name) for row in rows) for name in names})


def spread(values: Iterable[float | None]) -> Spread:
    """Sum, median and 95th percentile of those that are known."""
    known = [float(value) for value in values if value is not None and math.isfinite(value)]
    if not known:
        return Spread(known=0)
    if len(known) == 1:
        return Spread(known=1, total=known[0], median=known[0], p95=known[0])
    import numpy as np  # a tally that was kept is shown without any of it

    median, p95 = np.quantile(known, [0.5, 0.95])
    return Spread(known=len(known), total=math.fsum(known), median=float(median), p95=float(p95))
