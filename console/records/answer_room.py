"""How much fits into one answer about a trial."""

from __future__ import annotations

import msgspec

ITEMS = 200
ANSWER_BYTES = 256 << 10


class Room:
    """What still fits into an answer."""

    def __init__(self, limit: int) -> None:
        self._items, self._bytes, self._empty = max(1, min(limit, ITEMS)), ANSWER_BYTES, True

    def take(self, item: object) -> bool:
        """Whether the item fits, and takes its room; the first one always does."""
        size = len(msgspec.json.encode(item)) + 1
        if self._items < 1 or (size > self._bytes and not self._empty):
            return False
        self._items, self._bytes, self._empty = self._items - 1, self._bytes - size, False
        return True
