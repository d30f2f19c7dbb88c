"""Job directories as the screens see them: every trial as a compact entry, merged, with the findings. Pure but for
reading; meant for a thread."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from console.bench.detectors import Detectors, Finding
from console.bench.merge import DEFAULT, Merged, merge
from console.bench.model import Evidence, Judged
from console.bench.rows import Row, read_rows
from console.bench.rules.user import UserRules
from console.bench.session import Session
from console.records.harbor.model import JobRecord

type Heard = Callable[[int, Path], object]


class Stopped(Exception):
    """Nobody waits for what is being read any more."""


class Seen(msgspec.Struct, gc=False):
    """One trial: its row, and what decided. Its texts and phases are read again when somebody looks at it.

    Attributes:
        row: numbered by merging; whole: the task's name with its organisation; rule, evidence, confidence, notes: of
            the verdict.
    """

    row: Row
    whole: str
    rule: str
    evidence: Evidence
    confidence: str
    notes: dict[str, str]

    @property
    def path(self) -> str:
        """Its directory, by which it is known."""
        return self.row.path

    @property
    def task(self) -> str:
        """The task's short name as recorded, the trial's where no file tells it."""
        return self.row.task.partition("@")[0] or self.row.name


@dataclass(frozen=True)
class Wanted:
    """What to read: paths of one run, and of the run to compare it with; `rules`: a user's own; `tasks`: globs."""

    paths: tuple[Path, ...]
    against: tuple[Path, ...] = ()
    rules: UserRules | None = None
    tasks: tuple[str, ...] = ()
    cache: bool = True


@dataclass(frozen=True)
class Side:
    """One run.

    Attributes:
        trials: all of them, job by job; jobs: their records; merged: with attempts and tries.
        findings: of its jobs as a whole, worst first; problems: what could not be read, a line each.
        counts: job directory to trials read of it.
    """

    trials: tuple[Seen, ...]
    jobs: tuple[JobRecord, ...]
    merged: Merged
    findings: tuple[Finding, ...]
    problems: tuple[str, ...]
    counts: dict[Path, int]


@dataclass(frozen=True)
class Survey:
    """Everything that was read: the run, and the one that it is compared with."""

    side: Side
    against: Side | None = None

    @property
    def sides(self) -> tuple[Side, ...]:
        """Both, or the one there is."""
        return (self.side,) if self.against is None else (self.side, self.against)

    @property
    def trials(self) -> Iterator[Seen]:
        """Those of both sides."""
        return (seen for side in self.sides for seen in side.trials)


class Reader:
    """Reads what is wanted, as often as it is asked to.

    Attributes:
        wanted: what that is; count: trials read so far in this pass, for progress.
    """

    def __init__(self, wanted: Wanted) -> None:
        """Raises UsageError: a path that does not exist, or without any trial below it."""
        self.wanted = wanted
        self.count = 0
        self._stop = threading.Event()
        self._sessions: list[Session] | None = self._open()

    def _open(self) -> list[Session]:
        wanted = self.wanted
        return [
            Session(paths, rules=wanted.rules, tasks=wanted.tasks, cache=wanted.cache, heard=self._heard)
            for paths in (wanted.paths, wanted.against)
            if paths
        ]

    def read(self) -> Survey:
        """All trials, from the cache where they have not changed.

        Raises:
            UsageError: what was there is gone. Stopped: `stop` was called meanwhile.
        """
        self.count = 0
        sessions, self._sessions = self._sessions or self._open(), None
        return Survey(*(read_side(session) for session in sessions))

    def stop(self) -> None:
        """End a reading that is under way, and every later one."""
        self._stop.set()

    def _heard(self, count: int, job: Path) -> None:
        self.count += 1
        if self._stop.is_set():
            raise Stopped


def read_side(session: Session) -> Side:
    """Everything of a session."""
    detectors = Detectors(session.jobs)
    verdicts: list[tuple[str, str, Evidence, str, dict[str, str]]] = []

    def kept(judged: Iterable[Judged]) -> Iterator[Judged]:
        for one in judged:
            detectors.add(one)
            verdicts.append((one.trial.task, one.rule, one.evidence, one.confidence.value, one.notes))
            yield one

    rows = read_rows(kept(session.judged()))
    return Side(
        trials=tuple(Seen(row, *verdict) for row, verdict in zip(rows, verdicts, strict=True)),
        jobs=tuple(session.jobs),
        merged=merge(rows, session.jobs, DEFAULT),
        findings=tuple(detectors.findings()),
        problems=tuple(session.problems),
        counts=dict(session.counts),
    )


def job_state(job: JobRecord, read: int) -> str:
    """`40 of 40 planned trials, finished`: as the text of triage has it."""
    state = "running now" if job.running else "finished" if job.finished else "not finished"
    trials = f"{read:,} trial{'' if read == 1 else 's'}"
    if job.planned is not None:
        trials = f"{read:,} of {job.planned:,} planned trial{'' if job.planned == 1 else 's'}"
    return f"{trials}, {state}"


def running(sides: Sequence[Side]) -> bool:
    """Whether a job of them still runs."""
    return any(job.running for side in sides for job in side.jobs)
