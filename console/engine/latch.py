"""The stop after the current step: who asked for it, and the budgets that ask by themselves."""

from __future__ import annotations

import time
from collections.abc import Callable

from console.engine.cause import STOPPED, Cause
from console.journal import events as ev
from console.training.trial_context import Totals

OPERATOR = "operator"
BUDGETS = {"token_budget": "token budget", "time_budget": "time budget"}
"""Tunable to the name under which it holds the latch."""


class StopLatch:
    """Holds as long as anybody who asked has not taken it back.

    Args:
        emit: appends an event.
    """

    def __init__(self, emit: Callable[[ev.Event], None]) -> None:
        self._emit = emit
        self._held: dict[str, tuple[str, str]] = {}
        self._left: Cause | None = None

    @property
    def held(self) -> bool:
        """Whether the run stops when the step is done."""
        return bool(self._held)

    @property
    def left(self) -> bool:
        """Whether the training loop has stopped because of it: nothing is taken back any more."""
        return self._left is not None

    def holds(self, holder: str) -> bool:
        """Whether this holder asks for the stop."""
        return holder in self._held

    def hold(self, holder: str, by: str, reason: str) -> None:
        """Ask for the stop. `by` goes into the journal, `reason` becomes the run's when it ends."""
        if holder not in self._held:
            self._emit(ev.StopRequested(when="after_step", by=by))
        self._held[holder] = (by, reason)

    def drop(self, holder: str, by: str) -> None:
        """Take a request back; the run goes on when nobody else asks."""
        if holder in self._held and not self.left:
            others = [name for name in self._held if name != holder]
            still = self._held[others[0]][0] if others else ""
            self._emit(ev.StopRequested(when="after_step", by=still) if others else ev.StopRequested(when="", by=by))
            del self._held[holder]

    def asked(self) -> bool:
        """Whether to stop here; asked by the training thread between two steps, and final."""
        held = list(self._held.values())
        if held:
            self._left = Cause(status="stopped", exit_code=STOPPED.exit_code, reason=held[0][1])
        return bool(held)

    @property
    def cause(self) -> Cause:
        """The cause of an end by the latch."""
        return self._left or STOPPED


class Budgets:
    """Bounds of the run. Each asks for the stop when it is used up, and takes that back when it is raised.

    Attributes:
        limits: tokens and seconds by tunable, None for no bound.

    Args:
        tokens, seconds: the bounds at the start; totals: captured so far, over all engines of the run.
        clock: seconds, monotonic; the engine's life begins now.
    """

    def __init__(
        self,
        latch: StopLatch,
        totals: Totals,
        tokens: float | None,
        seconds: float | None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._latch, self._totals, self._clock, self._began = latch, totals, clock, clock()
        self.limits: dict[str, float | None] = {"token_budget": tokens, "time_budget": seconds}

    def used(self, name: str) -> float:
        """Tokens or seconds so far."""
        if name == "token_budget":
            return self._totals.prompt_tokens + self._totals.sampled_tokens
        return self._clock() - self._began

    def holds(self, name: str) -> bool:
        """Whether this budget asks for the stop."""
        return self._latch.holds(BUDGETS[name])

    def change(self, name: str, limit: float | None, by: str) -> None:
        """Another bound; it counts at once."""
        self.limits[name] = limit
        if limit is None or self.used(name) < limit:
            self._latch.drop(BUDGETS[name], by)
        self.check()

    def check(self) -> None:
        """Ask for the stop where a budget is used up."""
        for name, limit in self.limits.items():
            if limit is not None and self.used(name) >= limit:
                said = f"{BUDGETS[name]} of {amount(name, limit)} reached"
                self._latch.hold(BUDGETS[name], BUDGETS[name], said)


def amount(name: str, value: float | None) -> str:
    """A tunable's value as people read it."""
    if value is None:
        return "none"
    number = f"{value:,.0f}" if float(value).is_integer() else f"{value:,.6g}"
    return f"{number} s" if name in ("hold_timeout", "time_budget") else number
