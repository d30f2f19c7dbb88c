"""The directory of a mop-up's job before Harbor begins: it holds the lineage file, and nothing else."""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from console.bench.lineage import FILE
from console.bench.mop_up.plan import Plan, PlannedJob
from console.errors import UsageError
from console.records.harbor.files import shown


def lineage_of(plan: Plan, job: PlannedJob) -> dict[str, Any]:
    """The file's content: what `lineage.Lineage` reads, and what was changed, forced and dropped besides."""
    told = [
        {"key": each.key, "before": each.before, "after": each.after, "measured": each.measured}
        for each in plan.changes
    ]
    return {
        "v": 1,
        "parent": {"path": str(plan.family.root), "id": plan.family.id},
        "tasks": sorted(job.names),
        "attempts": dict(sorted(job.names.items())),
        "pass": job.number,
        "chosen": dict(sorted(job.chosen.items())),
        "changes": told,
        "forced": list(job.forced),
        "notes": list(plan.notes),
    }


def make_directory(plan: Plan, job: PlannedJob) -> None:
    """Makes the job's directory, with its lineage file in it, whole or not at all.

    Raises:
        UsageError: it is there already, or cannot be made.
    """
    data = msgspec.json.format(msgspec.json.encode(lineage_of(plan, job)), indent=2) + b"\n"
    beside = job.path.with_name(f".{job.path.name}.{os.getpid()}")
    try:
        # Made beside its place and renamed: nobody sees it without the file, and one that is there is not touched.
        beside.mkdir(mode=0o777)
        try:
            with open(beside / FILE, "xb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            if os.path.lexists(job.path):
                raise FileExistsError(17, "it is there already")
            os.rename(beside, job.path)
        except BaseException:
            with contextlib.suppress(OSError):
                (beside / FILE).unlink(missing_ok=True)
                beside.rmdir()
            raise
    except OSError as error:
        raise UsageError(
            f"{shown(job.path)}: cannot be made ({error.strerror}); mop-ups lie beside their job, so free the name or "
            "make the directory writable"
        ) from None


def untouched(job: PlannedJob) -> bool:
    """Whether the job's directory holds its lineage file alone."""
    try:
        return os.listdir(job.path) == [FILE]
    except OSError:
        return False


def withdraw(job: PlannedJob) -> bool:
    """Takes a directory away in which Harbor has not written anything, and will not; whether it did."""
    if not untouched(job):
        return False
    try:
        (job.path / FILE).unlink()
        job.path.rmdir()
    except OSError:
        return False
    return True


@contextlib.contextmanager
def alone(root: Path) -> Iterator[None]:
    """Only one command at a time plans and starts a mop-up of a job. Nothing is written for it.

    Raises:
        UsageError: another one does.
    """
    try:
        fd = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise UsageError(f"{shown(root)}: cannot be read ({error.strerror})") from None
    try:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise UsageError(
                f"{shown(root)}: another mop-up of it is being started or watched on this machine; wait for its end"
            ) from None
        except OSError:
            pass  # a file system without locks
        yield
    finally:
        os.close(fd)
