"""How fast benchmark runs are read: 10,000 trials, triage, tally and compare, cold and a second time.

Beside them a plain loop of `json.load` over the results, and `harbor view`: the real server on the same directory, from
its start until it has listed the jobs and the first page of the trials, for which it reads them all. The trials are
made here, seeded, in the shape of Harbor 0.26. "Cold" is without our cache; the files themselves are in the memory of
the operating system for every one of the programs.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
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
    """Two jobs of so many trials together: 70 % end by themselves, 12 % at their time-out, the rest fails in several
    ways."""
    rng = random.Random(20_240_807)
    settings = {"concurrent": 8, "attempts": 5, "agent_timeout_multiplier": 4.0}
    jobs = [HarborJob(directory / name, agent=name, **settings) for name in ("terminus-2", "mini-swe-agent")]
    transcript = "".join(f"step {at}: the agent reads, thinks and runs a command\n" for at in range(400))
    steps = [{"step_id": at, "source": "agent", "tool_calls": [{"function_name": "bash"}]} for at in range(20)]
    trajectory = json.dumps({"schema_version": "ATIF-v1.5", "steps": steps})
    for number in range(trials):
        files = {"agent/agent.txt": transcript, "agent/trajectory.json": trajectory}
        kind, tokens = rng.random(), (rng.randrange(10**6), rng.randrange(10**5), rng.randrange(10**5))
        task, job = f"terminal-bench/task-{number // 10:04}", jobs[number // 5 % 2]
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
    for job in jobs:
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


class Viewer:
    """`harbor view` of a directory of jobs, in a process of its own.

    Attributes:
        started: seconds from the start of the process until it answers.
    """

    def __init__(self, process: subprocess.Popen[bytes], address: str) -> None:
        self._process, self._address = process, address
        began = time.perf_counter()
        while True:
            with contextlib.suppress(urllib.error.URLError, ConnectionError):
                self._get("health")
                break
            if process.poll() is not None or time.perf_counter() - began > 120:
                raise SystemExit("harbor view did not start")
            time.sleep(0.01)
        self.started = time.perf_counter() - began

    def listing(self) -> float:
        """Seconds until it has listed the jobs and, of each, the first page of its trials."""
        began = time.perf_counter()
        for job in self._get("jobs")["items"]:
            found = self._get(f"jobs/{job['name']}/trials")
            if not found["items"]:
                raise SystemExit("harbor view lists no trial")
        return time.perf_counter() - began

    def peak(self) -> float:
        """Megabytes of memory that it has had at most so far."""
        status = Path(f"/proc/{self._process.pid}/status").read_text()
        return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM")) / 1024

    def _get(self, path: str) -> dict[str, list[dict[str, str]]]:
        with urllib.request.urlopen(f"{self._address}/api/{path}", timeout=600) as answer:
            found: dict[str, list[dict[str, str]]] = json.load(answer)
            return found


@contextlib.contextmanager
def viewing(root: Path, env: dict[str, str]) -> Iterator[Viewer]:
    """The viewer of `root`, while the context is entered."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [
        str(Path(sys.executable).parent / "harbor"),
        "view",
        str(root),
        "--jobs",
        "--no-build",
        "--port",
        str(port),
    ]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "stdin": subprocess.DEVNULL}
    process = subprocess.Popen(command, env=env | {"HARBOR_TELEMETRY": "0"}, **quiet)
    try:
        yield Viewer(process, f"http://127.0.0.1:{port}")
    finally:
        process.send_signal(signal.SIGINT)
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    add_json_option(parser)
    parser.add_argument("--trials", type=int, default=10_000)
    parser.add_argument("--keep", type=Path, help="make the jobs below this directory, or use those that are there")
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
    load = [sys.executable, "-c", _LOADER, str(root)]
    run(load, env)  # the files are in memory from here on
    loop, _ = run(load, env)
    with viewing(root, env) as viewer:
        listed = viewer.listing()
        listed_again, started, view_memory = viewer.listing(), viewer.started, viewer.peak()
    triage, triage_memory = run([*ours, "triage", str(root), "--json", "--no-cache"], env)
    text, text_memory = run([*ours, "triage", str(root)], env)
    tally, tally_memory = run([*ours, "tally", str(root), "--json"], env)
    again, _ = run([*ours, "triage", str(root)], env)
    again_tally, _ = run([*ours, "tally", str(root), "--json"], env)
    halves = sorted(str(job) for job in root.iterdir())
    compare, compare_memory = run([*ours, "compare", *halves, "--no-cache"], env)
    run([*ours, "compare", *halves], env)
    again_compare, _ = run([*ours, "compare", *halves], env)
    peak, both = max(triage_memory, text_memory, tally_memory, compare_memory), text + tally
    first = started + listed
    plain, viewed = Beside("json.load loop", loop), Beside("harbor view, with its start", first)
    return [
        Figure("triage, cold, to JSON lines", triage, "s", beside=plain),
        Figure("triage and tally, cold", both, "s", target=COLD_SECONDS, beside=viewed),
        Figure("compare of its halves, cold", compare, "s", beside=viewed),
        Figure("their peak memory", peak, "MB", target=COLD_MEGABYTES, beside=Beside("harbor view", view_memory)),
        Figure(
            "triage, second look", again, "s", SECOND_LOOK, beside=Beside("harbor view, second listing", listed_again)
        ),
        Figure("tally, second look", again_tally, "s", target=SECOND_LOOK),
        Figure("compare, second look", again_compare, "s", target=SECOND_LOOK),
        Figure("triage beside json.load", triage / loop, "times"),
        Figure("triage and tally beside harbor view, with its start", both / first, "times"),
        Figure("triage and tally beside harbor view, once it runs", both / listed, "times"),
        Figure("second triage beside a second listing", again / listed_again, "times"),
    ]


if __name__ == "__main__":
    main()
