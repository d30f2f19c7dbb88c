"""What an alarm rule says, and what it looks at."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable
from datetime import UTC, datetime
from itertools import islice

import msgspec

from console.journal.events import StepFinished
from console.state.lines import trial_name
from console.state.model import GroupState, RunState, TrialState
from console.state.reduce import RunView
from console.state.sanitize import sanitize
from console.state.thresholds import AlarmThresholds
from console.state.words import span as span

WARNING, CRITICAL = "warning", "critical"
NAME_LIMIT = 60
UNDER_WAY = frozenset({"create", "environment", "setup", "agent", "verify", "teardown", "retrying"})
"""Phases of a trial that has begun and can move by itself."""


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """What is wrong now.

    Attributes:
        key: the rule's name, and after it, for a rule that speaks of one thing, that thing: `held.g3`, `stalled.g3/t5`,
            `task.failing.NAME`; level: warning or critical; text: what is wrong, in one clean line.
        consequence: what follows if nobody acts; remedy: what to do; action: the command that does it, empty for none.
        after: seconds it must hold before it is told; clear: seconds it must be gone before it is over.
        figure: the running number in the text. The alarm is told again when it has doubled or halved, not before.
        basis: the part of the text that is told again when it changes; None: the whole text, or, with a figure, none.
    """

    key: str
    level: str
    text: str
    consequence: str = ""
    remedy: str = ""
    action: str = ""
    after: float = 0.0
    clear: float = 0.0
    figure: float | None = None
    basis: str | None = None

    @property
    def material(self) -> str:
        """What of the text is told again when it changes."""
        if self.basis is not None:
            return self.basis
        return self.text if self.figure is None else ""


class Look:
    """A view at a time, with what several rules ask of it.

    Attributes:
        now: Unix seconds; limits: the run's thresholds; away: the gateway does not answer.
        began: when this engine did; trials: of the current step, with their groups; moving, holding: whether one of
            them is under way, or waits for the operator.
    """

    def __init__(self, view: RunView, now: float) -> None:
        self.state: RunState = view.state
        self.rows: list[StepFinished] = view.history.rows
        self.now = now
        self.began = view.state.engine_started or view.state.started
        self.limits = AlarmThresholds.from_state(view.state.thresholds)
        self.away = view.state.gateway.reachable is False
        self.trials: list[tuple[GroupState, TrialState]] = [
            (group, trial) for group in view.state.groups.values() for trial in group.trials
        ]
        self.moving = any(trial.phase in UNDER_WAY for _, trial in self.trials)
        self.holding = any(trial.phase == "held" for _, trial in self.trials)

    def usual(self, name: str, steps: int = 20, at_least: int = 3) -> float | None:
        """Median of a column over the last finished steps; None when fewer than `at_least` have it.

        Steps that were applied again have no rollout of their own: their times are not usual.
        """
        own = (row for row in reversed(self.rows) if not (row.replayed or row.recovered))
        found = column(islice(own, steps), name)
        return statistics.median(found) if len(found) >= at_least else None

    def first(self, name: str, steps: int = 5) -> float | None:
        """Mean of a column over the run's first steps; None until a later step is finished, or when one lacks it."""
        found = column(self.rows[:steps], name)
        return statistics.fmean(found) if len(self.rows) > steps and len(found) == steps else None

    def rewards(self) -> tuple[float, float | None, float | None]:
        """Mean reward of the last three steps, of up to ten before them, and of the first five (None: too few)."""
        values = column(self.rows[-13:], "reward_mean")
        before = values[:-3]
        now = statistics.fmean(values[-3:]) if values else 0.0
        return now, statistics.fmean(before) if len(before) >= 3 else None, self.first("reward_mean")

    @property
    def rising(self) -> bool:
        """Whether rewards are clearly above those of the steps before."""
        now, before, _ = self.rewards()
        return before is not None and now - before > 0.05 * abs(before)

    @property
    def solved(self) -> bool:
        """Whether most groups agree because they succeed: rewards are far above those of the first steps."""
        now, _, first = self.rewards()
        agree = [row.groups_kept > 0 and 2 * row.groups_zero_variance >= row.groups_kept for row in self.rows[-2:]]
        return first is not None and all(agree) and now - first > 0.25 * abs(first)

    @property
    def settle(self) -> float:
        """Seconds in which a figure of the steps must stay good before its alarm is over: two steps."""
        return 2.0 * (self.usual("seconds_total", at_least=1) or 0.0)


def column(rows: Iterable[StepFinished], name: str) -> list[float]:
    """The finite values of a column, oldest first."""
    values = (getattr(row, name) for row in rows)
    return [value for value in values if value is not None and math.isfinite(value)]


def level(critical: bool) -> str:
    """The level's name."""
    return CRITICAL if critical else WARNING


def clean(text: str, limit: int = NAME_LIMIT) -> str:
    """A name from outside, as a part of a text or of a key."""
    return sanitize(text, limit)


def name_of(group: GroupState, trial: TrialState) -> str:
    """As the screen names it."""
    return trial_name(group.group, trial.trial)


def at(ts: float) -> str:
    """A time of day, the same wherever it is read."""
    try:
        return datetime.fromtimestamp(ts, UTC).strftime("%H:%M UTC")
    except (ValueError, OverflowError, OSError):
        return "an unknown time"


def share(part: float) -> str:
    """A share in per cent."""
    return f"{100 * part:.0f} %"
