"""Which attempts a mop-up chooses: by what stands for them once the job and its mop-ups are merged."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from harbor_jobs import HarborJob, put

from console.bench.lineage import FILE
from console.bench.mop_up.changes import Asked
from console.bench.mop_up.choice import CEILING, MISSING, Wish
from console.bench.mop_up.family import family_of, left_out
from console.bench.mop_up.plan import Plan, make_plan
from console.errors import UsageError

LATE = ("AgentTimeoutError", "Agent execution timed out after 3600.0 seconds")
DEAD = ("SandboxError", "the sandbox was not found")
WORK = {"agent/trajectory.json": '{"schema_version": "1", "steps": [{"tool_calls": [{"function_name": "bash"}]}]}'}
PASSED = {**WORK, "verifier/test-stdout.txt": "== 3 passed in 0.1s ==\n"}
NO_TOOLS = {**WORK, "verifier/test-stdout.txt": "curl: (28) timed out\ntest.sh: line 5: uvx: command not found\n"}
NO_TESTS = {**WORK, "verifier/test-stdout.txt": "== no tests ran in 0.01s ==\n"}
HOUR = 3600.0

Planner = Callable[..., Plan]


@pytest.fixture
def plan() -> Planner:
    def made(*dirs: Path, asked: Asked | None = None, dataset_path: Path | None = None, **wish: Any) -> Plan:
        return make_plan(dirs, Wish(**wish), asked, dataset_path=dataset_path, cache=False)

    return made


def one_of_each(path: Path) -> HarborJob:
    job = HarborJob(path)
    job.trial("tb/passed", 1.0, files=PASSED)
    job.trial("tb/failed", 0.0, files=PASSED)
    job.trial("tb/late", 0.0, error=LATE, files=PASSED, seconds={"agent": HOUR})
    job.trial("tb/dead", error=DEAD)
    job.trial("tb/tools", 0.0, files=NO_TOOLS)
    job.trial("tb/untested", 0.0, files=NO_TESTS)
    job.trial("tb/key", error=("AuthenticationError", "Incorrect API key provided"))
    job.trial("tb/crash", 0.0, error=("NonZeroAgentExitCodeError", "exit code 1\nunknown option '-x'"), files=PASSED)
    job.trial("tb/stopped", error=("CancelledError", ""))
    job.trial("tb/cut", result=False)
    return job


def chosen(found: Plan) -> dict[str, int]:
    return {name: number for job in found.jobs for name, number in job.names.items()}


def why(found: Plan) -> dict[str, str]:
    return {attempt.short: attempt.why for attempt in found.choice.left}


def mopped(parent: Path, number: int, tasks: dict[str, Any], began: float, **job: Any) -> Path:
    """A mop-up of the parent: what became of each task, an error or a reward."""
    made = HarborJob(parent.with_name(f"{parent.name}-mop-up-{number}"), began=began, **job)
    for task, end in tasks.items():
        if isinstance(end, tuple):
            made.trial(task, error=end)
        else:
            made.trial(task, end, files=PASSED)
    content = {"v": 1, "parent": {"path": str(parent)}, "tasks": list(tasks), "attempts": dict.fromkeys(tasks, 1)}
    put(made.path / FILE, content | {"pass": number})
    return made.write()


def test_by_class(tmp_path: Path, plan: Planner) -> None:
    job = one_of_each(tmp_path / "job").write(finished=False)
    found = plan(job)
    assert chosen(found) == dict.fromkeys(["tb/dead", "tb/tools", "tb/stopped", "tb/cut"], 1)
    assert found.choice.standing == 2
    left = why(found)
    assert left.keys() == {"late", "untested", "key", "crash"}
    assert "--class agent_timeout" in left["late"] and "--class agent_failure" in left["crash"]
    assert "defect of the task" in left["untested"] and "--mended" in left["key"]


def test_what_must_be_named(tmp_path: Path, plan: Planner) -> None:
    job = one_of_each(tmp_path / "job").write(finished=False)
    assert "tb/late" in chosen(plan(job, classes=(("agent_timeout", "*"),)))
    assert "tb/late" not in chosen(plan(job, classes=(("agent_timeout", "other"),)))
    assert chosen(plan(job, mended=True)).keys() - chosen(plan(job)).keys() == {"tb/key"}
    for wish in ({"classes": (("configuration", "*"),)}, {"classes": (("completed", "*"),)}, {"force": True}):
        with pytest.raises(UsageError):
            plan(job, **wish)
    forced = plan(job, force=True, tasks=("passed",))
    assert chosen(forced) == {"tb/passed": 1} and forced.jobs[0].forced == ("tb/passed",)
    assert plan(job, tasks=("passed",)).jobs == ()


def test_task_and_except(tmp_path: Path, plan: Planner) -> None:
    job = one_of_each(tmp_path / "job").write(finished=False)
    assert chosen(plan(job, tasks=("tb/d*", "cut"))) == {"tb/dead": 1, "tb/cut": 1}
    found = plan(job, excepted=("dead", "to*"))
    assert chosen(found) == {"tb/stopped": 1, "tb/cut": 1}
    assert why(found)["dead"] == "named by --except"
    with pytest.raises(UsageError, match="--task nothing: no attempt"):
        plan(job, tasks=("nothing",))


def test_the_latest_try_that_says_something_stands(tmp_path: Path, plan: Planner) -> None:
    job = HarborJob(tmp_path / "job", attempts=2)
    for reward in (None, 1.0):
        for task in ("tb/a", "tb/b"):
            job.trial(task, reward, error=None if reward else DEAD, files=PASSED)
    parent = job.write()
    assert chosen(plan(parent)) == {"tb/a": 1, "tb/b": 1}
    mop = mopped(parent, 1, {"tb/a": 0.0, "tb/b": DEAD}, job.began + HOUR)
    found = plan(parent)
    assert chosen(found) == {"tb/b": 1} and found.choice.standing == 3
    assert found.jobs[0].path == tmp_path / "job-mop-up-2" and found.jobs[0].number == 2
    assert [attempt.passes for attempt in found.choice.chosen] == [1]
    assert chosen(plan(mop)) == {"tb/b": 1}, "a mop-up stands for its job"


def test_ceiling(tmp_path: Path, plan: Planner) -> None:
    job = HarborJob(tmp_path / "job")
    job.trial("tb/a", error=DEAD)
    parent = job.write()
    for number in range(1, CEILING + 1):
        assert chosen(plan(parent)) == {"tb/a": 1}, number
        mopped(parent, number, {"tb/a": DEAD}, job.began + number * HOUR)
    found = plan(parent)
    assert not found.jobs and [attempt.final for attempt in found.choice.left] == [True]
    assert "accepted as final: 3 mop-ups of it ended so too; --ceiling 4" in found.choice.left[0].why
    assert chosen(plan(parent, ceiling=4)) == {"tb/a": 1}
    assert chosen(plan(parent, ceiling=1)) == {}


def test_a_cancelled_mop_up_does_not_count_for_the_ceiling(tmp_path: Path, plan: Planner) -> None:
    job = HarborJob(tmp_path / "job")
    job.trial("tb/a", error=DEAD)
    parent = job.write()
    for number in range(1, 5):
        mopped(parent, number, {"tb/a": ("CancelledError", "")}, job.began + number * HOUR)
        put(tmp_path / f"job-mop-up-{number}" / "result.json", {"id": "x", "finished_at": None, "n_total_trials": 1})
    assert chosen(plan(parent)) == {"tb/a": 1}


def test_planned_and_never_begun(tmp_path: Path, plan: Planner) -> None:
    job = HarborJob(tmp_path / "job", attempts=2)
    for _ in range(2):
        for task in ("tb/a", "tb/b"):
            job.trial(task, 1.0, files=PASSED)
    path = job.write(finished=False)
    for gone in job.trials[2:]:
        for file in sorted(gone.rglob("*"), reverse=True):
            file.unlink() if file.is_file() else file.rmdir()
        gone.rmdir()
    found = plan(path)
    assert chosen(found) == {"tb/a": 1, "tb/b": 1}
    assert {attempt.cause for attempt in found.choice.chosen} == {MISSING}
    (path / "lock.json").unlink()
    found = plan(path)
    assert not found.jobs and found.lost == 2, "which tasks they are of, nothing tells"


def test_other_directories(tmp_path: Path, plan: Planner) -> None:
    job = HarborJob(tmp_path / "job")
    job.trial("tb/a", error=DEAD)
    job.trial("tb/b", error=DEAD)
    parent = job.write()
    again = HarborJob(tmp_path / "by-hand", began=job.began + HOUR)
    again.trial("tb/a", 1.0, files=PASSED)
    assert chosen(plan(parent, again.write())) == {"tb/b": 1}
    other = HarborJob(tmp_path / "other", model="openai/another", began=job.began + HOUR)
    other.trial("tb/a", 1.0, files=PASSED)
    with pytest.raises(UsageError, match="never merged"):
        plan(parent, other.write())


def test_families(tmp_path: Path, plan: Planner) -> None:
    job = HarborJob(tmp_path / "job")
    job.trial("tb/a", error=DEAD)
    parent = job.write()
    first = mopped(parent, 1, {"tb/a": DEAD}, job.began + HOUR)
    put(tmp_path / "job-mop-up-9" / FILE, json.loads((first / FILE).read_text()) | {"pass": 9})
    family = family_of(first)
    assert family.root == parent and family.paths == (parent, first) and family.passes == 9
    assert left_out([parent]) == (first,) and left_out([parent, first]) == ()
    assert plan(parent).jobs[0].path.name == "job-mop-up-10", "a number that something has is not given again"
    moved = tmp_path / "moved"
    moved.mkdir()
    for path in (parent, first):
        path.rename(moved / path.name)
    assert family_of(moved / "job").paths == (moved / "job", moved / "job-mop-up-1")
    put(moved / "job-mop-up-3" / FILE, "{")
    assert "no lineage file" in family_of(moved / "job").problems[0]
    (moved / "job").rename(tmp_path / "renamed")
    with pytest.raises(UsageError, match="which is not there any more"):
        family_of(moved / "job-mop-up-1")


def test_agents_of_one_job(tmp_path: Path, plan: Planner) -> None:
    """Two agents that lack the same tasks share a job; what only one of them lacks takes another."""
    job = HarborJob(tmp_path / "job")
    for name, dead in (("terminus-2", "a"), ("codex", "ab"), ("goose", "a")):
        job.agent = name
        for task in "ab":
            job.trial(f"tb/{task}", None if task in dead else 1.0, error=DEAD if task in dead else None, files=PASSED)
    agents = [{"name": name, "model_name": job.model, "kwargs": {}} for name in ("terminus-2", "codex", "goose")]
    path = job.write(config={"agents": agents})
    found = plan(path)
    said = {tuple(each["name"] for each in one.config["agents"]): (one.names, one.trials) for one in found.jobs}
    assert said == {("terminus-2", "goose"): ({"tb/a": 1}, 2), ("codex",): ({"tb/a": 1, "tb/b": 1}, 2)}
    put(path / "config.json", json.loads((path / "config.json").read_text()) | {"agents": [agents[0], agents[0]]})
    with pytest.raises(UsageError, match="one name and one model"):
        plan(path)
