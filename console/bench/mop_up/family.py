"""Which directories are one run: a job and its mop-ups, found beside it by what their lineage files say."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from console.bench.lineage import FILE, Lineage, LineageError, read_lineage
from console.errors import UsageError
from console.records.harbor.discovery import kind_of
from console.records.harbor.files import NoFileError, directory, read_whole, shown
from console.records.harbor.jobs import RESULT_LIMIT
from console.records.harbor.values import CorruptError, parse, text

SIBLINGS = 20_000
"""Entries beside a job that are looked at."""
_GENERATIONS = 100


class MopUp(msgspec.Struct, frozen=True, kw_only=True):
    """A directory with a lineage file: absolute, and what the file says. It holds no trial when nothing began."""

    path: Path
    lineage: Lineage

    @property
    def begun(self) -> bool:
        """Whether Harbor has written anything into it."""
        return any((self.path / name).exists() for name in ("config.json", "job.log", "result.json"))


class Family(msgspec.Struct, frozen=True, kw_only=True):
    """A job and what repeats its trials.

    Attributes:
        root: directory of the job, absolute, itself no mop-up; id: Harbor's of it, "" without one.
        mop_ups: by number of the pass, then by name; problems: lineage files that cannot be used, a line each.
    """

    root: Path
    id: str = ""
    mop_ups: tuple[MopUp, ...] = ()
    problems: tuple[str, ...] = ()

    @property
    def paths(self) -> tuple[Path, ...]:
        """Directories with something in them: the job, then its mop-ups."""
        return (self.root, *(each.path for each in self.mop_ups if each.begun))

    @property
    def passes(self) -> int:
        """The highest number that a mop-up has, 0 without any."""
        return max((each.lineage.number for each in self.mop_ups), default=0)


class _Identified(msgspec.Struct):
    # The statistics of a job of many trials are megabytes, and nobody asks for them.
    id: Any = None


_DECODER = msgspec.json.Decoder(_Identified)


def family_of(path: Path) -> Family:
    """The family that a job directory belongs to, whichever member it is.

    Raises:
        UsageError: it is no job's directory, or the mop-up of a job that is not there.
    """
    root = _root(path)
    lineages, problems = _lineages(root.parent)
    return Family(root=root, id=job_id(root), mop_ups=_of(root, lineages), problems=problems)


def left_out(jobs: Iterable[Path]) -> tuple[Path, ...]:
    """Mop-ups, with trials in them, that lie beside these job directories and are not among them."""
    known = {os.path.realpath(job) for job in jobs}
    beside = {parent: _lineages(parent)[0] for parent in {Path(job).parent for job in known}}
    found: dict[Path, None] = {}
    for job in sorted(known):
        for each in _of(Path(job), beside[Path(job).parent]):
            if each.begun and os.path.realpath(each.path) not in known:
                found[each.path] = None
    return tuple(found)


def left_out_lines(jobs: Iterable[Path]) -> list[str]:
    """One line that names such mop-ups, for who counts the jobs without them; none without any."""
    found = left_out(jobs)
    if not found:
        return []
    names = ", ".join(shown(path) for path in found[:4]) + ("" if len(found) <= 4 else f" and {len(found) - 4} more")
    what = "a mop-up" if len(found) == 1 else f"{len(found)} mop-ups"
    return [f"{what} beside what was named, not counted: {names}; name {'it' if len(found) == 1 else 'them'} too"]


def job_id(job: Path) -> str:
    """Harbor's id of a job, "" when nothing tells it."""
    try:
        with directory(job) as dir_fd:
            data = read_whole(dir_fd, "result.json", RESULT_LIMIT)
            value = None if data is None else parse(data, _DECODER)
    except (OSError, NoFileError, CorruptError):
        return ""
    return text(value.id if isinstance(value, _Identified) else value.get("id") if isinstance(value, dict) else "")


def _root(path: Path) -> Path:
    try:
        found = path.resolve(strict=True)
        kind = kind_of(found)
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is no path"
        raise UsageError(f"{shown(path)}: cannot be read ({why}); name a job directory of Harbor") from None
    lineage = read_lineage(found)
    if kind != "job" and lineage is None:
        what = "a single trial" if kind == "trial" else "no job directory of Harbor"
        raise UsageError(f"{shown(path)}: is {what}; name the directory that holds the trials and their config.json")
    seen = {found}
    while isinstance(lineage, Lineage):
        parent = _parent(found, lineage)
        if parent is None:
            raise UsageError(
                f"{shown(found)}: is a mop-up of {shown(lineage.parent.path)}, which is not there any more; "
                "put it back, or beside this one"
            )
        if parent in seen or len(seen) > _GENERATIONS:
            raise UsageError(f"{shown(found)}: the lineage files of its family name each other in a circle; mend them")
        seen.add(parent)
        found, lineage = parent, read_lineage(parent)
    return found


def _parent(job: Path, lineage: Lineage) -> Path | None:
    """Where the parent is now: at its path, else of that name beside the mop-up, as when all of them were moved."""
    there = Path(lineage.parent.path)
    for path in (there, job.parent / there.name):
        if path.is_dir() and (not lineage.parent.id or job_id(path) in ("", lineage.parent.id)):
            return path.resolve()
    return None


def _lineages(directory: Path) -> tuple[dict[Path, Lineage], tuple[str, ...]]:
    """Directories in a directory that hold a lineage file, and a line for each file that cannot be used."""
    found: dict[Path, Lineage] = {}
    problems = []
    try:
        with os.scandir(directory) as entries:
            for count, entry in enumerate(entries):
                if count >= SIBLINGS:
                    problems.append(f"{shown(directory)}: more than {SIBLINGS:,} entries; the rest was not looked at")
                    break
                if not entry.is_dir(follow_symlinks=False) or not os.path.lexists(os.path.join(entry.path, FILE)):
                    continue
                lineage = read_lineage(entry.path)
                if isinstance(lineage, LineageError):
                    problems.append(lineage.text)
                elif lineage is not None:
                    found[Path(entry.path)] = lineage
    except OSError as error:
        problems.append(f"{shown(directory)} cannot be listed ({error.strerror}): mop-ups of the job are not seen")
    return found, tuple(problems)


def _of(root: Path, lineages: Mapping[Path, Lineage]) -> tuple[MopUp, ...]:
    """The mop-ups of a job, and mop-ups of these."""
    parents = {path: _parent(path, lineage) for path, lineage in lineages.items()}
    family, added = {root}, True
    while added:
        added = False
        for path, parent in parents.items():
            if path not in family and parent in family:
                family.add(path)
                added = True
    members = [MopUp(path=path, lineage=lineages[path]) for path in family if path in lineages and path != root]
    return tuple(sorted(members, key=lambda each: (each.lineage.number, each.path.name)))
