"""Whole runs behind a gateway in trouble, or behind a proxy (by hand, and all of it: `gateway_harness`)."""

from __future__ import annotations

import asyncio
from typing import Any

from gateway_faults import FaultyGateway, lose, status, truncate
from local_proxy import local_proxy
from served_gateway import ServedGateway
from test_resume_replayed import check_lineage
from whole_runs import Run, command, processes_of, until

from console.journal import events as ev
from console.outcomes.classes import SCORED

ROUTES = ("asample", "retrieve_future", "forward_backward", "optim_step", "save_weights", "session_heartbeat")
TROUBLES = (status(500).only(1), lose().only(1), truncate().only(1))
OPTIONS = ("config.save_every=1", "config.dataset_builder.epochs=9", "console.probe_interval=0.5")


def whole(run: Run, steps: int) -> None:
    """It completed, and each step is there once."""
    assert run.exit_code == 0, run.view.state.reason
    assert [row.step for row in run.view.history.rows] == list(range(steps))
    assert run.view == run.folded()
    check_lineage(run)
    assert processes_of(run.run_dir) == []


async def test_a_run_goes_on_through_errors_of_each_route(run_engine, tasks, trial_file, embedded_gateway):
    """Each step has other ones; answers that are lost were acted upon, and are not acted upon twice."""
    asked: list[Any] = []

    async def during(engine: Any) -> None:
        for step, trouble in enumerate(TROUBLES):
            await until(lambda at=step: (engine.view.state.step or 0) >= at or engine.ending)
            for route in ROUTES:
                faulty.set(f"/{route}", trouble)
            asked.append(await command(engine, "pause"))
            asked.append(await command(engine, "resume"))

    async with FaultyGateway(embedded_gateway) as faulty:
        run = await run_engine(
            tasks("create-file", "note-write"), trial_file(), *OPTIONS, f"config.max_steps={len(TROUBLES)}",
            during=during, base_url=faulty.url,
        )  # fmt: skip
    whole(run, len(TROUBLES))
    assert {answer.status for answer in asked} == {"done"}
    assert all(faulty.faults[route] >= 2 for route in ROUTES[:-1]), faulty.faults
    assert {e.outcome for e in run.of(ev.TrialFinished)} <= {outcome.value for outcome in SCORED}


async def test_a_gateway_that_was_started_anew_ends_the_run_and_the_next_one_goes_on(
    run_engine, tasks, trial_file, tmp_path
):
    tasks_dir, trial = tasks("create-file", "note-write"), trial_file()

    with ServedGateway(tmp_path / "gateway") as gateway:
        async with FaultyGateway(gateway.url) as faulty:

            async def restarts(engine: Any) -> None:
                await until(lambda: engine.view.state.steps_done >= 1 or engine.ending)
                faulty.down()
                await asyncio.to_thread(gateway.kill)
                await asyncio.to_thread(gateway.start)
                faulty.up()

            options = (*OPTIONS, "config.max_steps=3")
            lost = await run_engine(tasks_dir, trial, *options, during=restarts, base_url=faulty.url)
            assert lost.exit_code == 5
            assert lost.view.state.reason.startswith("gateway lost: it knows this run's session or model no more")
            assert any(not e.reachable for e in lost.of(ev.GatewayHealth))
            whole(await run_engine(tasks_dir, trial, *options, base_url=faulty.url), 3)


async def test_a_run_behind_a_proxy(run_engine, tasks, trial_file, embedded_gateway, monkeypatch):
    """The gateway is reached through it, by our questions and by the SDK; what is on this machine is not."""
    monkeypatch.setenv("NO_PROXY", "")
    monkeypatch.setenv("no_proxy", "")
    with local_proxy(gateway_invalid=embedded_gateway) as proxy:
        monkeypatch.setenv("HTTP_PROXY", proxy.url)
        run = await run_engine(tasks("create-file"), trial_file(), base_url="http://gateway.invalid:10613")
    whole(run, 1)
    assert proxy.asked.keys() == {"gateway.invalid"} and proxy.asked["gateway.invalid"] > 20
    assert {e.status for e in run.of(ev.TrialTurn)} <= {"stop", "length"}


async def test_an_embedded_run_where_a_proxy_is_set(run_engine, tasks, trial_file, monkeypatch):
    monkeypatch.setenv("NO_PROXY", "")
    monkeypatch.setenv("no_proxy", "")
    with local_proxy() as proxy:
        monkeypatch.setenv("HTTP_PROXY", proxy.url)
        run = await run_engine(tasks("create-file"), trial_file(), "console.gateway=embedded", "config.base_url=None")
    whole(run, 1)
    assert not proxy.asked
