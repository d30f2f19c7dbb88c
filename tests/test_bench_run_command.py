"""`quarterdeck bench run` as a shell sees it: what it would do, what it refuses, and a real run of a bundled job."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from harbor_jobs import tree_hash

from console.bench.lineage import FILE
from console.cli import run
from console.commands.bench_run_help import _INSTEAD
from console.resources import tasks_dir

SECRET = "sk-proj-abcdefghijkl0123456789"
JOB = f"""\
job_name: told
n_concurrent_trials: 2
agents:
  - name: oracle
    env:
      OPENAI_API_KEY: {SECRET}
environment:
  import_path: console.trials.bwrap:BwrapEnvironment
datasets:
  - path: {tasks_dir()}
    task_names: [note-write, note-trail]
"""

Shell = Callable[..., tuple[int, str, str]]


@pytest.fixture
def shell(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Shell:
    """Runs a command line of `bench run`, in a directory of its own: exit code, standard output, standard error."""
    monkeypatch.chdir(tmp_path)

    def call(*argv: object) -> tuple[int, str, str]:
        capsys.readouterr()
        code = run(["bench", "run", *map(str, argv)])
        said = capsys.readouterr()
        return code, said.out, said.err

    return call


def test_a_check_tells_what_would_run_and_where_and_starts_nothing(shell: Shell, tmp_path: Path) -> None:
    code, out, err = shell("local", "-k", 3, "-i", "note-*", "-x", "note-rename", "-n", 1, "--job-name", "j", "--check")
    said = " ".join(out.split())
    assert (code, err) == (0, "")
    assert "9 trials: 3 tasks x 3 attempts, 1 at once" in said
    assert "note-delete, note-trail, note-write" in said
    assert "lasts at most 9 min" in said
    assert f"job dir {tmp_path}/jobs/j run dir {tmp_path}/jobs/j.run" in said
    assert list(tmp_path.iterdir()) == []


def test_a_check_in_json_has_findings_and_plan(shell: Shell, tmp_path: Path) -> None:
    code, out, _ = shell("local", "-o", ".", "n_concurrent=1", "-l", 2, "--check", "--json")
    body = json.loads(out)
    assert (code, body["ok"]) == (2, False)
    assert [(found["code"], found["object"]) for found in body["findings"]] == [("bench.unknown_field", "n_concurrent")]
    assert body["plan"]["tasks"] == 2
    assert Path(body["plan"]["job_dir"]).parent == tmp_path
    assert body["plan"]["run_dir"] == body["plan"]["job_dir"] + ".run"


def test_all_mistakes_are_told_at_once(shell: Shell) -> None:
    code, out, _ = shell("mini-swe-agent-hf", "agent.kwargs.api_base=http://h/v1", "retry.max_retries=3", "--check")
    assert code == 2
    told = {line.split()[1] for line in out.splitlines() if line.startswith(("error", "warning"))}
    assert {"bench.wiring", "bench.retries", "bench.placeholder"} <= told


def test_a_type_that_an_import_path_makes_nothing_of_is_refused_and_null_takes_the_path_away(shell: Shell) -> None:
    code, out, _ = shell("local", "environment.type=docker", "--check", "--json")
    body = json.loads(out)
    assert (code, [found["code"] for found in body["findings"]]) == (2, ["bench.chosen_twice"])
    _, out, _ = shell("local", "environment.type=docker", "environment.import_path=null", "--check", "--json")
    body = json.loads(out)
    assert body["plan"]["environment"] == "docker"
    assert "bench.chosen_twice" not in {found["code"] for found in body["findings"]}


def test_a_password_in_the_file_is_not_shown(shell: Shell) -> None:
    code, out, err = shell("local", "dataset.path=null", "dataset.repo=https://user:word@host/set", "--check")
    assert code == 2 and "bench.secret_in_clear" in out
    assert "word" not in out.replace("password", "") + err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "name a job file"),
        (("nothing",), "nothing: there is no such job file; bundled ones:"),
        (("local", "n_attempts"), "is no KEY=VALUE"),
        (("local", "--json"), "--json goes with --check"),
        (("local", "--detach", "--plain"), "--plain: not allowed with argument --detach"),
        (("local", "--plain", "--headless"), "--headless: not allowed with argument --plain"),
        (("local", "--plain", "n_attempts=x"), "n_attempts: Harbor 0.26"),
        (("local", "--plain", "--continue"), "--continue: which job?"),
        (("local", "--plain", "--continue", "--job-name", "j"), "there is no such job to go on with"),
        (("local", "--plain", "--run-dir", "jobs/j/run", "--job-name", "j"), "--run-dir:"),
        (("local", "--throttle", "much"), "invalid choice: 'much'"),
        (("local",), "no terminal|not a terminal|terminal"),
        (("local", "datasets=null", "-i", "x"), "--include-task-name: the job has no datasets"),
    ],
)
def test_a_mistake_is_one_line_and_leaves_nothing(
    shell: Shell, tmp_path: Path, words: tuple[str, ...], said: str
) -> None:
    import re

    code, out, err = shell(*words)
    assert (code, out) == (2, "")
    assert re.search(said, err) and err.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("word", sorted(set(_INSTEAD) - {"--yes"}))
def test_an_option_of_harbor_run_is_answered_with_what_to_write(shell: Shell, word: str) -> None:
    code, _, err = shell("local", word, "x", "--plain")
    assert code == 2
    assert f"; here it is {_INSTEAD[word]}" in err


def test_the_help_names_bundled_jobs_findings_and_published_figures(
    shell: Shell, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        run(["bench", "run", "--help"])
    said = " ".join(capsys.readouterr().out.split())
    for words in (
        "37.98 % (169/445)",
        "24.6 % +- 3.2",
        "not comparable",
        "3 h 6 min",
        "ratio 11.01",
        "l40s",
        "KEY=VALUE",
    ):
        assert words.lower() in said.lower()
    code, out, _ = shell("--list")
    assert code == 0 and {line.split()[0] for line in out.splitlines()} >= {"local", "smoke", "e2b"}


class Ran(NamedTuple):
    """A directory in which the job has run once: the answer, and where everything lies."""

    root: Path
    done: subprocess.CompletedProcess[str]

    def again(self, *words: str) -> subprocess.CompletedProcess[str]:
        return command(self.root, *words)


def command(root: Path, *words: str) -> subprocess.CompletedProcess[str]:
    line = [sys.executable, "-m", "console", "bench", "run", str(root / "job.yaml"), *words]
    return subprocess.run(line, cwd=root, capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=150)


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Ran:
    root = tmp_path_factory.mktemp("ran")
    (root / "job.yaml").write_text(JOB)
    return Ran(root, command(root, "--headless"))


def test_a_bundled_sandbox_runs_a_job_to_its_end(ran: Ran) -> None:
    assert ran.done.returncode == 0, ran.done.stderr
    lines = [json.loads(line) for line in ran.done.stdout.splitlines()]
    assert lines[-1]["type"] == "done" and lines[-1]["exit_code"] == 0
    assert f"job directory {ran.root}/jobs/told\n" in ran.done.stderr
    assert f"run directory {ran.root}/jobs/told.run\n" in ran.done.stderr
    rewards = [json.loads(path.read_text())["verifier_result"] for path in ran.root.glob("jobs/told/*/result.json")]
    assert rewards == [{"rewards": {"reward": 1.0}}] * 2


def test_a_key_that_stood_in_the_file_is_in_no_other(ran: Ran) -> None:
    assert "bench.literal_secret" not in ran.done.stdout and "holds a secret in clear" in ran.done.stderr
    assert SECRET not in ran.done.stdout + ran.done.stderr
    holders = [
        path
        for path in ran.root.rglob("*")
        if path.is_file() and path.name != "job.yaml" and SECRET.encode() in path.read_bytes()
    ]
    assert holders == []
    config = json.loads((ran.root / "jobs/told/config.json").read_text())
    assert config["agents"][0]["env"] == {"OPENAI_API_KEY": "${OPENAI_API_KEY}"}


def test_a_job_that_is_there_is_refused_and_untouched(ran: Ran) -> None:
    before = tree_hash(ran.root / "jobs/told")
    done = ran.again("--plain")
    assert (done.returncode, done.stdout) == (2, "")
    assert "exists already" in done.stderr and "--continue" in done.stderr
    checked = ran.again("--check", "--json")
    assert [found["code"] for found in json.loads(checked.stdout)["findings"]][:1] == ["bench.job_dir"]
    assert tree_hash(ran.root / "jobs/told") == before


def test_going_on_with_a_complete_job_starts_nothing(ran: Ran) -> None:
    job = ran.root / "jobs/told"
    before, runs = tree_hash(job), sorted(job.parent.glob("told.run*"))
    done = ran.again("--headless", "--continue")
    assert done.returncode == 0 and f"{job} is complete, 2 trials: nothing was started" in done.stderr
    (last,) = map(json.loads, done.stdout.splitlines())
    assert (last["type"], last["status"], last["exit_code"]) == ("done", "completed", 0)
    assert tree_hash(job) == before and sorted(job.parent.glob("told.run*")) == runs


def test_going_on_is_refused_where_finished_trials_would_run_again(ran: Ran) -> None:
    before = tree_hash(ran.root / "jobs/told")
    done = ran.again("--plain", "--continue", "--yes", "agent.kwargs.x=1")
    assert done.returncode == 2
    assert "bench mop-up" in done.stderr
    assert tree_hash(ran.root / "jobs/told") == before


def test_going_on_is_refused_where_harbor_would_take_the_job_for_a_new_one(ran: Ran) -> None:
    """Without config.json nothing tells Harbor of the trials that stand: it runs them again, and says nothing."""
    job = ran.root / "jobs/told"
    (job / "config.json").rename(ran.root / "aside")
    before = tree_hash(job)
    try:
        done = ran.again("--plain", "--continue", "--yes")
        assert done.returncode == 2
        assert "2 finished trials would run again" in done.stderr
        assert tree_hash(job) == before
    finally:
        (ran.root / "aside").rename(job / "config.json")


def test_going_on_asks_before_it_deletes_and_keeps_what_is_finished(ran: Ran) -> None:
    job = ran.root / "jobs/told"
    kept, cut = (next(job.glob(f"{name}__*")) for name in ("note-write", "note-trail"))
    (cut / "result.json").unlink()
    before, whole = tree_hash(kept), tree_hash(job)
    done = ran.again("--plain", "--continue")
    assert done.returncode == 2 and "add --yes" in done.stderr
    assert f"{cut.name} (no result)" in " ".join(done.stderr.split())
    assert tree_hash(job) == whole
    done = ran.again("--plain", "--continue", "--yes")
    assert done.returncode == 0, done.stderr
    assert not cut.exists() and tree_hash(kept) == before
    assert len(list(job.glob("*/result.json"))) == 2
    assert f"run directory {job}.run-2" in done.stderr
    assert os.path.isdir(f"{job}.run-2/journal")


def test_ended_trials_are_judged_by_the_users_rules_too(ran: Ran) -> None:
    rules = ran.root / "mine.toml"
    rules.write_text('[[override]]\ntrial = "*note-write__*"\nclass = "infrastructure"\ncause = "api"\nwhy = "mine"\n')
    done = ran.again("--headless", "--job-name", "ruled", "-i", "note-write", "--rules", str(rules))
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert [(line["class"], line["rule"]) for line in lines if line["type"] == "trial"] == [
        ("infrastructure", "user.override")
    ], done.stderr
    assert "1 of 1 attempt without a usable grade (1 infrastructure/api)" in done.stderr
    assert f"quarterdeck bench mop-up --rules {rules} {ran.root}/jobs/ruled runs it again" in done.stderr
    rules.write_text("[[rule]]\n")
    assert ran.again("--plain", "--job-name", "other", "--rules", str(rules)).returncode == 2


def test_a_run_that_nobody_watches_is_told_by_its_name(ran: Ran) -> None:
    from console.control.runs import run_at

    done = ran.again("--detach", "--job-name", "alone", "-i", "note-write")
    assert done.returncode == 0, done.stderr
    assert "quarterdeck attach" in done.stderr
    recorded: Any = run_at(ran.root / "jobs/alone.run")
    assert recorded.run_id == done.stdout.strip()
    deadline = time.monotonic() + 60
    while run_at(ran.root / "jobs/alone.run").state == "live" and time.monotonic() < deadline:
        time.sleep(0.2)
    assert len(list(ran.root.glob("jobs/alone/*/result.json"))) == 1


def test_going_on_is_refused_where_a_mop_up_has_run_what_is_missing(ran: Ran) -> None:
    job, beside = ran.root / "jobs/told", ran.root / "jobs/told-mop-up-1"
    result = next(job.glob("note-trail__*/result.json"))
    beside.mkdir()
    (beside / "config.json").write_text("{}")
    lineage = {"v": 1, "parent": {"path": str(job)}, "tasks": ["quarterdeck/note-trail"], "pass": 1}
    (beside / FILE).write_text(json.dumps(lineage))
    result.rename(ran.root / "aside")
    before = tree_hash(job)
    try:
        done = ran.again("--plain", "--continue", "--yes")
        assert done.returncode == 2
        assert "told-mop-up-1; they have run 1 of the 1" in done.stderr
        assert "1 trial of these ran in mop-ups of the job already" in done.stderr
        assert f"quarterdeck bench mop-up {job}" in done.stderr
        assert tree_hash(job) == before
        (beside / FILE).write_text(json.dumps(lineage | {"tasks": ["quarterdeck/note-write"]}))
        checked = ran.again("--check", "--continue")
        assert checked.returncode == 0 and "they have run 0 of the 1" in checked.stderr
    finally:
        (ran.root / "aside").rename(result)
        shutil.rmtree(beside)


def test_what_is_kept_without_a_grade_is_told_before_a_job_goes_on_and_when_it_has_ended(ran: Ran) -> None:
    job = ran.root / "jobs/told"
    path = next(job.glob("note-trail__*/result.json"))
    result = json.loads(path.read_text())
    cut = {"exception_type": "CancelledError", "exception_message": "", "exception_traceback": "",
           "occurred_at": result["finished_at"]}  # fmt: skip
    path.write_text(json.dumps(result | {"exception_info": cut, "verifier_result": None}))
    done = ran.again("--plain", "--continue", "--yes")
    said = " ".join(done.stderr.split())
    assert done.returncode == 0, done.stderr
    assert "1 trial without a usable grade (1 infrastructure/runner), which --continue does not run again" in said
    assert f"again: {path.parent.name}. Afterwards: quarterdeck bench mop-up {job}." in said
    assert f"harbor job resume -p {job} -f CancelledError, which deletes them first" in said
    last = done.stderr.splitlines()[-1]
    assert "1 of 2 attempts without a usable grade (1 infrastructure/runner)" in last
    assert last.endswith(f"quarterdeck bench mop-up {job} runs it again")
