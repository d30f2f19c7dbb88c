"""Keys that a job file holds in clear: they go to the environment, and a name takes their place.

Harbor replaces `${NAME}` in `env` tables alone, and writes everything else into each trial's configuration as it
stands; so a key elsewhere cannot be hidden, and refuses the run.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from console.findings import WARNING, Finding

_NAMES = re.compile(r"KEY|SECRET|TOKEN(?!S)|PASSWORD|CREDENTIAL|AUTH|COOKIE", re.IGNORECASE)
"""As Harbor recognises them."""
_PUBLIC = re.compile(
    r"_name$|^authors?$|^keywords?$|max_.*tokens?|tokens?_|tokenizer|session_id|auth_type", re.IGNORECASE
)
_SHAPES = re.compile(
    r"\b(?:sk-|tml-|hf_|e2b_|gh[pousr]_|github_pat_|xox[abprs]-)(?=[A-Za-z0-9_-]*\d)[A-Za-z0-9_-]{20,}"
    r"|\bAKIA[0-9A-Z]{16}\b|\bAIza[0-9A-Za-z_-]{35}"
)
"""Digits are asked for: a task or a model may well be called sk-... or hf_..."""
_USER = re.compile(r"(://)[^/\s@]+@")
_SHOWN = "[redacted]"
_TEMPLATE = re.compile(r"\$\{([^}:]+)(?::-(.*))?\}")
_FLAGS = frozenset({"true", "false", "1", "0", "yes", "no", "none", "null", "dummy", "empty", ""})
"""Values that are no secret under any name; servers without keys are given `EMPTY` or `dummy`."""


class Hidden(NamedTuple):
    """A job without secrets, the variables that they went to, and what to tell about it."""

    job: dict[str, Any]
    variables: dict[str, str]
    findings: list[Finding]


def hide(job: Mapping[str, Any], environment: Mapping[str, str]) -> Hidden:
    """Replace each secret in an `env` table by `${NAME}`.

    Args:
        environment: variables that exist; one of another value is not taken for the name.
    """
    hidden = Hidden(copy.deepcopy(dict(job)), {}, [])
    for table, where in _tables(hidden.job):
        for name, text in table.items():
            if not isinstance(text, str) or not _secret(name, text):
                continue
            template = _TEMPLATE.fullmatch(text)
            variable, value = (name, text) if template is None else (template.group(1), template.group(2))
            if template is None or variable not in environment:
                variable = _free(variable, value, environment, hidden.variables)
                if environment.get(variable) != value:
                    hidden.variables[variable] = value
            table[name] = f"${{{variable}}}"
            hidden.findings.append(
                Finding(
                    code="bench.literal_secret",
                    level=WARNING,
                    object=f"{where}.{name}",
                    message=f"holds a secret in clear; this run has ${{{variable}}} in its place, and no file of it "
                    "holds the value",
                    remedy=f"export {name} in your shell and write ${{{name}}} in the job file",
                )
            )
    hidden.findings.extend(_elsewhere(hidden.job))
    return hidden


def shown(text: str) -> str:
    """A text as it may be seen: without keys, and without who logs in to the hosts of its URLs."""
    return _SHAPES.sub(_SHOWN, _USER.sub(rf"\1{_SHOWN}@", text))


def _tables(job: Mapping[str, Any]) -> Iterator[tuple[dict[str, Any], str]]:
    """Each `env` table that Harbor resolves, and its name."""
    agents = job.get("agents")
    owners = [(agent, f"agents.{index}") for index, agent in enumerate(agents if isinstance(agents, list) else [])]
    owners += [(job.get(name), name) for name in ("user_agent", "environment", "verifier")]
    for owner, where in owners:
        table = owner.get("env") if isinstance(owner, dict) else None
        if isinstance(table, dict):
            yield table, f"{where}.env"


def _secret(name: str, value: str) -> bool:
    template = _TEMPLATE.fullmatch(value)
    if template is not None:
        default = template.group(2)
        return bool(default) and _secret(name, default)
    if value.strip().lower() in _FLAGS:
        return False
    if _NAMES.search(name) and not _PUBLIC.search(name):
        return True
    return bool(_SHAPES.search(value)) or _password_in(value)


def _password_in(value: str) -> bool:
    try:
        return "://" in value and urlsplit(value).password is not None
    except ValueError:
        return False


def _free(name: str, value: str, environment: Mapping[str, str], taken: Mapping[str, str]) -> str:
    """The name itself, if nothing else has it; otherwise one with a number."""
    candidate, number = name, 1
    while any(known.get(candidate, value) != value for known in (environment, taken)):
        number += 1
        candidate = f"{name}_{number}"
    return candidate


def _elsewhere(job: Mapping[str, Any]) -> Iterator[Finding]:
    for path, name, value in _texts(job):
        if ".env." in f".{path}":
            continue
        named = _NAMES.search(name) and not _PUBLIC.search(name) and ".kwargs." in f".{path}"
        if (named and value.strip().lower() not in _FLAGS) or _SHAPES.search(value) or _password_in(value):
            owner = path.split(".kwargs.")[0] if ".kwargs." in path else "agents.0"
            yield Finding(
                code="bench.secret_in_clear",
                object=path,
                message="holds what looks like a secret, and Harbor would write it into the configuration of the job "
                "and of every trial",
                remedy=f"take it out; give it by {owner}.env, as ${{NAME}}, with the variable exported",
            )


def _texts(value: Any, path: str = "", name: str = "") -> Iterator[tuple[str, str, str]]:
    if isinstance(value, str):
        yield path, name, value
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from _texts(item, f"{path}.{key}" if path else str(key), str(key))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _texts(item, f"{path}.{index}", name)
