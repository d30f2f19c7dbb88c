"""What only shows when all trials of a job are seen together: a whole job that fails one way, a crowded one, a bad key.

`Detectors` takes verdicts in any order, one at a time, and keeps a row of each; `findings` may be asked at any time, so
that a running job is watched by the same rules as one that has ended.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from console.bench.advice import ADVICE, concurrency_advice
from console.bench.model import Judged
from console.bench.notes import IDLE_SECONDS, IDLE_SLACK
from console.outcomes.classes import SCORED, OutcomeClass
from console.outcomes.text import exit_code
from console.records.harbor.model import JobRecord

EARLY = 600.0
"""Seconds from a job's first trial within which a common failure is the job's own."""

WINDOW, INFRA_SHARE = 20, 0.25
"""Trials in a row of which this share failed for infrastructure's sake: too many at a time."""

SAME_SHARE, FEWEST_SAME = 0.5, 4
FEWEST_KEYS = 3
FEWEST_IDLE = 3
FEWEST_FAULTS, FAULT_SHARE = 5, 0.25
FEWEST_CLUSTER, CLUSTER_SHARE, CLUSTER_WIDTH, SHORTEST_CLUSTER = 5, 0.2, 4.0, 30.0
"""Failures of one duration: how many, which share of a job's failures, within how many seconds, from which length."""

NAMED = 10
"""Trials and tasks that a finding names."""

_CROWDED = frozenset({"sandbox", "api", "network"})
_SILENT = frozenset({OutcomeClass.CANCELLED, OutcomeClass.UNREADABLE})
_UNTIMED = _SILENT | {OutcomeClass.BAD_REWARD}
_VARIABLE = re.compile(r"\b(?:0x)?[0-9a-f]*\d[0-9a-f]*\b|\d+", re.IGNORECASE)


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """Something about a job, or a task, as a whole.

    Attributes:
        code: name of the detector; job: its directory, None for a finding across jobs.
        text: what was seen, with its figures; consequence: what it means for the result; remedy: what to do.
        trials: directories of the trials that it rests on, at most `NAMED`; count: how many there are.
    """

    code: str
    job: Path | None
    text: str
    consequence: str
    remedy: str
    trials: tuple[Path, ...]
    count: int


class _Seen(NamedTuple):
    path: Path
    task: str
    began: float | None
    ended: float | None
    seconds: float | None
    outcome: OutcomeClass
    cause: str
    rule: str
    alike: str
    """What is the same in failures that are the same."""
    said: str

    @property
    def scored(self) -> bool:
        return self.outcome in SCORED

    @property
    def crowded(self) -> bool:
        return self.outcome is OutcomeClass.INFRASTRUCTURE and self.cause in _CROWDED


class Detectors:
    """Takes verdicts, and says what they have in common. Memory is one row a trial, equal texts stored once."""

    def __init__(self, jobs: Iterable[JobRecord] = ()) -> None:
        """`jobs`: as far as they are known; they tell how many trials ran at a time."""
        self._jobs = {job.path: job for job in jobs}
        self._seen: dict[Path, list[_Seen]] = defaultdict(list)
        self._texts: dict[str, str] = {}

    def add(self, judged: Judged) -> None:
        """One more verdict."""
        trial = judged.trial
        failed = judged.outcome not in SCORED
        said = judged.evidence.text if failed else ""
        self._seen[trial.job].append(
            _Seen(
                path=trial.path,
                task=self._text(trial.short_task),
                began=trial.began,
                ended=trial.ended,
                seconds=trial.phases["agent"].seconds if "agent" in trial.phases else None,
                outcome=judged.outcome,
                cause=self._text(judged.cause),
                rule=self._text(judged.rule),
                alike=self._text(alike(judged)) if failed else "",
                said=self._text(said),
            )
        )

    def _text(self, text: str) -> str:
        return self._texts.setdefault(text, text)

    def findings(self) -> list[Finding]:
        """All of them: those of each job, worst first, then those of single tasks."""
        found: list[Finding] = []
        common: set[str] = set()
        for path, seen in self._seen.items():
            job = self._jobs.get(path) or JobRecord(path=path, name=path.name)
            of_job = _of_job(job, seen)
            found += [finding for finding, _ in of_job]
            common |= {alike for _, alike in of_job if alike}
        everything = [(path, row) for path, seen in self._seen.items() for row in seen]
        return found + _of_tasks(everything, common)


def detect(judged: Iterable[Judged], jobs: Iterable[JobRecord] = ()) -> list[Finding]:
    """The findings of a whole stream."""
    detectors = Detectors(jobs)
    for verdict in judged:
        detectors.add(verdict)
    return detectors.findings()


def alike(judged: Judged) -> str:
    """Class, cause and text of a failure without what differs from trial to trial: numbers, names of trial and task.

    An exit code tells failures apart.
    """
    text = judged.evidence.text
    for name in (judged.trial.name, judged.trial.short_task):
        text = text.replace(name, "*") if len(name) > 3 else text
    code = exit_code(text)
    ended = "" if code is None else f" exit {code}"
    return f"{judged.outcome}/{judged.cause}{ended}: {_VARIABLE.sub('#', text)[:160]}"


def _of_job(job: JobRecord, seen: Sequence[_Seen]) -> list[tuple[Finding, str]]:
    """Findings with the failure that each explains, "" for none."""
    keys = _refused_keys(job, seen)
    same = _same_failure(job, seen)
    explained = {alike for _, alike in keys}
    found = keys + [one for one in same if one[1] not in explained]
    for detector in (_crowded, _idle, _verifiers, _one_duration):
        finding = detector(job, seen)
        if finding is not None:
            found.append((finding, ""))
    return found


def _finding(
    code: str, job: JobRecord | None, text: str, rows: Sequence[_Seen], rule: str = "", **more: str
) -> Finding:
    advice = ADVICE.get(f"{code}:{rule}") or ADVICE[code]
    where = f"{job.name}: " if job is not None else ""
    return Finding(
        code=code,
        job=job.path if job is not None else None,
        text=where + text,
        consequence=advice.consequence,
        remedy=more.get("remedy") or advice.remedy,
        trials=tuple(row.path for row in rows[:NAMED]),
        count=len(rows),
    )


def _same_failure(job: JobRecord, seen: Sequence[_Seen]) -> list[tuple[Finding, str]]:
    start = min((row.began for row in seen if row.began is not None), default=None)
    if start is None:
        return []
    early = [row for row in seen if row.ended is not None and row.ended <= start + EARLY]
    kinds = Counter(row.alike for row in early if row.alike and row.outcome not in _SILENT)
    for alike, count in kinds.most_common(1):
        if count >= FEWEST_SAME and count >= SAME_SHARE * len(early):
            rows = [row for row in seen if row.alike == alike]
            text = (
                f"{count} of the {len(early)} trials that ended within the first {EARLY / 60:.0f} minutes failed the "
                f"same way, {rows[0].outcome}/{rows[0].cause}: {rows[0].said}"
            )
            return [(_finding("same_failure", job, text, rows, rows[0].rule), alike)]
    return []


def _refused_keys(job: JobRecord, seen: Sequence[_Seen]) -> list[tuple[Finding, str]]:
    found = []
    for cause, code in (("key", "credentials"), ("quota", "quota")):
        rows = [row for row in seen if row.outcome is OutcomeClass.CONFIGURATION and row.cause == cause]
        if len(rows) < FEWEST_KEYS and not (rows and len(rows) == len(seen) > 1):
            continue
        first = min((row.began for row in rows if row.began is not None), default=None)
        good = [row for row in seen if row.scored and row.began is not None and first is not None and row.began < first]
        since = f", after {len(good)} trials that went well" if good else ""
        text = f"{len(rows)} of {len(seen)} trials were refused{since}: {rows[0].said}"
        kinds = Counter(row.alike for row in rows)
        found.append((_finding(code, job, text, rows), kinds.most_common(1)[0][0]))
    return found


def _crowded(job: JobRecord, seen: Sequence[_Seen]) -> Finding | None:
    ordered = sorted((row for row in seen if row.ended is not None), key=lambda row: row.ended or 0.0)
    if len(ordered) < WINDOW:
        return None
    count = worst = sum(row.crowded for row in ordered[:WINDOW])
    at = 0
    for end in range(WINDOW, len(ordered)):
        count += ordered[end].crowded - ordered[end - WINDOW].crowded
        if count > worst:
            worst, at = count, end - WINDOW + 1
    if worst < INFRA_SHARE * WINDOW:
        return None
    rows = [row for row in ordered[at : at + WINDOW] if row.crowded]
    total = sum(row.crowded for row in seen)
    causes = ", ".join(f"{cause} {number}" for cause, number in Counter(row.cause for row in rows).most_common())
    text = (
        f"{worst} of {WINDOW} trials in a row failed for infrastructure's sake ({causes}); "
        f"{total} of {len(seen)} in the whole job"
    )
    return _finding("infra_rate", job, text, rows, remedy=concurrency_advice(job.concurrent))


def _idle(job: JobRecord, seen: Sequence[_Seen]) -> Finding | None:
    rows = [row for row in seen if row.rule == "bench.idle_killed" or (row.crowded and _near_idle(row))]
    if len(rows) < FEWEST_IDLE:
        return None
    told = sum(row.rule == "bench.idle_killed" for row in rows)
    text = f"{len(rows)} sandboxes went away after {IDLE_SECONDS:.0f} ± {IDLE_SLACK:.0f} s of the agent's time" + (
        f"; {told} of their logs say that they were idle" if told else ""
    )
    return _finding("idle_timeout", job, text, rows)


def _near_idle(row: _Seen) -> bool:
    return row.seconds is not None and abs(row.seconds - IDLE_SECONDS) <= IDLE_SLACK


def _verifiers(job: JobRecord, seen: Sequence[_Seen]) -> Finding | None:
    rows = [row for row in seen if row.cause == "verifier_fault"]
    judged = sum(row.scored for row in seen) + len(rows)
    tasks = len({row.task for row in rows})
    if len(rows) < FEWEST_FAULTS or len(rows) < FAULT_SHARE * judged or tasks < 2:
        return None
    text = f"the verifier could not do its work in {len(rows)} of {judged} trials, of {tasks} tasks: {rows[0].said}"
    return _finding("verifier_faults", job, text, rows)


def _one_duration(job: JobRecord, seen: Sequence[_Seen]) -> Finding | None:
    """Failures that all took the same time have a clock for their reason, whatever they are called.

    Agents whose verifier failed ended by themselves.
    """
    failed = [row for row in seen if not row.scored and row.outcome not in _UNTIMED]
    timed = [
        row for row in failed if row.seconds is not None and row.seconds >= SHORTEST_CLUSTER and not _near_idle(row)
    ]
    timed.sort(key=lambda row: row.seconds or 0.0)
    best: Sequence[_Seen] = ()
    low = 0
    for high, row in enumerate(timed):
        while (row.seconds or 0.0) - (timed[low].seconds or 0.0) > CLUSTER_WIDTH:
            low += 1
        if high + 1 - low > len(best):
            best = timed[low : high + 1]
    if len(best) < FEWEST_CLUSTER or len(best) < CLUSTER_SHARE * len(failed):
        return None
    middle = best[len(best) // 2]
    text = f"{len(best)} of {len(failed)} failed trials ended after {middle.seconds:.0f} ± 2 s of the agent's time"
    return _finding("one_duration", job, text, best)


def _of_tasks(everything: Sequence[tuple[Path, _Seen]], common: set[str]) -> list[Finding]:
    tasks: dict[str, list[tuple[Path, _Seen]]] = defaultdict(list)
    for path, row in everything:
        if row.task and row.outcome not in _SILENT:
            tasks[row.task].append((path, row))
    unscorable: dict[str, list[_Seen]] = {}
    failing: dict[str, list[_Seen]] = {}
    for task, entries in tasks.items():
        rows = [row for _, row in entries]
        if len(rows) < 2 or any(row.scored for row in rows):
            continue
        unjudged = [row for row in rows if row.outcome is OutcomeClass.BAD_REWARD]
        kinds = {row.alike for row in rows}
        if len(unjudged) >= 2:
            unscorable[task] = unjudged
        elif len(kinds) == 1 and not kinds & common:
            failing[task] = rows
    found = []
    if unscorable:
        rows = [row for some in unscorable.values() for row in some]
        text = f"no attempt's verifier could score {_named(unscorable)}; e.g. {rows[0].task}: {rows[0].said}"
        found.append(_finding("unscorable", None, text, rows))
    if failing:
        rows = [row for some in failing.values() for row in some]
        text = f"all attempts failed identically of {_named(failing)}; e.g. {rows[0].task}: {rows[0].said}"
        found.append(_finding("deterministic", None, text, rows))
    return found


def _named(tasks: dict[str, list[_Seen]]) -> str:
    names = [f"{task} ({len(rows)})" for task, rows in sorted(tasks.items())]
    more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    return f"{len(names)} task{'s' if len(names) > 1 else ''}: {', '.join(names[:NAMED])}{more}"
