"""Jobs and mop-ups that were killed at work: what they left without a result is of the same agent as what is graded."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent))

from harbor_stage import Stage, wait_for


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    made = Stage(tmp_path, ["four", "one", "three", "two"])
    yield made
    made.kill()


def killed(stage: Stage, process: subprocess.Popen[str], job: Path, graded: int) -> None:
    """Kills what works in a job once so many trials are graded and `two` is at work."""

    def there() -> bool:
        return len(list(job.glob("*/result.json"))) == graded and "two" in stage.begun

    wait_for(there, f"{graded} results in {job.name}")
    os.kill(process.pid, signal.SIGKILL)
    stage.kill()
    process.communicate()
    wait_for(lambda: not stage.at_work(), "the end of all processes")


def test_a_killed_job_and_two_killed_mop_ups(stage: Stage) -> None:
    (stage.fates / "wait.two").touch()
    (stage.fates / "wait.four").touch()
    job = stage.jobs / "first"
    killed(stage, stage.started_harbor("first", n_concurrent_trials=4), job, 2)
    assert {trial["agent"] for trial in stage.attempts(job)} == {"fated"}
    code, out, err = stage.bench("tally", job, "--json")
    assert code == 0, err
    (group,) = json.loads(out)["groups"]
    assert (group["agent"], group["attempts"], group["planned"], group["missing"]) == ("fated", 4, 4, 0)

    (stage.fates / "wait.four").unlink()
    for number, graded in ((1, 1), (2, 0)):
        mop_up = stage.jobs / f"first-mop-up-{number}"
        killed(stage, stage.started("mop-up", "jobs/first", "--yes", "--plain"), mop_up, graded)
    plan = stage.plan("jobs/first")
    assert [(attempt["task"], attempt["tries"]) for attempt in plan["run"]] == [("two", 3)]
    assert plan["standing"] == 3 and plan["left"] == []
    whole = stage.attempts(job, *(stage.jobs / f"first-mop-up-{number}" for number in (1, 2)))
    assert {trial["agent"] for trial in whole} == {"fated"}
    assert [trial["try"] for trial in whole if trial["task"] == "two"] == [1, 2, 3]
