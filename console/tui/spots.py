"""What needs the operator, in the order in which `!` goes through it: held trials, then what the open alarms name."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

from console.state.lines import trial_name
from console.state.model import GroupState, RunState
from console.state.sanitize import sanitize
from console.tui.picture import asking, held_trials

_NAMED = re.compile(r"(?:^|[.:/ ])g(\d{1,6})(?:/t(\d{1,6}))?$")
"""A group, or a trial, at the end of an alarm's key."""


class Spot(NamedTuple):
    """Something that needs the operator: its key, in clean words what it is, and group and trial (from 0)."""

    key: str
    text: str = ""
    group: int | None = None
    trial: int | None = None


def named(key: str, groups: Mapping[int, GroupState]) -> tuple[int | None, int | None]:
    """Group and trial that an alarm's key names, from 0, when there is such a group; by its task, too."""
    found = _NAMED.search(key)
    if found is not None and int(found[1]) - 1 in groups:
        return int(found[1]) - 1, None if found[2] is None else int(found[2]) - 1
    of_task = (number for number, group in groups.items() if group.task and key.endswith(f".{sanitize(group.task)}"))
    return next(of_task, None), None


def spots(state: RunState, now: float) -> list[Spot]:
    """All that there are. Held trials whose alarm was seen or shelved come last."""
    first: list[Spot] = []
    last: list[Spot] = []
    held = held_trials(state)
    for group, trial in held:
        name = trial_name(group.group, trial.trial)
        what = sanitize(trial.exception or trial.cause or "failure", limit=40)
        alarm = state.alarms.get(f"held.g{group.group + 1}")
        found = Spot(f"held.{name}", f"{name} {what} is held", group.group, trial.trial)
        (first if alarm is None or alarm.asks(now) else last).append(found)
    for one in asking(state, now):
        if not (held and one.key.startswith("held.")):
            text = sanitize(f"{one.text}{f': {one.remedy}' if one.remedy else ''}", limit=240)
            first.append(Spot(one.key, text, *named(one.key, state.groups)))
    return [*first, *last]


def told(found: list[Spot], at: int) -> str:
    """Which one it is: 2/3 disk.low: the disk is nearly full."""
    number = f"{at + 1}/{len(found)} " if len(found) > 1 else ""
    return f"{number}{found[at].text or sanitize(found[at].key, limit=60)}"
