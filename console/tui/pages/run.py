"""The run: groups by attention, trials of the selected one, plots, gateway and capture, events."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from console.errors import UsageError
from console.state.model import GroupState, TrialState
from console.state.sanitize import sanitize
from console.state.words import BENCHMARK
from console.tui.compose import compose, layout_for
from console.tui.filters import Filter, parse
from console.tui.layout import Box, Layout
from console.tui.pages.page import Page, Painted
from console.tui.panes import groups as groups_pane
from console.tui.picture import SORTS, Scene, Selection, check_classes, shown_trials
from console.tui.spots import Spot, spots, told
from console.tui.tail import Tail, Target

if TYPE_CHECKING:
    from console.tui.desk import Desk

FOCUSABLE = ("groups", "trials", "detail", "events", "capture", "reward")
"""Panes in the order of tab and of the keys 1 to 6; `reward` stands for all plots."""
BENCH_FOCUSABLE = (*FOCUSABLE[:4], "bench")
"""The same of a benchmark; 6 is its pane, too."""
_FAR = 10**9


class RunPage(Page):
    """The first page."""

    id = "run"
    title = "Run"

    def __init__(self, desk: Desk) -> None:
        super().__init__(desk)
        self._layout = Layout({})
        self._tail = Tail()
        self._alarm_at = ""

    @property
    def _selection(self) -> Selection:
        return self.desk.selection

    def has_plumbing(self) -> bool:
        """It has."""
        return True

    def fingerprint(self) -> tuple[object, ...]:
        """The transcript's tail comes by itself; everything else with a key."""
        return (self._tail.version,)

    def tick(self) -> None:
        """Ask for the tail of the selected trial's transcript, where it is shown."""
        if self._has_tail() and self._tail.due():
            self.desk.shell.spawn(self._tail.ask(self.desk.source.ask, self.desk.scene().marks))

    def paint(self, scene: Scene, region: Box) -> Painted:
        """Sections placed by the layout."""
        self._layout = layout = layout_for(scene, region)
        target = _target(scene)
        if self._has_tail():
            self._tail.look(target)
            scene = replace(scene, tail=self._tail.of(target))
        return Painted(layout.boxes, compose(scene, layout))

    def _has_tail(self) -> bool:
        return "tail" in self._layout.boxes or "detail" in self._layout.boxes

    # --- what is selected ---

    def do_open(self) -> None:
        """The selected trial; the page of the pane that has one of its own."""
        match self._selection.focus:
            case "events":
                self.desk.show("events")
            case "reward":
                self.desk.show("metrics")
            case _:
                self.desk.shell.spawn(self.desk.act("page_trial"))

    def do_next_alarm(self) -> None:
        """Select what needs the operator: a held trial, then what the alarms name; again for the next one.

        In a replay, where nothing more waits here, the next alarm in time.
        """
        found, replay = self._spots(), self.desk.source.mode == "replay"
        here = next((i for i, spot in enumerate(found) if self._is_at(spot)), -1)
        if replay and here + 1 >= len(found):
            before = self.desk.state.seq
            self.desk.replaying.do_next_alarm()
            found = self._spots() if self.desk.state.seq != before else []
            if found:
                self._go(found[0])
        elif found:
            at = (here + 1) % len(found)
            self.desk.say(told(found, at), "limit")
            self._go(found[at])
        else:
            self.desk.say("nothing needs you: no trial is held, no alarm asks")

    def _spots(self) -> list[Spot]:
        """What needs the operator; in a replay only what can be selected."""
        scene = self.desk.scene()
        found = spots(scene.state, scene.now)
        return found if self.desk.source.mode == "live" else [spot for spot in found if spot.group is not None]

    def _is_at(self, spot: Spot) -> bool:
        """Whether the selection still is where `!` has put it."""
        chosen = self._selection
        there = spot.group is None or (chosen.group == spot.group and spot.trial in (None, chosen.trial))
        return spot.key == self._alarm_at and there

    def _go(self, spot: Spot) -> None:
        """Select it; what names no group is only told."""
        selection, self._alarm_at = self._selection, spot.key
        if spot.group is None:
            return
        if selection.filter and not any(g.group == spot.group for g in self.desk.scene().groups):
            selection.filter = Filter()
            self.desk.say(f"{spot.text} (the filter hid it: it is cleared)", "limit")
        selection.group, selection.trial = spot.group, spot.trial or 0
        selection.focus, selection.pinned = "groups" if spot.trial is None else "trials", True
        if selection.zoom:
            selection.zoom = selection.focus

    def do_mark(self) -> None:
        """Mark the selected group, or take its mark away, and go on to the next one."""
        scene, marked = self.desk.scene(), self._selection.marked
        if scene.group is None:
            self.desk.say("no group to mark")
            return
        marked ^= {scene.group.group}
        if self._selection.focus != "trials":
            self._selection.focus = "groups"
            self._move(1)

    def yank_text(self) -> str | None:
        """What is selected, in words: for the clipboard."""
        scene = self.desk.scene()
        if scene.group is None or scene.trial is None or self._selection.focus not in ("trials", "detail"):
            return None
        trial = scene.trial
        parts = [f"g{scene.group.group + 1}/t{trial.trial + 1} {scene.group.task}", trial.outcome or trial.phase]
        parts += [trial.cause, trial.exception or "", trial.evidence, trial.trial_dir or ""]
        return "\n".join(sanitize(part) for part in parts if part)

    # --- moving ---

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
        self._move(-_FAR)

    def do_last(self) -> None:
        """To the last row."""
        self._move(_FAR)

    def _rows(self) -> int:
        box = self._layout.boxes.get(self._selection.focus)
        return max(1, (box.height if box is not None else 10) - 2)

    def _move(self, rows: int) -> None:
        scene, selection = self.desk.scene(), self._selection
        if selection.focus == "events":
            selection.events_up = max(0, min(selection.events_up + rows, len(scene.state.lines) - 1))
            return
        if selection.focus == "detail":
            selection.tops["detail"] = max(0, selection.tops.get("detail", 0) + rows)
            return
        if scene.group is None:
            return
        selection.pinned = True
        if selection.focus != "trials":
            selection.focus = "groups"
            self._move_group(scene, rows)
            return
        shown = shown_trials(selection, scene.group, scene.now)
        at = next((i for i, t in enumerate(shown) if t is scene.trial), 0) + rows
        if self._layout.tree and abs(rows) == 1 and not 0 <= at < len(shown):  # out of the group, on to its neighbour
            before = scene.group
            self._move_group(scene, rows)
            after = self.desk.scene().group
            if after is not None and after is not before and rows < 0:
                self._choose(after, shown_trials(selection, after, scene.now)[-1])
            elif after is not None and after is not before:
                self._choose(after, shown_trials(selection, after, scene.now)[0])
            return
        self._choose(scene.group, shown[max(0, min(at, len(shown) - 1))])

    def _move_group(self, scene: Scene, rows: int) -> None:
        at = next(i for i, g in enumerate(scene.groups) if g is scene.group)
        group = scene.groups[max(0, min(at + rows, len(scene.groups) - 1))]
        if group is not scene.group:
            self._choose(group, shown_trials(self._selection, group, scene.now)[0] if group.trials else None)
            self._selection.tops.pop("trials", None)

    def _choose(self, group: GroupState, trial: TrialState | None) -> None:
        self._selection.group, self._selection.trial = group.group, 0 if trial is None else trial.trial
        self._selection.tops.pop("detail", None)
        self._selection.pinned = True

    def click(self, pane: str, row: int, column: int) -> None:
        """Select what is in that row of a pane (its title is row 0), and give the pane the focus."""
        scene, selection = self.desk.scene(), self._selection
        names = {"tail": "detail", "steps": "reward", "loss": "reward", "mix": "reward", "policy": "reward"}
        selection.focus = names.get(pane, pane if pane in (*FOCUSABLE, "bench") else selection.focus)
        if row < 1 or scene.group is None:
            return
        if pane == "groups" and self._layout.tree:
            flat = groups_pane.tree(scene, self._layout.boxes["groups"].height - 2)
            at = selection.tops.get("tree", 0) + row - 1
            if at < len(flat):
                group, trial = flat[at]
                self._choose(group, trial or (group.trials[0] if group.trials else None))
                selection.focus = "groups" if trial is None else "trials"
        elif pane == "groups" and (at := selection.tops.get("groups", 0) + row - 1) < len(scene.groups):
            self._choose(scene.groups[at], None)
        elif pane == "trials":
            shown = shown_trials(selection, scene.group, scene.now)
            if (at := selection.tops.get("trials", 0) + row - 1) < len(shown):
                self._choose(scene.group, shown[at])

    # --- panes ---

    def do_next_pane(self) -> None:
        """To the next pane that is shown."""
        self._focus_by(1)

    def do_previous_pane(self) -> None:
        """To the pane before."""
        self._focus_by(-1)

    do_right, do_left = do_next_pane, do_previous_pane

    def do_pane_1(self) -> None:
        """Groups."""
        self._focus("groups")

    def do_pane_2(self) -> None:
        """Trials."""
        self._focus("trials")

    def do_pane_3(self) -> None:
        """The selected trial."""
        self._focus("detail")

    def do_pane_4(self) -> None:
        """Events."""
        self._focus("events")

    def do_pane_5(self) -> None:
        """Gateway and capture; of a benchmark, its figures."""
        self._focus("bench" if self._bench else "capture")

    def do_pane_6(self) -> None:
        """Plots; of a benchmark, its figures."""
        self._focus("bench" if self._bench else "reward")

    @property
    def _bench(self) -> bool:
        return self.desk.state.kind == BENCHMARK

    def _shown(self, pane: str) -> bool:
        return pane in self._layout.boxes or (pane == "trials" and self._layout.tree)

    def _focus_by(self, by: int) -> None:
        panes = BENCH_FOCUSABLE if self._bench else FOCUSABLE
        shown = panes if self._selection.zoom else [name for name in panes if self._shown(name)]
        if not shown:
            return
        at = shown.index(self._selection.focus) if self._selection.focus in shown else -by
        self._focus(shown[(at + by) % len(shown)])

    def _focus(self, pane: str) -> None:
        """Move the focus to a pane; one that has no room here is shown alone."""
        selection = self._selection
        if pane == "trials":
            selection.pinned = True
        if pane != "events":
            selection.events_up = 0
        selection.focus = pane
        if selection.zoom or not self._shown(pane):
            selection.zoom = pane

    def do_zoom(self) -> None:
        """The focused pane alone, and back."""
        selection = self._selection
        selection.zoom = "" if selection.zoom else selection.focus
        if not selection.zoom:
            self._refocus()

    def _refocus(self) -> None:
        """Out of the zoom: the focus must be on a pane that most screens show."""
        if self._selection.focus not in ("groups", "trials", "events"):
            self._selection.focus = "groups"

    # --- order and filter ---

    def do_sort(self) -> None:
        """By attention, number, reward or task."""
        self._selection.sort = SORTS[(SORTS.index(self._selection.sort) + 1) % len(SORTS)]
        self.desk.say(f"{'tasks' if self._bench else 'groups'} by {self._selection.sort}")

    def do_density(self) -> None:
        """On wide screens: each group's trials beneath it, or in a pane of their own."""
        self._selection.tree = not self._selection.tree
        if "tail" not in self._layout.boxes:
            self.desk.say("trials are shown beneath their groups from 160 columns on")

    async def do_filter(self) -> None:
        """Show only the groups and trials that pass; the list follows what is typed."""
        before = self._selection.filter

        def typed(text: str) -> None:
            with suppress(UsageError):  # not finished yet
                self.set_filter(text)

        text = await self.desk.shell.prompt(
            "filter", before.text, typed, hint="words  class:infra  g:3  phase:agent  !not"
        )
        if text is None:
            self._selection.filter = before
            self.desk.shell.repaint()
            return
        try:
            self.set_filter(text)
        except UsageError:
            self._selection.filter = before
            raise

    def set_filter(self, text: str) -> None:
        """Filter by `text`, empty for no filter. Raises `UsageError` when it is not one, or names an unknown class."""
        wanted, scene = parse(text), self.desk.scene()
        check_classes(wanted, scene.state, scene.now)
        self._selection.filter = wanted
        scene = self.desk.scene()
        if scene.group is not None and self._selection.filter:
            shown = shown_trials(self._selection, scene.group, scene.now)
            if not any(t is scene.trial for t in shown):
                self._choose(scene.group, shown[0] if shown else None)
        self.desk.shell.repaint()

    def do_back(self) -> None:
        """Undo the zoom, then the filter, then the marks; else to the page before."""
        selection = self._selection
        if selection.zoom:
            selection.zoom = ""
            self._refocus()
        elif selection.filter:
            selection.filter = Filter()
        elif selection.marked:
            selection.marked.clear()
        else:
            self.desk.back()


def _target(scene: Scene) -> Target | None:
    if scene.group is None or scene.trial is None or scene.state.step is None:
        return None
    return scene.state.step, scene.group.group, scene.trial.trial, scene.trial.try_
