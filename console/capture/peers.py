"""Peers that send wrong tokens. One that guesses is slowed down; nobody else is, whatever address they share."""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict

WINDOW_SECONDS = 60.0
FREE = 30
"""Wrong tokens within a window that cost nothing: agents start before their configuration is in place."""

DELAY_SECONDS = 1.0
PEERS = 1024
WAITING = 64


class Peers:
    """Counts wrong tokens by address, in bounded memory.

    Attributes:
        slowed: answers that were held back.
    """

    def __init__(self) -> None:
        self._seen: OrderedDict[str, tuple[float, int]] = OrderedDict()
        self._waiting = 0
        self.slowed = 0

    def wrong(self, peer: str) -> bool:
        """Count a wrong token. Whether there are so many from this peer that it must wait."""
        now = time.monotonic()
        since, count = self._seen.pop(peer, (now, 0))
        if now - since > WINDOW_SECONDS:
            since, count = now, 0
        self._seen[peer] = (since, count + 1)
        while len(self._seen) > PEERS:
            self._seen.popitem(last=False)
        return count >= FREE

    async def hold(self) -> None:
        """Keep an answer back. When many are kept back already, it goes out at once: waiting costs memory."""
        if self._waiting >= WAITING:
            return
        self._waiting += 1
        self.slowed += 1
        try:
            await asyncio.sleep(DELAY_SECONDS)
        finally:
            self._waiting -= 1
