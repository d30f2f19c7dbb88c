"""What a mop-up job says of itself: the file that its launcher leaves in its directory, and reading at merge time."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec

from console.records.regular import open_regular

FILE = "quarterdeck-mop-up.json"
_LIMIT = 4 << 20


class Parent(msgspec.Struct, frozen=True, kw_only=True):
    """The job whose attempts are done again: its absolute path, and Harbor's id of it ("" when it has none)."""

    path: str
    id: str = ""


class Lineage(msgspec.Struct, frozen=True, kw_only=True):
    """The file's content.

    Attributes:
        v: version of the form, 1; parent: the job that is repaired, itself perhaps a mop-up.
        tasks: whole names; attempts: whole task name to how many of its attempts are done again, 1 for one that is
            not named; number: of the pass over the parent, from 1 (`pass` in the file).
        chosen: whole task name to the attempts that are done again, of all agents of the job: the `trial_name` of a
            try of each, "" for one that left nothing on disk. Without it nothing tells which they are.
    """

    v: int
    parent: Parent
    tasks: tuple[str, ...] = ()
    attempts: dict[str, int] = {}
    number: int = msgspec.field(name="pass", default=1)
    chosen: dict[str, tuple[str, ...]] = {}


class Meant:
    """What a job was launched for, by short names of tasks: the file's may carry their organisation or not."""

    def __init__(self, lineage: Lineage) -> None:
        self._attempts = {_short(name): number for name, number in lineage.attempts.items()}
        self._chosen: dict[str, list[str]] = {}
        for name, trials in lineage.chosen.items():
            self._chosen.setdefault(_short(name), []).extend(trials)

    def attempts(self, task: str, otherwise: int | None) -> int | None:
        """How many attempts of a task; it may carry its version, as `task@version`."""
        return self._attempts.get(task, self._attempts.get(_unversioned(task), otherwise))

    def chosen(self, task: str) -> Sequence[str]:
        """Which attempts of a task, as in `Lineage.chosen`; none when the file does not tell."""
        return self._chosen.get(task) or self._chosen.get(_unversioned(task)) or ()


class LineageError(msgspec.Struct, frozen=True):
    """Why the file of a directory cannot be used, in one line."""

    text: str


def trial_name(path: str) -> str:
    """What a trial's directory is called in a lineage file: its name ends in a random part and is one of its own."""
    return os.path.basename(path).encode("utf-8", "backslashreplace").decode()


def read_lineage(job: Path | str) -> Lineage | LineageError | None:
    """The lineage of a job directory; None when there is no such file. Raises nothing: a bad file is one finding."""
    path = Path(job) / FILE
    try:
        fd = open_regular(path)
        if fd is None:
            return None
        with os.fdopen(fd, "rb") as file:
            raw = file.read(_LIMIT + 1)
    except OSError as error:
        return LineageError(f"{path} cannot be read: {error.strerror}; its job is taken as one without lineage")
    if len(raw) > _LIMIT:
        return LineageError(f"{path} is larger than {_LIMIT >> 20} MiB; its job is taken as one without lineage")
    try:
        found = msgspec.json.decode(raw, type=Lineage)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        return LineageError(f"{path} is no lineage file ({error}); its job is taken as one without lineage")
    if not found.parent.path or "\0" in found.parent.path:
        return LineageError(f"{path} names no parent; its job is taken as one without lineage")
    if found.v != 1:
        return LineageError(
            f"{path} has version {found.v}, and only 1 is known; its job is taken as one without lineage"
        )
    return found


def parent_of(lineage: Lineage, jobs: Iterable[str]) -> str | None:
    """Which of the job directories is the parent: by path, else the only one of that name, which was moved; or None."""
    known = {os.path.realpath(job): job for job in jobs}
    found = known.get(os.path.realpath(lineage.parent.path))
    if found is not None:
        return found
    name = os.path.basename(lineage.parent.path.rstrip("/"))
    same = [job for job in known.values() if os.path.basename(job.rstrip("/")) == name]
    return same[0] if name and len(same) == 1 else None


def _short(task: str) -> str:
    return task.rsplit("/", 1)[-1]


def _unversioned(task: str) -> str:
    return task.rpartition("@")[0] or task
