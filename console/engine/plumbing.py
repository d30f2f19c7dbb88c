"""The totals that a run reports: what was captured, and its sandboxes."""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Callable
from pathlib import Path

import msgspec

from console.capture.figures import CaptureFigures
from console.errors import RecordingError
from console.journal import events as ev
from console.records.sandbox_ledger import LedgerView
from console.state.model import CaptureState
from console.training.trial_context import Totals
from console.trials.ledger import process_name

REPORT_SECONDS = 1.0
COSTS_EVERY = 60.0
"""Seconds between two reports of sandboxes of which only age and cost have changed."""
ONE_CLOCK = 1.0
"""Seconds by which a clock that is read twice may differ from itself."""

log = logging.getLogger(__name__)


def capture_stats(totals: Totals, before: CaptureState, figures: CaptureFigures | None = None) -> ev.CaptureStats:
    """The captured totals as an event.

    Args:
        totals: of the run, over all its engines; before: what engines before this one had reported.
        figures: of this engine's gateway, None as long as there is none. What was lost is each engine's own alarm.
    """
    figures = CaptureFigures() if figures is None else figures
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


class SandboxReport:
    """The run's sandboxes, as its ledger has them; what the engine's own count of live trials knows is added.

    Args:
        run_dir: the run directory; hourly: USD of an hour of a rented sandbox, None for what is known of its kind.
        ahead: seconds by which the run's time is ahead of the ledger's, which is the time of day.
    """

    def __init__(
        self, run_dir: Path, totals: Totals, hourly: float | None, ahead: Callable[[], float] = lambda: 0.0
    ) -> None:
        self._totals, self._hourly, self._ahead = totals, hourly, ahead
        self._ledger = LedgerView(run_dir, process_name(os.getpid()))
        self._unreadable = False

    def stats(self) -> ev.SandboxStats:
        """Now. Reads what was added to the ledger since the last time."""
        try:
            self._ledger.refresh()
        except RecordingError as error:
            if not self._unreadable:
                log.warning("the sandbox ledger cannot be read: %s", error)
            self._unreadable = True
            return ev.SandboxStats(live=self._totals.sandboxes, left=list(self._totals.sandboxes_left))
        ledger, now = self._ledger, time.time()
        cost, hours = ledger.cost(now, self._hourly), ledger.hours(now)
        return ev.SandboxStats(
            live=ledger.live,
            left=list(dict.fromkeys([*ledger.left, *self._totals.sandboxes_left])),
            creating=ledger.creating,
            orphaned=ledger.orphaned,
            oldest=None if ledger.oldest is None else ledger.oldest + self._shift(),
            hours=round(hours, 4) if hours else None,
            cost=round(cost, 4) if cost is not None else None,
        )

    def _shift(self) -> float:
        """From the ledger's time to the run's; they differ only when the time of day was set."""
        ahead = self._ahead()
        return ahead if abs(ahead) > ONE_CLOCK else 0.0


async def report_totals(
    sandboxes: SandboxReport, captured: Callable[[], ev.CaptureStats], emit: Callable[[ev.Event], None]
) -> None:
    """Report captured tokens and sandboxes, once a second while they change. `captured`: the totals so far."""
    capture: ev.CaptureStats | None = None
    told = ev.SandboxStats()
    told_at = 0.0
    idle = 0
    while True:
        await asyncio.sleep(REPORT_SECONDS)
        now = captured()
        # One more report after the last change brings the shown rate down to zero.
        idle = 0 if capture != now else idle + 1
        if idle <= 1 and (capture is not None or now != ev.CaptureStats()):
            emit(msgspec.structs.replace(now))
        capture = now
        live = sandboxes.stats()
        due = time.monotonic() - told_at >= COSTS_EVERY
        if live != told and (due or not _same_sandboxes(live, told)):
            told, told_at = msgspec.structs.replace(live), time.monotonic()
            emit(live)


def _same_sandboxes(a: ev.SandboxStats, b: ev.SandboxStats) -> bool:
    """Whether they differ in age and cost at most."""
    return (a.live, a.creating, a.left, a.orphaned) == (b.live, b.creating, b.left, b.orphaned)
