"""Finds job directories below what a user names, and the trials of a job, as a stream.

A trial is a directory in a job's directory, never one further below: what agents leave behind holds files of any name.
A directory of jobs is searched to a bounded depth, and no link is followed; what the user names may be one.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec

from console.errors import UsageError
from console.records.harbor.files import below, directory, shown, why

DEPTH = 6
DIRECTORIES = 50_000
PROBLEMS = 100
RUNS_NAMED = 4

_HEAD = 256 << 10
_OF_TRIAL = re.compile(rb'"(?:trial_name|trials_dir|trial_uri|task_checksum)"\s*:')
_OF_JOB = re.compile(rb'"(?:job_name|jobs_dir|n_attempts|n_total_trials|n_concurrent_trials|stats|trials)"\s*:')
_NAMED = re.compile(r".__\w{7}\Z", re.DOTALL)
"""How Harbor ends the names that it gives to trials."""
_LOOKS = (
    "a job's directory holds config.json, result.json and one directory for each trial, which holds config.json, "
    "result.json and trial.log"
)


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """What lies below the paths that a user named.

    Attributes:
        jobs: job directories, each once, in the order in which they were named, those found below one path by name.
        only: of a job of which single trials were named, those; all trials of a job count that is not in it.
        problems: one line each: what was given twice, could not be read, or was not searched.
    """

    jobs: tuple[Path, ...] = ()
    only: dict[Path, tuple[Path, ...]] = {}
    problems: tuple[str, ...] = ()

    def trials_of(self, job: Path) -> Iterator[Path]:
        """The trials of one of the jobs that the user meant, in no particular order."""
        return iter(self.only[job]) if job in self.only else trials_of(job)


def find_jobs(paths: Iterable[Path]) -> Found:
    """The jobs that the paths mean: each a job's directory, a directory of jobs, or a single trial's directory.

    Directories of runs of ours, which lie beside the jobs of benchmarks and which `jobs/*` names, too, are left out
    with one line of `problems`.

    Raises:
        UsageError: a path that does not exist, is no directory or cannot be read, or holds no trial; none of the paths
            is anything but the directory of a run.
    """
    search = _Search()
    for path in paths:
        search.name(Path(path))
    return search.found()


def is_run(path: Path) -> bool:
    """Whether a directory is that of a run of ours: it has a manifest and a journal. Raises PermissionError."""
    return _there(path, "run.json") and _there(path, "journal")


def trials_of(job: Path) -> Iterator[Path]:
    """The directories of a job's trials, as the directory lists them: in no order, and in constant memory.

    Nothing is raised.
    """
    with contextlib.suppress(OSError), os.scandir(job) as entries:
        for entry in entries:
            if is_directory(entry) and is_trial(Path(entry.path)):
                yield Path(entry.path)


def is_trial(path: Path) -> bool:
    """Whether a directory in a job is a trial's, whatever state it is in.

    One that is empty, may not be entered, or whose files do not say it, is a trial when it is named like one.
    """
    try:
        if _there(path, "trial.log"):
            return True
        if _there(path, "config.json") or _there(path, "result.json"):
            kind = kind_of(path)
            return kind == "trial" or (not kind and (_has_name(path) or _there(path, "agent")))
        if _there(path, "exception.txt") or (_there(path, "agent") and _there(path, "verifier")):
            return True
        return _has_name(path) and _empty(path)
    except PermissionError:
        return _has_name(path)
    except OSError:
        return False


def _empty(path: Path) -> bool:
    with os.scandir(path) as entries:
        return next(entries, None) is None


def _has_name(path: Path) -> bool:
    return _NAMED.search(path.name) is not None


def kind_of(path: Path) -> str:
    """What a directory's own files say it is: "trial", "job", or "" when they do not say. Raises OSError."""
    with directory(path) as dir_fd:
        for name in ("config.json", "result.json", "lock.json"):
            with below(dir_fd, name) as found:
                if found is None:
                    continue
                # The first lines say it, also of a file that is cut off; a job's lock holds whole trials.
                head = os.pread(found[0], _HEAD if name != "lock.json" else 4096, 0)
            trial, job = _OF_TRIAL.search(head) if name != "lock.json" else None, _OF_JOB.search(head)
            if trial and (job is None or trial.start() < job.start()):
                return "trial"
            if job:
                return "job"
    return ""


class _Search:
    def __init__(self) -> None:
        self.jobs: dict[tuple[int, int], Path] = {}
        self.only: dict[tuple[int, int], dict[tuple[int, int], Path]] = {}
        self.problems: list[str] = []
        self._runs: list[Path] = []
        self._looked_at = 0

    def name(self, path: Path) -> None:
        """Takes in what a user named. Raises UsageError."""
        try:
            real = path.resolve(strict=True)
            if not real.is_dir():
                raise UsageError(f"{shown(path)} is no directory: {_LOOKS}")
            with os.scandir(real):
                pass
            before = len(self.problems)
            if _is_lone_trial(real):
                self._trial(real)
            elif not self._job(real) and not self._below(real):
                if is_run(real):
                    self._runs.append(path)
                    return
                said = self.problems[before:]
                more = f" ({said[0]})" if said else ""
                raise UsageError(f"{shown(path)} holds no trial of a Harbor job{more}: {_LOOKS}")
        except FileNotFoundError:
            raise UsageError(f"{shown(path)} does not exist") from None
        except OSError as error:
            raise UsageError(f"{shown(path)} cannot be read: {why(error)}") from error
        except ValueError:
            raise UsageError(f"{shown(path)} is no path") from None

    def found(self) -> Found:
        """Everything that was named. Raises UsageError where that is nothing but directories of runs."""
        if self._runs and not (self.jobs or self.only):
            run = self._runs[0]
            raise UsageError(f"{shown(run)} is the directory of a run, not of its job: {_job_beside(run)}")
        if self._runs:
            names = ", ".join(shown(run) for run in self._runs[:RUNS_NAMED])
            more = f" and {len(self._runs) - RUNS_NAMED} more" if len(self._runs) > RUNS_NAMED else ""
            what = "the directory of a run, no job's" if len(self._runs) == 1 else "directories of runs, no jobs'"
            self.problems.insert(0, f"{names}{more}: {what}; left out")
        jobs = dict(self.jobs)
        only: dict[Path, tuple[Path, ...]] = {}
        for key, trials in self.only.items():
            job = next(iter(trials.values())).parent
            if key in jobs:
                self._problem(f"{shown(job)}: named as a whole and some of its trials beside it; each counts once")
            else:
                jobs[key] = job
                only[job] = tuple(trials.values())
        problems = self.problems[:PROBLEMS]
        if len(self.problems) > PROBLEMS:
            problems.append(f"and {len(self.problems) - PROBLEMS} more")
        return Found(jobs=tuple(jobs.values()), only=only, problems=tuple(problems))

    def _trial(self, path: Path) -> None:
        job, key = _identity(path.parent), _identity(path)
        trials = self.only.setdefault(job, {})
        if key in trials:
            self._problem(f"{shown(path)}: named twice; it counts once")
        trials.setdefault(key, path)

    def _job(self, path: Path) -> bool:
        """Takes a directory in when it is a job with a trial. Raises OSError."""
        kind = kind_of(path)
        # Without files that say it is a job, a directory is none for what cannot be entered in it.
        if kind == "trial" or not any(kind or _enterable(trial) for trial in trials_of(path)):
            return False
        key = _identity(path)
        if key in self.jobs:
            known = self.jobs[key]
            other = "" if known == path else f", also as {shown(known)}"
            self._problem(f"{shown(path)}: named twice{other}; it counts once")
        self.jobs.setdefault(key, path)
        return True

    def _below(self, root: Path) -> int:
        """Takes in the jobs below a directory that is none; how many there are."""
        count = 0
        waiting = [(root, 0)]
        while waiting:
            path, depth = waiting.pop()
            inner: list[Path] = []
            try:
                children = self._directories(path)
            except OSError as error:
                self._problem(f"{shown(path)} cannot be read: {why(error)}")
                children = []
            for child in children:
                try:
                    if self._job(child):
                        count += 1
                    elif kind_of(child) == "job":
                        self._problem(f"{shown(child)}: a job without any trial")
                    else:
                        inner.append(child)
                except OSError as error:
                    self._problem(f"{shown(child)} cannot be read: {why(error)}")
            if inner and depth + 1 >= DEPTH:
                self._problem(f"{shown(path)}: not searched further down than {DEPTH} levels; name the jobs themselves")
                continue
            waiting += [(child, depth + 1) for child in reversed(inner)]
            if self._looked_at > DIRECTORIES:
                self._problem(f"{shown(root)}: more than {DIRECTORIES:,} directories; name the jobs themselves")
                break
        return count

    def _directories(self, path: Path) -> list[Path]:
        """Directories in a directory, by name, those that may be entered. Raises OSError."""
        names: list[str] = []
        with os.scandir(path) as entries:
            for entry in entries:
                if is_directory(entry):
                    names.append(entry.name)
                elif entry.is_symlink() and _leads_to_directory(entry):
                    self._problem(f"{shown(entry.path)}: a link, which is not followed; name it to read it")
        self._looked_at += len(names)
        inner = []
        for name in sorted(names):
            try:
                with os.scandir(path / name):
                    inner.append(path / name)
            except OSError as error:
                self._problem(f"{shown(path / name)} cannot be read: {why(error)}")
        return inner

    def _problem(self, text: str) -> None:
        if len(self.problems) <= 10 * PROBLEMS:
            self.problems.append(text)


def _job_beside(run: Path) -> str:
    """What to name instead of a run's directory."""
    stem, found, _ = run.name.rpartition(".run")
    job = run.with_name(stem) if found and stem else None
    return f"name {shown(job)}" if job is not None and job.is_dir() else "name the directory that holds the trials"


def _is_lone_trial(path: Path) -> bool:
    """Whether the directory itself is a trial's. Raises OSError."""
    kind = kind_of(path)
    if kind:
        return kind == "trial"
    return _there(path, "trial.log") or (_there(path, "agent") and _there(path, "verifier"))


def is_directory(entry: os.DirEntry[str]) -> bool:
    """Whether the entry itself is a directory, no link to one."""
    try:
        return entry.is_dir(follow_symlinks=False)
    except OSError:
        return False


def _leads_to_directory(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:
        return False


def _enterable(path: Path) -> bool:
    try:
        _there(path, "trial.log")
    except OSError:
        return False
    return True


def _there(path: Path, name: str) -> bool:
    """Whether there is such an entry. Raises PermissionError where this user may not look."""
    try:
        os.lstat(path / name)
    except FileNotFoundError:
        return False
    return True


def _identity(path: Path) -> tuple[int, int]:
    info = path.stat()
    return info.st_dev, info.st_ino
