"""The batches that a run's engines rolled out, as its journal has them: groups, final outcomes, what became of them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec

from console.journal import events as ev
from console.journal.reader import Journal
from console.outcomes.classes import SCORED
from console.records.capture_paths import earlier_trial_files, place_of_file, trial_files
from console.records.try_key import TrialPlace, place_of
from console.records.untold import OpenTries, Untold

CANCELLED_BY = "cancelled by "
"""How the reason of a group begins that an operator cancelled."""


class OpenedGroup(msgspec.Struct, kw_only=True):
    """A group as one engine had it.

    Attributes:
        task: name of its directory; size: trials; ends: by trial, the end of its last try.
        ended: how it ended, None when its engine ended first.
        cancelled_by: the operator who cancelled it, empty for nobody.
    """

    task: str
    size: int
    ends: dict[int, ev.TrialFinished] = {}
    ended: ev.GroupFinished | None = None
    cancelled_by: str = ""

    @property
    def complete(self) -> bool:
        """Whether it and every trial of it has ended."""
        return self.ended is not None and all(trial in self.ends for trial in range(self.size))


class Opening(msgspec.Struct, kw_only=True):
    """A batch as one engine had it. A later engine may open the same batch again.

    Attributes:
        step: of the run; size: groups; weights, policy_version: that sampled it; started: Unix seconds.
        groups: by index; trained: seconds at which its training began, None when it did not.
        counted: whether its tokens are in the totals that the journal has.
        finished: its row, None when the engine ended before it was written.
    """

    step: int
    size: int
    weights: str
    policy_version: int
    started: float
    groups: dict[int, OpenedGroup] = {}
    trained: float | None = None
    counted: bool = False
    finished: ev.StepFinished | None = None

    @property
    def complete(self) -> bool:
        """Whether every group of it has ended."""
        return len(self.groups) == self.size and all(group.complete for group in self.groups.values())

    def scored(self) -> Iterator[ev.TrialFinished]:
        """The ends of the scored trials of the groups that were kept: what a training of it takes."""
        for group in self.groups.values():
            if group.ended is not None and group.ended.kept:
                yield from (end for end in group.ends.values() if end.outcome in SCORED)


class Batches(msgspec.Struct, kw_only=True):
    """What a journal says of the batches from a step on.

    Attributes:
        openings: in order; saved: checkpoints by the gateway's path, the last report of each.
        recovered: rows that an engine wrote for another one, by step, unless the step was opened again since.
        next_try: by place, the first number that no try had yet; trials that were never tried are not there.
        first_step: from which on they were read; open_tries: those of the last engine that were not told to have ended.
    """

    openings: list[Opening] = []
    saved: dict[str, ev.CheckpointSaved] = {}
    recovered: dict[int, ev.StepFinished] = {}
    next_try: dict[TrialPlace, int] = {}
    first_step: int = 0
    open_tries: OpenTries = msgspec.field(default_factory=OpenTries)

    def of(self, step: int) -> list[Opening]:
        """The openings of a step, in order."""
        return [opening for opening in self.openings if opening.step == step]


def read_batches(run_dir: Path | str, first_step: int = 0) -> Batches:
    """The batches of steps from `first_step` on. Reads what the journal has since then; takes seconds for long ones.

    A run without a journal has none. Raises RecordingError, OSError.
    """
    directory = Path(run_dir) / "journal"
    reader = _Reader(first_step)
    if directory.is_dir():
        journal = Journal(directory)
        for event in journal.events(_before(journal, first_step)):
            reader.take(event)
            reader.batches.open_tries.take(event)
    for place, try_ in _captured(run_dir, first_step):
        reader.tried(place, try_)
    return reader.batches


def untold(run_dir: Path | str, batches: Batches) -> Untold:
    """What the last engine captured beyond what the journal tells of it. Raises OSError."""
    files = [(place_of_file(path.name), path) for path in trial_files(run_dir)]
    return batches.open_tries.untold((place, path) for place, path in files if place and place[0] >= batches.first_step)


def owes_row(run_dir: Path | str, steps: int) -> bool:
    """Whether the engine that saved so many steps ended before it wrote the row of the last one.

    Raises RecordingError.
    """
    directory = Path(run_dir) / "journal"
    if not directory.is_dir():
        return False
    written = 0
    for row in Journal(directory).step_rows():
        if isinstance(row, ev.StepFinished):
            written = row.step + 1
        elif isinstance(row, ev.RunStarted) and row.resumed_from is not None:
            written = min(written, row.resumed_from)
    return written < steps and bool(read_batches(run_dir, written).of(written))


def _before(journal: Journal, first_step: int) -> int:
    """`seq` of an event before the first batch that counts: engines that come to it write one of these before."""
    if first_step <= 0:
        return 0
    for row in journal.step_rows():
        if isinstance(row, ev.StepFinished) and row.step >= first_step - 1:
            return row.seq - 1
        if isinstance(row, ev.RunStarted) and (row.resumed_from or 0) >= first_step:
            return row.seq - 1
    return 0


def _captured(run_dir: Path | str, first_step: int) -> list[tuple[TrialPlace, int]]:
    """The tries that there are files of: a power failure may have taken what the journal said of them."""
    places = [place_of_file(path.name) for path in trial_files(run_dir)]
    places += [place_of(key) for key, _, _ in earlier_trial_files(run_dir)]
    return [(place[:3], place[3]) for place in places if place is not None and place[0] >= first_step]


class _Reader:
    """Takes the events of a journal in order."""

    def __init__(self, first_step: int) -> None:
        self.batches = Batches(first_step=first_step)
        self._first = first_step
        self._open: Opening | None = None
        self._asked: dict[str, tuple[int, str]] = {}

    def tried(self, place: TrialPlace, try_: int) -> None:
        tries = self.batches.next_try
        tries[place] = max(tries.get(place, 0), try_ + 1)

    def take(self, event: ev.Event) -> None:
        match event:
            case ev.RunStarted():
                self._open, self._asked = None, {}
            case ev.StepStarted():
                self._step_started(event)
            case ev.StepFinished():
                self._step_finished(event)
            case ev.GroupStarted() if self._is_open(event.step):
                self._groups[event.group] = OpenedGroup(task=event.task, size=event.size)
            case ev.GroupFinished() if self._is_open(event.step) and event.group in self._groups:
                self._group_finished(self._groups[event.group], event)
            case ev.TrialPhase() | ev.TrialHeld() | ev.TrialRetried() if event.step >= self._first:
                self.tried((event.step, event.group, event.trial), event.try_)
            case ev.TrialFinished() if event.step >= self._first:
                self._trial_finished(event)
            case ev.RunPhase(phase="training") if self._open is not None:
                self._open.trained = event.ts
            case ev.CaptureStats() if self._open is not None:
                self._open.counted = self._open.trained is not None
            case ev.CheckpointSaved() if event.path:
                self.batches.saved[event.path] = event
            case ev.CommandRequested() | ev.CommandAccepted() | ev.CommandFinished():
                self._command(event)

    @property
    def _groups(self) -> dict[int, OpenedGroup]:
        assert self._open is not None
        return self._open.groups

    def _is_open(self, step: int) -> bool:
        return self._open is not None and self._open.step == step

    def _step_started(self, event: ev.StepStarted) -> None:
        self._open, self._asked = None, {}
        if event.step < self._first:
            return
        self._open = Opening(
            step=event.step, size=event.groups, weights=event.weights, policy_version=event.policy_version,
            started=event.ts,
        )  # fmt: skip
        self.batches.openings.append(self._open)
        self.batches.recovered.pop(event.step, None)

    def _step_finished(self, event: ev.StepFinished) -> None:
        if event.step < self._first:
            return
        if event.recovered:
            self.batches.recovered[event.step] = event
        elif self._open is not None and self._open.step == event.step:
            self._open.finished, self._open = event, None

    def _group_finished(self, group: OpenedGroup, event: ev.GroupFinished) -> None:
        group.ended = event
        if _says_cancelled(event):
            group.cancelled_by = event.reason.removeprefix(CANCELLED_BY)

    def _trial_finished(self, event: ev.TrialFinished) -> None:
        self.tried((event.step, event.group, event.trial), event.try_)
        if self._is_open(event.step) and event.group in self._groups:
            group = self._groups[event.group]
            if 0 <= event.trial < group.size:
                group.ends[event.trial] = event

    def _command(self, event: ev.CommandRequested | ev.CommandAccepted | ev.CommandFinished) -> None:
        """A group that an operator cancels is cancelled from the moment at which the engine took that on."""
        if isinstance(event, ev.CommandRequested):
            group = event.args.get("group")
            if event.command == "cancel_group" and isinstance(group, int) and self._open is not None:
                self._asked[event.id] = (group, event.author or "operator")
            return
        group, by = self._asked.get(event.id, (-1, ""))
        found = self._open.groups.get(group) if self._open is not None else None
        if found is None:
            return
        if isinstance(event, ev.CommandAccepted):
            found.cancelled_by = found.cancelled_by or by
        elif event.status == "refused" and not (found.ended is not None and _says_cancelled(found.ended)):
            found.cancelled_by = ""


def _says_cancelled(event: ev.GroupFinished) -> bool:
    return not event.kept and event.reason.startswith(CANCELLED_BY)
