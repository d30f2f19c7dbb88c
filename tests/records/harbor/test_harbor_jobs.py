"""The files of a job's directory itself, of every version, whole, unfinished, large and broken; and who works in it."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from harbor_jobs import BEGAN, HarborJob, put

from console.records.harbor import job_files, running
from console.records.harbor.jobs import read_job
from console.records.harbor.trials import read_trial

LOCKS = {"0.1.20": None, "0.1.45": None, "0.6.4": 1, "0.14.0": 1, "0.18.0": 2, "0.20.0": 2, "0.21.0": 3, "0.26.0": 3}


@pytest.mark.parametrize("version", LOCKS)
@pytest.mark.parametrize("finished", [True, False])
def test_each_version_says_the_same_of_the_same_job(tmp_path, version, finished):
    job = HarborJob(tmp_path / "named", version, attempts=5, concurrent=7)
    job.trial("a", 1.0)
    record = read_job(job.write(finished=finished, planned=25))
    assert (record.name, record.planned, record.attempts, record.concurrent) == ("named", 25, 5, 7)
    assert (record.finished, record.began, record.ended) == (finished, BEGAN, BEGAN + 86 if finished else None)
    assert record.lock_version == LOCKS[version] and record.harbor == (version if LOCKS[version] else "")
    assert record.config["agents"][0]["name"] == "terminus-2" and not record.running
    assert record.strays == record.problems == ()
    assert record.lock == {} if not LOCKS[version] else record.lock["n_trials"] == 1 and "trials" not in record.lock


def test_planned_trials_are_known_without_a_total(tmp_path):
    job = HarborJob(tmp_path / "job")
    for task in "abc":
        job.trial(task, 1.0)
    job.write()
    counts = {"n_completed_trials": 2, "n_running_trials": 1, "n_pending_trials": 4}
    put(job.path / "result.json", {"stats": counts})
    assert read_job(job.path).planned == 3
    (job.path / "lock.json").unlink()
    assert read_job(job.path).planned == 7
    put(job.path / "result.json", {"stats": {"n_trials": 2}})
    assert read_job(job.path).planned is None


@pytest.mark.parametrize("name", ["config.json", "result.json", "lock.json"])
@pytest.mark.parametrize("content", ["", "{", "[1]", '{"a": NaN}', "null", '{"stats": 3, "trials": 3, "agents": 3}'])
def test_a_broken_file_of_a_job_is_one_line(tmp_path, name, content):
    job = HarborJob(tmp_path / "job")
    job.trial("a", 1.0)
    job.write()
    put(job.path / name, content)
    record = read_job(job.path)
    assert len(record.problems) == (content in ("", "{"))
    assert all(f"{job.path}: {name} is" in line and "\n" not in line for line in record.problems)
    assert read_trial(job.path, job.trials[0]).rewards == {"reward": 1.0}


def test_a_lock_beyond_the_bound_still_tells_the_version(tmp_path, monkeypatch):
    job = HarborJob(tmp_path / "job", "0.22.1")
    for number in range(40):
        job.trial(f"task-{number}", 1.0)
    job.write()
    size = (job.path / "lock.json").stat().st_size
    monkeypatch.setattr(job_files, "LOCK_LIMIT", size - 1)
    monkeypatch.setattr(job_files, "_HEAD", size // 4)
    record = read_job(job.path)
    assert (record.harbor, record.lock_version) == ("0.22.1", 3) and "more than the" in record.problems[0]
    assert read_trial(job.path, job.trials[0]).harbor == "0.22.1"


def test_a_lock_that_changes_is_read_again(tmp_path):
    job = HarborJob(tmp_path / "job", "0.21.0")
    trial = job.trial("a", 1.0)
    job.write()
    assert read_trial(job.path, trial).harbor == "0.21.0"
    lock = json.loads((job.path / "lock.json").read_text())
    put(job.path / "lock.json", lock | {"harbor": {"version": "0.26.0"}, "more": 1})
    assert read_trial(job.path, trial).harbor == "0.26.0"


def test_secrets_of_a_lock_are_not_kept(tmp_path):
    job = HarborJob(tmp_path / "job", "0.6.4")
    job.trial("a", 1.0)
    job.write()
    lock = json.loads((job.path / "lock.json").read_text())
    command = [
        "harbor",
        "run",
        "--ak",
        "api_key=hunter2hunter2",
        "--ae",
        "OPENAI_API_KEY=hunter2hunter2",
        "--ak=token=hunter2x",
    ]
    put(job.path / "lock.json", lock | {"invocation": command})
    invocation = read_job(job.path).lock["invocation"]
    assert "hunter2" not in repr(invocation) and invocation[:4] == ["harbor", "run", "--ak", "api_key=[redacted]"]


HOLD = "import sys; log = open(sys.argv[1], 'a'); print('up', flush=True); sys.stdin.read()"


@pytest.mark.parametrize("finished", [False, True])
def test_a_job_runs_while_a_process_keeps_its_log(tmp_path, monkeypatch, finished):
    monkeypatch.setattr(running, "LOOK_SECONDS", 0)
    jobs = [HarborJob(tmp_path / name) for name in ("ours", "other")]
    for job in jobs:
        job.trial("a", 1.0)
        job.write(finished=finished)
    link = tmp_path / "link"
    link.symlink_to(jobs[0].path)
    command = [sys.executable, "-c", HOLD, str(link / "job.log")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout and process.stdout.readline() == b"up\n"
        assert [read_job(job.path).running for job in jobs] == [not finished, False]
        (tmp_path / "parent").symlink_to(tmp_path)
        assert read_job(tmp_path / "parent" / "ours").running is not finished
        process.communicate()
    assert not read_job(jobs[0].path).running
    with (jobs[0].path / "job.log").open() as reader:
        command[-2] = HOLD.replace("'a'", "'r'")
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
            assert process.stdout and process.stdout.readline() == b"up\n" and reader.readline()
            assert not read_job(jobs[0].path).running
            process.communicate()
