"""What happened since the console looks, one entry an event that a person wants to know of.

The state keeps the last lines only, as sentences. Here they stay with what they are about, so that pages can filter
them and go to what they name. Memory is bounded; what is older than the log is read from the journal by who needs it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from typing import NamedTuple, Protocol

from console.journal import events as ev
from console.state.model import EventLine, RunState
from console.state.reduce import RunView, apply

KEPT = 20_000
EVENTS_READ = 250_000
_WITHOUT_LINE = frozenset({ev.TrialTurn, ev.TrialPhase, ev.CaptureStats, ev.SandboxStats, ev.HostStats, ev.Snapshot})
"""Events that come in great numbers and never have a line; nothing of the others' lines depends on them."""


class Events(Protocol):
    """A journal, on disk or in memory."""

    def events(self, after_seq: int = 0, until_seq: int | None = None) -> Iterator[ev.Event]:
        """Events with `after_seq < seq <= until_seq`, in order."""


class Entry(NamedTuple):
    """A line of the log.

    Attributes:
        seq: of the event, 0 when it is not known; ts: Unix seconds; kind: the event's type as in the journal.
        step, group, trial: indices from 0 of what it is about, None for nothing of the kind.
        level: info, warning or error; outcome: class of a trial that ended; text: the sentence, sanitised.
        key: of the alarm or command that it is about.
    """

    seq: int
    ts: float
    text: str
    kind: str = ""
    step: int | None = None
    group: int | None = None
    trial: int | None = None
    level: str = "info"
    outcome: str = ""
    key: str = ""


class EventLog:
    """The last entries, oldest first.

    Attributes:
        entries: at most `KEPT`; total: entries ever added, so that a reader knows what it has not seen.
        jumps: counts the times the view jumped (a seek, a new connection), after which the log begins anew.
    """

    def __init__(self) -> None:
        self.entries: deque[Entry] = deque(maxlen=KEPT)
        self.total = 0
        self.jumps = 0
        self._last: EventLine | None = None

    def note(self, event: ev.Event, state: RunState) -> None:
        """Take an event that `state` includes, when the reducer found a line for it."""
        line = state.lines[-1] if state.lines else None
        if line is None or line is self._last:
            return
        self._last = line
        self.entries.append(entry_of(event, line, state))
        self.total += 1

    def jumped(self, state: RunState) -> None:
        """The view is another one: what was noted may not have happened in it."""
        self.entries.clear()
        self._last = state.lines[-1] if state.lines else None
        self.jumps += 1


def entry_of(event: ev.Event, line: EventLine, state: RunState) -> Entry:
    """The entry of an event and its line; `state` is the state after it."""
    target = _target(event, state)
    return Entry(
        seq=event.seq,
        ts=line.ts,
        text=line.text,
        kind=str(type(event).__struct_config__.tag or ""),
        step=_index(event, "step") if _index(event, "step") is not None else state.step,
        group=target[0],
        trial=target[1],
        level=line.level,
        outcome=line.outcome or "",
        key=str(getattr(event, "key", "") or getattr(event, "id", "")),
    )


def entries_of(lines: Iterable[EventLine]) -> list[Entry]:
    """Entries of lines whose events are not known any more."""
    return [Entry(0, line.ts, line.text, level=line.level, outcome=line.outcome or "") for line in lines]


def _index(event: ev.Event, name: str) -> int | None:
    value = getattr(event, name, None)
    return value if isinstance(value, int) else None


def _target(event: ev.Event, state: RunState) -> tuple[int | None, int | None]:
    """Group and trial that an event names; a command's are in its arguments."""
    args: ev.Scalars = {}
    if isinstance(event, ev.CommandRequested):
        args = event.args
    elif isinstance(event, ev.CommandAccepted | ev.CommandFinished) and event.id in state.commands:
        args = state.commands[event.id].args
    if args:
        group, trial = args.get("group"), args.get("trial")
        return (group if isinstance(group, int) else None), (trial if isinstance(trial, int) else None)
    return _index(event, "group"), _index(event, "trial")


class Read(NamedTuple):
    """Entries read from a journal; `after`: events up to this one were not read, 0 for all; `last`: the last one."""

    entries: list[Entry]
    after: int
    last: int


def read_entries(journal: Events, until: int) -> Read:
    """The entries of a journal up to event `until`. Reads at most `EVENTS_READ` events: not for an event loop.

    Raises `RecordingError` when it cannot be read.
    """
    after = max(0, until - EVENTS_READ)
    view, found, last = RunView(), deque[Entry](maxlen=KEPT), after
    first_health = after > 0
    for event in journal.events(after, until):
        last = event.seq
        if type(event) in _WITHOUT_LINE:
            continue
        before = view.state.lines[-1] if view.state.lines else None
        apply(view, event)
        line = view.state.lines[-1] if view.state.lines else None
        if first_health and isinstance(event, ev.GatewayHealth):
            first_health = False  # what came before is not known, so it may be no change at all
        elif line is not None and line is not before:
            found.append(entry_of(event, line, view.state))
    return Read(list(found), after, last)
