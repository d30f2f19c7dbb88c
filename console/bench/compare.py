"""Did B beat A, and can it be trusted: two runs on the tasks that were graded in both."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from functools import partial

import msgspec

from console.bench.figures import paired
from console.bench.figures.modes import DEFAULT, MODES, decide
from console.bench.merge import MergedGroup
from console.bench.rows import counted
from console.bench.sides import Attempt, Difference, Side, differences
from console.records.harbor.model import JobRecord

LEVEL = 0.05
_MOST_DIGITS = 4
LOPSIDED = 0.1
"""Share of the tasks that one side may lose to exclusions before the common ones are called a selection."""

type Scores = Mapping[str, Sequence[tuple[float, Attempt]]]


class Flip(msgspec.Struct, frozen=True, kw_only=True):
    """A task on which the sides differ. `a`, `b`: mean scores; `paths_a`, `paths_b`: directories of the trials."""

    task: str
    a: float
    b: float
    paths_a: list[str]
    paths_b: list[str]


class Paired(msgspec.Struct, frozen=True, kw_only=True):
    """What one accounting mode says of B against A. Scores and differences are shares, differences B minus A.

    Attributes:
        mode, rule: its name, its rule in one sentence.
        tasks: graded in both; attempts_a, attempts_b: fewest and most counted attempts of these tasks.
        mean_a, mean_b, effect, ci95, ci_method, se: over the tasks in common, each of the same weight; None without.
        se_within: standard error from the attempts alone, the tasks fixed; None unless each task has two of each side.
        test: mcnemar-exact (one yes or no a task and side) or sign-flip; p, mid_p: None without a task.
        both, only_a, only_b, neither: of the first kind of test: tasks that both, one side, or none passed.
        excluded: why to the tasks that are not compared, the side's label in front.
        better_a, better_b: tasks on which the side is ahead, the largest difference first.
        p_holm: p adjusted for all the comparisons of one call; None for a single one.
        verdict: in words; distinguishable: p (adjusted if there is one) and the interval agree that it is not chance.
    """

    mode: str
    rule: str
    tasks: int
    attempts_a: tuple[int, int] = (0, 0)
    attempts_b: tuple[int, int] = (0, 0)
    mean_a: float | None = None
    mean_b: float | None = None
    effect: float | None = None
    ci95: tuple[float, float] | None = None
    ci_method: str = ""
    se: float | None = None
    se_within: float | None = None
    test: str = ""
    p: float | None = None
    mid_p: float | None = None
    both: int | None = None
    only_a: int | None = None
    only_b: int | None = None
    neither: int | None = None
    excluded: dict[str, list[str]] = {}
    better_a: list[Flip] = []
    better_b: list[Flip] = []
    p_holm: float | None = None
    verdict: str = ""
    distinguishable: bool = False


class SideSummary(msgspec.Struct, frozen=True, kw_only=True):
    """Who a side is. `label`: a letter; `name`: in words; `jobs`: directories; `groups`: "agent model" to trials."""

    label: str
    name: str
    jobs: list[str]
    trials: int
    tasks: int
    groups: dict[str, int]


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """Two sides: the mode that was asked for, what the other modes say, and what else differs.

    `disagreement`: "" unless two modes disagree about who is ahead; `warnings`: what keeps the difference from being
    the agents' or models' alone, in words.
    """

    a: SideSummary
    b: SideSummary
    asked: Paired
    modes: dict[str, Paired] = {}
    disagreement: str = ""
    differences: list[Difference] = []
    warnings: list[str] = []


def side_of(label: str, group: MergedGroup, jobs: Iterable[JobRecord] = ()) -> Side:
    """The chosen tries of a merged group as one side, scored by every mode; `jobs`: those it comes from."""
    side = Side(label, {name: partial(decide, mode) for name, mode in MODES.items()})
    side.name = " ".join(part for part in (group.group.agent, group.group.model) if part)
    side.jobs = group.jobs
    for row in group.rows:
        side.add(row)
    for job in jobs:
        side.add_job(job)
    return side


def compare(a: Side, b: Side, mode: str = DEFAULT) -> Comparison:
    """Compare two sides by `mode`, and by every other mode that they have. Raises KeyError for one they do not have."""
    return compare_all([a, b], mode)[0]


def compare_all(sides: Sequence[Side], mode: str = DEFAULT) -> list[Comparison]:
    """Each pair of sides, in order; with more than one pair, p-values are also given as adjusted by Holm."""
    pairs = [(a, b) for i, a in enumerate(sides) for b in sides[i + 1 :]]
    table = {name: [_paired(a, b, name, MODES[name].rule) for a, b in pairs] for name in sides[0].modes}
    for name, found in table.items():
        known = [at for at, one in enumerate(found) if one.p is not None]
        if len(pairs) > 1:
            for at, adjusted in zip(known, paired.holm([found[at].p or 0.0 for at in known])):
                found[at] = msgspec.structs.replace(found[at], p_holm=adjusted)
        table[name] = [_with_verdict(one, *pair) for one, pair in zip(found, pairs)]
    places = {side.label: _places(side) for side in sides}
    return [
        Comparison(
            a=_summary(a),
            b=_summary(b),
            asked=table[mode][at],
            modes={name: found[at] for name, found in table.items()},
            disagreement=_disagreement([found[at] for found in table.values()], a, b),
            differences=(unlike := differences(a, b)),
            warnings=[*_shared(a, b, places), *_warnings(table[mode][at], unlike, a, b)],
        )
        for at, (a, b) in enumerate(pairs)
    ]


def _places(side: Side) -> set[str]:
    """Where the trials of a side lie, whichever way they were named."""
    folders: dict[str, str] = {}
    found = set()
    for attempts in side.tasks.values():
        for one in attempts:
            folder, name = os.path.split(one.path)
            if folder not in folders:
                folders[folder] = os.path.realpath(folder)
            place = os.path.join(folders[folder], name)
            found.add(os.path.realpath(place) if os.path.islink(place) else place)
    return found


def _shared(a: Side, b: Side, places: Mapping[str, set[str]]) -> list[str]:
    same = len(places[a.label] & places[b.label])
    return [f"{a.label} and {b.label} share {counted(same, 'trial')}: what is compared is partly the same run"] * (
        same > 0
    )


def _paired(a: Side, b: Side, mode: str, rule: str) -> Paired:
    mine, other = a.counted(mode), b.counted(mode)
    common = sorted(mine.keys() & other.keys())
    excluded = _excluded(a, b, mode, mine, other)
    if not common:
        return Paired(mode=mode, rule=rule, tasks=0, excluded=excluded)
    means_a = [_mean(mine[task]) for task in common]
    means_b = [_mean(other[task]) for task in common]
    unlike = [second - first for first, second in zip(means_a, means_b)]
    flips = [_flip(task, mine[task], other[task]) for task, d in zip(common, unlike) if abs(d) > paired.NEGLIGIBLE]
    found = Paired(
        mode=mode,
        rule=rule,
        tasks=len(common),
        attempts_a=_span(mine, common),
        attempts_b=_span(other, common),
        mean_a=sum(means_a) / len(common),
        mean_b=sum(means_b) / len(common),
        effect=sum(unlike) / len(common),
        se=paired.standard_error(unlike),
        se_within=_within(mine, other, common),
        excluded=excluded,
        better_a=sorted((flip for flip in flips if flip.a > flip.b), key=lambda flip: flip.b - flip.a),
        better_b=sorted((flip for flip in flips if flip.b > flip.a), key=lambda flip: flip.a - flip.b),
    )
    single = found.attempts_a == found.attempts_b == (1, 1)
    if single and {*means_a, *means_b} <= {0.0, 1.0}:
        return _yes_or_no(found, means_a, means_b)
    interval = paired.mean_interval(unlike)
    return msgspec.structs.replace(
        found,
        ci95=None if interval is None else (interval.low, interval.high),
        ci_method="" if interval is None else interval.method,
        test="sign-flip",
        p=paired.sign_flip(unlike),
    )


def _yes_or_no(found: Paired, means_a: Sequence[float], means_b: Sequence[float]) -> Paired:
    pairs = list(zip(means_a, means_b))
    both, only_a, only_b, neither = (pairs.count(pair) for pair in ((1.0, 1.0), (1.0, 0.0), (0.0, 1.0), (0.0, 0.0)))
    interval = paired.paired_proportions(both, only_a, only_b, neither)
    p, mid_p = paired.mcnemar(only_a, only_b)
    return msgspec.structs.replace(
        found, ci95=(interval.low, interval.high), ci_method=interval.method, test="mcnemar-exact", p=p, mid_p=mid_p,
        both=both, only_a=only_a, only_b=only_b, neither=neither,
    )  # fmt: skip


def _mean(scores: Sequence[tuple[float, Attempt]]) -> float:
    return sum(score for score, _ in scores) / len(scores)


def _span(scores: Scores, tasks: Iterable[str]) -> tuple[int, int]:
    counts = [len(scores[task]) for task in tasks]
    return min(counts), max(counts)


def _within(a: Scores, b: Scores, tasks: Sequence[str]) -> float | None:
    """Standard error of the mean difference with these tasks fixed: the variances of the attempts' means add up."""
    total = 0.0
    for scores in (a, b):
        for task in tasks:
            values = [score for score, _ in scores[task]]
            if len(values) < 2:
                return None
            mean = sum(values) / len(values)
            total += sum((value - mean) ** 2 for value in values) / (len(values) - 1) / len(values)
    return float(total**0.5 / len(tasks))


def _flip(task: str, a: Sequence[tuple[float, Attempt]], b: Sequence[tuple[float, Attempt]]) -> Flip:
    return Flip(
        task=task, a=_mean(a), b=_mean(b), paths_a=[one.path for _, one in a], paths_b=[one.path for _, one in b]
    )


def _excluded(a: Side, b: Side, mode: str, mine: Scores, other: Scores) -> dict[str, list[str]]:
    """A task that misses on both sides stands under both."""
    found: dict[str, list[str]] = {}
    for task in sorted({*a.tasks, *b.tasks}):
        for side, scores in ((a, mine), (b, other)):
            if task not in scores:
                found.setdefault(f"{side.label}: {side.why_not(task, mode)}", []).append(task)
    return found


def _with_verdict(found: Paired, a: Side, b: Side) -> Paired:
    words, sure = _verdict(found, a.label, b.label)
    return msgspec.structs.replace(found, verdict=words, distinguishable=sure)


def _verdict(found: Paired, a: str, b: str) -> tuple[str, bool]:
    if not found.tasks or found.effect is None or found.p is None:
        return "no task was graded in both, so nothing can be said", False
    tasks = counted(found.tasks, "task")
    if not found.better_a and not found.better_b:
        said = f"{a} and {b} scored the same on each of {tasks}"
    elif abs(found.effect) <= paired.NEGLIGIBLE:
        said = f"{a} and {b} are level at {_percent(found.mean_a)} of {tasks}"
    else:
        ahead, behind = (b, a) if found.effect > 0 else (a, b)
        said = f"{ahead} is ahead of {behind} by {points(abs(found.effect))} points on {tasks}"
    sign = -1 if found.effect < 0 else 1
    if found.ci95 is None:
        said += "; no interval, as resampling these tasks says nothing"
    else:
        low, high = sorted(sign * limit for limit in found.ci95)
        said += f"; 95 % interval {points(low)} to {points(high)}"
    p = found.p if found.p_holm is None else found.p_holm
    by_test = p < LEVEL
    by_interval = by_test if found.ci95 is None else found.ci95[0] > 0 or found.ci95[1] < 0
    if by_test and by_interval:
        return f"{said}; distinguishable at 5 % (p {p_text(p)})", True
    if by_test or by_interval:
        sides = "the test says yes, the interval no" if by_test else "the interval says yes, the test no"
        return f"{said}; on the edge at 5 % ({sides}, p {p_text(p)}): not to be relied on", False
    return f"{said}; not distinguishable at 5 % (p {p_text(p)})", False


def _disagreement(found: Sequence[Paired], a: Side, b: Side) -> str:
    ahead: dict[str, list[Paired]] = {}
    for one in found:
        if one.effect is not None and abs(one.effect) > paired.NEGLIGIBLE:
            ahead.setdefault(b.label if one.effect > 0 else a.label, []).append(one)
    if len(ahead) < 2:
        return ""
    parts = [
        f"{label} is ahead by " + ", ".join(f"{one.mode} ({points(abs(one.effect or 0.0))})" for one in modes)
        for label, modes in ahead.items()
    ]
    return f"who is ahead depends on the rule: {'; '.join(parts)}"


def _warnings(found: Paired, unlike: Sequence[Difference], a: Side, b: Side) -> list[str]:
    said = []
    weighty = [one.name for one in unlike if one.weighty]
    if weighty:
        said.append(f"the runs differ in {_listed(weighty)}: the difference may be theirs, not the agents' or models'")
    tasks = len({*a.tasks, *b.tasks})
    for side, other in ((a, b), (b, a)):
        lost = sum(len(names) for why, names in found.excluded.items() if why.startswith(f"{side.label}: "))
        if tasks and lost > LOPSIDED * tasks:
            text = f"{lost:,} of {counted(tasks, 'task')} {'does' if lost == 1 else 'do'} not count in {side.label}"
            if found.tasks:
                text += (
                    f": those in common with {other.label} are a selection, and not of tasks that went wrong at random"
                )
            said.append(text)
    if 0 < found.tasks < paired.FEW_TASKS:
        few = f"{counted(found.tasks, 'task')} {'is' if found.tasks == 1 else 'are'} few"
        said.append(f"{few}: below {paired.FEW_TASKS} intervals are too narrow to be relied on")
    return said


def _listed(names: Sequence[str]) -> str:
    shown = [*names[:5], *([f"{len(names) - 5} more"] if len(names) > 5 else [])]
    return " and ".join([", ".join(shown[:-1]), shown[-1]] if len(shown) > 1 else shown)


def _summary(side: Side) -> SideSummary:
    groups = {" ".join(part for part in group if part): count for group, count in side.groups.most_common()}
    return SideSummary(
        label=side.label, name=side.name, jobs=list(side.jobs), trials=side.trials, tasks=len(side.tasks), groups=groups
    )


def points(share: float, sign: str = "") -> str:
    """Percentage points with one digit, more where only these tell it from zero, and no minus in front of a zero.

    `sign`: "+" for one in front of numbers above zero as well.
    """
    if abs(share) <= paired.NEGLIGIBLE:
        share = 0.0
    digits = 1
    while share and digits < _MOST_DIGITS and abs(100 * share) < 0.5 * 10**-digits:
        digits += 1
    text = f"{100 * share:{sign}.{digits}f}"
    return text if float(text) else f"{0.0:{sign}.1f}"


def points_range(shares: tuple[float, float]) -> str:
    """An interval in points, with signs."""
    return f"{points(shares[0], '+')} to {points(shares[1], '+')}"


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{100 * share:.1f} %"


def p_text(p: float) -> str:
    """A p-value as people read it: two digits, none below 0.0001."""
    return "< 0.0001" if p < 0.0001 else f"= {p:.2g}" if p < 0.095 else f"= {p:.2f}"
