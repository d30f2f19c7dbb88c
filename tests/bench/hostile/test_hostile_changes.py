"""Directories that change while they are read, and one that is full of what is no trial."""

from __future__ import annotations

import json
import os
import shutil
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from harbor_jobs import HarborJob, put

from console.bench import looked, session
from console.bench.cache import DIRECTORY_VARIABLE
from console.cli import run
from console.records.harbor import trials as reading

PASSED = {"verifier/test-stdout.txt": "== 3 passed in 0.1s ==\n"}
Shell = Callable[..., tuple[int, str, str]]


@pytest.fixture
def shell(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Shell:
    """Runs a command line of `bench`: exit code, standard output, standard error."""
    monkeypatch.setenv(DIRECTORY_VARIABLE, str(tmp_path / "cache"))
    monkeypatch.setattr(looked, "SETTLED", -3600.0)

    def call(*argv: object) -> tuple[int, str, str]:
        capsys.readouterr()
        code = run(["bench", *map(str, argv)])
        said = capsys.readouterr()
        return code, said.out, said.err

    return call


@pytest.fixture
def job(tmp_path: Path) -> HarborJob:
    made = HarborJob(tmp_path / "job")
    for at in range(4):
        made.trial(f"org/{at}", 1.0, files=PASSED)
    made.write()
    return made


def verdicts(out: str) -> list[tuple[str, str]]:
    return [(row["class"], row["cause"]) for row in map(json.loads, out.splitlines())]


@pytest.mark.parametrize("moment", ["looked at", "opened", "read"])
def test_a_trial_that_vanishes_is_one_finding_and_not_kept(
    shell: Shell, job: HarborJob, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    gone = sorted(job.trials)[1]
    aside = gone.parent.parent / "aside"

    def vanish() -> None:
        if gone.exists():
            shutil.move(gone, aside)

    def before(part: Any) -> Callable[..., Any]:
        def instead(*args: Any) -> Any:
            if Path(args[-1]) == gone:
                vanish()
            return part(*args)

        return instead

    def after(part: Any) -> Callable[..., Any]:
        def instead(*args: Any) -> Any:
            found = part(*args)
            vanish()
            return found

        return instead

    places = {
        "looked at": (session, "look", before),
        "opened": (session, "read_trial", before),
        "read": (reading, "_result", after),
    }
    where, name, when = places[moment]
    if moment == "read":  # the first trial's result stands for the time at which the second goes
        gone = sorted(job.trials)[0]
    for command in (["triage", job.path, "--json"], ["tally", job.path, "--json"], ["triage", job.path]):
        with monkeypatch.context() as patched:
            patched.setattr(where, name, when(getattr(where, name)))
            code, out, _ = shell(*command)
            assert code == 0 and not gone.exists()
            if command[0] == "triage" and "--json" in command:
                expected = [("completed", "")] * 4
                if moment != "read":
                    expected[1] = ("unreadable", "permission")
                assert verdicts(out) == expected
        # An answer that rests on a trial which is no longer there is not given again.
        there = [shell(*command), shell(*command, "--no-cache")]
        assert there[0] == there[1] and there[0][1] != out
        shutil.move(aside, gone)


def test_a_job_that_grows_is_answered_as_far_as_it_was_seen(
    shell: Shell, job: HarborJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    def grow(trial: Any, *rest: Any) -> Any:
        late = job.path / "late__abcdefg"
        if not late.exists():
            shutil.copytree(job.trials[0], late)
        with (trial.path / "agent.txt").open("a") as file:
            file.write("and on\n")
        return judge(trial, *rest)

    judge = session.judge
    for command in (["tally", job.path, "--json"], ["triage", job.path], ["triage", job.path, "--json"]):
        shell("cache", "--clear")
        with monkeypatch.context() as patched:
            patched.setattr(session, "judge", grow)
            code, during, _ = shell(*command, *(["--no-cache"] if "--json" in command else []))
            assert code == 0
        kept, anew = shell(*command), shell(*command, "--no-cache")
        assert kept == anew and kept[0] == 0 and kept[1] != during
        shutil.rmtree(job.path / "late__abcdefg")


def test_a_job_whose_own_files_change_is_read_again(
    shell: Shell, job: HarborJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    def plan_more(*args: Any) -> Any:
        result = json.loads((job.path / "result.json").read_text())
        put(job.path / "result.json", result | {"n_total_trials": 20})
        return judge(*args)

    judge = session.judge
    with monkeypatch.context() as patched:
        patched.setattr(session, "judge", plan_more)
        assert json.loads(shell("tally", job.path, "--json")[1])["groups"][0]["planned"] == 4
    assert json.loads(shell("tally", job.path, "--json")[1])["groups"][0]["planned"] == 20


@pytest.fixture
def churning(open_dir: Path) -> Iterator[Path]:
    """A job in which trials come, go, and are written, all the time."""
    job = HarborJob(open_dir / "churning")
    for at in range(60):
        job.trial(f"org/{at}", float(at % 2), files={**PASSED, "agent/agent.txt": "a line\n" * 2000})
    job.write()
    whole = (job.trials[0] / "result.json").read_bytes()
    stop = threading.Event()

    def churn() -> None:
        number = 0
        while not stop.is_set():
            number += 1
            trial = job.trials[number % 60]
            shutil.rmtree(trial, ignore_errors=True)
            for name in ("config.json", "trial.log", "agent/agent.txt"):
                put(trial / name, whole if name == "config.json" else "x\n" * 5000)
            put(trial / "result.json", whole[: number * 37 % len(whole)])
            put(trial / "result.json", whole)
            put(job.path / "result.json", b'{"n_total_trials": 60, "stats": ' + b" " * (number % 3))

    thread = threading.Thread(target=churn)
    thread.start()
    yield job.path
    stop.set()
    thread.join()


def test_a_job_in_full_motion_is_answered_every_time(churning, bounded):
    commands = [
        ["triage", churning, "--json"],
        ["triage", churning],
        ["tally", churning],
        ["compare", churning, churning],
    ]
    for answer in bounded(*commands * 5):
        assert answer.code == 0 and "Traceback" not in answer.err, answer
        assert [char for char in answer.out + answer.err if not char.isprintable() and char != "\n"] == []


def test_ten_thousand_entries_that_are_no_trials(open_dir, bounded):
    job = HarborJob(open_dir / "full")
    job.trial("org/a", 1.0, files=PASSED)
    job.write()
    for at in range(2500):
        os.mkdir(job.path / f"\x1b[2J{at}\n\u202e")
        (job.path / f"link{at}__abcdefg").symlink_to("..")
        put(job.path / f"file{at}__abcdefg", "")
        put(job.path / f"model{at}" / "config.json", '{"architectures": ["Bert"]}')
    for answer in bounded(
        ["triage", job.path], ["tally", job.path], ["triage", job.path, "--json"], ["triage", open_dir / "full"]
    ):
        answer.check()
        assert answer.err.count("\n") <= 25 and "more than 100 entries that are no trials" in answer.err
    assert len(answer.out.splitlines()) < 20 and "1 of 1 planned trial" in answer.out
