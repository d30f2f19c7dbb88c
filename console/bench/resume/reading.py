"""The directories of a job as Harbor's resume sees them: everything that is a directory, trial or not."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any, Literal

import msgspec

from console.errors import UsageError
from console.records.harbor.config import task_name
from console.records.harbor.discovery import is_trial, kind_of
from console.records.harbor.files import NoFileError, clean, directory, read_whole, shown, why
from console.records.harbor.values import CorruptError, parse, table, text

CONFIG_LIMIT = 8 << 20
RESULT_LIMIT = 64 << 20
LOCK_LIMIT = 256 << 20

State = Literal["none", "empty", "corrupt", "unreadable", "read"]
_REQUIRED = ("task_name", "trial_name", "trial_uri", "task_checksum", "config", "agent_info")
"""Without these no version of Harbor takes a result for one."""


class Entry(msgspec.Struct, kw_only=True):
    """A directory in a job's.

    Attributes:
        name: of it; trial: whether it looks like a trial; link: it is a link to a directory.
        state: of its result.json; exception: type that the trial's own exception has, "" without one.
        config: of the trial, None when there is none or it cannot be parsed; task, agent: names, "" where unknown.
        unsure: one line when it could not be read whole.
    """

    name: str
    trial: bool = False
    link: bool = False
    state: State = "none"
    exception: str = ""
    config: dict[str, Any] | None = None
    task: str = ""
    agent: str = ""
    unsure: str = ""


class _Exception(msgspec.Struct):
    exception_type: Any = None


class _Result(msgspec.Struct):
    task_name: str
    trial_name: str
    trial_uri: str
    task_checksum: str
    config: dict[str, Any]
    agent_info: Any
    exception_info: _Exception | None = None


_DECODER = msgspec.json.Decoder(_Result)


def read_entries(job_dir: Path) -> list[Entry]:
    """All directories in a job's, in the order in which the directory lists them, which is the one Harbor takes.

    Raises:
        UsageError: the directory cannot be listed.
    """
    try:
        names = os.listdir(job_dir)
    except OSError as error:
        raise UsageError(f"{shown(job_dir)} cannot be read: {why(error)}") from None
    return [_entry(job_dir / name) for name in names if (job_dir / name).is_dir()]


def read_document(path: Path, name: str, limit: int = CONFIG_LIMIT) -> tuple[dict[str, Any] | None, str]:
    """A JSON object of a directory, and one line on what is wrong with it: (None, "") when there is none."""
    try:
        with directory(path) as dir_fd:
            data = read_whole(dir_fd, name, limit)
    except NoFileError as error:
        return None, str(error)
    except OSError as error:
        return None, f"{name} cannot be read: {why(error)}"
    if data is None:
        return None, ""
    try:
        value = parse(data)
    except CorruptError as error:
        return None, f"{name} {error}"
    return (value, "") if isinstance(value, dict) else (None, f"{name} holds no JSON object")


def _entry(path: Path) -> Entry:
    entry = Entry(name=path.name, link=path.is_symlink())
    real = path.resolve() if entry.link else path
    entry.trial = is_trial(real) and _kind(real) != "job"
    _read_result(real, entry)
    config, _ = read_document(real, "config.json")
    entry.config = config
    if config is not None:
        entry.task = entry.task or task_name(table(config.get("task")))
        entry.agent = agent_label(table(config.get("agent")))
    return entry


def agent_label(agent: dict[str, Any]) -> str:
    """How an agent is called: its name, else where it is imported from."""
    return text(agent.get("name")) or text(agent.get("import_path"))


def _read_result(path: Path, entry: Entry) -> None:
    try:
        with directory(path) as dir_fd:
            data = read_whole(dir_fd, "result.json", RESULT_LIMIT)
    except NoFileError as error:
        entry.state = "unreadable"
        entry.unsure = f"{shown(entry.name)}: {error}"
        return
    except OSError as error:
        entry.state = "unreadable"
        entry.unsure = f"{shown(entry.name)} cannot be read: {why(error)}"
        return
    if data is None:
        return
    try:
        written = data.decode()
    except UnicodeDecodeError:
        entry.state = "unreadable"
        return
    if not written.strip():
        entry.state = "empty"
        return
    try:
        result = _DECODER.decode(data)
        exception = result.exception_info.exception_type if result.exception_info else None
        name: object = result.task_name
    except (msgspec.MsgspecError, RecursionError):
        # What is no strict JSON, or has other types, may be a result for Harbor all the same.
        found = _lenient(written)
        if found is None:
            entry.state = "corrupt"
            return
        exception = table(found.get("exception_info")).get("exception_type")
        name = found.get("task_name")
    entry.state = "read"
    entry.exception = clean(exception) if isinstance(exception, str) else ""
    entry.task = text(name)


def _lenient(written: str) -> dict[str, Any] | None:
    try:
        value = json.loads(written)
    except (ValueError, RecursionError):
        return None
    if not isinstance(value, dict) or any(value.get(name) is None for name in _REQUIRED):
        return None
    return value


def _kind(path: Path) -> str:
    try:
        return kind_of(path)
    except OSError:
        return ""
