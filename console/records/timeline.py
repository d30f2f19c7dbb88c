"""What a replay can seek in, and the marks along it: outcomes, alarms, holes, and times without an engine.

Steps and engine starts come from the rows of the side file, at once. The marks need every event, so that they are
gathered apart: in pieces, on a thread of the caller's.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

import msgspec

from console.journal import events as ev

BUCKETS = 1024
"""Slices of time in which outcomes are counted; up to twice as many while a run goes on."""
ALARMS_KEPT = 4096
HOLES_KEPT = 256
ROUNDING = 1e-6
"""Of a slice: an event at its very end is in it."""
Tally = dict[str, int]
"""Kind of end to number of tries. Kinds are outcome classes; `completed` is pass, partial or zero by its reward."""


class StepMark(msgspec.Struct, frozen=True, kw_only=True):
    """A finished step: event number and Unix seconds of its end; `started` None when unknown; its tries by class."""

    step: int
    seq: int
    ended: float
    started: float | None
    outcomes: Tally = {}


class AlarmMark(msgspec.Struct, frozen=True, kw_only=True):
    """An alarm that opened, or rose to critical; `closed`: when it was over, None while it is open."""

    seq: int
    ts: float
    level: str
    key: str
    text: str = ""
    closed: float | None = None


class Gap(msgspec.Struct, frozen=True, kw_only=True):
    """A stretch of time. Of a hole in the journal also the event numbers that are missing (but for single rows)."""

    start: float
    end: float
    first_seq: int = 0
    last_seq: int = 0


class Marks(msgspec.Struct, frozen=True, kw_only=True):
    """What was gathered so far.

    Attributes:
        seq: the last event that was looked at; start, width: of the first slice, Unix seconds, and of each, seconds.
        mix: tries that ended, by slice; alarms, holes: in order of time.
    """

    seq: int = 0
    start: float = 0.0
    width: float = 1.0
    mix: tuple[Tally, ...] = ()
    alarms: tuple[AlarmMark, ...] = ()
    holes: tuple[Gap, ...] = ()

    def between(self, start: float, end: float) -> Tally:
        """Tries that ended after `start`, up to `end`, in whole slices: each slice is in one such stretch."""
        first = max(0, self._slice(start))
        found: Tally = {}
        for tally in self.mix[first : max(first, self._slice(end))]:
            for kind, count in tally.items():
                found[kind] = found.get(kind, 0) + count
        return found

    def _slice(self, ts: float) -> int:
        return round((ts - self.start) / self.width)


class Timeline(msgspec.Struct, frozen=True, kw_only=True):
    """What a replay can seek in. Times are Unix seconds, None for an empty log; steps that were undone are out.

    `down`: times without an engine, from the last event of one to the start of the next.
    """

    first_ts: float | None
    last_ts: float | None
    last_seq: int
    steps: list[StepMark]
    down: list[Gap] = []
    marks: Marks | None = None


class MarkScan:
    """Gathers marks from events that are fed in order.

    Args:
        first_ts, last_ts: Unix seconds that the slices shall cover; later ones make them wider.
    """

    def __init__(self, first_ts: float, last_ts: float) -> None:
        self.seq = 0
        self._start = first_ts
        self._width = max(1e-3, (last_ts - first_ts) / (BUCKETS - 1))
        self._mix: list[Tally] = []
        self._alarms: list[AlarmMark] = []
        self._open: dict[str, int] = {}
        self._holes: list[Gap] = []
        self._ts = first_ts
        self._tries = 0
        self._alone = False  # since the last hole there were rows of the side file only

    def feed(self, events: Iterable[ev.Event]) -> None:
        """Take more events."""
        for event in events:
            if event.seq > self.seq + 1:
                self._hole(event.seq - 1, event.ts)
            self._alone = self._alone and isinstance(event, ev.StepFinished | ev.RunStarted)
            self.seq, self._ts = event.seq, event.ts
            match event:
                case ev.TrialFinished():
                    self._tries += 1
                    self._count(event.ts, {kind_of_end(event.outcome, event.reward): 1})
                case ev.StepFinished():
                    if not self._tries:  # a log without trials: the step's own sums
                        self._count(event.ts, event.outcomes)
                    self._tries = 0
                case ev.AlarmOpened():
                    self._opened(event)
                case ev.AlarmClosed():
                    self._closed(event.key, event.ts)
                case ev.RunStarted() | ev.RunFinished():
                    for key in list(self._open):
                        self._closed(key, event.ts)

    def end(self, last_seq: int, last_ts: float) -> None:
        """Nothing follows up to `last_seq`: what lacks there is a hole too."""
        if last_seq > self.seq:
            self._hole(last_seq, last_ts)
            self.seq = last_seq

    def _hole(self, last_seq: int, end: float) -> None:
        """Note a hole up to `last_seq`. Rows that the side file saved in the midst of one do not make it two."""
        if self._holes and self._alone:
            self._holes[-1] = msgspec.structs.replace(self._holes[-1], end=end, last_seq=last_seq)
        elif len(self._holes) < HOLES_KEPT:
            self._holes.append(Gap(start=self._ts, end=end, first_seq=self.seq + 1, last_seq=last_seq))
        self._alone = True

    def marks(self) -> Marks:
        """What was gathered so far."""
        return Marks(
            seq=self.seq, start=self._start, width=self._width, mix=tuple(map(dict, self._mix)),
            alarms=tuple(self._alarms), holes=tuple(self._holes),
        )  # fmt: skip

    def _count(self, ts: float, tally: Tally) -> None:
        # A slice has its end, not its start: what ends with the recording is in the last one before it.
        while (at := max(0, math.ceil((ts - self._start) / self._width - ROUNDING) - 1)) >= 2 * BUCKETS:
            self._widen()
        while len(self._mix) <= at:
            self._mix.append({})
        _add(self._mix[at], tally)

    def _widen(self) -> None:
        merged: list[Tally] = []
        for i in range(0, len(self._mix), 2):
            _add(self._mix[i], self._mix[i + 1] if i + 1 < len(self._mix) else {})
            merged.append(self._mix[i])
        self._mix, self._width = merged, self._width * 2

    def _opened(self, event: ev.AlarmOpened) -> None:
        at = self._open.get(event.key)
        if at is not None and (event.level != "critical" or self._alarms[at].level == "critical"):
            return  # only its text changed
        if at is not None:
            self._closed(event.key, event.ts)
        if len(self._alarms) < ALARMS_KEPT:
            self._open[event.key] = len(self._alarms)
            self._alarms.append(
                AlarmMark(seq=event.seq, ts=event.ts, level=event.level, key=event.key, text=event.text[:400])
            )

    def _closed(self, key: str, ts: float) -> None:
        at = self._open.pop(key, None)
        if at is not None:
            self._alarms[at] = msgspec.structs.replace(self._alarms[at], closed=ts)


def kind_of_end(outcome: str, reward: float | None) -> str:
    """The kind by which a try counts in a `Tally`."""
    if outcome != "completed":
        return outcome
    if reward is None or reward <= 0:
        return "zero"
    return "pass" if reward >= 1 else "partial"


def _add(target: Tally, tally: Tally) -> None:
    for kind, count in tally.items():
        target[kind] = target.get(kind, 0) + count
