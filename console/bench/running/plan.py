"""What a run would do: tasks, attempts, agents, trials, where, and for how long at most."""

from __future__ import annotations

from typing import Any

from console.bench.running.preflight import Examination
from console.bench.running.preflight.case import Case
from console.bench.running.secrets import shown


def plan_of(found: Examination) -> dict[str, Any]:
    """The plan as JSON. `tasks`, `trials` and `longest_hours` are null where only the network knows the tasks.

    Keys: job_dir, run_dir, harbor, environment, concurrency, attempts, tasks, task_names, trials, datasets, agents
    (each with name, model, side, endpoint), longest_hours (every agent to its limit; null also where one has none),
    throttle, early_stop.
    """
    options, view = found.options, found.view
    case = Case(options=options, view=view, environment={}, tasks=found.tasks)
    return {
        "job_dir": options.job_dir,
        "run_dir": options.run_dir,
        "harbor": view.harbor,
        "environment": case.kind,
        "concurrency": case.concurrency,
        "attempts": int(case.job.get("n_attempts", 1)),
        "tasks": None if found.tasks is None else len(found.tasks),
        "task_names": None if found.tasks is None else [task.name for task in found.tasks],
        "trials": found.trials,
        "datasets": [shown(_dataset(entry)) for entry in case.job.get("datasets") or []],
        "agents": [
            {"name": agent.name, "model": agent.model, "side": agent.side, "endpoint": shown(agent.endpoint)}
            for agent in view.agents
        ],
        "longest_hours": _longest(case),
        "throttle": options.throttle,
        "early_stop": options.early_stop,
    }


def _dataset(entry: Any) -> str:
    """As a reader would name it: path, name with its version, or repository."""
    part = entry if isinstance(entry, dict) else {}
    if part.get("repo"):
        return " ".join(str(part[key]) for key in ("repo", "path", "name") if part.get(key))
    name = part.get("path") or part.get("name") or ""
    version = part.get("version") or part.get("ref")
    return f"{name}@{version}" if version else str(name)


def _longest(case: Case) -> float | None:
    """Hours if each agent used all of its time, the trials laid end to end in as many rows as run at once."""
    if case.tasks is None:
        return None
    total = 0.0
    for _, _, part in case.agents:
        for task in case.tasks:
            limit = case.agent_seconds(part, task)
            if limit is None:
                return None
            total += limit
    return round(total * int(case.job.get("n_attempts", 1)) / max(1, case.concurrency) / 3600, 2)
