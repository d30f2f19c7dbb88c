"""Whether a job's lock matches what is planned, made out from the files without Harbor."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from console.bench.resume.comparing import differences, plain
from console.bench.resume.model import Refusal
from console.bench.resume.versions import Habits
from console.records.harbor.config import task_name
from console.records.harbor.values import table, text

PAIRS = 3
MISMATCH = "lock.json does not match the job as it is planned now"


def check_lock(
    config: dict[str, Any],
    trials: Sequence[dict[str, Any]],
    lock: dict[str, Any],
    habits: Habits,
    digests: Mapping[str, str],
) -> Refusal | None:
    """Why the lock would stop the job, None when it matches as far as the files tell.

    Args:
        config: the job's; trials: configuration of every trial, those that stand as they were recorded, without
            defaults; lock: as parsed; digests: of local tasks by their path as written.
    """
    if habits.lock_schema is None:
        return None
    differs = []
    schema = lock.get("schema_version")
    if schema != habits.lock_schema:
        differs.append(f"schema_version: {json.dumps(schema)} -> {habits.lock_schema}")
    concurrent = config.get("n_concurrent_trials", table(config.get("orchestrator")).get("n_concurrent_trials", 4))
    if lock.get("n_concurrent_trials") != concurrent:
        differs.append(f"n_concurrent_trials: {json.dumps(lock.get('n_concurrent_trials'))} -> {concurrent}")
    retry = with_unretried(table(config.get("retry", table(config.get("orchestrator")).get("retry"))), habits)
    recorded = with_unretried(table(lock.get("retry")), habits)
    differs += differences(plain(recorded), plain(retry), "retry")
    differs += _trials(trials, lock, habits, digests)
    if not differs:
        return None
    return Refusal(stage="run", error="FileExistsError", why=MISMATCH, differs=tuple(differs))


def with_unretried(retry: dict[str, Any], habits: Habits) -> dict[str, Any]:
    """How often trials are tried, with the exceptions that the version leaves out when the job names none."""
    return {"exclude_exceptions": list(habits.unretried)} | retry


def _trials(
    trials: Sequence[dict[str, Any]], lock: dict[str, Any], habits: Habits, digests: Mapping[str, str]
) -> list[str]:
    recorded = [each for each in lock.get("trials") or () if isinstance(each, dict)]
    differs = []
    if len(recorded) != len(trials):
        differs.append(f"trials: {len(recorded)} -> {len(trials)}")
    planned = [(_name(table(trial.get("task"))), _locked(trial, habits)) for trial in trials]
    mine = [(_short(text(table(each.get("task")).get("name"))), _locked(each, habits)) for each in recorded]
    left, new = _apart(mine, planned)
    for name, one in left[:PAIRS]:
        other = next((other for found, other in new if found == name), None)
        if other is None:
            differs.append(f"task {name}: recorded -> not planned")
        else:
            differs += differences(one, other, name)
    by_name = {_short(text(table(each.get("task")).get("name"))): table(each.get("task")) for each in recorded}
    for path, digest in digests.items():
        before = by_name.get(Path(path).name)
        if before is not None and text(before.get("digest")) not in ("", digest):
            differs.append(f"task {Path(path).name}: its files are not those that were recorded")
    return differs


def _locked(trial: dict[str, Any], habits: Habits) -> dict[str, Any]:
    found: dict[str, Any] = plain({key: trial[key] for key in habits.locked if key in trial})
    agent, environment, verifier = (dict(table(found.get(key))) for key in ("agent", "environment", "verifier"))
    agent.pop("skills", None)
    environment.pop("extra_docker_compose", None)
    verifier.pop("environment_mode", None)
    kept = {**found, "agent": agent, "environment": environment, "verifier": verifier}
    result: dict[str, Any] = plain(kept)
    return result


def _apart(
    one: list[tuple[str, dict[str, Any]]], other: list[tuple[str, dict[str, Any]]]
) -> tuple[list[tuple[str, dict[str, Any]]], list[tuple[str, dict[str, Any]]]]:
    """What has no equal on the other side."""
    mine, theirs = Counter(map(_key, one)), Counter(map(_key, other))
    return _take(one, mine - theirs), _take(other, theirs - mine)


def _take(items: list[tuple[str, dict[str, Any]]], counted: Counter[str]) -> list[tuple[str, dict[str, Any]]]:
    taken = []
    for item in items:
        if counted[_key(item)] > 0:
            counted[_key(item)] -= 1
            taken.append(item)
    return taken


def _key(item: tuple[str, dict[str, Any]]) -> str:
    return json.dumps(item, sort_keys=True, default=str)


def _name(task: dict[str, Any]) -> str:
    return _short(task_name(task))


def _short(name: str) -> str:
    return name.rsplit("/", 1)[-1]
