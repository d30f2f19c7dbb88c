"""What a job leaves without a usable grade, and what takes it: said when a run has ended, and before it goes on."""

from __future__ import annotations

import contextlib
import shlex
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from console.bench.attempts import VALID
from console.bench.rows import counted
from console.commands.bench_text import columns, paragraph
from console.errors import UsageError
from console.state.sanitize import sanitize

if TYPE_CHECKING:
    from console.bench.mop_up.choice import Attempt
    from console.bench.mop_up.plan import Plan
    from console.bench.resume import Prediction

_NAMED = 6


def command(name: str, job_dir: Path | str, *words: str) -> str:
    """A command on a job's directory, to be typed."""
    return sanitize(shlex.join(["quarterdeck", "bench", name, *words, str(job_dir)]), limit=4000)


def plan_of_rest(job_dir: Path, rules: str = "") -> Plan | None:
    """What a mop-up would run now; None where none is possible: a process is at work, or there is no job yet."""
    from console.bench.mop_up.choice import Wish
    from console.bench.mop_up.plan import make_plan
    from console.bench.rules.user import load_rules

    with contextlib.suppress(UsageError):
        return make_plan([job_dir], Wish(), rules=load_rules(Path(rules)) if rules else None)
    return None


def say_what_is_left(job_dir: Path, rules: str = "") -> None:
    """On standard error, when a run has ended: what stands without a usable grade, and the command that runs it."""
    plan = plan_of_rest(job_dir, rules)
    said = "" if plan is None else left_text(plan, job_dir, rules)
    if said:
        with contextlib.suppress(OSError):  # the terminal may be gone
            sys.stderr.write(f"quarterdeck: {said}\n")
            sys.stderr.flush()


def left_text(plan: Plan, job_dir: Path, rules: str = "") -> str:
    """One line; "" when every attempt says something of the agent. rules: the file that the plan was made by."""
    words = ("--rules", rules) if rules else ()
    chosen, other = plan.choice.chosen, [one for one in plan.choice.left if one.outcome not in VALID]
    number = len(chosen) + len(other) + plan.lost
    if not number:
        return ""
    of = plan.choice.standing + len(chosen) + len(plan.choice.left) + plan.lost
    nowhere = [f"{plan.lost} of which nothing is on disk"] if plan.lost else []
    kinds = ", ".join([*_kinds([*chosen, *other]), *nowhere])
    said = (
        f"{number} of {counted(of, 'attempt')} without a usable grade ({kinds}): {command('mop-up', job_dir, *words)}"
    )
    if not chosen:
        return f"{said} --dry-run says what they would take"
    return f"{said} runs {'it' if number == 1 else 'them' if number == len(chosen) else f'{len(chosen)} of them'} again"


def kept_lines(plan: Plan, prediction: Prediction, width: int) -> Iterator[str]:
    """Of a job that goes on: trials that are kept although they have no usable grade, and what would run them again."""
    exceptions = {each.name: each.exception for each in prediction.kept}
    job = Path(prediction.job_dir)
    stay = [one for one in plan.choice.chosen if one.trial and Path(one.trial).name in exceptions]
    stay = [one for one in stay if Path(one.trial).parent == job.resolve() or Path(one.trial).parent == job]
    if not stay:
        return
    names = [Path(one.trial).name for one in stay]
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    types = sorted({exceptions[name] for name in names} - {""})
    said = (
        f"{counted(len(stay), 'trial')} without a usable grade ({', '.join(_kinds(stay))}), which --continue does not "
    )
    said += f"run again: {', '.join(names[:_NAMED])}{more}. Afterwards: {command('mop-up', job)}"
    if types:
        words = " ".join(f"-f {shlex.quote(name)}" for name in types)
        said += f". In its place: harbor job resume -p {shlex.quote(str(job))} {words}, which deletes them first"
    yield from paragraph(said, width, f"{'stay':<9}")


def mopped_lines(prediction: Prediction) -> tuple[list[str], int]:
    """A line that names mop-ups of a job that is to go on, and how many of the trials to run they have run already.

    None where there are no mop-ups of it.
    """
    from console.bench.mop_up.family import family_of

    job = Path(prediction.job_dir).resolve()
    try:
        family = family_of(job)
    except UsageError:
        return [], 0
    own = next((each.lineage.number for each in family.mop_ups if each.path == job), 0)
    later = [each for each in family.mop_ups if each.begun and each.path != job and each.lineage.number > own]
    if not later:
        return [], 0
    wanted: Counter[str] = Counter()
    for planned in prediction.runs:
        wanted[_short(planned.task)] += planned.trials
    ran: Counter[str] = Counter()
    for each in later:
        for task in each.lineage.tasks:
            ran[_short(task)] += each.lineage.attempts.get(task, 1)
    twice = (wanted & ran).total()
    names = ", ".join(each.path.name for each in later[:_NAMED])
    names += f" and {len(later) - _NAMED} more" if len(later) > _NAMED else ""
    return [
        f"mop-ups of it: {names}; they have run {twice} of the {prediction.to_run} that --continue would run"
    ], twice


def told_before(prediction: Prediction, rules: str = "") -> list[str]:
    """What stays ungraded in a job that goes on, as lines for standard error."""
    plan = plan_of_rest(Path(prediction.job_dir), rules)
    return [] if plan is None else list(kept_lines(plan, prediction, columns()))


def _kinds(attempts: Sequence[Attempt]) -> list[str]:
    return [f"{number} {kind}" for kind, number in Counter(one.kind for one in attempts).most_common()]


def _short(task: str) -> str:
    return task.rsplit("/", 1)[-1]
