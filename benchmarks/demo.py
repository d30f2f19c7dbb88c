"""The main job as a whole: time to the first trial, to the last step, and how well the engine answers meanwhile.

    python benchmarks/demo.py [--steps 15] [--json]

The engine's responsiveness is taken from outside, as an operator feels it: the round trip of a dry-run command every
50 ms over its socket, which its main loop must answer. `--idle` adds the load of engine and runner while 32 trials wait
in a long command.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psutil
from report import Beside, Figure, add_json_option, emit

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from console.control.client import ControlClient, new_command  # noqa: E402
from console.control.runs import run_at  # noqa: E402
from console.journal import events as ev  # noqa: E402
from console.journal.reader import Journal  # noqa: E402

ONE_PROCESS_FIRST_TRIAL, ONE_PROCESS_WALL = 7.7, 40.0
"""Seconds of the same chain with everything in one process, without journal and console."""

IDLE_SECONDS = 20.0


def quantile(values: list[float], q: float) -> float | None:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(q * len(ordered)))] if ordered else None


def environment(state: Path) -> dict[str, str]:
    return os.environ | {"QUARTERDECK_STATE_DIR": str(state)}


async def round_trips(run_dir: Path, process: subprocess.Popen[bytes]) -> list[tuple[float, float]]:
    """Unix time and seconds of each dry-run command until the run ends."""
    while process.poll() is None and not (run_dir / "journal").is_dir():  # noqa: ASYNC110 - another process makes it
        await asyncio.sleep(0.05)
    socket = None
    while process.poll() is None and socket is None:
        await asyncio.sleep(0.1)
        try:
            socket = run_at(run_dir).socket
        except Exception:
            continue
    took: list[tuple[float, float]] = []
    try:
        client = await ControlClient.connect(str(socket))
        while process.poll() is None:
            started = time.perf_counter()
            await client.command(new_command("stop_now", dry_run=True))
            took.append((time.time(), time.perf_counter() - started))
            await asyncio.sleep(0.05)
    except Exception as over:
        print(f"the run is over: {over}", file=sys.stderr)
    return took


def demo(steps: int, work: Path) -> list[Figure]:
    """Run the demo once, headless, and read its journal."""
    run_dir = work / "demo"
    started = time.time()
    process = subprocess.Popen(
        [sys.executable, "-m", "console", "demo", "--headless", "--steps", str(steps), "--dir", str(run_dir)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        cwd=ROOT,
        env=environment(work / "state"),
    )
    took = asyncio.run(round_trips(run_dir, process))
    wall = time.time() - started
    if process.wait() != 0:
        raise SystemExit(f"the demo ended with exit code {process.returncode}: see {run_dir}/engine.log")
    events = list(Journal(run_dir / "journal").events())
    first = next(e.ts for e in events if isinstance(e, ev.TrialPhase) and e.phase == "create")
    rows = [e for e in events if isinstance(e, ev.StepFinished)]
    spent = rows[-1].ts - next(e.ts for e in events if isinstance(e, ev.StepStarted))
    rewards = [row.reward_mean or 0.0 for row in rows]
    turns = sum(e.turns for e in events if isinstance(e, ev.TrialFinished))
    trials = sum(isinstance(e, ev.TrialFinished) for e in events)
    milliseconds = [1e3 * seconds for at, seconds in took if at >= first]  # before that it imports, and nobody waits
    return [
        Figure("demo: start to first trial", first - started, "s", 10.0, "lower",
               Beside("all in one process", ONE_PROCESS_FIRST_TRIAL)),
        Figure(f"demo: {steps} steps of 32 trials", spent, "s", 75.0 if steps == 15 else None, "lower",
               Beside("all in one process, whole command", ONE_PROCESS_WALL)),
        Figure("demo: whole command", wall, "s"),
        Figure("demo: turns a trial", turns / max(1, trials), "turns"),
        Figure("demo: reward of the first three steps", sum(rewards[:3]) / 3, "", 0.7, "lower"),
        Figure("demo: reward of the last three steps", sum(rewards[-3:]) / 3, "", 0.85, "higher"),
        Figure("engine: command round trip, median", quantile(milliseconds, 0.5), "ms"),
        Figure("engine: command round trip, p99", quantile(milliseconds, 0.99), "ms", 20.0, "lower",
               Beside("loop lag, all in one process", 135.0)),
        Figure("engine: command round trip, longest", max(milliseconds, default=0.0), "ms"),
    ]  # fmt: skip


def idle(work: Path) -> list[Figure]:
    """Processor time of engine and runner while 32 trials wait in a long command."""
    tasks, run_dir = work / "tasks", work / "idle"
    for name in ("wait-1", "wait-2", "wait-3", "wait-4"):
        for part in ("environment", "tests", "solution"):
            (tasks / name / part).mkdir(parents=True)
        (tasks / name / "task.toml").write_text('[environment]\nworkdir = "/app"\nnetwork_mode = "no-network"\n')
        (tasks / name / "instruction.md").write_text("Wait.\n")
        (tasks / name / "environment" / "notes.txt").write_text("\n")
        (tasks / name / "tests" / "test.sh").write_text("#!/bin/bash\necho 0 > /logs/verifier/reward.txt\n")
        (tasks / name / "solution" / "solve.sh").write_text("#!/bin/bash\nsleep 600\n")
    trial = work / "idle.json"
    sandbox = {"import_path": "console.trials.bwrap:BwrapEnvironment"}
    trial.write_text(json.dumps({"environment": sandbox, "agent": {"name": "oracle"}}))
    process = subprocess.Popen(
        [sys.executable, "-m", "console", "demo", "--headless", "--dir", str(run_dir),
         f"config.dataset_builder.tasks_dir={tasks}", f"harbor.trial_config={trial}",
         "harbor.max_parallel_trials_per_group=8"],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=ROOT, env=environment(work / "state"),
    )  # fmt: skip
    try:
        deadline = time.monotonic() + 120
        while time.monotonic() < deadline:
            time.sleep(0.5)
            try:
                info = run_at(run_dir)
                events = list(Journal(run_dir / "journal").events())
            except Exception:
                continue
            agents = {(e.group, e.trial) for e in events if isinstance(e, ev.TrialPhase) and e.phase == "agent"}
            if len(agents) == 32:
                break
        time.sleep(3)
        engine = psutil.Process(info.pid)
        watched = [engine] + [c for c in engine.children() if "console.trials.runner" in " ".join(c.cmdline())]
        before = sum(sum(p.cpu_times()[:2]) for p in watched)
        time.sleep(IDLE_SECONDS)
        used = sum(sum(p.cpu_times()[:2]) for p in watched) - before
        memory = sum(p.memory_info().rss for p in watched) / 2**20
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(60)
    return [
        Figure("idle: engine and runner, 32 trials", 100 * used / IDLE_SECONDS, "% of a core", 3.0),
        Figure("idle: engine and runner, resident", memory, "MB"),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=15)
    parser.add_argument("--idle", action="store_true", help="also measure 32 idle trials (about a minute more)")
    parser.add_argument("--only-idle", action="store_true", help="measure only that")
    add_json_option(parser)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="quarterdeck-bench-") as folder:
        work = Path(folder)
        os.environ["QUARTERDECK_STATE_DIR"] = str(work / "state")
        figures = [] if args.only_idle else demo(args.steps, work)
        if args.idle or args.only_idle:
            figures += idle(work)
        emit(figures, args.json)


if __name__ == "__main__":
    main()
