"""What the checks look at."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from console.bench.running.harbor_view import AgentView, HarborView
from console.bench.running.options import BenchOptions

BWRAP = "console.trials.bwrap:BwrapEnvironment"
LOCAL = frozenset({"docker", "podman", "kata", "apple-container", "singularity", "sbx", BWRAP})
"""Environments whose sandboxes share this machine."""


class Task(msgspec.Struct, frozen=True, kw_only=True):
    """A task that lies here: its name, its directory, and its task.toml ({} when it cannot be read)."""

    name: str
    path: Path
    config: dict[str, Any]

    def part(self, name: str) -> Mapping[str, Any]:
        """A table of its task.toml."""
        part = self.config.get(name)
        return part if isinstance(part, dict) else {}


class Case(msgspec.Struct, frozen=True, kw_only=True):
    """A run that is to be started.

    Attributes:
        options: of the run; view: what Harbor said; environment: variables that Harbor will have.
        tasks: those that lie here, None where only the network knows them; cores: of this machine.
    """

    options: BenchOptions
    view: HarborView
    environment: Mapping[str, str]
    tasks: list[Task] | None = None
    cores: int = 1

    @property
    def job(self) -> Mapping[str, Any]:
        """With every default filled in, if Harbor takes it; as given otherwise."""
        return self.view.job or self.options.job

    @property
    def agents(self) -> list[tuple[int, AgentView, Mapping[str, Any]]]:
        """Number, what Harbor says of it, and its part of the job."""
        whole, given = self.job.get("agents"), self.options.job.get("agents")
        parts = [dict(part) for part in whole] if isinstance(whole, list) else []
        for part, own in zip(parts, given if isinstance(given, list) else []):
            # Harbor blots out what it takes for a secret, such as the word EMPTY.
            part |= {"env": own["env"]} if isinstance(own, dict) and "env" in own else {}
        return [(number, view, part) for number, (view, part) in enumerate(zip(self.view.agents, parts))]

    @property
    def kind(self) -> str:
        """The environment's type or import path; `docker`, which Harbor takes when neither is given."""
        part = self.part("environment")
        return str(part.get("import_path") or part.get("type") or "docker")

    @property
    def remote(self) -> bool:
        """Whether the sandboxes run elsewhere. A class by import path is taken to run here."""
        return self.kind not in LOCAL and ":" not in self.kind

    @property
    def concurrency(self) -> int:
        """Trials at once, as the job asks for."""
        value = self.job.get("n_concurrent_trials", 4)
        return value if isinstance(value, int) else 4

    @property
    def at_once(self) -> int:
        """The same, or all trials if there are fewer."""
        if self.tasks is None:
            return self.concurrency
        return min(
            self.concurrency, int(number(self.job.get("n_attempts"), 1.0)) * len(self.tasks) * len(self.view.agents)
        )

    def part(self, name: str) -> Mapping[str, Any]:
        """A mapping of the job, empty when it is not there."""
        part = self.job.get(name)
        return part if isinstance(part, Mapping) else {}

    def agent_seconds(self, agent: Mapping[str, Any], task: Task) -> float | None:
        """The agent's limit for a task as Harbor reckons it, None for no limit."""
        multiplier = number(self.job.get("agent_timeout_multiplier"), number(self.job.get("timeout_multiplier"), 1.0))
        base = number(agent.get("override_timeout_sec"), 0.0) or number(task.part("agent").get("timeout_sec"), 0.0)
        most = number(agent.get("max_timeout_sec"), 0.0)
        if not base and not most:
            return None
        return min(base or most, most or base) * multiplier


def number(value: object, otherwise: float) -> float:
    """`otherwise` for what is missing or no number: Harbor's own check names that."""
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else otherwise


def read_tasks(view: HarborView) -> list[Task] | None:
    """The tasks that lie here, with their task.toml."""
    if view.tasks is None:
        return None
    found = []
    for told in view.tasks:
        path = Path(told.path)
        try:
            config = tomllib.loads((path / "task.toml").read_text(encoding="utf-8"))
        except (OSError, ValueError):
            config = {}
        found.append(Task(name=told.name, path=path, config=config))
    return found
