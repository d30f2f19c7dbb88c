"""Verifiers, missing results, cancelled and multi-step trials: the class, the cause, and the line that decided."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from harbor_jobs import HarborJob, put
from triaged import EXIT, Judge, check_line, exited, judging, kind

from console.bench.triage import judge
from console.records.harbor.model import JobRecord
from console.records.harbor.trials import read_trial

STDOUT = "verifier/test-stdout.txt"


@pytest.fixture
def judged(tmp_path: Path) -> Judge:
    return judging(tmp_path)


# --- the verifier --------------------------------------------------------------------------------------------------

BOOTSTRAP = "curl: (28) Operation timed out after 300000 ms\n/tests/test.sh: line 9: uvx: command not found\n"
NO_TESTS = "==== test session starts ====\ncollected 0 items\n==== no tests ran in 0.02s ====\n"
LOCK = "Waiting for cache lock: Could not get lock /var/lib/dpkg/lock-frontend. It is held by process 812 (apt-get)\n"


@pytest.mark.parametrize(
    ("output", "line"),
    [
        (BOOTSTRAP, "/tests/test.sh: line 9: uvx: command not found"),
        (
            "error: x\n  Caused by: Failed to download https://github.com/astral-sh/python-build-standalone/x\n",
            "Caused",
        ),
        ("curl: (35) OpenSSL SSL_connect: SSL_ERROR_SYSCALL in connection to github.com:443\n", "curl: (35)"),
        (NO_TESTS, "==== no tests ran in 0.02s ===="),
        (LOCK, "Waiting for cache lock"),
        ("/usr/bin/python3: No module named pytest\n", "No module named pytest"),
        ("E: Failed to fetch http://archive.debian.org/x  404  Not Found\n", "E: Failed to fetch"),
    ],
)
@pytest.mark.parametrize("error", [None, ("AgentTimeoutError", "Agent execution timed out after 60.0 seconds")])
def test_a_verifiers_fault_behind_a_zero(judged: Judge, output: str, line: str, error: Any) -> None:
    found = judged(0.0, error=error, files={STDOUT: "begin\n" + output})
    assert (kind(found), found.reward, found.evidence.file) == ("bad_reward/verifier_fault", 0.0, STDOUT)
    assert line in found.evidence.text
    check_line(found)
    assert kind(judged(1.0, files={STDOUT: output})) == "completed"
    assert kind(judged(0.0, files={STDOUT: output + "==== 1 failed in 2s ====\n"})) == "completed"
    counted = {STDOUT: output, "verifier/ctrf.json": '{"results": {"summary": {"tests": 3, "failed": 3}}}'}
    assert kind(judged(0.0, files=counted)) == "completed"
    none = {STDOUT: output, "verifier/ctrf.json": '{"results": {"summary": {"tests": 0}}}'}
    assert kind(judged(0.0, files=none)) == "bad_reward/verifier_fault"


@pytest.mark.parametrize("output", ["the answer is wrong\n", "", "curl: (7) Failed to connect to localhost port 80\n"])
def test_a_verifier_without_tests_is_believed(judged: Judge, output: str) -> None:
    assert kind(judged(0.0, files={STDOUT: output})) == "completed"


def test_a_verifiers_fault_behind_an_agents_error_is_noted(judged: Judge) -> None:
    found = judged(0.0, error=(EXIT, exited(1)), files={STDOUT: BOOTSTRAP})
    assert kind(found) == "agent_failure/crash" and "uvx" in found.notes["bench.verifier_fault"]


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (("VerifierTimeoutError", "Verifier execution timed out after 600.0 seconds"), "bad_reward/verifier_fault"),
        (("RewardFileNotFoundError", "No reward file found"), "bad_reward/missing"),
        (("RewardFileEmptyError", "Reward file is empty"), "bad_reward/missing"),
        (("VerifierOutputParseError", "Failed to parse rewards"), "bad_reward/non_numeric"),
        (("VerifierOutputParseError", "Non-finite reward nan in text file"), "bad_reward/non_finite"),
        (("AddTestsDirError", "Failed to add tests directory to environment."), "infrastructure/sandbox"),
        (("DownloadVerifierDirError", "Failed to download"), "infrastructure/sandbox"),
        (
            ("ValidationError", "1 validation error for VerifierResult\nrewards\n  Input should be"),
            "bad_reward/non_numeric",
        ),
        (("RuntimeError", "odd"), "infrastructure/sandbox"),
    ],
)
def test_what_fails_while_verifying(judged: Judge, error: Any, expected: str) -> None:
    found = judged(error=error, phase="verify")
    assert kind(found) == expected
    check_line(found)


SECOND = """Collecting main service artifacts
Skipping exception record because trial already has exception_info
Traceback (most recent call last):
  File "harbor/trial/trial.py", line 990, in _verify_with_timeout
asyncio.exceptions.CancelledError

Traceback (most recent call last):
  File "harbor/trial/trial.py", line 994, in _verify_with_timeout
{}
"""


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("harbor.trial.errors.VerifierTimeoutError: Verifier execution timed out after 1800.0 s",
         "bad_reward/verifier_fault"),
        ("harbor.verifier.verifier.DownloadVerifierDirError: Failed to download", "infrastructure/sandbox"),
        ("harbor.verifier.verifier.RewardFileNotFoundError: No reward file found", "bad_reward/missing"),
    ],
)  # fmt: skip
def test_a_verifiers_failure_that_came_second(judged: Judge, line: str, expected: str) -> None:
    timeout = ("AgentTimeoutError", "Agent execution timed out after 60.0 seconds")
    found = judged(error=timeout, files={"trial.log": SECOND.format(line)})
    assert (kind(found), found.evidence.file, found.evidence.text) == (expected, "trial.log", line)
    check_line(found)
    assert "AgentTimeoutError" in found.notes["bench.second_error"]


def test_an_apt_lock_that_a_left_over_agent_held(judged: Judge) -> None:
    timeout = ("AgentTimeoutError", "Agent execution timed out after 60.0 seconds")
    line = "harbor.trial.errors.VerifierTimeoutError: Verifier execution timed out after 1800.0 s"
    found = judged(error=timeout, files={"trial.log": SECOND.format(line), STDOUT: LOCK})
    assert (kind(found), found.evidence.file) == ("bad_reward/verifier_fault", STDOUT)
    assert "VerifierTimeoutError" in found.notes["bench.second_error"]


# --- no result -----------------------------------------------------------------------------------------------------


def test_trials_without_a_result(judged: Judge, tmp_path: Path) -> None:
    cut = judged(result=False)
    assert (kind(cut), cut.reward, cut.evidence.file) == ("unreadable/incomplete", None, "result.json")
    running = JobRecord(path=tmp_path, name="j", running=True)
    assert kind(judged(result=False, job=running)) == "unreadable/running"
    left = judged(1.0, result=False)
    assert kind(left) == "unreadable/incomplete" and "reward 1.0" in left.notes["bench.reward_file"]


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (("SandboxError", "gone"), "infrastructure/sandbox"),
        ((EXIT, exited(1, "Error: 401 Unauthorized")), "configuration/key"),
        ("CancelledError", "cancelled/operator"),
        (("AgentTimeoutError", "Agent execution timed out after 60.0 seconds"), "unreadable/incomplete"),
    ],
)
def test_exception_txt_tells_of_a_trial_without_a_result(judged: Judge, error: Any, expected: str) -> None:
    found = judged(error=error, result=False)
    assert kind(found) == expected
    assert {"bench.no_result", "bench.exception_text"} & set(found.notes)


@pytest.mark.parametrize(
    "content", [b"", b"{", b'{"task_name": "x', b"\0\0\0", b"[1]", '{"a"'.encode("utf-16"), b"[" * 100_000]
)
def test_a_result_that_cannot_be_parsed(judged: Judge, content: bytes) -> None:
    found = judged(1.0, result=False, files={"result.json": content})
    assert (kind(found), found.rule) == ("unreadable/corrupt", "bench.corrupt")
    assert found.evidence.text and "\n" not in found.evidence.text


def test_a_result_that_is_too_large(tmp_path: Path) -> None:
    job = HarborJob(tmp_path / "job")
    path = job.trial("a/b", 1.0, error="SandboxError", result=False)
    with (path / "result.json").open("wb") as file:
        file.truncate(51 << 20)
    found = judge(read_trial(job.path, path))
    assert kind(found) == "unreadable/too_large" and "SandboxError" in found.notes["bench.exception_text"]
    assert found.trial.short_task == "b"


# --- cancelled -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("phase", ["environment", "setup", "agent", "verify"])
def test_a_cancelled_trial(judged: Judge, phase: str, tmp_path: Path) -> None:
    found = judged(error=("CancelledError", ""), phase=phase)
    assert (kind(found), found.rule) == ("cancelled/operator", "bench.cancelled")
    check_line(found)
    going_on = JobRecord(path=tmp_path, name="j", finished=False)
    assert kind(judged(error=("CancelledError", ""), phase=phase, job=going_on)) == "cancelled/operator"
    ended = JobRecord(path=tmp_path, name="j", finished=True)
    killed = judged(error=("CancelledError", ""), phase=phase, job=ended)
    assert (kind(killed), killed.rule) == ("infrastructure/runner", "bench.cancelled_finished")
    assert "linger" in killed.notes["bench.lingering"]
    at = found.trial.errors[0].at
    assert at is not None
    for later, what in (
        (-7200, "infrastructure/runner"),
        (4, "infrastructure/runner"),
        (10, "cancelled/operator"),  # somebody went on with the job, and that ended
        (5000, "cancelled/operator"),
        (5.5 * 3600 + 3, "infrastructure/runner"),  # the job's end is in another zone's time
        (72 * 3600, "cancelled/operator"),
    ):
        job = JobRecord(path=tmp_path, name="j", finished=True, ended=at + later)
        assert kind(judged(error=("CancelledError", ""), phase=phase, job=job)) == what, later


def test_an_exception_after_the_end_leaves_the_reward(tmp_path: Path) -> None:
    job = HarborJob(tmp_path / "job")
    path = job.trial("a/b", 1.0, error=("SandboxError", "cannot be removed"), phase="verify")
    assert kind(judge(read_trial(job.path, path))) == "infrastructure/sandbox"
    result = json.loads((path / "result.json").read_text())
    result["exception_info"]["occurred_at"] = result["finished_at"]
    put(path / "result.json", result)
    found = judge(read_trial(job.path, path))
    assert (kind(found), found.reward) == ("completed", 1.0)
    assert "cannot be removed" in found.notes["bench.after_end"]


# --- multi-step ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (("SandboxError", "gone"), "infrastructure/sandbox"),
        ((EXIT, exited(1, "Error: 401 Unauthorized")), "configuration/key"),
        (("AgentTimeoutError", "Agent execution timed out after 60.0 seconds"), "agent_timeout"),
        (("OddError", "odd"), "agent_failure/crash"),
        (("RuntimeError", "Command timed out after 60 seconds"), "agent_failure/exec_timeout"),
    ],
)
def test_an_error_that_only_a_step_has(judged: Judge, error: Any, expected: str) -> None:
    steps = [
        {"name": "one", "rewards": {"reward": 1.0}},
        {"name": "two", "error": error, "rewards": {"reward": 0.0}},
        {"name": "three", "error": ("SandboxError", "gone")},
    ]
    found = judged(rewards={"reward": 0.5}, steps=steps)
    assert (kind(found), found.reward) == (expected, 0.5)
    assert found.evidence.file == "result.json"
    lines = (found.trial.path / "result.json").read_text().split("\n")
    assert error[0] in lines[(found.evidence.line or 0) - 1]
    assert "SandboxError in three" in found.notes["bench.more_errors"]
    assert kind(judged(rewards={"reward": 0.5}, steps=steps[:1])) == "completed"


@pytest.mark.parametrize(
    ("frame", "expected"),
    [
        ("_verify_with_timeout", "infrastructure/sandbox"),
        ("_run_agent_phase", "agent_failure/crash"),
        ("_setup_agent_environment", "infrastructure/sandbox"),
    ],
)
@pytest.mark.parametrize("steps", [True, False])
def test_a_traceback_tells_the_phase_where_no_time_does(tmp_path: Path, frame: str, expected: str, steps: bool) -> None:
    job = HarborJob(tmp_path / "job")
    error = ("RuntimeError", "odd")
    one = {"name": "one", "error": error, "rewards": {"reward": 0.0}}
    path = job.trial("a/b", steps=[one]) if steps else job.trial("a/b", 0.0, error=error)
    result = json.loads((path / "result.json").read_text())
    info = result["step_results"][0]["exception_info"] if steps else result["exception_info"]
    info |= {"exception_traceback": f'  File "harbor/trial/trial.py", line 9, in {frame}\n', "occurred_at": None}
    put(path / "result.json", result)
    assert kind(judge(read_trial(job.path, path))) == expected


def test_the_last_steps_verifier_is_looked_at(judged: Judge) -> None:
    steps = [{"name": "one", "rewards": {"reward": 0.0}}, {"name": "two", "rewards": {"reward": 0.0}}]
    name = "steps/two/verifier/test-stdout.txt"
    files = {"steps/one/verifier/test-stdout.txt": "1 passed\n", name: BOOTSTRAP}
    found = judged(rewards={"reward": 0.0}, steps=steps, files=files)
    assert (kind(found), found.evidence.file) == ("bad_reward/verifier_fault", name)
