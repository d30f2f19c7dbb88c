"""Runs whose gateway spoils log-probs, stands still, or is away for a while: what becomes of trials and samples."""

from __future__ import annotations

import functools
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import aiohttp
import numpy as np
import psutil
import pytest
from slow_gateway import slow_gateway
from strange_gateway import strange_gateway
from tinker.proto import tinker_public_pb2 as pb
from whole_runs import processes_of, until

from console.capture.journal import CallJournal
from console.capture.rendering import PolicyRenderer
from console.capture.server import Capture
from console.capture.settings import CallSettings
from console.gateway.probe import probe
from console.journal import events as ev
from console.records.captured_calls import CapturedTrialFile, trial_files
from console.records.token_check import check_tokens

MODEL = "quarterdeck/midshipman"
TIMEOUT_SECONDS = 6
"""Of the agents that do not live to see the end of the outage."""


def files_of(run_dir: Path) -> list[CapturedTrialFile]:
    files = [CapturedTrialFile(path) for path in trial_files(run_dir)]
    assert all(file.refresh() for file in files)
    return files


def check_files(run: Any) -> list[CapturedTrialFile]:
    """Each is sealed and right, and as many calls were answered as the journal counts."""
    files = files_of(run.run_dir)
    assert [problem for file in files for problem in check_tokens(file)] == []
    assert all(file.sealed is not None and file.sealed.lost == 0 for file in files)
    answered = sum(file.answered for file in files)
    assert answered == run.view.state.capture.calls == sum(e.turns for e in run.of(ev.TrialFinished))
    sampled = sum(len(call.tokens()) for file in files for call in file)
    assert sampled == run.view.state.capture.sampled_tokens
    return files


# --- log-probs ----------------------------------------


def one_too_few(values: np.ndarray) -> np.ndarray:
    return values[:-1]


def one_too_many(values: np.ndarray) -> np.ndarray:
    return np.append(values, np.float32(-0.5))


def above_zero(values: np.ndarray) -> np.ndarray:
    values[-1] = 0.25
    return values


@pytest.mark.parametrize("change", [one_too_few, one_too_many, above_zero])
async def test_wrong_logprobs_stop_the_run(
    run_engine, tasks, trial_file, embedded_gateway, change: Callable[[np.ndarray], np.ndarray]
):
    def spoilt(kind: str, body: bytes) -> bytes:
        if kind != "Sample":
            return body
        message = pb.SampleResponse.FromString(body)
        for sequence in message.sequences:
            sequence.logprobs = change(np.frombuffer(sequence.logprobs, np.float32).copy()).tobytes()
        return message.SerializeToString()

    async with strange_gateway(embedded_gateway, spoilt) as url:
        run = await run_engine(tasks("create-file"), trial_file(), base_url=url)
    assert run.exit_code == 6
    decided = [e for e in run.of(ev.TrialFinished) if e.outcome != "cancelled"]
    assert decided and {(e.outcome, e.reward) for e in decided} == {("no_logprobs", None)}
    assert run.view.history.rows == [] and run.view.state.capture.no_logprobs > 0
    files = files_of(run.run_dir)
    assert all(call.outcome is None or call.outcome.status in ("no_logprobs", "client", "sealed")
               for file in files for call in file)  # fmt: skip
    assert sum(file.answered for file in files) == 0


# --- a client that asks again ----------------------------------------


def gateway_of(engine: Any) -> int:
    """The embedded gateway's process."""
    found = [child.pid for child in psutil.Process().children() if str(engine.run_dir) in " ".join(child.cmdline())
             and "console.gateway.embedded" in " ".join(child.cmdline())]  # fmt: skip
    return found[0]


def waiting(engine: Any) -> int:
    """How many agents wait for the word."""
    return len(list((engine.run_dir / "trials").glob("*/agent/waiting")))


EMBEDDED = ("console.gateway=embedded", "config.base_url=None", "console.probe_interval=0.2")


async def test_a_client_that_gives_up_twice_trains_one_sample(run_engine, tasks, trial_file, tmp_path):
    """The gateway stands still until each trial's SDK has given up on two requests."""
    notes = tmp_path / "notes"
    notes.mkdir()

    async def during(engine: Any) -> None:
        await until(lambda: waiting(engine) == 3)
        gateway = gateway_of(engine)
        os.kill(gateway, signal.SIGSTOP)
        try:
            (notes / "go").touch()
            await until(lambda: engine._workshop.figures.cancelled == 6)
        finally:
            os.kill(gateway, signal.SIGCONT)

    run = await run_engine(
        tasks("create-file"), trial_file("capture_agents:Impatient", notes=str(notes)), *EMBEDDED, during=during
    )
    assert run.exit_code == 0, run.view.state.reason
    assert {e.outcome for e in run.of(ev.TrialFinished)} == {"completed"}
    files = check_files(run)
    assert len(files) == 3
    for file in files:
        assert [call.outcome.status in ("stop", "length") for call in file if call.outcome] == [False, False, True]
        assert [call.outcome.status for call in file if call.outcome][:2] == ["client", "client"]
        assert [segment.nodes for segment in file.sealed.segments] == [[file.answer(0).intent.node]]
    assert run.view.history.rows[0].tokens_trained == run.view.state.capture.sampled_tokens > 0


# --- a client that goes away ----------------------------------------


async def test_a_stream_that_nobody_reads_is_cancelled_at_the_gateway(embedded_gateway, tmp_path):
    import tinker

    from console.training.setup import make_renderer, register_bundled_tokenizers

    register_bundled_tokenizers()
    renderer = PolicyRenderer(make_renderer(MODEL, "qwen3_instruct"), name="qwen3_instruct")
    capture = Capture(
        renderer=renderer, journal=CallJournal(tmp_path / "capture"), settings=CallSettings(max_tokens=900)
    )
    with slow_gateway(embedded_gateway) as line:
        asked: list[str] = []
        delay = line.delay
        line.delay = lambda path: (asked.append(path.rpartition("/")[2]), delay(path))[1]  # type: ignore[method-assign]
        service = tinker.ServiceClient(base_url=line.url, api_key="tml-tests")
        sampler = await service.create_sampling_client_async(base_model=MODEL)
        await capture.start()
        route = await capture.open_route("s0.g0.t0.y0", sampler, lambda report: None)
        route.start()
        line.slow()
        async with aiohttp.ClientSession(headers={"Authorization": f"Bearer {route.api_key}"}) as http:
            body = {"messages": [{"role": "user", "content": "Tell a story."}], "stream": True, "temperature": 2.0}
            for _ in range(3):
                async with http.post(route.url + "/v1/chat/completions", json=body) as answer:
                    assert (await answer.content.readline()).startswith(b"data: ")
                    await until(lambda: "retrieve_future" in asked)
                    answer.close()
                await until(lambda: "cancel_future" in asked)
                asked.clear()
        await until(lambda: capture.inflight == 0)
        captured = await route.seal()
        await capture.close()
    assert (captured.evidence.calls, captured.evidence.failed) == (0, 3)
    assert captured.segments == []
    [file] = files_of(tmp_path)
    assert [call.outcome.status for call in file if call.outcome] == ["client"] * 3


# --- an outage ----------------------------------------


def tried_again(engine: Any) -> int:
    return sum(trial.try_ > 0 for group in engine.board.view.state.groups.values() for trial in group.trials)


async def test_an_outage_costs_no_trial_its_reward(run_engine, tasks, trial_file, tmp_path, monkeypatch):
    """Trials of one task have time to wait for its end, those of the other one have not."""
    monkeypatch.setattr("console.gateway.health.probe", functools.partial(probe, timeout=1.0))  # the outage is short
    notes = tmp_path / "notes"
    notes.mkdir()
    where = tasks("create-file", "note-write")
    hasty = where / "create-file/task.toml"
    text = hasty.read_text()
    hasty.write_text(text.replace("timeout_sec = 60.0", f"timeout_sec = {TIMEOUT_SECONDS:.1f}", 1))
    patient = where / "note-write/task.toml"
    patient.write_text(patient.read_text().replace("timeout_sec = 60.0", "timeout_sec = 200.0", 1))

    async def during(engine: Any) -> None:
        await until(lambda: waiting(engine) == 6)
        gateway = gateway_of(engine)
        os.kill(gateway, signal.SIGSTOP)
        try:
            (notes / "go").touch()
            await until(lambda: tried_again(engine) == 3)
        finally:
            os.kill(gateway, signal.SIGCONT)

    run = await run_engine(
        where, trial_file("capture_agents:Waiting", notes=str(notes)), *EMBEDDED,
        "config.dataset_builder.groups_per_batch=2", "harbor.max_tries=20", on_failure="retry", during=during,
    )  # fmt: skip
    ends = run.of(ev.TrialFinished)
    told = [(e.group, e.trial, e.try_, e.outcome, e.cause, e.rule, e.reward, e.exception) for e in ends]
    assert run.exit_code == 0, run.view.state.reason
    names = {e.group: e.task for e in run.of(ev.GroupStarted)}
    first = {(names[e.group], e.trial): e for e in ends if e.try_ == 0}
    assert {e.outcome for (task, _), e in first.items() if "note-write" in task} == {"completed"}, told
    died = [e for (task, _), e in first.items() if "create-file" in task]
    assert {(e.outcome, e.reward, e.exception) for e in died} == {("infrastructure", None, "AgentTimeoutError")}, told
    assert all(e.outcome in ("completed", "infrastructure") for e in ends)
    assert run.view.history.rows[0].outcomes == {"completed": 6}
    files = check_files(run)
    last = {(e.group, e.trial): e.try_ for e in ends}
    final = [f for f in files if any(f.key == f"s0.g{g}.t{t}.y{y}" for (g, t), y in last.items())]
    trained = sum(len(f.node(n).tokens()) for f in final for s in f.sealed.segments for n in s.nodes)
    assert run.view.history.rows[0].tokens_trained == trained > 0
    assert processes_of(run.run_dir) == []
