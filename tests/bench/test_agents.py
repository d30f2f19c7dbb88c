"""Which agent a trial is of that has no result: the one of the finished trials that were configured alike."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from harbor_jobs import HarborJob, put

from console.bench import looked
from console.bench.cache import DIRECTORY_VARIABLE
from console.bench.figures.tally import GroupTally, tally
from console.bench.mop_up.choice import Wish
from console.bench.mop_up.plan import make_plan
from console.bench.session import Session

TASKS = ("create", "copy", "rename", "delete")
MIXED = {"name": None, "import_path": "own_agents:Mixed"}
LOST = ("SandboxError", "the sandbox was not found")


@pytest.fixture(autouse=True)
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is kept between calls lies in the test's directory, and is kept at once."""
    monkeypatch.setenv(DIRECTORY_VARIABLE, str(tmp_path / "cache"))
    monkeypatch.setattr(looked, "SETTLED", -3600.0)


def own(path: Path, **job: Any) -> HarborJob:
    return HarborJob(path, agent="mixed", dataset="tasks", **job)


def killed(path: Path, done: int = 2, cut: int = 1, planned: int = 4, spec: Any = MIXED, **trial: Any) -> Path:
    """A job that was killed: its first trials are graded, the next are cut off, the rest never began."""
    made = own(path)
    for at, task in enumerate(TASKS[: done + cut]):
        made.trial(task, 1.0 if at < done else None, agent_config=spec, result=at < done, **trial)
    return made.write(finished=False, planned=planned, config={"agents": [{**made.job_config()["agents"][0], **spec}]})


def mop_up(path: Path, parent: Path, attempts: int = 1) -> HarborJob:
    path.mkdir()
    said = {"v": 1, "parent": {"path": str(parent)}, "attempts": dict.fromkeys(TASKS, attempts), "pass": 1}
    put(path / "quarterdeck-mop-up.json", said)
    return own(path, began=1_780_100_000.0, attempts=attempts)


def agents_of(*jobs: Path) -> set[tuple[str, str]]:
    return {(verdict.trial.agent, verdict.trial.model) for verdict in Session(jobs).judged()}


def only_group(*jobs: Path) -> GroupTally:
    session = Session(jobs)
    found = tally(session.judged(), session.jobs)
    (group,) = found.groups
    return group


def merged_notices(*jobs: Path) -> list[str]:
    session = Session(jobs)
    return [f"{one.code} {one.text}" for one in tally(session.judged(), session.jobs).notices]


MODEL = "openai/Qwen/Qwen3.8-27B-FP8"


def test_a_trial_that_was_cut_off_is_of_the_agent_of_its_job(tmp_path: Path) -> None:
    job = killed(tmp_path / "job")
    for _ in range(2):  # read, then out of what is kept
        assert agents_of(job) == {("mixed", MODEL)}
        group = only_group(job)
        assert (group.attempts, group.planned, group.missing) == (3, 4, 1)


def test_a_class_that_stands_as_the_name_is_one_too(tmp_path: Path) -> None:
    job = killed(tmp_path / "job", spec={"name": "own_agents:Mixed", "import_path": None})
    assert agents_of(job) == {("mixed", MODEL)}


def test_the_model_of_an_agent_that_brings_its_own(tmp_path: Path) -> None:
    assert agents_of(killed(tmp_path / "job", spec=MIXED | {"model_name": None})) == {("mixed", MODEL)}


def test_a_trial_without_its_configuration_is_told_by_its_lock(tmp_path: Path) -> None:
    job = killed(tmp_path / "job")
    (cut,) = [path.parent for path in job.glob("*/trial.log") if not (path.parent / "result.json").exists()]
    (cut / "config.json").write_text('{"task": {"pa')
    assert agents_of(job) == {("mixed", MODEL)}
    assert only_group(job).attempts == 3


def test_agents_of_one_job_are_told_apart(tmp_path: Path) -> None:
    made = own(tmp_path / "job")
    other = {"name": None, "import_path": "own_agents:Other"}
    for task in TASKS[:2]:
        made.trial(task, 1.0, agent_config=MIXED)
        made.trial(task, 1.0, agent_config=other, patch={"agent_info": {"name": "other", "version": "1"}})
    cut = [made.trial(TASKS[2], agent_config=spec, result=False) for spec in (MIXED, other)]
    base = made.job_config()["agents"][0]
    job = made.write(finished=False, planned=8, config={"agents": [base | MIXED, base | other]})
    names = {verdict.trial.path: verdict.trial.agent for verdict in Session([job]).judged()}
    assert [names[path] for path in cut] == ["mixed", "other"]
    session = Session([job])
    groups = tally(session.judged(), session.jobs).groups
    assert [(group.agent, group.attempts, group.planned) for group in groups] == [("mixed", 3, 4), ("other", 3, 4)]


def test_an_agent_that_left_nothing_is_told_and_mopped_up(tmp_path: Path) -> None:
    made = own(tmp_path / "job")
    other = {"name": None, "import_path": "own_agents:Other"}
    for task in TASKS[:2]:
        made.trial(task, 1.0, agent_config=MIXED)
    gone = [made.trial(task, agent_config=other, result=False) for task in TASKS[:2]]  # in the lock they stay
    base = made.job_config()["agents"][0]
    job = made.write(finished=False, config={"agents": [base | MIXED, base | other]})
    assert not [one for one in merged_notices(job) if one.startswith("merge.agents")]
    for path in gone:
        shutil.rmtree(path)
    assert only_group(job).planned == 2
    assert any("1 agent of the 2 of job" in one for one in merged_notices(job))
    plan = make_plan([job], Wish())
    assert [(one.short, one.agent, one.cause) for one in plan.choice.chosen] == [
        (task, 1, "missing") for task in TASKS[:2]
    ]


def test_an_option_that_names_the_agent_tells_two_of_one_class_apart(tmp_path: Path) -> None:
    made = own(tmp_path / "job")
    for kind in ("fast", "slow"):
        said = {"agent_info": {"name": kind, "version": "1"}}
        made.trial(TASKS[0], 1.0, agent_config=MIXED, kwargs={"kind": kind}, patch=said)
        made.trial(TASKS[1], agent_config=MIXED, kwargs={"kind": kind}, result=False)
    made.trial(TASKS[2], agent_config=MIXED, kwargs={"kind": "third"}, result=False)
    job = made.write(finished=False)
    found = [verdict.trial.agent for verdict in Session([job]).judged() if verdict.trial.problem]
    assert sorted(found) == ["fast", "own_agents:Mixed", "slow"]  # nothing tells the third


def test_a_job_in_which_nothing_finished_is_told_by_its_mop_up(tmp_path: Path) -> None:
    parent = killed(tmp_path / "job", done=0, cut=4)
    assert agents_of(parent) == {("own_agents:Mixed", MODEL)}
    again = mop_up(tmp_path / "job-mop-up-1", parent)
    for task in TASKS:
        again.trial(task, 1.0, agent_config=MIXED, kwargs={"api_base": "http://elsewhere"})
    again.write()
    for jobs in ((parent, again.path), (again.path, parent)):
        assert agents_of(*jobs) == {("mixed", MODEL)}
        group = only_group(*jobs)
        assert (group.attempts, group.planned, len(group.tasks)) == (4, 4, 4)
        assert group.modes[0].numerator == 4


def test_a_mop_up_makes_no_attempts_that_its_parent_did_not_plan(tmp_path: Path) -> None:
    parent = killed(tmp_path / "job", done=1, cut=1)
    again = mop_up(tmp_path / "job-mop-up-1", parent, attempts=2)
    for task in (TASKS[1], TASKS[1], TASKS[2], TASKS[2]):  # the second one never left anything in the parent
        again.trial(task, 1.0, agent_config=MIXED)
    again.write()
    group = only_group(parent, again.path)
    assert (group.attempts, group.planned, group.missing, group.again) == (3, 4, 1, 2)


def test_a_mop_up_chooses_nothing_that_is_done_and_counts_tries_without_a_result(tmp_path: Path) -> None:
    parent = killed(tmp_path / "job")
    for number in (1, 2):
        again = mop_up(tmp_path / f"job-mop-up-{number}", parent)
        put(again.path / "quarterdeck-mop-up.json", {"v": 1, "parent": {"path": str(parent)}, "pass": number})
        again.trial(TASKS[3], 1.0 if number == 1 else None, error=None if number == 1 else LOST, agent_config=MIXED)
        again.trial(TASKS[2], agent_config=MIXED, error=LOST, result=False)
        again.write(finished=False)
    plan = make_plan([parent], Wish())
    (chosen,) = plan.choice.chosen
    assert (chosen.short, chosen.tries, chosen.passes) == (TASKS[2], 3, 2)
    assert (plan.choice.standing, plan.choice.left, plan.lost) == (3, (), 0)
    assert make_plan([parent], Wish(ceiling=2)).choice.chosen == ()
    run = put(tmp_path / "job-mop-up-1.run" / "run.json", "{}").parent
    (run / "journal").mkdir()
    everything = sorted(path for path in tmp_path.iterdir() if path.name.startswith("job"))
    assert run in everything and make_plan(everything, Wish()).choice == plan.choice


def test_what_is_kept_does_not_outlive_what_other_trials_tell(tmp_path: Path) -> None:
    job = killed(tmp_path / "job", done=0, cut=2)
    assert agents_of(job) == {("own_agents:Mixed", MODEL)}
    late = own(tmp_path / "late")
    trial = late.trial(TASKS[3], 1.0, agent_config=MIXED)
    trial.rename(job / trial.name)
    assert agents_of(job) == {("mixed", MODEL)}
    (job / trial.name / "result.json").write_text(json.dumps({"trial_name": trial.name, "config": {}}))
    assert ("own_agents:Mixed", MODEL) in agents_of(job)
