"""A 6-step run whose engines are killed with -9, over and over, at moments of every phase, and resumed each time.

    python -m tests.faults.kill_harness --kills 50 --seed 1

Real commands, engines, runners, sandboxes, and each engine's own embedded gateway. Prints one line a kill, one a run,
and what it comes to; the exit code is 1 when something does not hold.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests/support"), str(Path(__file__).parent)]

import psutil  # noqa: E402
from kill_plan import Kill, kills, runs  # noqa: E402
from kill_verify import Report, Usable, after_kill, reap, verify  # noqa: E402

STEPS, GROUPS, SIZE, SUBSTEPS = 6, 2, 3, 2
TASKS = ("create-file", "note-write", "copy-file", "append-line")
KILL_SITE = Path(__file__).parent / "kill_site"
ENGINE_SECONDS = 240.0


def options(run_dir: Path, tasks_dir: Path, save_every: int, steps: int = STEPS) -> list[str]:
    """Of the run, for the command line."""
    return [
        "console.gateway=embedded", "config.model_name=quarterdeck/midshipman",
        "config.renderer_name=qwen3_instruct", "config.learning_rate=3e-3", "config.lora_rank=8",
        "config.max_tokens=32", "config.loss_fn=ppo", "config.ttl_seconds=None", f"config.save_every={save_every}",
        "config.eval_every=0", "config.num_groups_to_log=0", "config.rollout_json_export=false",
        f"config.num_substeps={SUBSTEPS}", f"config.max_steps={steps}", f"config.log_path={run_dir}",
        f"config.dataset_builder.tasks_dir={tasks_dir}", f"config.dataset_builder.groups_per_batch={GROUPS}",
        f"config.dataset_builder.group_size={SIZE}", "config.dataset_builder.epochs=9",
        f"harbor.trial_config={ROOT / 'configs/trials/terminal-bwrap.json'}",
        f"harbor.max_parallel_trials_per_group={SIZE}",
    ]  # fmt: skip


class Victim:
    """A run, from its first command to its last.

    Args:
        run_dir: of the run; words: its options; steps: that it has.
    """

    def __init__(self, run_dir: Path, words: list[str], rng: random.Random, steps: int = STEPS) -> None:
        self.run_dir, self._words, self._rng, self._steps = run_dir, words, rng, steps
        self.report = Report()
        self.usable: list[Usable] = []
        self._commands = 0

    def command(self, kill: dict[str, Any] | None, *, detached: bool) -> tuple[int, bool, str]:
        """`train`, to the end of its engine: the exit code, whether the kill happened, and what it said."""
        self._commands += 1
        mark = self.run_dir.parent / f"{self.run_dir.name}.mark"
        mark.unlink(missing_ok=True)
        environment = os.environ | {"TINKER_API_KEY": ""}
        if kill is not None and kill["point"] != "outside":
            environment |= {"PYTHONPATH": str(KILL_SITE), "QUARTERDECK_KILL": json.dumps(kill | {"mark": str(mark)})}
        how = "--detach" if detached else "--headless"
        # The first engine may have been killed before there was anything to resume.
        again = self._commands > 1 and (self.run_dir / "options.json").is_file() and self._rng.random() < 0.5
        words = ["--resume", str(self.run_dir)] if again else self._words
        process = subprocess.Popen(
            [sys.executable, "-m", "console", "train", how, *words], cwd=ROOT, env=environment, text=True,
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
        )  # fmt: skip
        if kill is not None and kill["point"] == "outside":
            self._kill_outside(process, kill["delay"], mark)
        said = process.communicate(timeout=ENGINE_SECONDS)[1]
        deadline = time.monotonic() + ENGINE_SECONDS
        while engines_of(self.run_dir):
            if time.monotonic() > deadline:
                raise TimeoutError(f"{self.run_dir}: the engine hangs")
            time.sleep(0.02)
        return process.returncode, mark.exists(), said.strip()

    def _kill_outside(self, process: subprocess.Popen[str], delay: float, mark: Path) -> None:
        deadline = time.monotonic() + delay
        while time.monotonic() < deadline and (process.poll() is None or engines_of(self.run_dir)):
            time.sleep(0.02)
        for pid in engines_of(self.run_dir):
            os.kill(pid, signal.SIGKILL)
            mark.touch()

    def killed(self, kill: Kill) -> bool:
        """Run to the kill; whether it came. What holds after each kill is checked."""
        detached = self._rng.random() < 0.3
        code, happened, said = self.command(kill.spec, detached=detached)
        line = said.splitlines()[-1][:110] if said and not detached else ""
        if happened:
            if not detached:  # a start that failed, a death without a word, or all was said and done
                right = code == 0 if kill.point.name == "after:run.finished" else code == 7
                self.report.check(right and bool(said), f"{kill.label}: exit {code}, {said[-300:]!r}")
            reaped = self._rng.random() < 0.3 and (self.run_dir / "sandboxes.jsonl").exists()
            if reaped:
                code, text = reap(self.run_dir)
                self.report.check(code == 0, f"{kill.label}: reap after it: {code}, {text}")
            self.usable.append(after_kill(self.run_dir, self.report))
        else:
            self.report.check(code == 0, f"{kill.label}: not killed, and exit {code}: {said[-300:]}")
        trials = len(self.usable[-1].trials) if happened else 0
        print(f"  {'killed ' if happened else 'NOT YET'} {kill.label:66} {trials:3} usable  {line}", flush=True)
        return happened

    def complete(self) -> None:
        """Run to the end, and check everything."""
        code, _, said = self.command(None, detached=False)
        self.report.check(code == 0, f"the last command ended with {code}: {said[-300:]}")
        if code == 0:
            verify(self.run_dir, self._steps, SUBSTEPS, self.usable, self.report)
        code, _, said = self.command(None, detached=False)
        self.report.check(code == 0 and "already complete" in said, f"once more: {code}, {said[-300:]}")


def engines_of(run_dir: Path) -> list[int]:
    """Process ids of the run's live engines."""
    found = []
    for process in psutil.process_iter(["cmdline", "status"]):
        words = process.info["cmdline"] or []
        if "console.engine" in words and str(run_dir) in words and process.info["status"] != psutil.STATUS_ZOMBIE:
            found.append(process.pid)
    return found


def tasks_of(directory: Path) -> Path:
    """The tasks of all runs."""
    for name in TASKS:
        shutil.copytree(ROOT / "configs/tasks" / name, directory / "tasks" / name, dirs_exist_ok=True)
    return directory / "tasks"


def one_run(directory: Path, name: str, todo: list[Kill], rng: random.Random) -> tuple[Report, list[Kill]]:
    """A run through its kills, to its end: the report, and the kills up to the one whose moment did not come."""
    periodic = any(kill.point.saves for kill in todo)
    replay = any(kill.phase == "replay" for kill in todo)
    save_every = rng.choice((2, 3)) if periodic else 0 if replay else rng.choice((0, 3))
    for kill in todo:
        if kill.point.name == "outside":
            kill.spec["delay"] = round(rng.uniform(1.0, 9.0), 2)
    victim = Victim(directory / name, options(directory / name, tasks_of(directory), save_every), rng)
    print(f"{name} save_every={save_every}", flush=True)
    done: list[Kill] = []
    began = time.monotonic()
    for kill in todo:
        if not victim.killed(kill):
            break
        done.append(kill)
    victim.complete()
    report = victim.report
    rewards = " ".join("-" if mean is None else f"{mean:.2f}" for mean in report.rewards)
    print(
        f"  complete in {time.monotonic() - began:.0f} s: rewards {rewards}; {report.trials} trials scored, "
        f"{report.reused} used again, {report.replayed} steps trained again, {report.recovered} rows recovered, "
        f"{report.counted} of {report.trained} trained tokens counted",
        flush=True,
    )
    for problem in report.problems:
        print(f"  PROBLEM {problem}", flush=True)
    if not report.problems:
        shutil.rmtree(directory / name)
    return report, done


def main() -> int:
    """All runs, and what they come to."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--per-run", type=int, default=5, help="kills of one run")
    parser.add_argument("--whole", type=int, default=6, help="undisturbed runs to compare with")
    parser.add_argument("--phase", action="append", help="of these phases only")
    parser.add_argument("--keep", type=Path, help="directory of the runs; those with problems stay there")
    args = parser.parse_args()
    rng = random.Random(args.seed)
    directory = args.keep or Path(tempfile.mkdtemp(prefix="qd-kills-"))
    directory.mkdir(parents=True, exist_ok=True)
    os.environ.update(QUARTERDECK_STATE_DIR=f"{directory}/state", HARBOR_TELEMETRY="0", TINKER_TELEMETRY="0")
    whole = [one_run(directory, f"whole{i}", [], rng)[0] for i in range(args.whole)]
    todo = [kill for kill in kills(args.kills * 20, rng) if not args.phase or kill.phase in args.phase][: args.kills]
    reports: list[Report] = []
    phases: Counter[str] = Counter()
    while todo:
        later: list[Kill] = []
        for batch in runs(todo, args.per_run):
            report, done = one_run(directory, f"run{len(reports)}", batch, rng)
            reports.append(report)
            phases.update(kill.phase for kill in done)
            missed = batch[len(done) :]
            for kill in missed[:1]:
                kill.left -= 1
                kill.spec |= {"skip": min(kill.spec["skip"], 0), "count": 1}
            later += [kill for kill in missed if kill.left > 0]
        todo = later
    return summary(whole, reports, phases)


def summary(whole: list[Report], reports: list[Report], phases: Counter[str]) -> int:
    """Print what it comes to; the exit code."""
    problems = [problem for report in [*whole, *reports] for problem in report.problems]
    print(f"\n{sum(phases.values())} kills in {len(reports)} runs, {len(problems)} problems")
    print("by phase: " + ", ".join(f"{phase} {count}" for phase, count in sorted(phases.items())))
    for name, some in (("undisturbed", whole), ("killed", reports)):
        ends = [end for report in some if (end := last_rewards(report)) is not None]
        if ends:
            print(
                f"{name}: mean reward of the last 2 steps {statistics.mean(ends):.3f} "
                f"(of {len(ends)} runs: {min(ends):.2f} to {max(ends):.2f})"
            )
    for what in ("trials", "reused", "replayed", "recovered", "counted", "trained"):
        print(f"{what}: {sum(getattr(report, what) for report in reports)}")
    return 1 if problems else 0


def last_rewards(report: Report) -> float | None:
    """Mean reward of the last 2 steps, None where it is not known."""
    known = [mean for mean in report.rewards[-2:] if mean is not None]
    return statistics.mean(known) if known else None


if __name__ == "__main__":
    sys.exit(main())
