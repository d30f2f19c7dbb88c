"""The replay source: a run directory, played through the same reducer by a clock that the operator turns."""

from __future__ import annotations

import asyncio
import math
import time
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator
from itertools import takewhile
from typing import TYPE_CHECKING, Literal

import msgspec

from console.control.commands import Command, CommandResult
from console.control.messages import Ask, Content, Viewer
from console.errors import ControlError, RecordingError, UsageError
from console.journal import events as ev
from console.records.marking import MarkReader, missing
from console.records.run_dir import RunRecord
from console.records.timeline import AlarmMark, Timeline
from console.state.reduce import RunView, apply
from console.state.sanitize import sanitize
from console.tui.goto import parse_goto
from console.tui.source import EventListener, Link, LiveAddress

if TYPE_CHECKING:
    from console.records.content import TrialContent
    from console.tui.rewind import FetchedJournal

SLOWEST, FASTEST, MAX = 0.25, 64.0, 0.0
"""Speeds; `MAX` is as fast as it goes."""
WATCHED_SECONDS = 60.0
"""The speed chosen by default plays the whole recording in about so long."""
IDLE_SECONDS = 1.0
"""Wall time after which a gap between events is skipped."""
BUDGET_SECONDS = 0.05
"""Wall time that one poll may spend on applying events; twice that at `MAX`."""
WARM_UP_EVENTS = 1024
"""Events before the goal of a seek that are told to the listener, so that it knows what happened just before."""
_REFRESH_SECONDS = 1.0
_OVER = ("finished", "stopped", "failed")


class ReplaySource:
    """A `Source` over a recording. Commands are refused.

    Attributes:
        record: what is played; playing, speed: as the operator chose; trouble: why it stopped, empty for no trouble.
        live: where the run goes on when this is a look back, else None.
        ended: how the live run ended while one looked back, empty while it goes on.
        scrub: the time that the operator looks for along the timeline, None when nobody scrubs.
    """

    mode: Literal["live", "replay"] = "replay"

    def __init__(
        self,
        record: RunRecord,
        speed: float | None = None,
        at_end: bool = False,
        clock: Callable[[], float] = time.monotonic,
        live: LiveAddress | None = None,
        seq: int | None = None,
        held: FetchedJournal | None = None,
    ) -> None:
        """Opens at the first event, playing, or paused: at the end, or after event `seq`. Raises `RecordingError`.

        `held` is asked for content in place of the record's files, and closed in the end.
        """
        self.record = record
        self.live = live
        self._held = held
        self.listener: EventListener | None = None
        self.version = 0
        self.view = RunView()
        self.trouble = self.ended = ""
        self.presence: tuple[Viewer, ...] = ()
        self.acts = False
        self.scrub: float | None = None
        self._clock = clock
        self._line = record.timeline()
        self._marks = MarkReader(record)
        self._present = self._line.last_seq
        self._pending: ev.Event | None = None
        self._events: Iterator[ev.Event] = iter(())
        self._last_poll = self._last_refresh = clock()
        self._content: TrialContent | None = None
        self.speed = self._default_speed() if speed is None else speed
        self.playing = not at_end and seq is None
        if self.playing:
            self._restart()
        else:
            self.seek(self._line.last_seq if seq is None else seq)
        self._time = self.view.state.ts

    async def start(self) -> None:
        """The clock begins now."""
        self.read_marks()
        self._last_poll = self._clock()

    def read_marks(self, wait: float = 0.0) -> None:
        """Gather the marks of the timeline on a thread; wait for all of them so many seconds at most."""
        self._marks.begin(wait)

    def link(self) -> Link:
        """Where the recording stands."""
        line = self.timeline
        first, last = line.first_ts or 0.0, line.last_ts or 0.0
        fraction = 1.0 if self.at_end or last <= first else (self._time - first) / (last - first)
        return Link(
            "replay",
            playing=self.playing,
            speed=self.speed,
            fraction=max(0.0, min(1.0, fraction)),
            detail=self.trouble,
            timeline=line,
            scrub=self.scrub,
            behind=max(0.0, last - self._time) if self.live is not None else None,
            news=self._news(),
            urgent=bool(self.ended) and not self.trouble,
        )

    @property
    def timeline(self) -> Timeline:
        """What can be gone to, with the marks gathered so far."""
        if self._line.marks is not self._marks.marks:
            self._line = msgspec.structs.replace(self._line, marks=self._marks.marks)
        return self._line

    def missing(self) -> str:
        """One line about what cannot be read, as far as that is known; empty when everything can."""
        marks = self.timeline.marks
        return missing(marks.holes if marks is not None else (), self._marks.damage or self.record.damage, _moment)

    def _news(self) -> str:
        if self.trouble:
            return self.trouble
        if self.ended:
            return self.ended
        marks = self._line.marks
        if marks is None:
            return ""
        if self.live is not None:
            new = takewhile(lambda one: one.seq > self._present, reversed(marks.alarms))
            still = [one for one in new if one.closed is None]
            alarm = max(still, key=lambda one: (one.level == "critical", one.seq), default=None)
            if alarm is not None:
                return f"{alarm.level} alarm in the live run, {_moment(alarm.ts)}: {alarm.text}"
        return self.missing() if marks.holes else ""

    def now(self) -> float:
        """The time of the recording, Unix seconds."""
        return self._time

    async def command(self, command: Command) -> CommandResult:
        """Refused."""
        raise ControlError("this is a recording: there is nothing to command")

    async def ask(self, ask: Ask) -> Content:
        """From the run directory, read on a thread."""
        if self._held is not None:
            return await self._held.ask(ask)
        from console.records.content import TrialContent

        if self._content is None:
            self._content = TrialContent(self.record.path)
        return await asyncio.to_thread(self._content.answer, ask)

    async def take_watch(self, back: bool = False) -> str:
        """Refused."""
        raise ControlError("this is a recording: there is no watch to take")

    async def close(self) -> None:
        """Nothing is held open but what was fetched."""
        if self._held is not None:
            await self._held.close()

    @property
    def at_end(self) -> bool:
        """Whether every event was applied."""
        return self._pending is None

    # --- the clock ---

    def poll(self) -> None:
        """Apply what is due. Trouble with the files, or with an event, pauses and is kept in `trouble`."""
        now = self._clock()
        passed, self._last_poll = now - self._last_poll, now
        marks = self._line.marks
        try:
            self._look_for_more(now)
            if self.playing and passed > 0 and not self.at_end:
                self._advance(passed, now + BUDGET_SECONDS * (1 if self.speed > 0 else 2))
                if self.at_end and self.view.state.status in _OVER:
                    self.playing = False
        except RecordingError as error:
            self.fail(str(error))
        if self.timeline.marks is not marks:
            self.version += 1

    def fail(self, why: str) -> None:
        """Pause, and say why: a file, an event or a picture of it is no good."""
        self.playing, self.trouble = False, sanitize(why, limit=300)
        self.version += 1

    def _advance(self, passed: float, deadline: float) -> None:
        limit = math.inf if self.speed <= 0 else self._time + passed * self.speed
        if self._pending is not None and self.speed > 0:
            # A gap longer than the idle limit is cut to what is left of that limit.
            limit = max(limit, self._pending.ts - IDLE_SECONDS * self.speed)
        self.version += 1
        count = 0
        while self._pending is not None and self._pending.ts <= limit:
            self._apply_next()
            count += 1
            if count % 64 == 0 and self._clock() > deadline:
                break
        else:
            if limit != math.inf:
                self._time = max(self._time, limit) if self._pending is not None else self.view.state.ts
                return
        self._time = self.view.state.ts

    def _look_for_more(self, now: float) -> None:
        """A run that is still going on writes on: take in what is new, at most once a second."""
        if now - self._last_refresh < _REFRESH_SECONDS or (self.at_end and self.view.state.status in _OVER):
            return
        self._last_refresh = now
        self.record.refresh()
        if self.record.journal.last_seq > self._line.last_seq:
            self._line = self.record.timeline()
            if self.live is not None:
                self.ended = self._end()
            if self._pending is None:
                self._open_after(self.view.state.seq)
            self.version += 1
        self._marks.follow()

    def _end(self) -> str:
        """How the run ended since, in clean words; empty while its last event is another one."""
        last = self._line.last_seq
        try:
            event = next(self.record.journal.events(last - 1), None)
        except RecordingError:
            return ""
        if not isinstance(event, ev.RunFinished):
            return ""
        why = f": {sanitize(event.reason, limit=160)}" if event.reason else ""
        return f"the live run has ended meanwhile ({sanitize(event.status, limit=20)}, exit {event.exit_code}){why}"

    def _apply_next(self) -> None:
        event = self._pending
        if event is None:
            return
        try:
            self._take(event)
        finally:
            self._pending = None
            self._pending = next(self._events, None)

    def _take(self, event: ev.Event) -> None:
        try:
            apply(self.view, event)
        except Exception as error:  # an event that no version of ours wrote: what follows can still be looked at
            raise RecordingError(f"event #{event.seq} cannot be shown ({type(error).__name__}: {error})") from error
        if self.listener is not None:
            self.listener(event)

    def _open_after(self, seq: int) -> None:
        self._events = self.record.journal.events(seq)
        self._pending = next(self._events, None)

    # --- what the operator turns ---

    def toggle(self) -> None:
        """Play or pause; at the end of a run that is over, play from the start."""
        self._last_poll = self._clock()
        if not self.playing and self.at_end and self.view.state.status in _OVER:
            self._restart()
        self.playing, self.trouble = not self.playing, ""
        self.version += 1

    def change_speed(self, faster: bool) -> None:
        """Double or halve it, from 0.25x to 64x and then as fast as it goes."""
        if faster:
            self.speed = MAX if self.speed <= 0 or self.speed >= FASTEST else self.speed * 2
        else:
            self.speed = FASTEST if self.speed <= 0 else max(SLOWEST, self.speed / 2)
        self.version += 1

    def _restart(self) -> None:
        self.seek(0)
        self._apply_next()
        self._time = self.view.state.ts

    def seek(self, seq: int) -> None:
        """To right after event `seq`. Raises `RecordingError`; an event that cannot be applied is left out."""
        self.version += 1
        self.trouble = ""
        seq = max(0, min(seq, self._line.last_seq))
        warm = max(0, seq - WARM_UP_EVENTS)
        try:
            self.view = self.record.view_at(seq=warm) if warm > 0 else RunView()
        except RecordingError:
            raise
        except Exception as error:
            raise RecordingError(f"the state at event #{seq} cannot be made ({type(error).__name__})") from error
        if self.listener is not None:
            self.listener(None)
        bad = ""
        try:
            for event in self.record.journal.events(warm, seq):
                try:
                    self._take(event)
                except RecordingError as error:
                    bad = str(error)
        finally:
            self._open_after(max(seq, self.view.state.seq))
            self._time = self.view.state.ts
        if bad:
            self.fail(bad)

    def seek_time(self, ts: float) -> None:
        """To the moment `ts`, Unix seconds: after the last event before it. Raises `RecordingError`."""
        self.seek(max(1, self.record.journal.seq_at(ts)))
        self.seek_clock(ts)

    def seek_clock(self, ts: float) -> None:
        """The clock alone, between the last event and the next."""
        self._time = max(self._time, min(ts, self._pending.ts if self._pending is not None else self._time))

    def goto(self, text: str) -> None:
        """To where `text` says: 14:01, +5m, s12, #4711, 50%. Raises `UsageError`, `RecordingError`."""
        try:
            seq, ts = parse_goto(text, self._line, self._time)
        except ValueError as error:
            raise UsageError(sanitize(str(error), limit=200)) from None
        if seq is not None:
            self.seek(seq)
        elif ts is not None:
            self.seek_time(ts)

    def play_to(self, seq: int) -> None:
        """Forward to event `seq`, through every event on the way."""
        while self._pending is not None and self._pending.seq <= seq:
            self._apply_next()
        self._time = self.view.state.ts
        self.version += 1

    def step_event(self, forward: bool) -> None:
        """One event on or back, paused. Snapshots are not seen."""
        self.playing, self.trouble = False, ""
        if forward:
            self.version += 1
            try:
                while isinstance(self._pending, ev.Snapshot):
                    self._apply_next()
                self._apply_next()
            finally:
                self._time = self.view.state.ts
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

    def next_alarm(self) -> AlarmMark | None:
        """To where the next alarm opens, paused; None when there is none. Raises `RecordingError`."""
        marks = self.timeline.marks
        here = self.view.state.seq
        found = next((alarm for alarm in marks.alarms if alarm.seq > here), None) if marks is not None else None
        if found is not None:
            self.playing = False
            self.seek(found.seq)
        return found

    @property
    def marked(self) -> bool:
        """Whether all marks have been gathered."""
        return self._marks.complete

    def jump(self, to_end: bool) -> None:
        """To the start or to the end."""
        self.seek(self._line.last_seq if to_end else 1)

    def scrub_to(self, ts: float | None) -> None:
        """Move along the timeline without looking; None ends it."""
        self.scrub = ts
        self.version += 1

    def _default_speed(self) -> float:
        first, last = self._line.first_ts, self._line.last_ts
        length = (last - first) if first is not None and last is not None else 0.0
        speed = 1.0
        while speed < FASTEST and length / speed > WATCHED_SECONDS:
            speed *= 2
        return speed


def _moment(ts: float) -> str:
    return time.strftime("%H:%M:%S", time.localtime(ts))


def parse_speed(text: str) -> float:
    """`max`, or a number from 0.25 to 64, with or without `x`. Raises `ValueError`."""
    if text.strip().lower() == "max":
        return MAX
    value = float(text.strip().lower().removesuffix("x"))
    if not SLOWEST <= value <= FASTEST:
        raise ValueError(text)
    return value
