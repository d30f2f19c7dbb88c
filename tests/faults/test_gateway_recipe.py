"""Gateways as people have them, with whole runs: one is killed, waits for its slot, resumes (see `gateway_recipe`)."""

from __future__ import annotations

import asyncio
import contextlib
import re
import threading
import time
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from served_gateway import ServedGateway
from test_resume_replayed import Ended, check_lineage, copies
from tinker.lib.client_connection_pool_type import ClientConnectionPoolType
from tinker.lib.internal_client_holder import InternalClientHolder
from whole_runs import Run, until

from console.gateway.slots import waiting
from console.headless.status import status_lines
from console.journal import events as ev

MODEL = "quarterdeck/midshipman"
REASON = "a model slot: the only one is taken, by the engine before this one until its lease ends"


async def beats_often(holder: Any, session_id: str) -> None:
    """The SDK's heartbeats, which come every 10 s, for a gateway whose lease is as short as a test wants."""
    while True:
        await asyncio.sleep(0.3)
        with contextlib.suppress(Exception), holder.aclient(ClientConnectionPoolType.SESSION) as client:
            await client.service.session_heartbeat(session_id=session_id, max_retries=0, timeout=10)


@contextlib.contextmanager
def tenant(gateway: ServedGateway) -> Iterator[threading.Event]:
    """Somebody else takes the slot as soon as it is free, and keeps it until the event."""
    with httpx.Client(base_url=f"{gateway.url}/api/v1", headers={"X-API-Key": "tml-other"}, timeout=30) as http:
        session = http.post("/create_session", json={"tags": [], "sdk_version": "0.26.2"}).json()["session_id"]
        model = {"session_id": session, "model_seq_id": 0, "base_model": MODEL, "lora_config": {"rank": 4}}
        over = threading.Event()

        def beat() -> None:
            while not over.wait(0.3):
                http.post("/session_heartbeat", json={"session_id": session})

        thread = threading.Thread(target=beat)
        thread.start()
        try:
            while http.post("/create_model", json=model).status_code != 200:
                time.sleep(0.1)
            yield over
        finally:
            over.set()
            thread.join()


async def test_the_slot_of_a_killed_run_is_waited_for(run_engine, tasks, trial_file, tmp_path, monkeypatch):
    """A copy made of the run in its second step is what a kill would have left."""
    monkeypatch.setattr(InternalClientHolder, "_session_heartbeat", beats_often)
    monkeypatch.setitem(waiting.__kwdefaults__, "every", 0.3)
    tasks_dir, trial, killed = tasks("create-file", "note-write"), trial_file(), tmp_path / "killed"
    options = ("config.max_steps=2", "config.save_every=0", "config.dataset_builder.epochs=9")
    with ServedGateway(tmp_path / "gateway", "--like", "miles", "--lease", "2") as gateway:
        where: dict[str, Any] = {"base_url": gateway.url}
        whole = await run_engine(tasks_dir, trial, *options, during=copies({killed: Ended(1, 1)}), **where)
        assert whole.exit_code == 0, whole.view.state.reason
        (profiled,) = whole.of(ev.GatewayProfiled)
        assert (profiled.profile, profiled.sdk) == ("miles", "0.26") and profiled.translated
        with tenant(gateway) as over:
            shown: list[str] = []

            async def looks(engine: Any) -> None:
                await until(lambda: bool(engine.view.state.gateway.waiting))
                shown.extend(status_lines("live", engine.view))
                assert engine.view.state.gateway.waiting_until > time.time()
                over.set()

            run: Run = await run_engine(tasks_dir, trial, *options, during=looks, run_dir=killed, **where)
    assert run.exit_code == 0, run.view.state.reason
    assert re.search(r"waits for a model slot: free in \d+:\d\d", "\n".join(shown))
    begin, end = run.of(ev.GatewayWaiting)
    assert (begin.reason, end.reason) == (REASON, "")
    (resumed,) = run.of(ev.RunResumed)
    assert (resumed.checkpoint, resumed.replayed) == ("000000-start", [0]) and resumed.reused >= 1
    assert [row.step for row in run.view.history.rows] == [0, 1]
    check_lineage(run)


@pytest.mark.parametrize("like", ["skyrl", "hosted"])
async def test_the_others_train_and_resume(run_engine, tasks, trial_file, tmp_path, like):
    with ServedGateway(tmp_path / "gateway", "--like", like) as gateway:
        where: dict[str, Any] = {"base_url": gateway.url, "run_dir": tmp_path / "run"}
        tasks_dir, trial = tasks("create-file", "note-write"), trial_file()
        begun = await run_engine(tasks_dir, trial, "config.max_steps=1", **where)
        assert begun.exit_code == 0, begun.view.state.reason
        again = await run_engine(tasks_dir, trial, "config.max_steps=2", **where)
    assert again.exit_code == 0, again.view.state.reason
    assert {e.profile for e in again.of(ev.GatewayProfiled)} == {like}
    assert [row.step for row in again.view.history.rows] == [0, 1]
    assert [e.checkpoint for e in again.of(ev.RunResumed)] == ["final"]
    check_lineage(again)
