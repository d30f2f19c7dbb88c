"""The configuration of a mop-up's job: its parent's, with the chosen tasks of the chosen agents alone."""

from __future__ import annotations

import copy
import os
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any

from console.bench.mop_up.source import TaskRef
from console.errors import UsageError
from console.records.harbor.files import shown


def job_config(
    base: Mapping[str, Any], path: Path, refs: Sequence[TaskRef], agents: Sequence[int], attempts: int
) -> dict[str, Any]:
    """The parent's configuration with these tasks of these agents alone. Raises UsageError for a task of nowhere."""
    config = copy.deepcopy(dict(base))
    config |= {"job_name": path.name, "jobs_dir": str(path.parent), "n_attempts": attempts}
    if isinstance(config.get("agents"), list) and config["agents"]:
        config["agents"] = [config["agents"][number] for number in agents]
    datasets = [each for each in config.get("datasets") or () if isinstance(each, dict)]
    tasks = [each for each in config.get("tasks") or () if isinstance(each, dict)]
    of_dataset: dict[int, list[TaskRef]] = defaultdict(list)
    alone: list[dict[str, Any]] = []
    for ref in refs:
        entry = next((task for task in tasks if _is_task(task, ref)), None)
        if entry is not None:
            alone.append(entry)
            continue
        number = next((number for number, each in enumerate(datasets) if _is_of(each, ref)), None)
        if number is None and len(datasets) == 1:
            number = 0
        if number is None:
            raise UsageError(
                f"{shown(ref.word)}: which dataset of the job it is of, its files do not tell; leave it out with "
                f"--except {shown(ref.word)}"
            )
        of_dataset[number].append(ref)
    config["tasks"] = alone
    config["datasets"] = [_dataset(datasets[number], of_dataset[number]) for number in sorted(of_dataset)]
    return config


def _is_task(task: Mapping[str, Any], ref: TaskRef) -> bool:
    """Whether a task that the configuration names by itself is this one."""
    if ref.source and task.get("source") != ref.source:
        return False
    if ref.name:
        return task.get("name") == ref.name
    path = task.get("path")
    return isinstance(path, str) and PurePosixPath(os.path.normpath(path)).name == ref.word


def _is_of(dataset: Mapping[str, Any], ref: TaskRef) -> bool:
    """Whether a task came from this dataset, as far as the names tell."""
    if dataset.get("repo"):
        return bool(ref.git_url) and (not dataset.get("name") or dataset.get("name") == ref.source)
    path = dataset.get("path")
    if isinstance(path, str):
        return not ref.git_url and PurePosixPath(os.path.normpath(path)).name == ref.source
    return dataset.get("name") == ref.source


def _dataset(dataset: Mapping[str, Any], refs: Sequence[TaskRef]) -> dict[str, Any]:
    """The dataset with these tasks alone, of the version that they were of."""
    found = {key: value for key, value in dataset.items() if key not in ("exclude_task_names", "n_tasks")}
    found["task_names"] = [ref.pattern for ref in refs]
    repo, commits = found.get("repo"), {ref.commit for ref in refs}
    if isinstance(repo, str) and "@" not in repo and "/tree/" not in repo and len(commits) == 1 and "" not in commits:
        found["repo"] = f"{repo}@{commits.pop()}"
    return found
