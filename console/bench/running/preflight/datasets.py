"""Datasets and tasks: whether what Harbor will fetch or read is whole."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path

from console.bench.rows import counted
from console.bench.running.preflight.case import Case
from console.findings import WARNING, Finding

POINTER = b"version https://git-lfs.github.com/spec/"
_POINTER_BYTES = 1024
_MOST_FILES = 50_000
"""Looked at for pointers: more than the tasks of any known set have."""
_LISTED = 3
_EMBEDDED = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\}")
_INSTALL = "install it (apt install git-lfs, or brew install git-lfs), then git lfs install"


def dataset_findings(case: Case) -> Iterator[Finding]:
    """Programs that fetching needs, pointers in place of files, variables that tasks ask for."""
    yield from _fetching(case)
    yield from _pointers(case)
    yield from _variables(case)
    yield from _names(case)


def _fetching(case: Case) -> Iterator[Finding]:
    fetched = [
        (f"{part}.{index}.{key}", str(entry[key]))
        for part, key in (("datasets", "repo"), ("tasks", "git_url"))
        for index, entry in enumerate(case.job.get(part) or [])
        if isinstance(entry, Mapping) and entry.get(key)
    ]
    if not fetched:
        return
    where, source = fetched[0]
    path = case.environment.get("PATH")
    if shutil.which("git", path=path) is None:
        yield Finding(
            code="bench.git",
            object=where,
            message=f"{source} is fetched with git, which is not installed",
            remedy="install git",
        )
    elif shutil.which("git-lfs", path=path) is None:
        yield Finding(
            code="bench.git_lfs",
            object=where,
            message=f"{source} is fetched without git-lfs, which is not installed: files that it keeps would be "
            "pointers of some 130 bytes, and their tasks unsolvable",
            remedy=_INSTALL,
        )


def _pointers(case: Case) -> Iterator[Finding]:
    """Pointer files in tasks that lie here."""
    left, found, tasks = _MOST_FILES, [], set()
    for task in case.tasks or []:
        for path in _files(task.path):
            left -= 1
            if left < 0:
                break
            if is_pointer(path):
                found.append(path)
                tasks.add(task.name)
    if found:
        more = f" and {len(tasks) - _LISTED} more" if len(tasks) > _LISTED else ""
        yield Finding(
            code="bench.lfs_pointer",
            object=str(found[0]),
            message=f"is a pointer of git-lfs in place of the file; there are {counted(len(found), 'such file')} in "
            f"{counted(len(tasks), 'task')} ({', '.join(sorted(tasks)[:_LISTED])}{more})",
            remedy=f"{_INSTALL}, then git lfs pull in the dataset's directory",
        )


def _files(directory: Path) -> Iterator[Path]:
    for folder, folders, files in os.walk(directory):  # does not follow links to directories
        folders[:] = [name for name in folders if name != ".git"]
        yield from (Path(folder, name) for name in files)


def is_pointer(path: Path) -> bool:
    """Whether a file is what git-lfs leaves where it has not fetched the content."""
    try:
        if path.is_symlink() or not path.is_file() or path.stat().st_size > _POINTER_BYTES:
            return False
        with path.open("rb") as file:
            return file.read(len(POINTER)) == POINTER
    except OSError:
        return False


def _variables(case: Case) -> Iterator[Finding]:
    """Tasks may name variables of the host; Harbor asks about them at a terminal, and stops where one is missing."""
    oracle = any(view.name == "oracle" for _, view, _ in case.agents)
    given = {name: set(_table(case.part(name).get("env"))) for name in ("environment", "verifier")}
    missing: dict[str, list[str]] = {}
    for task in case.tasks or []:
        for section in ("environment", "verifier", *(("solution",) if oracle else ())):
            for key, value in _table(task.part(section).get("env")).items():
                match = _EMBEDDED.fullmatch(value) if isinstance(value, str) else None
                if match is None or match.group(2) is not None or key in given.get(section, ()):
                    continue
                if match.group(1) not in case.environment:
                    missing.setdefault(match.group(1), []).append(task.name)
    for name, tasks in missing.items():
        yield Finding(
            code="bench.task_variable",
            object=name,
            message=f"is not set, and is asked for by {counted(len(tasks), 'task')} ({', '.join(tasks[:_LISTED])})",
            remedy=f"export {name}, or leave these tasks out",
        )


def _names(case: Case) -> Iterator[Finding]:
    """Harbor joins agent, model and dataset with two underscores, and takes them apart again at the end."""
    words = [(f"datasets.{index}", _dataset_name(entry)) for index, entry in enumerate(case.job.get("datasets") or [])]
    for index, view, _ in case.agents:
        words += [(f"agents.{index}", view.name), (f"agents.{index}.model_name", view.model_id or view.model)]
    for where, word in words:
        if "__" in word:
            yield Finding(
                code="bench.underscores",
                level=WARNING,
                object=where,
                message=f"{word} has two underscores in a row, at which Harbor takes its own names apart: its summary "
                "fails at the end (the trials do not)",
                remedy="rename it if you can; bench tally reads the trials themselves",
            )


def _dataset_name(entry: object) -> str:
    if not isinstance(entry, Mapping):
        return ""
    name = entry.get("name") or entry.get("path") or entry.get("repo") or ""
    return str(name).rstrip("/").rsplit("/", 1)[-1]


def _table(value: object) -> Mapping[str, object]:
    return value if isinstance(value, Mapping) else {}
