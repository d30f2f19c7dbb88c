"""What only the installed Harbor can say about a trial file: unknown fields, agent and environment options.

Harbor ignores unknown fields silently and refuses an agent option only when the trial is made, so both are asked for
here, before any sandbox exists. Importing this module imports Harbor.
"""

from __future__ import annotations

import contextlib
import difflib
import importlib.metadata
import io
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from harbor.agents.factory import AgentFactory, agent_config_kwargs
from harbor.environments.factory import EnvironmentFactory
from harbor.models.trial.config import AgentConfig, EnvironmentConfig, TrialConfig, VerifierConfig
from pydantic import BaseModel, ValidationError

from console.findings import Finding

_PARTS: dict[str, type[BaseModel]] = {
    "agent": AgentConfig,
    "environment": EnvironmentConfig,
    "verifier": VerifierConfig,
}

_REMEDIES = {
    "max_seq_len": "remove it: the gateway's context window applies, and the capture gateway reports an overflow",
}

_UNKNOWN = re.compile(r"Unknown option '([^']+)'")


def check_with_harbor(config: Mapping[str, Any]) -> list[Finding]:
    """Findings about a trial file, its placeholders replaced by any text. Starts nothing and asks no provider."""
    findings = list(_unknown_fields(config))
    try:
        trial = TrialConfig.model_validate({**config, "task": {"path": "task"}})
    except ValidationError as problem:
        return findings + [_invalid(error) for error in problem.errors(include_url=False, include_input=False)]
    return [*findings, *_agent(trial.agent), *_environment(trial.environment)]


def _unknown_fields(config: Mapping[str, Any]) -> Iterator[Finding]:
    yield from _unknown("", config, TrialConfig)
    for name, model in _PARTS.items():
        part = config.get(name)
        if isinstance(part, Mapping):
            yield from _unknown(f"{name}.", part, model)


def _unknown(prefix: str, part: Mapping[str, Any], model: type[BaseModel]) -> Iterator[Finding]:
    known = {name for field, info in model.model_fields.items() for name in (field, info.alias) if name}
    for key in part:
        if key not in known:
            yield Finding(
                code="trial.unknown_field",
                object=f"{prefix}{key}",
                message=f"is not a field of Harbor {_version()}'s {model.__name__}, which would ignore it",
                remedy=did_you_mean(key, known - {"task"}, prefix),
            )


def did_you_mean(key: str, known: Iterable[str], prefix: str = "", otherwise: str = "remove it") -> str:
    """Which of the known names was meant, behind the prefix; `otherwise` when none of them is close."""
    close = difflib.get_close_matches(key, sorted(known), n=1, cutoff=0.7)
    return f"did you mean {prefix}{close[0]}?" if close else otherwise


def _invalid(error: Any) -> Finding:
    where = ".".join(str(part) for part in error["loc"]) or "harbor.trial_config"
    return Finding(
        code="trial.invalid",
        object=where,
        message=f"Harbor {_version()} refuses it: {error['msg']}",
        remedy="correct it in the trial file",
    )


def _agent(agent: AgentConfig) -> Iterator[Finding]:
    try:
        agent_class = AgentFactory.get_agent_class_from_config(agent)
    except Exception as problem:
        names = AgentFactory.registered_names()
        hint = did_you_mean(agent.name or "", names, otherwise="name an agent of Harbor, or a class as module:Class")
        yield Finding(
            code="trial.agent",
            object="agent.import_path" if agent.import_path else "agent.name",
            message=f"no such agent: {agent.import_path or agent.name} ({_first_line(problem)})",
            remedy=hint,
        )
        return
    kwargs = agent_config_kwargs(agent)
    for name in ("model_api_key_name", "model_api_format"):
        kwargs.pop(name, None)
    known = agent_class.options_model.model_fields if agent_class.options_model else {}
    # Harbor's factory reads variables of the environment here; they are checked elsewhere.
    plain = {key: value for key, value in agent.env.items() if not value.startswith("${")}
    yield from _options("agent", agent_class.name(), known, lambda: agent_class.parse_options(kwargs, plain))


def _environment(environment: EnvironmentConfig) -> Iterator[Finding]:
    kind = environment.import_path or (environment.type.value if environment.type else "docker")
    try:
        if environment.import_path:
            env_class = EnvironmentFactory.get_environment_class(import_path=environment.import_path)
        else:
            env_class = EnvironmentFactory.get_environment_class(environment.type)
    except Exception as problem:
        yield Finding(
            code="trial.environment",
            object="environment.import_path" if environment.import_path else "environment.type",
            message=f"{kind} cannot be loaded: {_first_line(problem)}",
            remedy="install what it needs, or choose another environment",
        )
        return
    known = env_class.options_model.model_fields if env_class.options_model else {}
    yield from _options("environment", kind, known, lambda: env_class.parse_options(environment.kwargs))


def _options(part: str, name: str, known: Mapping[str, Any], parse: Any) -> Iterator[Finding]:
    """Findings of an options model; one for each unknown option, else what the model says."""
    try:
        with contextlib.redirect_stderr(io.StringIO()):
            parse()
    except Exception as problem:
        text = str(problem)
        unknown = _UNKNOWN.findall(text)
        for option in unknown:
            yield Finding(
                code="trial.unknown_kwarg",
                object=f"{part}.kwargs.{option}",
                message=f"{name} of Harbor {_version()} has no option {option}",
                remedy=_REMEDIES.get(option) or did_you_mean(option, known, f"{part}.kwargs."),
            )
        if not unknown:
            lines = [line.strip() for line in text.splitlines() if line.strip()]
            yield Finding(
                code="trial.kwargs",
                object=f"{part}.kwargs",
                message=f"{name} of Harbor {_version()} refuses them: {' '.join(lines)}",
                remedy="correct them in the trial file",
            )


def _first_line(problem: BaseException) -> str:
    lines = str(problem).strip().splitlines()
    return (lines[0].split(" Valid agent names")[0] if lines else type(problem).__name__)[:200]


def _version() -> str:
    return importlib.metadata.version("harbor")
