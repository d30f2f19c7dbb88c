"""Whole runs in trouble that is not the trials': disks, the gateway's silence, stops at awkward moments."""

from __future__ import annotations

import asyncio
import gc
import json
import logging
import os
import signal
from pathlib import Path
from typing import Any

import pytest
from silent_relay import silent_relay
from whole_runs import command, processes_of, until

from console.errors import UsageError
from console.journal import events as ev


def decided(run: Any) -> set[tuple[str, float | None]]:
    """Outcome and reward of every try that somebody did not cancel."""
    return {(e.outcome, e.reward) for e in run.of(ev.TrialFinished) if e.outcome != "cancelled"}


async def test_an_agent_that_waited_for_an_absent_gateway_is_not_scored(
    run_engine, tasks, trial_file, embedded_gateway
):
    trial = trial_file("limit_agents:Patient")
    config = json.loads(trial.read_text())
    config["agent"]["override_timeout_sec"] = 4
    trial.write_text(json.dumps(config))

    async def during(engine: Any) -> None:
        trials = engine.run_dir / "trials"
        await until(lambda: len(list(trials.glob("*/agent/waiting"))) == 3)
        line.cut()
        for waiting in trials.glob("*/agent/waiting"):
            (waiting.parent / "go").touch()

    async with silent_relay(embedded_gateway) as line:
        run = await run_engine(
            tasks("create-file"), trial, "console.probe_interval=0.2", base_url=line.url, during=during
        )
    assert decided(run) == {("infrastructure", None)}
    failed = next(e for e in run.of(ev.TrialFinished) if e.outcome == "infrastructure")
    assert failed.exception == "AgentTimeoutError" and failed.rule == "calls.backend_share"
    assert run.exit_code == 5 and run.view.state.reason.startswith("gateway lost: "), run.view.state.reason
    assert "AgentTimeoutError" in run.view.state.reason
    assert run.view.history.rows == []


async def test_a_context_overflow_is_scored(run_engine, tasks, trial_file):
    run = await run_engine(tasks("note-write"), trial_file("limit_agents:Greedy", max_turns=3))
    assert run.exit_code == 0
    assert "context_overflow" in run.view.history.rows[0].outcomes
    scored = [e for e in run.of(ev.TrialFinished) if e.outcome == "context_overflow"]
    assert scored and all(e.reward is not None for e in scored)


def call_files() -> list[int]:
    """Descriptors of this process on files of captured calls."""
    return [
        int(link.name)
        for link in Path("/proc/self/fd").iterdir()
        if link.is_symlink() and os.readlink(link).endswith(".calls")
    ]


async def test_calls_that_cannot_be_written_end_the_run_as_capture_loss(run_engine, tasks, trial_file):
    async def during(engine: Any) -> None:
        await until(lambda: bool(call_files()))
        full = os.open("/dev/full", os.O_WRONLY)
        for descriptor in call_files():
            os.dup2(full, descriptor)
        os.close(full)

    run = await run_engine(tasks("create-file"), trial_file(), during=during)
    assert run.exit_code == 6
    assert decided(run) == {("capture_loss", None)}
    assert run.view.state.capture.lost > 0 and run.view.history.rows == []


async def test_a_full_disk_under_the_journal_ends_the_run(run_engine, tasks, trial_file, caplog):
    async def during(engine: Any) -> None:
        await until(lambda: bool(engine.active_groups))
        full = os.open("/dev/full", os.O_WRONLY)
        os.dup2(full, engine.board._journal._fd)
        os.close(full)

    with caplog.at_level(logging.ERROR):
        run = await run_engine(tasks("create-file"), trial_file("fault_agents:Sleeper"), during=during)
    assert run.exit_code == 7
    assert any("the run ends" in m and "No space left" in m for m in caplog.messages)
    assert run.view.state.status == "live", "what the disk does not take did not happen"
    assert processes_of(run.run_dir) == []


async def test_a_step_without_groups_trains_nothing_and_the_next_one_goes_on(run_engine, tasks, trial_file):
    async def during(engine: Any) -> None:
        await until(lambda: bool(engine.active_groups))
        await command(engine, "cancel_group", group=0)

    run = await run_engine(
        tasks("create-file", "note-write"), trial_file(), "config.max_steps=2", "config.save_every=1", during=during
    )
    assert run.exit_code == 0
    first, second = run.view.history.rows
    assert (first.groups_kept, first.groups_dropped, first.outcomes) == (0, 1, {"cancelled": 3})
    assert (first.reward_mean, first.ppo_loss, first.entropy, first.tokens_trained) == (None, None, None, 0)
    assert (first.policy_version, second.policy_version) == (0, 1)
    assert second.groups_kept == 1


async def test_captured_calls_are_let_go_after_their_step(run_engine, tasks, trial_file):
    from console.capture.captured import CapturedTrial
    from console.capture.graph import Node

    def captured_calls() -> int:
        gc.collect()
        return sum(type(thing) in (CapturedTrial, Node) for thing in gc.get_objects())

    before, alive = captured_calls(), []

    async def during(engine: Any) -> None:
        await until(lambda: engine.board.view.state.step == 1)
        alive.append(captured_calls())

    run = await run_engine(tasks("create-file", "note-write"), trial_file(), "config.max_steps=2", during=during)
    assert run.exit_code == 0
    assert list(run.run_dir.glob("capture/step-000000/*.calls.zst")) and alive == [before]


async def test_a_stop_after_the_step_while_connecting_trains_nothing(run_engine, tasks, trial_file):
    async def during(engine: Any) -> None:
        await command(engine, "stop_after_step", on=True)

    run = await run_engine(tasks("create-file"), trial_file(), during=during)
    assert (run.exit_code, run.view.state.status) == (3, "stopped")
    assert run.of(ev.StepStarted) == [] and run.of(ev.CheckpointSaved) == []


@pytest.mark.parametrize(("how", "code"), [("stop_now", 3), ("SIGTERM", 143)])
async def test_an_end_during_preparation_leaves_nothing(run_engine, tasks, trial_file, how, code):
    async def during(engine: Any) -> None:
        await until(lambda: bool(processes_of(engine.run_dir)))
        if how == "stop_now":
            await command(engine, "stop_now")
        else:
            os.kill(os.getpid(), signal.SIGTERM)

    run = await run_engine(tasks("create-file"), trial_file(), during=during)
    assert run.exit_code == code
    assert isinstance(run.events[-1], ev.RunFinished)
    assert run.of(ev.StepStarted) == []
    assert processes_of(run.run_dir) == []


@pytest.mark.parametrize("phase", ["connecting", "rollout"])
async def test_a_silent_gateway_does_not_hold_up_the_end(run_engine, tasks, trial_file, embedded_gateway, phase):
    async with silent_relay(embedded_gateway) as line:

        async def during(engine: Any) -> None:
            await until(lambda: engine.board.view.state.phase == phase)
            line.freeze()
            await asyncio.sleep(0.2)
            await command(engine, "stop_now")

        async with asyncio.timeout(60):
            run = await run_engine(
                tasks("create-file"), trial_file("fault_agents:Sleeper"), base_url=line.url, during=during
            )
    assert run.exit_code == 3
    assert processes_of(run.run_dir) == []


@pytest.mark.parametrize(
    ("options", "code", "said"),
    [
        (["config.base_url=http://127.0.0.1:9"], 5, "gateway unreachable"),
        (["config.model_name=quarterdeck/unknown"], 2, "config.model_name=quarterdeck/unknown"),
        (["harbor.listen_host=203.0.113.9", "harbor.allow_insecure=true"], 2, "harbor.listen_host=203.0.113.9"),
        (["config.renderer_name=nonsense"], 2, "config.renderer_name=nonsense"),
        (["console.gateway=embedded", "config.base_url=None", "console.embedded_model=/nonexistent"], 2, "embedded"),
    ],
)
async def test_what_preparation_refuses_has_its_exit_code_and_leaves_nothing(
    run_engine, tasks, trial_file, options, code, said
):
    run = await run_engine(tasks("create-file"), trial_file(), *options)
    assert (run.exit_code, said in run.view.state.reason) == (code, True), run.view.state.reason
    assert isinstance(run.events[-1], ev.RunFinished)
    assert run.of(ev.StepStarted) == []
    assert processes_of(run.run_dir) == []


async def test_a_start_that_fails_is_taken_back(run_engine, tasks, trial_file, tmp_path, monkeypatch):
    state = tmp_path / "state"
    (state / "runs.jsonl").mkdir(parents=True)
    monkeypatch.setenv("QUARTERDECK_STATE_DIR", str(state))
    with pytest.raises(Exception, match=r"runs\.jsonl"):
        await run_engine(tasks("create-file"), trial_file())
    from console.records.run_dir import RunRecord

    assert RunRecord(tmp_path / "run").view_at_end().state.status == "failed"
    assert list((state / "sockets").iterdir()) == []


async def test_a_live_run_cannot_be_started_again(run_engine, tasks, trial_file, tmp_path):
    refused: list[UsageError] = []

    async def during(engine: Any) -> None:
        from console.engine.supervisor import Engine

        try:
            Engine(engine._options, engine.run_dir, "other", "stop")
        except UsageError as error:
            refused.append(error)
        await command(engine, "stop_now")

    run = await run_engine(tasks("create-file"), trial_file(), during=during)
    assert run.exit_code == 3
    assert len(refused) == 1 and "the run is live" in str(refused[0])
