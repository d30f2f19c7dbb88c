# ruff: noqa: E402 - what lies beside this file is found only once the path is extended
"""Processes that stand still, and signals: `python -m tests.faults.stood_still [CASE ...]`.

`engine`, `gateway`, `runner`: a SIGSTOP of 30 s, as a lid that is closed makes it, against a gateway like Miles whose
lease is 15 s (the SDK beats every 10); then the run is left alone until it ends, and resumed until it completes.
`SIG..:WHO[:twice]`: a signal to the command or the engine of a headless run with sandboxes that do not go. Prints a
line a case.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path[:0] = [entry for entry in map(str, (HERE, HERE.parent / "support", ROOT)) if entry not in sys.path]

import psutil
from whole_runs import processes_of

from console.control.runs import run_at
from console.errors import RecordingError
from console.journal import events as ev
from console.journal.reader import Journal
from console.records.run_dir import RunRecord

STOPS = ("engine", "gateway", "runner")
SIGNALS = tuple(f"{name}:{who}{end}" for name in ("SIGHUP", "SIGTERM", "SIGINT") for who in ("command", "engine")
                for end in ("", ":twice"))  # fmt: skip
STILL_SECONDS, LEASE_SECONDS, STEPS = 30.0, 15, 12


class Stage:
    """A gateway of its own, a run, and the command that owns it."""

    def __init__(self, base: Path) -> None:
        self.base, self.run_dir, self.held = base, base / "run", base / "held"
        self.env = os.environ | {
            "PYTHONPATH": os.pathsep.join(map(str, (ROOT, HERE.parent / "support", HERE))),
            "QUARTERDECK_STATE_DIR": str(base / "state"), "TINKER_API_KEY": "tml-tests",
            "QUARTERDECK_TEST_STUCK": str(self.held),
        }  # fmt: skip
        command = [sys.executable, "-m", "console", "gateway", "serve", "--like", "miles", "--lease"]
        command += [str(LEASE_SECONDS), "--checkpoints", str(base / "gateway"), "--exit-with-stdin"]
        self.gateway = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=(base / "gateway.log").open("wb"),
            env=self.env, cwd=ROOT,
        )  # fmt: skip
        assert self.gateway.stdout is not None
        self.url = json.loads(self.gateway.stdout.readline())["url"]
        self.count = 0

    def train(self, *words: str) -> subprocess.Popen[bytes]:
        """A headless command; what it says is in files."""
        self.count += 1
        command = [sys.executable, "-m", "console", "train", "--headless", *words]
        return subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=(self.base / f"{self.count}.out").open("wb"),
            stderr=(self.base / f"{self.count}.err").open("wb"), env=self.env, cwd=ROOT, start_new_session=True,
        )  # fmt: skip

    def words(self, room: str = "console.trials.bwrap:BwrapEnvironment", steps: int = STEPS) -> list[str]:
        """What the run is told."""
        trial = json.loads((ROOT / "configs/trials/terminal-bwrap.json").read_text())
        trial["environment"]["import_path"] = room
        (self.base / "trial.json").write_text(json.dumps(trial))
        return [
            f"config.base_url={self.url}", "config.model_name=quarterdeck/midshipman", "config.lora_rank=8",
            "config.renderer_name=qwen3_instruct", "config.learning_rate=1e-3", "config.max_tokens=24",
            "config.loss_fn=ppo", "config.ttl_seconds=None", f"config.log_path={self.run_dir}", "config.save_every=5",
            f"config.max_steps={steps}", f"config.dataset_builder.tasks_dir={ROOT / 'configs/tasks'}",
            "config.dataset_builder.groups_per_batch=2", "config.dataset_builder.group_size=2",
            "config.dataset_builder.epochs=4", "config.eval_every=0", "config.num_groups_to_log=0",
            f"harbor.trial_config={self.base / 'trial.json'}", "console.probe_interval=1",
        ]  # fmt: skip

    def events(self) -> list[ev.Event]:
        """Of the journal so far."""
        try:
            return list(Journal(self.run_dir / "journal").events())
        except RecordingError:
            return []

    def until(self, condition: Any, process: subprocess.Popen[bytes]) -> None:
        """Wait for something that the events tell."""
        deadline = time.monotonic() + 150
        while not condition(self.events()):
            said = (self.base / f"{self.count}.err").read_text()[-800:]
            assert process.poll() is None and time.monotonic() < deadline, f"waited in vain: {said}"
            time.sleep(0.1)

    def close(self) -> None:
        """End whatever of it still runs."""
        self.held.unlink(missing_ok=True)
        for process in psutil.process_iter(["environ"]):
            if (process.info["environ"] or {}).get("QUARTERDECK_STATE_DIR") == str(self.base / "state"):
                with contextlib.suppress(psutil.Error):
                    process.kill()
        self.gateway.wait(10)


def stand_still(who: str, stage: Stage) -> str:
    """One process stands still for a while."""
    run = stage.train(*stage.words())
    stage.until(lambda events: any(isinstance(e, ev.StepFinished) for e in events), run)
    engine = run_at(stage.run_dir).pid
    runner = next(
        child.pid for child in psutil.Process(engine).children(True) if "console.trials.runner" in child.cmdline()
    )
    pid = {"engine": engine, "gateway": stage.gateway.pid, "runner": runner}[who]
    os.kill(pid, signal.SIGSTOP)
    time.sleep(STILL_SECONDS)
    os.kill(pid, signal.SIGCONT)
    began = time.monotonic()
    code = run.wait(200)
    seconds = time.monotonic() - began
    view = RunRecord(stage.run_dir).view_at_end()
    told = f"{who:10} stood still for {STILL_SECONDS:.0f} s: exit {code} after {seconds:.0f} s more, "
    told += f"{view.state.steps_done} steps; {view.state.reason}"
    tries = 0
    while code != 0 and tries < 3:
        tries += 1
        code = stage.train("--resume", str(stage.run_dir)).wait(200)
    rows = [row.step for row in RunRecord(stage.run_dir).view_at_end().history.rows]
    wrong = "" if code == 0 and rows == list(range(STEPS)) else "WRONG "
    causes = {e.outcome for e in stage.events() if isinstance(e, ev.TrialFinished) and e.reward is None}
    return f"{wrong}{told}; {tries} resumes: exit {code}, steps {rows}; outcomes not scored: {sorted(causes)}"


def signalled(name: str, stage: Stage) -> str:
    """A signal to the command or its engine, perhaps twice, while sandboxes do not go."""
    number, who, *again = name.split(":")
    stage.held.touch()
    run = stage.train(*stage.words("stuck_rooms:StuckRoom", steps=1))
    stage.until(lambda events: any(isinstance(e, ev.TrialPhase) and e.phase == "agent" for e in events), run)
    pid = run.pid if who == "command" else run_at(stage.run_dir).pid
    began = time.monotonic()
    os.kill(pid, signal.Signals[number])
    if again:
        time.sleep(0.5)
        os.kill(pid, signal.Signals[number])
    code = run.wait(60)
    seconds = time.monotonic() - began
    last = next((e for e in reversed(stage.events()) if isinstance(e, ev.RunFinished)), None)
    end = "no end" if last is None else f"{last.status}, exit {last.exit_code}: {last.reason}"
    engine = [one for one in processes_of(stage.run_dir) if "console.engine" in one]
    wrong = "" if last is not None and not engine and seconds < (3 if again else 8) else "WRONG "
    return f"{wrong}{name:24} exit {code} in {seconds:.1f} s; journal: {end}"


def main(names: list[str]) -> int:
    """All cases, or those that are named; the number of those that went wrong."""
    failed = 0
    for name in names or [*STOPS, *SIGNALS]:
        with tempfile.TemporaryDirectory(prefix="stood-still-", ignore_cleanup_errors=True) as directory:
            stage = Stage(Path(directory))
            try:
                told = stand_still(name, stage) if name in STOPS else signalled(name, stage)
            except (AssertionError, subprocess.TimeoutExpired, StopIteration) as error:
                told = f"WRONG {name}: {error!r}"
            finally:
                stage.close()
            failed += told.startswith("WRONG")
            print(told, flush=True)
    return failed


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
