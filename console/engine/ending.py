"""How long the end of a run may take, and what shortens it.

A run that an operator stops has time to take its sandboxes down. One that is told to go by the system has not: job
runners and service managers kill 10 seconds after they asked, some of them before. What is not done by then is left to
others: the runners go on with their sandboxes when the engine is gone, and the ledger says what is still there.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable
from typing import Any

CALM_SECONDS = 60.0
URGENT_SECONDS = 5.5
"""Of the 7.5 that pass between an interrupt and the next signal of a common job runner; the journal closes after it."""

log = logging.getLogger(__name__)


class Ending:
    """The deadline of the run's end. It begins with the first `begin`, and only moves nearer after that.

    Attributes:
        urgent: whether the end was asked for by somebody who kills soon.
    """

    def __init__(self) -> None:
        self.urgent = False
        self._deadline: float | None = None
        self._moved = asyncio.Event()

    def begin(self, *, urgent: bool) -> None:
        """The run ends; `urgent`: whoever said so kills soon. Said again: an urgent one counts from its own time."""
        self.urgent = self.urgent or urgent
        self._not_after(URGENT_SECONDS if urgent else CALM_SECONDS)

    def hurry(self) -> None:
        """Nobody waits any longer."""
        self._not_after(0.0)

    @property
    def left(self) -> float:
        """Seconds until the end is over."""
        if self._deadline is None:
            return CALM_SECONDS
        return max(0.0, self._deadline - asyncio.get_running_loop().time())

    def _not_after(self, seconds: float) -> None:
        deadline = asyncio.get_running_loop().time() + seconds
        if self._deadline is None or deadline < self._deadline:
            self._deadline = deadline
            self._moved.set()

    async def within(self, work: Awaitable[Any]) -> bool:
        """Wait for the work for as long as the end may take; whether it was done. What it raised is logged.

        Work that was not done goes on, until the process ends.
        """
        task = asyncio.ensure_future(work)
        while not task.done() and self.left > 0:
            self._moved.clear()
            moved = asyncio.ensure_future(self._moved.wait())
            try:
                await asyncio.wait({task, moved}, timeout=self.left, return_when=asyncio.FIRST_COMPLETED)
            finally:
                moved.cancel()
        if not task.done():
            return False
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("winding up", exc_info=error)
        return True
