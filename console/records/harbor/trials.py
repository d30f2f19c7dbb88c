"""Reads one trial directory, of whichever version of Harbor and in whatever state."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from console.records.harbor.config import locked, told
from console.records.harbor.files import NoFileError, changed, directory, read_whole, shown, why
from console.records.harbor.job_files import harbor_version
from console.records.harbor.model import TrialRecord
from console.records.harbor.results import fields_of, file_errors, file_rewards, parse_result
from console.records.harbor.values import CorruptError, parse, table

RESULT_LIMIT = 50 << 20
CONFIG_LIMIT = 4 << 20

_NO_RESULT = "no result.json: it was cut off, or it still runs"
_LEFT = (("result.json",), ("exception.txt", "trial.log", "config.json"), (".",))
"""Whose times tell the end of a trial that does not tell it: the newest of the first ones that are there."""


def read_trial(job_path: Path, trial_path: Path) -> TrialRecord:
    """What the directory holds. Whatever is wrong with it is the record's `problem`, and nothing is raised.

    A trial without a readable result is told by its configuration, its lock, exception.txt and the verifier's own
    files, as far as it has them.
    """
    fields: dict[str, Any] = {"harbor": harbor_version(job_path)}
    try:
        with directory(trial_path) as dir_fd:
            try:
                fields |= _result(dir_fd)
            except NoFileError as error:
                fields |= _remains(dir_fd) | {"problem": error.problem, "problem_text": str(error)}
            if fields.get("ended") is None:
                times = (changed(dir_fd, *names) for names in _LEFT)
                ended = next((time for time in times if time is not None), None)
                fields |= {"ended": ended, "ended_from": "file"}
    except OSError as error:
        fields |= {"problem": "unreadable", "problem_text": f"the directory cannot be read: {why(error)}"}
    fields["name"] = fields.get("name") or shown(trial_path.name)
    return TrialRecord(job=job_path, path=trial_path, **fields)


def _result(dir_fd: int) -> dict[str, Any]:
    """Fields out of result.json. Raises NoFileError when there is none that can be read."""
    data = read_whole(dir_fd, "result.json", RESULT_LIMIT)
    if data is None:
        raise NoFileError("incomplete", _NO_RESULT)
    try:
        return fields_of(parse_result(data))
    except CorruptError as error:
        raise NoFileError("corrupt", f"result.json {error}") from error


def _remains(dir_fd: int) -> dict[str, Any]:
    """Fields out of everything else."""
    fields = told(_document(dir_fd, "config.json"))
    for key, value in locked(_document(dir_fd, "lock.json")).items():
        fields.setdefault(key, value)
    return fields | {"errors": file_errors(dir_fd), "reward_file": file_rewards(dir_fd)}


def _document(dir_fd: int, name: str) -> dict[str, Any]:
    try:
        return table(parse(read_whole(dir_fd, name, CONFIG_LIMIT) or b"{}"))
    except (NoFileError, CorruptError):
        return {}
