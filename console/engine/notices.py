"""What is worth a message to people who do not look at the run: pure decisions over the journal's events."""

from __future__ import annotations

import msgspec

from console.journal import events as ev
from console.state.findings import CRITICAL, WARNING
from console.state.model import RunState
from console.state.sanitize import sanitize

VERSION = 1
_RANK = {WARNING: 1, CRITICAL: 2}
_WITH_EVIDENCE = frozenset({4, 6})
"""Exit codes whose reason ends with evidence: text that a policy or its sandbox wrote."""


class Notice(msgspec.Struct, kw_only=True, frozen=True):
    """One message. It holds no text of a model, tool or sandbox, and no control characters.

    Attributes:
        event: alarm.opened, alarm.closed, run.paused, run.resumed or run.ended.
        key: of the alarm, empty for the others; level: info, warning or critical.
        run, run_id, step: which run, and where it is; host: filled in when it is sent; ts: Unix seconds.
    """

    v: int = VERSION
    event: str
    key: str = ""
    level: str = "info"
    text: str
    consequence: str = ""
    remedy: str = ""
    run: str = ""
    run_id: str = ""
    host: str = ""
    step: int | None = None
    ts: float = 0.0


class Announcer:
    """Decides which events become notices.

    An alarm is told when it reaches `level` and nobody has acknowledged it, once in `every` seconds however often it
    opens; a rise in its level is told at once. One that opened within that time, or on the shelf, and still holds after
    it is told then. Its end is told if its opening was.
    """

    def __init__(self, level: str, every: float) -> None:
        self._least, self._every = _RANK.get(level, 2), every
        self._told_at: dict[str, float] = {}
        self._told: dict[str, ev.AlarmOpened] = {}
        """Open alarms whose opening was told."""
        self._waiting: dict[str, ev.AlarmOpened] = {}

    def see(self, event: ev.Event, state: RunState) -> list[Notice]:
        """The notices that an event makes; `state` is the state after it."""
        match event:
            case ev.AlarmOpened():
                return self._opened(event, state)
            case ev.AlarmClosed():
                self._waiting.pop(event.key, None)
                told = self._told.pop(event.key, None)
                return [_alarm("alarm.closed", told, state, event.ts)] if told is not None else []
            case ev.DispatchPaused():
                by = sanitize(event.by, 80) or "the operator"
                text = f"dispatch paused by {by}: no new trial begins" if event.paused else f"dispatch resumed by {by}"
                return [_run("run.paused" if event.paused else "run.resumed", "info", text, state, event.ts)]
            case ev.RunFinished():
                level = "info" if event.status != "failed" and event.exit_code in (0, 3) else CRITICAL
                text = f"run {sanitize(event.status, 20)}, exit {event.exit_code}"
                if reason := _reason(event):
                    text += f": {reason}"
                return [_run("run.ended", level, text, state, event.ts)]
        return []

    def due(self, state: RunState, now: float) -> list[Notice]:
        """Notices of alarms that opened too soon after they were told, or on the shelf, and hold still."""
        waiting, self._waiting = self._waiting, {}
        return [notice for event in waiting.values() for notice in self._opened(event, state, now)]

    def _opened(self, event: ev.AlarmOpened, state: RunState, now: float | None = None) -> list[Notice]:
        now = event.ts if now is None else now
        alarm, told = state.alarms.get(event.key), self._told.get(event.key)
        self._waiting.pop(event.key, None)
        if _RANK.get(event.level, 0) < self._least or alarm is None:
            return []
        rises = told is not None and _RANK.get(event.level, 0) > _RANK.get(told.level, 0)
        if told is not None and not rises:
            return []
        too_soon = not rises and now - self._told_at.get(event.key, float("-inf")) < self._every
        if too_soon or not alarm.asks(now):
            self._waiting[event.key] = event
            return []
        self._told[event.key] = event
        self._told_at = {key: at for key, at in self._told_at.items() if now - at < self._every} | {event.key: now}
        return [_alarm("alarm.opened", event, state, now)]


def _alarm(event: str, alarm: ev.AlarmOpened, state: RunState, ts: float) -> Notice:
    over = event == "alarm.closed"
    return Notice(
        event=event,
        key=sanitize(alarm.key, 200),
        level=alarm.level,
        text=("over: " if over else "") + sanitize(alarm.text, 400),
        consequence="" if over else sanitize(alarm.consequence, 400),
        remedy="" if over else sanitize(alarm.remedy, 400),
        run=sanitize(state.name, 200),
        run_id=state.run_id,
        step=state.step,
        ts=ts,
    )


def _run(event: str, level: str, text: str, state: RunState, ts: float) -> Notice:
    name = sanitize(state.name, 200)
    return Notice(event=event, level=level, text=text, run=name, run_id=state.run_id, step=state.step, ts=ts)


def _reason(event: ev.RunFinished) -> str:
    """Why the run ended, without the evidence that follows the verdict: `g1/t2 (task): what: evidence`."""
    parts = event.reason.split(": ")
    return sanitize(": ".join(parts[:2]) if event.exit_code in _WITH_EVIDENCE else event.reason, 400)
