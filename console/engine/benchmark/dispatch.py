"""How many trials may be at work: the limit in force, a pause, and the stop that lets those at work end."""

from __future__ import annotations

from collections.abc import Callable

from console.journal import events as ev
from console.trials.job_plugin_protocol import Gate


class Dispatch:
    """Each change is an event first, and then told to Harbor.

    Attributes:
        limit: trials at once; most: what Harbor itself allows; paused: none begins until it is resumed; draining: none
            begins any more.

    Args:
        emit: appends an event; tell: sends to Harbor.
    """

    def __init__(self, most: int, emit: Callable[[ev.Event], None], tell: Callable[[Gate], None]) -> None:
        self.limit = self.most = most
        self.paused = self.draining = False
        self._emit, self._tell = emit, tell

    def planned(self, most: int) -> None:
        """Harbor said how many it allows; a limit that was set meanwhile stays, if it fits."""
        self.limit = most if self.limit == self.most else min(self.limit, most)
        self.most = most

    def change(self, limit: int, by: str, why: str) -> None:
        """Another limit."""
        self._emit(ev.BenchLimited(limit=limit, by=by, why=why))
        self.limit = limit
        self.tell()

    def pause(self, paused: bool, by: str) -> None:
        """Begin no trial any more, or begin those that wait."""
        self._emit(ev.DispatchPaused(paused=paused, by=by))
        self.paused = paused
        self.tell()

    def drain(self, on: bool, by: str) -> None:
        """Begin no trial any more, further tries of those at work excepted; or take that back."""
        self._emit(ev.StopRequested(when="after_step" if on else "", by=by))
        self.draining = on
        self.tell()

    @property
    def open(self) -> int:
        """Trials that may be at work now."""
        return 0 if self.paused or self.draining else self.limit

    def tell(self) -> None:
        """Say it to Harbor."""
        self._tell(Gate(limit=self.open, further=self.draining))
