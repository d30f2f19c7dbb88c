"""A mop-up that is killed in the middle and typed again: what was finished stands, and nothing runs twice."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent))

from harbor_jobs import tree_hash
from harbor_stage import Stage, wait_for


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    made = Stage(tmp_path, ["one", "three", "two"])
    yield made
    made.kill()


def graded(job: Path) -> list[str]:
    results = [json.loads(path.read_text()) for path in job.glob("*/result.json")]
    return [result["task_name"] for result in results if not result["exception_info"]]


def test_killed_and_typed_again(stage: Stage) -> None:
    stage.doom(one=1, two=1, three=1)
    job = stage.run("first")
    before, _ = tree_hash(job), stage.begun
    command = ("mop-up", "jobs/first", "--yes", "--plain", "--n-concurrent", "1")
    process, mop_up = stage.started(*command), stage.jobs / "first-mop-up-1"
    wait_for(lambda: len(graded(mop_up)) == 1, "the first trial's end")
    (stage.fates / "wait").touch()
    wait_for(lambda: len(list(mop_up.glob("*/trial.log"))) >= 2, "another trial")
    refused = stage.bench(*command)
    assert refused[0] == 2 and "wait for its end" in refused[2]  # never two at once
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()
    wait_for(lambda: not stage.at_work(), "the engine's end")
    (stage.fates / "wait").unlink()
    finished = graded(mop_up)
    assert 1 <= len(finished) < 3
    stood, _ = tree_hash(mop_up), stage.begun

    code, _, err = stage.bench(*command)
    assert code == 0, err
    assert stage.begun == Counter(["one", "two", "three"]) - Counter(finished)
    assert (tree_hash(job), tree_hash(mop_up)) == (before, stood)
    assert stage.plan("jobs/first")["run"] == []
    whole = stage.attempts(job, mop_up, stage.jobs / "first-mop-up-2")
    assert sorted(trial["task"] for trial in whole if trial["class"] == "completed") == ["one", "three", "two"]
