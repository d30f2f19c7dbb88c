"""What a Harbor job directory holds, of whichever version of Harbor: plain values, read leniently, never written."""

from __future__ import annotations

from pathlib import Path

import msgspec

type Rewards = dict[str, float | str | bool | None]


class Phase(msgspec.Struct, frozen=True, kw_only=True):
    """One timed part of a trial. `began`, `ended`: seconds since 1970 (UTC), None when it did not."""

    began: float | None = None
    ended: float | None = None

    @property
    def seconds(self) -> float | None:
        """Its length, None unless it has both ends."""
        return None if self.began is None or self.ended is None else self.ended - self.began


class RecordedError(msgspec.Struct, frozen=True, kw_only=True):
    """An exception as Harbor wrote it down.

    Attributes:
        type: bare class name; message: at most 20,000 characters, its beginning and its end; traceback: its last 8,000.
        at: when, seconds since 1970 (UTC), None when unknown; step: name of the step of a multi-step trial, "" for the
            trial itself.
        file: the file below the trial's directory in which it stands.
    """

    type: str
    message: str = ""
    traceback: str = ""
    at: float | None = None
    step: str = ""
    file: str = "result.json"


class TrialRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One trial directory.

    Attributes:
        job: the job's directory; path: the trial's; name: Harbor's trial name, else the directory's.
        problem: "" for one that was read; "incomplete" without a result, "corrupt" with one that cannot be parsed,
            "unreadable" where this user may not read, "too_large" beyond the bound. `problem_text` says it in one line.
        task: the whole task name as recorded, never made out of a directory's name ("" when no file tells it);
            checksum: of the task, None when unknown; dataset: the source's name, "" when unknown.
        agent, agent_version, model: "" when unknown. The model is provider/name as the trial's configuration has it.
            Only a result tells an agent's own name; without one it is the name or the class of the configuration.
        configured: agent, by its name or its class, and model, as the configuration has them, "" where it has none.
        agent_kwargs, agent_env_names: what the agent was given; names only of the environment, whose values are secret.
        errors: what was recorded, the trial's own first, then those of its steps.
        rewards: as written, non-finite numbers as "nan", "inf", "-inf"; None without a verifier's result.
        reward_file: rewards that only a file of the verifier tells, in a trial without a result.
        phases: of environment, setup, agent, verify; those of a multi-step trial from its first to its last step.
        began, ended: seconds since 1970 (UTC), None when unknown; ended_from: "result", "error", or "file" (its mtime).
        agent_timeout: seconds that applied, None when no file tells; timeout_multiplier: of the agent's time, 1 unless
            one is recorded.
        input_tokens, cached_tokens, output_tokens, cost_usd: None when not recorded.
        steps: number of steps of a multi-step trial, 0 for a single one.
        environment: type or import path of the sandbox; sandbox: its sizes as overridden (cpus, memory_mb, ...).
        harbor: version that wrote it, "" when unknown.
    """

    job: Path
    path: Path
    name: str
    problem: str = ""
    problem_text: str = ""
    task: str = ""
    checksum: str | None = None
    dataset: str = ""
    agent: str = ""
    agent_version: str = ""
    model: str = ""
    configured: tuple[str, str] = ("", "")
    agent_kwargs: dict[str, object] = {}
    agent_env_names: tuple[str, ...] = ()
    errors: tuple[RecordedError, ...] = ()
    rewards: Rewards | None = None
    reward_file: Rewards | None = None
    phases: dict[str, Phase] = {}
    began: float | None = None
    ended: float | None = None
    ended_from: str = "result"
    agent_timeout: float | None = None
    timeout_multiplier: float = 1.0
    input_tokens: int | None = None
    cached_tokens: int | None = None
    output_tokens: int | None = None
    cost_usd: float | None = None
    steps: int = 0
    environment: str = ""
    sandbox: dict[str, object] = {}
    harbor: str = ""

    @property
    def short_task(self) -> str:
        """The task's name without its organisation: one task may be recorded either way."""
        return self.task.rsplit("/", 1)[-1]


class JobRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One job directory.

    Attributes:
        path: it; name: Harbor's job name, else the directory's.
        planned: trials that Harbor meant to run, None when unknown; attempts: of each task, None when unknown.
        finished: Harbor wrote the end of the job; began, ended: seconds since 1970 (UTC); Harbor writes them in the
            local time of its machine, so that they are only as good as that.
        running: a process of this machine works in it now, as far as can be seen.
        concurrent: trials at a time; harbor: version, "" when unknown; lock_version: schema of lock.json, None without.
        config, lock: as parsed, bounded; {} when absent or unreadable.
        strays: entries of the directory that are no trial and none of Harbor's files.
        problems: one line each, of files that could not be read.
    """

    path: Path
    name: str
    planned: int | None = None
    attempts: int | None = None
    finished: bool = False
    began: float | None = None
    ended: float | None = None
    running: bool = False
    concurrent: int | None = None
    harbor: str = ""
    lock_version: int | None = None
    config: dict[str, object] = {}
    lock: dict[str, object] = {}
    strays: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()
