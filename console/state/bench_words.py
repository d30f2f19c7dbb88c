"""Figures of a benchmark in words, one way for screens, logs and exports: what passed by which rule, the time left."""

from __future__ import annotations

from console.state.benchmark import Passed, TimeLeft, infra_excluded
from console.state.model import RunState

INFRA_EXCLUDED = "infra-excluded"
_FINE = 10.0
"""Seconds below which no estimate is finer."""


def passed_text(state: RunState, interval: bool = True) -> str:
    """What passed, with its rule: 12/33 (36.4 %) infra-excluded."""
    return f"{share_text(infra_excluded(state), interval)} {INFRA_EXCLUDED}"


def share_text(passed: Passed, interval: bool = True) -> str:
    """12/33 (36.4 %), with the interval where there is one and it is asked for; -- before a trial counts."""
    if passed.value is None:
        return "--"
    bounds = ""
    if interval and passed.low is not None and passed.high is not None:
        bounds = f", 95 % interval {100 * passed.low:.1f} to {100 * passed.high:.1f}"
    return f"{passed.sum:.6g}/{passed.of} ({100 * passed.value:.1f} %{bounds})"


def left_text(left: TimeLeft | None, bounds: bool = True) -> str:
    """75 s (<10 to 140 s), 2.4 h (1.8 to 3.1 h); empty when it is not known, or nothing is left."""
    if left is None or left.high <= 0:
        return ""
    if not bounds:
        return rough(left.likely)
    low, high = rough(left.low), rough(left.high)
    if low.rpartition(" ")[2] == high.rpartition(" ")[2]:
        low = low.rpartition(" ")[0]
    return f"{rough(left.likely)} ({low} to {high})"


def rough(seconds: float) -> str:
    """A length of time that is an estimate, as fine as one can be: <10 s, 75 s, 12 min, 2.4 h, 3.1 d."""
    if seconds < _FINE:
        return f"<{_FINE:.0f} s"
    if seconds < 97.5:
        return f"{5 * round(seconds / 5)} s"
    if seconds < 99.5 * 60:
        return f"{seconds / 60:.0f} min"
    if seconds < 47.95 * 3600:
        return f"{seconds / 3600:.1f} h"
    return f"{seconds / 86400:.1f} d"
