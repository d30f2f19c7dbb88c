"""The run: groups by attention, trials of the selected one, plots, gateway and capture, events."""

from __future__ import annotations

from typing import TYPE_CHECKING

from console.tui.compose import PANES, compose, layout_for
from console.tui.layout import Box, Layout
from console.tui.pages.page import Page, Painted
from console.tui.picture import Scene, Selection, held_trials

if TYPE_CHECKING:
    from console.tui.desk import Desk

FOCUSABLE = ("groups", "trials", "events")


class RunPage(Page):
    """The first page."""

    id = "run"
    title = "Run"
    panes = PANES

    def __init__(self, desk: Desk) -> None:
        super().__init__(desk)
        self._layout = Layout({})

    @property
    def _selection(self) -> Selection:
        return self.desk.selection

    def has_plumbing(self) -> bool:
        """It has."""
        return True

    def paint(self, scene: Scene, region: Box) -> Painted:
        """Sections placed by the layout."""
        self._layout = layout_for(scene, region)
        return Painted(self._layout.boxes, compose(scene, self._layout))

    def do_open(self) -> None:
        """The selected trial."""
        self.desk.do_page_trial()

    def do_next_alarm(self) -> None:
        """Select the trial that waits for the operator; again for the next one."""
        waiting = held_trials(self.desk.state)
        if not waiting:
            self.desk.say("no trial waits for you")
            return
        here = (self._selection.group, self._selection.trial)
        names = [(g.group, t.trial) for g, t in waiting]
        at = (names.index(here) + 1) % len(names) if here in names and self._selection.focus == "trials" else 0
        self._selection.group, self._selection.trial = names[at]
        self._selection.focus, self._selection.pinned = "trials", True

    def do_up(self) -> None:
        """One row up."""
        self._move(-1)

    def do_down(self) -> None:
        """One row down."""
        self._move(1)

    def do_page_up(self) -> None:
        """A page up."""
        self._move(-self._rows())

    def do_page_down(self) -> None:
        """A page down."""
        self._move(self._rows())

    def do_first(self) -> None:
        """To the first row."""
        self._move(-(10**9))

    def do_last(self) -> None:
        """To the last row."""
        self._move(10**9)

    def _rows(self) -> int:
        box = self._layout.boxes.get(self._selection.focus)
        return max(1, (box.height if box is not None else 10) - 2)

    def _move(self, rows: int) -> None:
        scene, selection = self.desk.scene(), self._selection
        if selection.focus == "events":
            selection.events_up = max(0, min(selection.events_up + rows, len(scene.state.lines) - 1))
            return
        if scene.group is None:
            return
        selection.pinned = True
        if selection.focus == "trials":
            selection.trial = max(0, min(selection.trial + rows, len(scene.group.trials) - 1))
            return
        at = next(i for i, g in enumerate(scene.groups) if g.group == scene.group.group)
        selection.group = scene.groups[max(0, min(at + rows, len(scene.groups) - 1))].group
        selection.trial = 0
        selection.tops.pop("trials", None)

    def do_next_pane(self) -> None:
        """To the next pane that is shown."""
        self._focus(1)

    def do_previous_pane(self) -> None:
        """To the pane before."""
        self._focus(-1)

    def _focus(self, by: int) -> None:
        shown = [name for name in FOCUSABLE if name in self._layout.boxes] or ["groups"]
        at = shown.index(self._selection.focus) if self._selection.focus in shown else 0
        self._selection.focus = shown[(at + by) % len(shown)]
        self._selection.pinned = self._selection.pinned or self._selection.focus == "trials"
        if self._selection.focus != "events":
            self._selection.events_up = 0

    def do_sort(self) -> None:
        """By attention, or by number."""
        self._selection.sort = "number" if self._selection.sort == "attention" else "attention"
