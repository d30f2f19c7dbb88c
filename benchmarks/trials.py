"""What Quarterdeck adds to a trial: wall time over the agent's own work, lag of the engine's loop, cost of waiting.

    python benchmarks/trials.py [--parallel 16] [--rounds 4] [--idle-trials 32] [--idle-seconds 10] [--json]

Every trial is a real Harbor trial in a bubblewrap sandbox with the oracle agent, whose work is `sleep 0.2`. Beside ours
stands `harbor run` on the same task with the same environment, its own start-up not counted. Harbor records a trial
from after its creation on, so that comparison is of what Harbor recorded in both; targets are for what a caller sees.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from report import Beside, Figure, add_json_option, emit

from console.trials.bwrap_policy import error_policy
from console.trials.pool import RunnerPool
from console.trials.protocol import StartTrial, TrialReport

WORK = 0.2
ENVIRONMENT = {"import_path": "console.trials.bwrap:BwrapEnvironment"}
TASK = """
schema_version = "1.4"
[agent]
timeout_sec = 600
[environment]
network_mode = "no-network"
"""


def make_task(directory: Path, name: str, solve: str) -> Path:
    task = directory / name
    for folder in ("environment", "solution", "tests"):
        (task / folder).mkdir(parents=True)
    (task / "task.toml").write_text(TASK)
    (task / "instruction.md").write_text("Write done.\n")
    (task / "environment" / "Dockerfile").write_text("FROM debian\nWORKDIR /app\n")
    (task / "solution" / "solve.sh").write_text(f"#!/bin/bash\n{solve}\necho done > /app/done\n")
    test = "test -f /app/done && echo 1 > /logs/verifier/reward.txt || echo 0 > /logs/verifier/reward.txt"
    (task / "tests" / "test.sh").write_text(f"#!/bin/bash\n{test}\n")
    return task


@dataclass
class Batch:
    """Added seconds of each trial, as Harbor recorded them and as the caller saw them, and trials per second."""

    recorded: list[float]
    rate: float
    seen: list[float] = field(default_factory=list)


def recorded_span(path: Path) -> tuple[datetime, datetime]:
    """Begin and end of a successful trial as Harbor wrote them."""
    result = json.loads(path.read_text())
    if (result["verifier_result"] or {}).get("rewards") != {"reward": 1.0}:
        raise SystemExit(f"a trial failed: {path}")
    return datetime.fromisoformat(result["started_at"]), datetime.fromisoformat(result["finished_at"])


def recorded_seconds(path: Path) -> float:
    began, ended = recorded_span(path)
    return (ended - began).total_seconds()


class Bench:
    """A pool and a counter of trials."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.pool = RunnerPool(log_path=directory / "runner.log", root_dir=directory / "roots")
        self._count = 0

    async def trial(self, task: Path, on_phase: Any = None) -> tuple[TrialReport, float]:
        """One trial: its report, and the wall time that its caller saw."""
        self._count += 1
        config = {
            "task": {"path": str(task)},
            "trials_dir": str(self.directory / "trials"),
            "agent": {"name": "oracle"},
            "environment": ENVIRONMENT,
            "override_error_policy": error_policy(),
        }
        began = time.perf_counter()
        report = await self.pool.run(
            StartTrial(key=f"b{self._count}", config=config), on_phase or (lambda progress: None)
        )
        return report, time.perf_counter() - began

    async def batch(self, task: Path, parallel: int, total: int) -> Batch:
        """`total` trials, `parallel` at a time."""
        gate = asyncio.Semaphore(parallel)
        seen: list[float] = []
        recorded: list[float] = []

        async def one() -> None:
            async with gate:
                report, wall = await self.trial(task)
            if report.rewards != {"reward": 1.0}:
                raise SystemExit(f"a trial failed: {report}")
            seen.append(wall - WORK)
            recorded.append(recorded_seconds(Path(report.trial_dir or "", "result.json")) - WORK)

        began = time.perf_counter()
        await asyncio.gather(*(one() for _ in range(total)))
        return Batch(recorded, total / (time.perf_counter() - began), seen)


async def watch_lag(lags: list[float]) -> None:
    while True:
        began = time.perf_counter()
        await asyncio.sleep(0.005)
        lags.append(time.perf_counter() - began - 0.005)


def harbor_run(directory: Path, task: Path, parallel: int, total: int) -> Batch:
    """The same trials in one `harbor run`."""
    jobs = directory / f"jobs{parallel}"
    config = {
        "job_name": "beside",
        "jobs_dir": str(jobs),
        "n_attempts": total,
        "n_concurrent_trials": parallel,
        "quiet": True,
        "agents": [{"name": "oracle"}],
        "tasks": [{"path": str(task)}],
        "environment": ENVIRONMENT,
        "override_error_policy": error_policy(),
    }
    path = directory / f"job{parallel}.json"
    path.write_text(json.dumps(config))
    environment = os.environ | {"HARBOR_TELEMETRY": "0", "LITELLM_LOCAL_MODEL_COST_MAP": "True"}
    program = Path(sys.executable).with_name("harbor")
    done = subprocess.run(
        [str(program), "run", "-c", str(path), "-y"], env=environment, capture_output=True, text=True, check=False
    )
    spans = [recorded_span(path) for path in (jobs / "beside").glob("*/result.json")]
    if len(spans) != total:
        raise SystemExit(f"harbor run: {len(spans)} of {total} trials ended\n{done.stdout}{done.stderr}")
    first = min(path.stat().st_mtime for path in (jobs / "beside").glob("*/lock.json"))  # written at a trial's creation
    wall = max(ended for _, ended in spans).timestamp() - first
    return Batch([(ended - began).total_seconds() - WORK for began, ended in spans], total / wall)


def cpu_seconds(pids: list[int]) -> float:
    """Processor time of processes and everything below them, so far."""
    children: dict[int, list[int]] = {}
    used: dict[int, float] = {}
    tick = os.sysconf("SC_CLK_TCK")
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rsplit(")", 1)[1].split()
            except OSError:
                continue
            children.setdefault(int(fields[1]), []).append(int(entry.name))
            used[int(entry.name)] = (int(fields[11]) + int(fields[12])) / tick
    total, queue = 0.0, list(pids)
    while queue:
        pid = queue.pop()
        total += used.get(pid, 0.0)
        queue += children.get(pid, [])
    return total


async def idle_share(bench: Bench, trials: int, seconds: float) -> float:
    """Percent of one core that this process, the runner and the sandboxes use while every agent waits."""
    task = make_task(bench.directory, "idle", "sleep 100000")
    waiting = 0

    def on_phase(progress: Any) -> None:
        nonlocal waiting
        waiting += progress.phase == "agent"

    running = [asyncio.create_task(bench.trial(task, on_phase)) for _ in range(trials)]
    try:
        while waiting < trials:  # noqa: ASYNC110
            await asyncio.sleep(0.05)
        await asyncio.sleep(1)
        before = cpu_seconds([os.getpid()])
        await asyncio.sleep(seconds)
        return 100 * (cpu_seconds([os.getpid()]) - before) / seconds
    finally:
        for one in running:
            one.cancel()
        await asyncio.wait(running)


def percentile(values: list[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


async def measure(options: argparse.Namespace, directory: Path) -> list[Figure]:
    bench = Bench(directory)
    began = time.perf_counter()
    await bench.pool.start()
    boot = time.perf_counter() - began
    task = make_task(directory, "work", f"sleep {WORK}")
    total = options.parallel * options.rounds
    lags: list[float] = []
    try:
        await bench.batch(task, 1, 2)
        alone = await bench.batch(task, 1, options.parallel)
        lag = asyncio.create_task(watch_lag(lags))
        together = await bench.batch(task, options.parallel, total)
        lag.cancel()
        idle = await idle_share(bench, options.idle_trials, options.idle_seconds)
    finally:
        await bench.pool.close()
    beside_alone = harbor_run(directory, task, 1, options.parallel)
    beside_together = harbor_run(directory, task, options.parallel, total)

    def milliseconds(name: str, ours: float, theirs: float | None = None, target: float | None = None) -> Figure:
        beside = Beside("harbor run", theirs * 1000) if theirs is not None else None
        return Figure(name, ours * 1000, "ms", target=target, beside=beside)

    figures = [Figure("runner ready", boot, "s")]
    for where, ours, theirs, target in (
        ("alone", alone, beside_alone, 0.069),
        (f"at {options.parallel} in parallel", together, beside_together, 0.420),
    ):
        figures += [
            milliseconds(f"added per trial {where}, median", statistics.median(ours.seen), target=target * 1000),
            milliseconds(
                f"added per trial {where}, median, as Harbor records it",
                statistics.median(ours.recorded),
                statistics.median(theirs.recorded),
            ),
            milliseconds(
                f"added per trial {where}, p95, as Harbor records it",
                percentile(ours.recorded, 0.95),
                percentile(theirs.recorded, 0.95),
            ),
            Figure(f"trials {where}", ours.rate, "1/s", better="higher", beside=Beside("harbor run", theirs.rate)),
        ]
    return [
        *figures,
        milliseconds("lag of the engine's loop meanwhile, p99", percentile(lags, 0.99), target=20),
        milliseconds("lag of the engine's loop meanwhile, largest", max(lags)),
        Figure(f"processor share with {options.idle_trials} agents waiting", idle, "% of a core", target=3),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parallel", type=int, default=16)
    parser.add_argument("--rounds", type=int, default=4, help="trials per place in parallel")
    parser.add_argument("--idle-trials", type=int, default=32)
    parser.add_argument("--idle-seconds", type=float, default=10)
    add_json_option(parser)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="quarterdeck-bench-") as directory:
        figures = asyncio.run(measure(options, Path(directory)))
    emit(figures, as_json=options.json)


if __name__ == "__main__":
    main()
