"""A seeded job against the server: `python -m tests.support.e2b_server.job --trials 100`.

Real trials through the runner pool, Harbor's E2B environment and the e2b SDK, with faults at stated places. Each kind
of trial knows what must become of it; whatever does not is printed, and the exit status is 1.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from console.outcomes.classes import CallEvidence, OutcomeClass, Verdict
from console.outcomes.rules import classify
from console.records.sandbox_ledger import LEDGER, LedgerView
from console.training.trial_parts import evidence_of
from console.trials.bwrap_policy import error_policy
from console.trials.orphans import settle
from console.trials.pool import RunnerPool
from console.trials.protocol import StartTrial, TrialProgress, TrialReport

from .faults import Fault, at_capacity
from .server import E2BServer

PACKAGE = Path(__file__).parent
SOLVE = "echo right > answer.txt"
_SLOW_SOLVE = f"{SOLVE}; sleep 1.5; echo done"
_TEST = "grep -q right /app/answer.txt && R=1; echo ${R:-0} > /logs/verifier/reward.txt"
_TOML = """
schema_version = "1.4"
[agent]
timeout_sec = 60
[verifier]
timeout_sec = 60
[environment]
build_timeout_sec = 600
network_mode = "public"
"""

GOOD, INFRASTRUCTURE, CANCELLED = OutcomeClass.COMPLETED, OutcomeClass.INFRASTRUCTURE, OutcomeClass.CANCELLED


@dataclass(frozen=True, kw_only=True)
class Kind:
    """A kind of trial.

    Attributes:
        outcome: what it must be classified as; reward: what it must be scored with, None for not at all.
        script: of its agent; deaf: its agent goes on when the sandbox fails; limit: seconds that the agent has.
        faults: for a sandbox name, what the server does to it.
        start_limit: of the sandbox's start, as a share of 600 s; cancel_in: the phase in which the operator cancels it.
        kwargs: of the E2B environment.
        left: its sandbox cannot be removed as long as the fault is on.
    """

    outcome: OutcomeClass = GOOD
    reward: float | None = None
    script: str = SOLVE
    deaf: bool = False
    limit: float | None = None
    faults: Callable[[str], Iterable[Fault]] = field(default=lambda _: ())
    start_limit: float | None = None
    cancel_in: str | None = None
    kwargs: dict[str, Any] = field(default_factory=dict)
    left: bool = False


def _run(do: str, command: str, seconds: float = 0.3) -> Callable[[str], Iterable[Fault]]:
    return lambda name: [Fault(at="run", do=do, sandbox=name, command=command, seconds=seconds, times=1)]


KINDS: dict[str, Kind] = {
    "right": Kind(reward=1.0),
    "wrong": Kind(reward=0.0, script="true"),
    "agent timeout": Kind(outcome=OutcomeClass.AGENT_TIMEOUT, reward=1.0, script=f"{SOLVE}; sleep 60", limit=1.5),
    "slow service": Kind(
        reward=1.0,
        faults=lambda name: [
            Fault(at=at, do="delay", sandbox=name, seconds=0.4, times=4) for at in ("create", "write", "start", "kill")
        ],
    ),
    "create refused, team at its limit": Kind(reward=1.0, faults=lambda name: [at_capacity(sandbox=name, times=5)]),
    "create refused for good": Kind(
        outcome=INFRASTRUCTURE, faults=lambda name: [Fault(at="create", sandbox=name, status=500)]
    ),
    "create answered 502, sandbox there": Kind(
        reward=1.0,
        faults=lambda name: [Fault(at="create", sandbox=name, status=502, message="bad gateway", after=True, times=1)],
    ),
    "create never answered, sandbox there": Kind(
        outcome=INFRASTRUCTURE, start_limit=0.01,
        faults=lambda name: [Fault(at="create", do="hang", sandbox=name, after=True)],
    ),
    "cancelled while the create hangs": Kind(
        outcome=CANCELLED, cancel_in="environment",
        faults=lambda name: [Fault(at="create", do="hang", sandbox=name, after=True)],
    ),
    "cancelled in mid-agent": Kind(outcome=CANCELLED, script="sleep 60", cancel_in="agent"),
    "short lease, renewed": Kind(
        reward=1.0, script=f"sleep 4; {SOLVE}", kwargs={"sandbox_timeout_sec": 3, "renew_interval_sec": 0.5}
    ),
    "short lease, not renewed": Kind(
        outcome=INFRASTRUCTURE, script="sleep 60", kwargs={"sandbox_timeout_sec": 3, "renew_interval_sec": 0}
    ),
    "lease over in mid-agent": Kind(outcome=INFRASTRUCTURE, script="sleep 60", faults=_run("kill", "sleep 60")),
    "lease over in mid-agent, agent goes on": Kind(
        outcome=INFRASTRUCTURE, script="sleep 60", deaf=True, faults=_run("kill", "sleep 60")
    ),
    "lease over in mid-verifier": Kind(outcome=INFRASTRUCTURE, faults=_run("kill", "/tests/test.sh", 0.0)),
    "lease over after an agent timeout": Kind(
        outcome=INFRASTRUCTURE, script="sleep 60", limit=1.5, faults=_run("kill", "/tests/test.sh", 0.0)
    ),
    "connection cut in mid-exec": Kind(
        reward=1.0, script=f"sleep 3; {SOLVE}", faults=_run("cut", "sleep 3", 0.2)
    ),
    "connection cut, command over before it is found again": Kind(
        outcome=INFRASTRUCTURE, script=_SLOW_SOLVE, faults=_run("cut", "sleep 1.5")
    ),
    "sandbox not reachable from the verifier on": Kind(
        outcome=INFRASTRUCTURE,
        faults=lambda name: [
            Fault(at="start", sandbox=name, command="/tests/test.sh", status=502, message="port is not open")
        ],
    ),
    "verifier's files cut while downloading": Kind(
        outcome=INFRASTRUCTURE,
        faults=lambda name: [Fault(at="read", do="cut", sandbox=name, command="harbor_download")],
    ),
    "removal refused four times": Kind(
        reward=1.0, faults=lambda name: [Fault(at="kill", sandbox=name, times=4)]
    ),
    "removal refused": Kind(reward=1.0, left=True, faults=lambda name: [Fault(at="kill", sandbox=name)]),
}  # fmt: skip


@dataclass
class Trial:
    """One trial of the job and what became of it."""

    name: str
    kind: str
    report: TrialReport | None = None
    verdict: Verdict | None = None

    def complaint(self) -> str | None:
        """What is wrong with how it ended, None when nothing is."""
        kind, verdict = KINDS[self.kind], self.verdict
        if verdict is None:
            return "never ended"
        if self.report is not None and bool(self.report.sandbox_left) is not kind.left:
            return f"it reports as left: {self.report.sandbox_left}"
        if (verdict.outcome, verdict.reward) == (kind.outcome, kind.reward):
            return None
        said = self.report.exception_type if self.report is not None else "cancelled"
        return f"{verdict.outcome.value} {verdict.reward} ({verdict.rule}: {verdict.evidence}; {said})"


def make_task(directory: Path) -> Path:
    """A task whose image is built with a copy and a command."""
    task = directory / "answer"
    for folder in ("environment/data", "solution", "tests"):
        (task / folder).mkdir(parents=True)
    (task / "task.toml").write_text(_TOML)
    (task / "instruction.md").write_text("Write the answer.\n")
    dockerfile = "FROM debian:12\nWORKDIR /app\nENV GREETING=hello\nCOPY data/ given/\nRUN test -s given/one.txt\n"
    (task / "environment/Dockerfile").write_text(dockerfile)
    (task / "environment/data/one.txt").write_text("given\n")
    (task / "solution/solve.sh").write_text(f"#!/bin/bash\n{SOLVE}\n")
    (task / "tests/test.sh").write_text(f"#!/bin/bash\n{_TEST}\n")
    return task


def spec_of(trial: Trial, task: Path, directory: Path) -> StartTrial:
    """What the pool is asked to run."""
    kind = KINDS[trial.kind]
    agent: dict[str, Any] = {"import_path": "e2b_server.agents:ScriptAgent"}
    agent["kwargs"] = {"script": kind.script, "deaf": kind.deaf}
    config: dict[str, Any] = {
        "task": {"path": str(task)},
        "trial_name": trial.name,
        "trials_dir": str(directory / "trials"),
        "agent": agent | ({"override_timeout_sec": kind.limit} if kind.limit else {}),
        "environment": {"type": "e2b", "kwargs": kind.kwargs},
        "override_error_policy": error_policy(),
    }
    if kind.start_limit:
        config["environment_build_timeout_multiplier"] = kind.start_limit
    return StartTrial(key=trial.name, config=config)


def verdict_of(report: TrialReport, cancelled_by: str | None, calls: CallEvidence | None) -> Verdict:
    """As training classifies it."""
    return classify(evidence_of(report, calls, cancelled_by))


async def run_trial(trial: Trial, pool: RunnerPool, server: E2BServer, task: Path, directory: Path) -> Trial:
    """From its start to its verdict, cancelled where its kind says so."""
    kind = KINDS[trial.kind]
    server.faults.add(*kind.faults(trial.name + "__env"))
    reached = asyncio.Event()

    def on_progress(progress: TrialProgress) -> None:
        if progress.phase == kind.cancel_in:
            reached.set()

    running = asyncio.create_task(pool.run(spec_of(trial, task, directory), on_progress))
    if kind.cancel_in is not None:
        there = asyncio.create_task(_there(trial, reached, server))
        await asyncio.wait([running, there], return_when=asyncio.FIRST_COMPLETED)
        there.cancel()
        running.cancel()
    try:
        trial.report = await running
    except asyncio.CancelledError:
        trial.verdict = verdict_of(TrialReport(key=trial.name, exception_type="CancelledError"), "operator", None)
        return trial
    trial.verdict = verdict_of(trial.report, None, CallEvidence(calls=3, trained=3, sampled_tokens=30))
    return trial


async def _there(trial: Trial, reached: asyncio.Event, server: E2BServer) -> None:
    """Until the trial is in its phase and has a sandbox, and a little longer."""
    await reached.wait()
    while not any(sandbox.session.startswith(trial.name) for sandbox in server.live):  # noqa: ASYNC110 - its thread
        await asyncio.sleep(0.05)
    await asyncio.sleep(0.3)


async def run_job(
    server: E2BServer, directory: Path, kinds: list[str], parallel: int, pool: RunnerPool | None = None
) -> list[Trial]:
    """Run one trial of each kind named, `parallel` at a time; a pool of its own unless one is given."""
    task = make_task(directory)
    own = pool or RunnerPool(log_path=directory / "runner.log", ledger=directory / LEDGER, stop_limit=30)
    slots = asyncio.Semaphore(parallel)

    async def one(number: int, kind: str) -> Trial:
        async with slots:
            return await run_trial(Trial(f"job{number:03d}", kind), own, server, task, directory)

    if pool is None:
        await own.start()
    try:
        return await asyncio.gather(*(one(number, kind) for number, kind in enumerate(kinds)))
    finally:
        if pool is None:
            await own.close()


def seeded_kinds(trials: int, seed: int) -> list[str]:
    """Every kind about as often, in an order that only the seed decides."""
    kinds = [list(KINDS)[number % len(KINDS)] for number in range(trials)]
    random.Random(seed).shuffle(kinds)
    return kinds


def lead_here(server: E2BServer) -> None:
    """Runner processes started from now on talk to this server, and find the job's agent."""
    os.environ.update(server.environment)
    os.environ["PYTHONPATH"] = os.pathsep.join([str(PACKAGE.parent), os.environ.get("PYTHONPATH", "")]).rstrip(":")


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--trials", type=int, default=100)
    parser.add_argument("--parallel", type=int, default=16)
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as name, E2BServer(Path(name, "e2b")) as server:
        lead_here(server)
        began = time.monotonic()
        done = asyncio.run(run_job(server, Path(name), seeded_kinds(asked.trials, asked.seed), asked.parallel))
        seconds = time.monotonic() - began
        print(f"{len(done)} trials, {asked.parallel} at a time, {seconds:.0f} s; most at once {server.state.most}")
        for (kind, outcome), count in sorted(Counter((t.kind, _class(t)) for t in done).items()):
            print(f"{count:5} {kind:56} {outcome}")
        wrong = [f"{t.name} {t.kind}: {t.complaint()}" for t in done if t.complaint()]
        wrong += accounts(done, server, Path(name))
        asyncio.run(reap(server, Path(name)))
        wrong += accounts([], server, Path(name))
        print("\n".join(wrong) or "every outcome as it should be, and every sandbox accounted for")
        print(f"faults met: {dict(server.faults.met)}")
    return 1 if wrong else 0


async def reap(server: E2BServer, directory: Path) -> list[str]:
    """Remove what is left, once the service works again; names of what would not go."""
    server.faults.clear()
    view = LedgerView(directory)
    view.refresh()
    return await settle(directory / LEDGER, view.open, "reap", 60)


def accounts(done: list[Trial], server: E2BServer, directory: Path) -> list[str]:
    """What the server has and what the ledger says, against each other and against what the trials should leave."""
    view = LedgerView(directory)
    view.refresh()
    expected = sorted(f"{trial.name}__env" for trial in done if KINDS[trial.kind].left)
    told = {
        "live at the server": sorted(sandbox.session for sandbox in server.live),
        "open in the ledger": sorted(entry.name for entry in view.open),
    }
    wrong = [f"{what}: {names}, not {expected}" for what, names in told.items() if names != expected]
    return wrong + ([f"{view.damaged} lines of the ledger are damaged"] if view.damaged else [])


def _class(trial: Trial) -> str:
    return trial.verdict.outcome.value if trial.verdict is not None else "never ended"


if __name__ == "__main__":
    sys.exit(main())
