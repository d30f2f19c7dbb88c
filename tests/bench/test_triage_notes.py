"""What does not decide a verdict and is said beside it, with its figures; and what training would say of the same."""

from __future__ import annotations

import json
import os
import tracemalloc
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from harbor_jobs import BEGAN, HarborJob, tree_hash

from console.bench.model import Judged
from console.bench.triage import judge
from console.outcomes.classes import TrialEvidence
from console.outcomes.rewards import RewardPolicy
from console.outcomes.rules import classify
from console.records.harbor.trials import read_trial

TIMEOUT = ("AgentTimeoutError", "Agent execution timed out after 3600.0 seconds")
GONE = ("SandboxError", "gone")
AGENT_BEGAN = BEGAN + 16
"""After a second, the environment's five and the set-up's ten."""


def trajectory(turns: int = 3, calls: int = 1, reasoning: int | None = None, last: float = AGENT_BEGAN + 30) -> str:
    metrics = {} if reasoning is None else {"metrics": {"extra": {"reasoning_tokens": reasoning}}}
    step = {
        "source": "agent",
        "timestamp": datetime.fromtimestamp(last, UTC).isoformat(),
        "tool_calls": [{"tool_call_id": str(number)} for number in range(calls)],
    }
    return json.dumps({"schema_version": "ATIF-v1.5", "steps": [step | metrics] * turns})


@pytest.fixture
def judged(tmp_path: Path):
    """`judged(reward, **what HarborJob.trial takes)`: the verdict, from a directory that stays as it was."""

    def make(reward: float | None = None, **rest: Any) -> Judged:
        made = rest.pop("trajectory", None)
        job = HarborJob(tmp_path / f"job{len(list(tmp_path.iterdir()))}", agent=rest.pop("agent", "terminus-2"))
        files = rest.pop("files", {}) | ({"agent/trajectory.json": made} if made else {})
        path = job.trial("tb/fix-git", reward, files=files, **rest)
        before = tree_hash(job.path)
        found = judge(read_trial(job.path, path))
        assert tree_hash(job.path) == before
        return found

    return make


@pytest.mark.parametrize(("message", "noted"), [("command exited 137: Killed", True), ("command exited 1", False)])
def test_a_killed_program_may_have_lacked_memory(judged, message: str, noted: bool) -> None:
    found = judged(0.0, error=("RuntimeError", message))
    assert (found.outcome.value, found.cause) == ("agent_failure", "crash")
    assert ("memory" in found.notes.get("bench.exit_137", "")) is noted


def timed_out(judged, tokens: int | None, **rest: Any) -> Judged:
    return judged(0.0, error=TIMEOUT, seconds={"agent": 3600}, tokens=(9_000, 0, tokens), **rest)


def test_runaway_thinking(judged) -> None:
    found = timed_out(judged, 650, trajectory=trajectory(reasoning=412))
    assert found.outcome == "agent_timeout" and found.reward == 0.0
    note = found.notes["bench.runaway_thinking"]
    assert "650 output tokens in 3,600 s, 0.18 a second" in note
    assert "pending for the last 3,570 s" in note and "1,236 reasoning tokens" in note and "thinking off" in note


def test_low_output_of_unknown_cause(judged) -> None:
    busy = trajectory(last=AGENT_BEGAN + 3_000)
    assert "cause is unknown" in timed_out(judged, 650, trajectory=busy).notes["bench.low_output"]
    assert "cause is unknown" in timed_out(judged, 650).notes["bench.low_output"]
    half = trajectory(last=AGENT_BEGAN + 1_801)
    assert "bench.low_output" in timed_out(judged, 650, trajectory=half).notes
    pending = trajectory(last=AGENT_BEGAN + 1_799)
    assert "bench.runaway_thinking" in timed_out(judged, 650, trajectory=pending).notes


def test_an_agent_that_worked_until_its_deadline(judged) -> None:
    assert timed_out(judged, 3_600, trajectory=trajectory(reasoning=9)).notes == {}
    assert "bench.low_output" in timed_out(judged, 3_599).notes
    assert timed_out(judged, None).notes == {}


def test_tokens_that_a_killed_agent_did_not_count(judged) -> None:
    assert set(timed_out(judged, 0).notes) == {"bench.tokens_missing"}
    assert timed_out(judged, 0, agent="oracle").notes == {}
    assert "bench.tokens_missing" not in judged(0.0, tokens=(0, 0, 0)).notes


def test_work_done_before_the_infrastructure_failed(judged) -> None:
    note = judged(error=GONE, trajectory=trajectory(calls=2)).notes["bench.work_done"]
    assert "200 output tokens" in note and "6 tool calls" in note
    assert "6 tool calls" in judged(error=GONE, tokens=None, trajectory=trajectory(calls=2)).notes["bench.work_done"]
    assert judged(error=GONE, tokens=None).notes == {}
    assert judged(error=GONE, tokens=None, trajectory=trajectory(calls=0)).notes == {}
    assert judged(error=GONE, phase="setup").notes == {}


def test_a_pass_without_work(judged) -> None:
    assert "no output token" in judged(1.0, tokens=(0, 0, 0)).notes["bench.idle_pass"]
    assert "no tool call" in judged(1.0, trajectory=trajectory(calls=0)).notes["bench.idle_pass"]
    assert judged(1.0, trajectory=trajectory(turns=1)).notes == {}
    assert judged(1.0, tokens=None).notes == judged(1.0).notes == {}
    assert judged(0.0, tokens=(0, 0, 0)).notes == {}
    assert judged(1.0, agent="oracle", tokens=(0, 0, 0)).notes == {}


def test_a_reward_file_that_is_missing_for_a_reason(judged) -> None:
    files = {"verifier/test-stdout.txt": "/tests/test.sh: line 2: uvx: command not found\n"}
    found = judged(error=("RewardFileNotFoundError", "No reward file"), phase="verify", files=files)
    assert (found.outcome, found.cause) == ("bad_reward", "missing") and "uvx" in found.notes["bench.verifier_fault"]


BENCH_ONLY = {"bench.cancelled", "bench.killed", "bench.exec_timeout", "bench.agent_bug"}
EXIT = "NonZeroAgentExitCodeError"


@pytest.mark.parametrize("phase", ["environment", "setup", "agent", "verify"])
@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("SandboxError", "gone"),
        ("ReadTimeout", ""),
        ("RateLimitError", "429"),
        ("RuntimeError", "odd"),
        ("RuntimeError", "manifest unknown"),
        ("AuthenticationError", "Incorrect API key"),
        ("VerifierTimeoutError", "Verifier execution timed out"),
        ("RewardFileEmptyError", "empty"),
        ("AgentTimeoutError", "Agent execution timed out after 60.0 seconds"),
        ("ContextWindowExceededError", "prompt is too long"),
        (EXIT, "Command failed (exit 1): x\nstdout: None\nstderr: Error: maximum context length is 8"),
        (EXIT, "Command failed (exit 1): x\nstdout: None\nstderr: Error: 401 Unauthorized"),
        (EXIT, "Command failed (exit 1): x\nstdout: None\nstderr: /bin/sh: 1: ps: not found"),
        (EXIT, "Command failed (exit 3): x\nstdout: None\nstderr: None"),
        ("BadRequestError", "context_length_exceeded: error"),
        ("SomethingNobodyKnows", "odd"),
    ],
)
@pytest.mark.parametrize("reward", [None, 0.0, 1.0])
def test_class_and_cause_are_trainings(judged, phase: str, kind: str, message: str, reward: float | None) -> None:
    found = judged(reward, error=(kind, message), phase=phase)
    rewards = None if reward is None else {"reward": reward}
    evidence = TrialEvidence(exception_type=kind, exception_message=message, exception_phase=phase, rewards=rewards)
    training = classify(evidence, RewardPolicy(require_samples=False))
    assert found.rule not in BENCH_ONLY
    assert (found.outcome, found.cause) == (training.outcome, training.cause), found.rule
    if training.scored:
        assert found.reward == training.reward


def test_files_that_nobody_should_open(tmp_path: Path) -> None:
    job = HarborJob(tmp_path / "job")
    error = (EXIT, "Command failed (exit 1): x\nstdout: None\nstderr: None")
    path = job.trial("tb/fix-git", 0.0, error=error)
    outside = tmp_path / "outside.txt"
    outside.write_text("Error: 401 Unauthorized\n")
    (path / "agent").mkdir()
    (path / "agent" / "link.txt").symlink_to(outside)
    os.mkfifo(path / "agent" / "pipe.txt")
    (path / "agent" / "around").symlink_to(path)
    (path / "verifier" / "test-stdout.txt").symlink_to(outside)
    with (path / "agent" / "long.txt").open("wb") as file:
        file.truncate(2 << 30)
    assert judge(read_trial(job.path, path)).rule == "exit.crash"
    with (path / "agent" / "long.txt").open("ab") as file:
        file.write(b"\nError: 504 Gateway Time-out\n")
    tracemalloc.start()
    found = judge(read_trial(job.path, path))
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert (found.cause, found.evidence.file, found.evidence.line) == ("api", "agent/long.txt", None)
    assert most < 8 << 20
