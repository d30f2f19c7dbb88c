"""What a mop-up will run: a job for each number of attempts, with exactly the tasks that were chosen."""

from __future__ import annotations

import os
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from console.bench.lineage import LineageError, read_lineage, trial_name
from console.bench.merge import merge
from console.bench.model import Judged
from console.bench.mop_up.changes import Asked, Change, change
from console.bench.mop_up.choice import MISSING, Attempt, Choice, Note, Wish, attempts_of, choose
from console.bench.mop_up.family import Family, family_of
from console.bench.mop_up.jobs import job_config
from console.bench.mop_up.lenient import adapted
from console.bench.mop_up.places import settle
from console.bench.mop_up.source import Source, TaskRef, read_source, same_agents
from console.bench.rows import Identity, read_rows
from console.bench.rules.user import UserRules
from console.bench.session import Heard, Session
from console.errors import UsageError
from console.records.harbor.discovery import is_run
from console.records.harbor.files import shown

type Live = Callable[[Path], bool]
"""Whether a run of ours is at work for a job directory."""


class PlannedJob(msgspec.Struct, frozen=True, kw_only=True):
    """One Harbor job of the mop-up.

    Attributes:
        path: directory that it will have, absolute; config: Harbor's configuration of it.
        number: of the pass, from 1; attempts: of each task; agents: numbers in the parent's configuration.
        tasks: as Harbor finds them; names: whole name of the task to its attempts, for the lineage; trials: in all.
        chosen: whole name of the task to a trial of each attempt that the job is for, as `Lineage.chosen` has them.
        forced: whole names of tasks whose graded attempts are run again.
    """

    path: Path
    config: dict[str, Any]
    number: int
    attempts: int
    agents: tuple[int, ...]
    tasks: tuple[TaskRef, ...]
    names: dict[str, int]
    trials: int
    chosen: dict[str, list[str]]
    forced: tuple[str, ...] = ()


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """A mop-up before anything is written.

    Attributes:
        family: the job and its mop-ups; others: directories that were named beside them.
        choice: attempts chosen and left out; jobs: to be run one after the other; changes: against the parent.
        notes: what is otherwise than in the parent, or not certain; problems: of reading, a line each.
        lost: planned attempts of which no file tells the task.
    """

    family: Family
    choice: Choice
    jobs: tuple[PlannedJob, ...] = ()
    changes: tuple[Change, ...] = ()
    others: tuple[Path, ...] = ()
    notes: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()
    lost: int = 0


def make_plan(
    dirs: Sequence[Path],
    wish: Wish,
    asked: Asked | None = None,
    *,
    rules: UserRules | None = None,
    dataset_path: Path | None = None,
    cache: bool = True,
    heard: Heard = lambda count, job: None,
    live: Live = lambda job: False,
) -> Plan:
    """Reads a job with its mop-ups, chooses, and makes the new jobs' configurations. Nothing is written.

    Args:
        dirs: the job, or one of its mop-ups; and jobs without lineage that repeat some of it.
        dataset_path: where the local dataset of the job is now.

    Raises:
        UsageError: the directories are not one run, one of them is at work, or the job cannot be repeated.
    """
    family, others = _named(dirs)
    for path in (family.root, *(each.path for each in family.mop_ups), *others):
        if live(path):
            raise UsageError(f"{shown(path)}: is at work now; wait for its end, or stop it: quarterdeck runs lists it")
    source = read_source(family.root)
    if same_agents(source):
        raise UsageError(
            f"{shown(family.root)}: two of its agents have one name and one model and differ only in options, so that "
            "the trials of a mop-up could not be told apart; run what is missing of each with quarterdeck bench run"
        )
    session = Session([*family.paths, *others], rules=rules, cache=cache, heard=heard)
    at_work = next((job for job in session.jobs if job.running), None)
    if at_work is not None:
        raise UsageError(f"{shown(at_work.path)}: Harbor is at work in it now; wait for its end")
    attempts, lost = _attempts(session, family, others, source)
    choice = choose(attempts, wish)
    plan = Plan(
        family=family,
        choice=choice,
        others=others,
        problems=(*family.problems, *session.problems),
        lost=lost,
    )
    return plan if not choice.chosen else _with_jobs(plan, source, asked or Asked(), dataset_path)


def _named(dirs: Sequence[Path]) -> tuple[Family, tuple[Path, ...]]:
    """The family of the first directory, and those of the others that are not of it. Raises UsageError."""
    family = family_of(dirs[0])
    known = {os.path.realpath(path) for path in (family.root, *(each.path for each in family.mop_ups))}
    others: dict[Path, None] = {}
    for path in dirs[1:]:
        if os.path.realpath(path) in known or (path.is_dir() and is_run(path)):
            continue  # a shell's pattern names the directories of runs, too, which lie beside their jobs
        if not isinstance(read_lineage(path), LineageError | None):
            raise UsageError(f"{shown(path)}: is the mop-up of another job than {shown(family.root)}")
        others[family_of(path).root] = None
    return family, tuple(others)


class _Noted:
    """Passes verdicts on, and keeps of each what a row leaves out."""

    def __init__(self) -> None:
        self.notes: list[Note] = []

    def kept(self, verdicts: Iterator[Judged]) -> Iterator[Judged]:
        for verdict in verdicts:
            evidence = verdict.evidence
            self.notes.append(Note(verdict.trial.task, verdict.rule, evidence.text, evidence.file))
            yield verdict


def _attempts(session: Session, family: Family, others: Sequence[Path], source: Source) -> tuple[list[Attempt], int]:
    """Every attempt of the run, those that left nothing on disk included, and how many of these nobody can name."""
    noted = _Noted()
    merged = merge(read_rows(noted.kept(session.judged())), session.jobs)
    _one_run(merged.rows, family, others)
    again = [*(str(each.path) for each in family.mop_ups), *(str(path) for path in others)]
    attempts = attempts_of(merged, noted.notes, again)
    missing = sum(group.missing for group in merged.groups)
    # An agent that left nothing has no group to be missing from.
    seen = {(group.group.agent, group.group.model) for group in merged.groups}
    found = _never_begun(attempts, source) if missing or len(seen) < len(source.agents) else []
    return [*attempts, *found], max(0, missing - len(found))


def _one_run(rows: Sequence[Any], family: Family, others: Sequence[Path]) -> None:
    """Raises UsageError where another directory measured something else than the job."""
    groups: dict[str, dict[Identity, None]] = defaultdict(dict)
    for row in rows:
        if row.group != Identity("", "", ""):
            groups[row.job][row.group] = None
    own = groups[str(family.root)]
    for path in others:
        for group in groups[str(path)]:
            if own and group not in own:
                said = " · ".join(part or "?" for part in (group.agent, group.model, group.dataset))
                raise UsageError(
                    f"{shown(path)}: ran {said}, which is not what {shown(family.root)} ran; results of different "
                    "agents, models or datasets are never merged"
                )


def _never_begun(attempts: Sequence[Attempt], source: Source) -> list[Attempt]:
    """Attempts that the job's lock plans and of which no try is on disk."""
    if source.planned is None:
        return []
    there: Counter[tuple[int, str]] = Counter()
    groups: dict[int, Identity] = {}
    for attempt in attempts:
        number = source.of_trial(Path(attempt.trial))[1] if len(source.agents) > 1 else 0
        there[number, attempt.short] += 1
        groups.setdefault(number, attempt.group)
    found = []
    for ref, short, number in source.planned:
        if there[number, short] > 0:
            there[number, short] -= 1
            continue
        group = groups.get(number, _told(source.agents[number], ref.source))
        name = ref.name or short
        found.append(Attempt(group=group, task=name, short=short, cause=MISSING, planned=ref, agent=number))
    return found


def _told(agent: Mapping[str, Any], dataset: str) -> Identity:
    name = agent.get("name") or agent.get("import_path") or ""
    return Identity(str(name), str(agent.get("model_name") or ""), dataset)


def _with_jobs(plan: Plan, source: Source, asked: Asked, dataset_path: Path | None) -> Plan:
    """The plan with the jobs that the chosen attempts need."""
    config, dropped = adapted(source.config)
    units: Counter[tuple[int, TaskRef]] = Counter()
    chosen: dict[tuple[int, TaskRef], list[Attempt]] = defaultdict(list)
    known: dict[TaskRef, TaskRef] = {}
    for attempt in plan.choice.chosen:
        agent, ref = _where(attempt, source)
        # One try may tell more of a task than another: its repository, and the commit.
        key = agent, known.setdefault(ref.bare, ref.plain)
        units[key] += 1
        chosen[key].append(attempt)
    moved = settle(config, plan.family.root, (ref.word for _, ref in units), dataset_path)
    changes = change(config, asked)
    by_number: dict[int, dict[int, set[TaskRef]]] = defaultdict(lambda: defaultdict(set))
    for (agent, task), number in units.items():
        by_number[number][agent].add(task)
    jobs: list[PlannedJob] = []
    names = _names(plan.family)
    for number in sorted(by_number, reverse=True):
        # Harbor runs each agent on each task: agents that need the same tasks share a job.
        together: dict[frozenset[TaskRef], list[int]] = defaultdict(list)
        for agent, refs in sorted(by_number[number].items()):
            together[frozenset(refs)].append(agent)
        for tasks, agents in together.items():
            listed = tuple(sorted(tasks, key=lambda ref: (ref.word, ref)))
            concerned = [attempt for agent in agents for ref in listed for attempt in chosen[agent, ref]]
            jobs.append(
                PlannedJob(
                    path=(path := next(names)),
                    config=job_config(config, path, listed, agents, number),
                    number=plan.family.passes + 1,
                    attempts=number,
                    agents=tuple(agents),
                    tasks=listed,
                    names={attempt.task: number for attempt in concerned},
                    trials=len(listed) * len(agents) * number,
                    chosen=_trials(concerned),
                    forced=tuple(sorted({attempt.task for attempt in concerned if attempt.forced})),
                )
            )
    return msgspec.structs.replace(plan, jobs=tuple(jobs), changes=changes, notes=(*dropped, *moved))


def _trials(attempts: Sequence[Attempt]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = defaultdict(list)
    for attempt in attempts:
        found[attempt.task].append(trial_name(attempt.trial))
    return dict(found)


def _where(attempt: Attempt, source: Source) -> tuple[int, TaskRef]:
    """Agent and task of a chosen attempt."""
    if attempt.planned is not None:
        return attempt.agent, attempt.planned
    ref, agent = source.of_trial(Path(attempt.trial))
    if ref is None:
        # A package's name is whole; of a task of a directory it may be another than the directory's.
        ref = next((one for one, short, _ in source.planned or () if short == attempt.short), None)
    if ref is None:
        whole = "/" in attempt.task
        ref = TaskRef(
            name=attempt.task if whole else "", path="" if whole else attempt.short, source=attempt.group.dataset
        )
    return agent, ref


def _names(family: Family) -> Iterator[Path]:
    """Directories for the jobs of the next pass, none of which is there."""
    stem = f"{family.root.name}-mop-up-{family.passes + 1}"
    part = 0
    while True:
        part += 1
        path = family.root.parent / (stem if part == 1 else f"{stem}-part-{part}")
        if not os.path.lexists(path) and not os.path.lexists(f"{path}.run"):
            yield path
