"""A dataset of tiny tasks in a temporary directory, and real Harbor jobs on it whose agent fails as it is told.

Sandboxes are bubblewrap's; nothing is asked of a network.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import psutil

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[2]
TASK = """\
schema_version = "1.4"
[agent]
timeout_sec = 60.0
[verifier]
timeout_sec = 30.0
[environment]
cpus = 1
memory_mb = 512
workdir = "/app"
network_mode = "no-network"
"""


class Stage:
    """Attributes: root: of everything; jobs: where jobs lie; fates: what the agent is told."""

    def __init__(self, root: Path, tasks: Sequence[str]) -> None:
        self.root, self.jobs, self.fates = root, root / "jobs", root / "fates"
        self.fates.mkdir(parents=True)
        for task in tasks:
            directory = root / "set" / task
            for name, text in (
                ("task.toml", TASK),
                ("instruction.md", "Nothing.\n"),
                ("environment/Dockerfile", "FROM scratch\n"),
                ("tests/test.sh", "#!/bin/sh\necho 1 > /logs/verifier/reward.txt\n"),
            ):
                (directory / name).parent.mkdir(parents=True, exist_ok=True)
                (directory / name).write_text(text)

    def doom(self, **tasks: int) -> None:
        """How many runs of a task lose their sandbox from now on."""
        self.doom_all(tasks)

    def doom_all(self, tasks: dict[str, int]) -> None:
        for task, number in tasks.items():
            for at in range(number):
                (self.fates / f"{task}.{time.monotonic_ns()}-{at}").touch()

    @property
    def begun(self) -> Counter[str]:
        """How often the agent began each task since this was last looked at."""
        path = self.fates / "begun"
        found = Counter(path.read_text().split("\n")[:-1]) if path.exists() else Counter()
        path.unlink(missing_ok=True)
        return found

    def environment(self) -> dict[str, str]:
        return os.environ | {
            "PYTHONPATH": f"{HERE}{os.pathsep}{ROOT}",
            "QUARTERDECK_CACHE_DIR": str(self.root / "cache"),
            "QUARTERDECK_STATE_DIR": str(self.root / "state"),
        }

    def run(self, name: str, attempts: int = 1, **config: Any) -> Path:
        """A job of Harbor's, run to its end from the stage's directory, whose paths it names relatively."""
        process = self.started_harbor(name, attempts, **config)
        out, err = process.communicate(timeout=120)
        assert process.returncode == 0, out + err
        return self.jobs / name

    def started_harbor(self, name: str, attempts: int = 1, **config: Any) -> subprocess.Popen[str]:
        """The same, left at work."""
        job = {
            "job_name": name,
            "jobs_dir": "jobs",
            "n_attempts": attempts,
            "n_concurrent_trials": 4,
            "agents": [{"import_path": "mop_up_agents:Fated", "kwargs": {"fates": str(self.fates)}}],
            "environment": {"import_path": "console.trials.bwrap:BwrapEnvironment"},
            "datasets": [{"path": "set"}],
        } | config
        file = self.root / f"{name}.json"
        file.write_text(json.dumps(job))
        harbor = Path(sys.executable).with_name("harbor")
        return subprocess.Popen(
            [harbor, "run", "-c", file, "-y"],
            cwd=self.root, env=self.environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip

    def started(self, *argv: object) -> subprocess.Popen[str]:
        """`quarterdeck bench ...`, left at work."""
        return subprocess.Popen(
            [sys.executable, "-m", "console", "bench", *map(str, argv)],
            cwd=self.root, env=self.environment(), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, text=True,
        )  # fmt: skip

    def bench(self, *argv: object) -> tuple[int, str, str]:
        """The same, waited for: exit code, standard output, standard error."""
        process = self.started(*argv)
        out, err = process.communicate(timeout=150)
        return process.returncode, out, err

    def at_work(self) -> list[psutil.Process]:
        """Processes of the stage: engines, Harbor, sandboxes."""
        state = str(self.root / "state")
        return [
            process
            for process in psutil.process_iter(["environ"])
            if (process.info["environ"] or {}).get("QUARTERDECK_STATE_DIR") == state
        ]

    def kill(self) -> None:
        """Ends what is left of it."""
        for process in self.at_work():
            process.kill()

    def plan(self, *argv: object) -> dict[str, Any]:
        """What `bench mop-up --dry-run --json` says."""
        code, out, err = self.bench("mop-up", *argv, "--dry-run", "--json")
        assert code == 0, err
        return dict(json.loads(out))

    def attempts(self, *jobs: Path) -> list[dict[str, Any]]:
        """The lines of `bench triage --json`."""
        code, out, err = self.bench("triage", *jobs, "--json")
        assert code == 0, err
        return [json.loads(line) for line in out.splitlines()]


def wait_for(condition: Callable[[], bool], what: str, seconds: float = 90.0) -> None:
    """Waits a generous time."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, f"waited in vain for {what}"
        time.sleep(0.05)
