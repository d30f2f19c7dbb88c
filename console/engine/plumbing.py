"""What a run stands on: the health of its gateway, and the totals that are reported."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import msgspec

from console.capture.figures import CaptureFigures
from console.gateway.health import HealthWatch
from console.journal import events as ev
from console.state.model import CaptureState
from console.training.trial_context import Totals

__all__ = ["HealthWatch", "capture_stats", "report_totals"]

REPORT_SECONDS = 1.0


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
