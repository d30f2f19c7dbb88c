"""Whole mop-ups of real Harbor jobs: the right trials run again, everything before them stays as it was."""

from __future__ import annotations

import json
import sys
from collections import Counter
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent))

from harbor_jobs import tree_hash
from harbor_stage import Stage

GLOB, ALIKE = "we[i]rd*", "weird"
"""As a filter, the one's name would match the other and not itself."""


def lineage(job: Path) -> dict[str, object]:
    return dict(json.loads((job / "quarterdeck-mop-up.json").read_text()))


def ran(job: Path) -> Counter[str]:
    return Counter(json.loads(path.read_text())["task_name"] for path in job.glob("*/result.json"))


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Stage:
    return Stage(tmp_path_factory.mktemp("stage"), [GLOB, ALIKE, "half", *(f"sound-{number}" for number in range(7))])


@pytest.fixture(scope="module")
def job(stage: Stage) -> Path:
    """Four attempts of ten tasks: all of one lost, one of another."""
    stage.doom_all({GLOB: 4, "half": 1})
    return stage.run("first", attempts=4)


def test_two_passes_run_what_failed_and_nothing_else(stage: Stage, job: Path) -> None:
    before, _ = tree_hash(job), stage.begun
    stage.doom_all({GLOB: 2})
    code, out, err = stage.bench("mop-up", "jobs/first", "--yes", "--plain", "--n-concurrent", "1")
    assert code == 0, err
    # Attempts are a number of the whole job: two tasks that lack different numbers take two jobs.
    assert stage.begun == {GLOB: 4, "half": 1}
    both, one = (stage.jobs / f"first-mop-up-1{part}" for part in ("", "-part-2"))
    assert ran(both) == {GLOB: 4} and ran(one) == {"half": 1}
    assert lineage(both)["attempts"] == {GLOB: 4} and lineage(one)["attempts"] == {"half": 1}
    assert [change["key"] for change in lineage(both)["changes"]] == ["n_concurrent_trials"]  # type: ignore[attr-defined]
    assert "5 run again; 2 still without a result" in err
    assert "quarterdeck bench tally jobs/first jobs/first-mop-up-1 jobs/first-mop-up-1-part-2" in err
    assert tree_hash(job) == before

    earlier = {path: tree_hash(path) for path in (job, both, one)}
    code, out, err = stage.bench("mop-up", "jobs/first", "--yes", "--headless")
    assert code == 0, err
    assert json.loads(out.splitlines()[-1])["status"] == "completed"
    assert stage.begun == {GLOB: 2}
    second = stage.jobs / "first-mop-up-2"
    assert ran(second) == {GLOB: 2} and lineage(second)["pass"] == 2
    assert {path: tree_hash(path) for path in earlier} == earlier

    code, out, err = stage.bench("mop-up", "jobs/first", "--yes", "--headless")
    assert code == 0 and "nothing to run again: 40 attempts completed" in err
    assert json.loads(out.splitlines()[-1])["status"] == "completed"
    assert not stage.begun

    jobs = (job, both, one, second)
    trials = stage.attempts(*jobs)
    assert len(trials) == 47 and len({(trial["task"], trial["attempt"]) for trial in trials}) == 40
    code, out, err = stage.bench("tally", *jobs, "--json", "--mode", "infra-excluded")
    (mode,) = json.loads(out)["modes"]
    assert (mode["numerator"], mode["denominator"], mode["excluded"]) == (40, 40, {})
    code, out, err = stage.bench("tally", job, "--json")
    assert "not counted" in err and "first-mop-up-2" in err
