"""The attempts of one task, and which of the tries of an attempt stands for it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import msgspec

from console.bench.lineage import trial_name
from console.bench.rows import Row
from console.outcomes.classes import SCORED, OutcomeClass

RULES: dict[str, str] = {
    "latest-valid": "of the tries of an attempt the latest that says something about the agent (scored, or the "
    "agent's own failure), else the latest",
    "latest": "of the tries of an attempt the latest, also where it is an infrastructure failure",
    "first-graded": "of the tries of an attempt the first that was graded, else as latest-valid; nothing graded is "
    "replaced",
    "repeats": "every job without a lineage file is a repeat of its own; only a mop-up that names its parent "
    "replaces tries, by latest-valid",
}
"""Name to rule. A try is latest by the end that its result tells; one without such an end ranks last."""

VALID = SCORED | {OutcomeClass.AGENT_FAILURE}
"""Classes that say something about the agent: an attempt that has one needs no further try."""


class Attempt(msgspec.Struct):
    """One attempt: its tries in the order in which their jobs began."""

    tries: list[Row]

    @property
    def valid(self) -> bool:
        """Whether one of its tries says something about the agent."""
        return any(row.outcome in VALID for row in self.tries)

    @property
    def need(self) -> int:
        """How much it needs a further try: 0 nothing valid, 1 ended by a limit or the agent's failure, 2 not at all."""
        if not self.valid:
            return 0
        return 2 if choose(self.tries, "latest-valid").outcome is OutcomeClass.COMPLETED else 1


class Placed(msgspec.Struct):
    """What became of a job's trials of one task: attempts opened, tries put onto attempts that were valid before, and
    readable trials beyond the planned number."""

    opened: int = 0
    again: list[Attempt] = []
    surplus: list[Row] = []


class TaskAttempts:
    """The attempts of one task of one identity, filled job by job."""

    def __init__(self) -> None:
        self.attempts: list[Attempt] = []
        self._planned = 0

    def place(
        self,
        rows: Iterable[Row],
        planned: int | None,
        per_task: int | None,
        most: int | None = None,
        chosen: Sequence[str] = (),
    ) -> Placed:
        """Adds a job's trials of the task.

        Each trial of one job is an attempt of its own: Harbor's repeats are samples. They go, in order of time and at
        most one to an attempt, first to attempts without a valid try, then to attempts that were planned and left
        nothing on disk, then to those that a limit or the agent's failure ended, then to completed ones, and what is
        left opens attempts.

        Args:
            rows: the job's trials of the task.
            planned: how many the job meant to run of it; what exceeds that and cannot be read is an earlier try of
                the others, as a resume leaves it behind. None when unknown.
            per_task: attempts that the first job planned of each task, None when unknown.
            most: of a job that only repeats what another planned, how many attempts of each task that one did: there
                are never more of them, and what is left is a further try. None for any other job.
            chosen: of a job that tells which attempts it is for, a trial of each (`lineage.trial_name`), "" for one
                that left nothing on disk: its trials go to these first, in their order, whatever others need.
        """
        units, surplus = _units(sorted(rows, key=_start), planned)
        self._planned = max(self._planned, per_task or 0, most or 0)
        found = Placed(surplus=surplus)
        waiting = sorted(self.attempts, key=lambda attempt: attempt.need)  # stable: by number within a need
        gaps = max(0, self._planned - len(self.attempts))
        needy = [attempt for attempt in waiting if attempt.need == 0]
        usual: list[Attempt | None] = [*needy, *[None] * gaps, *(a for a in waiting if a.need)]
        places = self._meant(chosen, len(units) if most is None else min(len(units), gaps)) if chosen else []
        taken = {id(place) for place in places if place is not None}
        opening = sum(place is None for place in places)
        for place in usual:
            if place is None and opening:
                opening -= 1  # a gap that a chosen attempt has taken
            elif place is None or id(place) not in taken:
                places.append(place)
        for index, unit in enumerate(units):
            place = places[index] if index < len(places) else None
            if place is None and most and len(self.attempts) >= self._planned:
                place = min(self.attempts, key=lambda attempt: (attempt.need, len(attempt.tries)))
            if place is None:
                self.attempts.append(Attempt(tries=unit))
                found.opened += 1
                continue
            if place.valid:
                found.again.append(place)
            place.tries.extend(unit)
        return found

    def _meant(self, chosen: Sequence[str], most: int) -> list[Attempt | None]:
        """The attempts of which these trials are, each once, then None for those without a trial, `most` of these.

        The trials of several agents may stand in one list: those that are not of this task and identity are passed
        over, and what is None for another agent comes after all that is this one's own.
        """
        known = {trial_name(row.path): attempt for attempt in self.attempts for row in attempt.tries}
        named = {id(known[name]): known[name] for name in chosen if name in known}
        return [*named.values(), *[None] * min(most, sum(not name for name in chosen))]


def choose(tries: list[Row], rule: str) -> Row:
    """The try that stands for the attempt, by one of `RULES`. Of equal ends the later in `tries` is taken."""
    if rule == "first-graded":
        graded = [row for row in tries if row.outcome in SCORED or (row.outcome in VALID and row.reward is not None)]
        if graded:
            return min(graded, key=lambda row: (not row.ended_surely, *_end(row)))
    pool = tries
    if rule != "latest":
        pool = [row for row in tries if row.outcome in VALID] or tries
    return max(reversed(pool), key=lambda row: (row.ended_surely, *_end(row)))


def tied(tries: list[Row], chosen: Row) -> bool:
    """Whether another valid try, or another of an attempt without one, ended at the same time as the chosen one."""
    rank = chosen.outcome in VALID
    return any(
        row is not chosen
        and (row.outcome in VALID) == rank
        and (row.ended_surely, row.ended) == (chosen.ended_surely, chosen.ended)
        for row in tries
    )


def _units(rows: list[Row], planned: int | None) -> tuple[list[list[Row]], list[Row]]:
    """The trials of one job and task as new tries, each a list of rows; and those that exceed the plan."""
    if planned is None or len(rows) <= planned:
        return [[row] for row in rows], []
    readable = [row for row in rows if row.outcome is not OutcomeClass.UNREADABLE]
    units = [[row] for row in readable]
    left = [row for row in rows if row.outcome is OutcomeClass.UNREADABLE]
    while left and len(units) < planned:
        units.append([left.pop()])
    for index, row in enumerate(left):
        if units:
            units[index % len(units)].insert(0, row)
        else:
            units.append([row])
    return units, readable[planned:]


def _start(row: Row) -> tuple[float, str]:
    return math.inf if row.began is None else row.began, row.path


def _end(row: Row) -> tuple[float]:
    return (-math.inf if row.ended is None else row.ended,)
