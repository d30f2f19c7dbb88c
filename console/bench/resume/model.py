"""What a resume would do, as a value: what stays, what goes, what runs, or why it would refuse."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import msgspec

DEFAULT_FILTER = ("CancelledError",)
"""The exception types whose trials `harbor job resume` deletes when it is given none."""

Way = Literal["resume", "run"]
"""Resume: `harbor job resume -p DIR`. Run: `harbor run -c FILE` whose job directory exists already."""
Fate = Literal["kept", "deleted", "left"]
Reason = Literal[
    "matched",
    "filtered",
    "no_result",
    "not_a_trial",
    "empty_result",
    "corrupt_result",
    "unreadable",
    "differs",
    "duplicate",
    "not_reached",
]
Stage = Literal["start", "plan", "run"]


class Directory(msgspec.Struct, frozen=True, kw_only=True):
    """What would become of one directory in the job's.

    Attributes:
        name: of the directory. fate: kept: its result counts and it is not run again; deleted: removed with all it
            holds; left: stays where it is, but Harbor does not count it.
        reason: matched; filtered: its exception type; no_result: a trial without result.json; not_a_trial: any other
            directory without result.json; empty_result, corrupt_result, unreadable: its result.json; differs: a
            finished trial that is none of the job's as it is planned now; duplicate: one more than the job has of its
            kind; not_reached: Harbor does not look at it, or stops before it does.
        task: of the trial as its files tell it, "" where they do not; exception: type of the trial's, "" without one.
        finished: it is a trial with a result that Harbor can read, and no filter asks for its removal.
    """

    name: str
    fate: Fate
    reason: Reason
    task: str = ""
    exception: str = ""
    finished: bool = False


class Planned(msgspec.Struct, frozen=True, kw_only=True):
    """Trials of one task by one agent that would run.

    Attributes:
        task, agent, model: names, "" where unknown; trials: how many; directories: of the trials whose place they take,
            empty for trials that never began; why: one line.
    """

    task: str
    agent: str = ""
    model: str = ""
    trials: int = 1
    directories: tuple[str, ...] = ()
    why: str = ""


class Refusal(msgspec.Struct, frozen=True, kw_only=True):
    """Harbor would stop instead of running anything.

    Attributes:
        stage: start: the command itself, before anything is planned; plan: while the job is made out; run: when it
            would begin, after config.json was written anew.
        error: type of the exception; why: one line, what differs or is missing; differs: keys that differ, each as
            "key: recorded -> planned", values with secrets shown by name only.
    """

    stage: Stage
    error: str
    why: str
    differs: tuple[str, ...] = ()


class Prediction(msgspec.Struct, frozen=True, kw_only=True):
    """What one version of Harbor would do with a job directory.

    Attributes:
        job_dir: absolute; version: of Harbor that it is told for; way; cwd: where the command would be typed.
        output_dir: where results would go, absolute; it is another than `job_dir` when Harbor would begin afresh
            elsewhere. Then everything runs again, and nothing of the job counts.
        directories: every directory in the job's, by name; runs: what would run, empty when it refuses.
        refusal: None when it would run. Directories are deleted before most refusals: see their fates.
        unsure: one line for each thing that only Harbor itself can find out (a dataset elsewhere, for instance).
        notes: one line for each other thing to know before the command is typed.
        asked: Harbor of this version compared the configurations itself; False: our own reading of the files did.
    """

    job_dir: str
    version: str
    way: Way = "resume"
    cwd: str = ""
    output_dir: str = ""
    directories: tuple[Directory, ...] = ()
    runs: tuple[Planned, ...] = ()
    refusal: Refusal | None = None
    unsure: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    asked: bool = False

    @property
    def kept(self) -> tuple[Directory, ...]:
        """Trials that stand."""
        return tuple(each for each in self.directories if each.fate == "kept")

    @property
    def deleted(self) -> tuple[Directory, ...]:
        """Directories that would be removed with all they hold."""
        return tuple(each for each in self.directories if each.fate == "deleted")

    @property
    def left(self) -> tuple[Directory, ...]:
        """Directories that stay and do not count."""
        return tuple(each for each in self.directories if each.fate == "left")

    @property
    def to_run(self) -> int:
        """Trials that would run."""
        return sum(each.trials for each in self.runs)

    @property
    def elsewhere(self) -> bool:
        """Results would go to another directory than the job's."""
        return bool(self.output_dir) and Path(self.output_dir) != Path(self.job_dir)

    @property
    def again(self) -> tuple[Directory, ...]:
        """Finished trials whose result would be lost or not count: what must not happen unseen.

        Those that a filter asked for are not among them.
        """
        if not self.runs:
            return ()
        return tuple(each for each in self.directories if each.finished and (self.elsewhere or each.fate != "kept"))
