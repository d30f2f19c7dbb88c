"""Trials that this Harbor cannot be made to write here: other versions' shapes, hosted sandboxes' clocks, a lingering
process. They are written as those left them."""

from __future__ import annotations

from typing import Any

from tests.bench.constructed.making import EXIT, STDOUT, Made, written
from tests.support.harbor_jobs import BEGAN

EXITED = (EXIT, "Command failed (exit 1): agent\nstdout: None\nstderr: Error: HTTP 401 Unauthorized")
GONE = ("RemoteProtocolError", "Server disconnected without sending a response.")
LATE = ("AgentTimeoutError", "Agent execution timed out after 60.0 seconds")
LOCKS = (
    "Waiting for cache lock: Could not get lock /var/lib/dpkg/lock-frontend. It is held by process 812 (apt-get)",
    "E: Could not get lock /var/lib/apt/lists/lock. It is held by process 77 (apt-get)",
)
SECOND = """Skipping exception record because trial already has exception_info
Traceback (most recent call last):
  File "harbor/trial/trial.py", line 994, in _verify_with_timeout
harbor.trial.errors.VerifierTimeoutError: Verifier execution timed out after 1800.0 seconds
"""
WINDOWS = {"trial_uri": "file:///C:/Users/x/jobs/j/t", "task_id": {"path": "."}}


def passed(kind: str, name: str, version: str, **trial: Any) -> Made:
    return written(
        kind, name, "completed", "end.clean", "result.json", '"reward": 1.0', version=version, job=f"v{version}",
        reward=1.0, trial={"reward": 1.0, **trial},
    )  # fmt: skip


def refused(kind: str, name: str, version: str) -> Made:
    return written(
        kind, name, "configuration/key", "text.auth", "exception.txt", "401 Unauthorized", version=version,
        job=f"v{version}", reward=0.0, exception=EXIT, trial={"reward": 0.0, "error": EXITED},
    )  # fmt: skip


def failed(kind: str, name: str, job: str, error: tuple[str, str], verdict: str, rule: str, **more: Any) -> Made:
    trial, text = {"error": error, **more.pop("trial", {})}, more.pop("text", error[0])
    return written(kind, name, verdict, rule, "exception.txt", text, job=job, exception=error[0], trial=trial, **more)


TRIALS: tuple[Made, ...] = (
    passed("times without a zone", "old-pass", "0.1.0"),
    refused("times without a zone", "old-key", "0.1.0"),
    passed("errors without a zone", "old-pass", "0.1.45"),
    refused("errors without a zone", "old-key", "0.1.45"),
    passed("mounts that Harbor itself cannot read", "mounts-pass", "0.6.4"),
    refused("mounts that Harbor itself cannot read", "mounts-key", "0.6.4"),
    passed("locks of other schemas", "lock-pass", "0.14.0"),
    refused("locks of other schemas", "lock-key", "0.18.0"),
    refused("locks of other schemas", "lock-key", "0.20.0"),
    passed("task of a package", "terminal-bench/fix-git", "0.25.0"),
    refused("task of a package", "terminal-bench/install-windows-3.11", "0.25.0"),
    passed("paths of another system", "windows-pass", "0.22.0", patch=WINDOWS),
    passed("paths of another system", "windows-pass-too", "0.22.0",
           patch=WINDOWS | {"trial_uri": "C:\\jobs\\j\\t", "task_id": None}),
    *(written("lock that a left-over process of the agent held", f"gcov-{at}", "bad_reward/verifier_fault",
              "bench.verifier_lock", STDOUT, line[:40], job="locked", exception=LATE[0],
              notes=("bench.second_error",),
              trial={"error": LATE, "files": {"trial.log": SECOND, STDOUT: f"begin\n{line}\n"}})
      for at, line in enumerate(LOCKS)),
    *(failed("trial cancelled after its job had ended", f"lingering-{at}", "lingering", ("CancelledError", ""),
             "infrastructure/runner", "bench.cancelled_finished", notes=("bench.lingering",),
             trial={"phase": phase, "began": BEGAN, "seconds": seconds})  # both at the very end
      for at, (phase, seconds) in enumerate([("agent", {"agent": 60.0}), ("verify", {"agent": 40.0, "verify": 20.0})])),
    *(failed("sandbox that went away at the idle limit", f"idle-{at}", "idle", GONE, "infrastructure/network",
             "type.network", notes=("bench.idle_suspected",), trial={"seconds": {"agent": 598.0 + 3 * at}})
      for at in range(3)),
    *(failed("job that is crowded", f"crowded-{at}", "crowded", (kind, "504"), verdict, rule)
      for at, (kind, verdict, rule) in enumerate(
          [("SandboxError", "infrastructure/sandbox", "type.sandbox"),
           ("InternalServerError", "infrastructure/api", "type.api"),
           ("ReadTimeout", "infrastructure/network", "type.network")] * 2)),
    *(failed("failures of one duration", f"clock-{at}", "clock", ("DeadlineError", f"odd {at}"), "agent_failure/crash",
             "type.unknown", trial={"seconds": {"agent": 1004.0 + at / 2}}) for at in range(5)),
    *(written("verifiers that fail all over a job", f"faulty-{at}", "bad_reward/verifier_fault",
              "text.verifier_bootstrap", STDOUT, "uvx: command not found", job="faulty", reward=0.0,
              trial={"reward": 0.0, "files": {STDOUT: "curl: (28)\n/tests/test.sh: line 9: uvx: command not found\n"}})
      for at in range(5)),
    *(failed("job whose quota is used up", f"quota-{at}", "quota", (EXIT, "Command failed (exit 1): a\nstdout: None\n"
             "stderr: Error code: 402 - error: requires more credits"), "configuration/quota", "text.quota",
             trial={"reward": 0.0}, reward=0.0, text="402 - error") for at in range(3)),
)  # fmt: skip

FILLERS = {"crowded": 14}
"""Trials of a job that only pass, so that it has as many as a finding needs."""
