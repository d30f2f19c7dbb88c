"""The terminal's bell: once when something critical comes up that nobody has seen, and not in a burst."""

from __future__ import annotations

from typing import TYPE_CHECKING

from console.journal import events as ev
from console.state.sanitize import sanitize

if TYPE_CHECKING:
    from console.tui.desk import Desk

QUIET_SECONDS = 10.0
"""Between two rings at least."""


class Bell:
    """Listens to a live run's alarms. Those that are over, acknowledged or shelved by then do not ring."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._new: set[str] = set()
        self._rung: float | None = None

    def heard(self, event: ev.Event) -> None:
        """Take note of an alarm that opened."""
        if isinstance(event, ev.AlarmOpened) and event.level == "critical" and self._desk.source.mode == "live":
            self._new.add(event.key)

    def tick(self) -> None:
        """Ring if it is time to."""
        if not self._new:
            return
        desk = self._desk
        now = desk.clock()
        if self._rung is not None and now - self._rung < QUIET_SECONDS:
            return
        state = desk.state
        found = [state.alarms[key] for key in self._new if key in state.alarms]
        asking = [alarm for alarm in found if alarm.open and alarm.asks(desk.source.now())]
        self._new.clear()
        if asking:
            self._rung = now
            name = sanitize(state.name or state.run_id, limit=40)
            more = f" and {len(asking) - 1} more" if len(asking) > 1 else ""
            desk.shell.ring(f"{name}: {sanitize(min(asking, key=lambda a: a.since).text, limit=160)}{more}")
