"""Whether two configurations are equal for Harbor, as far as their files tell: what is left out has its default."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from console.records.harbor.values import public

SHOWN = 80
MOST = 12
_MISSING = object()
_RAW = frozenset({"kwargs", "env"})
"""Below these there are no defaults."""
_DEFAULTS: dict[str, object] = {
    "schema_version": 1,
    "timeout_multiplier": 1.0,
    "n_attempts": 1,
    "n_concurrent_trials": 4,
    "delete": True,
    "cpu_enforcement_policy": "auto",
    "memory_enforcement_policy": "auto",
    "jobs_dir": "jobs",
    "max_retries": 0,
    "wait_multiplier": 1.0,
    "min_wait_sec": 1.0,
    "max_wait_sec": 60.0,
}
_SETS = frozenset({"include_exceptions", "exclude_exceptions"})


def plain(value: Any, name: str = "") -> Any:
    """The value without what is only a default, so that configurations of different thoroughness compare.

    Of an agent without name the name is oracle, of an environment without type the type is docker.
    """
    if not isinstance(value, dict) or name in _RAW:
        if name in _SETS and isinstance(value, list):
            return sorted(value, key=str)
        return [plain(item) for item in value] if isinstance(value, list) and name not in _RAW else value
    kept = {key: plain(item, key) for key, item in value.items()}
    if name == "agent" and kept.get("name") == "oracle":
        kept.pop("name")
    if name == "environment" and kept.get("type") == "docker":
        kept.pop("type")
    return {key: item for key, item in kept.items() if not _is_default(key, item)}


def _is_default(key: str, value: object) -> bool:
    if value is None or value == [] or value == {}:
        return True
    if key in _DEFAULTS:
        return value == _DEFAULTS[key]
    return value is False


def job_plain(config: dict[str, Any]) -> dict[str, Any]:
    """A job's configuration, with the keys of early versions at their present place."""
    config = dict(config)
    old = config.pop("orchestrator", None)
    if isinstance(old, dict):
        for key in ("n_concurrent_trials", "quiet", "retry"):
            if key in old:
                config.setdefault(key, old[key])
    config.pop("plugins", None)
    found: dict[str, Any] = plain(config)
    found["agents"] = [plain(agent, "agent") for agent in config.get("agents") or [{}]]
    return found


def differences(recorded: Any, planned: Any, prefix: str = "") -> list[str]:
    """At most twelve lines "key: recorded -> planned", without secrets."""
    found = list(_differences(recorded, planned, prefix))
    more = [f"and {len(found) - MOST} more"] if len(found) > MOST else []
    return found[:MOST] + more


def _differences(recorded: Any, planned: Any, prefix: str) -> Iterator[str]:
    if isinstance(recorded, dict) and isinstance(planned, dict):
        for key in sorted(recorded.keys() | planned.keys(), key=str):
            one, other = recorded.get(key, _MISSING), planned.get(key, _MISSING)
            if one == other and (one is _MISSING) == (other is _MISSING):
                continue
            yield from _differences(one, other, f"{prefix}.{key}" if prefix else str(key))
    elif isinstance(recorded, list) and isinstance(planned, list) and _in_step(recorded, planned, prefix):
        for index, (one, other) in enumerate(zip(recorded, planned)):
            if one != other:
                yield from _differences(one, other, f"{prefix}.{index}")
    elif prefix.rsplit(".", 1)[-1] in _SETS and isinstance(recorded, list) and isinstance(planned, list):
        parts = (("without", _named(recorded, planned)), ("with", _named(planned, recorded)))
        yield f"{prefix}: " + " and ".join(f"{sign} {said}" for sign, said in parts if said)
    elif recorded != planned:
        yield f"{prefix}: {_shown(recorded, prefix)} -> {_shown(planned, prefix)}"


def _in_step(recorded: list[Any], planned: list[Any], prefix: str) -> bool:
    return len(recorded) == len(planned) and prefix.rsplit(".", 1)[-1] not in _SETS


def _named(one: list[Any], other: list[Any]) -> str:
    """What is in the first only."""
    names = [_shown(item, "") for item in one if item not in other]
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


def _shown(value: Any, name: str) -> str:
    if value is _MISSING:
        return "not set"
    # What stands in an environment may be a secret of any shape.
    if "env" in name.split(".") and value is not None:
        return "another value"
    text = json.dumps(public(value, name.rsplit(".", 1)[-1]), ensure_ascii=False, default=str)
    return text if len(text) <= SHOWN else text[: SHOWN - 1] + "…"
