"""The ledger of E2B sandboxes: what Harbor loses is found by its metadata, removed, and made sure of."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from e2b_server.faults import Fault
from e2b_server.server import E2BServer

from console.records.sandbox_ledger import CUT_OFF, LEDGER, Entry, read_entries
from console.trials import custody
from console.trials.custody import Custodian
from console.trials.drive import drive
from console.trials.ledger import LedgerWriter
from console.trials.pool import RunnerPool
from console.trials.protocol import StartTrial, TrialReport

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[E2BServer]:
    with E2BServer(tmp_path_factory.mktemp("e2b")) as server, pytest.MonkeyPatch.context() as patch:
        for name, value in server.environment.items():
            patch.setenv(name, value)
        yield server


@pytest.fixture
def faults(server: E2BServer) -> Iterator[Callable[..., None]]:
    yield server.faults.add
    server.faults.clear()


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def custodian(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Custodian]:
    writer = LedgerWriter(tmp_path_factory.mktemp("run") / LEDGER)
    custodian = Custodian(writer)
    undo = custodian.install()
    yield custodian
    undo()
    await asyncio.to_thread(writer.close)


@pytest.fixture
def config(make_task: Callable[..., Path], tmp_path: Path, unique: str) -> dict[str, Any]:
    task = make_task("answer", "sleep $NAP")
    (task / "environment" / "Dockerfile").unlink()
    text = (task / "task.toml").read_text()
    (task / "task.toml").write_text(text.replace("[environment]\n", '[environment]\ndocker_image = "debian:12"\n'))
    return {
        "task": {"path": str(task)},
        "trial_name": unique,
        "trials_dir": str(tmp_path / "trials"),
        "agent": {"name": "oracle", "env": {"NAP": "0"}},
        "environment": {"type": "e2b", "override_cpus": 2, "override_memory_mb": 1024},
    }


@pytest.fixture
def run(custodian: Custodian, config: dict[str, Any], server: E2BServer) -> Callable[..., Any]:
    def run() -> Any:
        return drive(StartTrial(key="s1.g0", config=config), lambda progress: None, custodian)

    return run


@pytest.fixture
def entry(custodian: Custodian, unique: str) -> Callable[[], Entry]:
    def entry() -> Entry:
        (found,) = [one for one in read_entries(custodian.writer.path) if one.name == f"{unique}__env"]
        return found

    return entry


def live(server: E2BServer, unique: str) -> list[str]:
    return [sandbox.id for sandbox in server.live if sandbox.session.startswith(unique)]


async def test_a_trial_is_confirmed_by_the_service(run, entry, server, unique):
    before = server.state.calls["list"]
    report: TrialReport = await run()
    assert report.exception_type is None, report.exception_message
    assert (report.rewards, report.sandbox_left) == ({"reward": 1.0}, [])
    found = entry()
    assert (found.state, found.made.kind, found.made.where) == ("removed", "e2b", server.url)
    assert (found.made.cpus, found.made.memory_mb, found.made.lease) == (2, 1024, 3600)
    assert found.ids and found.ids[0] in [sandbox.id for sandbox in server.state.ended]
    assert server.state.calls["list"] == before + 1, "one question a trial"
    assert os.environ["E2B_API_KEY"] not in repr(found) and len(found.made.account) == 8


async def test_a_create_that_never_returned_is_found_and_removed(run, entry, server, faults, unique, wait_until):
    faults(Fault(at="create", do="hang", after=True, sandbox=unique))
    trial = asyncio.create_task(run())
    await wait_until(lambda: live(server, unique))
    assert entry().state == "creating", "announced, and on the disk"
    trial.cancel()
    report = await trial
    assert report.exception_type == "CancelledError" and report.sandbox_left == []
    assert live(server, unique) == []
    assert entry().state == "removed" and entry().why.startswith("found by its name")


async def test_a_removal_that_failed_at_first(run, entry, server, faults, unique):
    faults(Fault(at="kill", sandbox=unique, times=2))  # Harbor tries twice, logs it, and goes on
    report = await run()
    assert (report.rewards, report.sandbox_left, live(server, unique)) == ({"reward": 1.0}, [], [])
    assert entry().state == "removed" and entry().why.startswith("found by its name")


async def test_a_sandbox_of_an_answer_that_got_lost(run, entry, server, faults, unique):
    # The service made one, and its gateway said 502: the SDK or Harbor asks again, and there are two.
    faults(Fault(at="create", after=True, status=502, sandbox=unique, times=1))
    report = await run()
    assert (report.rewards, report.sandbox_left, live(server, unique)) == ({"reward": 1.0}, [], [])
    made = [sandbox for sandbox in server.state.ended if sandbox.session.startswith(unique)]
    assert len(made) == 2 and entry().state == "removed"


async def test_what_cannot_be_removed_is_left_and_said(run, entry, server, faults, unique, monkeypatch):
    monkeypatch.setattr(custody, "_CONFIRM_LIMIT", 0.5)
    faults(Fault(at="kill", sandbox=unique))
    report = await run()
    assert (report.rewards, report.sandbox_left) == ({"reward": 1.0}, [f"{unique}__env"])
    found = entry()
    assert found.state == "left" and "not confirmed within 0.5 s" in found.why
    assert found.ids == live(server, unique)
    server.end(server.live[0])


async def test_a_service_that_does_not_list_leaves_it_open(run, entry, server, faults, unique, monkeypatch):
    monkeypatch.setattr(custody, "_CONFIRM_LIMIT", 0.5)
    faults(Fault(at="list"))
    report = await run()
    assert report.rewards == {"reward": 1.0} and report.sandbox_left == [f"{unique}__env"]
    assert entry().state == "left"


async def test_a_create_that_never_came_up(run, entry, server, faults, unique, monkeypatch, wait_until):
    monkeypatch.setattr(custody, "_DOUBT_SECONDS", 1.5)
    faults(Fault(at="create", do="hang", sandbox=unique))
    before = server.faults.met["create", "hang"]
    trial = asyncio.create_task(run())
    await wait_until(lambda: server.faults.met["create", "hang"] > before)
    asked = server.state.calls["list"]
    trial.cancel()
    report = await trial
    assert report.sandbox_left == [] and (entry().state, entry().why) == ("gone", CUT_OFF)
    assert server.state.calls["list"] >= asked + 2, "looked for more than once"


async def test_a_refused_create_made_nothing(run, entry, server, faults, unique, config):
    faults(Fault(at="create", status=401, message="Invalid API key", sandbox=unique))
    report = await run()
    assert report.exception_type == "AuthenticationException" and report.sandbox_left == []
    assert entry().state == "failed" and "AuthenticationException" in entry().why


async def test_a_build_that_fails_made_nothing(run, entry, server, unique, config):
    server.state.images.missing.add("nobody/has:this")
    toml = Path(config["task"]["path"], "task.toml")
    toml.write_text(toml.read_text().replace("debian:12", "nobody/has:this"))
    asked = server.state.calls["list"]
    report = await run()
    assert report.exception_phase == "environment" and report.sandbox_left == []
    assert entry().state == "failed" and server.state.calls["list"] == asked


async def test_a_dead_runners_sandboxes_are_removed_by_the_engine(server, config, unique, tmp_path, wait_until):
    config["agent"]["env"]["NAP"] = "1000"
    ledger = tmp_path / LEDGER
    pool = RunnerPool(log_path=tmp_path / "runner.log", root_dir=tmp_path / "roots", ledger=ledger)
    await pool.start()
    try:
        phases: list[str] = []
        trial = asyncio.create_task(
            pool.run(StartTrial(key="s1.g0", config=config), lambda progress: phases.append(progress.phase))
        )
        await wait_until(lambda: "agent" in phases)
        assert len(live(server, unique)) == 1
        os.kill(pool.pid, signal.SIGKILL)
        report = await trial
        assert (report.exception_type, report.sandbox_left, pool.sandboxes_left) == ("RunnerLostError", [], [])
        assert live(server, unique) == [], "gone by the time the report is there"
        (entry,) = read_entries(ledger)
        assert entry.state == "removed"
    finally:
        await pool.close()


async def test_a_last_try_when_the_runner_ends(server, config, faults, unique, tmp_path, monkeypatch):
    ledger = tmp_path / LEDGER
    pool = RunnerPool(log_path=tmp_path / "runner.log", root_dir=tmp_path / "roots", ledger=ledger)
    await pool.start()
    try:
        faults(Fault(at="list", status=401, message="Invalid API key"))
        trial = asyncio.create_task(pool.run(StartTrial(key="s1.g0", config=config), lambda progress: None))
        report = await trial
        assert report.sandbox_left == pool.sandboxes_left == [f"{unique}__env"], report
        server.faults.clear()
    finally:
        await pool.close()
    assert pool.sandboxes_left == [] and read_entries(ledger)[0].state == "gone"
