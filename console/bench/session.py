"""Job directories as triage sees them: paths and rules in, a stream of judged trials out, with the cache between."""

from __future__ import annotations

import fnmatch
import hashlib
import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import msgspec

from console.bench.agents import AgentNames
from console.bench.cache import JobCache, cache_dir, code_digest
from console.bench.looked import look, stats_digest
from console.bench.merge import merge
from console.bench.model import Judged
from console.bench.rows import read_rows
from console.bench.rules.user import UserRules
from console.bench.triage import judge
from console.outcomes.classes import OutcomeClass
from console.outcomes.types import CANCELLED
from console.records.harbor.discovery import find_jobs
from console.records.harbor.jobs import LINEAGE, read_job
from console.records.harbor.model import JobRecord, TrialRecord
from console.records.harbor.trials import read_trial

type Heard = Callable[[int, Path], object]
"""Told of each trial: how many were read so far, and the job's directory. For progress."""

SPOOL = 32 << 20
"""Bytes of verdicts that are held in memory before they go to a temporary file."""
_JOB_FILES = (b"config.json", b"lock.json")
"""Files of a job that its trials' records are read from, too."""
_ANSWER_FILES = (*_JOB_FILES, b"result.json", os.fsencode(LINEAGE))
"""Files of a job that an answer rests on beside its trials."""
_FILES = (_JOB_FILES, _ANSWER_FILES)


class Session:
    """The jobs below some paths.

    Attributes:
        jobs: their records; problems: what could not be read or was given twice, a line each.
        directory: where verdicts are kept, None for nowhere.
        counts: job directory to the number of trials that were read of it, in the last pass; cached: how many of them
            had a verdict already; decided: names of the user's rules that decided on any trial, wanted or not.
    """

    def __init__(
        self,
        paths: Sequence[Path],
        *,
        rules: UserRules | None = None,
        tasks: Sequence[str] = (),
        cache: bool = True,
        heard: Heard = lambda count, job: None,
    ) -> None:
        """`tasks`: globs of task names, with or without their organisation; none for all of them.

        Raises:
            UsageError: a path that does not exist, or without any trial below it.
        """
        self._found = find_jobs(paths)
        # Of before they are read: an answer must not be kept for a state that came after.
        self._states = {path: tuple(stats_digest(path, names) for names in _FILES) for path in self._found.jobs}
        self.jobs: list[JobRecord] = [read_job(path) for path in self._found.jobs]
        self.problems = [*self._found.problems, *(line for job in self.jobs for line in job.problems)]
        self.counts: dict[Path, int] = {}
        self.cached = 0
        self.decided: set[str] = set()
        self._passed: dict[Path, bytes] = {}
        self._rules, self._tasks, self._heard = rules, tuple(tasks), heard
        self.directory = cache_dir() if cache else None
        self._key = f"{code_digest()} {_named(rules)}" if self.directory else ""
        self._agents = AgentNames(self._found.jobs, self._with_result)

    def judged(self) -> Iterator[Judged]:
        """Every trial, job by job, those of a job by the names of their directories; `attempt` and `try_` are not
        filled in. Constant memory but for the names of a job's trials."""
        self.counts, self.cached, read = {}, 0, 0
        self._agents = AgentNames(self._found.jobs, self._with_result)
        for job in self.jobs:
            count = 0
            paths = self._paths(job)
            self._passed[job.path] = _names_digest(paths)
            with self._cache(job) as cache:
                for path in paths:
                    verdict = self._with_agent(self._verdict(cache, job, path))
                    if self._rules is not None:
                        self.decided |= _user_rules(verdict)
                    read += 1
                    self._heard(read, job.path)
                    if self._wanted(verdict.trial):
                        count += 1
                        yield verdict
            self.counts[job.path] = count

    def _verdict(self, cache: JobCache, job: JobRecord, path: Path) -> Judged:
        known = cache.get(path)
        if known is not None:
            self.cached += 1
            return known
        looked = look(path) if self.directory else None
        verdict = judge(read_trial(job.path, path), self._rules, job)
        cache.put(looked, verdict, of_job=_depends_on_job(verdict))
        return verdict

    def _with_agent(self, verdict: Judged) -> Judged:
        """The verdict with the agent's name as other trials tell it, which is never kept: these may change."""
        named = self._agents.named(verdict.trial)
        return verdict if named is verdict.trial else msgspec.structs.replace(verdict, trial=named)

    def _with_result(self, path: Path) -> Iterator[TrialRecord]:
        """The records of a job's trials that have a result, by the names of their directories."""
        job = next(job for job in self.jobs if job.path == path)
        with self._cache(job) as cache:
            for trial in self._paths(job):
                if os.path.lexists(trial / "result.json"):
                    known = cache.get(trial)
                    yield known.trial if known is not None else read_trial(path, trial)

    def _cache(self, job: JobRecord) -> JobCache:
        key = f"{self._key} {self._states[job.path][0]}"
        return JobCache(job.path, key, self.directory, f"{'finished' if job.finished else ''} {job.running}")

    def fingerprint(self) -> str | None:
        """What every verdict of `judged` and the jobs' records rest on, None unless all of them are known and hold.

        An answer that was made of them holds as long as it stays the same. After a pass it is None, too, when other
        trials are there than were read.
        """
        if self.directory is None:
            return None
        found = hashlib.sha256(repr((self._key, self._tasks)).encode())
        for job in self.jobs:
            state = (os.fspath(job.path), job.finished, job.running, self._states[job.path][1])
            found.update(repr(state).encode("utf-8", "surrogateescape"))
            paths = self._paths(job)
            if self._passed.get(job.path, names := _names_digest(paths)) != names:
                return None
            with self._cache(job) as cache:
                for path in paths:
                    digest = cache.digest(path)
                    if digest is None:
                        return None
                    found.update(os.fsencode(path.name) + b"\0" + digest)
        return found.hexdigest()

    def _paths(self, job: JobRecord) -> list[Path]:
        return sorted(self._found.trials_of(job.path), key=os.fspath)

    def _wanted(self, trial: TrialRecord) -> bool:
        names = (trial.task, trial.short_task)
        return not self._tasks or any(fnmatch.fnmatchcase(name, glob) for name in names for glob in self._tasks)

    def numbered(self) -> Iterator[Judged]:
        """The same with the numbers of attempt and try that merging gives them, 0 for a copy of another trial.

        All of them are read before the first is given; they wait in a temporary file where they are many.
        """
        with _Spool() as spool:
            rows = merge(read_rows(spool.kept(self.judged())), self.jobs).rows
            for verdict, row in zip(spool, rows, strict=True):
                yield msgspec.structs.replace(verdict, attempt=row.attempt, try_=row.try_)


def _names_digest(paths: Sequence[Path]) -> bytes:
    return hashlib.sha256(b"\0".join(os.fsencode(path.name) for path in paths)).digest()


def _named(rules: UserRules | None) -> str:
    """Which rules, and where their file lies: what they decide names it as evidence."""
    return f"{rules.digest} {os.path.abspath(rules.path)!a}" if rules else "-"


def _user_rules(verdict: Judged) -> set[str]:
    """Names of the user's rules that gave the verdict, or would have given another that the trial has no reward for."""
    said = (verdict.rule, verdict.notes.get("bench.no_reward", "").partition(" ")[0])
    return {rule.removeprefix("user.") for rule in said if rule.startswith("user.")}


def _depends_on_job(verdict: Judged) -> bool:
    """Whether the verdict may change with the state of the job, which changes while the trial's files do not."""
    cancelled = any(error.type == CANCELLED for error in verdict.trial.errors)
    return cancelled or verdict.outcome is OutcomeClass.UNREADABLE


class _Spool:
    """Verdicts put aside, to be read once more in the same order."""

    def __init__(self) -> None:
        self._file = tempfile.SpooledTemporaryFile(max_size=SPOOL)  # noqa: SIM115
        self._whole: dict[int, Judged] = {}
        self._sizes: list[int] = []
        self._encoder = msgspec.msgpack.Encoder(enc_hook=os.fsencode)
        self._decoder = msgspec.msgpack.Decoder(Judged, dec_hook=_path)

    def kept(self, verdicts: Iterator[Judged]) -> Iterator[Judged]:
        """Passes them on."""
        for number, verdict in enumerate(verdicts):
            try:
                data = self._encoder.encode(verdict)
            except (UnicodeEncodeError, OverflowError):  # a text with half a character, a number that is too large
                data, self._whole[number] = b"", verdict
            self._file.write(data)
            self._sizes.append(len(data))
            yield verdict

    def __iter__(self) -> Iterator[Judged]:
        self._file.seek(0)
        for number, size in enumerate(self._sizes):
            data = self._file.read(size)
            yield self._whole[number] if number in self._whole else self._decoder.decode(data)

    def __enter__(self) -> _Spool:
        return self

    def __exit__(self, *what: object) -> None:
        self._file.close()


def _path(kind: type, value: object) -> object:
    return Path(os.fsdecode(value)) if kind is Path and isinstance(value, bytes) else value
