"""Alarms: those that ask for the operator, those that were seen or silenced, those of the past, and what is watched."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from console.errors import UsageError
from console.state.lines import trial_name
from console.state.model import AlarmState
from console.tui.actions import ACTIONS
from console.tui.filters import Filter, parse
from console.tui.history import History
from console.tui.layout import Box
from console.tui.pages.page import Page, Painted
from console.tui.pages.trial import show_trial
from console.tui.panes.alarm_list import Block, block, past, sections, watched
from console.tui.panes.frame import ruled
from console.tui.picture import Scene, held_trials
from console.tui.text import Line, Span, fit, line, plain, restyle

if TYPE_CHECKING:
    from console.tui.desk import Desk

PAST_SHOWN = 500
_ABOUT = re.compile(r"\bg(\d{1,6})(?:/t(\d{1,6}))?$")
_TASK = re.compile(r"^task\.[a-z_]+\.(?P<task>.+)$", re.DOTALL)
_PAGES = {"learning": "metrics", "step": "metrics", "budget": "config"}
"""First word of an alarm's key to the page that shows what it is about; the run page shows the others."""


class AlarmsPage(Page):
    """All alarms of the run, by what they ask of the operator."""

    id = "alarms"
    title = "Alarms"

    def __init__(self, desk: Desk) -> None:
        super().__init__(desk)
        self._history = History(desk)
        self._filter = Filter()
        self._blocks: list[Block] = []
        self._at = self._top = self._rows = 0
        self._key = ""
        self._asked = self._moved = False
        self._changes = 0
        self._shown: list[Line] = []

    @property
    def selected_alarm(self) -> AlarmState | None:
        """The alarm that the cursor is on."""
        return self._blocks[self._at].alarm if self._at < len(self._blocks) else None

    # --- what there is ---

    def opened(self) -> None:
        """Read what is past."""
        self.tick()
        self._lay_out(self.desk.scene(), 80)

    def tick(self) -> None:
        """Take in what happened."""
        before = self._history.resets
        if self._history.sync() or self._history.resets != before:
            self._changes += 1

    def _lay_out(self, scene: Scene, cells: int) -> None:
        state, now = scene.state, scene.now
        out: list[Block] = []
        for name, alarms in sections(state, now):
            passed = [a for a in alarms if self._passes(a)]
            if passed:
                out.append(_heading(f"{name} ({len(passed)})"))
                out += [block(alarm, now, cells, self._key_of) for alarm in passed]
        if not out:
            out += self._well(scene)
        entries = [e for e in self._history.entries if (e.kind or e.text.replace(" ", ".")).startswith("alarm")]
        entries = [e for e in entries if not self._filter or self._filter.matches({"text": e.text, "level": e.level})]
        if entries:
            out += [_heading("Past, newest first"), *past(reversed(entries[-PAST_SHOWN:]), cells)]
        if not self._filter:
            out += [_heading("What is watched, with its thresholds"), *watched(state, cells)]
        self._blocks = out
        self._hold(now)

    def _well(self, scene: Scene) -> list[Block]:
        if self._filter:
            return [Block([line(Span(" no alarm passes the filter; esc clears it", "muted"))], heading=True)]
        if self.desk.over:
            return [Block([line(Span(" the run is over: nothing is watched any more", "muted"))], heading=True)]
        said = Span(" all is well: no alarm is open", "pass+bold")
        held = held_trials(scene.state)
        if held:  # its alarm is on the way, or the recording is of an engine that had none
            names = ", ".join(trial_name(g.group, t.trial) for g, t in held[:5])
            said = Span(f" no alarm is open, but {names} waits for you: ! goes there", "limit+bold")
        if scene.dead:
            said = Span(" the engine is gone: nobody watches this run any more", "infra+bold")
        return [Block([line(said)], heading=True)]

    def _passes(self, alarm: AlarmState) -> bool:
        if not self._filter:
            return True
        found = _ABOUT.search(alarm.key)
        words = {
            "text": f"{alarm.text} {alarm.remedy}", "name": alarm.key, "class": alarm.key, "level": alarm.level,
            "status": "open" if alarm.open else "over",
            "g": found[1] if found else "", "t": (found[2] or "") if found else "",
        }  # fmt: skip
        return self._filter.matches(words)

    def _key_of(self, command: str) -> str:
        """The key of the action that sends a command, empty when it cannot be sent now."""
        sends = {"resume": "pause"}.get(command, command)
        found = next((a for a in ACTIONS if a.id == sends), None) or next(
            (a for a in ACTIONS if a.command == sends), None
        )
        return "" if found is None or self.desk.why_not(found) else self.desk.keymap.label(found.id)

    def _hold(self, now: float) -> None:
        """Keep the cursor on the alarm that it is on, wherever that has moved to; never on a heading.

        One that has just been acknowledged or shelved gives it to the next one that asks.
        """
        asking = [i for i, b in enumerate(self._blocks) if b.alarm is not None and b.alarm.open and b.alarm.asks(now)]
        named = [i for i, b in enumerate(self._blocks) if b.alarm is not None and b.alarm.key == self._key]
        if named:
            self._at = asking[0] if self._asked and named[0] not in asking and asking else named[0]
        elif not self._moved and asking:
            self._at = asking[0]
        self._at = max(0, min(self._at, len(self._blocks) - 1))
        if self._blocks and self._blocks[self._at].heading:
            self._at = next((i for i in range(self._at, len(self._blocks)) if not self._blocks[i].heading), self._at)
        self._note_choice(now)

    def _note_choice(self, now: float) -> None:
        alarm = self.selected_alarm
        self._key = alarm.key if alarm is not None else ""
        self._asked = alarm is not None and alarm.open and alarm.asks(now)

    # --- moving ---

    def _move(self, by: int) -> None:
        stops = [i for i, b in enumerate(self._blocks) if not b.heading]
        if not stops:
            return
        at = stops.index(self._at) if self._at in stops else 0
        self._at = stops[max(0, min(at + by, len(stops) - 1))]
        self._moved = True
        self._note_choice(self.desk.now())
        if self._at == stops[0]:
            self._top = 0
        self._changes += 1

    def do_up(self) -> None:
        """The one before."""
        self._move(-1)

    def do_down(self) -> None:
        """The next one."""
        self._move(1)

    def do_page_up(self) -> None:
        """A page up."""
        self._move(-max(1, self._rows // 2))

    def do_page_down(self) -> None:
        """A page down."""
        self._move(max(1, self._rows // 2))

    def do_first(self) -> None:
        """To the first."""
        self._move(-len(self._blocks))

    def do_last(self) -> None:
        """To the last."""
        self._move(len(self._blocks))

    def do_next_alarm(self) -> None:
        """The next alarm that asks for the operator."""
        now = self.desk.now()
        held = held_trials(self.desk.state)
        if held and not any(b.alarm is not None for b in self._blocks):
            show_trial(self.desk, self.desk.state.step or 0, held[0][0].group, held[0][1].trial)
            return
        asking = [i for i, b in enumerate(self._blocks) if b.alarm is not None and b.alarm.open and b.alarm.asks(now)]
        if not asking and self.desk.source.mode == "replay":
            self.desk.replaying.do_next_alarm()
            return
        if not asking:
            self.desk.say("no alarm asks for you")
            return
        self._at = next((i for i in asking if i > self._at), asking[0])
        self._note_choice(now)
        self._changes += 1

    def do_open(self) -> None:
        """Go to what the alarm is about."""
        alarm = self.selected_alarm
        if alarm is not None:
            go_to_alarm(self.desk, alarm)

    async def do_filter(self) -> None:
        """Ask which alarms to show."""
        before = self._filter
        text = await self.desk.shell.prompt("filter", before.text, self._typed, "words  level:critical  g:3  !not")
        try:
            self._filter = before if text is None else parse(text)
        except UsageError as error:
            self._filter = before
            self.desk.say(str(error), "limit")
        self._changes += 1
        self.desk.shell.repaint()

    def _typed(self, text: str) -> None:
        try:
            self._filter = parse(text)
        except UsageError:
            return  # it is not all typed yet
        self._changes += 1

    def do_back(self) -> None:
        """Clear the filter, else back to the page before."""
        if self._filter:
            self._filter = Filter()
            self._changes += 1
        else:
            self.desk.back()

    # --- painting ---

    def fingerprint(self) -> tuple[object, ...]:
        """Cursor, filter, what was read."""
        return self._changes, self._at

    def paint(self, scene: Scene, region: Box) -> Painted:
        """One section; the selected block is always seen as a whole when it fits."""
        if not scene.frozen:
            self.tick()
        cells, rows = region.width, region.height - 1
        self._rows = rows
        self._lay_out(scene, cells)
        lines: list[Line] = []
        begin = end = 0
        for at, one in enumerate(self._blocks):
            if one.heading and lines:
                lines.append(())
            if at == self._at:
                begin, end = len(lines), len(lines) + len(one.rows)
                lines += [restyle(fit(row, cells), "selected") for row in one.rows]
            else:
                lines += one.rows
        self._top = max(0, min(max(self._top, end - rows), begin, len(lines) - rows))
        if begin <= 2:
            self._top = 0  # the heading of the first ones
        self._shown = lines[self._top : self._top + rows]
        right = f"{self._top + 1}-{min(self._top + rows, len(lines))} of {len(lines)}" if len(lines) > rows else ""
        heading = f"Alarms  filter: {self._filter.text}" if self._filter else "Alarms"
        painted = ruled((heading, right), self._shown, cells, region.height, scene.marks, False)
        return Painted({"alarms_all": region}, {"alarms_all": painted})

    def yank_text(self) -> str:
        """The selected block, or what is shown."""
        rows = self._blocks[self._at].rows if self._at < len(self._blocks) else self._shown
        return "\n".join(plain(row).rstrip() for row in rows)


def _heading(text: str) -> Block:
    return Block([line(Span(f" {text}", "title"))], heading=True)


def go_to_alarm(desk: Desk, alarm: AlarmState) -> None:
    """Show the trial or group that an alarm names, else the page that shows what it is about."""
    state = desk.state
    named = _ABOUT.search(alarm.key)
    group = int(named[1]) - 1 if named else None
    task = _TASK.match(alarm.key)
    if group is None and task is not None:
        group = next((g.group for g in state.groups.values() if g.task == task["task"]), None)
    if group is not None and group in state.groups and state.step is not None:
        trials = state.groups[group].trials
        trial = int(named[2]) - 1 if named and named[2] else next((t.trial for t in trials if t.phase == "held"), None)
        if trial is not None and 0 <= trial < len(trials):
            show_trial(desk, state.step, group, trial)
            return
        selection = desk.selection
        selection.group, selection.trial, selection.pinned, selection.focus = group, 0, True, "groups"
        selection.filter = Filter()
        desk.show("run")
        return
    desk.show(_PAGES.get(alarm.key.partition(".")[0], "run"))
