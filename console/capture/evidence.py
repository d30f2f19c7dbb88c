"""What happened to one trial's model calls, as the rules that classify trials want to know it."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable

from console.capture.base import CallReport
from console.capture.figures import CaptureFigures
from console.capture.refusals import RefusalKind
from console.outcomes.classes import CallEvidence

FAILURE_TEXT = 300

_AGENTS_MISTAKES = frozenset({"request", "not_found", "method", "too_large", "media"})
_NO_FAILURES = frozenset({"auth", "early", "sealed"})
"""Refusals that say nothing about the trial: it has not begun, or it is over, or the caller is not known to be it."""


class Evidence:
    """Counts a trial's answered and failed calls. The last call's end decides what the trial's own end means.

    Args:
        figures: totals of the gateway, which are counted along; on_call: told of each call that ended.
        outage: seconds since a monotonic time for which the gateway did not answer its health checks. The SDK repeats
            a call for as long as the gateway is away, so this is the only trace of it.
    """

    def __init__(
        self, figures: CaptureFigures, on_call: Callable[[CallReport], None], outage: Callable[[float], float]
    ) -> None:
        self._figures, self._on_call, self._outage = figures, on_call, outage
        self._calls = self._failed = self._sampled = self._lost = self._no_logprobs = 0
        self._last_failure: str | None = None
        self._last_failure_text = ""
        self._backend_seconds = 0.0
        self._counted_until = 0.0
        self._overflowed = self._truncated = False
        self._refused: Counter[str] = Counter()

    def answered(self, stop_reason: str, prompt_tokens: int, sampled_tokens: int, started: float) -> None:
        """A call was answered. `started`: monotonic. An answer without a single token is no sample."""
        seconds = time.monotonic() - started
        self._calls += sampled_tokens > 0
        self._sampled += sampled_tokens
        self._figures.calls += sampled_tokens > 0
        self._figures.prompt_tokens += prompt_tokens
        self._figures.sampled_tokens += sampled_tokens
        self._trouble(min(seconds, self._outage(started)))
        self._last_failure, self._last_failure_text = None, ""
        self._truncated = stop_reason == "length"
        report = CallReport(
            status=stop_reason, ok=True, prompt_tokens=prompt_tokens, sampled_tokens=sampled_tokens, seconds=seconds
        )
        self._on_call(report)

    def failed(self, kind: str, text: str, prompt_tokens: int, started: float) -> None:
        """A call ended without an answer. `kind`: as `CallReport.status` and `CallEvidence.last_failure` have it."""
        seconds = time.monotonic() - started
        self._failed += 1
        if kind != "client":  # nobody was there to be told
            self._refused[kind] += 1
        self._figures.failed += 1
        self._last_failure, self._last_failure_text = kind, text[:FAILURE_TEXT]
        self._overflowed = self._overflowed or kind == "overflow"
        if kind == "no_logprobs":
            self._no_logprobs += 1
            self._figures.no_logprobs += 1
        self._trouble(seconds if kind == "backend" else min(seconds, self._outage(started)))
        self._on_call(CallReport(status=kind, ok=False, prompt_tokens=prompt_tokens, seconds=seconds))

    def _trouble(self, seconds: float) -> None:
        """So many seconds until now went to the backend's trouble; those of calls side by side count once."""
        now = time.monotonic()
        self._backend_seconds += min(seconds, now - self._counted_until)
        if seconds > 0:
            self._counted_until = now

    def lost(self) -> None:
        """A sample that the gateway gave cannot be kept: the trial is not whole any more."""
        self._lost += 1
        self._figures.lost += 1

    def refused(self) -> dict[str, int]:
        """Requests that got an error so far, by kind of failure."""
        return dict(self._refused)

    def taken(self) -> CallEvidence:
        """What happened so far."""
        return CallEvidence(
            calls=self._calls,
            failed=self._failed,
            sampled_tokens=self._sampled,
            lost=self._lost,
            no_logprobs=self._no_logprobs,
            last_failure=self._last_failure,
            last_failure_text=self._last_failure_text,
            backend_seconds=self._backend_seconds,
            overflowed=self._overflowed,
            truncated=self._truncated,
        )


def failure_of(kind: RefusalKind) -> str | None:
    """What a refusal counts as in the trial's evidence; None when it says nothing about the trial."""
    if kind in _NO_FAILURES:
        return None
    if kind in _AGENTS_MISTAKES:
        return "request"
    return "client" if kind == "cancelled" else kind
