"""Lists of trials: what a filter sees of each, in which orders they come, what stands in a row. Pure."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence

from console.tui.bench.reading import Seen
from console.tui.filters import Filter
from console.tui.glyphs import outcome_kind
from console.tui.text import count, number, short_time

SORTS = ("task", "reward", "seconds", "tokens", "exception", "class")


def fields(seen: Seen, marked: bool = False) -> dict[str, str]:
    """What a filter looks at: words in task and texts, `class:`, `model:`, `t:` the attempt, `status:marked`."""
    row = seen.row
    return {
        "task": row.task or row.name,
        "name": row.name,
        "text": f"{row.error} {seen.evidence.text} {seen.rule}",
        "class": row.kind,
        "model": f"{row.group.agent} {row.group.model}",
        "status": " ".join(x for x in ("marked" if marked else "", "" if row.chosen else "replaced") if x),
        "run": row.job,
        "t": str(row.attempt),
    }


def shown(trials: Iterable[Seen], chosen: Filter, sort: str, marks: set[str]) -> list[Seen]:
    """Those that pass the filter, in order."""
    found = [seen for seen in trials if not chosen or chosen.matches(fields(seen, seen.path in marks))]
    return sorted(found, key=_KEYS[sort])


def _missing_last(value: float | None) -> float:
    return math.inf if value is None or math.isnan(value) else -value


_BY_TASK: Callable[[Seen], tuple[object, ...]] = lambda seen: (  # noqa: E731
    seen.task.casefold(),
    seen.row.attempt,
    seen.row.try_,
    seen.path,
)
_KEYS: dict[str, Callable[[Seen], tuple[object, ...]]] = {
    "task": _BY_TASK,
    "reward": lambda seen: (_missing_last(seen.row.reward), *_BY_TASK(seen)),
    "seconds": lambda seen: (_missing_last(seen.row.agent_seconds), *_BY_TASK(seen)),
    "tokens": lambda seen: (_missing_last(seen.row.output_tokens), *_BY_TASK(seen)),
    "exception": lambda seen: (not seen.row.error, seen.row.error, *_BY_TASK(seen)),
    "class": lambda seen: (seen.row.kind, *_BY_TASK(seen)),
}


def kind(seen: Seen) -> str:
    """The key of its sign."""
    return outcome_kind(seen.row.outcome.value, seen.row.reward)


def reward(seen: Seen) -> str:
    """As it stands in a table; `--` without one."""
    value = seen.row.reward
    return "--" if value is None else number(value) if math.isfinite(value) else str(value)


def attempt(seen: Seen) -> str:
    """`2.1`: attempt and try; `-` for a copy of another trial, which has none."""
    return f"{seen.row.attempt}.{seen.row.try_}" if seen.row.attempt else "-"


def took(seen: Seen) -> str:
    """The agent's time."""
    return short_time(seen.row.agent_seconds)


def tokens(seen: Seen) -> str:
    """Output tokens."""
    return count(seen.row.output_tokens)


def with_path(trials: Sequence[Seen], paths: Iterable[str]) -> list[Seen]:
    """The trials in these directories, in the order of `paths`."""
    known = {seen.path: seen for seen in trials}
    return [known[path] for path in paths if path in known]
