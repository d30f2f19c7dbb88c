"""The run screen as lines of text: everything that is painted, computed from state, link, selection, size and clock.

`Picture` is what the widgets show and what the tests read; it knows neither Textual nor the wall clock.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from console.control.messages import Viewer
from console.journal import events as ev
from console.state.model import GroupState, RunState, TrialState
from console.state.reduce import RunView
from console.tui import glyphs
from console.tui.source import Link
from console.tui.text import Line

TREND_KEPT = 120
ENDED = ("finished", "stopped", "failed")
"""States of a run that has ended in order."""


@dataclass
class Selection:
    """What the operator looks at.

    Attributes:
        focus: the pane that arrows move in; group: number of the selected group; trial: index in it.
        pinned: the operator has chosen; until then the selection follows what needs attention.
        events_up: lines scrolled back in the events; tops: first visible row of each list.
    """

    focus: str = "groups"
    group: int | None = None
    trial: int = 0
    pinned: bool = False
    sort: str = "attention"
    events_up: int = 0
    tops: dict[str, int] = field(default_factory=dict)

    def settle(self, groups: list[GroupState]) -> GroupState | None:
        """Keep the selection on something that exists; the selected group, or None without any."""
        if not groups:
            self.group, self.trial = None, 0
            return None
        if not self.pinned:
            self.group = groups[0].group
            self.trial = next((t.trial for t in groups[0].trials if t.phase == "held"), 0)
        chosen = next((g for g in groups if g.group == self.group), groups[0])
        self.group = chosen.group
        self.trial = max(0, min(self.trial, len(chosen.trials) - 1))
        return chosen

    def window(self, name: str, total: int, rows: int, index: int) -> int:
        """The first row of list `name` to show so that row `index` is visible; moves as little as it can."""
        top = self.tops.get(name, 0)
        top = min(max(top, index - rows + 1), index)
        self.tops[name] = top = max(0, min(top, total - rows))
        return top


@dataclass
class Trends:
    """Recent readings that the state keeps only the last of, for sparks. Emptied by a jump in time."""

    latency: deque[float | None] = field(default_factory=lambda: deque(maxlen=TREND_KEPT))
    queued: deque[float | None] = field(default_factory=lambda: deque(maxlen=TREND_KEPT))
    sampled: deque[float | None] = field(default_factory=lambda: deque(maxlen=TREND_KEPT))

    def note(self, event: ev.Event, state: RunState) -> None:
        """Take the reading of an event that `state` includes."""
        if isinstance(event, ev.GatewayHealth):
            self.latency.append(event.latency_ms if event.reachable else None)
            self.queued.append(event.queued)
        elif isinstance(event, ev.CaptureStats):
            self.sampled.append(state.capture.sampled_per_second)

    def clear(self) -> None:
        """Forget everything."""
        for series in (self.latency, self.queued, self.sampled):
            series.clear()


@dataclass(frozen=True)
class Scene:
    """Everything a pane may look at.

    Attributes:
        now: Unix seconds by which ages are told (in a replay the time of the recording).
        groups: in the order shown; group, trial: the selected ones.
        page: id of the page on top; presence: who looks; acts: whether commands of this console go through.
        message: what the last action came to, with its role; keys: (key, label) pairs for the key line.
    """

    view: RunView
    link: Link
    now: float
    selection: Selection
    groups: list[GroupState]
    group: GroupState | None
    trends: Trends
    ascii: bool = False
    page: str = "run"
    presence: tuple[Viewer, ...] = ()
    acts: bool = True
    message: Line = ()
    keys: tuple[tuple[str, str], ...] = ()

    @property
    def state(self) -> RunState:
        """The open state."""
        return self.view.state

    @property
    def dead(self) -> bool:
        """Whether the engine is gone without a last word: what is shown is as of its last event."""
        return self.link.status == "dead"

    @property
    def marks(self) -> glyphs.Marks:
        """Rule, cursor and block characters."""
        return glyphs.marks(self.ascii)

    @property
    def trial(self) -> TrialState | None:
        """The selected trial."""
        if self.group is None or not self.group.trials:
            return None
        return self.group.trials[self.selection.trial]


def held_trials(state: RunState) -> list[tuple[GroupState, TrialState]]:
    """Trials that wait for the operator, the one with the least time left first."""
    found = [(g, t) for g in state.groups.values() for t in g.trials if t.phase == "held"]
    return sorted(found, key=lambda pair: pair[1].hold_deadline or 0.0)


def stop_text(state: RunState) -> str:
    """When the run stops, for a sentence that begins with the run."""
    if state.stop_requested == "now":
        return "stops now"
    return "stops after the current step" if state.step is None else f"stops after step {state.step}"


def attention(group: GroupState, now: float) -> int:
    """Rank of a group by how much it needs the operator: held, failed, stalled, running, waiting, done."""
    kinds = {glyphs.kind_of(t, now) for t in group.trials}
    if any(t.phase == "held" for t in group.trials):
        return 0
    if group.kept is not None:
        return 5
    if any("infra" in glyphs.SIGNS[k].role and k != "retrying" for k in kinds):
        return 1
    if "stalled" in kinds:
        return 2
    return 3 if kinds & {"running", "building", "verifying", "retrying"} else 4


def ordered(state: RunState, selection: Selection, now: float) -> list[GroupState]:
    """The groups in the order of the screen."""
    groups = [state.groups[i] for i in sorted(state.groups)]
    return sorted(groups, key=lambda g: attention(g, now)) if selection.sort == "attention" else groups
