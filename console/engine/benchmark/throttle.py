"""Fewer trials at once while sandboxes fail, and more again when they do not: a pure decision after each try."""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

from console.bench.running.options import Throttle

FEWEST = 8
"""Tries that must have ended before their share is judged; fewer where the window is smaller."""


class Change(NamedTuple):
    """Another limit, and why, in one line."""

    limit: int
    why: str


class ThrottlePolicy:
    """Halves the limit when too many of the last tries failed for infrastructure's sake; one more after a clean window.

    After each change it looks at tries that ended since, and only at them. Nothing is changed unless `mode` is auto:
    the advice to do it is an alarm's.

    Attributes:
        most: trials at once that it never exceeds.

    Args:
        most: trials at once that the job allows; least: it never goes below; window: tries looked back at; share: of
            infrastructure failures among them, 0 to 1.
    """

    def __init__(self, mode: Throttle, most: int, least: int, window: int, share: float) -> None:
        self.most = most
        self._mode, self._least, self._share = mode, max(1, least), share
        self._last: deque[bool] = deque(maxlen=max(1, window))

    def changed(self) -> None:
        """The limit is another one, whoever changed it: what was seen under the old one does not count."""
        self._last.clear()

    def ended(self, infrastructure: bool, limit: int) -> Change | None:
        """A try ended, and whether infrastructure was its failure; `limit`: trials at once now."""
        self._last.append(infrastructure)
        if self._mode != "auto":
            return None
        seen, failed, window = len(self._last), sum(self._last), self._last.maxlen or 1
        if seen >= min(FEWEST, window) and failed and failed >= self._share * seen:
            fewer = max(self._least, limit // 2)
            if fewer >= limit:
                return None
            return Change(fewer, f"{failed} of the last {seen} tries failed for infrastructure's sake")
        if seen == window and not failed and limit < self.most:
            return Change(limit + 1, f"none of the last {seen} tries failed for infrastructure's sake")
        return None
