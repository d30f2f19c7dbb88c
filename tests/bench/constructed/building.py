"""Makes the job directories: real Harbor runs, a damaged copy of some of their trials, and shapes of other versions."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from itertools import groupby
from pathlib import Path
from typing import Any

from tests.bench.constructed.kinds import FINDINGS
from tests.bench.constructed.making import MANY, Made, write_task
from tests.bench.constructed.shapes import FILLERS
from tests.bench.constructed.whole import MARKS

ROOT = Path(__file__).resolve().parents[3]
SUPPORT = ROOT / "tests/support"
sys.path.insert(0, str(SUPPORT))

from harbor_jobs import HarborJob  # noqa: E402

AT_A_TIME = 3
"""Processes of Harbor."""

PARTS = 2
"""Jobs into which the many trials go."""

_OPTIONS: dict[str, dict[str, Any]] = {
    "hasty": {"agents": [{"import_path": "bench_agents:Scripted", "override_setup_timeout_sec": 1.5}]},
    "retried": {"retry": {"max_retries": 1, "min_wait_sec": 0.1, "max_wait_sec": 0.1}},
    "overridden": {
        "override_error_policy": {
            "NonZeroAgentExitCodeError": {"should_grade": False, "has_valid_reward": False},
            "SandboxError": {"has_valid_reward": True},
        }
    },
    "keys": {"n_concurrent_trials": 1},
    "repeats": {"n_attempts": 2},
    "interrupted": {"n_concurrent_trials": 8},
    "killed": {"n_concurrent_trials": 8},
}
_CUT = ("interrupted", "killed")
_WAIT = 60.0


class Workshop:
    """One directory with everything; `jobs` has the job directories.

    Attributes:
        running: what triage said of the interrupted job while it ran; seconds: that the making took.
    """

    def __init__(self, root: Path, trials: Sequence[Made]) -> None:
        self.root, self.trials = root, trials
        self.jobs = root / "jobs"
        self.running: list[dict[str, Any]] = []
        self.seconds = 0.0
        for name in ("marks", "tmp", "configs", "cache"):
            (root / name).mkdir(parents=True)

    def make(self) -> None:
        """All of it."""
        began = time.monotonic()
        harbor = [made for made in self.trials if made.by == "harbor" and made.job != "running"]
        names = list(dict.fromkeys(_job_of(made, at) for at, made in enumerate(harbor)))
        tasks: dict[str, list[Path]] = {name: [] for name in names}
        marks = {MARKS: str(self.root / "marks")}
        for at, made in enumerate(harbor):
            job = _job_of(made, at)
            tasks[job].append(write_task(self.root / "tasks" / job, made, marks))
        for made in harbor:
            if "fuse" in made.does:
                Path(made.does["fuse"].replace(MARKS, marks[MARKS])).touch()
        # Long ones first: nothing is left to wait for at the end.
        names.sort(key=lambda name: -len(tasks[name]))
        with ThreadPoolExecutor(AT_A_TIME) as pool:
            list(pool.map(lambda name: self._run(name, tasks[name]), names))
        self._damage()
        self._write()
        self.seconds = time.monotonic() - began

    def triage(self, *jobs: Path) -> list[dict[str, Any]]:
        """The rows of the real command."""
        said = self._command("--json", *map(str, jobs))
        return [json.loads(line) for line in said.splitlines()]

    @cached_property
    def findings(self) -> str:
        """What the command says about the jobs of `FINDINGS` as a whole, in one line."""
        said = " ".join(self._command(*(str(self.jobs / job) for job in FINDINGS)).split())
        return said.partition("findings about the job as a whole")[2]

    def _command(self, *words: str) -> str:
        command = [sys.executable, "-m", "console", "bench", "triage", "--no-cache", *words]
        env = os.environ | {"QUARTERDECK_STATE_DIR": str(self.root / "state"), "COLUMNS": "200"}
        done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=120, check=False)
        if done.returncode or done.stderr:
            raise AssertionError(f"{' '.join(words)} ended with {done.returncode}: {done.stderr}")
        return done.stdout

    def _run(self, name: str, tasks: Sequence[Path]) -> None:
        config = {
            "job_name": name,
            "jobs_dir": str(self.jobs),
            "quiet": True,
            "n_concurrent_trials": 5,
            "environment": {"import_path": "bench_agents:Fragile"},
            "agents": [{"import_path": "bench_agents:Scripted"}],
            "tasks": [{"path": str(task)} for task in tasks],
        } | _OPTIONS.get(name, {})
        file = self.root / "configs" / f"{name}.json"
        file.write_text(json.dumps(config))
        env = os.environ | {
            "PYTHONPATH": os.pathsep.join(map(str, (SUPPORT, ROOT))), "TMPDIR": str(self.root / "tmp"),
            "HARBOR_TELEMETRY": "0", "LITELLM_LOCAL_MODEL_COST_MAP": "True",
        }  # fmt: skip
        command = [sys.executable, "-m", "harbor.cli.main", "run", "-c", str(file), "-y"]
        with (self.root / "configs" / f"{name}.log").open("wb") as log:
            harbor = subprocess.Popen(
                command, cwd=self.root, env=env, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                start_new_session=True,
            )  # fmt: skip
            try:
                if name in _CUT:
                    self._cut(name, harbor)
                harbor.wait(120)
            finally:
                if harbor.poll() is None:
                    os.killpg(harbor.pid, signal.SIGKILL)
                    harbor.wait()

    def _cut(self, name: str, harbor: subprocess.Popen[bytes]) -> None:
        """Ends a job in the middle, as soon as each of its trials is where it is wanted."""
        marks, job = self.root / "marks", self.jobs / name
        if name == "interrupted":
            _until(harbor, lambda: len(list(job.glob("*__*/trial.log"))) == 4)
            _until(harbor, lambda: all((marks / mark).exists() for mark in ("agent", "agent-too", "verifier")))
            self.running = self.triage(job)
            harbor.send_signal(signal.SIGINT)
        else:
            _until(harbor, lambda: all((marks / f"cut-{at}").exists() for at in (1, 2, 3, 4)))
            _until(harbor, lambda: len(list(job.glob("cut-*/exception.txt"))) == 2)
            os.killpg(harbor.pid, signal.SIGKILL)

    def _damage(self) -> None:
        target = self.jobs / "damaged"
        target.mkdir()
        shutil.copy(self.jobs / f"{MANY}-0" / "config.json", target)
        for made in self.trials:
            if made.by == "cut":
                (source,) = self.jobs.glob(f"{MANY}-*/{made.name}__*")
                copy = shutil.copytree(source, target / source.name)
                if made.written["keep"] is not None:
                    os.truncate(copy / "result.json", made.written["keep"])

    def _write(self) -> None:
        of_job = [made for made in self.trials if made.by == "written"]
        for (name, version), group in groupby(of_job, lambda made: (made.job, made.version)):
            job = HarborJob(self.jobs / name, version, dataset=None if name[0] == "v" else "terminal-bench-2.1")
            for made in group:
                job.trial(made.name, **made.written)
            for at in range(FILLERS.get(name, 0)):
                job.trial(f"filler-{at}", 1.0)
            job.write()


def _job_of(made: Made, at: int) -> str:
    return f"{MANY}-{at % PARTS}" if made.job == MANY else made.job


def _until(harbor: subprocess.Popen[bytes], there: Callable[[], bool]) -> None:
    ends = time.monotonic() + _WAIT
    while not there():
        if harbor.poll() is not None or time.monotonic() > ends:
            raise AssertionError(f"Harbor ended with {harbor.poll()}, or its trials did not come to where they hang")
        time.sleep(0.05)
