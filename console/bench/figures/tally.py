"""`tally`: from a stream of verdicts to every figure, in one pass and with one compact row a trial in memory."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence

import msgspec

from console.bench.attempts import RULES
from console.bench.figures import modes
from console.bench.figures.usage import Spread, Usage, spread, usage
from console.bench.merge import DEFAULT, Merged, MergedGroup, merge
from console.bench.model import Figures, Judged
from console.bench.rows import Identity, Notice, Row, read_rows
from console.records.harbor.model import JobRecord


class TaskTally(msgspec.Struct, frozen=True, kw_only=True):
    """One task: its attempts, `outcomes` (class/cause to attempts), `scores` (mode to sum of scores and counted
    attempts), and what its attempts took."""

    task: str
    attempts: int
    outcomes: dict[str, int]
    scores: dict[str, tuple[float, int]]
    agent_seconds: Spread
    output_tokens: Spread

    def mean(self, mode: str) -> float | None:
        """The task's mean score by a mode, None when it counts none of its attempts."""
        total, number = self.scores.get(mode, (0.0, 0))
        return total / number if number else None


class GroupTally(msgspec.Struct, frozen=True, kw_only=True):
    """Everything of one agent, model and dataset.

    Attributes:
        agent, model, dataset: "" when unknown; jobs: directories in the order of merging.
        trials: directories; attempts: after merging; replaced, again, copies, planned, missing: see `MergedGroup`.
        outcomes: class/cause to attempts; modes: the figures, in the order that was asked for; tasks: by name.
        counted: usage of the chosen tries; spent: of all tries, those that were replaced included.
        notices: what a reader must know of the merging.
    """

    agent: str
    model: str
    dataset: str
    jobs: tuple[str, ...]
    trials: int
    attempts: int
    replaced: int
    again: int
    copies: int
    planned: int | None
    missing: int
    outcomes: dict[str, int]
    modes: tuple[Figures, ...]
    tasks: tuple[TaskTally, ...]
    counted: Usage
    spent: Usage
    notices: tuple[Notice, ...]


class Tally(msgspec.Struct, frozen=True, kw_only=True):
    """`merge`, `merge_rule`: name and sentence of the merging rule; `groups`: never added up; `notices`: of all."""

    merge: str
    merge_rule: str
    groups: tuple[GroupTally, ...]
    notices: tuple[Notice, ...] = ()


def tally(
    judged: Iterable[Judged],
    jobs: Iterable[JobRecord] = (),
    *,
    rule: str = DEFAULT,
    names: Sequence[str] | None = None,
) -> Tally:
    """Merges and counts.

    Args:
        judged: verdicts in any order, read once; about half a kilobyte of each is kept.
        jobs: records of their job directories.
        rule: of merging, one of `attempts.RULES`.
        names: modes, all of them by default.

    Raises:
        UsageError: an unknown rule or mode.
    """
    wanted = [modes.mode(name) for name in (modes.MODES if names is None else names)]
    return tally_merged(merge(read_rows(judged), jobs, rule), wanted)


def tally_merged(merged: Merged, wanted: Sequence[modes.Mode]) -> Tally:
    """The same of trials that are merged already."""
    return Tally(
        merge=merged.rule,
        merge_rule=RULES[merged.rule],
        groups=tuple(_group(group, wanted) for group in merged.groups),
        notices=tuple(merged.notices),
    )


def _group(group: MergedGroup, wanted: Sequence[modes.Mode]) -> GroupTally:
    from console.bench.figures.measure import measure  # scipy takes a second, which a kept tally does not need

    name: Identity = group.group
    return GroupTally(
        agent=name.agent,
        model=name.model,
        dataset=name.dataset,
        jobs=group.jobs,
        trials=len(group.tries) + group.copies,
        attempts=len(group.rows),
        replaced=group.replaced,
        again=group.again,
        copies=group.copies,
        planned=group.planned,
        missing=group.missing,
        outcomes=_outcomes(group.rows),
        modes=tuple(measure(mode, group.rows, missing=group.missing, planned=group.planned) for mode in wanted),
        tasks=tuple(_tasks(group.rows, wanted)),
        counted=usage(group.rows),
        spent=usage(group.tries),
        notices=tuple(group.notices),
    )


def _tasks(rows: list[Row], wanted: Sequence[modes.Mode]) -> Iterable[TaskTally]:
    by_task: dict[str, list[Row]] = {}
    for row in rows:
        by_task.setdefault(row.task, []).append(row)
    for task, same in sorted(by_task.items()):
        scores = {}
        for mode in wanted:
            known = [score for score, _ in (modes.decide(mode, row) for row in same) if score is not None]
            scores[mode.name] = (math.fsum(known), len(known))
        yield TaskTally(
            task=task,
            attempts=len(same),
            outcomes=_outcomes(same),
            scores=scores,
            agent_seconds=spread(row.agent_seconds for row in same),
            output_tokens=spread(row.output_tokens for row in same),
        )


def _outcomes(rows: Iterable[Row]) -> dict[str, int]:
    found = Counter(row.kind for row in rows)
    return dict(sorted(found.items(), key=lambda item: (-item[1], item[0])))
