"""All events of the run that a person wants to know of: followed, filtered, searched, and gone to."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from console.errors import UsageError
from console.state.sanitize import sanitize
from console.tui.event_log import KEPT, Entry
from console.tui.filters import Filter, parse
from console.tui.glyphs import SIGNS, sign_text
from console.tui.history import History
from console.tui.layout import Box
from console.tui.pages.page import Painted
from console.tui.pages.reading_page import ReadingPage
from console.tui.pages.trial import show_trial
from console.tui.panes.frame import ruled
from console.tui.picture import Scene
from console.tui.reading import LongText
from console.tui.text import Line, Span, line, plain

if TYPE_CHECKING:
    from console.tui.desk import Desk

_LEVELS = {"warning": Span("*", "limit+bold"), "error": Span("!", "infra+alert")}


class EventsPage(ReadingPage):
    """Every event that has a line. Those before the console came are read from the journal, when it is here."""

    id = "events"
    title = "Events"

    def __init__(self, desk: Desk) -> None:
        super().__init__(desk)
        self._text = LongText(wrap=False, kept=2 * KEPT)
        self._text.chosen = 0
        self._history = History(desk)
        self._resets = -1
        self._rows: list[Entry | None] = []
        self._day = ""
        self._filter = Filter()
        self._sought = Filter()
        self._changes = 0

    @property
    def text(self) -> LongText:
        """The entries that pass the filter."""
        return self._text

    @property
    def entry(self) -> Entry | None:
        """The selected one."""
        if not self._rows:
            return None
        number = self._text.total - 1 if self._text.follow else self._text.chosen or 0
        return self._rows[max(0, min(number - self._text.first, len(self._rows) - 1))]

    # --- what there is ---

    def opened(self) -> None:
        """Show what is known, read the rest."""
        self.tick()

    def tick(self) -> None:
        """Take in what happened."""
        new = self._history.sync()
        if self._history.resets != self._resets:
            self._resets = self._history.resets
            self._rebuild()
        elif new:
            self._append(new)

    def _append(self, entries: list[Entry]) -> None:
        lines: list[Line] = []
        for entry in entries:
            if self._filter and not self._filter.matches(fields(entry)):
                continue
            day = time.strftime("%Y-%m-%d", time.localtime(entry.ts))
            if day != self._day:
                self._day = day
                self._rows.append(None)
                lines.append(line(Span(f" {day}", "muted")))
            self._rows.append(entry)
            lines.append(_row(entry, self.desk.ascii))
        self._text.append(lines)
        del self._rows[: len(self._rows) - len(self._text.lines)]

    def _rebuild(self) -> None:
        """Lay everything out anew; the selected entry stays selected, when it is still there."""
        here, follow = self.entry, self._text.follow
        self._text.clear()
        self._rows.clear()
        self._day = ""
        self._append(self._history.entries)
        self._text.all_seen()
        if not follow and here is not None:
            self._choose(next((i for i, e in enumerate(self._rows) if e is not None and e.ts >= here.ts), 0))
        self._changes += 1

    # --- moving ---

    def _choose(self, index: int) -> None:
        self._text.choose(self._text.first + index)

    def _index(self) -> int:
        number = self._text.total - 1 if self._text.follow else self._text.chosen or 0
        return max(0, number - self._text.first)

    def _scroll(self, rows: int) -> None:
        at = max(0, min(self._index() + rows, len(self._rows) - 1))
        if self._rows and self._rows[at] is None:  # the line of a day is none that can be selected
            at = max(0, min(at + (1 if rows > 0 or at == 0 else -1), len(self._rows) - 1))
        self._choose(at)

    def do_page_up(self) -> None:
        """A page up."""
        self._scroll(1 - self._text.rows)

    def do_page_down(self) -> None:
        """A page down."""
        self._scroll(self._text.rows - 1)

    def do_first(self) -> None:
        """To the oldest."""
        self._scroll(-len(self._rows))

    def do_open(self) -> None:
        """Go to the trial or group that the event names."""
        entry = self.entry
        if entry is not None:
            go_to(self.desk, entry)

    # --- filter and search ---

    async def do_filter(self) -> None:
        """Ask which events to show."""
        before = self._filter

        def typed(text: str) -> None:
            try:
                self._use(parse(text))
            except UsageError:
                return  # it is not all typed yet

        hint = "words  class:infra  level:error  g:3  t:5  step:11  kind:alarm  !not"
        text = await self.desk.shell.prompt("filter", before.text, typed, hint)
        try:
            chosen = before if text is None else parse(text)
        except UsageError as error:
            self._use(before)
            self.desk.say(str(error), "limit")
            return
        self._use(chosen)
        self._sought = chosen or self._sought
        self.desk.shell.repaint()

    def _use(self, chosen: Filter) -> None:
        if chosen != self._filter:
            self._filter = chosen
            self._rebuild()

    def do_back(self) -> None:
        """Clear the filter, else back to the page before."""
        if self._filter:
            self._use(Filter())
        else:
            self.desk.back()

    def _find(self, forward: bool) -> None:
        """The next event that passes the filter that was used last, among all that are shown."""
        if not self._sought:
            self.desk.say("nothing is searched for: / first; esc shows the other events again, n goes on")
            return
        here, count = self._index(), len(self._rows)
        for by in range(1, count + 1):
            at = (here + (by if forward else -by)) % count
            entry = self._rows[at]
            if entry is not None and self._sought.matches(fields(entry)):
                self._choose(at)
                return
        self.desk.say(f"no event matches {self._sought.text}", "limit")

    # --- painting ---

    def fingerprint(self) -> tuple[object, ...]:
        """Filter, place, what was read."""
        return self._changes, self._text.version

    def paint(self, scene: Scene, region: Box) -> Painted:
        """One section."""
        if not scene.frozen:  # a key may have moved a replay on: what is painted includes it
            self.tick()
        notes: list[Line] = []
        if self._history.note:
            notes.append(line(Span(f" {self._history.note}", "infra")))
        elif self._history.missing:
            notes.append(line(Span(f" events up to #{self._history.missing:,} are not read", "muted")))
        rows = max(1, region.height - 1 - len(notes))
        window = self._text.window(region.width, rows)
        if not self._rows:
            nothing = "no event passes the filter; esc clears it" if self._filter else "no events yet"
            window = [line(Span(f" {nothing}", "muted"))]
        heading = f"Events  filter: {self._filter.text}" if self._filter else "Events"
        body = [*window, *[()] * (rows - len(window)), *notes]
        lines = ruled((heading, self.position()), body, region.width, region.height, scene.marks, False)
        self.shown = tuple(lines)
        return Painted({"events_all": region}, {"events_all": lines})

    def yank_text(self) -> str:
        """The selected event, or what is shown when it follows."""
        entry = self.entry
        if entry is None or self._text.follow:
            return super().yank_text()
        return plain(_row(entry, self.desk.ascii)).strip()


def fields(entry: Entry) -> dict[str, str]:
    """What a filter looks at."""
    return {
        "text": entry.text,
        "class": f"{entry.outcome} {entry.kind} {entry.key}",
        "level": entry.level,
        "g": "" if entry.group is None else str(entry.group + 1),
        "t": "" if entry.trial is None else str(entry.trial + 1),
        "step": "" if entry.step is None else str(entry.step),
    }


def go_to(desk: Desk, entry: Entry) -> None:
    """Go to what an entry names: its trial, its group, or in a replay that moment."""
    state = desk.state
    if entry.group is not None and entry.trial is not None and entry.step is not None:
        show_trial(desk, entry.step, entry.group, entry.trial)
    elif entry.group is not None and entry.step == state.step and entry.group in state.groups:
        desk.selection.group, desk.selection.trial, desk.selection.pinned = entry.group, 0, True
        desk.selection.filter, desk.selection.focus = Filter(), "groups"
        desk.show("run")
    elif entry.key and entry.kind.startswith("alarm."):
        desk.show("alarms")
    elif desk.source.mode == "replay" and entry.seq:
        seek = getattr(desk.source, "seek", None)
        if seek is not None:
            seek(entry.seq)
            desk.say(f"at event #{entry.seq}")
    else:
        desk.say("this event names no trial or group")


def _row(entry: Entry, ascii_only: bool) -> Line:
    clock = time.strftime("%H:%M:%S", time.localtime(entry.ts))
    step = "" if entry.step is None else f"s{entry.step}"
    if entry.outcome in SIGNS:
        mark = Span(sign_text(entry.outcome, ascii_only), SIGNS[entry.outcome].role)
    else:
        mark = _LEVELS.get(entry.level, Span(" "))
    role = "infra" if entry.level == "error" else ""
    return line(Span(f" {clock} {step:>6} ", "muted"), mark, Span(f" {sanitize(entry.text, limit=1000)}", role))
