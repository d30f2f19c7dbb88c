"""Gateways that omit or spoil what training needs, and gateways that go away."""

from __future__ import annotations

import os
import signal

import numpy as np
import psutil
import pytest
from strange_gateway import strange_gateway
from tinker.proto import tinker_public_pb2 as pb
from whole_runs import processes_of, until

from console.journal import events as ev


def without_logprobs(kind: str, body: bytes) -> bytes:
    """A sample without its log-probs."""
    if kind != "Sample":
        return body
    message = pb.SampleResponse.FromString(body)
    for sequence in message.sequences:
        sequence.logprobs = b""
    return message.SerializeToString()


def with_nan_logprob(kind: str, body: bytes) -> bytes:
    """A sample whose first log-prob is not a number."""
    if kind != "Sample":
        return body
    message = pb.SampleResponse.FromString(body)
    for sequence in message.sequences:
        values = np.frombuffer(sequence.logprobs, np.float32).copy()
        values[:1] = np.nan
        sequence.logprobs = values.tobytes()
    return message.SerializeToString()


@pytest.mark.parametrize("change", [without_logprobs, with_nan_logprob])
async def test_samples_without_usable_logprobs_stop_the_run(run_engine, tasks, trial_file, embedded_gateway, change):
    async with strange_gateway(embedded_gateway, change) as url:
        run = await run_engine(tasks("create-file"), trial_file(), base_url=url)
    assert run.exit_code == 6
    decided = [e for e in run.of(ev.TrialFinished) if e.outcome != "cancelled"]
    assert decided and {(e.outcome, e.reward) for e in decided} == {("no_logprobs", None)}
    assert run.view.history.rows == []
    assert run.view.state.capture.no_logprobs > 0


async def test_a_dead_embedded_gateway_ends_the_run_as_lost(run_engine, tasks, trial_file):
    async def during(engine):
        await until(lambda: bool(engine.active_groups))
        gateway = next(
            child for child in psutil.Process().children() if "console.gateway.embedded" in " ".join(child.cmdline())
            and str(engine.run_dir) in " ".join(child.cmdline())
        )  # fmt: skip
        os.kill(gateway.pid, signal.SIGKILL)

    run = await run_engine(
        tasks("create-file"),
        trial_file("fault_agents:Sleeper"),
        "console.gateway=embedded",
        "config.base_url=None",
        during=during,
    )
    assert run.exit_code == 5
    assert "gateway" in run.view.state.reason
    assert processes_of(run.run_dir) == []
