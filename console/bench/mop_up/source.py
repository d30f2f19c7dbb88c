"""What a job was told to run, read from its own files: its configuration as it stands there, its tasks and agents."""

from __future__ import annotations

import glob
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from console.errors import UsageError
from console.records.harbor.files import NoFileError, directory, read_whole, shown
from console.records.harbor.job_files import LOCK_LIMIT
from console.records.harbor.jobs import CONFIG_LIMIT
from console.records.harbor.values import CorruptError, parse, table, text

ENDPOINTS = frozenset({"api_base", "base_url", "api_url", "endpoint", "api_endpoint"})
"""Options of agents that say where the model is served: a mop-up may change them."""


class TaskRef(msgspec.Struct, frozen=True, order=True):
    """A task as Harbor finds it: a package's whole name, or the path of its directory, on this machine or in a
    repository; and the dataset that it came from, "" for one that was named by itself."""

    name: str = ""
    path: str = ""
    git_url: str = ""
    commit: str = ""
    source: str = ""

    @property
    def word(self) -> str:
        """What Harbor's filters match: a package's whole name, else the last part of the path."""
        parts = [part for part in re.split(r"[/\\\\]", self.path) if part not in ("", ".")]
        return parts[-1] if parts else self.name

    @property
    def plain(self) -> TaskRef:
        """Without where it was found, which may have been elsewhere for another try."""
        return msgspec.structs.replace(self, path=self.word if self.path else "")

    @property
    def bare(self) -> TaskRef:
        """What it is chosen by: its name in filters, and its dataset."""
        return TaskRef(name=self.word, source=self.source)

    @property
    def pattern(self) -> str:
        """A filter that matches this task alone: filters are globs."""
        return glob.escape(self.word)


class Source(msgspec.Struct, frozen=True, kw_only=True):
    """A job's own files.

    Attributes:
        path: its directory, absolute; config: config.json as parsed, with whatever it holds.
        agents: of the configuration, at least one.
        planned: (task, short name, agent's number) for each trial that was locked; None when no lock tells them.
    """

    path: Path
    config: dict[str, Any]
    agents: tuple[dict[str, Any], ...]
    planned: tuple[tuple[TaskRef, str, int], ...] | None = None

    def of_trial(self, trial: Path) -> tuple[TaskRef | None, int]:
        """The task of a trial, None when its files do not tell it, and the number of its agent."""
        config = _document(trial, "config.json", CONFIG_LIMIT) or _document(trial, "lock.json", CONFIG_LIMIT)
        task = table(config.get("task"))
        found = task_ref(task) if task else None
        return found if found and found.word else None, self.agent(table(config.get("agent")))

    def agent(self, config: Mapping[str, Any]) -> int:
        """The number of the job's agent that a trial's agent is: the most alike; of several the first."""
        ranked = [(_alike(agent, config), -number) for number, agent in enumerate(self.agents)]
        return -max(ranked)[1]


def read_source(path: Path) -> Source:
    """Reads a job's configuration and, where there is one, the plan in its lock.

    Raises:
        UsageError: the configuration is not there, cannot be read, or is of a job that cannot be repeated.
    """
    where = f"{shown(path)}/config.json"
    try:
        with directory(path) as dir_fd:
            data = read_whole(dir_fd, "config.json", CONFIG_LIMIT)
        config = None if data is None else parse(data)
    except OSError as error:
        raise UsageError(f"{where}: cannot be read ({error.strerror})") from None
    except (NoFileError, CorruptError) as error:
        raise UsageError(f"{where}: {error}; without it nobody knows how the job was run") from None
    if config is None:
        raise UsageError(f"{where}: is not there; without it nobody knows how the job was run")
    if not isinstance(config, dict):
        raise UsageError(f"{where}: holds no JSON object; without it nobody knows how the job was run")
    if config.get("source_jobs"):
        raise UsageError(
            f"{shown(path)}: grades the trials of another job anew, and ran no agent; mop up the job it derives from"
        )
    listed = config.get("agents")
    agents = tuple(table(agent) for agent in listed) if isinstance(listed, list) and listed else ({"name": "oracle"},)
    source = Source(path=path, config=config, agents=agents)
    return msgspec.structs.replace(source, planned=_planned(source))


def task_ref(config: Mapping[str, Any]) -> TaskRef:
    """A task out of a trial's configuration or lock."""
    path = text(config.get("path"), 4096)
    return TaskRef(
        name="" if path else text(config.get("name")),
        path=path,
        git_url=text(config.get("git_url"), 4096),
        commit=text(config.get("git_commit_id")),
        source=text(config.get("source")),
    )


def _planned(source: Source) -> tuple[tuple[TaskRef, str, int], ...] | None:
    trials = _document(source.path, "lock.json", LOCK_LIMIT).get("trials")
    if not isinstance(trials, list):
        return None
    found = []
    for trial in trials:
        task = table(table(trial).get("task"))
        ref = task_ref(task)
        if not ref.word:
            return None
        name = text(task.get("name")) or ref.word
        found.append((ref, name.rsplit("/", 1)[-1], source.agent(table(table(trial).get("agent")))))
    return tuple(found)


def _document(path: Path, name: str, limit: int) -> dict[str, Any]:
    """The parsed file, {} when there is none that can be read."""
    try:
        with directory(path) as dir_fd:
            data = read_whole(dir_fd, name, limit)
        return table(parse(data)) if data is not None else {}
    except (OSError, NoFileError, CorruptError):
        return {}


def _alike(one: Mapping[str, Any], other: Mapping[str, Any]) -> int:
    """How much two agents are the same, from 0: name, model, options; where the model is served does not count."""

    def said(agent: Mapping[str, Any], key: str) -> Any:
        return agent.get(key) or None

    name = any(said(one, key) and said(one, key) == said(other, key) for key in ("name", "import_path"))
    model = said(one, "model_name") == said(other, "model_name")
    options = _options(one) == _options(other)
    return 4 * int(name) + 2 * int(model) + int(options)


def _options(agent: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in table(agent.get("kwargs")).items() if key not in ENDPOINTS}


def same_agents(source: Source) -> bool:
    """Whether two agents have one name and one model, so that the trials of a later job could not be told apart."""
    seen = [
        (repr(agent.get("name") or agent.get("import_path")), repr(agent.get("model_name"))) for agent in source.agents
    ]
    return len(set(seen)) < len(seen)
