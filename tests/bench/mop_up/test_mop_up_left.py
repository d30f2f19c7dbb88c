"""A mop-up that nobody watches, and one that Harbor refuses: what lies beside the job then."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent))

from harbor_stage import Stage, wait_for

from console.bench.lineage import FILE, Lineage, read_lineage


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    made = Stage(tmp_path, ["dead", "sound"])
    yield made
    made.kill()


def test_detached_and_typed_again(stage: Stage) -> None:
    stage.doom(dead=1)
    job, mop_up = stage.run("first"), stage.jobs / "first-mop-up-1"
    (stage.fates / "wait").touch()
    code, out, err = stage.bench("mop-up", job, "--yes", "--detach")
    assert code == 0 and out.strip() and "when it has ended, type this again" in err, err
    lineage = read_lineage(mop_up)
    assert isinstance(lineage, Lineage) and lineage.parent.path == str(job)
    code, _, err = stage.bench("mop-up", job, "--yes", "--detach")
    assert code == 2 and "is at work now" in err
    (stage.fates / "wait").unlink()
    wait_for(lambda: bool((mop_up / "result.json").exists() and finished(mop_up)), "the mop-up's end")
    wait_for(lambda: not stage.at_work(), "the engine's end")
    assert isinstance(read_lineage(mop_up), Lineage)
    assert stage.plan(job)["run"] == [] and [path.name for path in stage.jobs.glob("*mop-up-?")] == [mop_up.name]


def finished(job: Path) -> bool:
    try:
        return bool(json.loads((job / "result.json").read_text())["finished_at"])
    except ValueError:  # it is being written
        return False


def test_what_harbor_refuses_leaves_no_directory(stage: Stage) -> None:
    stage.doom(dead=1)
    job = stage.run("first")
    for path in (stage.root / "set" / "dead").rglob("*"):
        if path.name == "task.toml":
            path.write_text("nonsense = [")
    code, _, err = stage.bench("mop-up", job, "--yes", "--plain")
    assert code == 2 and "dead" in err, err
    assert not list(stage.jobs.glob(f"*/{FILE}")) and not (stage.jobs / "first-mop-up-1").exists()
