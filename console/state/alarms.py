"""The rules of the alarms: pure functions over the view, so that headless, console and replay agree.

An alarm has a key; at most one a key is open. A rule says what is wrong now, not what was: the engine opens what it
says and closes what it no longer says.
"""

from __future__ import annotations

from collections.abc import Iterator

from console.state.lines import trial_name
from console.state.model import AlarmState
from console.state.reduce import RunView

GATEWAY_SECONDS = 5.0
STALL_SECONDS = 600.0
NO_SIGNAL_STEPS = 3


def alarms(view: RunView, now: float) -> dict[str, AlarmState]:
    """Every alarm that holds at `now` (Unix seconds), by key."""
    if view.state.status not in ("live", "stopping"):
        return {}
    return {alarm.key: alarm for rule in _RULES for alarm in rule(view, now)}


def _gateway(view: RunView, now: float) -> Iterator[AlarmState]:
    g = view.state.gateway
    if g.reachable is False and now - g.since >= GATEWAY_SECONDS:
        yield AlarmState(
            key="gateway.unreachable",
            level="critical",
            text=f"gateway unreachable: {g.detail or 'no answer'}",
            remedy="check that the gateway runs; model calls wait for it, then fail as infrastructure",
        )


def _held(view: RunView, now: float) -> Iterator[AlarmState]:
    for group in view.state.groups.values():
        held = [trial for trial in group.trials if trial.phase == "held"]
        if held:
            first = min(held, key=lambda trial: trial.hold_deadline or 0.0)
            why = " ".join(x for x in (first.outcome or "", first.cause, first.exception or "") if x)
            more = f" and {len(held) - 1} more trials" if len(held) > 1 else ""
            retry = "r retries, " if any(trial.retryable for trial in held) else ""
            yield AlarmState(
                key=f"held.g{group.group + 1}",
                level="critical",
                text=f"{trial_name(group.group, first.trial)} {why}{more}: held, the run stops at the deadline",
                remedy=f"{retry}x drops the group",
            )


def _capture(view: RunView, now: float) -> Iterator[AlarmState]:
    c = view.state.capture
    if c.lost:
        yield AlarmState(
            key="capture.lost",
            level="critical",
            text=f"{c.lost} captured calls lost",
            remedy="check the disk of the run directory",
        )
    if c.no_logprobs:
        yield AlarmState(
            key="capture.no_logprobs",
            level="critical",
            text=f"{c.no_logprobs} samples without usable log-probs",
            remedy="the gateway must return log-probs with every sample",
        )


def _sandboxes(view: RunView, now: float) -> Iterator[AlarmState]:
    left = view.state.sandboxes_left
    if left:
        yield AlarmState(
            key="sandbox.left",
            level="warning",
            text=f"{len(left)} sandboxes could not be removed: {', '.join(left[:3])}",
            remedy="remove them by hand",
        )


def _stalled(view: RunView, now: float) -> Iterator[AlarmState]:
    for group in view.state.groups.values():
        for trial in group.trials:
            idle = now - trial.last_event
            if trial.phase in ("environment", "setup", "verify", "teardown") and idle > STALL_SECONDS:
                name = trial_name(group.group, trial.trial)
                yield AlarmState(
                    key=f"stalled.{name}",
                    level="warning",
                    text=f"{name} has been in {trial.phase} for {idle / 60:.0f} min",
                    remedy="cancel the trial if its sandbox is dead",
                )


def _no_signal(view: RunView, now: float) -> Iterator[AlarmState]:
    rows = view.history.rows[-NO_SIGNAL_STEPS:]
    if len(rows) == NO_SIGNAL_STEPS and all(r.groups_kept and r.groups_zero_variance == r.groups_kept for r in rows):
        yield AlarmState(
            key="learning.no_signal",
            level="warning",
            text=f"no group had a reward spread in {NO_SIGNAL_STEPS} steps: nothing is learnt",
            remedy="tasks may be too easy, too hard, or their verifiers broken",
        )


def _nonfinite(view: RunView, now: float) -> Iterator[AlarmState]:
    if view.history.rows and view.history.rows[-1].nonfinite:
        row = view.history.rows[-1]
        yield AlarmState(
            key="learning.nonfinite",
            level="critical",
            text=f"step {row.step}: not finite: {', '.join(row.nonfinite)}",
            remedy="the weights may be broken: stop, and resume from an earlier checkpoint",
        )


_RULES = (_gateway, _held, _capture, _sandboxes, _stalled, _no_signal, _nonfinite)
