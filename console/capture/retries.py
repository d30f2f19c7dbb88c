"""Replies that may be given once more: a client that did not get its answer asks again, and no second sample is taken.

Clients mark what they send again (`x-stainless-retry-count`). A marked request whose reply is here gets that reply.
An unmarked one is a new call even when it is the same word for word: agents do loop. Whatever the mark, a request that
is the same as one under way waits for that one's answer; that is the business of whoever runs the calls.
"""

from __future__ import annotations

from collections import OrderedDict

import msgspec

from console.capture.chat import ChatReply


class Answered(msgspec.Struct, frozen=True, kw_only=True):
    """A call that was answered. `call`: its number within the try."""

    call: int
    reply: ChatReply


class Replies:
    """The newest replies of a trial by the digest of their requests, `kept` at most."""

    def __init__(self, kept: int) -> None:
        self._kept = kept
        self._answered: OrderedDict[bytes, Answered] = OrderedDict()

    def get(self, digest: bytes) -> Answered | None:
        """The reply to the newest request with this digest."""
        return self._answered.get(digest)

    def put(self, digest: bytes, answered: Answered) -> None:
        """Keep a reply; the oldest one goes when there are too many."""
        self._answered[digest] = answered
        self._answered.move_to_end(digest)
        while len(self._answered) > self._kept:
            self._answered.popitem(last=False)

    def drop(self, digest: bytes) -> None:
        """A new call with this digest begins: a retry from now on means that one, also when it fails."""
        self._answered.pop(digest, None)

    def clear(self) -> None:
        """Keep nothing."""
        self._answered.clear()
