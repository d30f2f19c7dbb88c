"""Trials that the installed Harbor ran and wrote itself, in real sandboxes, with agents and verifiers made to fail.

One process runs two jobs: one of many tasks, each of which has its own way to fail, and one that is cancelled.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from console.bench.model import Judged
from console.bench.triage import as_row, judge
from console.records.harbor.jobs import read_job
from console.records.harbor.trials import read_trial

PARTS = '''
import json
from pathlib import Path

from harbor.agents.installed.base import BaseInstalledAgent
from console.trials.bwrap import BwrapEnvironment


class Scripted(BaseInstalledAgent):
    """Does what the instruction says: a JSON object."""

    @staticmethod
    def name():
        return "scripted"

    def version(self):
        return "1"

    async def install(self, environment):
        await self.exec_as_root(environment, command="test ! -e /app/install.sh || sh /app/install.sh")

    def populate_context_post_run(self, context):
        context.n_input_tokens, context.n_output_tokens = 11, 7

    async def run(self, instruction, environment, context):
        told = json.loads(instruction)
        self.populate_context_post_run(context)
        if "mark" in told:
            Path(told["mark"]).touch()
        if "log" in told:
            (self.logs_dir / "scripted.txt").write_text(told["log"])
        await self.exec_as_agent(environment, command=told.get("script", "true"))
        if "error" in told:
            name, _, text = told["error"].partition(": ")
            raise type(name, (Exception,), {})(text)
        if "json" in told:
            json.loads(told["json"])


class Fragile(BwrapEnvironment):
    async def start(self, force_build):
        if (self.environment_dir / "no-start").exists():
            raise RuntimeError("Docker compose command failed for environment x. Return code: 1. no space")
        await super().start(force_build)
'''

RUN = """
import asyncio
import json
import sys
from pathlib import Path

from harbor.job import Job
from harbor.models.job.config import JobConfig


async def run(config):
    job = await Job.create(JobConfig.model_validate(config))
    await job.run()


async def cancelled(config, mark):
    running = asyncio.create_task(run(config))
    while not mark.exists() and not running.done():
        await asyncio.sleep(0.05)
    running.cancel()
    await asyncio.wait({running})


if __name__ == "__main__":
    config, other, mark = json.loads(sys.argv[1]), json.loads(sys.argv[2]), Path(sys.argv[3])
    asyncio.run(run(config))
    asyncio.run(cancelled(other, mark))
"""

TOML = """
schema_version = "1.4"
[agent]
timeout_sec = {agent}
[verifier]
timeout_sec = {verifier}
[environment]
network_mode = "public"
{more}
"""

REWARD = "/logs/verifier/reward"
BOOTSTRAP = "echo 'curl: (28) Operation timed out after 300000 ms'; uvx pytest; echo 0 > /logs/verifier/reward.txt"
NO_TESTS = "echo 'collected 0 items'; echo '= no tests ran in 0.02s ='; echo 0 > /logs/verifier/reward.txt"
ZERO = "echo '2 failed, 1 passed in 0.10s'; echo 0 > /logs/verifier/reward.txt"
ONE = "echo '3 passed in 0.10s'; echo 1 > /logs/verifier/reward.txt"
EXIT = "NonZeroAgentExitCodeError"


class Told(NamedTuple):
    """A task, and what triage must say of its trial."""

    does: dict[str, Any]
    test: str
    expected: str
    reward: float | None
    file: str
    text: str
    exception: str | None = None
    note: str = ""
    agent: float = 30
    verifier: float = 30
    more: str = ""
    files: tuple[tuple[str, str], ...] = ()


def fails(code: int, text: str) -> dict[str, Any]:
    return {"script": f"echo working; echo {text!r} >&2; exit {code}"}


TASKS = {
    "pass": Told({"script": "true"}, ONE, "completed", 1.0, "result.json", '"reward": 1.0'),
    "zero": Told({}, ZERO, "completed", 0.0, "result.json", '"reward": 0.0'),
    "partial": Told({}, f"echo 0.25 > {REWARD}.txt", "completed", 0.25, "result.json", '"reward": 0.25'),
    "score": Told({}, "echo '{\"score\": 0.5}' > " + REWARD + ".json", "completed", 0.5, "result.json", '"score": 0.5'),
    "slow-pass": Told({"script": "sleep 60"}, ONE, "agent_timeout", 1.0, "exception.txt",
                      "timed out after 1.0 seconds", "AgentTimeoutError", agent=1),
    "slow-zero": Told({"script": "sleep 60"}, ZERO, "agent_timeout", 0.0, "exception.txt",
                      "AgentTimeoutError", "AgentTimeoutError", agent=1),
    "slow-and-bad-verifier": Told({"script": "sleep 60"}, BOOTSTRAP, "bad_reward/verifier_fault", 0.0,
                                  "verifier/test-stdout.txt", "uvx: command not found", "AgentTimeoutError", agent=1),
    "slow-and-slow-verifier": Told({"script": "sleep 60"}, "sleep 60", "bad_reward/verifier_fault", None, "trial.log",
                                   "VerifierTimeoutError: Verifier execution timed out", "AgentTimeoutError",
                                   "bench.second_error", agent=1, verifier=1),
    "overflow": Told(fails(1, "Error: This model maximum context length is 262144 tokens. However"), ZERO,
                     "agent_failure/context_overflow", 0.0, "exception.txt", "maximum context length", EXIT),
    "overflow-typed": Told(fails(1, "API Error: prompt is too long: 70000 tokens > 65536 maximum"), ZERO,
                           "context_overflow", 0.0, "exception.txt", "", "ContextWindowExceededError"),
    "expired-key": Told(fails(1, "API Error: HTTP 401 Unauthorized"), ZERO, "configuration/key", 0.0, "exception.txt",
                        "HTTP 401 Unauthorized", "UnknownApiError"),
    "wrong-key": Told(fails(1, "Error: Incorrect API key provided"), ZERO, "configuration/key", None, "exception.txt",
                      "Incorrect API key provided", "AgentAuthenticationError"),
    "mirror": Told(fails(100, "E: Failed to fetch http://security.example.org/bullseye"), ZERO,
                   "infrastructure/setup", 0.0, "exception.txt", "E: Failed to fetch", EXIT, "bench.work_done"),
    "no-ps": Told({"script": "mkdir /tmp/e; PATH=/tmp/e; /bin/sh -c ps >&2; exit 1"}, ZERO, "infrastructure/setup",
                  0.0, "exception.txt", "ps: ", EXIT),
    "killed": Told({"script": "exit 137"}, ZERO, "ambiguous/killed", 0.0, "exception.txt", "exit 137", EXIT),
    "killed-by-log": Told({"script": "exit 143", "log": "a\\nError: 504 Gateway Time-out\\n"}, ZERO,
                          "infrastructure/api", 0.0, "agent/scripted.txt", "504", EXIT),
    "crash": Told(fails(3, "something odd"), ZERO, "agent_failure/crash", 0.0, "exception.txt", "exit 3", EXIT),
    "crash-and-bad-verifier": Told(fails(3, "odd"), BOOTSTRAP, "agent_failure/crash", 0.0, "exception.txt", "exit 3",
                                   EXIT, "bench.verifier_fault"),
    "nginx": Told({"script": "echo the nginx rate limit is set; exit 1"}, ZERO, "ambiguous/output_words", 0.0,
                  "exception.txt", "rate limit", "ApiRateLimitError"),
    "no-start": Told({}, ZERO, "infrastructure/sandbox", None, "exception.txt", "Docker compose command failed",
                     "RuntimeError", files=(("environment/no-start", ""),)),
    "unhealthy": Told({}, ZERO, "infrastructure/sandbox", None, "exception.txt", "HealthcheckError",
                      "HealthcheckError",
                      more='[environment.healthcheck]\ncommand = "false"\nretries = 1\ninterval_sec = 0.1'),
    "no-install": Told({}, ZERO, "infrastructure/setup", None, "exception.txt", "Unable to locate package tmux", EXIT,
                       files=(("environment/install.sh", "echo 'E: Unable to locate package tmux' >&2; exit 100"),)),
    "bad-verifier": Told({}, BOOTSTRAP, "bad_reward/verifier_fault", 0.0, "verifier/test-stdout.txt", "uvx"),
    "no-tests": Told({}, NO_TESTS, "bad_reward/verifier_fault", 0.0, "verifier/test-stdout.txt", "no tests ran"),
    "no-reward": Told({}, "true", "bad_reward/missing", None, "exception.txt", "RewardFileNotFoundError",
                      "RewardFileNotFoundError"),
    "empty-reward": Told({}, f": > {REWARD}.txt", "bad_reward/missing", None, "exception.txt", "RewardFileEmptyError",
                         "RewardFileEmptyError"),
    "nan": Told({}, f"echo nan > {REWARD}.txt", "bad_reward/non_finite", None, "exception.txt", "Non-finite",
                "VerifierOutputParseError"),
    "word": Told({}, f"echo yes > {REWARD}.txt", "bad_reward/non_numeric", None, "exception.txt", "Failed to parse",
                 "VerifierOutputParseError"),
    "bare-number": Told({}, f"echo 0.7 > {REWARD}.json", "bad_reward/non_numeric", None, "exception.txt",
                        "ValidationError", "ValidationError"),
    "slow-verifier": Told({}, "sleep 60", "bad_reward/verifier_fault", None, "exception.txt", "VerifierTimeoutError",
                          "VerifierTimeoutError", verifier=1),
    "harness-bug": Told({"json": "{'no'}"}, ZERO, "agent_failure/agent_bug", 0.0, "exception.txt", "JSONDecodeError",
                        "JSONDecodeError"),
    "unknown": Told({"error": "NobodyKnowsError: odd"}, ONE, "agent_failure/crash", 1.0, "exception.txt",
                    "NobodyKnowsError: odd", "NobodyKnowsError"),
    "sandbox-error": Told({"error": "SandboxError: gone"}, ZERO, "infrastructure/sandbox", 0.0, "exception.txt",
                          "SandboxError: gone", "SandboxError", "bench.work_done"),
    "idle": Told({"error": "RemoteProtocolError: Server disconnected",
                  "log": "started\nsbx-server: idle for 601917ms, shutting down\n"}, ZERO, "infrastructure/sandbox",
                 0.0, "agent/scripted.txt", "idle for 601917ms", "RemoteProtocolError"),
    "exec-timeout": Told({"error": "RuntimeError: Command timed out after 600 seconds"}, ZERO,
                         "agent_failure/exec_timeout", 0.0, "exception.txt", "timed out after 600", "RuntimeError"),
}  # fmt: skip

STEPS = '[[steps]]\nname = "one"\n[[steps]]\nname = "two"\n'
"""A task of two steps, the second of which fails."""


def write(root: Path, name: str, told: Told) -> Path:
    task = root / name
    files = {
        "task.toml": TOML.format(agent=told.agent, verifier=told.verifier, more=told.more),
        "instruction.md": json.dumps(told.does),
        "environment/Dockerfile": "FROM debian\nWORKDIR /app\n",
        "solution/solve.sh": "#!/bin/bash\n",
        "tests/test.sh": f"#!/bin/bash\n{told.test}\n",
        **dict(told.files),
    }
    for path, content in files.items():
        (task / path).parent.mkdir(parents=True, exist_ok=True)
        (task / path).write_text(content)
    return task


@pytest.fixture(scope="module")
def jobs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The directory with the jobs `many` and `cut`, whose files are as Harbor left them at the end, too."""
    root = tmp_path_factory.mktemp("real")
    (root / "parts.py").write_text(PARTS)
    (root / "run.py").write_text(RUN)
    mark = root / "mark"
    tasks = [write(root / "tasks", name, told) for name, told in TASKS.items()]
    two = {
        "steps/one/instruction.md": "{}",
        "steps/two/instruction.md": json.dumps({"error": "OddError: odd"}),
    }
    steps = Told({}, ZERO, "", None, "", "", more=STEPS, files=tuple(two.items()))
    tasks.append(write(root / "tasks", "two-steps", steps))
    hang = write(root / "tasks", "hang", Told({"mark": str(mark), "script": "sleep 60"}, ZERO, "", None, "", ""))
    base = {
        "jobs_dir": str(root / "jobs"),
        "quiet": True,
        "n_concurrent_trials": 4,
        "environment": {"import_path": "parts:Fragile"},
        "agents": [{"import_path": "parts:Scripted"}],
    }
    many = base | {"job_name": "many", "tasks": [{"path": str(task)} for task in tasks]}
    watched = base | {"job_name": "cut", "tasks": [{"path": str(hang)}]}
    paths = os.pathsep.join([str(root), str(Path(__file__).parents[2])])
    env = os.environ | {"PYTHONPATH": paths, "HARBOR_TELEMETRY": "0", "LITELLM_LOCAL_MODEL_COST_MAP": "True"}
    done = subprocess.run(
        [sys.executable, str(root / "run.py"), json.dumps(many), json.dumps(watched), str(mark)],
        env=env, cwd=root, capture_output=True, text=True, timeout=150, check=False,
    )  # fmt: skip
    assert (root / "jobs" / "cut").is_dir(), done.stderr[-3000:]
    before = digest(root / "jobs")
    yield root / "jobs"
    assert digest(root / "jobs") == before


def digest(root: Path) -> str:
    found = hashlib.sha256()
    for path in sorted(root.rglob("*")):
        found.update(f"{path}|{path.lstat().st_mtime_ns}|".encode())
        found.update(path.read_bytes() if path.is_file() else b"")
    return found.hexdigest()


def judge_all(job: Path) -> dict[str, Judged]:
    """Verdicts by task."""
    record = read_job(job)
    trials = [path for path in sorted(job.iterdir()) if path.is_dir()]
    judged = [judge(read_trial(job, path), None, record) for path in trials]
    return {one.trial.short_task: one for one in judged}


@pytest.fixture(scope="module")
def verdicts(jobs: Path) -> dict[str, Judged]:
    return judge_all(jobs / "many")


def kind(found: Judged) -> str:
    return f"{found.outcome.value}/{found.cause}" if found.cause else found.outcome.value


@pytest.mark.parametrize("name", TASKS)
def test_what_harbor_wrote(verdicts: dict[str, Judged], name: str) -> None:
    told, found = TASKS[name], verdicts[name]
    said = (kind(found), found.reward, as_row(found)["exception"])
    assert said == (told.expected, told.reward, told.exception), (found.rule, found.evidence)
    assert found.evidence.file == told.file and told.text in found.evidence.text, found.evidence
    lines = (found.trial.path / told.file).read_text().split("\n")
    assert found.evidence.text.strip("…").strip() in " ".join(lines[(found.evidence.line or 0) - 1].split())
    if told.note:
        assert told.note in found.notes
    assert found.trial.harbor.startswith("0.26") and found.trial.agent == "scripted"


def test_a_step_that_failed(verdicts: dict[str, Judged]) -> None:
    found = verdicts["two-steps"]
    assert (kind(found), found.trial.errors[0].step) == ("agent_failure/crash", "two")
    assert found.evidence.file == "result.json" and found.evidence.line


def test_a_job_that_was_cancelled(jobs: Path) -> None:
    record = read_job(jobs / "cut")
    found = judge_all(jobs / "cut")["hang"]
    assert not record.finished
    assert (kind(found), found.trial.errors[0].type) == ("cancelled/operator", "CancelledError")
    assert found.evidence.file == "exception.txt" and "CancelledError" in found.evidence.text
