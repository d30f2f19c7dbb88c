"""Times as the versions of Harbor wrote them.

The times of trials have had a zone since late 2025; those of jobs never have, and those of errors only since 0.26. A
time without a zone is the wall clock of the machine that wrote it, which nobody recorded. It is read as UTC: machines
that run benchmarks mostly keep it, the differences within a file are right whatever it was, and a figure must not
depend on the zone of whoever looks.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime

_SLACK = 2.0


def seconds(value: object) -> float | None:
    """A recorded time as seconds since 1970 (UTC), None for what is none."""
    found = stamp(value)
    return None if found is None else found[0]


def stamp(value: object) -> tuple[float, bool] | None:
    """Seconds since 1970 and whether the text had a zone; None for what is no time."""
    if not isinstance(value, str) or len(value) > 40:
        return None
    try:
        moment = datetime.fromisoformat(value)
        if moment.tzinfo is None:
            return moment.replace(tzinfo=UTC).timestamp(), False
        return moment.timestamp(), True
    except (ValueError, OverflowError):
        return None


def settle(at: float, began: float | None, ended: float | None) -> float:
    """A time without a zone, moved by the zone that puts it between two times that have one.

    Whole hours are tried before half and quarter hours, small shifts before large ones. Unchanged when no zone does.
    """
    if began is None or ended is None or began - _SLACK <= at <= ended + _SLACK:
        return at
    for shift in _zones():
        if began - _SLACK <= at + shift <= ended + _SLACK:
            return at + shift
    return at


def _zones() -> Iterator[int]:
    for first, step in ((3600, 3600), (1800, 3600), (900, 1800)):
        for size in range(first, 14 * 3600 + 1, step):
            yield size
            yield -size
