"""What only the installed Harbor can say about a job: run as a process, a job on stdin, one JSON object on stdout.

A process of its own, since Harbor takes seconds and hundreds of megabytes to import, and its preflights end the process
that asks them. It starts no sandbox, asks no model, and writes nothing. The job on stdin holds no secret.
"""

from __future__ import annotations

import asyncio
import contextlib
import fnmatch
import importlib.metadata
import json
import os
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec
from harbor.agents.agent_auth_resolution import MissingModelCredentialError, resolve_agent_model_connection
from harbor.agents.factory import AgentFactory
from harbor.agents.installed.base import BaseInstalledAgent
from harbor.agents.nop import NopAgent
from harbor.agents.oracle import OracleAgent
from harbor.environments.factory import EnvironmentFactory
from harbor.models.job.config import DatasetConfig, JobConfig, RetryConfig
from harbor.models.task.task import Task
from harbor.models.trial.config import AgentConfig, TaskConfig
from harbor.utils.env import resolve_env_vars
from pydantic import BaseModel, ValidationError

from console.findings import WARNING, Finding
from console.trials.config_check import check_with_harbor, did_you_mean

_LISTS: dict[str, type[BaseModel]] = {"datasets": DatasetConfig, "tasks": TaskConfig}
_LEGACY = {"orchestrator", "plugins"}
_NAMED = 5


def check_job(job: Mapping[str, Any]) -> dict[str, Any]:
    """Findings and facts about a job whose values hold no secret.

    Returns:
        `harbor` (version), `findings`, `valid`; of a valid job also `job` (every value, defaults filled in), `agents`
        (see `_agent`), `tasks` (name, path of each task of a local dataset, None where only the network knows some).
    """
    findings = [*_unknown_fields(job)]
    answer: dict[str, Any] = {"harbor": importlib.metadata.version("harbor"), "valid": False}
    try:
        config = JobConfig.model_validate(job)
    except ValidationError as problem:
        findings += [_invalid(error) for error in problem.errors(include_url=False, include_input=False)]
    else:
        answer |= {"valid": True, "job": config.model_dump(mode="json")}
        raw = job.get("agents") or [{}]
        agents = []
        for index, agent in enumerate(config.agents):
            refused = list(_of_trial({"agent": raw[index]}, "agent.", f"agents.{index}."))
            told, found = _agent(agent, f"agents.{index}", config.skip_credential_checks or config.install_only)
            agents.append(told)
            findings += refused or found  # the second is what the first comes to
        parts = {name: job[name] for name in ("environment", "verifier") if isinstance(job.get(name), Mapping)}
        refused = list(_of_trial(parts, "", ""))
        findings += refused or _environment(config)
        tasks, found = asyncio.run(_tasks(config))
        answer |= {"agents": agents, "tasks": tasks}
        findings += found
    answer["findings"] = [msgspec.to_builtins(finding) for finding in findings]
    return answer


def _unknown_fields(job: Mapping[str, Any]) -> Iterator[Finding]:
    yield from _unknown(job, JobConfig, "", _LEGACY)
    if isinstance(job.get("retry"), Mapping):
        yield from _unknown(job["retry"], RetryConfig, "retry.")
    for name, model in _LISTS.items():
        for index, entry in enumerate(job[name] if isinstance(job.get(name), list) else []):
            if isinstance(entry, Mapping):
                yield from _unknown(entry, model, f"{name}.{index}.", {"registry"})
    if "plugins" in job:
        yield Finding(
            code="bench.plugins",
            level=WARNING,
            object="plugins",
            message="Harbor ignores it in a job file",
            remedy="remove it",
        )


def _unknown(
    part: Mapping[str, Any], model: type[BaseModel], prefix: str, also: set[str] | None = None
) -> list[Finding]:
    known = set(model.model_fields) | (also or set())
    found = []
    for key in part:
        if key not in known:
            found.append(
                Finding(
                    code="bench.unknown_field",
                    object=f"{prefix}{key}",
                    message=f"is not a field of Harbor's {model.__name__}, which would ignore it",
                    remedy=did_you_mean(str(key), known, prefix),
                )
            )
    return found


def _invalid(error: Any) -> Finding:
    where = ".".join(str(part) for part in error["loc"]) or "the job"
    return Finding(
        code="bench.invalid",
        object=where,
        message=f"Harbor {importlib.metadata.version('harbor')} refuses it: {error['msg']}",
        remedy="correct it in the job file",
    )


def _of_trial(part: Mapping[str, Any], prefix: str, wanted: str) -> Iterator[Finding]:
    """What is checked of a single trial's file is checked of a job's parts."""
    for found in check_with_harbor(part):
        name = found.object
        yield Finding(
            code="bench." + found.code.partition(".")[2],
            level=found.level,
            object=wanted + name.removeprefix(prefix) if prefix and name.startswith(prefix) else name,
            message=found.message,
            remedy=found.remedy.replace("agent.", wanted).replace("in the trial file", "in the job file")
            if ": the gateway" not in found.remedy
            else "remove it",
        )


def _agent(agent: AgentConfig, where: str, unchecked: bool) -> tuple[dict[str, Any], list[Finding]]:
    """Where an agent's model calls are made, and with what, as Harbor works it out.

    `side`: sandbox for a program installed there, host for one that calls the model from Harbor's own process, none for
    those that call no model. `endpoint`, `endpoint_from`: URL that somebody gave, and the variable it came from;
    `key_name`: variable the key came from; `key`: whether there is one; `wanted`: variables that it is looked for in;
    `format`: of the API; `provider`, `model_id`: what LiteLLM reads in the model's name.
    """
    told: dict[str, Any] = {"name": agent.name or agent.import_path or "", "model": agent.model_name or ""}
    told |= {"side": "unknown", "endpoint": "", "endpoint_from": "", "key_name": "", "key": False, "wanted": []}
    told |= {"format": "", "options": [], "provider": "", "model_id": ""}
    findings: list[Finding] = []
    try:
        agent_class = AgentFactory.get_agent_class_from_config(agent)
    except Exception:
        return told, findings  # said already
    if issubclass(agent_class, BaseInstalledAgent):
        told["side"] = "sandbox"
    elif issubclass(agent_class, OracleAgent | NopAgent):
        told["side"] = "none"
    elif agent.name is not None:
        told["side"] = "host"
    told["options"] = sorted(agent_class.options_model.model_fields) if agent_class.options_model else []
    try:
        connection = resolve_agent_model_connection(_resolvable(agent))
        told |= {
            "endpoint": connection.user_supplied_base_url or "",
            "endpoint_from": connection.base_url_source_name or "",
            "key_name": connection.api_key_source_name or "",
            "key": bool(connection.api_key),
            "wanted": list(connection.api_key_candidate_names),
            "format": str(connection.model_api_format or ""),
            "provider": connection.provider or "",
            "model_id": connection.model_id or "",
        }
        AgentFactory.run_preflight(agent, skip_credential_checks=unchecked)
    except (Exception, SystemExit) as problem:
        findings.append(
            Finding(
                code=_agent_code(problem),
                object=where,
                message=f"Harbor would refuse {told['name']}: {_line(problem)}",
                remedy="correct it in the job file, or export what is missing",
            )
        )
    return told, findings


def _resolvable(agent: AgentConfig) -> AgentConfig:
    """Without variables that the shell does not have: the rest of the wiring can be told all the same."""
    unset = set()
    for name, value in agent.env.items():
        try:
            resolve_env_vars({name: value})
        except ValueError:
            unset.add(name)
    return agent.model_copy(update={"env": {name: value for name, value in agent.env.items() if name not in unset}})


def _agent_code(problem: BaseException) -> str:
    if isinstance(problem, MissingModelCredentialError):
        return "bench.agent_credential"
    return "bench.agent_variable" if "not found in host environment" in str(problem) else "bench.agent"


def _environment(config: JobConfig) -> Iterator[Finding]:
    """Whether sandboxes of this kind can be had here: programs, services, packages, keys."""
    kind = config.environment
    try:
        EnvironmentFactory.run_preflight(type=kind.type, import_path=kind.import_path, kwargs=kind.kwargs)
    except (Exception, SystemExit) as problem:
        yield Finding(
            code="bench.environment",
            object="environment.import_path" if kind.import_path else "environment.type",
            message=f"{kind.import_path or (kind.type.value if kind.type else 'docker')} cannot be used here: "
            f"{_line(problem)}",
            remedy="mend that, or choose another environment",
        )


async def _tasks(config: JobConfig) -> tuple[list[dict[str, str]] | None, list[Finding]]:
    """Tasks of local datasets, filtered as Harbor filters them, and the single tasks that lie here."""
    tasks: list[dict[str, str]] = []
    findings: list[Finding] = []
    known = True
    for index, task in enumerate(config.tasks):
        if task.is_git_task() or task.is_package_task() or task.path is None:
            known = False
        elif not Task.is_valid_dir(task.path, disable_verification=config.verifier.disable):
            findings.append(_no_task(f"tasks.{index}.path", task.path))
        else:
            tasks.append({"name": task.path.name, "path": str(task.path)})
    for index, dataset in enumerate(config.datasets):
        where = f"datasets.{index}"
        if not dataset.is_local() or dataset.path is None:
            known = False
            continue
        if not dataset.path.is_dir():
            findings.append(
                Finding(
                    code="bench.dataset",
                    object=f"{where}.path",
                    message=f"{dataset.path} is no directory",
                    remedy="name the directory that holds the tasks",
                )
            )
            continue
        findings += _globs(dataset, where, config.verifier.disable)
        try:
            found = await dataset.get_task_configs(disable_verification=config.verifier.disable)
        except Exception as problem:
            if not any(finding.object.startswith(where) for finding in findings):
                findings.append(
                    Finding(code="bench.dataset", object=where, message=_line(problem), remedy="correct the filters")
                )
            continue
        if not found and not any(finding.object.startswith(where) for finding in findings):
            findings.append(
                Finding(
                    code="bench.no_tasks",
                    object=where,
                    message=f"{dataset.path} has no task for this job",
                    remedy="each task is a directory with a task.toml directly below it; look at the filters",
                )
            )
        tasks += [{"name": task.path.name, "path": str(task.path)} for task in found if task.path is not None]
    return (tasks if known else None), findings


def _no_task(where: str, path: Path) -> Finding:
    return Finding(
        code="bench.no_task",
        object=where,
        message=f"{path} {'is no task that Harbor can run' if path.is_dir() else 'is no directory'}",
        remedy="a task is a directory with task.toml, instruction.md, tests/test.sh, and environment/ or docker_image",
    )


def _globs(dataset: DatasetConfig, where: str, disabled: bool) -> Iterator[Finding]:
    """Names that match nothing, and directories that Harbor passes over in silence."""
    assert dataset.path is not None
    names, passed = [], []
    for path in sorted(dataset.path.iterdir()):
        if Task.is_valid_dir(path, disable_verification=disabled):
            names.append(path.name)
        elif (path / "task.toml").is_file():
            passed.append(path.name)
    for key, patterns in (("task_names", dataset.task_names), ("exclude_task_names", dataset.exclude_task_names)):
        for index, pattern in enumerate(patterns or []):
            if not any(fnmatch.fnmatch(name, pattern) for name in names):
                yield Finding(
                    code="bench.glob",
                    level="error" if key == "task_names" else WARNING,
                    object=f"{where}.{key}.{index}",
                    message=f"{pattern!r} is the name of none of the {len(names)} tasks of {dataset.path}",
                    remedy=_close(pattern, names),
                )
    if passed:
        yield Finding(
            code="bench.passed_over",
            level=WARNING,
            object=f"{where}.path",
            message=f"tasks that Harbor cannot run, and passes over without a word: {len(passed)}, namely "
            + ", ".join(passed[:_NAMED]),
            remedy="mend them, or count without them",
        )


def _close(pattern: str, names: list[str]) -> str:
    import difflib

    close = difflib.get_close_matches(pattern, names, n=1, cutoff=0.6)
    if close:
        return f"did you mean {close[0]}?"
    if any(letter in pattern for letter in "[]") and any(name == pattern for name in names):
        return "write [ as [[], it is a glob"
    return f"it has {', '.join(names[:3])}, ..." if names else "the directory has no task"


def _line(problem: BaseException) -> str:
    return " ".join(str(problem).split())[:400].rstrip(".") or type(problem).__name__


def main() -> None:
    """Answer once. What Harbor prints meanwhile goes to stderr."""
    with os.fdopen(os.dup(1), "w", encoding="utf-8") as out:
        os.dup2(2, 1)
        with contextlib.redirect_stdout(sys.stderr):
            json.dump(check_job(json.load(sys.stdin)), out)


if __name__ == "__main__":
    main()
