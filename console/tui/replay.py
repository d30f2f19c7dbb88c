"""The replay source: a run directory, played through the same reducer by a clock that the operator turns."""

from __future__ import annotations

import asyncio
import math
import time
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Literal

from console.control.commands import Command, CommandResult
from console.control.messages import Ask, Content, Viewer
from console.errors import ControlError, RecordingError
from console.journal import events as ev
from console.records.run_dir import RunRecord
from console.state.reduce import RunView, apply
from console.tui.source import EventListener, Link

if TYPE_CHECKING:
    from console.records.content import TrialContent

SLOWEST, FASTEST, MAX = 0.25, 64.0, 0.0
"""Speeds; `MAX` is as fast as it goes."""
WATCHED_SECONDS = 60.0
"""The speed chosen by default plays the whole recording in about so long."""
IDLE_SECONDS = 1.0
"""Wall time after which a gap between events is skipped."""
BUDGET_SECONDS = 0.05
"""Wall time that one poll may spend on applying events."""
_REFRESH_SECONDS = 1.0


class ReplaySource:
    """A `Source` over a recording. Commands are refused."""

    mode: Literal["live", "replay"] = "replay"

    def __init__(
        self,
        record: RunRecord,
        speed: float | None = None,
        at_end: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Opens at the first event, playing, or at the end, paused. Raises `RecordingError`."""
        self.record = record
        self.listener: EventListener | None = None
        self.version = 0
        self.view = RunView()
        self._clock = clock
        self._line = record.timeline()
        self._pending: ev.Event | None = None
        self._events: Iterator[ev.Event] = iter(())
        self._last_poll = clock()
        self._last_refresh = clock()
        self.trouble = ""
        self.presence: tuple[Viewer, ...] = ()
        self.acts = False
        self._content: TrialContent | None = None
        self.speed = self._default_speed() if speed is None else speed
        self.playing = not at_end
        if at_end:
            self.seek(self._line.last_seq)
        else:
            self.seek(0)
            self._apply_next()
        self._time = self.view.state.ts

    async def start(self) -> None:
        """The clock begins now."""
        self._last_poll = self._clock()

    def link(self) -> Link:
        """Where the recording stands."""
        first, last = self._line.first_ts or 0.0, self._line.last_ts or 0.0
        fraction = 1.0 if self.at_end or last <= first else (self._time - first) / (last - first)
        return Link(
            "replay", playing=self.playing, speed=self.speed, fraction=max(0.0, min(1.0, fraction)), detail=self.trouble
        )

    def now(self) -> float:
        """The time of the recording, Unix seconds."""
        return self._time

    async def command(self, command: Command) -> CommandResult:
        """Refused."""
        raise ControlError("this is a recording: there is nothing to command")

    async def ask(self, ask: Ask) -> Content:
        """From the run directory, read on a thread."""
        from console.records.content import TrialContent

        if self._content is None:
            self._content = TrialContent(self.record.path)
        return await asyncio.to_thread(self._content.answer, ask)

    async def take_watch(self, back: bool = False) -> str:
        """Refused."""
        raise ControlError("this is a recording: there is no watch to take")

    async def close(self) -> None:
        """Nothing is held open."""

    @property
    def at_end(self) -> bool:
        """Whether every event was applied."""
        return self._pending is None

    # --- the clock ---

    def poll(self) -> None:
        """Apply what is due. Trouble with the files pauses and is kept in `trouble`."""
        now = self._clock()
        passed, self._last_poll = now - self._last_poll, now
        try:
            if self.at_end:
                self._look_for_more(now)
            if self.playing and not self.at_end:
                self._advance(passed, now + BUDGET_SECONDS)
        except RecordingError as error:
            self.playing, self.trouble = False, str(error)
            self.version += 1

    def _advance(self, passed: float, deadline: float) -> None:
        limit = math.inf if self.speed <= 0 else self._time + passed * self.speed
        if self._pending is not None and self.speed > 0:
            # A gap longer than the idle limit is cut to what is left of that limit.
            limit = max(limit, self._pending.ts - IDLE_SECONDS * self.speed)
        count = 0
        while self._pending is not None and self._pending.ts <= limit:
            self._apply_next()
            count += 1
            if count % 64 == 0 and self._clock() > deadline:
                break
        else:
            if limit != math.inf:
                self._time = max(self._time, limit) if self._pending is not None else self.view.state.ts
                self.version += 1
                return
        self._time = self.view.state.ts
        self.version += 1

    def _look_for_more(self, now: float) -> None:
        """A run that is still going on writes on: take in what is new, at most once a second."""
        if self.view.state.status in ("finished", "stopped", "failed") or now - self._last_refresh < _REFRESH_SECONDS:
            return
        self._last_refresh = now
        self.record.refresh()
        if self.record.journal.last_seq > self._line.last_seq:
            self._line = self.record.timeline()
            self._open_after(self.view.state.seq)

    def _apply_next(self) -> None:
        event = self._pending
        if event is None:
            return
        apply(self.view, event)
        self._pending = next(self._events, None)
        if self.listener is not None:
            self.listener(event)

    def _open_after(self, seq: int) -> None:
        self._events = self.record.journal.events(seq)
        self._pending = next(self._events, None)

    # --- what the operator turns ---

    def toggle(self) -> None:
        """Play or pause; at the end, play from the start."""
        self._last_poll = self._clock()
        if not self.playing and self.at_end:
            self.seek(0)
            self._apply_next()
            self._time = self.view.state.ts
        self.playing = not self.playing
        self.version += 1

    def change_speed(self, faster: bool) -> None:
        """Double or halve it, from 0.25x to 64x and then as fast as it goes."""
        if faster:
            self.speed = MAX if self.speed <= 0 or self.speed >= FASTEST else self.speed * 2
        else:
            self.speed = FASTEST if self.speed <= 0 else max(SLOWEST, self.speed / 2)
        self.version += 1

    def seek(self, seq: int) -> None:
        """To right after event `seq`. Raises `RecordingError`."""
        self.view = self.record.view_at(seq=seq) if seq > 0 else RunView()
        self._open_after(max(0, seq))
        self._time = self.view.state.ts
        self.version += 1
        if self.listener is not None:
            self.listener(None)

    def play_to(self, seq: int) -> None:
        """Forward to event `seq`, through every event on the way."""
        while self._pending is not None and self._pending.seq <= seq:
            self._apply_next()
        self._time = self.view.state.ts
        self.version += 1

    def step_event(self, forward: bool) -> None:
        """One event on or back, paused. Snapshots are not seen."""
        self.playing = False
        if forward:
            while isinstance(self._pending, ev.Snapshot):
                self._apply_next()
            self._apply_next()
            self._time = self.view.state.ts
            self.version += 1
            return
        seq = self.view.state.seq - 1
        while seq > 1 and any(isinstance(e, ev.Snapshot) for e in self.record.journal.events(seq - 1, seq)):
            seq -= 1
        self.seek(max(1, seq))

    def step_training(self, forward: bool) -> None:
        """To the end of the next training step, or of the one before. Past the last one: to the end, or the start."""
        marks = [mark.seq for mark in self._line.steps]
        here = self.view.state.seq
        if forward:
            at = bisect_right(marks, here)
            self.seek(marks[at] if at < len(marks) else self._line.last_seq)
        else:
            at = bisect_left(marks, here) - 1
            self.seek(marks[at] if at >= 0 else 1)

    def jump(self, to_end: bool) -> None:
        """To the start or to the end."""
        self.seek(self._line.last_seq if to_end else 1)

    def _default_speed(self) -> float:
        first, last = self._line.first_ts, self._line.last_ts
        length = (last - first) if first is not None and last is not None else 0.0
        speed = 1.0
        while speed < FASTEST and length / speed > WATCHED_SECONDS:
            speed *= 2
        return speed


def parse_speed(text: str) -> float:
    """`max`, or a number from 0.25 to 64, with or without `x`. Raises `ValueError`."""
    if text.strip().lower() == "max":
        return MAX
    value = float(text.strip().lower().removesuffix("x"))
    if not SLOWEST <= value <= FASTEST:
        raise ValueError(text)
    return value
