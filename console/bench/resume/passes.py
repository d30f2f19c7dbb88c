"""What Harbor does with the directories of a job, in its own order: filter, scan, match."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from console.bench.resume.asking import Answer
from console.bench.resume.comparing import differences
from console.bench.resume.model import Directory, Fate, Planned, Reason, Refusal
from console.bench.resume.planning import Plan, trial_plain
from console.bench.resume.reading import Entry
from console.bench.resume.versions import Habits
from console.records.harbor.config import task_name
from console.records.harbor.files import shown
from console.records.harbor.values import table, text

_MISMATCH = "Existing trial config does not match planned job config."
_UNREAD = {"empty": "is empty", "corrupt": "cannot be parsed", "unreadable": "cannot be read"}
_REASONS: dict[str, Reason] = {
    "empty": "empty_result",
    "corrupt": "corrupt_result",
    "unreadable": "unreadable",
}
_BECAUSE: dict[Reason, str] = {
    "filtered": "deleted by the filter",
    "no_result": "deleted for want of a result",
    "empty_result": "an empty result",
    "corrupt_result": "a result that cannot be parsed",
    "unreadable": "a result that cannot be read",
}


class Slot(msgspec.Struct, frozen=True):
    """A planned trial as it is told: task, agent and model."""

    task: str
    agent: str
    model: str


class Passes:
    """The directories of a job and what becomes of each; every step returns why Harbor would stop in it, or None."""

    def __init__(self, entries: Sequence[Entry], habits: Habits) -> None:
        self.entries = entries
        self.habits = habits
        self.existing: list[Entry] = []
        self.matched: dict[str, int] = {}
        self._fates: dict[str, tuple[Fate, Reason]] = {}
        self._filter: tuple[str, ...] = ()

    def filter(self, types: Sequence[str]) -> Refusal | None:
        """`harbor job resume` deletes trials by their exception before anything else."""
        if not types:
            return None
        self._filter = tuple(types)
        for entry in self.entries:
            stop = self._intolerant(entry, "start")
            if stop:
                return stop
            if entry.state == "read" and entry.exception in types:
                if entry.link:
                    return _link(entry, "start")
                self._fates[entry.name] = ("deleted", "filtered")
        return None

    def scan(self, answer: Answer | None) -> Refusal | None:
        """A job that goes on deletes every directory without result.json and reads the others."""
        for entry in self.entries:
            if entry.name in self._fates:
                continue
            if entry.state == "none":
                if entry.link:
                    return _link(entry, "plan")
                self._fates[entry.name] = ("deleted", "no_result" if entry.trial else "not_a_trial")
                continue
            stop = self._intolerant(entry, "plan")
            if stop:
                return stop
            if entry.state != "read":
                self._fates[entry.name] = ("left", _REASONS[entry.state])
                continue
            problem = answer.trial_problems.get(entry.name) if answer else None
            if problem or (answer is None and entry.config is None):
                said = problem.why if problem else "it is missing, or no JSON object"
                error = problem.error if problem else "FileNotFoundError"
                return Refusal(stage="plan", error=error, why=f"config.json of {shown(entry.name)}: {said}")
            self.existing.append(entry)
        return None

    def _intolerant(self, entry: Entry, stage: str) -> Refusal | None:
        if self.habits.tolerant or entry.state not in _UNREAD:
            return None
        why = f"result.json of {shown(entry.name)} {_UNREAD[entry.state]}; Harbor before 0.16 stops at it"
        error = "ValidationError"
        if entry.state == "unreadable":
            error = "PermissionError" if entry.unsure else "UnicodeDecodeError"
        return Refusal(stage="start" if stage == "start" else "plan", error=error, why=why)

    def match_asked(self, answer: Answer) -> Refusal | None:
        """The trials that stand, as Harbor itself matched them."""
        self.matched = dict(answer.matched)
        for name in self.matched:
            self._fates[name] = ("kept", "matched")
        for name in answer.duplicates:
            self._fates[name] = ("left", "duplicate")
        for name in answer.differing:
            self._fates[name] = ("left", "differs")
        if not answer.duplicates and not answer.differing:
            return None
        pairs = [
            (name, differences(one, other) if planned else [f"task {_task_of(one)}: recorded -> not planned"])
            for name, (one, other, planned) in answer.pairs.items()
        ]
        return _mismatch(answer.duplicates, answer.differing, pairs)

    def match(self, plan: Plan, trials_dir: str) -> Refusal | None:
        """The trials that stand, as far as the files tell. `trials_dir`: where planned trials would lie, "" for any."""
        recorded = {entry.name: self._recorded(entry, bool(trials_dir)) for entry in self.existing}
        free: dict[str, list[str]] = {}
        for name, config in recorded.items():
            free.setdefault(_key(config), []).append(name)
        planned = [item.config | ({"trials_dir": trials_dir} if trials_dir else {}) for item in plan.items]
        keys = [_key(config) for config in planned]
        for at, key in enumerate(keys):
            if free.get(key):
                self.matched[free[key].pop(0)] = at
        for name in self.matched:
            self._fates[name] = ("kept", "matched")
        kinds = set(keys)
        left = [(name, key in kinds) for key, names in free.items() for name in names]
        for name, kind in left:
            self._fates[name] = ("left", "duplicate" if kind else "differs")
        differing = [name for name, kind in left if not kind]
        if not left:
            return None
        pairs = [(name, _nearest(recorded[name], planned)) for name in differing[:5]]
        return _mismatch([name for name, kind in left if kind], differing, pairs)

    def _recorded(self, entry: Entry, located: bool) -> dict[str, Any]:
        config = entry.config or {}
        where = {"trials_dir": text(config.get("trials_dir"), 4096) or "trials"} if located else {}
        return trial_plain(config, self.habits) | where

    def runs(self, slots: Sequence[Slot], why: str = "") -> tuple[Planned, ...]:
        """What remains to be run, a task and agent in one, with the directories whose place is taken."""
        taken = set(self.matched.values())
        open_slots = Counter(slot for at, slot in enumerate(slots) if at not in taken)
        fates = [(entry, self._fates[entry.name][1]) for entry in self.entries if entry.name in self._fates]
        replaced = [(entry, reason) for entry, reason in fates if entry.trial and reason in _BECAUSE]
        found = []
        for slot in dict.fromkeys(slots):
            trials = open_slots[slot]
            if not trials:
                continue
            mine = [] if why else [(entry, reason) for entry, reason in replaced if _takes(slot, entry)][:trials]
            replaced = [pair for pair in replaced if pair not in mine]
            found.append(
                Planned(
                    task=slot.task,
                    agent=slot.agent,
                    model=slot.model,
                    trials=trials,
                    directories=tuple(entry.name for entry, _ in mine),
                    why=why or _reasons(trials, mine),
                )
            )
        return tuple(found)

    def directories(self) -> tuple[Directory, ...]:
        """Every directory with its fate, by name."""
        return tuple(self._directory(entry) for entry in sorted(self.entries, key=lambda entry: entry.name))

    def _directory(self, entry: Entry) -> Directory:
        fate, reason = self._fates.get(entry.name, ("left", "not_reached"))
        filtered = entry.exception in self._filter
        return Directory(
            name=entry.name,
            fate=fate,
            reason=reason,
            task=entry.task,
            exception=entry.exception,
            finished=entry.state == "read" and entry.trial and not filtered,
        )


def slots_of(plan: Plan) -> list[Slot]:
    """The planned trials as they are told."""
    found = []
    for item in plan.items:
        agent = table(item.config.get("agent"))
        name = text(agent.get("name")) or text(agent.get("import_path")) or "oracle"
        found.append(Slot(task_name(item.task), name, text(agent.get("model_name"))))
    return found


def _link(entry: Entry, stage: str) -> Refusal:
    why = f"{shown(entry.name)} is a link to a directory, which Harbor cannot delete"
    return Refusal(stage="start" if stage == "start" else "plan", error="OSError", why=why)


def _mismatch(duplicates: Sequence[str], differing: Sequence[str], pairs: Iterable[tuple[str, list[str]]]) -> Refusal:
    differs = [f"{shown(name)}: one trial more of its task than the job has" for name in duplicates[:5]]
    said: dict[tuple[str, ...], list[str]] = {}
    for name, lines in pairs:
        said.setdefault(tuple(lines), []).append(name)
    for told, names in said.items():
        prefix = f"{shown(names[0])}: " if len(differing) == 1 else ""
        differs += [f"{prefix}{line}" for line in told]
    return Refusal(stage="plan", error="ValueError", why=_MISMATCH, differs=tuple(differs))


def _nearest(recorded: dict[str, Any], planned: Sequence[dict[str, Any]]) -> list[str]:
    of_task = [config for config in planned if config.get("task") == recorded.get("task")]
    if not of_task:
        return [f"task {_task_of(recorded)}: recorded -> not planned"]
    agent = table(recorded.get("agent"))

    def far(config: dict[str, Any]) -> bool:
        other = table(config.get("agent"))
        return (other.get("name"), other.get("import_path")) != (agent.get("name"), agent.get("import_path"))

    return differences(recorded, min(of_task, key=far))


def _task_of(config: dict[str, Any]) -> str:
    return shown(task_name(table(config.get("task"))))


def _takes(slot: Slot, entry: Entry) -> bool:
    same = entry.task.rsplit("/", 1)[-1] == slot.task.rsplit("/", 1)[-1]
    return same and entry.agent in ("", slot.agent)


def _reasons(trials: int, mine: Sequence[tuple[Entry, Reason]]) -> str:
    """Of what became of the trials whose place is taken."""
    counted = Counter(
        f"{_BECAUSE[reason]} ({entry.exception})" if reason == "filtered" else _BECAUSE[reason]
        for entry, reason in mine
    )
    never = trials - len(mine)
    if never:
        counted["never finished"] = never
    parts = counted.items()
    return ", ".join(said if len(parts) == 1 else f"{number} {said}" for said, number in parts)


def _key(config: dict[str, Any]) -> str:
    return json.dumps(config, sort_keys=True, default=str)
