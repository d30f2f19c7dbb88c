# ruff: noqa: E402 - what lies beside this file is found only once the path is extended
"""A headless run under a CI-like kill: `python -m tests.faults.ci_kill [CASE ...]`.

SIGINT to the command, 7.5 s, SIGTERM, 2.5 s, then SIGKILL: to the command alone, or (`+all`) to the engine, the
runners and everything else that descends from it, as job runners do. For rooms that go at once, rooms that do not go,
and E2B ones of both kinds. Prints a line a case: what was left at the kill, what after 20 s more, what `reap` found,
and what is left after it. The exit code is the number of cases after which something is left.
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
from collections.abc import Iterator
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path[:0] = [entry for entry in map(str, (HERE, HERE.parent / "support", ROOT)) if entry not in sys.path]

import psutil
from e2b_server.faults import Fault
from e2b_server.server import E2BServer
from whole_runs import processes_of

from console.errors import RecordingError
from console.gateway.embedded.launch import start_embedded
from console.journal import events as ev
from console.journal.reader import Journal
from console.records.run_dir import RunRecord

ROOMS = ("quick", "stuck", "e2b", "e2b-stuck", "e2b-creating")
CASES = tuple(f"{room}{end}" for room in ROOMS for end in ("", "+all"))
FIRST_SECONDS, SECOND_SECONDS, AFTER_SECONDS = 7.5, 2.5, 20.0
TASK = """
schema_version = "1.4"
[agent]
timeout_sec = 600
[verifier]
timeout_sec = 60
[environment]
build_timeout_sec = 600
workdir = "/app"
network_mode = "%s"
"""


def trial_of(room: str) -> dict[str, Any]:
    """The trial file; its agents are at work until somebody ends them."""
    if room.startswith("e2b"):
        return {
            "environment": {"type": "e2b"},
            "agent": {"import_path": "e2b_server.agents:ScriptAgent", "kwargs": {"script": "sleep 600"}},
        }
    rooms = {"quick": "console.trials.bwrap:BwrapEnvironment", "stuck": "stuck_rooms:StuckRoom"}
    calls = {"OPENAI_BASE_URL": "{proxy_url}/v1", "OPENAI_API_KEY": "{proxy_api_key}"}
    agent = {"import_path": "fault_agents:Sleeper", "env": calls}
    return {"environment": {"import_path": rooms[room]}, "agent": agent}


class Kill:
    """One case.

    Attributes:
        seconds: from the interrupt to the command's end; code: its exit code.
    """

    def __init__(self, name: str, base: Path, gateway: str, server: E2BServer) -> None:
        self.name, self.base, self.server = name, base, server
        self.room, _, self.all = name.partition("+")
        self.run_dir, self.held = base / "run", base / "held"
        self.env = os.environ | server.environment | {
            "PYTHONPATH": os.pathsep.join(map(str, (ROOT, HERE.parent / "support", HERE))),
            "QUARTERDECK_STATE_DIR": str(base / "state"), "QUARTERDECK_TEST_STUCK": str(self.held),
            "TINKER_API_KEY": "tml-tests", "HARBOR_TELEMETRY": "0",
        }  # fmt: skip
        self.words = [
            f"config.base_url={gateway}", "config.model_name=quarterdeck/midshipman", "config.lora_rank=8",
            "config.renderer_name=qwen3_instruct", "config.learning_rate=1e-3", "config.max_tokens=24",
            "config.loss_fn=ppo", "config.ttl_seconds=None", f"config.log_path={self.run_dir}", "config.max_steps=1",
            f"config.dataset_builder.tasks_dir={base / 'tasks'}", "config.dataset_builder.groups_per_batch=2",
            "config.dataset_builder.group_size=2", f"harbor.trial_config={base / 'trial.json'}",
            "harbor.max_parallel_trials_per_group=2", "harbor.advertised_url=http://runs.example.com",
        ]  # fmt: skip
        self.code: int | str = ""
        self.seconds = 0.0

    def start(self) -> None:
        """The run, until its trials are at work."""
        for name in ("one", "two"):
            task = self.base / "tasks" / name
            (task / "tests").mkdir(parents=True)
            (task / "environment").mkdir()
            (task / "environment/Dockerfile").write_text("FROM debian:12\nWORKDIR /app\n")
            (task / "task.toml").write_text(TASK % ("public" if self.room.startswith("e2b") else "no-network"))
            (task / "instruction.md").write_text("wait")
            (task / "tests/test.sh").write_text("echo 1 > /logs/verifier/reward.txt\n")
        (self.base / "trial.json").write_text(json.dumps(trial_of(self.room)))
        if self.room == "stuck":
            self.held.touch()
        if self.room == "e2b-stuck":
            self.server.faults.add(Fault(at="kill", do="hang"))
        if self.room == "e2b-creating":
            self.server.faults.add(Fault(at="create", do="hang", after=True))
        command = [sys.executable, "-m", "console", "train", "--headless", *self.words]
        self.process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=(self.base / "out").open("wb"),
            stderr=(self.base / "err").open("wb"), cwd=ROOT, env=self.env, start_new_session=True,
        )  # fmt: skip
        wanted = "environment" if self.room == "e2b-creating" else "agent"
        self._wait(lambda: self.phases().count(wanted) == 4, 120)
        if wanted == "environment":
            self._wait(lambda: len(self.server.live) == 4, 60)

    def _wait(self, condition: Any, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while not condition():
            said = (self.base / "err").read_text()[-1500:]
            assert self.process.poll() is None and time.monotonic() < deadline, f"{self.phases()} {said}"
            time.sleep(0.1)

    def phases(self) -> list[str]:
        """Of the trials that run."""
        try:
            groups = RunRecord(self.run_dir).view_at_end().state.groups
        except RecordingError:
            return []
        return [trial.phase for group in groups.values() for trial in group.trials]

    def kill(self) -> None:
        """As job runners do."""
        began = time.monotonic()
        for number, seconds in ((signal.SIGINT, FIRST_SECONDS), (signal.SIGTERM, SECOND_SECONDS)):
            self.process.send_signal(number)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.code = self.process.wait(seconds)
            if self.process.poll() is not None:
                break
        else:
            self.code = "killed"
        self.seconds = time.monotonic() - began
        if self.all:
            # What descends from the command, and, since the engine is gone by then, what descended from it.
            for process in list(self.family()):
                with contextlib.suppress(psutil.Error):
                    process.kill()
        self.process.kill()
        self.process.wait()

    def family(self) -> Iterator[psutil.Process]:
        """Every process that works for this run."""
        for process in psutil.process_iter(["pid", "environ", "status"]):
            mine = (process.info["environ"] or {}).get("QUARTERDECK_STATE_DIR") == str(self.base / "state")
            if mine and process.pid != os.getpid():
                yield process

    def left(self) -> dict[str, int]:
        """What there is of the run."""
        roots = self.run_dir / "sandboxes"
        found = {
            "processes": len(processes_of(self.run_dir)),
            "roots": len(list(roots.iterdir())) if roots.is_dir() else 0,
            "e2b": len(self.server.live),
        }
        return {name: count for name, count in found.items() if count}

    def end(self) -> str:
        """What the journal has as the run's end."""
        events = list(Journal(self.run_dir / "journal").events())
        last = next((e for e in reversed(events) if isinstance(e, ev.RunFinished)), None)
        if last is None:
            return "no end"
        return f"{last.status}, exit {last.exit_code}"

    def reap(self, *words: str) -> dict[str, Any]:
        """What `quarterdeck reap` says."""
        done = subprocess.run(
            [sys.executable, "-m", "console", "reap", str(self.run_dir), *words, "--json"],
            capture_output=True, text=True, env=self.env, cwd=ROOT, timeout=120, check=False,
        )  # fmt: skip
        answer = json.loads(done.stdout) if done.stdout else {"sandboxes": [], "error": done.stderr[-200:]}
        return answer | {"code": done.returncode}


def spend(name: str, base: Path, gateway: str, server: E2BServer) -> str:
    """One case, told in a line; it begins with WRONG when something is left that is not told of."""
    case = Kill(name, base, gateway, server)
    try:
        case.start()
        case.kill()
        at_once = case.left()
        found = case.reap("--dry-run")
        time.sleep(AFTER_SECONDS)
        later = case.left()
        case.server.faults.clear()
        case.held.unlink(missing_ok=True)
        done = case.reap("--yes")
        last = case.left()
        again = case.reap("--dry-run")
        told = (
            f"{name:18} exit {case.code} in {case.seconds:.1f} s, journal: {case.end()}; at once {at_once}, "
            f"reap --dry-run {[one['state'] for one in found['sandboxes']]} (busy {found.get('busy')}, exit "
            f"{found['code']}); after {AFTER_SECONDS:.0f} s {later}; reap --yes removed {done.get('removed')}, gone "
            f"{done.get('gone')}, left {done.get('left')} (exit {done['code']}); then {last}, reap exit {again['code']}"
        )
        return told if not last and again["code"] == 0 else f"WRONG {told} {done.get('error', '')}"
    finally:
        for process in list(case.family()):
            with contextlib.suppress(psutil.Error):
                process.kill()
        for sandbox in server.live:
            server.end(sandbox)


async def cases(names: list[str]) -> int:
    """All of them, one after the other."""
    import asyncio

    wrong = 0
    with tempfile.TemporaryDirectory(prefix="ci-kill-") as directory, E2BServer(Path(directory) / "service") as server:
        gateway = await start_embedded(
            ROOT / "configs/models/midshipman", checkpoints=Path(directory, "gateway"),
            log_path=Path(directory, "gateway.log"), name="quarterdeck/midshipman", options=["--max-models", "64"],
        )  # fmt: skip
        try:
            for name in names:
                base = Path(directory, name)
                base.mkdir()
                try:
                    told = await asyncio.to_thread(spend, name, base, gateway.url, server)
                except AssertionError as error:
                    told = f"WRONG {name}: {error}"
                wrong += told.startswith("WRONG")
                print(told, flush=True)
        finally:
            await gateway.stop()
    return wrong


if __name__ == "__main__":
    import asyncio

    sys.exit(asyncio.run(cases(sys.argv[1:] or list(CASES))))
