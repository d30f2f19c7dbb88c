"""Where the files are that a job's configuration names by relative paths: they are relative to where it was run."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path, PurePosixPath
from typing import Any

from console.errors import UsageError
from console.records.harbor.files import shown

_OTHERS = (("extra_instruction_paths",), ("environment", "extra_docker_compose"))


def run_from(root: Path, config: Mapping[str, Any]) -> Path | None:
    """The directory that a job was run from, None when its files do not tell: it must be where `jobs_dir` begins."""
    jobs_dir = config.get("jobs_dir")
    if not isinstance(jobs_dir, str) or not jobs_dir or os.path.isabs(jobs_dir) or jobs_dir.startswith("~"):
        return None
    parts = [part for part in PurePosixPath(jobs_dir).parts if part != "."]
    above = root.parent
    if ".." in parts or (parts and above.parts[-len(parts) :] != tuple(parts)):
        return None
    return above.parents[len(parts) - 1] if parts else above


def settle(config: dict[str, Any], root: Path, words: Iterable[str], dataset_path: Path | None) -> tuple[str, ...]:
    """Makes the paths in a configuration absolute, in place; a line for each that was relative.

    Args:
        root: the job's directory; words: names of the tasks that are to run; dataset_path: where the local dataset is,
            as the operator says.

    Raises:
        UsageError: it is not certain what a relative path means, or `dataset_path` is not the dataset.
    """
    here = run_from(root, config)
    notes: list[str] = []
    local = [
        each for each in _entries(config, "datasets") if isinstance(each.get("path"), str) and not each.get("repo")
    ]
    if dataset_path is not None:
        _replace(local, dataset_path, notes)
    wanted = sorted(set(words))
    for entry in local:
        relative = not os.path.isabs(os.path.expanduser(entry["path"]))
        if not relative:
            continue
        found = None if here is None else Path(os.path.normpath(here / entry["path"]))
        if found is None or not (any if len(local) > 1 else all)((found / word).is_dir() for word in wanted):
            raise UsageError(
                f"{shown(root)}: its dataset is at {shown(entry['path'])}, relative to where it was run, which is not "
                "certain any more; say where it is: --dataset-path DIR"
            )
        notes.append(f"dataset {shown(entry['path'])}: at {shown(found)}, for the job was run in {shown(here or '')}")
        entry["path"] = str(found)
    for entry in [*_entries(config, "datasets"), *_entries(config, "tasks"), *_entries(config, "agents")]:
        keys = ["registry_path", "download_dir", "load_trajectory"]
        if not entry.get("git_url") and not entry.get("repo"):
            keys.append("path")
        for key in keys:
            if isinstance(entry.get(key), str):
                entry[key] = _absolute(entry[key], here, root)
    for parts in _OTHERS:
        holder: Any = config
        for part in parts[:-1]:
            holder = holder.get(part) if isinstance(holder, dict) else None
        paths = holder.get(parts[-1]) if isinstance(holder, dict) else None
        if isinstance(paths, list):
            holder[parts[-1]] = [_absolute(path, here, root) if isinstance(path, str) else path for path in paths]
    return tuple(notes)


def _entries(config: Mapping[str, Any], name: str) -> list[dict[str, Any]]:
    entries = config.get(name)
    return [entry for entry in entries if isinstance(entry, dict)] if isinstance(entries, list) else []


def _replace(local: list[dict[str, Any]], path: Path, notes: list[str]) -> None:
    if len(local) != 1:
        what = (
            "has no local dataset" if not local else f"has {len(local)} local datasets, and which is meant is not clear"
        )
        raise UsageError(f"--dataset-path {shown(path)}: the job {what}")
    try:
        found = path.expanduser().resolve(strict=True)
    except OSError as error:
        raise UsageError(f"--dataset-path {shown(path)}: cannot be read ({error.strerror})") from None
    name = PurePosixPath(os.path.normpath(local[0]["path"])).name
    if not found.is_dir():
        raise UsageError(f"--dataset-path {shown(path)}: is no directory")
    if name not in ("", ".", "..") and found.name != name:
        raise UsageError(
            f"--dataset-path {shown(path)}: must be a directory called {shown(name)}, as in the job: results are "
            "merged by the name of the dataset"
        )
    notes.append(f"dataset {shown(local[0]['path'])}: at {shown(found)}, as --dataset-path says")
    local[0]["path"] = str(found)


def _absolute(text: str, here: Path | None, root: Path) -> str:
    path = os.path.expanduser(text)
    if os.path.isabs(path):
        return path
    found = None if here is None else os.path.normpath(here / path)
    if found is None or not os.path.exists(found):
        raise UsageError(
            f"{shown(root)}: its configuration names {shown(text)}, relative to where it was run, which is not certain "
            "any more; put an absolute path in its place: --set KEY=PATH"
        )
    return found
