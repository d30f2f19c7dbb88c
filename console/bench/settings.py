"""Where trials that go into one figure, or into two that are compared, did not run under the same conditions."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable

from console.bench.rows import Notice, Row, counted, notice

_ENDPOINTS = frozenset({"api_base", "base_url", "api_url", "endpoint", "api_endpoint"})
"""Options of agents that say where the model is served: a mop-up may change them."""
_MAY_BE_UNKNOWN = frozenset({"agent version", "Harbor version", "environment"})
"""Settings that a trial which ended early does not record: it says nothing about them."""
_SHOWN = 4


def differences(rows: Iterable[Row]) -> list[Notice]:
    """A notice for each setting in which the rows differ, with the values and how many trials have each."""
    rows = list(rows)
    return [*_settings(rows), *_timeouts(rows)]


def _settings(rows: list[Row]) -> Iterable[Notice]:
    by_setting: dict[int, list[Row]] = defaultdict(list)
    for row in rows:
        by_setting[id(row.setting)].append(row)
    found: dict[str, Counter[str]] = defaultdict(Counter)
    examples: dict[tuple[str, str], Row] = {}
    tables = [(dict(same[0].setting.values), same) for same in by_setting.values()]
    names = dict.fromkeys(name for values, _ in tables for name in values)
    for values, same in tables:
        for name in names:
            value = values.get(name, "")
            if value or name not in _MAY_BE_UNKNOWN:
                found[name][value] += len(same)
                examples.setdefault((name, value), same[0])
    for name, values_of in found.items():
        if len(values_of) < 2:
            continue
        endpoint = name.startswith("agent option ") and name.rsplit(" ", 1)[-1] in _ENDPOINTS
        said = _listed([(value or "not set", number) for value, number in values_of.most_common()])
        tail = "; the model was served elsewhere" if endpoint else "; the trials are not strictly comparable"
        code = "differs.endpoint" if endpoint else f"differs.{name.replace(' ', '_').lower()}"
        yield notice(code, f"{name} differs: {said}{tail}", [examples[name, value] for value in values_of])


def _timeouts(rows: list[Row]) -> Iterable[Notice]:
    """Tasks have timeouts of their own, so that only those of one task are compared."""
    seen: dict[str, Counter[float]] = defaultdict(Counter)
    first: dict[str, Row] = {}
    for row in rows:
        if row.agent_timeout is not None:
            seen[row.task][row.agent_timeout] += 1
            first.setdefault(row.task, row)
    differing = [task for task, values in seen.items() if len(values) > 1]
    if not differing:
        return
    task = differing[0]
    said = _listed([(f"{value:g} s", number) for value, number in seen[task].most_common()])
    yield notice(
        "differs.agent_timeout",
        f"the agent's timeout differs within {counted(len(differing), 'task')}, e.g. {task}: {said}; "
        "the trials are not strictly comparable",
        [first[name] for name in differing],
    )


def _listed(values: list[tuple[str, int]]) -> str:
    said = ", ".join(f"{value} ({counted(number, 'trial')})" for value, number in values[:_SHOWN])
    return said if len(values) <= _SHOWN else f"{said}, and {len(values) - _SHOWN} more"
