"""Figures and conditions in words."""

from __future__ import annotations

BENCHMARK = "benchmark"
"""`RunState.kind` of one; of any other run it is `training`."""
DAMAGED = "damaged"
END_LOST = "its end cannot be read: the journal is damaged"
"""What is said of a run in that condition: whether it ended in order is not known."""


def plural(number: int, word: str, ending: str = "s") -> str:
    """1 task, 2 tasks."""
    return f"{number} {word}{'' if number == 1 else ending}"


def span(seconds: float) -> str:
    """A length of time in one unit, never 0 of it."""
    if seconds < 0.5:
        return "<1 s"
    if seconds < 100:
        return f"{seconds:.0f} s"
    if seconds < 100 * 60:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"
