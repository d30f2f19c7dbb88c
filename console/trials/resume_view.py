"""What the installed Harbor makes of a job directory that is to be resumed: run as a process, JSON in, JSON out.

Harbor's own classes read the files, plan the trials, and compare them, so that nothing of its defaults is guessed. No
job is made, since that deletes directories; nothing is written, downloaded or started. Tasks that only the network
knows are told by who asks.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import importlib.metadata
import json
import os
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

from harbor.agents.factory import AgentFactory
from harbor.environments.factory import EnvironmentFactory
from harbor.job_plan import JobPlan
from harbor.models.job.config import JobConfig
from harbor.models.job.lock import JobLock, TrialLock, build_trial_lock
from harbor.models.job.result import JobResult
from harbor.models.trial.config import TaskConfig, TrialConfig
from harbor.models.trial.result import TrialResult
from harbor.publisher.packager import Packager
from harbor.tasks.client import TaskDownloadResult
from pydantic import ValidationError

PAIRS = 5
"""Differing configurations that are told in full."""


class _Stopped(Exception):
    """Harbor would stop here."""

    def __init__(self, stage: str, error: BaseException) -> None:
        super().__init__(str(error))
        self.answer = {"stage": stage, "error": type(error).__name__, "why": _line(error)}


class View:
    """One question: `answer` is what is told, as plain data."""

    def __init__(self, asked: dict[str, Any]) -> None:
        """`asked`: see `console.bench.resume.asking.Question`."""
        self.asked = asked
        self.job_dir = Path(asked["job_dir"])
        self.answer: dict[str, Any] = {"harbor": importlib.metadata.version("harbor")}

    def run(self) -> dict[str, Any]:
        """Everything that can be told; `stopped` when Harbor would not come to the end."""
        try:
            self.answer["digests"] = dict(_digests(self.asked.get("digests") or ()))
            if self.asked.get("compare"):
                self._compare()
        except _Stopped as stopped:
            self.answer["stopped"] = stopped.answer
        return self.answer

    def _compare(self) -> None:
        self.answer["results"] = {name: _result(self.job_dir / name) for name in self.asked["directories"]}
        with _stopping("start"):
            config = self._config()
        config.jobs_dir, config.job_name = self.job_dir.parent, self.job_dir.name
        self.answer["preflight"] = _preflight(config)
        with _stopping("plan"):
            tasks = asyncio.run(_tasks(config, self.asked["tasks"]))
            planned = JobPlan.build_trial_configs(config, tasks, job_id=uuid4())
        self._job(config)
        existing = self._existing()
        matched = self._match(planned, existing)
        self.answer["planned"] = [_label(trial) for trial in planned]
        if len(matched) == len(existing):
            trials = [existing[matched[at]] if at in matched else trial for at, trial in enumerate(planned)]
            with _stopping("run"):
                self._lock(config, trials)

    def _config(self) -> JobConfig:
        if self.asked["config"] is not None:
            return JobConfig.model_validate(self.asked["config"])
        return JobConfig.model_validate_json((self.job_dir / "config.json").read_text())

    def _job(self, config: JobConfig) -> None:
        """The job's own files, as far as they stop it."""
        with _stopping("plan"):
            result = self.job_dir / "result.json"
            if result.exists():
                JobResult.model_validate_json(result.read_text())
            if self.asked["way"] == "run" and (self.job_dir / "config.json").exists():
                recorded = JobConfig.model_validate_json((self.job_dir / "config.json").read_text())
                recorded.jobs_dir, recorded.job_name = config.jobs_dir, config.job_name
                if recorded != config:
                    self.answer["config_pair"] = [_dump(recorded), _dump(config)]

    def _existing(self) -> dict[str, TrialConfig]:
        existing: dict[str, TrialConfig] = {}
        problems: dict[str, dict[str, str]] = {}
        if not (self.job_dir / "config.json").exists():
            return existing
        for name in self.asked["directories"]:
            state = self.answer["results"].get(name)
            if state is None or state["state"] != "read" or state["exception"] in self.asked["filter_types"]:
                continue
            try:
                config = TrialConfig.model_validate_json((self.job_dir / name / "config.json").read_text())
            except (OSError, ValueError) as error:
                problems[name] = {"error": type(error).__name__, "why": _line(error)}
                continue
            config.trials_dir = self.job_dir
            existing[name] = config
        self.answer["trial_problems"] = problems
        return existing

    def _match(self, planned: list[TrialConfig], existing: dict[str, TrialConfig]) -> dict[int, str]:
        """Index of a planned trial and the directory that takes its place. As Harbor does it, in less than n² time."""
        free: dict[str, list[str]] = {}
        for name, config in existing.items():
            free.setdefault(_identity(config), []).append(name)
        matched = {}
        for at, config in enumerate(planned):
            names = free.get(_identity(config))
            if names:
                matched[at] = names.pop(0)
        left = [name for names in free.values() for name in names]
        kinds = {_identity(config) for config in planned}
        self.answer["matched"] = {name: at for at, name in matched.items()}
        self.answer["duplicates"] = [name for name in left if _identity(existing[name]) in kinds]
        differing = [name for name in left if _identity(existing[name]) not in kinds]
        self.answer["differing"] = differing
        self.answer["pairs"] = {name: _pair(existing[name], planned) for name in differing[:PAIRS]}
        return matched

    def _lock(self, config: JobConfig, trials: list[TrialConfig]) -> None:
        path = self.job_dir / "lock.json"
        if not path.exists():
            return
        try:
            recorded = JobLock.model_validate_json(path.read_text())
        except (OSError, ValueError) as error:
            said = f"Existing lock file could not be parsed; refusing to overwrite it ({_line(error)})"
            raise _Stopped("run", ValueError(said)) from None
        with tempfile.TemporaryDirectory() as empty:
            locks = _locks(trials, recorded, Path(empty))
        planned = JobLock(n_concurrent_trials=config.n_concurrent_trials, retry=config.retry, trials=locks)
        if planned == recorded:
            return
        one, other = ({**_dump(lock), "trials": []} for lock in (recorded, planned))
        for key in ("created_at", "harbor"):
            one.pop(key, None)
            other.pop(key, None)
        left, new = _apart(recorded.trials, locks)
        self.answer["lock"] = {
            "heads": [one, other],
            "trials": [len(recorded.trials), len(locks), len(left)],
            "pairs": [
                [_name(mine), _dump(mine), _dump(theirs)] for mine, theirs in _paired(left, new) if theirs is not None
            ][:PAIRS],
        }


@contextlib.contextmanager
def _stopping(stage: str) -> Iterator[None]:
    try:
        yield
    except _Stopped:
        raise
    except Exception as error:
        raise _Stopped(stage, error) from error


def _line(error: BaseException) -> str:
    if isinstance(error, ValidationError):
        # Without the values, which may be secrets.
        found = error.errors(include_url=False, include_input=False, include_context=False)
        return "; ".join(f"{'.'.join(map(str, each['loc']))}: {each['msg']}" for each in found[:3])[:300]
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return " ".join(lines[:4])[:300] or type(error).__name__


def _result(path: Path) -> dict[str, str]:
    """Whether Harbor takes the result for one, and the type of the trial's exception."""
    try:
        written = (path / "result.json").read_text()
    except FileNotFoundError:
        return {"state": "none"}
    except (OSError, UnicodeDecodeError):
        return {"state": "unreadable"}
    if not written.strip():
        return {"state": "empty"}
    try:
        result = TrialResult.model_validate_json(written)
    except ValueError:
        return {"state": "corrupt"}
    return {"state": "read", "exception": result.exception_info.exception_type if result.exception_info else ""}


def _preflight(config: JobConfig) -> str:
    """What environment or agents refuse before the job is planned, "" when nothing. They may end the process."""
    try:
        EnvironmentFactory.run_preflight(
            type=config.environment.type,
            import_path=config.environment.import_path,
            kwargs=config.environment.kwargs,
        )
        for agent in config.agents:
            skip = config.skip_credential_checks or config.install_only
            AgentFactory.run_preflight(agent, skip_credential_checks=skip)
    except (Exception, SystemExit) as error:
        return _line(error)
    return ""


async def _tasks(config: JobConfig, remote: list[dict[str, Any]]) -> list[TaskConfig]:
    """Local datasets are read as Harbor does; those of a network are given."""
    tasks = [task.model_copy(deep=True) for task in config.tasks]
    told = False
    for dataset in config.datasets:
        if dataset.is_local():
            tasks += await dataset.get_task_configs(disable_verification=config.verifier.disable)
        elif not told:
            tasks += [TaskConfig.model_validate(task) for task in remote]
            told = True
    if not tasks:
        raise ValueError("Either datasets or tasks must be provided.")
    for task in tasks:
        if not task.is_git_task() and not task.is_package_task() and not task.get_local_path().exists():
            raise FileNotFoundError(f"Task directory does not exist: {task.path}")
    return tasks


def _locks(trials: list[TrialConfig], recorded: JobLock, empty: Path) -> list[TrialLock]:
    """The lock of each trial; the task of one that lies elsewhere is taken as it was recorded."""
    known = {_name(lock): lock for lock in recorded.trials}
    locks = []
    for trial in trials:
        task = trial.task
        if not task.is_git_task() and not task.is_package_task():
            locks.append(build_trial_lock(trial_config=trial, task_download_result=_download(task.get_local_path())))
            continue
        lock = build_trial_lock(trial_config=trial, task_download_result=_download(empty))
        before = known.get(lock.task.name)
        if before is not None:
            lock.task = before.task
            lock.verifier.environment_mode = before.verifier.environment_mode
        locks.append(lock)
    return locks


def _download(path: Path) -> TaskDownloadResult:
    return TaskDownloadResult(path=path, download_time_sec=0.0, cached=True)


def _digests(paths: Any) -> Iterator[tuple[str, str]]:
    for path in paths:
        with contextlib.suppress(OSError, ValueError):
            yield path, "sha256:" + Packager.compute_content_hash(Path(path).expanduser())[0]


def _apart(recorded: list[TrialLock], planned: list[TrialLock]) -> tuple[list[TrialLock], list[TrialLock]]:
    """Locks that have no equal on the other side."""
    mine, theirs = Counter(map(_key, recorded)), Counter(map(_key, planned))
    left, new = mine - theirs, theirs - mine
    return list(_take(recorded, left)), list(_take(planned, new))


def _take(locks: list[TrialLock], counted: Counter[str]) -> Iterator[TrialLock]:
    for lock in locks:
        key = _key(lock)
        if counted[key] > 0:
            counted[key] -= 1
            yield lock


def _key(lock: TrialLock) -> str:
    return repr(lock._equality_key())


def _paired(left: list[TrialLock], new: list[TrialLock]) -> Iterator[tuple[TrialLock, TrialLock | None]]:
    rest = list(new)
    for lock in left:
        found = next((other for other in rest if _name(other) == _name(lock)), None)
        if found is not None:
            rest.remove(found)
        yield lock, found


def _name(lock: TrialLock) -> str:
    return str(lock.task.name)


def _identity(config: TrialConfig) -> str:
    """What Harbor compares of a trial, as a key."""
    return repr(_sorted(config.model_dump(exclude={"trial_name", "job_id"})))


def _sorted(value: Any) -> Any:
    if isinstance(value, dict):
        return sorted(((str(key), _sorted(item)) for key, item in value.items()), key=lambda pair: pair[0])
    if isinstance(value, set | frozenset):
        return sorted(map(str, value))
    if isinstance(value, list | tuple):
        return [_sorted(item) for item in value]
    return float(value) if isinstance(value, int) and not isinstance(value, bool) else value


def _pair(existing: TrialConfig, planned: list[TrialConfig]) -> list[Any]:
    """The trial, and the planned one that comes closest: of the same task, then by the same agent."""

    def far(config: TrialConfig) -> tuple[bool, bool]:
        one, other = config.agent, existing.agent
        return config.task != existing.task, (one.name, one.import_path) != (other.name, other.import_path)

    nearest = min(planned, key=far)
    return [_dump(existing), _dump(nearest), nearest.task == existing.task]


def _dump(value: JobConfig | TrialConfig | JobLock | TrialLock) -> dict[str, Any]:
    hidden = {"trial_name", "job_id", "trials_dir", "job_name", "jobs_dir", "debug"}
    dumped: dict[str, Any] = value.model_dump(mode="json", exclude=hidden)
    return dumped


def _label(config: TrialConfig) -> dict[str, str]:
    agent = config.agent
    return {
        "task": config.task.name or (config.task.path.name if config.task.path else ""),
        "agent": agent.name or agent.import_path or "",
        "model": agent.model_name or "",
    }


def main() -> int:
    """One question on stdin, one answer on stdout; what Harbor prints goes to stderr."""
    asked = json.load(sys.stdin)
    # A task's files are read once, however many attempts it has.
    Packager.compute_content_hash = staticmethod(functools.cache(Packager.compute_content_hash))
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    with out:
        json.dump(View(asked).run(), out)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
