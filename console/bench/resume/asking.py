"""What the installed Harbor makes of a job directory, asked in a process of its own: `console.trials.resume_view`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from console.bench.asking import ask_module
from console.errors import QuarterdeckError

SECONDS = 300.0
"""For a hundred thousand results on a slow disk."""


class Question(msgspec.Struct, frozen=True, kw_only=True):
    """Attributes:
    job_dir: absolute; way: resume or run; config: the job for a run, None for the directory's own.
    directories: names of those in the job's, in order; filter_types: exception types whose trials are deleted.
    tasks: those of datasets that lie elsewhere; digests: paths of local tasks whose digest is wanted.
    compare: everything is wanted; else digests only.
    """

    job_dir: str
    way: str = "resume"
    config: dict[str, Any] | None = None
    directories: Sequence[str] = ()
    filter_types: Sequence[str] = ()
    tasks: Sequence[dict[str, Any]] = ()
    digests: Sequence[str] = ()
    compare: bool = True


class Stopped(msgspec.Struct, frozen=True, kw_only=True):
    """Where Harbor would stop, by which exception, and what that says on one line."""

    stage: str = "plan"
    error: str = ""
    why: str = ""


class Lock(msgspec.Struct, frozen=True, kw_only=True):
    """A lock that does not match. `heads`: recorded and planned without trials; `trials`: how many are recorded,
    planned, and without an equal; `pairs`: name, recorded and planned of some that differ."""

    heads: tuple[dict[str, Any], dict[str, Any]]
    trials: tuple[int, int, int]
    pairs: list[tuple[str, dict[str, Any], dict[str, Any]]] = []


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """Attributes:
    harbor: version; results: state and exception of each directory's result; preflight: what it would refuse here.
    planned: task, agent and model of each trial; matched: directory and index of the trial whose place it takes.
    duplicates, differing: directories without a planned trial; pairs: recorded and planned, of some that differ, and
        whether such a task is planned; trial_problems: trials whose own configuration is missing or wrong.
    config_pair: recorded and given job when they differ; lock: when it does not match; digests: of local tasks.
    """

    harbor: str = ""
    results: dict[str, dict[str, str]] = {}
    preflight: str = ""
    planned: list[dict[str, str]] | None = None
    matched: dict[str, int] = {}
    duplicates: list[str] = []
    differing: list[str] = []
    pairs: dict[str, tuple[dict[str, Any], dict[str, Any], bool]] = {}
    trial_problems: dict[str, Stopped] = {}
    config_pair: tuple[dict[str, Any], dict[str, Any]] | None = None
    lock: Lock | None = None
    digests: dict[str, str] = {}
    stopped: Stopped | None = None


def ask(question: Question, cwd: Path) -> Answer | str:
    """The answer, or one line on why there is none: Harbor is not there or cannot be loaded (3 to 10 s)."""
    try:
        said = ask_module("console.trials.resume_view", msgspec.json.encode(question), SECONDS, cwd=cwd)
        return msgspec.json.decode(said, type=Answer)
    except QuarterdeckError as error:
        return str(error)
    except msgspec.MsgspecError as error:
        return f"Harbor cannot be asked: {error}"
