"""The trials that a job's configuration stands for, made out from the files without Harbor."""

from __future__ import annotations

import fnmatch
import json
import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec

from console.bench.resume.comparing import plain
from console.bench.resume.model import Refusal
from console.bench.resume.reading import Entry
from console.bench.resume.versions import Habits
from console.records.harbor.config import task_name
from console.records.harbor.files import shown, why
from console.records.harbor.values import count, table, text

MOST = 1_000_000
"""Trials of a plan that is still made out."""


class Item(msgspec.Struct, frozen=True, kw_only=True):
    """A planned trial: its task and its configuration, both without what is only a default."""

    task: dict[str, Any]
    config: dict[str, Any]


class Plan(msgspec.Struct, kw_only=True):
    """All planned trials in Harbor's order; `refusal` when Harbor would not plan any; `unsure`: one line each."""

    items: list[Item] = []
    refusal: Refusal | None = None
    unsure: list[str] = []


def local_datasets(config: dict[str, Any]) -> list[dict[str, Any]]:
    """Datasets that are a directory of tasks."""
    return [each for each in _tables(config.get("datasets")) if text(each.get("path")) and not each.get("repo")]


def remote_datasets(config: dict[str, Any]) -> list[dict[str, Any]]:
    """Datasets that only a registry or a repository knows."""
    return [each for each in _tables(config.get("datasets")) if not text(each.get("path")) or each.get("repo")]


def dataset_name(dataset: dict[str, Any]) -> str:
    """As it is written in a job."""
    return text(dataset.get("repo")) or text(dataset.get("name")) or text(dataset.get("path"))


def remote_tasks(config: dict[str, Any], entries: Iterable[Entry], lock: dict[str, Any] | None) -> list[dict[str, Any]]:
    """Tasks of datasets that lie elsewhere: as trials and lock recorded them, for nothing is asked of a network."""
    datasets = remote_datasets(config)
    if not datasets:
        return []
    own = [plain(task, "task") for task in _tables(config.get("tasks"))]
    local = {Path(text(each.get("path"))) for each in local_datasets(config)}
    found: dict[str, dict[str, Any]] = {}
    named: set[str] = set()
    for entry in entries:
        task = table(table(entry.config).get("task"))
        if not task or plain(task, "task") in own or (_is_local(task) and Path(text(task.get("path"))).parent in local):
            continue
        found.setdefault(json.dumps(plain(task, "task"), sort_keys=True, default=str), task)
        named.add(task_name(task))
    locked = [table(trial.get("task")) for trial in _tables(table(lock).get("trials"))]
    if locked:
        names = {_short(text(task.get("name"))) for task in locked}
        found = {key: task for key, task in found.items() if _short(task_name(task)) in names}
    have = {_short(name) for name in named} | {_short(task_name(task)) for task in own}
    for task in locked:
        name = text(task.get("name"))
        if name and _short(name) not in have and (task.get("type") in ("git", "package")):
            have.add(_short(name))
            found[name] = _unlocked(task)
    order = {_short(text(task.get("name"))): at for at, task in reversed(list(enumerate(locked)))}
    tasks = sorted(found.values(), key=lambda task: order.get(_short(task_name(task)), len(order)))
    return _filtered(tasks, datasets)


def _unlocked(task: dict[str, Any]) -> dict[str, Any]:
    """A trial's task out of its lock."""
    if task.get("type") == "package":
        return {"name": task.get("name"), "ref": task.get("digest"), "source": task.get("source")}
    keys = ("path", "git_url", "git_commit_id", "source")
    return {key: task.get(key) for key in keys if task.get(key) is not None}


def _filtered(tasks: list[dict[str, Any]], datasets: list[dict[str, Any]]) -> list[dict[str, Any]]:
    if len(datasets) != 1:
        return tasks
    return [task for task in tasks if _wanted(datasets[0], task_name(task))]


def _wanted(dataset: dict[str, Any], name: str) -> bool:
    include, exclude = dataset.get("task_names"), dataset.get("exclude_task_names")
    if include and not any(fnmatch.fnmatch(name, str(pattern)) for pattern in include):
        return False
    return not any(fnmatch.fnmatch(name, str(pattern)) for pattern in exclude or ())


def make_plan(config: dict[str, Any], cwd: Path, remote: list[dict[str, Any]], habits: Habits) -> Plan:
    """What would be planned by the configuration, typed in `cwd`. Local datasets are listed."""
    tasks = [plain(_with_path(task), "task") for task in _tables(config.get("tasks"))]
    told = False
    for dataset in _tables(config.get("datasets")):
        if dataset in remote_datasets(config):
            tasks += [] if told else [plain(task, "task") for task in remote]
            told = True
            continue
        found = _local_tasks(dataset, cwd, bool(table(config.get("verifier")).get("disable")))
        if isinstance(found, Refusal):
            return Plan(refusal=found)
        tasks += found
    if not tasks:
        return Plan(refusal=Refusal(stage="plan", error="ValueError", why="the job names no task and no dataset"))
    for task in tasks:
        path = text(task.get("path"))
        if path and "git_url" not in task and not (cwd / Path(path).expanduser()).exists():
            said = f"the task {shown(path)} is not there, seen from {shown(cwd)}"
            return Plan(refusal=Refusal(stage="plan", error="FileNotFoundError", why=said))
    agents = [plain(agent, "agent") for agent in _tables(config.get("agents")) or [{}]]
    attempts = count(config.get("n_attempts"), MOST) or 1
    shared = {key: plain(config[key], key) for key in habits.planned if key in config}
    shared = plain(shared)
    if attempts * len(tasks) * len(agents) > MOST:
        return Plan(unsure=[f"the job stands for more than {MOST:,} trials, which are not made out"])
    configs = [
        (task, shared | ({"agent": agent} if agent else {}) | {"task": task}) for task in tasks for agent in agents
    ]
    return Plan(items=[Item(task=task, config=each) for _ in range(attempts) for task, each in configs])


def trial_plain(config: dict[str, Any], habits: Habits) -> dict[str, Any]:
    """A trial's own configuration, as it is compared with a planned one; without where it lies."""
    kept = {key: config[key] for key in (*habits.planned, "agent", "source_trial") if key in config}
    return {**plain(kept), "task": plain(_with_path(table(config.get("task"))), "task")}


def _with_path(task: dict[str, Any]) -> dict[str, Any]:
    path = text(task.get("path"))
    return {**task, "path": str(Path(path))} if path else task


def _local_tasks(dataset: dict[str, Any], cwd: Path, unverified: bool) -> list[dict[str, Any]] | Refusal:
    written = Path(text(dataset.get("path")))
    root = cwd / written
    try:
        names = sorted(path.name for path in root.iterdir())
    except OSError as error:
        said = f"the dataset {shown(written)}, seen from {shown(cwd)}: {why(error)}"
        return Refusal(stage="plan", error=type(error).__name__, why=said)
    tasks = [name for name in names if _is_task(root / name, unverified) and _wanted(dataset, name)]
    if not tasks and dataset.get("task_names"):
        said = f"no task of the dataset {shown(written)} has a name that task_names asks for"
        return Refusal(stage="plan", error="ValueError", why=said)
    most = count(dataset.get("n_tasks"))
    source = root.expanduser().resolve().name
    return [{"path": str(written / name), "source": source} for name in tasks[:most]]


def _is_task(path: Path, unverified: bool) -> bool:
    """Nearly as Harbor sees it."""
    try:
        config = tomllib.loads((path / "task.toml").read_text())
    except (OSError, ValueError):
        return False
    if not table(config.get("environment")).get("docker_image") and not (path / "environment").is_dir():
        return False
    if config.get("steps"):
        return True
    return (path / "instruction.md").exists() and (unverified or (path / "tests").is_dir())


def _is_local(task: dict[str, Any]) -> bool:
    return bool(text(task.get("path"))) and not task.get("git_url")


def _tables(value: object) -> list[dict[str, Any]]:
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []


def _short(name: str) -> str:
    return name.rsplit("/", 1)[-1]
