"""A job's configuration as an older or newer Harbor wrote it, in the words of the installed one."""

from __future__ import annotations

import copy
import re
from collections.abc import Mapping
from typing import Any

from console.bench.mop_up import known
from console.records.harbor.files import shown

_REDACTED = re.compile(r"\*{4}|.{4}\*{4}.{3}", re.DOTALL)
"""What Harbor writes in place of a secret."""
_OBSOLETE = frozenset({"plugins"})
"""Keys that say nothing of the trials."""


def adapted(recorded: Mapping[str, Any]) -> tuple[dict[str, Any], tuple[str, ...]]:
    """The configuration with keys that the installed Harbor takes, and a line for each thing that was put otherwise.

    Values that Harbor had hidden become `${NAME}`, the variable of the same name.
    """
    config: dict[str, Any] = copy.deepcopy(dict(recorded))
    notes: list[str] = []
    orchestrator = config.pop("orchestrator", None)
    if isinstance(orchestrator, dict):
        for key in ("n_concurrent_trials", "quiet", "retry"):
            if orchestrator.get(key) is not None:
                config.setdefault(key, orchestrator[key])
    _keep(config, known.JOB, "", notes)
    for part, names in (("retry", known.RETRY), ("verifier", known.VERIFIER), ("environment", known.ENVIRONMENT)):
        if isinstance(config.get(part), dict):
            if part == "environment":
                _mounts(config[part], notes)
            _keep(config[part], names, f"{part}.", notes)
            _environment(config[part], f"{part}.", notes)
    for part, names in (("agents", known.AGENT), ("datasets", known.DATASET), ("tasks", known.TASK)):
        entries = config.get(part)
        for number, entry in enumerate(entries if isinstance(entries, list) else []):
            if isinstance(entry, dict):
                if part == "datasets":
                    _registry(entry)
                _keep(entry, names, f"{part}.{number}.", notes)
                _environment(entry, f"{part}.{number}.", notes)
    if isinstance(config.get("user_agent"), dict):
        _environment(config["user_agent"], "user_agent.", notes)
    for key in [key for key, value in config.items() if value is None]:
        del config[key]  # the default is what another version had no key for
    return config, tuple(notes)


def _keep(table: dict[str, Any], names: frozenset[str], where: str, notes: list[str]) -> None:
    """Drops keys that Harbor would pass over without a word, and tells of those with a value."""
    for key in [key for key in table if key not in names]:
        value = table.pop(key)
        if value not in (None, False, "", [], {}) and key not in _OBSOLETE:
            notes.append(f"{shown(where + key)}: dropped, for the installed Harbor has no such option")


def _registry(dataset: dict[str, Any]) -> None:
    """The nested form of old versions."""
    registry = dataset.pop("registry", None)
    if isinstance(registry, dict):
        for key, new in (("url", "registry_url"), ("path", "registry_path")):
            if registry.get(key) is not None:
                dataset.setdefault(new, registry[key])


def _environment(table: dict[str, Any], where: str, notes: list[str]) -> None:
    """Variables as an object, those whose values were hidden taken from the environment."""
    env = table.get("env")
    if isinstance(env, list):
        pairs = (item.partition("=") for item in env if isinstance(item, str))
        table["env"] = env = {name.strip(): value.strip() for name, equals, value in pairs if equals}
    if not isinstance(env, dict):
        table.pop("env", None)
        return
    for name, value in env.items():
        if isinstance(value, str) and _REDACTED.fullmatch(value):
            env[name] = f"${{{name}}}"
            notes.append(f"{shown(where)}env.{shown(name)}: Harbor has hidden its value; taken from your {shown(name)}")


def _mounts(environment: dict[str, Any], notes: list[str]) -> None:
    """Mounts may be texts, `SOURCE:TARGET[:ro]`, as Harbor before 0.14 took them."""
    if environment.get("mounts") is None and environment.get("mounts_json") is not None:
        environment["mounts"] = environment["mounts_json"]
    environment.pop("mounts_json", None)
    mounts = environment.get("mounts")
    if not isinstance(mounts, list):
        return
    environment["mounts"] = found = []
    for mount in mounts:
        if isinstance(mount, dict):
            found.append(mount)
            continue
        source, colon, rest = str(mount).partition(":")
        target, _, mode = rest.partition(":")
        if not (colon and source and target) or mode not in ("", "ro", "rw"):
            notes.append(f"environment.mounts: {shown(str(mount))} dropped, for it is no SOURCE:TARGET")
            continue
        kind = "bind" if source.startswith(("/", ".", "~")) else "volume"
        found.append({"type": kind, "source": source, "target": target} | ({"read_only": True} if mode == "ro" else {}))
