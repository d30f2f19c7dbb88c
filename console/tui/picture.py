"""The run screen as lines of text: everything that is painted, computed from state, link, selection, size and clock.

`Picture` is what the widgets show and what the tests read; it knows neither Textual nor the wall clock.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from console.control.messages import Viewer
from console.errors import UsageError
from console.outcomes.classes import OutcomeClass
from console.state.model import AlarmState, GroupState, RunState, TrialState
from console.state.reduce import RunView
from console.state.words import BENCHMARK
from console.tui import glyphs
from console.tui.actions import BY_ID
from console.tui.filters import Filter
from console.tui.source import Link
from console.tui.text import Line

SORTS = ("attention", "number", "reward", "task")
ENDED = ("finished", "stopped", "failed")
"""States of a run that has ended in order."""

DONE = 5
_RANKS = {
    "stalled": 2, "running": 3, "building": 3, "verifying": 3, "retrying": 3, "queued": 4, "pass": 4, "partial": 4,
    "zero": 4, "agent_timeout": 4, "context_overflow": 4, "output_limit": 4, "cancelled": 4, "ambiguous": 4,
    "unreadable": 4,
}  # fmt: skip
"""How much a trial of a kind needs the operator; kinds that are not here have failed: 1."""


@dataclass
class Selection:
    """What the operator looks at.

    Attributes:
        focus: the pane that arrows move in; group: number of the selected group; trial: index in it.
        pinned: the operator has chosen; until then the selection follows what needs attention.
        sort: one of `SORTS`; filter: which groups and trials are shown; zoom: the pane that is shown alone, or empty.
        tree: on wide screens trials are shown beneath their groups.
        marked: numbers of the groups marked in step `marked_in`; another step has other groups.
        events_up: lines scrolled back in the events; tops: first visible row of each list.
    """

    focus: str = "groups"
    group: int | None = None
    trial: int = 0
    pinned: bool = False
    sort: str = "attention"
    filter: Filter = field(default_factory=Filter)
    zoom: str = ""
    tree: bool = True
    marked: set[int] = field(default_factory=set)
    marked_in: int | None = None
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


@dataclass(frozen=True)
class Scene:
    """Everything a pane may look at.

    Attributes:
        now: Unix seconds by which ages are told (in a replay the time of the recording).
        groups: in the order shown; group, trial: the selected ones.
        page: id of the page on top; presence: who looks; acts: whether commands of this console go through.
        message: what the last action came to, with its role; keys: (key, label) pairs for the key line.
        frozen: the operator holds the picture, the run goes on; held: for how many seconds already.
        tail: the selected trial's newest lines, when known; labels: action to the key that it has in this console.
    """

    view: RunView
    link: Link
    now: float
    selection: Selection
    groups: list[GroupState]
    group: GroupState | None
    ascii: bool = False
    page: str = "run"
    presence: tuple[Viewer, ...] = ()
    acts: bool = True
    message: Line = ()
    keys: tuple[tuple[str, str], ...] = ()
    frozen: bool = False
    held: float = 0.0
    tail: tuple[Line, ...] = ()
    labels: Mapping[str, str] = field(default_factory=dict)

    @property
    def state(self) -> RunState:
        """The open state."""
        return self.view.state

    def key(self, action_id: str) -> str:
        """How the action's key is shown; empty without such an action or without a key."""
        if action_id in self.labels:
            return self.labels[action_id]
        return BY_ID[action_id].key if action_id in BY_ID else ""

    @property
    def bench(self) -> bool:
        """Whether the run is a benchmark."""
        return self.state.kind == BENCHMARK

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


def asking(state: RunState, now: float) -> list[AlarmState]:
    """Open alarms that nobody has acknowledged or shelved: critical ones first, of these the oldest first."""
    found = [a for a in state.alarms.values() if a.open and a.asks(now)]
    return sorted(found, key=lambda a: (a.level != "critical", a.since))


def stop_text(state: RunState) -> str:
    """When the run stops, for a sentence that begins with the run."""
    if state.stop_requested == "now":
        return "stops now"
    if state.kind == BENCHMARK:
        return "begins no more trials, and ends when those at work have ended"
    return "stops after the current step" if state.step is None else f"stops after step {state.step}"


def attention(group: GroupState, now: float) -> int:
    """Rank of a group by how much it needs the operator: held, failed, stalled, running, waiting, done."""
    if group.kept is not None and not any(t.phase == "held" for t in group.trials):
        return DONE
    return min((_RANKS.get(glyphs.kind_of(t, now), 1) if t.phase != "held" else 0 for t in group.trials), default=4)


def ordered(state: RunState, selection: Selection, now: float) -> list[GroupState]:
    """The groups that pass the filter, in the order of the screen. Marks of another step are forgotten here."""
    if selection.marked_in != state.step:
        selection.marked.clear()
        selection.marked_in = state.step
    groups = [state.groups[i] for i in sorted(state.groups)]
    if selection.filter:
        groups = [g for g in groups if selection.filter.matches(group_fields(g, now))]
    match selection.sort:
        case "attention":
            groups.sort(key=lambda g: attention(g, now))
        case "reward":  # the worst first, those without any last
            groups.sort(key=lambda g: (g.reward_mean is None, g.reward_mean or 0.0))
        case "task":
            groups.sort(key=lambda g: g.task.casefold())
    return groups


def group_fields(group: GroupState, now: float) -> dict[str, str]:
    """What a filter looks at in a group: its own names, and of all its trials the classes and phases."""
    classes = {word for t in group.trials for word in _classes(t, now)}
    phases = {t.phase for t in group.trials}
    return {
        "name": f"g{group.group + 1}",
        "task": group.task,
        "g": str(group.group + 1),
        "t": " ".join(str(t.trial + 1) for t in group.trials),
        "class": " ".join(sorted(classes)),
        "phase": " ".join(sorted(phases)),
        "status": "running" if group.kept is None else "kept" if group.kept else "dropped",
    }


def trial_fields(group: GroupState, trial: TrialState, now: float) -> dict[str, str]:
    """What a filter looks at in one trial."""
    return {
        "name": f"g{group.group + 1} g{group.group + 1}/t{trial.trial + 1}",
        "task": group.task,
        "g": str(group.group + 1),
        "t": str(trial.trial + 1),
        "class": " ".join(_classes(trial, now)),
        "phase": trial.phase,
        "status": "running" if group.kept is None else "kept" if group.kept else "dropped",
    }


def check_classes(wanted: Filter, state: RunState, now: float) -> None:
    """Raises `UsageError` when the filter asks for a class that neither exists nor occurs."""
    occur = {word for group in state.groups.values() for trial in group.trials for word in _classes(trial, now)}
    for term in wanted.terms:
        if term.key == "class":
            for value in term.values:
                if not any(value in word.casefold() for word in {*glyphs.SIGNS, *OutcomeClass, *occur}):
                    raise UsageError(f"filter: no class {value}: there are {', '.join(glyphs.SIGNS)}")


def _classes(trial: TrialState, now: float) -> tuple[str, ...]:
    kind = glyphs.kind_of(trial, now)
    return (kind, trial.outcome, trial.cause) if trial.outcome else (kind,)


def shown_trials(selection: Selection, group: GroupState, now: float) -> list[TrialState]:
    """The trials of a group that the filter picks out; all of them when it picks none."""
    if not selection.filter:
        return group.trials
    found = [t for t in group.trials if selection.filter.matches(trial_fields(group, t, now))]
    return found or group.trials
