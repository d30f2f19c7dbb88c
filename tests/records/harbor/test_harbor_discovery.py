"""What a user may name, and what lies around: job directories and their trials are found, each once."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import pytest
from harbor_jobs import HarborJob, put, tree_hash, unprivileged

from console.errors import UsageError
from console.records.harbor import discovery
from console.records.harbor.discovery import find_jobs, kind_of, trials_of
from console.records.harbor.evidence import agent_texts
from console.records.harbor.files import shown
from console.records.harbor.jobs import read_job
from console.records.harbor.trials import read_trial


def make(path: Path, trials: int = 2, version: str = "0.26.0", **kwargs) -> HarborJob:
    job = HarborJob(path, version, **kwargs)
    for number in range(trials):
        job.trial(f"task-{number}", 1.0)
    job.write()
    return job


@pytest.fixture
def open_dir() -> Iterator[Path]:
    """A directory that every user may enter, other than pytest's."""
    path = Path(tempfile.mkdtemp())
    path.chmod(0o755)
    yield path
    for inner in path.rglob("*"):
        if inner.is_dir() and not inner.is_symlink():
            inner.chmod(0o755)
    shutil.rmtree(path)


@pytest.mark.parametrize("version", ["0.1.20", "0.6.4", "0.20.0", "0.26.0"])
def test_jobs_lie_flat_or_nested(tmp_path, version):
    places = ("flat", "2026-05/01/first", "2026-05/02/second", "by-model/qwen/a/b/deep")
    jobs = [make(tmp_path / place, version=version).path for place in places]
    assert kind_of(jobs[0]) == "job" and kind_of(next(trials_of(jobs[0]))) == "trial"
    found = find_jobs([tmp_path])
    assert set(found.jobs) == set(jobs) and found.problems == () and found.only == {}
    assert [sum(1 for _ in found.trials_of(job)) for job in found.jobs] == [2] * 4
    assert find_jobs([jobs[2], jobs[0]]).jobs == (jobs[2], jobs[0])


def test_a_job_that_lost_its_own_files_is_still_one(tmp_path):
    path = make(tmp_path / "job").path
    for name in ("config.json", "result.json", "lock.json", "job.log"):
        (path / name).unlink()
    assert find_jobs([path]).jobs == find_jobs([tmp_path]).jobs == (path,)
    assert read_job(path).planned is None and read_job(path).problems == ()


def test_a_job_is_known_by_the_first_lines_of_files_that_are_cut_off(tmp_path):
    path = make(tmp_path / "job").path
    for name in ("config.json", "result.json"):
        (path / name).write_bytes((path / name).read_bytes()[:200])
    assert kind_of(path) == "job" and find_jobs([tmp_path]).jobs == (path,)
    assert len(read_job(path).problems) == 2


def test_a_jobs_result_that_holds_its_trials_is_a_jobs(tmp_path):
    job = make(tmp_path / "job")
    (job.path / "config.json").unlink()
    result = json.loads((job.path / "result.json").read_text())
    put(job.path / "result.json", result | {"trial_results": [{"task_name": "a", "trial_name": "b"}]})
    assert kind_of(job.path) == "job" and find_jobs([tmp_path]).jobs == (job.path,)


def test_what_is_named_twice_counts_once_and_is_told(tmp_path):
    job = make(tmp_path / "jobs" / "a")
    link = tmp_path / "link"
    link.symlink_to(job.path)
    for paths in ([job.path, job.path], [link, job.path], [job.path, tmp_path / "jobs"]):
        found = find_jobs(paths)
        assert found.jobs == (job.path,) and [line.split(": ")[1] for line in found.problems] == [
            "named twice; it counts once"
        ]
    found = find_jobs([job.trials[0], job.path])
    assert found.jobs == (job.path,) and found.only == {} and "some of its trials beside it" in found.problems[0]


def test_single_trials_may_be_named(tmp_path):
    job = make(tmp_path / "job", trials=3)
    found = find_jobs([job.trials[1], job.trials[0], job.trials[1]])
    assert found.jobs == (job.path,) and list(found.trials_of(job.path)) == [job.trials[1], job.trials[0]]
    assert len(found.problems) == 1 and "named twice" in found.problems[0]


def test_what_agents_leave_behind_is_no_trial(tmp_path):
    job = make(tmp_path / "job", trials=1)
    decoy = job.trials[0] / "artifacts" / "app" / "final_model"
    put(decoy / "config.json", {"architectures": ["Bert"]})
    put(decoy / "result.json", {"task_name": "x", "trial_name": "y"})
    put(job.path / "notes" / "config.json", {"model": "x"})
    put(job.path / "notes" / "todo.txt", "later")
    put(job.path / "mop-up" / "config.json", {"job_name": "inner", "jobs_dir": "."})
    (job.path / "mop-up" / "agent").mkdir()
    put(job.path / "report.txt", "x")
    put(job.path / "quarterdeck-mop-up.json", {"v": 1})
    assert list(trials_of(job.path)) == job.trials and find_jobs([tmp_path]).jobs == (job.path,)
    record = read_job(job.path)
    assert record.strays == ("mop-up", "notes", "report.txt")
    assert [line for line in record.problems if "mop-up: a job of its own" in line] == list(record.problems)


def test_half_written_trials_are_trials(tmp_path):
    job = make(tmp_path / "job", trials=0)
    names = []
    for number, files in enumerate(
        [{"config.json": '{"trial_name": "a"'}, {"result.json": ""}, {"exception.txt": "x"}, {"trial.log": ""}, {}]
    ):
        names.append(f"task__aB3dE5{number}")
        (job.path / names[-1]).mkdir()
        for name, content in files.items():
            put(job.path / names[-1] / name, content)
    (job.path / "empty").mkdir()
    assert sorted(trial.name for trial in trials_of(job.path)) == names
    assert {read_trial(job.path, trial).problem for trial in trials_of(job.path)} == {"incomplete", "corrupt"}
    assert read_job(job.path).strays == ("empty",)


@pytest.mark.parametrize("what", ["nothing", "a file", "empty", "a link to itself", "inside a trial", "no path"])
def test_a_path_without_a_trial_is_refused_in_one_line(tmp_path, what):
    job = make(tmp_path / "job", trials=1)
    path = tmp_path / "odd\nname"
    if what == "a file":
        path.write_text("x")
    elif what == "empty":
        path.mkdir()
    elif what == "a link to itself":
        path.symlink_to(path)
    elif what == "inside a trial":
        path = put(job.trials[0] / "artifacts" / "odd\nname" / "x" / "config.json", "{}").parent.parent
    elif what == "no path":
        path = Path("odd\nname\0")
    with pytest.raises(UsageError) as refused:
        find_jobs([job.path, path])
    assert "odd\\nname" in str(refused.value) and "\n" not in str(refused.value) and "\0" not in str(refused.value)
    if what in ("a file", "empty", "inside a trial"):
        assert "one directory for each trial" in str(refused.value)


def test_no_link_below_what_is_named_is_followed(tmp_path):
    outside = make(tmp_path / "outside" / "job")
    jobs = tmp_path / "jobs"
    job = make(jobs / "job", trials=1)
    (jobs / "latest").symlink_to(outside.path)
    (jobs / "loop").symlink_to(jobs)
    (jobs / "self").symlink_to("self")
    (job.path / "stolen__aB3dE5f").symlink_to(outside.trials[0])
    found = find_jobs([jobs])
    assert found.jobs == (job.path,) and list(trials_of(job.path)) == job.trials
    assert [line.split(": ", 1) for line in sorted(found.problems)] == [
        [str(jobs / name), "a link, which is not followed; name it to read it"] for name in ("latest", "loop")
    ]
    assert read_job(job.path).problems == (f"{job.path}/stolen__aB3dE5f: a link, which is not followed",)
    assert find_jobs([jobs / "latest"]).jobs == (outside.path,)
    assert read_trial(job.path, job.path / "stolen__aB3dE5f").problem == "unreadable"


def test_files_of_a_trial_that_are_links_or_pipes_are_not_read(tmp_path):
    job = make(tmp_path / "job", trials=2)
    for trial, harmful in zip(job.trials, (lambda path: path.symlink_to("/etc/passwd"), os.mkfifo)):
        for name in ("result.json", "config.json", "lock.json", "exception.txt", "verifier/reward.txt"):
            (trial / name).unlink(missing_ok=True)
            harmful(trial / name)
        record = read_trial(job.path, trial)
        assert record.problem == "unreadable" and "no regular file" in record.problem_text
        assert record.errors == () and record.reward_file is None and record.task == ""
    (job.path / "config.json").unlink()
    (job.path / "config.json").symlink_to("/etc/passwd")
    assert "config.json is no regular file" in read_job(job.path).problems[0]


def test_the_search_is_bounded_and_says_so(tmp_path, monkeypatch):
    make(tmp_path / "/".join("abcdefgh"))
    with pytest.raises(UsageError, match="not searched further down than 6 levels"):
        find_jobs([tmp_path])
    monkeypatch.setattr(discovery, "DIRECTORIES", 20)
    for number in range(30):
        (tmp_path / "many" / str(number) / "x").mkdir(parents=True)
    make(tmp_path / "job")
    found = find_jobs([tmp_path])
    assert found.jobs == (tmp_path / "job",) and any("more than 20 directories" in line for line in found.problems)


def test_what_may_not_be_read_is_told_and_the_rest_is_read(open_dir):
    jobs = open_dir / "jobs"
    job = make(jobs / "open", trials=3)
    closed = make(jobs / "shut")
    (jobs / "private").mkdir(mode=0o700)
    (jobs / "old__aB3dE5f").mkdir(mode=0o700)
    put(job.path / "mine" / "x.txt", "x").parent.chmod(0o700)
    job.trials[0].chmod(0o700)
    (job.trials[1] / "result.json").chmod(0o600)
    (job.path / "lock.json").chmod(0o600)
    closed.path.chmod(0o700)

    def look():
        found = find_jobs([jobs])
        records = [read_trial(job.path, trial) for trial in found.trials_of(job.path)]
        told = {record.path.name: (record.problem, record.problem_text) for record in records}
        return found.jobs, found.problems, told, read_job(job.path)

    if os.getuid():  # whom no other user's permissions bind is bound by his own
        for path in (
            jobs / "private",
            jobs / "old__aB3dE5f",
            job.path / "mine",
            job.trials[0],
            closed.path,
            job.path / "lock.json",
        ):
            path.chmod(0)
        (job.trials[1] / "result.json").chmod(0)
    found, problems, told, record = unprivileged(look)
    assert found == (job.path,)
    assert problems == tuple(
        f"{jobs / name} cannot be read: permission denied" for name in ("old__aB3dE5f", "private", "shut")
    )
    assert told == {
        job.trials[0].name: ("unreadable", "the directory cannot be read: permission denied"),
        job.trials[1].name: ("unreadable", "result.json cannot be read: permission denied"),
        job.trials[2].name: ("", ""),
    }
    assert record.strays == ("mine",) and record.planned == 3
    assert sorted(record.problems) == [
        f"{job.path / 'mine'}: cannot be read: permission denied",
        f"{job.path}: lock.json cannot be read: permission denied",
    ]


def test_names_are_told_on_one_line_and_can_be_encoded(tmp_path):
    odd = os.fsdecode(b"od\xffd\n\x1b[31m\xe2\x80\xaejob")
    job = make(tmp_path / odd, trials=0)
    name = os.fsdecode(b"tas\xfek\n__aB3dE5f")
    (job.path / name).mkdir()
    (job.path / os.fsdecode(b"stray\x1b\xfe")).mkdir()
    found = find_jobs([tmp_path, job.path])
    assert found.jobs == (job.path,)
    record, of_job = read_trial(job.path, job.path / name), read_job(job.path)
    assert record.name == "tas\\udcfek\\n__aB3dE5f" and of_job.strays == ("stray\\x1b\\udcfe",)
    for line in (*found.problems, record.name, *of_job.strays):
        assert line.isprintable()
        line.encode()
    assert of_job.name.encode().startswith(b"od\\udcffd")
    assert shown("x" * 1000) == "…" + "x" * 299


@pytest.mark.parametrize("count", [20_000])
def test_trials_are_a_stream(tmp_path, count):
    job = HarborJob(tmp_path / "job")
    job.trial("first", 1.0)
    result = (job.trials[0] / "result.json").read_bytes()
    job.write()
    for number in range(count - 1):
        trial = f"{job.path}/task__{number:07}"
        os.mkdir(trial)
        with open(f"{trial}/trial.log", "xb"):
            pass
        if number % 10 == 0:
            with open(f"{trial}/result.json", "xb") as file:
                file.write(result)
    read_trial(job.path, job.trials[0])
    tracemalloc.start()
    seen = good = 0
    for trial in find_jobs([tmp_path]).trials_of(job.path):
        seen += 1
        good += read_trial(job.path, trial).problem == ""
    read_job(job.path)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert (seen, good) == (count, count // 10 + 1) and peak < 8 << 20


def test_nothing_is_written(tmp_path):
    job = make(tmp_path / "jobs" / "job", trials=2)
    job.trial("late", error="SandboxError", result=False)
    put(job.trials[0] / "result.json", "{")
    (job.path / "loop").symlink_to("..")
    before = tree_hash(tmp_path)
    found = find_jobs([tmp_path / "jobs"])
    for path in found.jobs:
        read_job(path)
        for trial in found.trials_of(path):
            read_trial(path, trial)
            agent_texts(trial)
    assert tree_hash(tmp_path) == before
    put(job.trials[0] / "result.json", "[")
    assert tree_hash(tmp_path) != before


def run_directory(path):
    put(path / "run.json", {"schema": 1})
    put(path / "journal" / "000000000001.jsonl.zst", b"x")
    put(path / "options.json", {"job": {"job_name": "a"}})
    return path


def test_directories_of_runs_that_a_shells_pattern_names_too_are_left_out_and_told(tmp_path):
    job = HarborJob(tmp_path / "a")
    job.trial("org/x", 1.0)
    job.write()
    runs = [run_directory(tmp_path / f"a.run{end}") for end in ("", "-2", "-3", "-4", "-5")]
    found = find_jobs([job.path, *runs])
    assert found.jobs == (job.path,)
    assert found.problems == (f"{', '.join(map(str, runs[:4]))} and 1 more: directories of runs, no jobs'; left out",)
    assert find_jobs([runs[0], job.trials[0]]).problems == (f"{runs[0]}: the directory of a run, no job's; left out",)
    with pytest.raises(UsageError, match=r"a\.run is the directory of a run, not of its job: name .*/a$"):
        find_jobs([runs[0]])
    with pytest.raises(UsageError, match="name the directory that holds the trials"):
        find_jobs([run_directory(tmp_path / "other")])
    with pytest.raises(UsageError, match="holds no trial"):
        find_jobs([job.path, put(tmp_path / "b" / "run.json", "{}").parent])


def test_trials_in_the_directory_of_a_run_are_found(tmp_path):
    run = run_directory(tmp_path / "run")
    job = HarborJob(run / "trials")
    job.trial("org/x", 1.0)
    job.write()
    assert find_jobs([run]).jobs == (job.path,)
