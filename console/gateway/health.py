"""The watch over a gateway: what our own probe sees, and what the SDK of this process goes through, as one report.

Neither tinker nor torch is imported: the SDK's part comes through a callable (see `sdk_watch`).
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import deque
from collections.abc import Callable
from ipaddress import ip_address
from socket import getaddrinfo
from threading import Thread

import httpx
import msgspec

from console.gateway.probe import GatewayHealth, probe
from console.gateway.proxies import gateway_client, proxy_of
from console.journal import events as ev
from console.journal.layout import JournalWriteError

OUTAGES_KEPT = 64
AT_LEAST_EVERY = 10.0
SILENT_SECONDS = 60.0
"""A service that is not probed counts as away when the SDK, which asks every 10 s, got no answer for so long."""


class SdkFigures(msgspec.Struct, frozen=True, kw_only=True):
    """What the SDK of this process goes through at the gateway. Ages in seconds, None for never.

    Attributes:
        contact_age: of the last answer, whatever it said; heartbeat_age: of the last heartbeat that was acknowledged.
        queue, queue_reason: what those who wait for results were told, empty for nothing; of several the worst.
        backoff: seconds for which samples are still held back after a 429, None for not at all.
        pending, oldest: by kind of operation, how many are under way, and the age of the oldest.
        forgotten: what the gateway said when it did not know the session any more, empty while it does.
    """

    contact_age: float | None = None
    heartbeat_age: float | None = None
    queue: str = ""
    queue_reason: str = ""
    backoff: float | None = None
    pending: dict[str, int] = {}
    oldest: dict[str, float] = {}
    forgotten: str = ""


class HealthWatch:
    """Probes the gateway with an HTTP client of its own, apart from the SDK, and reports what it sees.

    Args:
        base_url, api_key: of the gateway; an empty address is the hosted service: it is not probed, and what is known
            of it is what the SDK is told.
        interval: seconds between reports; emit: appends an event.
    """

    def __init__(self, base_url: str, api_key: str, interval: float, emit: Callable[[ev.Event], None]) -> None:
        self._base_url, self._api_key, self._interval, self._emit = base_url, api_key, interval, emit
        self._sdk: Callable[[], SdkFigures] = SdkFigures
        self._lease: float | None = None
        self._told: ev.GatewayHealth | None = None
        self._told_at = 0.0
        self._outages: deque[tuple[float, float]] = deque(maxlen=OUTAGES_KEPT)
        self._away_since: float | None = None
        self._name = _Name(base_url)
        self._on_forgotten: Callable[[str], None] = lambda said: None

    def attach(
        self,
        sdk: Callable[[], SdkFigures] | None = None,
        lease: float | None = None,
        on_forgotten: Callable[[str], None] | None = None,
    ) -> None:
        """From now on report the SDK's figures too, and what is left of a session's `lease` (seconds).

        `on_forgotten` is told, at each look, what the gateway said when it did not know the session any more.
        """
        self._on_forgotten = self._on_forgotten if on_forgotten is None else on_forgotten
        self._sdk = self._sdk if sdk is None else sdk
        self._lease = self._lease if lease is None else lease

    def outage(self, since: float) -> float:
        """Seconds for which the gateway did not answer, from a monotonic time until now."""
        now = time.monotonic()
        spans = [*self._outages, *([(self._away_since, now)] if self._away_since is not None else [])]
        return sum(max(0.0, end - max(begin, since)) for begin, end in spans)

    def _note_outage(self, asked: float, reachable: bool) -> None:
        if not reachable:
            self._away_since = asked if self._away_since is None else self._away_since
        elif self._away_since is not None:
            self._outages.append((self._away_since, time.monotonic()))
            self._away_since = None

    async def once(self, client: httpx.AsyncClient) -> GatewayHealth:
        """Probe and report."""
        asked = time.monotonic()
        health = await self._look(client)
        self._note_outage(asked, health.reachable)
        sdk = self._sdk()
        if sdk.forgotten:
            self._on_forgotten(sdk.forgotten)
        event = merged(health, sdk, self._lease)
        now = time.monotonic()
        if self._told is None or now - self._told_at >= AT_LEAST_EVERY or not _alike(event, self._told):
            self._told, self._told_at = msgspec.structs.replace(event), now
            self._emit(event)
        return health

    async def _look(self, client: httpx.AsyncClient) -> GatewayHealth:
        if not self._base_url:
            age = self._sdk().contact_age
            silent = age is not None and age > SILENT_SECONDS
            return GatewayHealth(
                reachable=not silent, detail=f"the SDK got no answer for {age:.0f} s" if silent else ""
            )
        first = self._told is None or self._away_since is not None
        if first and not proxy_of(self._base_url) and not await self._name.known():
            return GatewayHealth(reachable=False, detail=f"the name {self._name.host} cannot be resolved")
        return await probe(self._base_url, self._api_key, client=client)

    async def run(self) -> None:
        """Probe for ever."""
        async with gateway_client() as client:
            while True:
                with contextlib.suppress(JournalWriteError):  # the board ends the run
                    await self.once(client)
                await asyncio.sleep(self._interval)


def merged(health: GatewayHealth, sdk: SdkFigures, lease: float | None) -> ev.GatewayHealth:
    """One report of both. `lease`: seconds after which the gateway ends a session without heartbeats."""
    age = sdk.heartbeat_age
    return ev.GatewayHealth(
        reachable=health.reachable,
        latency_ms=round(health.latency_ms, 2) if health.latency_ms is not None else None,
        queued=health.queued,
        running=health.running,
        kv_fraction=health.kv_fraction,
        detail=health.detail,
        queue=sdk.queue,
        queue_reason=sdk.queue_reason,
        backoff=None if sdk.backoff is None else round(sdk.backoff, 1),
        heartbeat_age=None if age is None else round(age, 1),
        lease_left=None if age is None or lease is None else round(max(0.0, lease - age), 1),
        pending=dict(sdk.pending),
        oldest={kind: round(seconds, 1) for kind, seconds in sdk.oldest.items()},
    )


class _Name:
    """Whether the gateway's name is known. One look-up at a time, on a thread of its own.

    A name service that hangs keeps a thread for minutes; a probe every few seconds would soon have used up those that
    the engine has for its other work, and they would keep it from ending.
    """

    def __init__(self, base_url: str) -> None:
        self.host, self._port = "", None
        with contextlib.suppress(Exception):
            url = httpx.URL(base_url)
            self.host, self._port = url.host, url.port
        self._pending: asyncio.Future[bool] | None = None

    async def known(self, timeout: float = 5.0) -> bool:
        """Look the name up, for at most `timeout` seconds. An address, or none at all, needs no looking up."""
        if not self.host or _is_address(self.host):
            return True
        if self._pending is None:
            loop = asyncio.get_running_loop()
            self._pending = found = loop.create_future()

            def tell(known: bool) -> None:
                if not found.done():
                    found.set_result(known)

            def look_up() -> None:
                try:
                    known = bool(getaddrinfo(self.host, self._port))
                except (OSError, UnicodeError):
                    known = False
                with contextlib.suppress(RuntimeError):  # the loop has ended meanwhile
                    loop.call_soon_threadsafe(tell, known)

            Thread(target=look_up, name="gateway-name", daemon=True).start()
        done, _ = await asyncio.wait([self._pending], timeout=timeout)
        if not done:
            return False
        found, self._pending = self._pending, None
        return found.result()


def _is_address(host: str) -> bool:
    try:
        ip_address(host)
    except ValueError:
        return False
    return True


def _alike(a: ev.GatewayHealth, b: ev.GatewayHealth) -> bool:
    """Whether two reports say the same to a person: latency within a quarter, ages not counted."""
    if (a.reachable, a.queued, a.running, a.detail) != (b.reachable, b.queued, b.running, b.detail):
        return False
    if (a.queue, a.queue_reason, a.backoff is None) != (b.queue, b.queue_reason, b.backoff is None):
        return False
    if a.pending.keys() - {"sample"} != b.pending.keys() - {"sample"}:  # samples come and go all the time
        return False
    x, y = a.latency_ms, b.latency_ms
    return x == y or (x is not None and y is not None and abs(x - y) <= 0.25 * max(x, y))
