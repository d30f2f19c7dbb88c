"""When trials begin: so many of a group at once, a number that may change, and none at all during a pause."""

from __future__ import annotations

import asyncio
import contextlib
import weakref
from collections import deque


class Dispatch:
    """The run's rule for beginning trials. One for all groups, on the engine's main loop.

    Args:
        parallel: trials of one group that run at once, at least 1.
    """

    def __init__(self, parallel: int) -> None:
        self._parallel, self._paused = max(1, parallel), False
        self._groups: weakref.WeakSet[Slots] = weakref.WeakSet()

    @property
    def parallel(self) -> int:
        """Trials of one group that run at once."""
        return self._parallel

    @property
    def paused(self) -> bool:
        """Whether no trial begins."""
        return self._paused

    def slots(self) -> Slots:
        """The slots of a new group."""
        slots = Slots(self)
        self._groups.add(slots)
        return slots

    def resize(self, parallel: int) -> None:
        """Change the limit now: more trials begin at once, or none until fewer than `parallel` run."""
        self._parallel = max(1, parallel)
        self._hand_out()

    def pause(self, paused: bool) -> None:
        """Begin no trial any more, or begin those that wait."""
        self._paused = paused
        self._hand_out()

    def _hand_out(self) -> None:
        for slots in list(self._groups):
            slots.hand_out()


class Slots:
    """One group's places for running trials, given in the order in which they were asked for."""

    def __init__(self, dispatch: Dispatch) -> None:
        self._dispatch = dispatch
        self._taken = 0
        self._waiting: deque[asyncio.Future[None]] = deque()

    @property
    def taken(self) -> int:
        """Places in use."""
        return self._taken

    @property
    def waiting(self) -> int:
        """Trials that wait for a place."""
        return len(self._waiting)

    async def acquire(self) -> bool:
        """Wait for a place; always True. Cancelling gives up the wait, and a place that came at the same moment."""
        place: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(place)
        self.hand_out()
        try:
            await place
        except asyncio.CancelledError:
            if place.done() and not place.cancelled():
                self.release()
            with contextlib.suppress(ValueError):
                self._waiting.remove(place)
            raise
        return True

    def release(self) -> None:
        """Give a place back."""
        self._taken -= 1
        self.hand_out()

    def hand_out(self) -> None:
        """Give places to those who wait, as far as the rule allows."""
        while self._waiting and not self._dispatch.paused and self._taken < self._dispatch.parallel:
            place = self._waiting.popleft()
            if not place.done():
                self._taken += 1
                place.set_result(None)
