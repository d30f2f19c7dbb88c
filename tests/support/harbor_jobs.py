"""Job directories as each version of Harbor leaves them, written without Harbor: for tests of what reads them.

The shapes are those that Harbor 0.1, 0.6, 0.14, 0.18, 0.20, 0.21 and 0.26 write, cut down to the keys that a reader may
look at:

| since | what is different |
| --- | --- |
| 0.1.0 | naive times; `orchestrator` in the job's configuration; `n_trials` and `n_errors` in its stats; no lock |
| 0.1.45 | times of trials with a zone, of errors and jobs without |
| 0.6.0 | the orchestrator's options stand in the configuration itself; lock.json of the job, schema 1, with |
|       | `invocation`; steps of multi-step trials; mounts may be texts; `n_completed_trials` in the stats |
| 0.18.0, 0.21.0 | lock schemas 2 and 3 |
| 0.20.0 | lock.json of each trial |
| 0.26.0 | errors with a zone and a policy; `schema_version`, `reward_valid`, `verifier_environment_mode` |
"""

from __future__ import annotations

import hashlib
import json
import os
import pickle
import uuid
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

BEGAN = 1_780_000_000.0
"""When the first trial of a job begins unless it is told: seconds since 1970."""

PHASES = ("environment", "setup", "agent", "verify")
_KEYS = {"environment": "environment_setup", "setup": "agent_setup", "agent": "agent_execution", "verify": "verifier"}
_SECONDS = {"environment": 5.0, "setup": 10.0, "agent": 60.0, "verify": 8.0}


class HarborJob:
    """Writes one job directory: `trial()` for each trial, then `write()` for the files of the job itself.

    Attributes:
        path: the directory; version: of Harbor, whose shapes are written; trials: directories written so far.
    """

    def __init__(
        self,
        path: Path,
        version: str = "0.26.0",
        *,
        agent: str = "terminus-2",
        agent_version: str = "2.0.0",
        model: str | None = "openai/Qwen/Qwen3.8-27B-FP8",
        dataset: str | None = "terminal-bench-2.1",
        attempts: int = 1,
        concurrent: int = 3,
        environment: str = "docker",
        began: float = BEGAN,
        **config: Any,
    ) -> None:
        """`config`: further keys of each trial's configuration, e.g. `agent_timeout_multiplier=4.0`."""
        self.path, self.version = path, version
        self.agent, self.agent_version, self.model, self.dataset = agent, agent_version, model, dataset
        self.attempts, self.concurrent, self.environment, self.began = attempts, concurrent, environment, began
        self.config = config
        self.trials: list[Path] = []
        self._locks: list[dict[str, Any]] = []
        self._clock = began
        path.mkdir(parents=True, exist_ok=True)

    def since(self, version: str) -> bool:
        """Whether this job's Harbor is at least that version."""
        return _number(self.version) >= _number(version)

    def stamp(self, seconds: float, zone: bool = True) -> str:
        """A time as this version writes it; without a zone it is the UTC wall clock."""
        text = datetime.fromtimestamp(seconds, UTC).isoformat(timespec="microseconds")
        return text.replace("+00:00", "Z" if zone else "")

    def trial(
        self,
        task: str,
        reward: float | str | bool | None = None,
        *,
        name: str | None = None,
        error: str | tuple[str, str] | None = None,
        traceback: str = "",
        phase: str = "agent",
        rewards: Mapping[str, Any] | None = None,
        seconds: Mapping[str, float] | None = None,
        began: float | None = None,
        ended: bool = True,
        tokens: tuple[int | None, int | None, int | None] | None = (1000, 400, 200),
        cost: float | None = None,
        checksum: str | None = None,
        kwargs: Mapping[str, Any] | None = None,
        env: Mapping[str, str] | None = None,
        agent_config: Mapping[str, Any] | None = None,
        environment_config: Mapping[str, Any] | None = None,
        steps: Sequence[Mapping[str, Any]] | None = None,
        files: Mapping[str, str | bytes] | None = None,
        result: bool = True,
        patch: Mapping[str, Any] | None = None,
    ) -> Path:
        """Writes a trial's directory and returns it.

        Args:
            task: whole name of the task; name: the trial's, as Harbor makes it unless given.
            reward: shorthand for `rewards={"reward": reward}`; without both, no verifier result is recorded.
            error: exception type, or type and message; traceback: its text; phase: the last one that began when there
                is an error: environment, setup, agent or verify. The verifier's is written also when there is a reward.
            seconds: of each phase; began: seconds since 1970, else after the trial before; ended: write `finished_at`.
            tokens: input, cached, output; None writes `agent_result: null`.
            kwargs, env: of the agent; agent_config, environment_config: further keys of these parts.
            steps: of a multi-step trial: dicts with `name` and optional `error`, `rewards`, `tokens`, `seconds`.
            files: path below the trial to content; result: False leaves a half-written trial, with its exception.txt
                when there is an error.
            patch: keys of result.json to replace at the end, whatever they are.
        """
        number = len(self.trials)
        short = task.rsplit("/", 1)[-1]
        name = name or f"{short[:32]}__{hashlib.sha256(f'{self.path.name!a}{number}'.encode()).hexdigest()[:7]}"
        directory = self.path / name
        directory.mkdir(parents=True)
        self.trials.append(directory)
        config = self._trial_config(task, name, kwargs, env, agent_config, environment_config)
        rewards = {"reward": reward} if rewards is None and reward is not None else rewards
        error = (error, f"{error} happened") if isinstance(error, str) else error
        lock = self._trial_lock(task, config, checksum)
        self._locks.append(lock)
        put(directory / "config.json", config)
        if self.since("0.20.0"):
            put(directory / "lock.json", lock if self.since("0.21.0") else lock | {"schema_version": 1})
        put(directory / "trial.log", "".join(f"Trial {name} {word}\n" for word in ("is made", "starts")))
        first = self._clock if began is None else began
        times, last = self._phases(error, phase, rewards, seconds, first, steps)
        self._clock = last + 1
        # Harbor writes an exception down at the end of the phase in which it came.
        raised = times.get(_KEYS[phase], (0.0, last - 1))[1] - 0.001
        if error:
            put(
                directory / "exception.txt",
                traceback or f"Traceback (most recent call last):\n{error[0]}: {error[1]}\n",
            )
        if rewards is not None and not steps:
            put(directory / "verifier" / "reward.txt", str(rewards.get("reward", "")))
        for path, content in (files or {}).items():
            put(directory / path, content)
        if result:
            document: dict[str, Any] = {
                "id": str(uuid.uuid5(uuid.NAMESPACE_URL, f"{self.path}/{name}")),
                "task_name": task,
                "trial_name": name,
                "trial_uri": f"file://{directory}",
                "task_id": {"path": f"tasks/{short}"},
                "source": self.dataset,
                "task_checksum": checksum or hashlib.sha256(task.encode()).hexdigest(),
                "config": config,
                "agent_info": {"name": self.agent, "version": self.agent_version, "model_info": self._model_info()},
                "agent_result": None if steps or "agent_execution" not in times else context(tokens, cost),
                "verifier_result": None if rewards is None else {"rewards": dict(rewards)},
                "exception_info": self._error(error, traceback, raised) if error else None,
                "started_at": self._time(first),
                "finished_at": self._time(last) if ended else None,
            }
            for key in _KEYS.values():
                document[key] = self._timing(times.get(key))
            if self.since("0.6.0"):
                document["step_results"] = self._steps(steps, times) if steps else None
            if self.since("0.26.0"):
                document = {"schema_version": 1, **document, "verifier_environment_mode": "shared"}
                document["reward_valid"] = rewards is not None
            put(directory / "result.json", document | dict(patch or {}))
        return directory

    def write(
        self,
        *,
        finished: bool = True,
        planned: int | None = None,
        config: Mapping[str, Any] | None = None,
        lock: bool = True,
    ) -> Path:
        """Writes the job's own files and returns its directory. `planned`: all that was written unless given."""
        planned = len(self.trials) if planned is None else planned
        put(self.path / "config.json", self.job_config() | dict(config or {}))
        put(self.path / "result.json", self._job_result(planned, finished))
        put(self.path / "job.log", f"Running {planned} trials\n")
        if lock and self.since("0.6.0"):
            put(self.path / "lock.json", self._job_lock())
        return self.path

    def job_config(self) -> dict[str, Any]:
        """The job's configuration, as config.json has it."""
        retry = {"max_retries": 0, "include_exceptions": None, "exclude_exceptions": ["VerifierTimeoutError"]}
        options: dict[str, Any] = {"n_concurrent_trials": self.concurrent, "quiet": False, "retry": retry}
        if not self.since("0.6.0"):
            options = {"orchestrator": {"type": "local", **options, "kwargs": {}}}
        registry = {} if self.since("0.6.0") else {"registry": {"url": "https://registry.example/registry.json"}}
        return {
            "job_name": self.path.name,
            "jobs_dir": str(self.path.parent),
            "n_attempts": self.attempts,
            **self._multipliers(),
            "debug": False,
            **options,
            "environment": self._environment_config({}),
            "verifier": {"override_timeout_sec": None, "max_timeout_sec": None, "disable": False},
            "metrics": [],
            "agents": [self._agent_config({}, {}, {})],
            "datasets": [{"name": self.dataset, "version": None} | registry] if self.dataset else [],
            "tasks": [],
        }

    def _multipliers(self) -> dict[str, Any]:
        names = ("agent", "verifier", "agent_setup", "environment_build")
        base: dict[str, Any] = {"timeout_multiplier": 1.0, **{f"{name}_timeout_multiplier": None for name in names}}
        return base | self.config

    def _agent_config(
        self, kwargs: Mapping[str, Any], env: Mapping[str, str], more: Mapping[str, Any]
    ) -> dict[str, Any]:
        return {
            "name": self.agent,
            "import_path": None,
            "model_name": self.model,
            "override_timeout_sec": None,
            "override_setup_timeout_sec": None,
            "max_timeout_sec": None,
            "kwargs": dict(kwargs),
            "env": dict(env),
            **more,
        }

    def _environment_config(self, more: Mapping[str, Any]) -> dict[str, Any]:
        sizes = {f"override_{name}": None for name in ("cpus", "memory_mb", "storage_mb", "gpus")}
        mounts: Any = ["/data:/data:ro"] if self.since("0.6.0") and not self.since("0.14.0") else None
        named = ":" in self.environment
        return {
            "type": None if named else self.environment,
            "import_path": self.environment if named else None,
            "force_build": False,
            "delete": True,
            **sizes,
            **({"mounts": mounts} if self.since("0.6.0") else {}),
            "kwargs": {},
            **more,
        }

    def _trial_config(
        self,
        task: str,
        name: str,
        kwargs: Mapping[str, Any] | None,
        env: Mapping[str, str] | None,
        agent: Mapping[str, Any] | None,
        environment: Mapping[str, Any] | None,
    ) -> dict[str, Any]:
        short = task.rsplit("/", 1)[-1]
        source = {"overwrite": False, "download_dir": None, "source": self.dataset}
        where: dict[str, Any] = {"path": f"tasks/{short}", "git_url": None, "git_commit_id": None}
        if "/" in task and self.since("0.6.0"):
            where = {"path": None, "git_url": None, "name": task, "ref": "latest"}
        return {
            "task": where | source,
            "trial_name": name,
            "trials_dir": str(self.path),
            **self._multipliers(),
            "agent": self._agent_config(kwargs or {}, env or {}, agent or {}),
            "environment": self._environment_config(environment or {}),
            "verifier": {"override_timeout_sec": None, "max_timeout_sec": None, "disable": False},
            "artifacts": [],
            "job_id": str(uuid.uuid5(uuid.NAMESPACE_URL, ascii(self.path))),
        }

    def _trial_lock(self, task: str, config: Mapping[str, Any], checksum: str | None) -> dict[str, Any]:
        digest = hashlib.sha256((checksum or task).encode()).hexdigest()
        locked = {"name": task, "type": "local", "digest": f"sha256:{digest}", "source": self.dataset}
        kept = ("agent", "environment", "verifier", *self._multipliers())
        lock = {"task": locked, **{key: config[key] for key in kept}}
        return {"schema_version": 2, **lock} if self.since("0.20.0") else lock

    def _job_lock(self) -> dict[str, Any]:
        schema = 3 if self.since("0.21.0") else 2 if self.since("0.18.0") else 1
        return {
            "schema_version": schema,
            "created_at": self.stamp(self.began),
            "harbor": {"version": self.version, "git_commit_hash": None, "is_editable": False},
            **({"invocation": ["harbor", "run", "-d", self.dataset or "."]} if schema == 1 else {}),
            "n_concurrent_trials": self.concurrent,
            "retry": {"max_retries": 0},
            "trials": self._locks,
        }

    def _job_result(self, planned: int, finished: bool) -> dict[str, Any]:
        done = len(self.trials)
        evals = {f"{self.agent}__{self.dataset}": {"n_trials": done, "n_errors": 0, "metrics": [{"mean": 0.5}]}}
        if self.since("0.6.0"):
            counts = {"n_completed_trials": done, "n_errored_trials": 0, "n_running_trials": 0}
            counts |= {"n_pending_trials": planned - done, "n_cancelled_trials": 0, "n_retries": 0}
        else:
            counts = {"n_trials": done, "n_errors": 0}
        return {
            "id": str(uuid.uuid5(uuid.NAMESPACE_URL, ascii(self.path))),
            "started_at": self.stamp(self.began, zone=False),
            **({"updated_at": self.stamp(self._clock, zone=False)} if self.since("0.6.0") else {}),
            "finished_at": self.stamp(self._clock, zone=False) if finished else None,
            "n_total_trials": planned,
            "stats": {**counts, "evals": evals},
        }

    def _phases(
        self,
        error: tuple[str, str] | None,
        phase: str,
        rewards: Mapping[str, Any] | None,
        seconds: Mapping[str, float] | None,
        first: float,
        steps: Sequence[Mapping[str, Any]] | None,
    ) -> tuple[dict[str, tuple[float, float]], float]:
        lengths = _SECONDS | dict(seconds or {})
        names = list(PHASES if error is None else PHASES[: PHASES.index(phase) + 1])
        if rewards is not None and "verify" not in names:
            names.append("verify")
        if steps:
            names = [name for name in names if name in ("environment", "setup")]
        now = first + 1
        times = {}
        for name in names:
            times[_KEYS[name]] = (now, now + lengths[name])
            now += lengths[name]
        for step in steps or ():
            now += float(step.get("seconds", _SECONDS["agent"]))
        return times, now + 1

    def _steps(
        self, steps: Sequence[Mapping[str, Any]], times: Mapping[str, tuple[float, float]]
    ) -> list[dict[str, Any]]:
        now = max((end for _, end in times.values()), default=self._clock)
        out = []
        for step in steps:
            length = float(step.get("seconds", _SECONDS["agent"]))
            error = step.get("error")
            error = (error, f"{error} happened") if isinstance(error, str) else error
            rewards = step.get("rewards")
            out.append(
                {
                    "step_name": step["name"],
                    "agent_result": context(step.get("tokens", (100, 40, 20)), None),
                    "verifier_result": None if rewards is None else {"rewards": rewards},
                    "exception_info": self._error(error, "", now + length) if error else None,
                    "agent_execution": self._timing((now, now + length - 1)),
                    "verifier": self._timing((now + length - 1, now + length)) if rewards is not None else None,
                }
            )
            now += length
        return out

    def _error(self, error: tuple[str, str], traceback: str, at: float) -> dict[str, Any]:
        kind, message = error
        document: dict[str, Any] = {
            "exception_type": kind,
            "exception_message": message,
            "exception_traceback": traceback or f"Traceback (most recent call last):\n{kind}: {message}\n",
            "occurred_at": self.stamp(at, zone=self.since("0.26.0")),
        }
        if self.since("0.26.0"):
            document["policy"] = {"should_retry": False, "should_grade": True, "has_valid_reward": True}
        return document

    def _model_info(self) -> dict[str, Any] | None:
        if self.model is None:
            return None
        provider, _, rest = self.model.partition("/")
        return {"name": rest, "provider": provider} if rest else {"name": provider, "provider": None}

    def _time(self, seconds: float) -> str:
        return self.stamp(seconds, zone=self.since("0.1.45"))

    def _timing(self, part: tuple[float, float] | None) -> dict[str, str] | None:
        return None if part is None else {"started_at": self._time(part[0]), "finished_at": self._time(part[1])}


def context(tokens: tuple[int | None, int | None, int | None] | None, cost: float | None) -> dict[str, Any] | None:
    """`agent_result` with tokens of input, cache and output, None for None."""
    if tokens is None:
        return None
    names = ("n_input_tokens", "n_cache_tokens", "n_output_tokens")
    return {**dict(zip(names, tokens)), "cost_usd": cost, "rollout_details": None, "metadata": None}


def put(path: Path, content: Any) -> Path:
    """Writes a text, bytes, or anything else as JSON indented as Harbor does; makes the directories above it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if isinstance(content, bytes):
        path.write_bytes(content)
    else:
        path.write_text(content if isinstance(content, str) else json.dumps(content, indent=4))
    return path


def unprivileged[T](look: Callable[[], T]) -> T:
    """What `look` returns to a user whom permissions bind: root looks as nobody, in a process of its own."""
    if os.getuid():
        return look()
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        try:
            os.close(reader)
            os.setgroups([])
            os.setgid(65534)
            os.setuid(65534)
            try:
                answer: Any = (True, look())
            except Exception as error:
                answer = (False, f"{type(error).__name__}: {error}")
            with open(writer, "wb") as out:
                pickle.dump(answer, out)
        finally:
            os._exit(0)
    os.close(writer)
    with open(reader, "rb") as answers:
        good, value = pickle.load(answers)
    os.waitpid(child, 0)
    if not good:
        raise AssertionError(value)
    return value


def tree_hash(root: Path) -> str:
    """Of every name, kind, size, mode, time of change and content below `root`, links not followed."""
    digest = hashlib.sha256()
    for path in sorted(root.rglob("*")):
        info = path.lstat()
        digest.update(
            f"{path.relative_to(root)}\0{info.st_mode}\0{info.st_size}\0{info.st_mtime_ns}\0".encode(
                "utf-8", "surrogateescape"
            )
        )
        if path.is_symlink():
            digest.update(str(path.readlink()).encode("utf-8", "surrogateescape"))
        elif path.is_file() and info.st_size < 1 << 26:
            digest.update(path.read_bytes())
    return digest.hexdigest()


def _number(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".")[:3])
