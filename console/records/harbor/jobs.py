"""Reads the files of a job's directory itself, and tells what else lies in it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import msgspec

from console.records.harbor.discovery import is_directory, is_trial, kind_of
from console.records.harbor.files import NoFileError, directory, read_whole, shown, why
from console.records.harbor.job_files import read_lock
from console.records.harbor.model import JobRecord
from console.records.harbor.running import is_running
from console.records.harbor.times import seconds
from console.records.harbor.values import (
    CorruptError,
    Scalar,
    count,
    parse,
    public_arguments,
    table,
    text,
    without_environments,
)

CONFIG_LIMIT = 8 << 20
RESULT_LIMIT = 64 << 20
STRAYS = 100
ATTEMPTS = 100_000
"""Attempts of a task, and TRIALS of a job, beyond which a plan is not believed: who merges counts up to them."""
TRIALS = 100_000_000
LINEAGE = "quarterdeck-mop-up.json"
"""In the directory of a job that repeats trials of another: which."""

_OWN = frozenset(
    {"config.json", "result.json", "lock.json", "job.log", "analysis.json", "check_report.json", ".sources"}
    | {".harbor-upload", LINEAGE}
)


class _Stats(msgspec.Struct):
    n_completed_trials: Scalar = None
    n_trials: Scalar = None
    n_running_trials: Scalar = None
    n_pending_trials: Scalar = None


class _JobResult(msgspec.Struct):
    # The statistics name every trial several times and are not decoded: they are not to be believed anyway.
    started_at: Scalar = None
    finished_at: Scalar = None
    n_total_trials: Scalar = None
    stats: _Stats | None = None


_DECODER = msgspec.json.Decoder(_JobResult)


def read_job(path: Path) -> JobRecord:
    """What the job's own files say. What is wrong with them is a line of `problems`, and nothing is raised.

    `config` and `lock` are without secrets and bounded, `lock` also without its trials, which is "n_trials" of them.
    """
    problems: list[str] = []
    config = table(_document(path, "config.json", CONFIG_LIMIT, problems))
    result = _result(path, problems)
    lock = read_lock(path)
    if lock.problem:
        problems.append(f"{shown(path)}: {lock.problem}")
    finished = seconds(result.get("finished_at")) is not None
    concurrent = (config, table(config.get("orchestrator")), lock.values)
    strays = _strays(path, problems)
    locked = without_environments(lock.values)
    if "invocation" in locked:
        locked["invocation"] = public_arguments(lock.values["invocation"])
    return JobRecord(
        path=path,
        name=text(config.get("job_name")) or shown(path.name),
        planned=_planned(result, lock.trials),
        attempts=count(config.get("n_attempts"), ATTEMPTS),
        finished=finished,
        began=seconds(result.get("started_at")),
        ended=seconds(result.get("finished_at")),
        # A finished job whose process has not ended has nothing left to do.
        running=not finished and is_running(path),
        concurrent=next((found for part in concurrent if (found := count(part.get("n_concurrent_trials")))), None),
        harbor=lock.harbor,
        lock_version=lock.schema,
        config=without_environments(config),
        lock=locked if lock.trials is None else locked | {"n_trials": lock.trials},
        strays=strays,
        problems=tuple(problems),
    )


def _result(path: Path, problems: list[str]) -> dict[str, Any]:
    value = _document(path, "result.json", RESULT_LIMIT, problems, _DECODER)
    if isinstance(value, _JobResult):
        stats = msgspec.structs.asdict(value.stats) if value.stats else {}
        return msgspec.structs.asdict(value) | {"stats": stats}
    return table(value)


def _planned(result: dict[str, Any], locked: int | None) -> int | None:
    """Harbor's total; without one what it locked; else what its statistics add up to."""
    total = count(result.get("n_total_trials"), TRIALS)
    if total is not None or locked is not None:
        return total if total is not None else locked
    stats = table(result.get("stats"))
    parts = [count(stats.get(name)) for name in ("n_completed_trials", "n_running_trials", "n_pending_trials")]
    known = [part for part in parts if part is not None]
    return count(sum(known), TRIALS) if len(known) == len(parts) else None


def _document(
    path: Path, name: str, limit: int, problems: list[str], decoder: msgspec.json.Decoder[Any] | None = None
) -> object:
    """The parsed file, None without one. What is wrong with it becomes a problem."""
    try:
        with directory(path) as dir_fd:
            data = read_whole(dir_fd, name, limit)
            return None if data is None else parse(data, decoder)
    except NoFileError as error:
        problems.append(f"{shown(path)}: {error}")
    except CorruptError as error:
        problems.append(f"{shown(path)}: {name} {error}")
    except OSError as error:
        problems.append(f"{shown(path)} cannot be read: {why(error)}")
    return None


def _strays(path: Path, problems: list[str]) -> tuple[str, ...]:
    """Names of what is neither a trial nor Harbor's; links, and what cannot be entered, are problems besides."""
    strays: list[str] = []
    first = len(problems)
    try:
        with os.scandir(path) as entries:
            for entry in entries:
                if entry.name in _OWN or (is_directory(entry) and is_trial(Path(entry.path))):
                    continue
                if len(strays) == STRAYS:
                    # In front of those of single entries, of which whoever tells them may leave the last ones out.
                    problems.insert(first, f"{shown(path)}: more than {STRAYS} entries that are no trials")
                    break
                strays.append(shown(entry.name))
                said = _said_of(entry)
                if said:
                    problems.append(f"{shown(entry.path)}: {said}")
    except OSError as error:
        problems.append(f"{shown(path)} cannot be listed: {why(error)}")
    return tuple(sorted(strays))


def _said_of(entry: os.DirEntry[str]) -> str:
    if entry.is_symlink():
        return "a link, which is not followed"
    if not is_directory(entry):
        return ""
    try:
        job = kind_of(Path(entry.path)) == "job"
        return "a job of its own in a job, which is not read with it; name it to read it" if job else ""
    except OSError as error:
        return f"cannot be read: {why(error)}"
