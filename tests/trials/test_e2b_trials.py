"""Real trials in E2B sandboxes: through the runner, Harbor's E2B environment and the e2b SDK, with all that fails."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from e2b import exceptions
from e2b.sandbox.commands.command_handle import CommandExitException
from e2b_server import job
from e2b_server.server import E2BServer

from console.outcomes.classes import CallEvidence, OutcomeClass, TrialEvidence, Verdict
from console.outcomes.rules import classify
from console.records.sandbox_ledger import LEDGER
from console.trials.bwrap_policy import error_policy
from console.trials.pool import RunnerPool
from console.trials.protocol import StartTrial, TrialReport

pytestmark = pytest.mark.asyncio(loop_scope="module")

SLOW = {"removal refused", "removal refused four times", "slow service", "create refused for good"}
"""Kinds of trials that take long; the job by hand has them."""


class Stage:
    """A server, a pool whose runners talk to it, and their ledger in `directory`."""

    def __init__(self, server: E2BServer, pool: RunnerPool, directory: Path) -> None:
        self.server, self.pool, self.directory = server, pool, directory


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def stage(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Stage]:
    directory = tmp_path_factory.mktemp("e2b")
    with pytest.MonkeyPatch.context() as patch, E2BServer(directory / "server") as server:
        for name, value in server.environment.items():
            patch.setenv(name, value)
        patch.setenv("PYTHONPATH", os.pathsep.join([str(job.PACKAGE.parent), os.environ.get("PYTHONPATH", "")]))
        pool = RunnerPool(log_path=directory / "runner.log", ledger=directory / LEDGER, stop_limit=30)
        await pool.start()
        try:
            yield Stage(server, pool, directory)
        finally:
            await pool.close()


async def test_a_job_with_faults_at_stated_places(stage: Stage) -> None:
    kinds = [kind for kind in job.KINDS if kind not in SLOW]
    done = await job.run_job(stage.server, stage.directory, kinds, 16, stage.pool)
    assert {trial.kind: trial.complaint() for trial in done} == dict.fromkeys(kinds)
    assert job.accounts(done, stage.server, stage.directory) == []
    stage.server.faults.clear()
    for operation, done_to in (("create", "hang"), ("create", "refuse"), ("run", "kill"), ("run", "cut")):
        assert stage.server.faults.met[operation, done_to], "the fault was never met"
    # The orphan of a create that was answered with 502 had the name of one that lived.
    assert len([one for one in stage.server.state.ended if one.session.startswith(_named(done, "502"))]) == 2
    renewed = next(one for one in stage.server.state.ended if one.session.startswith(_named(done, "lease, renewed")))
    assert renewed.renewals >= 3 and renewed.ended == "killed"


def _named(done: list[job.Trial], part: str) -> str:
    return next(trial.name for trial in done if part in trial.kind)


@pytest.fixture
def run(stage: Stage, make_task: Callable[..., Path], unique: str) -> Callable[..., Any]:
    """`await run("name", dockerfile)`: the verdict and the report of one oracle trial."""

    async def one(name: str, dockerfile: str = "FROM debian\nWORKDIR /app\n") -> tuple[Verdict, TrialReport]:
        task = make_task(name)
        (task / "environment/Dockerfile").write_text(dockerfile)
        config = {
            "task": {"path": str(task)},
            "trial_name": f"{unique}-{name}",
            "trials_dir": str(stage.directory / "trials"),
            "environment": {"type": "e2b"},
        }
        report = await stage.pool.run(StartTrial(key=f"{unique}-{name}", config=config), lambda _: None)
        return job.verdict_of(report, None, None), report

    return one


IMAGES = {
    "missing": ("FROM nowhere/image:1\n", OutcomeClass.CONFIGURATION, "image"),
    "stages": ("FROM a AS b\nFROM c\nCOPY --from=b /x /x\n", OutcomeClass.CONFIGURATION, "image"),
    "absent": ("FROM debian\nCOPY absent.txt /app/\n", OutcomeClass.CONFIGURATION, "image"),
    "mirror": ("FROM debian\nRUN echo mirror is down >&2; exit 100\n", OutcomeClass.INFRASTRUCTURE, "sandbox"),
}


async def test_images_that_cannot_be_built(stage: Stage, run: Callable[..., Any]) -> None:
    stage.server.state.images.missing.add("nowhere/image:1")
    found = await asyncio.gather(*(run(name, dockerfile) for name, (dockerfile, _, _) in IMAGES.items()))
    for (name, (_, outcome, cause)), (verdict, report) in zip(IMAGES.items(), found):
        assert (verdict.outcome, verdict.cause, verdict.reward) == (outcome, cause, None), (name, verdict.evidence)
        assert report.exception_phase == "environment" and verdict.evidence and report.sandbox_left == []
    assert stage.server.live == []


async def test_a_wrong_key_is_a_mistake_and_stays_secret(
    stage: Stage, run: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    key = stage.server.state.key
    monkeypatch.setattr(stage.server.state, "key", "another")
    verdict, report = await run("key")
    assert (verdict.outcome, verdict.cause, verdict.retryable) == (OutcomeClass.CONFIGURATION, "key", False)
    assert key not in report.exception_message


async def test_nothing_is_open_in_the_ledger(stage: Stage) -> None:
    assert job.accounts([], stage.server, stage.directory) == []


async def test_no_exception_of_the_sdk_is_ever_scored() -> None:
    kinds = {kind for kind in vars(exceptions).values() if isinstance(kind, type) and issubclass(kind, Exception)}
    kinds |= {CommandExitException}
    assert len(kinds) > 20
    for kind in sorted(kind.__name__ for kind in kinds):
        for phase in ("create", "environment", "setup", "agent", "verify", "teardown"):
            for calls in (None, CallEvidence(calls=3, trained=3, sampled_tokens=9)):
                verdict = classify(
                    TrialEvidence(
                        exception_type=kind, exception_message="it said so", exception_phase=phase, calls=calls,
                        rewards={"reward": 0.0}, agent_seconds=10.0, agent_timeout=60.0,
                    )
                )  # fmt: skip
                assert verdict.outcome in (OutcomeClass.INFRASTRUCTURE, OutcomeClass.CONFIGURATION), (kind, phase)
    dead = error_policy()
    assert not any(dead[name]["should_grade"] for name in ("SandboxNotRunningException", "SandboxUnreachableException"))
