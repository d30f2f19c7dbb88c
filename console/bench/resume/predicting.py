"""What Harbor would do with a job directory, told without touching it."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from console.bench.resume.asking import Answer, Question, ask
from console.bench.resume.comparing import differences, job_plain, plain
from console.bench.resume.locking import MISMATCH, check_lock, with_unretried
from console.bench.resume.model import DEFAULT_FILTER, Prediction, Refusal, Way
from console.bench.resume.passes import Passes, Slot, slots_of
from console.bench.resume.planning import (
    Plan,
    dataset_name,
    local_datasets,
    make_plan,
    remote_datasets,
    remote_tasks,
    trial_plain,
)
from console.bench.resume.reading import LOCK_LIMIT, Entry, read_document, read_entries
from console.bench.resume.remarks import notes_of, unsure_of
from console.bench.resume.versions import Habits, habits_of, installed_version
from console.errors import UsageError
from console.records.harbor.files import shown
from console.records.harbor.job_files import harbor_version
from console.records.harbor.values import table, text

NEWEST = "0.26"


def predict(
    job_dir: Path,
    *,
    version: str | None = None,
    filter_types: Sequence[str] = DEFAULT_FILTER,
    cwd: Path | None = None,
    config: dict[str, Any] | None = None,
) -> Prediction:
    """What one version of Harbor would do with a job directory. Nothing is written into it.

    Args:
        job_dir: the job's directory.
        version: of Harbor, like "0.22.0"; None: the one that is installed here, else the one that wrote the job.
        filter_types: exception types whose trials are deleted first; empty: none. A run has no such filter.
        cwd: where the command would be typed; None: here.
        config: the job as `harbor run -c` would be given it; None: `harbor job resume -p DIR`.

    Raises:
        UsageError: no such directory, or one that is no job's.
    """
    path = Path(os.path.abspath(job_dir))
    if not path.is_dir():
        raise UsageError(f"{shown(job_dir)} is no directory: name a job's directory")
    here = Path(os.path.abspath(cwd)) if cwd is not None else Path.cwd()
    if not here.is_dir():
        raise UsageError(f"--cwd {shown(here)} is no directory")
    entries = read_entries(path)
    if not (path / "config.json").exists() and not any(entry.trial for entry in entries):
        raise UsageError(f"{shown(job_dir)} is no job's directory: it has no config.json, and no trial lies in it")
    told = version or installed_version() or harbor_version(path) or NEWEST
    way: Way = "resume" if config is None else "run"
    case = _Case(path, here, habits_of(told), way, () if config is not None else tuple(filter_types), entries)
    case.read(config)
    return case.predict()


class _Case:
    """One job directory, one version, one command."""

    def __init__(
        self, job_dir: Path, cwd: Path, habits: Habits, way: Way, filter_types: tuple[str, ...], entries: list[Entry]
    ) -> None:
        self.job_dir, self.cwd, self.habits, self.way = job_dir, cwd, habits, way
        self.filter_types = filter_types
        self.entries = entries
        self.passes = Passes(entries, habits)
        self.answer: Answer | None = None
        self.unsure: list[str] = []
        self.notes: list[str] = []
        self.given: dict[str, Any] | None = None
        self.recorded: dict[str, Any] | None = None
        self.config: dict[str, Any] = {}
        self.lock: dict[str, Any] | None = None
        self._problems: dict[str, str] = {}
        self._digests: dict[str, str] = {}
        self._output = job_dir

    def read(self, given: dict[str, Any] | None) -> None:
        """The job's own files."""
        self.given = given
        self.recorded, self._problems["config"] = read_document(self.job_dir, "config.json")
        self.lock, self._problems["lock"] = read_document(self.job_dir, "lock.json", LOCK_LIMIT)
        self.config = given if given is not None else self.recorded or {}
        self._output = self._output_dir()

    @property
    def _there(self) -> bool:
        return (self.job_dir / "config.json").exists()

    def _output_dir(self) -> Path:
        if self.way == "resume" and self.habits.rebinds:
            return self.job_dir
        name = text(self.config.get("job_name"), 4096)
        if not name:
            # Harbor makes up a new one.
            name = "<a name made of the date>"
        return Path(os.path.abspath(self.cwd / (text(self.config.get("jobs_dir"), 4096) or "jobs") / name))

    def predict(self) -> Prediction:
        """Everything in Harbor's order."""
        if self.way == "resume" and not self._there:
            why = "config.json is missing, and nothing else tells what the job is"
            return self._told(Refusal(stage="start", error="ValueError", why=why))
        elsewhere = os.path.realpath(self._output) != os.path.realpath(self.job_dir)
        remote = remote_tasks(self.config, self.entries, self.lock)
        if not elsewhere:
            self._ask(remote)
        refusal = self.passes.filter(self.filter_types)
        if refusal is None and self.config == {}:
            said = self._problems["config"] or "config.json holds nothing"
            refusal = Refusal(stage="start", error="ValidationError", why=said)
        if refusal is not None:
            return self._told(refusal)
        if elsewhere:
            return self._elsewhere(remote)
        if self.answer is not None:
            return self._as_asked(self.answer)
        return self._as_read(remote)

    def _ask(self, remote: list[dict[str, Any]]) -> None:
        """Harbor itself, when it is the version that is told of; else only for the digests of local tasks."""
        installed = installed_version()
        if not installed:
            self.unsure.append("Harbor is not installed here: whether the files of the tasks changed is not known")
            return
        same = habits_of(installed).rebinds and self.habits.version == installed
        paths = [] if same else self._local_paths()
        if not same and not paths:
            return
        question = Question(
            job_dir=str(self.job_dir),
            way=self.way,
            config=self.given,
            directories=[entry.name for entry in self.entries] if same else [],
            filter_types=self.filter_types,
            tasks=remote,
            digests=paths,
            compare=same,
        )
        answer = ask(question, self.cwd)
        if isinstance(answer, str):
            self.unsure.append(f"{answer}; told from the files alone")
        elif same:
            self.answer = answer
            for entry in self.entries:
                found = answer.results.get(entry.name)
                if found:
                    entry.state, entry.exception = found["state"], found.get("exception", "")  # type: ignore[assignment]
        else:
            self._digests = answer.digests

    def _local_paths(self) -> list[str]:
        plan = make_plan(self.config, self.cwd, [], self.habits)
        paths = {text(item.task.get("path"), 4096) for item in plan.items if "git_url" not in item.task}
        return sorted(path for path in paths if path)

    def _as_asked(self, answer: Answer) -> Prediction:
        """Harbor read, planned and compared."""
        stopped = answer.stopped
        refusal = None
        if stopped is not None:
            stage = stopped.stage if stopped.stage in ("start", "plan", "run") else "plan"
            refusal = Refusal(stage=stage, error=stopped.error, why=stopped.why)  # type: ignore[arg-type]
        if answer.preflight:
            self.unsure.append(f"typed here and now, Harbor would stop before it plans anything: {answer.preflight}")
        if answer.config_pair:
            return self._told(_other_config(*answer.config_pair))
        if refusal is not None and refusal.stage != "run":
            return self._told(refusal)
        refused = self._scan(answer) or self.passes.match_asked(answer) or refusal
        if refused is None and answer.lock is not None:
            lock = answer.lock
            differs = differences(*lock.heads)
            if lock.trials[0] != lock.trials[1]:
                differs.append(f"trials: {lock.trials[0]} -> {lock.trials[1]}")
            for name, one, other in lock.pairs:
                differs += [_of_lock(line, name) for line in differences(one, other, name)]
            refused = Refusal(stage="run", error="FileExistsError", why=MISMATCH, differs=_once(differs))
        if refused is not None:
            return self._told(refused)
        return self._told(None, [Slot(**slot) for slot in answer.planned or ()])

    def _scan(self, answer: Answer | None) -> Refusal | None:
        """Of a job without config.json nothing is read and nothing deleted: it begins among what lies there."""
        return self.passes.scan(answer) if self._there else None

    def _as_read(self, remote: list[dict[str, Any]]) -> Prediction:
        """Told from the files alone."""
        plan = self._plan(remote)
        if plan.refusal is not None:
            return self._told(plan.refusal)
        problem = self._problem_of_result()
        if problem is not None:
            return self._told(problem)
        if self.way == "run" and self.recorded is not None:
            mine, theirs = _replayed(self.recorded, self.habits), _replayed(self.config, self.habits)
            if mine != theirs:
                return self._told(_other_config(mine, theirs))
        located = "" if self.habits.rebinds else self._trials_dir()
        refused = self._scan(None) or self.passes.match(plan, located) or self._check_lock(plan)
        if refused is not None:
            return self._told(refused)
        return self._told(None, slots_of(plan))

    def _plan(self, remote: list[dict[str, Any]]) -> Plan:
        plan = make_plan(self.config, self.cwd, remote, self.habits)
        self.unsure += plan.unsure
        return plan

    def _problem_of_result(self) -> Refusal | None:
        found, said = read_document(self.job_dir, "result.json", LOCK_LIMIT)
        if said or (found is not None and not found.get("id") and not found.get("started_at")):
            return Refusal(stage="plan", error="ValidationError", why=said or "result.json is no job's result")
        return None

    def _trials_dir(self) -> str:
        return str(Path(text(self.config.get("jobs_dir"), 4096) or "jobs") / text(self.config.get("job_name"), 4096))

    def _check_lock(self, plan: Plan) -> Refusal | None:
        if self.habits.lock_schema is None or not (self.job_dir / "lock.json").exists():
            return None
        lacks = [name for name in ("n_concurrent_trials", "retry") if name not in (self.lock or {})]
        if self.lock is None or lacks:
            said = self._problems["lock"] or f"lock.json lacks {' and '.join(lacks)}"
            why = f"{said}; Harbor does not overwrite a lock that it cannot read"
            return Refusal(stage="run", error="ValueError", why=why)
        names = {at: name for name, at in self.passes.matched.items()}
        by_name = {entry.name: entry for entry in self.entries}
        trials = [
            trial_plain(by_name[names[at]].config or {}, self.habits) if at in names else item.config
            for at, item in enumerate(plan.items)
        ]
        return check_lock(self.config, trials, self.lock, self.habits, self._digests)

    def _elsewhere(self, remote: list[dict[str, Any]]) -> Prediction:
        """Everything begins anew in another directory, or goes on there when a job lies in it already."""
        for entry in self.entries:
            entry.unsure = ""
        if (self._output / "config.json").exists():
            other = predict(self._output, version=self.habits.version, cwd=self.cwd, config=self.config)
            self.notes.append(f"a job lies in {shown(self._output)} already: Harbor would go on with that one")
            told = self._told(other.refusal)
            return _with_runs(told, other)
        plan = self._plan(remote)
        if plan.refusal is not None:
            return self._told(plan.refusal)
        return self._told(None, slots_of(plan), f"begins anew in {shown(self._output)}")

    def _told(self, refusal: Refusal | None, slots: Sequence[Slot] = (), why: str = "") -> Prediction:
        runs = self.passes.runs(slots, why) if refusal is None else ()
        datasets = [dataset_name(each) for each in remote_datasets(self.config)]
        return Prediction(
            job_dir=str(self.job_dir),
            version=self.habits.version,
            way=self.way,
            cwd=str(self.cwd),
            output_dir=str(self._output),
            directories=self.passes.directories(),
            runs=runs,
            refusal=refusal,
            unsure=tuple(self.unsure + unsure_of(self.habits.version, self.entries, self.config, datasets)),
            notes=tuple(self.notes + notes_of(self.job_dir, self.config, local_datasets(self.config), self.cwd)),
            asked=self.answer is not None,
        )


def _replayed(config: dict[str, Any], habits: Habits) -> dict[str, Any]:
    """What is compared of a job's configuration."""
    hidden = {"job_name", "debug"} | ({"jobs_dir"} if habits.rebinds else set())
    kept = {key: value for key, value in job_plain(config).items() if key not in hidden}
    return kept | {"retry": plain(with_unretried(table(kept.get("retry")), habits))}


def _other_config(recorded: dict[str, Any], planned: dict[str, Any]) -> Refusal:
    why = "the directory's config.json is of another job configuration"
    return Refusal(
        stage="plan", error="FileExistsError", why=why, differs=tuple(differences(table(recorded), table(planned)))
    )


def _with_runs(told: Prediction, other: Prediction) -> Prediction:
    return msgspec.structs.replace(told, runs=other.runs, unsure=told.unsure + other.unsure)


def _of_lock(line: str, name: str) -> str:
    digest = line.startswith(f"{name}.task.digest: ")
    return f"task {name}: its files are not those that were recorded" if digest else line


def _once(lines: Sequence[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(lines))
