"""One side of a comparison: what its trials scored by each accounting mode, and how it was run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import NamedTuple

import msgspec

from console.bench.rows import Row
from console.records.harbor.model import JobRecord

type Count = Callable[[Row], tuple[float | None, str]]
"""What a mode makes of a trial: its score and "", or None and why it is not counted."""

_VALUES = 4
_NOTHING = "not recorded"
_ENDPOINT = frozenset(f"agent option {name}" for name in ("api_base", "base_url", "endpoint", "api_url"))
_PLACES = ("sandbox ", "agent option ")
"""Settings with a name behind them, which one side may not have at all."""


class Attempt(NamedTuple):
    """A trial: its directory, and a score or None with a reason for each mode, in the order of the side's modes."""

    path: str
    outcome: str
    scores: tuple[float | None, ...]
    reasons: tuple[str, ...]


_WEIGHTY = {
    "dataset": "different tasks, even where their names agree",
    "agent time-out": "the agents had different time for the same task",
    "timeout multiplier": "the agents had different time for the same task",
    "agent version": "the agent itself differs",
    "agent option": "thinking, limits or prompts may differ",
    "sandbox": "the agents had different machines",
    "environment": "sandboxes of another kind have other failures and another speed",
    "Harbor version": "agents, time-outs and error rules move between Harbor's versions",
    "task checksum": "the task itself differs: its text, its tests or its limits",
}
"""What may move the score, and how."""
_LIGHT = {
    "endpoint": "an address may change between runs; whether it serves the same model is not known",
    "concurrency": "a crowded run loses more trials to infrastructure and to the clock",
    "attempts a task": "the mean of more attempts is less noisy",
}


class Side:
    """Collects trials that were judged. `modes`: name to rule; memory is one `Attempt` a trial.

    Attributes:
        label: what it is called, a letter; name: whose run it is, in words; jobs: its directories.
        groups: (agent, model) to number of trials; trials: all of them; tasks: short name to its attempts.
        settings: name to how often each value occurs; by_task: the same of what belongs to a task: its checksum, its
            agent's time-out.
    """

    def __init__(self, label: str, modes: Mapping[str, Count]) -> None:
        self.label = label
        self.name = ""
        self.jobs: tuple[str, ...] = ()
        self.groups: Counter[tuple[str, str]] = Counter()
        self.tasks: dict[str, list[Attempt]] = {}
        self.settings: dict[str, Counter[str]] = {}
        self.by_task: dict[str, dict[str, set[str]]] = {"task checksum": {}, "agent time-out": {}}
        self.trials = 0
        self._modes = dict(modes)

    @property
    def modes(self) -> list[str]:
        """Their names, in the order of an attempt's scores."""
        return list(self._modes)

    def add(self, row: Row) -> None:
        """A trial. One whose task no file tells is counted, and belongs to no task."""
        self.trials += 1
        if not row.task:
            return
        counted = [rule(row) for rule in self._modes.values()]
        scores, reasons = tuple(score for score, _ in counted), tuple(why for _, why in counted)
        self.tasks.setdefault(row.task, []).append(Attempt(row.path, row.kind, scores, reasons))
        if row.group.agent or row.group.model:
            self.groups[row.group.agent, row.group.model] += 1
        if row.checksum:
            self.by_task["task checksum"].setdefault(row.task, set()).add(row.checksum)
        if row.agent_timeout is not None:
            self.by_task["agent time-out"].setdefault(row.task, set()).add(f"{row.agent_timeout:g} s")
        self._note("dataset", row.group.dataset)
        for name, value in row.setting.values:
            self._note(name, value)

    def add_job(self, job: JobRecord) -> None:
        """What only a job tells."""
        if job.concurrent is not None:
            self._note("concurrency", str(job.concurrent))

    def _note(self, name: str, value: str) -> None:
        self.settings.setdefault(name, Counter())[value or _NOTHING] += 1

    def values(self, name: str) -> list[str]:
        """The values of a setting, the most frequent first; `not recorded` where it is missing."""
        return [value for value, _ in self.settings.get(name, Counter({_NOTHING: 1})).most_common(_VALUES)]

    def attempts(self) -> tuple[int, int]:
        """Fewest and most trials of a task, 0 and 0 without one."""
        counts = [len(found) for found in self.tasks.values()]
        return min(counts, default=0), max(counts, default=0)

    def counted(self, mode: str) -> dict[str, list[tuple[float, Attempt]]]:
        """The tasks of which an attempt counts in this mode, with the scores of those that do."""
        at = self.modes.index(mode)
        found = {
            task: [(score, one) for one in attempts if (score := one.scores[at]) is not None]
            for task, attempts in self.tasks.items()
        }
        return {task: counted for task, counted in found.items() if counted}

    def why_not(self, task: str, mode: str) -> str:
        """Why no attempt of a task counts: the most frequent reason; `no trial of it` where there is none."""
        at = self.modes.index(mode)
        reasons = Counter(one.reasons[at] for one in self.tasks.get(task, ()))
        return reasons.most_common(1)[0][0] if reasons else "no trial of it"


class Difference(msgspec.Struct, frozen=True, kw_only=True):
    """A setting in which two sides differ.

    Attributes:
        name: of the setting; a, b: values of each side, the most frequent first; tasks: how many tasks it concerns,
            0 where it is the run's.
        weighty: it may move the score; why: in words.
    """

    name: str
    a: list[str]
    b: list[str]
    tasks: int = 0
    weighty: bool = True
    why: str = ""


def differences(a: Side, b: Side) -> list[Difference]:
    """Every setting whose values differ between two sides, those that may move the score first.

    An option or size that only one side has is a difference; a version that only one side records is none, because
    older versions of Harbor do not write it.
    """
    found = []
    for name in sorted({*a.settings, *b.settings}):
        if a.settings.get(name, {}).keys() == b.settings.get(name, {}).keys():
            continue
        first, second = a.values(name), b.values(name)
        if not name.startswith(_PLACES) and [_NOTHING] in (first, second):
            continue
        if name == "agent version" and _agents(a) != _agents(b):
            continue  # versions of two agents are not to be compared
        found.append(_difference(name, first, second))
    found += _of_tasks(a, b)
    most = [side.attempts()[1] for side in (a, b)]
    if most[0] != most[1]:
        found.append(_difference("attempts a task", [str(most[0])], [str(most[1])]))
    return sorted(found, key=lambda one: not one.weighty)


def _of_tasks(a: Side, b: Side) -> list[Difference]:
    found = []
    for name in a.by_task:
        mine, other = a.by_task[name], b.by_task[name]
        unlike = sorted(task for task in mine if task in other and mine[task] != other[task])
        if unlike:
            values = [sorted({f"{value:.12}" for task in unlike for value in side[task]}) for side in (mine, other)]
            found.append(_difference(name, values[0][:_VALUES], values[1][:_VALUES], tasks=len(unlike)))
    return found


def _difference(name: str, a: list[str], b: list[str], tasks: int = 0) -> Difference:
    kind = (
        "endpoint" if name in _ENDPOINT else next((place.strip() for place in _PLACES if name.startswith(place)), name)
    )
    weighty = kind not in _LIGHT
    why = _WEIGHTY.get(kind, "it may move the score") if weighty else _LIGHT[kind]
    return Difference(name=name, a=a, b=b, tasks=tasks, weighty=weighty, why=why)


def _agents(side: Side) -> set[str]:
    return {agent for agent, _ in side.groups}
