"""Several job directories as one set of attempts, one try of each chosen by a named rule.

Trials belong together by agent, model, dataset, short task name and checksum. What differs in agent, model or dataset
stays apart. Within a job Harbor's repeats are attempts of their own, told apart by when they began; trials of a later
job are further tries, placed as `TaskAttempts.place` says. A mop-up job comes after its parent and adds no attempt to
its plan; other jobs are ordered by their first trial. Nothing on disk is touched.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable

import msgspec

from console.bench.attempts import RULES, VALID, Attempt, TaskAttempts, choose, tied
from console.bench.lineage import Lineage, LineageError, Meant, parent_of, read_lineage
from console.bench.rows import Identity, Notice, Row, counted, notice
from console.bench.settings import differences
from console.errors import UsageError
from console.records.harbor.model import JobRecord

DEFAULT = "latest-valid"
_NOBODY = Identity("", "", "")


class MergedGroup(msgspec.Struct, kw_only=True):
    """All trials of one agent, model and dataset.

    Attributes:
        group: which; jobs: directories, in the order in which they were merged.
        rows: the chosen try of each attempt, ordered by task and attempt.
        tries: every try, chosen or not, in the order of the input; copies are left out.
        planned: attempts that were meant to be, None when a plan is not on disk; missing: those of which nothing is.
        replaced: tries that a chosen one stands before; again: attempts that were tried again although they had a
            valid try; copies: directories that repeat another.
        notices: what a reader of the figures must know.
    """

    group: Identity
    jobs: tuple[str, ...] = ()
    rows: list[Row] = []
    tries: list[Row] = []
    planned: int | None = None
    missing: int = 0
    replaced: int = 0
    again: int = 0
    copies: int = 0
    notices: list[Notice] = []


class Merged(msgspec.Struct, kw_only=True):
    """`rows` are all rows in the order of the input, with their attempt, try and whether they were chosen."""

    rule: str
    rows: list[Row]
    groups: list[MergedGroup]
    notices: list[Notice]


def merge(rows: Iterable[Row], jobs: Iterable[JobRecord] = (), rule: str = DEFAULT) -> Merged:
    """Numbers the rows' attempts and tries and chooses, changing the rows in place.

    Args:
        rows: of all jobs, in any order.
        jobs: their job directories, for plans, lineage and order; one that is not given is merged without them.
        rule: one of `attempts.RULES`.

    Raises:
        UsageError: no such rule.
    """
    if rule not in RULES:
        raise UsageError(f"unknown merge rule {rule!r}: use one of {', '.join(RULES)}")
    rows = list(rows)
    records = {str(job.path): job for job in jobs}
    notices = _settle_groups(rows)
    for name, record in records.items():
        if record.running:
            notices.append(Notice(code="merge.running", text=f"job {name} is still running: its figures will change"))
    lineages, faults = _lineages({*records, *(row.job for row in rows)})
    by_group: dict[Identity, list[Row]] = defaultdict(list)
    for row in rows:
        by_group[row.group].append(row)
    plans = _plans(records, rows)
    notices += _silent_agents(records, rows)
    groups = [_Merger(group, by_group[group], records, lineages, plans, rule).merged() for group in sorted(by_group)]
    if len(groups) > 1:
        names = "; ".join(" · ".join((g.agent or "?", g.model or "?", g.dataset or "?")) for g in sorted(by_group)[:4])
        more = "" if len(groups) <= 4 else f"; and {len(groups) - 4} more"
        said = f"{len(groups)} different agents, models or datasets, never merged with each other: {names}{more}"
        notices.append(Notice(code="merge.groups", text=said))
    return Merged(rule=rule, rows=rows, groups=groups, notices=[*faults, *notices])


def _settle_groups(rows: list[Row]) -> list[Notice]:
    """A trial that tells nothing of what it measured belongs to its job's only identity, where there is just one."""
    known: dict[str, set[Identity]] = defaultdict(set)
    for row in rows:
        if row.group != _NOBODY:
            known[row.job].add(row.group)
    settled = []
    for row in rows:
        if row.group == _NOBODY and len(known[row.job]) == 1:
            (row.group,) = known[row.job]
            settled.append(row)
    if not settled:
        return []
    said = f"{counted(len(settled), 'trial')} without a readable agent and model: taken as the only ones of the job"
    return [notice("merge.settled", said, settled)]


def _lineages(names: Iterable[str]) -> tuple[dict[str, Lineage], list[Notice]]:
    found: dict[str, Lineage] = {}
    faults = []
    for name in sorted(names):
        lineage = read_lineage(name)
        if isinstance(lineage, LineageError):
            faults.append(Notice(code="merge.lineage", text=lineage.text))
        elif lineage is not None:
            found[name] = lineage
    return found, faults


def _plans(records: dict[str, JobRecord], rows: list[Row]) -> dict[tuple[str, Identity], int]:
    """How many trials each job meant for each identity. Harbor runs every agent on every task, so that the plan of a
    job of several agents on one dataset is split evenly; what cannot be told is left out."""
    groups: dict[str, dict[Identity, None]] = defaultdict(dict)
    for row in rows:
        groups[row.job][row.group] = None
    plans = {}
    for name, found in groups.items():
        planned = records[name].planned if name in records else None
        if planned is None:
            continue
        agents = records[name].config.get("agents")
        shares = max(len(found), len(agents) if isinstance(agents, list) else 1)
        if shares > 1 and (len({group.dataset for group in found}) > 1 or planned % shares):
            continue
        plans.update({(name, group): planned // shares for group in found})
    return plans


def _silent_agents(records: dict[str, JobRecord], rows: list[Row]) -> list[Notice]:
    """Agents that a job planned and of which nothing is on disk: no group shows that they are missing."""
    seen: dict[str, set[tuple[str, str]]] = defaultdict(set)
    for row in rows:
        seen[row.job].add((row.group.agent, row.group.model))
    notices = []
    for name, found in seen.items():
        agents = records[name].config.get("agents") if name in records else None
        planned = {
            (str(agent.get("name") or agent.get("import_path")), str(agent.get("model_name")))
            for agent in (agents if isinstance(agents, list) else ())
            if isinstance(agent, dict)
        }
        silent = len(planned) - len(found)
        if silent > 0:
            said = f"{counted(silent, 'agent')} of the {len(planned)} of job {name} left nothing on disk: no figure"
            notices.append(
                Notice(code="merge.agents", text=f"{said} shows what is missing of {'it' if silent == 1 else 'them'}")
            )
    return notices


class _Merger:
    """One identity's trials on their way into attempts."""

    def __init__(
        self,
        group: Identity,
        rows: list[Row],
        records: dict[str, JobRecord],
        lineages: dict[str, Lineage],
        plans: dict[tuple[str, Identity], int],
        rule: str,
    ) -> None:
        self._group, self._records, self._lineages, self._plans, self._rule = group, records, lineages, plans, rule
        self._notices: list[Notice] = []
        self._tries, self._copies = self._without_copies(rows)
        self._tasks: dict[tuple[str, str, str], TaskAttempts] = {}
        self._first: dict[str, str] = {}
        self._again: list[Attempt] = []
        self._surplus: list[Row] = []
        self._missing, self._filled, self._plan_known = 0, 0, True

    def merged(self) -> MergedGroup:
        self._settle_checksums()
        by_job: dict[str, list[Row]] = defaultdict(list)
        for row in self._tries:
            by_job[row.job].append(row)
        families: dict[str, str] = {}
        jobs = self._ordered(by_job)
        for job in jobs:
            self._take(job, by_job[job], families)
        chosen = self._choose()
        self._tell_surplus()
        self._notices.extend(differences(chosen))
        missing = max(0, self._missing - self._filled)
        return MergedGroup(
            group=self._group,
            jobs=tuple(jobs),
            rows=chosen,
            tries=self._tries,
            planned=len(chosen) + missing if self._plan_known else None,
            missing=missing,
            replaced=len(self._tries) - len(chosen),
            again=len({id(attempt) for attempt in self._again}),
            copies=len(self._copies),
            notices=self._notices,
        )

    def _without_copies(self, rows: list[Row]) -> tuple[list[Row], list[Row]]:
        """Harbor's trial names end in a random part: one name, task and pair of times in two directories is a copy."""
        seen: set[tuple[str, str, float, float | None]] = set()
        kept: list[Row] = []
        copies: list[Row] = []
        for row in rows:
            key = None if row.began is None else (row.name, row.task, row.began, row.ended)
            (copies if key in seen else kept).append(row)
            if key is not None:
                seen.add(key)
        if copies:
            said = f"{counted(len(copies), 'directory')} that repeats another trial counted once"
            if len(copies) > 1:
                said = f"{len(copies)} directories that repeat other trials counted once"
            self._notices.append(notice("merge.copies", said, copies))
        return kept, copies

    def _settle_checksums(self) -> None:
        """A try without a checksum takes the only one of its task; a task with several is several tasks, told."""
        known: dict[str, Counter[str]] = defaultdict(Counter)
        own: dict[tuple[str, str], set[str]] = defaultdict(set)
        for row in self._tries:
            if row.checksum:
                known[row.task][row.checksum] += 1
                own[row.job, row.task].add(row.checksum)
        for row in self._tries:
            candidates = own[row.job, row.task] or known[row.task].keys()
            if not row.checksum and len(candidates) == 1:
                row.checksum = next(iter(candidates))
        several = {task: sums for task, sums in known.items() if len(sums) > 1 and task}
        if not several:
            return
        task, sums = next(iter(several.items()))
        said = ", ".join(f"{_short(name)} ({counted(number, 'trial')})" for name, number in sums.most_common(4))
        concerned = [row for row in self._tries if row.task in several]
        self._notices.append(
            notice(
                "differs.checksum",
                f"{counted(len(several), 'task')} with several checksums, each version counted as a task of its own, "
                f"e.g. {task}: {said}; run them from one version of the dataset",
                concerned,
            )
        )
        for row in concerned:
            if row.checksum:
                row.task = f"{row.task}@{_short(row.checksum)}"

    def _ordered(self, by_job: dict[str, list[Row]]) -> list[str]:
        """Jobs by their first trial's begin, then the job's own, then by name; none before its parent."""

        def begin(job: str) -> tuple[float, str]:
            times = [row.began for row in by_job[job] if row.began is not None]
            record = self._records.get(job)
            own = record.began if record is not None else None
            return min(times, default=math.inf if own is None else own), job

        waiting = sorted(by_job, key=begin)
        parents = {job: self._parent(job, by_job) for job in waiting}
        ordered: list[str] = []
        while waiting:
            ready = next((job for job in waiting if parents[job] is None or parents[job] in ordered), None)
            if ready is None:
                said = f"the lineage of {waiting[0]} names jobs in a circle: ordered by time instead"
                self._notices.append(Notice(code="merge.lineage", text=said))
                ready = waiting[0]
            waiting.remove(ready)
            ordered.append(ready)
        return ordered

    def _parent(self, job: str, by_job: dict[str, list[Row]]) -> str | None:
        lineage = self._lineages.get(job)
        return parent_of(lineage, [other for other in by_job if other != job]) if lineage else None

    def _take(self, job: str, rows: list[Row], families: dict[str, str]) -> None:
        """Places a job's trials. A job is a root when its attempts are its own: the first of its tasks, or a repeat."""
        lineage, record = self._lineages.get(job), self._records.get(job)
        parent = self._parent(job, dict.fromkeys(families, rows))
        family = "" if self._rule != "repeats" else families.get(parent or "", job)
        families[job] = family
        self._first[job] = self._first.get(parent or "", job)
        by_task: dict[tuple[str, str], list[Row]] = defaultdict(list)
        for row in rows:  # a trial of which no file tells the task is merged with nothing
            by_task[(row.task, row.checksum) if row.task else ("", row.path)].append(row)
        shared = [row for key, found in by_task.items() if (family, *key) in self._tasks for row in found]
        root = not shared and not (lineage and parent)
        if lineage and not parent:
            said = f"job {job} is a mop-up of {lineage.parent.path}, which is not among the directories given"
            self._notices.append(Notice(code="merge.orphan", text=f"{said}: give that one too"))
        elif shared and not lineage:
            said = (
                f"job {job} has no lineage file: {counted(len(shared), 'trial')} taken as later tries of attempts of "
                "earlier jobs; where jobs are repeats on purpose, merge by the rule `repeats`"
            )
            self._notices.append(notice("merge.inferred", said, shared))
        attempts = record.attempts if record is not None else None
        first = self._records.get(self._first[job]) if lineage and parent else None
        most = first.attempts if first is not None else None
        meant = Meant(lineage) if lineage is not None else None
        opened = 0
        for key, found in by_task.items():
            planned = meant.attempts(key[0], attempts) if meant else attempts
            chosen = meant.chosen(key[0]) if meant else ()
            place = self._tasks.setdefault((family, *key), TaskAttempts())
            if not key[0]:
                placed = place.place(found, None, None)
            else:
                placed = place.place(found, planned, attempts if root else None, most, chosen)
            opened += placed.opened
            self._again.extend(placed.again)
            self._surplus.extend(placed.surplus)
        if root:
            planned_here = self._plans.get((job, self._group))
            self._plan_known = self._plan_known and planned_here is not None
            self._missing += max(0, (planned_here or 0) - opened)
        else:
            self._filled += opened

    def _tell_surplus(self) -> None:
        if self._surplus:
            said = f"{counted(len(self._surplus), 'trial')} more than their job plans of a task, counted as attempts"
            self._notices.append(notice("merge.surplus", said, self._surplus))

    def _choose(self) -> list[Row]:
        rule = "latest-valid" if self._rule == "repeats" else self._rule
        chosen: list[Row] = []
        ties, unsure = [], []
        numbers: Counter[tuple[str, str]] = Counter()
        for (_, task, checksum), place in sorted(self._tasks.items(), key=lambda item: item[0][1:]):
            for attempt in place.attempts:
                numbers[task, checksum] += 1
                best = choose(attempt.tries, rule)
                for number, row in enumerate(attempt.tries, 1):
                    row.attempt, row.try_, row.chosen = numbers[task, checksum], number, row is best
                chosen.append(best)
                if len(attempt.tries) > 1 and tied(attempt.tries, best):
                    ties.append(best)
                if len(attempt.tries) > 1 and not all(row.ended_surely for row in attempt.tries):
                    unsure.append(best)
        if ties:
            said = f"{counted(len(ties), 'attempt')} with tries that ended at the same time: the later job's was taken"
            self._notices.append(notice("merge.tie", said, ties))
        if unsure:
            said = f"{counted(len(unsure), 'attempt')} with a try whose end no result tells: that try ranks last"
            self._notices.append(notice("merge.unsure_end", said, unsure))
        self._tell_again(rule)
        return chosen

    def _tell_again(self, rule: str) -> None:
        """Graded attempts that were run again: how many, and what became of their reward."""
        attempts = list({id(attempt): attempt for attempt in self._again}.values())
        if not attempts:
            return
        fates: Counter[str] = Counter()
        lost = []
        for attempt in attempts:
            first = next(row for row in attempt.tries if row.outcome in VALID)
            best = choose(attempt.tries, rule)
            if best.outcome not in VALID:
                lost.append(best)
                fates["lost its grade to a later failure"] += 1
            else:
                before, after = first.reward or 0.0, best.reward or 0.0
                fates["kept its reward" if after == before else "gained" if after > before else "fell"] += 1
        said = ", ".join(f"{number} {fate}" for fate, number in fates.most_common())
        taken = "no later try was taken" if rule == "first-graded" else "re-runs of graded attempts bias a figure"
        remedy = "" if rule == "first-graded" else "; the rule `first-graded` takes none of them"
        self._notices.append(
            notice(
                "merge.again",
                f"{counted(len(attempts), 'attempt')} run again although graded ({said}): {taken}{remedy}",
                [choose(attempt.tries, rule) for attempt in attempts],
            )
        )
        if lost:
            said = f"{counted(len(lost), 'graded result')} replaced by a later failure that says nothing of the agent"
            self._notices.append(notice("merge.lost", f"{said}; use the rule `latest-valid`", lost))


def _short(checksum: str) -> str:
    return checksum.rsplit(":", 1)[-1][:8]
