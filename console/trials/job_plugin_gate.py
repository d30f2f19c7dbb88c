"""Who of a job's trials may begin: Harbor's own limit cannot be changed while a job runs, so they wait behind it."""

from __future__ import annotations

import asyncio
from collections import deque


class JobGate:
    """Closed until it is moved. Trials pass in the order in which they came; on one event loop."""

    def __init__(self) -> None:
        self._limit, self._further = 0, False
        self._inside: set[str] = set()
        self._waiting: deque[tuple[str, bool, asyncio.Future[None]]] = deque()

    def inside(self, name: str) -> bool:
        """Whether this trial passed and has not left."""
        return name in self._inside

    def move(self, limit: int, further: bool) -> None:
        """`limit`: trials inside, from now on; those above it stay. `further`: further tries pass all the same."""
        self._limit, self._further = limit, further
        self._let_in()

    async def enter(self, name: str, *, further: bool) -> None:
        """Wait for room. A wait that is cancelled leaves no trace."""
        passed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((name, further, passed))
        self._let_in()
        try:
            await passed
        except asyncio.CancelledError:
            self.leave(name)
            raise

    def leave(self, name: str) -> None:
        """It has ended."""
        self._inside.discard(name)
        self._let_in()

    def _let_in(self) -> None:
        kept: deque[tuple[str, bool, asyncio.Future[None]]] = deque()
        while self._waiting:
            name, further, passed = self._waiting.popleft()
            if passed.done():
                continue  # cancelled
            if len(self._inside) < self._limit or (further and self._further):
                self._inside.add(name)
                passed.set_result(None)
            else:
                kept.append((name, further, passed))
        self._waiting = kept
