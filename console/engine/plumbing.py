"""What a run stands on: the gateway (a child of ours, or somebody's), its health, and the totals that are reported."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import deque
from collections.abc import Callable

import httpx
import msgspec

from console.capture.figures import CaptureFigures
from console.gateway.probe import GatewayHealth, probe
from console.journal import events as ev
from console.journal.layout import JournalWriteError
from console.state.model import CaptureState
from console.training.trial_context import Totals

REPORT_SECONDS = 1.0
OUTAGES_KEPT = 64
AT_LEAST_EVERY = 10.0


class HealthWatch:
    """Probes the gateway with an HTTP client of its own, apart from the SDK, and reports what it sees.

    Args:
        base_url, api_key: of the gateway; interval: seconds between probes; emit: appends an event.
    """

    def __init__(self, base_url: str, api_key: str, interval: float, emit: Callable[[ev.Event], None]) -> None:
        self._base_url, self._api_key, self._interval, self._emit = base_url, api_key, interval, emit
        self._told: ev.GatewayHealth | None = None
        self._told_at = 0.0
        self._outages: deque[tuple[float, float]] = deque(maxlen=OUTAGES_KEPT)
        self._away_since: float | None = None

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
        health = await probe(self._base_url, self._api_key, client=client)
        self._note_outage(asked, health.reachable)
        event = ev.GatewayHealth(
            reachable=health.reachable,
            latency_ms=round(health.latency_ms, 2) if health.latency_ms is not None else None,
            queued=health.queued,
            running=health.running,
            kv_fraction=health.kv_fraction,
            detail=health.detail,
        )
        now = time.monotonic()
        if self._told is None or now - self._told_at >= AT_LEAST_EVERY or not _alike(event, self._told):
            self._told, self._told_at = msgspec.structs.replace(event), now
            self._emit(event)
        return health

    async def run(self) -> None:
        """Probe for ever."""
        async with httpx.AsyncClient(trust_env=False) as client:
            while True:
                with contextlib.suppress(JournalWriteError):  # the board ends the run
                    await self.once(client)
                await asyncio.sleep(self._interval)


def _alike(a: ev.GatewayHealth, b: ev.GatewayHealth) -> bool:
    """Whether two reports say the same to a person: latency within a quarter."""
    if (a.reachable, a.queued, a.running, a.detail) != (b.reachable, b.queued, b.running, b.detail):
        return False
    x, y = a.latency_ms, b.latency_ms
    return x == y or (x is not None and y is not None and abs(x - y) <= 0.25 * max(x, y))


def capture_stats(totals: Totals, figures: CaptureFigures, before: CaptureState) -> ev.CaptureStats:
    """The captured totals as an event. `before`: what engines before this one had reported."""
    low, high = (
        [t for t in pair if t is not None]
        for pair in (
            (before.temperature_low, figures.temperature_low),
            (before.temperature_high, figures.temperature_high),
        )
    )
    return ev.CaptureStats(
        calls=totals.calls,
        failed=totals.failed,
        prompt_tokens=totals.prompt_tokens,
        sampled_tokens=totals.sampled_tokens,
        lost=figures.lost,
        no_logprobs=figures.no_logprobs,
        inflight=figures.inflight,
        trained_tokens=totals.trained_tokens,
        bridged=before.bridged + figures.bridged,
        unbridged=_sum(before.unbridged, figures.unbridged),
        refusals=_sum(before.refusals, figures.refusals),
        excluded=dict(totals.excluded),
        temperature_low=min(low, default=None),
        temperature_high=max(high, default=None),
    )


def _sum(a: dict[str, int], b: dict[str, int]) -> dict[str, int]:
    return {key: a.get(key, 0) + b.get(key, 0) for key in a.keys() | b.keys()}


async def report_totals(
    totals: Totals, captured: Callable[[], ev.CaptureStats], emit: Callable[[ev.Event], None]
) -> None:
    """Report captured tokens and live sandboxes, once a second while they change. `captured`: the totals so far."""
    capture: ev.CaptureStats | None = None
    sandboxes: tuple[int, int] | None = None
    idle = 0
    while True:
        await asyncio.sleep(REPORT_SECONDS)
        now = captured()
        # One more report after the last change brings the shown rate down to zero.
        idle = 0 if capture != now else idle + 1
        if idle <= 1 and (capture is not None or now != ev.CaptureStats()):
            emit(msgspec.structs.replace(now))
        capture = now
        live = (totals.sandboxes, len(totals.sandboxes_left))
        if live != sandboxes:
            sandboxes = live
            emit(ev.SandboxStats(live=totals.sandboxes, left=list(totals.sandboxes_left)))
