"""The captured totals that an engine reports, and what of them it has from the engines before it."""

from __future__ import annotations

from console.capture.figures import CaptureFigures
from console.engine.plumbing import capture_stats
from console.journal import events as ev
from console.state.model import CaptureState
from console.training.trial_context import Totals

TOTALS = Totals(
    calls=5, failed=1, prompt_tokens=50, sampled_tokens=20, trained_tokens=10, excluded={"aux": 2}, sandboxes=3
)  # fmt: skip
BEFORE = CaptureState(
    calls=5, failed=1, prompt_tokens=50, sampled_tokens=20, lost=7, no_logprobs=8, inflight=9, trained_tokens=10,
    bridged=4, unbridged={"first": 1}, refusals={"late": 2}, excluded={"aux": 2}, temperature_low=0.5,
    temperature_high=1.0,
)  # fmt: skip


def test_an_engine_begins_with_the_totals_and_without_the_losses_of_those_before_it() -> None:
    assert capture_stats(TOTALS, BEFORE) == ev.CaptureStats(
        calls=5, failed=1, prompt_tokens=50, sampled_tokens=20, trained_tokens=10, bridged=4, unbridged={"first": 1},
        refusals={"late": 2}, excluded={"aux": 2}, temperature_low=0.5, temperature_high=1.0,
    )  # fmt: skip
    assert capture_stats(Totals(), CaptureState(lost=1)) == ev.CaptureStats(), "there is nothing to report"


def test_what_its_gateway_counts_is_added() -> None:
    figures = CaptureFigures(
        calls=99, bridged=1, unbridged={"first": 1, "edited": 1}, refusals={"body": 1}, lost=1, no_logprobs=2,
        inflight=3, temperature_low=0.7, temperature_high=1.2,
    )  # fmt: skip
    stats = capture_stats(TOTALS, BEFORE, figures)
    assert (stats.calls, stats.bridged, stats.lost, stats.no_logprobs, stats.inflight) == (5, 5, 1, 2, 3)
    assert (stats.unbridged, stats.refusals) == ({"first": 2, "edited": 1}, {"late": 2, "body": 1})
    assert (stats.temperature_low, stats.temperature_high) == (0.5, 1.2)
