"""How fast benchmark runs are read: 10,000 trials, triage and tally, cold and a second time.

Beside them a plain loop of `json.load` over the results, and what `harbor view` does to list a job's trials: its own
scanner, in a process of its own. The trials are made here, seeded, in the shape of Harbor 0.26. "Cold" is without our
cache; the files themselves are in the memory of the operating system for every one of the programs.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from report import Beside, Figure, add_json_option, emit

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests" / "support"))

from harbor_jobs import HarborJob  # noqa: E402

COLD_SECONDS, COLD_MEGABYTES, SECOND_LOOK = 20.0, 300.0, 1.0
_FAILURES = (
    ("SandboxError", "the sandbox was not found"),
    ("RemoteProtocolError", "Server disconnected without sending a response"),
    ("NonZeroAgentExitCodeError", "Command failed (exit 1)\nstderr: litellm.ContextWindowExceededError: too long"),
    ("NonZeroAgentExitCodeError", "Command failed (exit 1)\nstderr: openai.AuthenticationError: Error code: 401"),
    ("RuntimeError", "Docker compose command failed for environment"),
)
_SCANNER = """
import sys
from pathlib import Path
from harbor.viewer.scanner import JobScanner
scanner = JobScanner(Path(sys.argv[1]))
for job in scanner.list_jobs():
    scanner.get_job_result(job)
    for trial in scanner.list_trials(job):
        scanner.get_trial_result(job, trial)
"""
_LOADER = """
import json, sys
from pathlib import Path
for job in Path(sys.argv[1]).iterdir():
    for trial in job.iterdir():
        if (trial / "result.json").is_file():
            with open(trial / "result.json") as file:
                json.load(file)
"""


def make(directory: Path, trials: int) -> None:
    """A job of so many trials: 70 % end by themselves, 12 % at their time-out, the rest fails in several ways."""
    rng = random.Random(20_240_807)
    job = HarborJob(directory / "job", concurrent=8, attempts=5, agent_timeout_multiplier=4.0)
    transcript = "".join(f"step {at}: the agent reads, thinks and runs a command\n" for at in range(400))
    steps = [{"step_id": at, "source": "agent", "tool_calls": [{"function_name": "bash"}]} for at in range(20)]
    trajectory = json.dumps({"schema_version": "ATIF-v1.5", "steps": steps})
    for number in range(trials):
        files = {"agent/agent.txt": transcript, "agent/trajectory.json": trajectory}
        kind, tokens = rng.random(), (rng.randrange(10**6), rng.randrange(10**5), rng.randrange(10**5))
        task = f"terminal-bench/task-{number // 5:04}"
        passed = float(rng.random() < 0.5)
        if kind < 0.70:
            files["verifier/test-stdout.txt"] = transcript + "==== 3 passed in 0.51s ====\n"
            job.trial(task, passed, files=files, tokens=tokens)
        elif kind < 0.82:
            timeout = ("AgentTimeoutError", "Agent execution timed out after 3600.0 seconds")
            job.trial(task, passed, error=timeout, seconds={"agent": 3600.0}, files=files, tokens=tokens)
        elif kind < 0.87:
            files["verifier/test-stdout.txt"] = "curl: (28) timed out\n/tests/test.sh: line 5: uvx: command not found\n"
            job.trial(task, 0.0, files=files, tokens=tokens)
        elif kind < 0.88:
            job.trial(task, files=files, result=False)
        else:
            job.trial(task, error=_FAILURES[number % len(_FAILURES)], files=files, tokens=tokens)
    job.write()
    long_ago = time.time() - 3600  # what was written just now is not kept by the cache
    for path in directory.rglob("*"):
        os.utime(path, (long_ago, long_ago))
    time.sleep(2.5)  # the time of the inode cannot be set


def run(argv: list[str], env: dict[str, str]) -> tuple[float, float]:
    """Seconds and peak megabytes of a program; what it prints goes nowhere."""
    start = time.perf_counter()
    process = subprocess.Popen(argv, env=env, stdout=subprocess.DEVNULL, stdin=subprocess.DEVNULL, cwd=ROOT)
    _, status, usage = os.wait4(process.pid, 0)
    seconds = time.perf_counter() - start
    if status:
        raise SystemExit(f"{' '.join(argv[:6])}: status {os.waitstatus_to_exitcode(status)}")
    return seconds, usage.ru_maxrss / 1024


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    add_json_option(parser)
    parser.add_argument("--trials", type=int, default=10_000)
    parser.add_argument("--keep", type=Path, help="make the job below this directory, or use the one that is there")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="bench-reading-") as temporary:
        root = args.keep or Path(temporary) / "jobs"
        if not root.is_dir():
            make(root, args.trials)
        env = {**os.environ, "QUARTERDECK_CACHE_DIR": f"{temporary}/cache", "PYTHONPATH": str(ROOT)}
        emit(measure(root, env), as_json=args.json)


def measure(root: Path, env: dict[str, str]) -> list[Figure]:
    """The figures."""
    ours = [sys.executable, "-m", "console", "bench"]
    run([sys.executable, "-c", _LOADER, str(root)], env)  # the files are in memory from here on
    loop, _ = run([sys.executable, "-c", _LOADER, str(root)], env)
    view, view_memory = run([sys.executable, "-c", _SCANNER, str(root)], env)
    triage, triage_memory = run([*ours, "triage", str(root), "--json", "--no-cache"], env)
    text, text_memory = run([*ours, "triage", str(root)], env)
    tally, tally_memory = run([*ours, "tally", str(root), "--json"], env)
    again, _ = run([*ours, "triage", str(root)], env)
    again_tally, _ = run([*ours, "tally", str(root), "--json"], env)
    peak = max(triage_memory, text_memory, tally_memory)
    both = text + tally
    plain, viewer = Beside("json.load loop", loop), Beside("harbor view's scanner", view)
    return [
        Figure("triage, cold, to JSON lines", triage, "s", beside=plain),
        Figure("triage and tally, cold", both, "s", target=COLD_SECONDS, beside=viewer),
        Figure("their peak memory", peak, "MB", target=COLD_MEGABYTES, beside=Beside("harbor view", view_memory)),
        Figure("triage, second look", again, "s", target=SECOND_LOOK, beside=viewer),
        Figure("tally, second look", again_tally, "s", target=SECOND_LOOK, beside=viewer),
        Figure("triage beside json.load", triage / loop, "times"),
        Figure("triage and tally beside harbor view", both / view, "times"),
    ]


if __name__ == "__main__":
    main()
