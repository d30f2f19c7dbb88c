"""What a mop-up may run otherwise than its job: where the model is served and how many trials run at once. What is
measured may not change, for the results are counted together."""

from __future__ import annotations

import copy
import fnmatch
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

import msgspec

from console.bench.mop_up.source import ENDPOINTS
from console.bench.running.job_file import override
from console.errors import UsageError
from console.records.redact import HIDDEN, redact

_FREE = (
    "n_concurrent_trials", "quiet", "debug", "retry.*", "skip_credential_checks",
    "agents.*.n_concurrent", "agents.*.concurrency_group", "agents.*.env.*", "agents.*.extra_allowed_hosts*",
    "agents.*.base_url", "agents.*.model_api_key_name", *(f"agents.*.kwargs.{name}" for name in sorted(ENDPOINTS)),
    "environment.delete", "environment.force_build", "environment.stream",
    "environment.kwargs.job_timeout", "environment.kwargs.idle_timeout",
)  # fmt: skip
"""Keys that say nothing of what is measured; how long an idle sandbox lives is among them."""
_OURS = ("job_name", "jobs_dir", "n_attempts", "install_only", "source_jobs*", "datasets.*.task_names*")
_OURS_TOO = ("datasets.*.exclude_task_names*", "datasets.*.n_tasks", "tasks")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_TEMPLATE = re.compile(r"\$\{[A-Za-z_][A-Za-z0-9_]*\}")
_KEYS = re.compile(r"KEY|TOKEN(?!S)|SECRET", re.IGNORECASE)
_ENDPOINT_ENV = re.compile(r".*_(?:BASE_URL|API_BASE)", re.IGNORECASE)


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """One value that differs from the job's. `before`, `after`: as texts without secrets; measured: it may make the
    results incomparable."""

    key: str
    before: str
    after: str
    measured: bool = False


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """What the operator wants otherwise.

    Attributes:
        sets: KEY=VALUE; api_base: URL of the model; key_name: variable with its key; agent_env: NAME=${VAR}.
        concurrent: trials at once; force: also what is measured.
    """

    sets: tuple[str, ...] = ()
    api_base: str = ""
    key_name: str = ""
    agent_env: tuple[str, ...] = ()
    concurrent: int | None = None
    force: bool = False


def change(config: dict[str, Any], asked: Asked) -> tuple[Change, ...]:
    """Makes the changes in place; what differs then, by key.

    Raises:
        UsageError: an option is malformed, a secret is given in clear, or what is measured would change.
    """
    before = copy.deepcopy(config)
    for word in asked.sets:
        override(config, word)
    agents = config.setdefault("agents", [{}])
    if asked.concurrent is not None:
        if asked.concurrent < 1:
            raise UsageError(f"--n-concurrent {asked.concurrent}: must be at least 1")
        config["n_concurrent_trials"] = asked.concurrent
    for number, agent in enumerate(agents if isinstance(agents, list) else []):
        if isinstance(agent, dict):
            if asked.api_base:
                _serve(agent, asked.api_base)
            if asked.key_name:
                _unlock(agent, number, asked.key_name)
            for word in asked.agent_env:
                _set_variable(agent, word)
    found = tuple(_differences(before, config))
    _check(found, force=asked.force)
    return found


def _serve(agent: dict[str, Any], url: str) -> None:
    """Puts the endpoint wherever the agent had one; where it had none, into Harbor's own option."""
    try:
        parts = urlsplit(url)
        fine = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.password is None
    except ValueError:
        fine = False
    if not fine:
        raise UsageError("--api-base: must be http://HOST/... or https://HOST/... without a password in it")
    places = [(agent.get("kwargs"), name) for name in ENDPOINTS]
    places += [(agent, "base_url")]
    env = agent.get("env")
    places += [(env, name) for name in env or () if _ENDPOINT_ENV.fullmatch(name)]
    filled = [(table, name) for table, name in places if isinstance(table, dict) and table.get(name)]
    for table, name in filled or [(agent, "base_url")]:
        table[name] = url


def _unlock(agent: dict[str, Any], number: int, name: str) -> None:
    """Takes the key from another variable."""
    if not _NAME.fullmatch(name):
        raise UsageError("--key-name: must be the name of an environment variable, never a key itself")
    env = agent.get("env") if isinstance(agent.get("env"), dict) else {}
    keys = [key for key in env or {} if _KEYS.search(key)]
    if len(keys) > 1:
        raise UsageError(
            f"--key-name {name}: agents.{number} has several keys ({', '.join(sorted(keys))}); "
            "say which: --agent-env NAME='${" + name + "}'"
        )
    if keys:
        agent["env"][keys[0]] = f"${{{name}}}"
    if not keys or agent.get("model_api_key_name"):
        agent["model_api_key_name"] = name


def _set_variable(agent: dict[str, Any], word: str) -> None:
    name, equals, value = word.partition("=")
    if not equals or not _NAME.fullmatch(name):
        raise UsageError("--agent-env: must be NAME=${VARIABLE}, in quotes so that your shell leaves it alone")
    if not _TEMPLATE.fullmatch(value):
        raise UsageError(
            f"--agent-env {name}: the value must be ${{VARIABLE}}, in quotes so that your shell leaves it alone; one "
            "in clear would be written into the configuration of the job"
        )
    if not isinstance(agent.get("env"), dict):
        agent["env"] = {}
    agent["env"][name] = value


def _differences(before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[Change]:
    old, new = dict(_leaves(before)), dict(_leaves(after))
    for key in sorted(old.keys() | new.keys()):
        if key not in old or key not in new or old[key] != new[key]:
            if any(fnmatch.fnmatchcase(key, pattern) for pattern in (*_OURS, *_OURS_TOO)):
                raise UsageError(f"--set {key}: is what a mop-up itself decides; use --task and --except")
            free = any(fnmatch.fnmatchcase(key, pattern) for pattern in _FREE)
            yield Change(key=key, before=_told(key, old), after=_told(key, new), measured=not free)


def _leaves(value: Any, key: str = "") -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping) and value:
        for name, item in value.items():
            yield from _leaves(item, f"{key}.{name}" if key else str(name))
    elif isinstance(value, list) and value:
        for number, item in enumerate(value):
            yield from _leaves(item, f"{key}.{number}")
    elif value not in (None, {}, []):
        yield key, value


def _told(key: str, values: Mapping[str, Any]) -> str:
    """A value for the screen and for the lineage: of a variable only a `${NAME}` is shown."""
    if key not in values:
        return ""
    value = values[key]
    if isinstance(value, str) and _TEMPLATE.fullmatch(value):
        return value
    name = key.rsplit(".", 1)[-1]
    if ".env." in key and not _ENDPOINT_ENV.fullmatch(name):
        return HIDDEN
    return str(redact(value if isinstance(value, str) else repr(value), name))[:300]


def _check(changes: Sequence[Change], *, force: bool) -> None:
    measured = [each.key for each in changes if each.measured]
    if measured and not force:
        raise UsageError(
            f"{measured[0]}: changes what is measured, and the results would not be comparable with the job's; start a "
            "job of its own, or say --force-change, and the lineage file tells it"
        )
