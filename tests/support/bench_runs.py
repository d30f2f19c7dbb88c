"""Benchmark runs for tests: small tasks, an agent that does as its task is told to, and the engine around real Harbor.

The agent is imported by Harbor by path, so this module imports nothing of the engine.
"""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from harbor.agents.base import BaseAgent
from harbor.agents.installed.base import NonZeroAgentExitCodeError

from console.bench.running.options import BenchOptions
from console.journal.reader import Journal
from console.launching import Launch, new_run_id
from console.state.reduce import RunView, fold

ROOT = Path(__file__).resolve().parents[2]
AGENT = "bench_runs:Acting"
TASK = """
schema_version = "1.4"
[agent]
timeout_sec = 60
[verifier]
timeout_sec = 60
[environment]
network_mode = "public"
"""
TEST = "#!/bin/bash\nif [ -f /app/done ]; then echo 1; else echo 0; fi > /logs/verifier/reward.txt\n"


class SandboxError(Exception):
    """As a sandbox provider's."""


class Acting(BaseAgent):
    """Does what its instruction says: `pass`, `fail`, `raise`, `once` (raises in its first try), `wait` (for the file
    `go`), `wait-once`, `hang`, `exit` (when it has passed), or `thread` (leaves a thread that keeps the process).

    Notes each begin in the file `begun`.
    """

    def __init__(self, *args: Any, notes: str = "", **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._notes = Path(notes)

    @staticmethod
    def name() -> str:
        return "acting"

    def version(self) -> str:
        return "1"

    async def setup(self, environment: Any) -> None:
        pass

    async def run(self, instruction: str, environment: Any, context: Any) -> None:
        act, trial = instruction.strip(), self.logs_dir.parent.name
        with (self._notes / "begun").open("a") as file:
            file.write(f"{trial}\n")
        context.n_input_tokens, context.n_cache_tokens, context.n_output_tokens = 100, 40, 10
        context.cost_usd = 0.25
        if act == "hang":
            await asyncio.sleep(3600)
        while act.startswith("wait") and not (self._notes / "go").exists():  # noqa: ASYNC110 - told from another process
            await asyncio.sleep(0.02)
        if act == "raise" or (act.endswith("once") and not self._before(trial)):
            raise SandboxError(f"sandbox {trial} is gone")
        if act == "thread":
            threading.Thread(target=time.sleep, args=(3600,)).start()
        if act != "fail":
            await environment.exec("touch /app/done")
        if act == "exit":
            raise NonZeroAgentExitCodeError("Agent process exited with code 1")

    def _before(self, trial: str) -> bool:
        return (self._notes / "begun").read_text().splitlines().count(trial) > 1


class Bench:
    """A directory with tasks and one job over them.

    Attributes:
        path: it; notes: where the agent writes, and is told to go on.
    """

    def __init__(self, path: Path, acts: dict[str, str]) -> None:
        self.path, self.notes = path, path / "notes"
        self.notes.mkdir(parents=True)
        for name, act in acts.items():
            self.task(name, act)

    def task(self, name: str, act: str) -> None:
        """Write a task whose instruction is what the agent does."""
        task = self.path / "tasks" / name
        for folder in ("environment", "tests"):
            (task / folder).mkdir(parents=True)
        (task / "task.toml").write_text(TASK)
        (task / "instruction.md").write_text(act + "\n")
        (task / "environment" / "Dockerfile").write_text("FROM debian\nWORKDIR /app\n")
        (task / "tests" / "test.sh").write_text(TEST)

    def options(self, name: str = "job", *, concurrent: int = 2, **changes: Any) -> BenchOptions:
        """Of a run of the job; `job` among the changes are further keys of Harbor's configuration."""
        job = {
            "job_name": name,
            "jobs_dir": str(self.path / "jobs"),
            "n_concurrent_trials": concurrent,
            "quiet": True,
            "environment": {"import_path": "console.trials.bwrap:BwrapEnvironment"},
            "agents": [{"import_path": AGENT, "kwargs": {"notes": str(self.notes)}}],
            "datasets": [{"path": str(self.path / "tasks")}],
        }
        job |= changes.pop("job", {})
        return BenchOptions(job=job, run_dir=str(self.path / "jobs" / f"{name}.run"), name=name, **changes)

    def go(self) -> None:
        """Let the waiting go on."""
        (self.notes / "go").touch()

    def begun(self) -> list[str]:
        """Names of the trials whose agents began, each time that they did."""
        path = self.notes / "begun"
        return path.read_text().split() if path.exists() else []

    def job_dir(self, name: str = "job") -> Path:
        """Harbor's directory of the job."""
        return self.path / "jobs" / name


class BenchRun:
    """A run that was begun.

    Attributes:
        launch: its engine; run_dir: where its journal is.
    """

    def __init__(self, options: BenchOptions, *, owned: bool = False) -> None:
        from console.bench.running.launch import begin_benchmark

        # Harbor has to find the agent by its path, and nothing of it may reach this user's own runs.
        os.environ["PYTHONPATH"] = str(ROOT / "tests" / "support")
        self.options, self.run_dir = options, Path(options.run_dir)
        self.launch: Launch = begin_benchmark(options, new_run_id(), owned=owned)
        self.launch.wait()

    @property
    def process(self) -> Any:
        """The engine's."""
        return self.launch._process

    def events(self) -> list[Any]:
        """What the journal holds so far."""
        return list(Journal(self.run_dir / "journal").events())

    def of(self, kind: type) -> list[Any]:
        """Its events of a type."""
        return [event for event in self.events() if isinstance(event, kind)]

    @property
    def view(self) -> RunView:
        """What the journal comes to."""
        return fold(self.events())

    def ended(self, seconds: float = 60.0) -> int:
        """The engine's exit code, once it has ended."""
        return int(self.process.wait(seconds))

    def order(self, name: str, **args: Any) -> Any:
        """An operator's command; the answer."""
        from console.control.blocking import new_command, send_command

        return send_command(self.launch.socket, new_command(name, args), run=self.launch.run_id)

    def harbor(self) -> int:
        """Harbor's process id."""
        import psutil

        for child in psutil.Process(self.process.pid).children():
            if "console.trials.job_plugin_main" in child.cmdline():
                return int(child.pid)
        raise AssertionError("no Harbor")


def until(condition: Callable[[], object], seconds: float = 40.0) -> None:
    """Wait for a condition, a generous time."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not come about"
        time.sleep(0.03)
