"""Trials by their tokens.

A token is a trial's address: 256 bit, made for one try, looked up by its digest so that no comparison tells how much of
a guess was right. What a token opens is one trial's calls and nothing else.
"""

from __future__ import annotations

import asyncio
import hashlib
import secrets
from collections import OrderedDict
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from multidict import CIMultiDictProxy

from console.capture.bodies import Meter
from console.capture.captured import CapturedTrial
from console.capture.refusals import RefusedError

if TYPE_CHECKING:
    from console.capture.calls import TrialCalls

EARLY_SECONDS = 2.0
"""For so long a call waits for its trial's agent to have started."""

SEALED_KEPT = 10_000
"""Tokens of ended trials that are still told so (410); older ones are unknown (401)."""

EARLY_WAITING = 16
"""Calls of one trial that may wait for its start; further ones are refused at once."""

TOKEN_HEADERS = ("x-api-key", "x-goog-api-key", "api-key")
_TOKEN_CHARS = 256
_TOKENS = 8


class Owned(Protocol):
    """A connection that showed a trial's token."""

    def release(self) -> None:
        """Forget the trial."""


class Entry:
    """A trial in the table.

    Attributes:
        calls: the trial's; held: counts bytes of bodies that are read or served; connections: that use its token.
        over: the trial's agent has ended.
    """

    def __init__(self, calls: TrialCalls, held: int) -> None:
        self.calls = calls
        self.held = Meter(held)
        self.connections: set[Owned] = set()
        self.over = False
        self._started = asyncio.Event()
        self._waiting = 0

    def start(self) -> None:
        """Calls are taken from now on."""
        if not self.over:
            self.calls.start()
            self._started.set()

    def stop(self) -> None:
        """No more calls are taken; those that wait for the start are told so."""
        self.over = True
        self.calls.stop()
        self._started.set()

    async def begun(self) -> None:
        """Wait a moment for the start. Raises `RefusedError`: early, or sealed when the trial ended meanwhile."""
        if not self._started.is_set() and self._waiting < EARLY_WAITING:
            self._waiting += 1
            try:
                async with asyncio.timeout(EARLY_SECONDS):
                    await self._started.wait()
            except TimeoutError:
                pass
            finally:
                self._waiting -= 1
        if self.over:
            raise _ended()
        if not self._started.is_set():
            raise RefusedError("early", "the trial has not started yet; try again", retry_after=1.0)


def new_token() -> str:
    """A token that nobody guesses."""
    return secrets.token_urlsafe(32)


class Routes:
    """The table."""

    def __init__(self) -> None:
        self._open: dict[bytes, Entry] = {}
        self._sealed: OrderedDict[bytes, None] = OrderedDict()

    @property
    def inflight(self) -> int:
        """Calls under way, of all trials."""
        return sum(entry.calls.inflight for entry in self._open.values())

    def add(self, token: str, entry: Entry) -> None:
        """A trial, by its token."""
        self._open[_digest(token)] = entry

    def retire(self, token: str) -> None:
        """The trial has ended: its token opens nothing any more, and says so for a while."""
        digest = _digest(token)
        if self._open.pop(digest, None) is not None:
            self._sealed[digest] = None
            while len(self._sealed) > SEALED_KEPT:
                self._sealed.popitem(last=False)

    def find(self, headers: CIMultiDictProxy[str]) -> Entry:
        """The trial that a request belongs to.

        Raises:
            RefusedError: auth, when no token is known or two are of different trials; sealed, when the trial is over.
        """
        known = {digest for digest in _digests(headers) if digest in self._open or digest in self._sealed}
        if len(known) != 1:
            raise RefusedError("auth", "API keys of two trials" if known else "unknown or missing API key")
        entry = self._open.get(known.pop())
        if entry is None or entry.over:
            raise _ended()
        return entry

    def entries(self) -> list[Entry]:
        """Those that are open."""
        return list(self._open.values())


class OpenRoute:
    """One trial's address; see `base.Route`.

    Attributes:
        url: what goes into `{proxy_url}`; api_key: what goes into `{proxy_api_key}`, a secret.
    """

    def __init__(self, entry: Entry, url: str, api_key: str, retire: Callable[[str], None]) -> None:
        self.url, self.api_key = url, api_key
        self._entry, self._retire = entry, retire

    def start(self) -> None:
        """The trial's agent runs: calls are taken from now on."""
        self._entry.start()

    def stop(self) -> None:
        """Take no more calls and cancel those under way."""
        self._entry.stop()

    async def seal(self) -> CapturedTrial:
        """End the route at once, also when the caller is cancelled; then what was captured. Idempotent.

        Raises:
            CaptureError: what was captured is not of one policy version.
        """
        self._entry.stop()
        self._retire(self.api_key)
        captured = await self._entry.calls.seal()
        # A connection remembers whose it is, and an agent's client keeps it open: the trial would stay in memory.
        for connection in list(self._entry.connections):
            connection.release()
        return captured


def _ended() -> RefusedError:
    return RefusedError("sealed", "the trial has ended")


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "surrogateescape")).digest()


def _digests(headers: CIMultiDictProxy[str]) -> set[bytes]:
    """Digests of the tokens as the clients of each dialect send them; the first few, and none that is no token."""
    given = [value for name in TOKEN_HEADERS for value in headers.getall(name, ())]
    for value in headers.getall("Authorization", ()):
        scheme, _, rest = value.partition(" ")
        if scheme.lower() == "bearer":
            given.append(rest)
    tokens = (token.strip() for token in given[:_TOKENS])
    return {_digest(token) for token in tokens if token and len(token) <= _TOKEN_CHARS and token.isascii()}
