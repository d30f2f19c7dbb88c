"""A bounded number of calls at once, and a bounded number that wait, for a bounded time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from console.capture.refusals import RefusedError

RETRY_AFTER = 2.0


class Places:
    """Where calls of one trial may be.

    Args:
        places: calls at once; waiting: further ones that may wait; seconds: for how long.
    """

    def __init__(self, places: int, waiting: int, seconds: float) -> None:
        self._free = asyncio.Semaphore(places)
        self._limit, self._waiting, self._seconds = waiting, 0, seconds

    @asynccontextmanager
    async def place(self) -> AsyncIterator[None]:
        """A place until the block is left. Raises `RefusedError` (busy) when there is none to wait for."""
        if self._free.locked() and self._waiting >= self._limit:
            raise RefusedError("busy", "too many model calls of this trial at once", retry_after=RETRY_AFTER)
        self._waiting += 1
        try:
            async with asyncio.timeout(self._seconds):
                await self._free.acquire()
        except TimeoutError:
            raise RefusedError(
                "busy", "other model calls of this trial take too long", retry_after=RETRY_AFTER
            ) from None
        finally:
            self._waiting -= 1
        try:
            yield
        finally:
            self._free.release()
