"""How `quarterdeck bench mop-up` says what it will do: attempts to run and why, what is left out and why, the jobs."""

from __future__ import annotations

import os
import shlex
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.cells import cell_len

from console.bench.rows import counted
from console.commands.bench_text import clean, laid_out, paragraph, path_text
from console.state.sanitize import sanitize

if TYPE_CHECKING:
    from console.bench.mop_up.choice import Attempt
    from console.bench.mop_up.plan import Plan, PlannedJob
    from console.findings import Finding

_LEFT_SHOWN = 40
_CHANGES_SHOWN = 20
_LEAST_TASK, _LEAST_WHY, _WHY_LINES = 16, 30, 4
"""Cells of a task's name that tell it, cells and lines that the reason may take."""


def plan_text(plan: Plan, width: int) -> Iterator[str]:
    """The whole plan, line by line, safe for a terminal."""
    family, choice = plan.family, plan.choice
    yield path_text(str(family.root), width)
    begun = [each.path.name for each in family.mop_ups if each.begun]
    names = [*begun, *(path.name for path in plan.others)]
    if names:
        yield from paragraph(f"counted with it: {', '.join(names)}", width, "  ")
    if choice.standing:
        yield from paragraph(
            f"{counted(choice.standing, 'attempt')} completed: stands, and is not run again", width, "  "
        )
    if choice.chosen:
        yield ""
        yield f"to run again: {counted(len(choice.chosen), 'attempt')}"
        yield from _table(choice.chosen, width, evidence=True)
    final = [attempt for attempt in choice.left if attempt.final]
    rest = [attempt for attempt in choice.left if not attempt.final]
    if rest:
        yield ""
        yield f"left out: {counted(len(rest), 'attempt')}"
        yield from _table(rest, width, evidence=False)
    if final:
        yield ""
        yield f"accepted as final: {counted(len(final), 'attempt')}"
        yield from _table(final, width, evidence=False)
    if plan.lost:
        yield ""
        yield from paragraph(
            f"{counted(plan.lost, 'planned attempt')} left nothing on disk, and no file tells of which tasks: a new "
            "job runs them (quarterdeck bench run)",
            width,
        )
    if plan.jobs:
        yield ""
        yield from _jobs(plan, width)


def nothing_text(plan: Plan) -> str:
    """Why there is nothing to do, in one line."""
    left = Counter("accepted as final" if attempt.final else attempt.kind for attempt in plan.choice.left)
    if not left:
        return f"nothing to run again: {counted(plan.choice.standing, 'attempt')} completed"
    said = ", ".join(f"{number} {kind}" for kind, number in left.most_common(6))
    return f"nothing to run again: {counted(plan.choice.standing, 'attempt')} completed, left out: {said}"


def findings_text(findings: Iterable[Finding], width: int, *, able: bool = True) -> Iterator[str]:
    """What the start would refuse or warn of, errors first. able: whether it could be looked for."""
    lines = [f"{one.level}: {one.line()}" for one in findings]
    if not able:
        lines.append("not checked: Harbor is not installed here (pip install 'quarterdeck[engine]')")
    if lines:
        yield ""
    for line in lines:
        yield from paragraph(line, width, then="  ")


def outcome_text(plan: Plan, before: Plan) -> str:
    """What a mop-up has brought, in one line: the plan made anew when it has ended, beside the one that was run."""
    ran = len(before.choice.chosen)
    left, final = len(plan.choice.chosen), sum(attempt.final for attempt in plan.choice.left)
    said = f"{ran} run again; "
    said += (
        f"{left} still without a result that says something of the agent" if left else "nothing is left to run again"
    )
    return said + (f"; {counted(final, 'attempt')} accepted as final" if final else "")


def tally_command(plan: Plan, jobs: Iterable[PlannedJob] = ()) -> str:
    """The command that counts the job with its mop-ups, to be typed."""
    paths: dict[str, None] = {str(path): None for path in (*plan.family.paths, *plan.others)}
    for job in jobs:
        paths[str(job.path)] = None
    return sanitize(shlex.join(["quarterdeck", "bench", "tally", *(_short(path) for path in paths)]), limit=4000)


def as_json(plan: Plan) -> dict[str, Any]:
    """The plan as one object, without the jobs' configurations, which may hold secrets."""
    return {
        "v": 1,
        "job": _plain(plan.family.root),
        "mop_ups": [_plain(each.path) for each in plan.family.mop_ups if each.begun],
        "others": [_plain(path) for path in plan.others],
        "standing": plan.choice.standing,
        "run": [_attempt(attempt) for attempt in plan.choice.chosen],
        "left": [_attempt(attempt) for attempt in plan.choice.left],
        "lost": plan.lost,
        "jobs": [
            {
                "dir": _plain(job.path),
                "pass": job.number,
                "tasks": sorted(job.names),
                "agents": list(job.agents),
                "attempts": job.attempts,
                "trials": job.trials,
                "forced": list(job.forced),
            }
            for job in plan.jobs
        ],
        "changes": [
            {"key": one.key, "before": one.before, "after": one.after, "measured": one.measured} for one in plan.changes
        ],
        "notes": list(plan.notes),
    }


def _attempt(attempt: Attempt) -> dict[str, Any]:
    return {
        "task": attempt.task,
        "agent": attempt.group.agent,
        "model": attempt.group.model,
        "dataset": attempt.group.dataset,
        "trial_dir": attempt.trial,
        "class": attempt.outcome.value,
        "cause": attempt.cause,
        "rule": attempt.rule,
        "evidence": {"file": attempt.file, "text": attempt.text},
        "tries": attempt.tries,
        "mop_ups": attempt.passes,
        "why": attempt.why,
        "forced": attempt.forced,
        "final": attempt.final,
    }


def _table(attempts: Sequence[Attempt], width: int, *, evidence: bool) -> Iterator[str]:
    """Attempts of one task that ended alike on one line."""
    several = len({(attempt.group.agent, attempt.group.model) for attempt in attempts}) > 1
    rows: dict[tuple[str, ...], list[Attempt]] = {}
    for attempt in sorted(attempts, key=lambda one: (one.kind, one.short, one.group)):
        who = " · ".join(part for part in (attempt.group.agent, attempt.group.model.rsplit("/", 1)[-1]) if part)
        key = (attempt.short, attempt.kind, attempt.why, who if several else "")
        rows.setdefault(key, []).append(attempt)
    lines = [("TASK", "ATTEMPTS", "CLASS", *(("AGENT",) if several else ()), "WHY")]
    for (task, kind, why, who), found in list(rows.items())[: None if evidence else _LEFT_SHOWN]:
        first = found[0]
        said = first.text if evidence and first.text and not first.forced else why
        mopped = max(attempt.passes for attempt in found)
        said = f"({counted(mopped, 'mop-up')} failed) {said}" if mopped and evidence else said
        cells = (clean(task or "?", 40), str(len(found)), kind, *((clean(who, 30),) if several else ()), said)
        lines.append(cells)
    yield from ("  " + line for line in _with_why(lines, width - 2))
    if not evidence and len(rows) > _LEFT_SHOWN:
        yield f"  and {len(rows) - _LEFT_SHOWN} more lines of this kind: --dry-run --json has all"


def _with_why(rows: Sequence[tuple[str, ...]], width: int) -> Iterator[str]:
    """The last cell of a row is the answer: it is wrapped, and where there is little room it stands below the row."""
    widths = [max(cell_len(row[at]) for row in rows) for at in range(len(rows[0]) - 1)]
    widths[0] = max(widths[0], 8)  # the least that it is laid out in
    taken = sum(widths) + 2 * len(widths)
    least = taken - widths[0] + min(widths[0], _LEAST_TASK)
    below = width - least < _LEAST_WHY
    head = width if below else min(taken, width - _LEAST_WHY) - 2
    room = width - 4 if below else width - head - 2
    for number, (line, row) in enumerate(zip(laid_out([row[:-1] for row in rows], head, 0, (1,)), rows)):
        said = paragraph(row[-1], max(8, room))
        if len(said) > _WHY_LINES:
            said = [*said[: _WHY_LINES - 1], clean(" ".join(said[_WHY_LINES - 1 :]), max(8, room))]
        if below:
            yield line
            yield from (f"    {part}" for part in said if number)
            continue
        for at, part in enumerate(said):
            yield f"{line}{' ' * (head - cell_len(line))}  {part}" if at == 0 else " " * (head + 2) + part


def _jobs(plan: Plan, width: int) -> Iterator[str]:
    yield "new job" if len(plan.jobs) == 1 else f"{len(plan.jobs)} new jobs, one after the other"
    for job in plan.jobs:
        yield "  " + path_text(str(job.path), width - 2)
        each = "" if job.attempts == 1 else f", {job.attempts} attempts of each"
        said = f"{counted(job.trials, 'trial')}: {counted(len(job.tasks), 'task')}{each}"
        yield from paragraph(said + (f", {len(job.agents)} agents" if len(job.agents) > 1 else ""), width, "    ")
    for change in plan.changes[:_CHANGES_SHOWN]:
        mark = "changed, and measured otherwise" if change.measured else "changed"
        said = f"{mark}: {change.key}: {change.before or 'not set'} -> {change.after or 'not set'}"
        yield from paragraph(said, width, "  ", "    ")
    for note in plan.notes:
        yield from paragraph(note, width, "  ", "    ")


def _plain(path: Path | str) -> str:
    return os.fsencode(path).decode("utf-8", "backslashreplace")


def _short(path: str) -> str:
    """Relative where that is shorter, as it would be typed."""
    relative = os.path.relpath(path)
    found = relative if len(relative) < len(path) and not relative.startswith("..") else path
    return f"./{found}" if found.startswith("-") else found
