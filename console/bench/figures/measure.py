"""One accounting mode's figures over the chosen tries of one agent, model and dataset."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence

from console.bench.figures import errors, pass_at
from console.bench.figures.intervals import FEW_TASKS, interval
from console.bench.figures.modes import Count, Mode, count
from console.bench.model import Figures
from console.bench.rows import Row, counted

_LEADERBOARD_ATTEMPTS = 5


def measure(mode: Mode, rows: Iterable[Row], *, missing: int = 0, planned: int | None = None) -> Figures:
    """The mode's figures.

    Args:
        rows: the chosen try of each attempt, of one identity.
        missing: planned attempts of which nothing is on disk; planned: all that were meant to be, None when unknown.
    """
    rows = list(rows)
    found = count(mode, rows)
    scores_T = list(found.scores.values())
    attempts = [len(scores) for scores in scores_T]
    denominator = sum(attempts)
    value = _value(scores_T, mode.per)
    bounds = _bounds(found, mode.per)
    undefined: dict[str, str] = {}
    within, across = errors.within_tasks(scores_T, mode.per), errors.across_tasks(scores_T, mode.per)
    if within is None:
        undefined["se_within"] = _why_within(attempts)
    if across is None:
        undefined["se_across"] = "it needs two tasks"
    reach = interval(scores_T, mode.per)
    if isinstance(reach, str):
        undefined["ci95"] = reach
    if value is None:
        undefined["value"] = "nothing is counted"
    at, alls = _pass(scores_T, undefined)
    whole = planned if planned is not None else len(rows) + missing
    undecided = Counter[str]()
    for (why, _), number in found.undecided.items():
        undecided[why] += number
    return Figures(
        mode=mode.name,
        rule=mode.rule,
        numerator=math.fsum(score for scores in scores_T for score in scores),
        denominator=denominator,
        value=value,
        per=mode.per,
        excluded=dict(sorted(found.excluded.items())),
        missing=missing,
        tasks=len(scores_T),
        attempts_min=min(attempts, default=0),
        attempts_max=max(attempts, default=0),
        se_within=within,
        se_across=across,
        ci95=None if isinstance(reach, str) else (reach.low, reach.high),
        ci_method="" if isinstance(reach, str) else reach.method,
        pass_at=at,
        pass_all=alls,
        coverage=denominator / whole if whole else None,
        undecided=dict(sorted(undecided.items())),
        bounds=bounds,
        undefined=undefined,
        warnings=tuple(_warnings(mode, found, rows, missing, "" if isinstance(reach, str) else reach.method, bounds)),
    )


def _value(scores_T: Sequence[Sequence[float]], per: str) -> float | None:
    if not scores_T:
        return None
    if per == "task":
        return math.fsum(math.fsum(scores) / len(scores) for scores in scores_T) / len(scores_T)
    return math.fsum(score for scores in scores_T for score in scores) / sum(map(len, scores_T))


def _bounds(found: Count, per: str) -> tuple[float, float] | None:
    """The value with every undecided attempt failed, and with every one passed."""
    if not found.undecided or any(not 0 <= score <= 1 for scores in found.scores.values() for score in scores):
        return None
    ends = []
    for worth in (0.0, 1.0):
        scores = {task: list(known) for task, known in found.scores.items()}
        for (_, task), number in found.undecided.items():
            scores.setdefault(task, []).extend([worth] * number)
        ends.append(_value(list(scores.values()), per))
    low, high = ends
    return None if low is None or high is None else (low, high)


def _why_within(attempts: list[int]) -> str:
    single = sum(number == 1 for number in attempts)
    if not attempts:
        return "nothing is counted"
    if single == len(attempts):
        return "every task has one attempt only"
    return f"{counted(single, 'task')} of {len(attempts)} {'has' if single == 1 else 'have'} one attempt only"


def _pass(
    scores_T: Sequence[Sequence[float]], undefined: dict[str, str]
) -> tuple[dict[int, tuple[float, int]], dict[int, tuple[float, int]]]:
    if any(score not in (0, 1) for scores in scores_T for score in scores):
        undefined["pass_at"] = "a score is neither 0 nor 1"
        return {}, {}
    tasks = [(len(scores), int(math.fsum(scores))) for scores in scores_T]
    most = max((attempts for attempts, _ in tasks), default=0)
    if most < 2:
        undefined["pass_at"] = "k > 1 needs several attempts of a task" if tasks else "nothing is counted"
    return pass_at.over_tasks(tasks, pass_at.KS), pass_at.over_tasks(tasks, pass_at.KS, pass_at.pass_all_k)


def _warnings(
    mode: Mode, found: Count, rows: list[Row], missing: int, method: str, bounds: tuple[float, float] | None
) -> Iterable[str]:
    attempts = [len(scores) for scores in found.scores.values()]
    undecided = sum(found.undecided.values())
    if undecided:
        said = f"{counted(undecided, 'attempt')} that nobody can decide left out"
        if bounds is not None:
            yield f"{said}: {bounds[0]:.2%} if all of them had failed, {bounds[1]:.2%} if all had passed"
        else:
            yield f"{said}: scores beyond 0 and 1, so how far they could move the figure is unknown"
    if missing:
        yield f"{counted(missing, 'planned attempt')} without anything on disk not counted{_if_missing(found, missing)}"
    if method.startswith("bootstrap") and len(attempts) < FEW_TASKS:
        yield f"the interval resamples {len(attempts)} tasks: below {FEW_TASKS} it is unreliable, and too narrow"
    if method == "wilson" and attempts and max(attempts) > 1:
        yield "the interval takes attempts of one task as independent: it is too narrow"
    lost = len({row.task for row in rows} - found.scores.keys())
    if lost and attempts:
        yield f"{counted(lost, 'task')} without a counted attempt {'is' if lost == 1 else 'are'} not in the figure"
    if attempts and min(attempts) != max(attempts):
        how = "tasks weigh alike" if mode.per == "task" else "a task weighs by its attempts"
        yield f"tasks have {min(attempts)} to {max(attempts)} counted attempts: {how}"
    if mode.name == "leaderboard" and attempts and min(attempts) < _LEADERBOARD_ATTEMPTS:
        yield f"the leaderboard wants {_LEADERBOARD_ATTEMPTS} attempts of each task"


def _if_missing(found: Count, missing: int) -> str:
    """What the figure over attempts would be with them, as far as that can be said."""
    flat = [score for scores in found.scores.values() for score in scores]
    if any(not 0 <= score <= 1 for score in flat):
        return ""
    total, whole = math.fsum(flat), len(flat) + missing
    return f": over all attempts {total / whole:.2%} had they failed, {(total + missing) / whole:.2%} had they passed"
