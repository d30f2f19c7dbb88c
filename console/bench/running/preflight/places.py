"""Where a run writes: the job directory, the run directory, and the room there."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from console.bench.running.options import BenchOptions
from console.findings import WARNING, Finding

TRIAL_BYTES, LEAST_BYTES = 5_000_000, 500_000_000
"""What a trial's logs take, by experience, and what a machine should never have less of."""


def default_run_dir(job: dict[str, object]) -> Path:
    """`<jobs_dir>/<job_name>.run`, or the next that is free: beside the job directory, where no resume deletes."""
    base = Path(str(job["jobs_dir"])) / f"{job['job_name']}.run"
    path, number = base, 1
    while path.exists():
        number += 1
        path = base.with_name(f"{base.name}-{number}")
    return path


def existing_finding(options: BenchOptions) -> Iterator[Finding]:
    """Whether the job directory is there already, which a run that begins afresh must not have."""
    if os.path.lexists(options.job_dir):
        yield Finding(
            code="bench.job_dir",
            object=options.job_dir,
            message="exists already",
            remedy="give another job_name, or --continue, which says first what would be kept, deleted and run again",
        )


def place_findings(options: BenchOptions) -> Iterator[Finding]:
    """Whether the directories can be written, and do not lie in each other."""
    job_dir, run_dir = Path(options.job_dir), Path(options.run_dir)
    if run_dir == job_dir or job_dir in run_dir.parents:
        yield Finding(
            code="bench.run_dir",
            object="--run-dir",
            message=f"{run_dir} lies in the job directory, where a resume of Harbor's deletes what it does not know",
            remedy="name a directory beside it",
        )
    elif (run_dir / "journal").exists():
        yield Finding(
            code="bench.run_dir",
            object="--run-dir",
            message=f"{run_dir} holds a run already",
            remedy="name another directory, or leave --run-dir out",
        )
    for path, name in ((Path(options.job["jobs_dir"]), "jobs_dir"), (run_dir.parent, "--run-dir")):
        yield from _writable(path, name)


def _writable(path: Path, name: str) -> Iterator[Finding]:
    above = path
    while not above.exists() and above != above.parent:
        above = above.parent
    if not above.is_dir():
        yield Finding(
            code="bench.directory", object=name, message=f"{above} is not a directory", remedy="name another directory"
        )
        return
    try:
        # Permissions do not tell of everything: a read-only mount, a quota.
        with tempfile.TemporaryDirectory(dir=above, prefix=".quarterdeck-"):
            pass
    except OSError as problem:
        yield Finding(
            code="bench.directory",
            object=name,
            message=f"nothing can be written in {above}: {problem.strerror or problem}",
            remedy="name a directory that you may write in",
        )


def room_finding(options: BenchOptions, trials: int | None) -> Iterator[Finding]:
    """Whether the disk has room for what the trials will leave."""
    above = Path(options.job["jobs_dir"])
    while not above.exists() and above != above.parent:
        above = above.parent
    try:
        free = shutil.disk_usage(above).free
    except OSError:
        return
    wanted = max(LEAST_BYTES, (trials or 0) * TRIAL_BYTES)
    if free < wanted:
        yield Finding(
            code="bench.disk",
            level=WARNING,
            object="jobs_dir",
            message=f"{free / 1e9:.1f} GB are free on the disk of {above}, and logs of the run may take "
            f"{wanted / 1e9:.1f}",
            remedy="make room, or name another jobs_dir",
        )
