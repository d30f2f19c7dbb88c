"""Scrubbing: a position moves along the timeline while the page beneath stands still; it follows when the key rests."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from typing import TYPE_CHECKING, cast

from console.errors import RecordingError
from console.tui.goto import stamp
from console.tui.layout import Box
from console.tui.pages.page import Page, Painted
from console.tui.panes.timeline import bar_cells
from console.tui.picture import Scene

if TYPE_CHECKING:
    from console.tui.desk import Desk
    from console.tui.replay import ReplaySource

REST_SECONDS = 0.3
"""Wall time without a key after which the moment is shown."""
PAGE_SHARE = 0.1


class ScrubPage(Page):
    """The page that was on top, and arrows that move along the timeline."""

    id = "scrub"
    title = "Scrub"

    def __init__(self, desk: Desk) -> None:
        super().__init__(desk)
        self._under = desk.page
        self._source = cast("ReplaySource", desk.source)
        self._from = (self._source.view.state.seq, self._source.now(), self._source.playing)
        self._cells = 60
        self._moved: float | None = None

    def opened(self) -> None:
        """Where the recording stands; it pauses."""
        self._source.playing = False
        self._source.scrub_to(self._source.now())
        self.desk.say("← → move in time, ↑ ↓ by step · enter stays here, esc goes back", seconds=None)

    def closed(self) -> None:
        """The timeline is a timeline again."""
        self._source.scrub_to(None)
        self.desk.say("", seconds=0.0)

    def tick(self) -> None:
        """Show the moment once the key rests."""
        if self._moved is not None and self.desk.clock() - self._moved >= REST_SECONDS:
            self._load()

    def fingerprint(self) -> tuple[object, ...]:
        """The page beneath."""
        return self._under.fingerprint()

    def has_plumbing(self) -> bool:
        """As the page beneath."""
        return self._under.has_plumbing()

    def paint(self, scene: Scene, region: Box) -> Painted:
        """The page beneath."""
        self._cells = bar_cells(region.width)
        return self._under.paint(scene, region)

    # --- moving ---

    def _to(self, ts: float) -> None:
        line = self._source.timeline
        first, last = line.first_ts or 0.0, line.last_ts or 0.0
        self._source.scrub_to(min(last, max(first, ts)))
        self._moved = self.desk.clock()
        self.desk.say(f"{stamp(self._here)} · enter stays here, esc goes back", seconds=None)

    def _by(self, share: float) -> None:
        line = self._source.timeline
        self._to(self._here + share * ((line.last_ts or 0.0) - (line.first_ts or 0.0)))

    @property
    def _here(self) -> float:
        return self._source.scrub if self._source.scrub is not None else self._source.now()

    def do_left(self) -> None:
        """One cell back."""
        self._by(-1 / self._cells)

    def do_right(self) -> None:
        """One cell on."""
        self._by(1 / self._cells)

    def do_page_up(self) -> None:
        """A tenth back."""
        self._by(-PAGE_SHARE)

    def do_page_down(self) -> None:
        """A tenth on."""
        self._by(PAGE_SHARE)

    def do_start(self) -> None:
        """To the start."""
        self._by(-1.0)

    do_first = do_start

    def do_end(self) -> None:
        """To the end."""
        self._by(1.0)

    do_last = do_end

    def do_up(self) -> None:
        """To the end of the step before."""
        ends = [mark.ended for mark in self._source.timeline.steps]
        at = bisect_left(ends, self._here - 1e-6) - 1
        self._to(ends[at] if at >= 0 else 0.0)

    def do_down(self) -> None:
        """To the end of the next step."""
        ends = [mark.ended for mark in self._source.timeline.steps]
        at = bisect_right(ends, self._here + 1e-6)
        self._to(ends[at] if at < len(ends) else float("inf"))

    do_previous_step, do_next_step = do_up, do_down

    def do_next_alarm(self) -> None:
        """To the next alarm."""
        marks = self._source.timeline.marks
        found = next((a.ts for a in marks.alarms if a.ts > self._here + 1e-6), None) if marks is not None else None
        if found is None:
            self.desk.say("no alarm opens after this")
        else:
            self._to(found)

    # --- settling ---

    def _load(self) -> None:
        self._moved = None
        try:
            self._source.seek_time(self._here)
        except RecordingError as error:
            self._source.fail(str(error))

    def do_open(self) -> None:
        """Stay here."""
        self._load()
        self.desk.back()

    do_scrub = do_open

    def do_play(self) -> None:
        """Play from here."""
        self.do_open()
        self._source.toggle()

    def do_back(self) -> None:
        """To where it was."""
        seq, now, playing = self._from
        self._source.seek(seq)
        self._source.seek_clock(now)
        self._source.playing = playing
        self.desk.back()
