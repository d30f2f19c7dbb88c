"""What a record needs of a log of events: a journal on disk has it, and so has a list of events in memory."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from typing import Protocol

import msgspec

from console.journal.events import Event, RunStarted, Snapshot, StepFinished
from console.journal.layout import Damage
from console.state.model import encode_state
from console.state.reduce import RunView, apply

SNAPSHOT_EVENTS = 2000


class EventLog(Protocol):
    """Events in order of `seq`, read-only. Reading methods raise RecordingError; times are Unix seconds."""

    @property
    def last_seq(self) -> int:
        """`seq` of the last event, 0 for none."""

    @property
    def first_ts(self) -> float | None:
        """Of the first event."""

    @property
    def last_ts(self) -> float | None:
        """Of the last event."""

    @property
    def damage(self) -> list[Damage]:
        """What could not be read, as far as it was tried."""

    def refresh(self) -> None:
        """Take in what was written since."""

    def events(self, after_seq: int = 0, until_seq: int | None = None) -> Iterator[Event]:
        """Events with `after_seq < seq <= until_seq`, in order."""

    def nearest_snapshot(self, seq: int | None = None, ts: float | None = None) -> Snapshot | None:
        """The last snapshot at or before an event number and time."""

    def seq_at(self, ts: float) -> int:
        """`seq` of the last event at or before `ts`, 0 when there is none."""

    def step_rows(self) -> list[Event]:
        """All `StepFinished` and `RunStarted` events, in order."""


class MemoryLog:
    """Events in memory. They are numbered here, dated as they come (never backwards), and get snapshots.

    Args:
        events: without numbers; their `ts` is kept unless the one before is later.
        damage: what could not be read when they were made.
    """

    def __init__(self, events: Iterable[Event], damage: Iterable[Damage] = ()) -> None:
        self.damage = list(damage)
        self._events: list[Event] = []
        view = RunView()
        since = 0
        for event in events:
            if since >= SNAPSHOT_EVENTS:
                state = msgspec.Raw(encode_state(view.state))
                self._add(view, Snapshot(ts=event.ts, state=state, steps_done=view.state.steps_done))
                since = 0
            self._add(view, event)
            since += 1
        self._times = [event.ts for event in self._events]

    def _add(self, view: RunView, event: Event) -> None:
        event.seq = len(self._events) + 1
        event.ts = max(event.ts, view.state.ts)
        self._events.append(event)
        apply(view, event)

    @property
    def last_seq(self) -> int:
        """`seq` of the last event, 0 for none."""
        return len(self._events)

    @property
    def first_ts(self) -> float | None:
        """Unix seconds of the first event."""
        return self._times[0] if self._times else None

    @property
    def last_ts(self) -> float | None:
        """Unix seconds of the last event."""
        return self._times[-1] if self._times else None

    def refresh(self) -> None:
        """Nothing is added any more."""

    def events(self, after_seq: int = 0, until_seq: int | None = None) -> Iterator[Event]:
        """Events with `after_seq < seq <= until_seq`, in order."""
        return iter(self._events[max(0, after_seq) : until_seq])

    def nearest_snapshot(self, seq: int | None = None, ts: float | None = None) -> Snapshot | None:
        """The last snapshot at or before an event number and time."""
        end = len(self._events) if seq is None else min(max(seq, 0), len(self._events))
        if ts is not None:
            end = min(end, bisect_right(self._times, ts))
        # They lie at fixed distances, by construction.
        at = end - end % (SNAPSHOT_EVENTS + 1)
        found = self._events[at - 1] if at > 0 else None
        return found if isinstance(found, Snapshot) else None

    def seq_at(self, ts: float) -> int:
        """`seq` of the last event at or before `ts` (Unix seconds), 0 when there is none."""
        return bisect_right(self._times, ts)

    def step_rows(self) -> list[Event]:
        """All `StepFinished` and `RunStarted` events, in order."""
        return [event for event in self._events if isinstance(event, StepFinished | RunStarted)]
