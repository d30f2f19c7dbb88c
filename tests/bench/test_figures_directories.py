"""The figures of whole runs from job directories: read, judged, merged and counted, with nothing written."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path

from harbor_jobs import BEGAN, HarborJob

from console.bench.figures.report import tables
from console.bench.figures.tables import to_text
from console.bench.figures.tally import GroupTally, Tally, tally
from console.bench.lineage import FILE
from console.bench.model import Figures, Judged
from console.bench.triage import judge
from console.records.harbor.discovery import find_jobs
from console.records.harbor.jobs import read_job
from console.records.harbor.trials import read_trial

FINAL = ("circuit-fibsqrt", "feal-linear-cryptanalysis", "query-optimize", "schemelike-metacircular-eval")


def counted(*paths: Path, rule: str = "latest-valid") -> Tally:
    found = find_jobs(list(paths))
    jobs = [read_job(path) for path in found.jobs]

    def stream() -> Iterator[Judged]:
        for job in jobs:
            for path in found.trials_of(job.path):
                yield judge(read_trial(job.path, path), job=job)

    return tally(stream(), jobs, rule=rule)


def only(found: Tally) -> GroupTally:
    (group,) = found.groups
    return group


def by_mode(group: GroupTally, mode: str) -> Figures:
    (figures,) = [figures for figures in group.modes if figures.mode == mode]
    return figures


def digest(root: Path) -> str:
    parts = [f"{path}{path.read_bytes()!r}" for path in sorted(root.rglob("*")) if path.is_file()]
    return hashlib.sha256("".join(parts).encode()).hexdigest()


def full_run(path: Path, *, verified: bool) -> HarborJob:
    """The notebook's first run as it stood before its last mop-up: 53 passes, 16 zeros, 16 timeouts, 4 failures."""
    job = HarborJob(path, "0.22.0", agent_timeout_multiplier=4.0)
    for number in range(69):
        job.trial(f"terminal-bench/task-{number}", 1.0 if number < 53 else 0.0)
    for number in range(16):
        reward = 0.0 if verified else None
        job.trial(f"terminal-bench/slow-{number}", reward, error=("AgentTimeoutError", "Agent timed out after 3600 s"))
    for name in FINAL:
        job.trial(f"terminal-bench/{name}", error=("SandboxError", "the sandbox is gone"))
    job.write(planned=89)
    return job


def test_a_run_and_three_mop_ups_give_the_notebooks_figures(tmp_path: Path) -> None:
    full = full_run(tmp_path / "full", verified=True)
    for number in (1, 2, 3):
        again = HarborJob(
            tmp_path / f"again-{number}", "0.26.0", began=BEGAN + 1e6 * number, agent_timeout_multiplier=4.0
        )
        for name in FINAL:
            again.trial(f"terminal-bench/{name}", error=("RemoteProtocolError", "peer closed connection"))
        again.write(planned=4)
        lineage = {
            "v": 1, "parent": {"path": str(full.path), "id": ""}, "tasks": [f"terminal-bench/{name}" for name in FINAL],
            "attempts": {f"terminal-bench/{name}": 1 for name in FINAL}, "pass": number,
        }  # fmt: skip
        (again.path / FILE).write_text(json.dumps(lineage))
    before = digest(tmp_path)
    group = only(counted(tmp_path))
    assert (group.attempts, group.trials, group.replaced, group.planned, group.missing) == (89, 101, 12, 89, 0)
    for mode, passes, attempts in (
        ("infra-excluded", 53, 85), ("infra-excluded-strict", 53, 85), ("clean-only", 53, 69), ("raw-old", 53, 89),
        ("error-aware", 53, 89), ("leaderboard", 53, 85),
    ):  # fmt: skip
        figures = by_mode(group, mode)
        assert (figures.numerator, figures.denominator) == (passes, attempts), mode
    assert by_mode(group, "infra-excluded").excluded == {"infrastructure/network": 4}
    left = [task.task for task in group.tasks if task.mean("infra-excluded") is None]
    assert left == sorted(FINAL)
    assert "53  85  62.35 %  51.7 to 71.9 %" in to_text([tables(group)["figures"]])
    assert digest(tmp_path) == before


def test_timeouts_that_nobody_verified_fail(tmp_path: Path) -> None:
    full_run(tmp_path / "full", verified=False)
    group = only(counted(tmp_path))
    for mode in ("infra-excluded", "infra-excluded-strict"):
        figures = by_mode(group, mode)
        assert (figures.numerator, figures.denominator) == (53, 85)
    assert by_mode(group, "training").denominator == 69


def test_jobs_of_old_and_new_harbor_are_one_run(tmp_path: Path) -> None:
    old = HarborJob(tmp_path / "old", "0.6.0", attempts=2)
    for attempt in range(2):
        old.trial("org/a", float(attempt))
    old.trial("org/b", error=("EnvironmentStartTimeoutError", "late"), phase="environment", checksum="5" * 64)
    old.write(planned=4)
    new = HarborJob(tmp_path / "new", "0.26.0", began=BEGAN + 9e5)
    new.trial("b", 1.0, checksum="5" * 64)
    new.write(planned=1)
    group = only(counted(old.path, new.path))
    assert {task.task: (task.attempts, task.mean("infra-excluded")) for task in group.tasks} == {
        "a": (2, 0.5),
        "b": (1, 1.0),
    }
    assert (group.planned, group.missing, group.replaced) == (4, 1, 1)
    assert {notice.code for notice in group.notices} == {"merge.inferred", "differs.harbor_version"}
