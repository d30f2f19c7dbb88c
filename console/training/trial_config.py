"""The trial file (`harbor.trial_config`): a Harbor TrialConfig without `task`, with two placeholders.

Reading, checking without Harbor, and the substitution that makes one trial's config. What only the installed Harbor can
judge (unknown fields, agent options) is checked by `console.trials.config_check`.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from console.errors import UsageError
from console.findings import ERROR, NOTE, WARNING, Finding
from console.training.reach import reach_doubt

PLACEHOLDERS = ("proxy_url", "proxy_api_key")

_PLACEHOLDER = re.compile(r"\{(proxy_url|proxy_api_key)\}")
_BRACED = re.compile(r"(?<!\$)\{([A-Za-z_][A-Za-z0-9_]*)\}(?!\})")
_VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)(:-[^}]*)?\}")

_ON_THIS_MACHINE = {"docker", "podman", "kata", "apple-container", "singularity", "sbx"}
_OWN_NETWORK = {"docker", "podman", "kata", "apple-container", "sbx"}
_LOOPBACK = re.compile(r"^(localhost|127(\.\d+){3}|\[?::1\]?)$", re.IGNORECASE)

_SANDBOX_KEYS = {"e2b": "E2B_API_KEY"}


def load_trial_config(path: str | Path) -> dict[str, Any]:
    """The file's object, untouched.

    Raises:
        UsageError: the file cannot be read, is not a JSON object, repeats a key, or sets `task`.
    """
    path = Path(path)
    where = f"harbor.trial_config={path}"
    try:
        config = json.loads(path.read_text(encoding="utf-8"), object_pairs_hook=_without_repeats)
    except OSError as problem:
        raise UsageError(f"{where}: {problem.strerror or problem}; name an existing trial.json") from None
    except json.JSONDecodeError as problem:
        raise UsageError(f"{where}: not valid JSON: {problem.msg} at line {problem.lineno}") from None
    except (ValueError, RecursionError) as problem:
        raise UsageError(f"{where}: not usable: {problem}") from None
    if not isinstance(config, dict):
        raise UsageError(f"{where}: must hold a JSON object, a Harbor TrialConfig without task")
    if "task" in config:
        raise UsageError(f"{where}: sets task; remove it, the recipe supplies each task")
    return config


def substitute(config: Mapping[str, Any], proxy_url: str, proxy_api_key: str) -> dict[str, Any]:
    """A deep copy with `{proxy_url}` and `{proxy_api_key}` replaced in every string value; keys are left alone."""
    values = {"proxy_url": proxy_url, "proxy_api_key": proxy_api_key}

    def walk(value: Any) -> Any:
        if isinstance(value, str):
            return _PLACEHOLDER.sub(lambda match: values[match.group(1)], value)
        if isinstance(value, Mapping):
            return {key: walk(item) for key, item in value.items()}
        if isinstance(value, list | tuple):
            return [walk(item) for item in value]
        return value

    return {key: walk(item) for key, item in config.items()}


def environment_of(config: Mapping[str, Any]) -> str:
    """The environment's type, its import path, or `docker`, which Harbor takes when neither is given."""
    environment = config.get("environment")
    if not isinstance(environment, Mapping):
        return "docker"
    return str(environment.get("type") or environment.get("import_path") or "docker")


def is_remote(config: Mapping[str, Any]) -> bool:
    """Whether the sandboxes run on other machines. A class by import path is taken to run here."""
    kind = environment_of(config)
    return kind not in _ON_THIS_MACHINE and ":" not in kind


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach an address."""
    return bool(_LOOPBACK.match(host.strip()))


def check_trial_config(
    config: Mapping[str, Any], env: Mapping[str, str], *, listen_host: str, advertised_host: str
) -> list[Finding]:
    """Findings about a trial file's placeholders, variables, credentials and reach, without Harbor.

    Args:
        env: environment variables of the process that will run Harbor.
    """
    findings = [*_placeholders(config), *_variables(config, env)]
    kind = environment_of(config)
    key = _SANDBOX_KEYS.get(kind)
    if key and not env.get(key):
        findings.append(
            Finding(
                code="trial.sandbox_key",
                object=key,
                message=f"is not set, and environment.type {kind} needs it",
                remedy=f"export {key}",
            )
        )
    findings += _reach(config, kind, env, listen_host, advertised_host)
    findings += _temperatures(config)
    return findings


def _placeholders(config: Mapping[str, Any]) -> Iterator[Finding]:
    used: set[str] = set()
    for path, text in _strings(config):
        for name in _BRACED.findall(text):
            if name in PLACEHOLDERS:
                used.add(name)
                continue
            close = difflib.get_close_matches(name, PLACEHOLDERS, n=1, cutoff=0.7)
            yield Finding(
                code="trial.placeholder",
                level=ERROR if close else WARNING,
                object=path,
                message=f"{{{name}}} is not a placeholder of the recipe",
                remedy=f"did you mean {{{close[0]}}}?" if close else "it is passed on as it stands",
            )
    for path in _keys(config):
        if _PLACEHOLDER.search(path):
            yield Finding(
                code="trial.placeholder_key",
                object=path,
                message="placeholders are replaced in values, not in keys",
                remedy="move it to a value",
            )
    for name, effect in zip(PLACEHOLDERS, ("no model call of the agent will be captured", "its calls will be refused")):
        if name not in used:
            yield Finding(
                code=f"trial.no_{name}",
                level=WARNING,
                object="harbor.trial_config",
                message=f"does not use {{{name}}}: {effect}",
                remedy="set it where the agent takes its model endpoint, e.g. agent.env.OPENAI_BASE_URL and "
                "OPENAI_API_KEY",
            )


def _variables(config: Mapping[str, Any], env: Mapping[str, str]) -> Iterator[Finding]:
    """Harbor resolves a value of an `env` table that is one `${VAR}` from the host's environment."""
    for path, text in _strings(config):
        match = _VARIABLE.fullmatch(text)
        if match and ".env." in f".{path}" and match.group(2) is None and match.group(1) not in env:
            yield Finding(
                code="trial.variable",
                object=path,
                message=f"needs the environment variable {match.group(1)}, which is not set",
                remedy=f"export {match.group(1)}",
            )


def _reach(
    config: Mapping[str, Any], kind: str, env: Mapping[str, str], listen_host: str, advertised_host: str
) -> Iterator[Finding]:
    if is_remote(config):
        # Only E2B's own cloud is known to be elsewhere for sure.
        own_cloud = kind != "e2b" or bool(env.get("E2B_DOMAIN") or env.get("E2B_API_URL"))
        doubt = reach_doubt(advertised_host, kind, own_cloud=own_cloud)
        if doubt is not None:
            yield Finding(
                code="trial.unreachable",
                level=doubt.level,
                object="harbor.advertised_host",
                message=f"{advertised_host.strip() or 'empty'} {doubt.why}",
                remedy="set it to an address of this machine that the sandboxes can reach, or give a tunnel's with "
                "harbor.advertised_url",
            )
        if is_loopback(listen_host):
            yield Finding(
                code="trial.unreachable",
                object="harbor.listen_host",
                message=f"{listen_host} cannot be reached from {kind} sandboxes",
                remedy="set it to 0.0.0.0 or to the address that is advertised",
            )
    elif kind in _OWN_NETWORK and is_loopback(advertised_host):
        yield Finding(
            code="trial.container_loopback",
            level=WARNING,
            object="harbor.advertised_host",
            message=f"{advertised_host} means the container itself inside a {kind} sandbox, unless it shares the "
            "host's network",
            remedy="advertise an address of this machine and listen on it",
        )


def _temperatures(config: Mapping[str, Any]) -> Iterator[Finding]:
    for path, value in _leaves(config.get("agent", {}), "agent"):
        if path.endswith(".temperature") and isinstance(value, int | float) and value != 1.0:
            yield Finding(
                code="trial.temperature",
                level=NOTE,
                object=path,
                message=f"agents sample at {value:g} while training assumes 1.0; the sampler's log-probs differ unless "
                "the gateway reports unscaled ones",
                remedy="watch kl_sample_train",
            )


def _leaves(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping):
        for key, item in value.items():
            yield from _leaves(item, f"{path}.{key}" if path else str(key))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _leaves(item, f"{path}.{index}")
    else:
        yield path, value


def _strings(config: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    return ((path, value) for path, value in _leaves(config) if isinstance(value, str))


def _keys(value: Any, path: str = "") -> Iterator[str]:
    items = value.items() if isinstance(value, Mapping) else enumerate(value) if isinstance(value, list) else ()
    for key, item in items:
        below = f"{path}.{key}" if path else str(key)
        if isinstance(key, str) and _PLACEHOLDER.search(key):
            yield below
        yield from _keys(item, below)


def _without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f"the key {next(name for name in names if names.count(name) > 1)!r} appears twice")
    return found
