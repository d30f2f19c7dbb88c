"""Figures of a benchmark while it runs: passed so far, infrastructure's share, time left, tokens a second.

All of them are as of the state's trials, final tries only. `bench tally` reports a finished job with better intervals;
the two modes here are those of the same name there.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

from console.journal.events import TrialFinished
from console.outcomes.classes import SCORED
from console.state.model import GroupState, RunState, TrialState

VERIFIED = SCORED | {"agent_failure", "bad_reward"}
"""Classes whose score a mode may take from what the verifier wrote. Nothing of the kind is told of the others: there
it is no answer of the agent's."""

WINDOW = 20
"""Tries that the share of infrastructure is told of."""
FEWEST_DURATIONS = 3
_LEVEL_Z = 1.959963984540054
"""Of a 95 % interval."""
_EIGHTY_Z = 1.2815515655446004
"""Of an 80 % interval."""
_UNDECIDED = frozenset({"cancelled", "ambiguous", "unreadable"})
_TIMED_OUT = "AgentTimeoutError"
_WAITING = frozenset({"queued", "retrying"})


class Passed(NamedTuple):
    """A pass rate so far: `sum` of scores over `of` trials; `left_out` had ended and do not count.

    `low`, `high`: Wilson's 95 % interval; None unless each task has one attempt and every score is 0 or 1, since
    several attempts of a task are not independent.
    """

    sum: float
    of: int
    left_out: int
    low: float | None
    high: float | None

    @property
    def value(self) -> float | None:
        """The rate; None before a trial counts."""
        return self.sum / self.of if self.of else None


class TimeLeft(NamedTuple):
    """Seconds until the last trial ends: the likely ones, and the bounds of about 80 of 100 cases."""

    low: float
    likely: float
    high: float


def infra_excluded(state: RunState) -> Passed:
    """The verifier's value; 0 for agents that failed or timed out without one; infrastructure and the like left out."""
    return _passed(state, infra_excluded_score)


def error_aware(state: RunState) -> Passed:
    """1 for a reward above 0 without any exception, else 0; infrastructure failures count as 0."""
    return _passed(state, error_aware_score)


def infra_excluded_score(outcome: str, exception: str | None, reward: float | None, cause: str = "") -> float | None:
    """A trial's score in that mode, None when it is left out."""
    if outcome in SCORED:
        return reward
    if outcome == "agent_failure":
        return reward or 0.0
    timed_out = outcome == "bad_reward" and exception == _TIMED_OUT and (cause == "missing" or reward is None)
    return 0.0 if timed_out else None


def score_of(trial: TrialState | TrialFinished) -> float | None:
    """A trial's score, infra-excluded; None when it is left out or has not ended."""
    return infra_excluded_score(trial.outcome or "", trial.exception, trial.reward, trial.cause)


def scores_of(trials: Iterable[TrialState | TrialFinished]) -> list[float]:
    """The scores of those of them that count, infra-excluded."""
    return [score for trial in trials if (score := score_of(trial)) is not None]


def error_aware_score(outcome: str, exception: str | None, reward: float | None, cause: str = "") -> float | None:
    """A trial's score in that mode, None when it is left out."""
    if outcome in _UNDECIDED and not (outcome == "ambiguous" and exception):
        return None
    return float(not exception and (reward or 0.0) > 0)


def _passed(state: RunState, score: Callable[[str, str | None, float | None, str], float | None]) -> Passed:
    scores: list[float] = []
    ended = 0
    for _, t in trials(state):
        if t.phase == "done" and t.outcome is not None:
            ended += 1
            one = score(t.outcome, t.exception, t.reward, t.cause)
            if one is not None:
                scores.append(one)
    total = math.fsum(scores)
    low = high = None
    if scores and state.bench.attempts == 1 and all(one in (0, 1) for one in scores):
        low, high = wilson(int(total), len(scores))
    return Passed(total, len(scores), ended - len(scores), low, high)


def wilson(passes: int, of: int) -> tuple[float, float]:
    """Wilson's 95 % interval of a share (J. Am. Stat. Assoc. 22:209, 1927), without correction for continuity.

    Raises:
        ValueError: `of` is not positive, or smaller than `passes`.
    """
    if not 0 <= passes <= of or not of:
        raise ValueError(f"{passes} of {of} is no share")
    z2 = _LEVEL_Z**2
    share = passes / of
    middle = (share + z2 / (2 * of)) / (1 + z2 / of)
    half = _LEVEL_Z * math.sqrt(share * (1 - share) / of + z2 / (4 * of * of)) / (1 + z2 / of)
    return (0.0 if passes == 0 else middle - half), (1.0 if passes == of else middle + half)


def trials(state: RunState) -> Iterator[tuple[GroupState, TrialState]]:
    """Every trial with its task."""
    return ((group, trial) for group in state.groups.values() for trial in group.trials)


def at_work(state: RunState) -> int:
    """Trials that have begun and not ended."""
    return sum(t.phase != "done" and t.phase not in _WAITING for _, t in trials(state))


def infra_window(state: RunState, window: int = WINDOW) -> tuple[int, int]:
    """How many of the last `window` tries failed for infrastructure's sake, and how many these are; without cancelled
    ones, and without those that stood from an earlier run."""
    last = [outcome for outcome in state.bench.recent if outcome != "cancelled"][-window:]
    return sum(outcome == "infrastructure" for outcome in last), len(last)


def tokens_per_second(state: RunState) -> float | None:
    """Sampled tokens a second over all trials at work, as fast as the ended ones were; None before one has ended."""
    b = state.bench
    if b.seconds <= 0 or not b.sampled_tokens or state.exit_code is not None:
        return None
    return b.sampled_tokens / b.seconds * at_work(state)


# --- time left ----------------------------------------


def seconds_left(state: RunState, now: float) -> TimeLeft | None:
    """Time left at `now`, Unix seconds; None until three trials ended, while none may begin, and after the end.

    Trials that are under way count with their age: those that ended first are the short ones, and would promise too
    much. How long a trial takes is estimated from both (the product limit, Kaplan and Meier, J. Am. Stat. Assoc.
    53:457, 1958, with an exponential tail); the work left is shared by as many trials as may be at work at once.
    """
    b = state.bench
    if state.exit_code is not None or state.paused or state.stop_requested == "now" or b.limit <= 0:
        return None
    done: list[float] = []
    ages: list[float] = []
    told = 0
    for _, t in trials(state):
        told += 1
        if t.phase == "done":
            if (took := _duration(t)) is not None:
                done.append(took)
        elif t.phase not in _WAITING:
            ages.append(max(0.0, now - t.started) if t.started is not None else 0.0)
    if len(done) < FEWEST_DURATIONS:
        return None
    waiting = max(0, max(b.trials, told) - b.done - len(ages))
    if state.stop_requested == "after_step":
        waiting = 0
    if not waiting and not ages:
        return TimeLeft(0.0, 0.0, 0.0)
    curve = _Curve(done, ages)
    rests = [curve.rest(age) for age in ages]
    left = waiting + len(ages)
    side_by_side = min(b.limit, left)
    work = waiting * curve.mean + math.fsum(rests)
    likely = max(work / side_by_side, max(rests, default=0.0))
    spread = math.sqrt(curve.variance * left * (1 + left / len(done)))
    half = _EIGHTY_Z * spread / side_by_side
    return TimeLeft(max(0.0, likely - half), likely, likely + half)


def _duration(trial: TrialState) -> float | None:
    took = trial.seconds.get("total")
    if took is None and trial.started is not None and trial.finished is not None:
        took = trial.finished - trial.started
    return max(0.0, took) if took is not None and math.isfinite(took) else None


class _Curve:
    """How many trials last longer than a time, as the product limit of those that ended and those under way.

    Attributes:
        mean, variance: of a trial's seconds.
    """

    def __init__(self, done: Sequence[float], ages: Sequence[float]) -> None:
        # Behind the longest that has ended nothing is known but this: so many ended in so much time at work.
        self._tail = (math.fsum(done) + math.fsum(ages)) / len(done)
        seen = sorted([(took, 0) for took in done] + [(age, 1) for age in ages])
        self._times, self._shares = [0.0], [1.0]
        at_risk, share = len(seen), 1.0
        for moment, goes_on in seen:
            if not goes_on:
                share *= (at_risk - 1) / at_risk
                self._times.append(moment)
                self._shares.append(share)
            at_risk -= 1
        # What lies under the curve from each step on, summed once: it is asked of every trial at work, at each paint.
        self._areas = [self._shares[-1] * self._tail]
        for at in range(len(self._times) - 1, 0, -1):
            width = self._times[at] - self._times[at - 1]
            self._areas.append(self._areas[-1] + self._shares[at - 1] * width)
        self._areas.reverse()
        self.mean = self._areas[0]
        second = self._shares[-1] * 2 * self._tail * (self._times[-1] + self._tail)
        for (begin, share), end in zip(zip(self._times, self._shares, strict=True), self._times[1:]):
            second += share * (end * end - begin * begin)
        self.variance = max(0.0, second - self.mean**2)

    def rest(self, age: float) -> float:
        """Seconds that a trial of that age is expected to go on."""
        at = bisect_right(self._times, age) - 1
        share = self._shares[at]
        if share <= 0:
            return 0.0
        last = at == len(self._times) - 1
        area = self._areas[at] if last else self._areas[at + 1] + share * (self._times[at + 1] - age)
        return area / share
