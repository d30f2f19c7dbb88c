"""What a resume costs: an engine is killed when 24 of 32 trials of a step have ended, and the run is resumed.

Real engines, gateway, sandboxes and trials, as `train` starts them. An idle machine gives the figures that count.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from report import Beside, Figure, add_json_option, emit

from console.control.runs import run_at
from console.journal import events as ev
from console.journal.reader import Journal
from console.training.replay import plan

ROOT = Path(__file__).resolve().parents[1]
GROUPS, SIZE, USABLE, KILLED_IN = 4, 8, 24, 2


def train(run_dir: Path, *more: str) -> float:
    """Start the run, or go on with it; Unix seconds before the command."""
    began = time.time()
    command = [
        sys.executable, "-m", "console", "train", "console.gateway=embedded",
        "config.model_name=quarterdeck/midshipman", "config.renderer_name=qwen3_instruct", "config.lora_rank=8",
        "config.learning_rate=1e-3", "config.max_tokens=48", "config.loss_fn=ppo", "config.ttl_seconds=None",
        "config.save_every=0", "config.eval_every=0", "config.num_groups_to_log=0",
        "config.rollout_json_export=false", f"config.max_steps={KILLED_IN + 1}", f"config.log_path={run_dir}",
        f"config.dataset_builder.tasks_dir={ROOT / 'configs/tasks'}",
        f"config.dataset_builder.groups_per_batch={GROUPS}", f"config.dataset_builder.group_size={SIZE}",
        "config.dataset_builder.epochs=4", f"harbor.trial_config={ROOT / 'configs/trials/terminal-bwrap.json'}",
        f"harbor.max_parallel_trials_per_group={SIZE}", *more,
    ]  # fmt: skip
    done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, cwd=ROOT, check=False)
    if done.returncode:
        raise SystemExit(f"train ended with {done.returncode}; see {run_dir}")
    return began


def events(run_dir: Path) -> list[ev.Event]:
    """All of the journal so far."""
    return list(Journal(run_dir / "journal").events())


def ended(told: list[ev.Event], step: int, reused: bool = False) -> list[ev.TrialFinished]:
    """Ends of a step's trials."""
    return [e for e in told if isinstance(e, ev.TrialFinished) and e.step == step and e.reused is reused]


def kill_amid(run_dir: Path) -> None:
    """Kill the engine when enough trials of the step have ended, and wait until it is gone."""
    while len(ended(events(run_dir), KILLED_IN)) < USABLE:
        time.sleep(0.02)
    run = run_at(run_dir)
    os.kill(run.pid, signal.SIGKILL)
    while run_at(run_dir).alive():
        time.sleep(0.05)


def main() -> None:
    """Run, kill, resume, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    add_json_option(parser)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="qd-resume-") as directory:
        os.environ["QUARTERDECK_STATE_DIR"] = f"{directory}/state"
        run_dir = Path(directory) / "run"
        train(run_dir, "--detach")
        kill_amid(run_dir)
        killed = events(run_dir)
        began = time.perf_counter()
        plan(run_dir, checkpoint={"batch": 0, "state_path": "x"}, fresh_weights="", recipe="")
        planned = time.perf_counter() - began
        asked = train(run_dir, "--headless")
        emit(_figures(killed, events(run_dir)[len(killed) :], asked, planned), args.json)


def _figures(killed: list[ev.Event], after: list[ev.Event], asked: float, planned: float) -> list[Figure]:
    resumed = next(e for e in after if isinstance(e, ev.RunResumed))
    rows = {e.step: e for e in after if isinstance(e, ev.StepFinished)}
    whole = next(e for e in killed if isinstance(e, ev.StepFinished) and e.step == KILLED_IN - 1)
    began = next(e.ts for e in after if isinstance(e, ev.StepStarted) and e.step == KILLED_IN)
    created = [e.ts for e in after if isinstance(e, ev.TrialPhase) and e.step == KILLED_IN and e.phase == "create"]
    others = [e.ts for e in ended(after, KILLED_IN)]
    rollout, own = rows[KILLED_IN].seconds_rollout, others and max(others) - min(created)
    again = [row.seconds_total for row in rows.values() if row.replayed and row.seconds_total is not None]
    return [
        Figure("trials used of the interrupted step", resumed.reused, "trials", USABLE, "higher"),
        Figure("trials that ran again", resumed.redone, "trials", GROUPS * SIZE - USABLE),
        Figure(
            "rollout of the interrupted step", rollout, "s", own + 0.5, beside=Beside("its other trials alone", own)
        ),
        Figure("a rollout of all trials", whole.seconds_rollout, "s"),
        Figure("from the step's start to its first new trial", min(created) - began, "s"),
        Figure("from command to first new trial", min(created) - asked, "s", 20.0),
        Figure("steps trained again", len(resumed.replayed), "steps", KILLED_IN, "higher"),
        Figure("a step that is trained again", sum(again) / max(1, len(again)), "s", beside=Beside(
            "with its rollout", whole.seconds_total)),
        Figure("reading and checking what is used", planned, "s"),
    ]  # fmt: skip


if __name__ == "__main__":
    main()
