"""What a trial was told to do: its configuration, in any version's shape, and its lock."""

from __future__ import annotations

import re
from typing import Any

from console.records.harbor.values import environment_names, number, public, table, text

_TIMED_OUT = re.compile(r"Agent execution timed out after (\d+(?:\.\d+)?) seconds")
_SIZES = ("cpus", "memory_mb", "storage_mb", "gpus", "tpu")


def told(config: dict[str, Any]) -> dict[str, Any]:
    """Fields of a TrialRecord that a trial's configuration tells, those that it does not tell left out."""
    agent = table(config.get("agent"))
    environment = table(config.get("environment"))
    task = table(config.get("task"))
    agent_name, model = text(agent.get("name")) or text(agent.get("import_path")), text(agent.get("model_name"))
    fields: dict[str, Any] = {
        "name": text(config.get("trial_name")),
        "task": task_name(task),
        "dataset": text(task.get("source")),
        "agent": agent_name,
        "model": model,
        "configured": (agent_name, model),
        "agent_kwargs": public(table(agent.get("kwargs"))),
        "agent_env_names": environment_names(agent.get("env")),
        "environment": text(environment.get("type")) or text(environment.get("import_path")),
        "sandbox": _sandbox(environment),
        "agent_timeout": _timeout(agent, multiplier(config)),
        "timeout_multiplier": multiplier(config),
    }
    return {key: value for key, value in fields.items() if value not in ("", None, {}, (), ("", ""))}


def multiplier(config: dict[str, Any]) -> float:
    """Of the agent's time: its own when it has one, else that of all times, else 1."""
    for key in ("agent_timeout_multiplier", "timeout_multiplier"):
        found = number(config.get(key))
        if found is not None:
            return found
    return 1.0


def task_name(task: dict[str, Any]) -> str:
    """The name of a configured task: a package's whole name, else the last part of its path, "" for a path without one.

    A path like "." names a task only together with a working directory that is not recorded.
    """
    name = text(task.get("name"))
    if name:
        return name
    parts = [part for part in re.split(r"[/\\]", text(task.get("path"))) if part]
    return parts[-1] if parts and parts[-1] not in (".", "..") else ""


def locked(lock: dict[str, Any]) -> dict[str, Any]:
    """Fields that a trial's lock tells in a trial without a result: of its task, and what a configuration tells, too.

    Its digest is not the checksum of results, which is made in another way.
    """
    return told(lock)


def timed_out_after(message: str) -> float | None:
    """Seconds after which the agent was stopped, as the message of its timeout has them."""
    found = _TIMED_OUT.search(message)
    return float(found[1]) if found else None


def _timeout(agent: dict[str, Any], times: float) -> float | None:
    """As Harbor reckons it; without an override it stands in the task, which the trial does not carry."""
    base = number(agent.get("override_timeout_sec"))
    if not base:
        return None
    most = number(agent.get("max_timeout_sec"))
    return min(base, most or base) * times


def _sandbox(environment: dict[str, Any]) -> dict[str, object]:
    sizes = {name: public(environment.get(f"override_{name}")) for name in _SIZES}
    options: dict[str, object] = public(table(environment.get("kwargs")))
    return {name: size for name, size in sizes.items() if size is not None} | options
