"""Which agent a trial without a result is of.

Only a result tells an agent's own name. A configuration may name its class instead, `module:Class`, so that a trial
that was cut off would count as one of another agent. It belongs to the agent of the finished trials that were
configured alike: those of its own job, else those of the jobs that are read with it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from console.records.harbor.model import TrialRecord

type Finished = Callable[[Path], Iterator[TrialRecord]]
"""The records of a job's trials that have a result, in an order that stays the same."""


class _Name(NamedTuple):
    """What results tell: the agent's own name, and its model as the trial's record has it."""

    agent: str
    model: str


class _Known:
    """What the finished trials of one job tell of how its agents were configured. Reads no more of them than needed."""

    def __init__(self, trials: Iterator[TrialRecord]) -> None:
        self._trials = trials
        self._whole: dict[tuple[object, ...], _Name] = {}
        self.alike: dict[tuple[str, str], set[_Name]] = defaultdict(set)
        self.classes: dict[str, set[str]] = defaultdict(set)

    def whole(self, trial: TrialRecord) -> _Name | None:
        """The name of an agent that was configured the same in everything; without one all trials have been read."""
        wanted = _key(trial)
        while wanted not in self._whole:
            found = next(self._trials, None)
            if found is None:
                return None
            if not found.problem and any(found.configured):
                name = _Name(found.agent, found.model)
                self._whole.setdefault(_key(found), name)
                self.alike[found.configured].add(name)
                self.classes[found.configured[0]].add(found.agent)
        return self._whole[wanted]


class AgentNames:
    """Names the agents of trials without a result. Use for one set of jobs that are read together."""

    def __init__(self, jobs: Sequence[Path], finished: Finished) -> None:
        """`jobs`: their directories, in the order in which they are asked for a name."""
        self._jobs, self._finished = jobs, finished
        self._known: dict[Path, _Known] = {}
        self._settled: dict[tuple[Path, tuple[object, ...]], _Name | None] = {}

    def named(self, trial: TrialRecord) -> TrialRecord:
        """The record with its agent's own name and model, as far as finished trials tell them."""
        if not trial.problem or not trial.configured[0] or (":" not in trial.configured[0] and trial.model):
            return trial
        key = trial.job, _key(trial)
        if key not in self._settled:
            self._settled[key] = self._find(trial)
        name = self._settled[key]
        if name is None:
            return trial
        return msgspec.structs.replace(trial, agent=name.agent or trial.agent, model=trial.model or name.model)

    def _find(self, trial: TrialRecord) -> _Name | None:
        """By everything that was configured, then by name and model, then by the class alone; its own job first."""
        order = [trial.job, *(job for job in self._jobs if job != trial.job)]
        for job in order:
            found = self._of(job).whole(trial)
            if found is not None:
                return found
        for places in ([trial.job], order):
            alike = set[_Name]().union(*(self._of(job).alike.get(trial.configured, ()) for job in places))
            if len(alike) == 1:
                return next(iter(alike))
        for places in ([trial.job], order):
            classes = set[str]().union(*(self._of(job).classes.get(trial.configured[0], ()) for job in places))
            if len(classes) == 1:
                return _Name(next(iter(classes)), trial.model)
        return None

    def _of(self, job: Path) -> _Known:
        if job not in self._known:
            self._known[job] = _Known(self._finished(job))
        return self._known[job]


def _key(trial: TrialRecord) -> tuple[object, ...]:
    """Everything that was configured of an agent, as something that can be compared."""
    options = tuple((name, repr(trial.agent_kwargs[name])) for name in sorted(trial.agent_kwargs))
    return trial.configured, options, trial.agent_env_names
