"""The sandbox ledger of real trials: announced before they exist, closed once they are gone, whoever dies."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from console.records.sandbox_ledger import LEDGER, Entry, LedgerView, read_entries
from console.trials.bwrap_policy import error_policy
from console.trials.custody import Custodian
from console.trials.ledger import LedgerWriter, process_name
from console.trials.pool import RunnerPool
from console.trials.protocol import StartTrial

pytestmark = pytest.mark.asyncio(loop_scope="module")


STUCK = """
from console.trials.bwrap import BwrapEnvironment

class Stuck(BwrapEnvironment):
    async def stop(self, delete):
        raise OSError("the machine is on fire")
"""


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def pool(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[RunnerPool]:
    directory = tmp_path_factory.mktemp("pool")
    (directory / "stuck_environments.py").write_text(STUCK)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(directory))
        pool = RunnerPool(
            log_path=directory / "runner.log", root_dir=directory / "roots", ledger=directory / LEDGER, stop_limit=15
        )
        await pool.start()
        yield pool
        await pool.close()


@pytest.fixture
def spec(tmp_path: Path, unique: str) -> Callable[..., StartTrial]:
    def make(number: int, task: Path, **environment: Any) -> StartTrial:
        config = {
            "task": {"path": str(task)},
            "trial_name": f"{unique}-{number}",
            "trials_dir": str(tmp_path / "trials"),
            "agent": {"name": "oracle"},
            "environment": {"import_path": "console.trials.bwrap:BwrapEnvironment"} | environment,
            "override_error_policy": error_policy(),
        }
        return StartTrial(key=f"s1.g{number}", config=config)

    return make


def ledger_of(pool: RunnerPool) -> Path:
    assert pool._ledger is not None
    return pool._ledger


def entries(pool: RunnerPool, unique: str) -> list[Entry]:
    return [entry for entry in read_entries(ledger_of(pool)) if entry.name.startswith(unique)]


def _release(path: Path) -> None:
    if os.geteuid():
        path.chmod(0o700)
    else:
        subprocess.run(["umount", str(path)], check=True)


def ignore(progress: Any) -> None:
    pass


async def test_a_trial_is_announced_created_and_removed(pool, spec, make_task, unique):
    during: list[Entry] = []

    def look(progress: Any) -> None:
        if progress.phase in ("setup", "teardown"):
            during.extend(entries(pool, unique))

    report = await pool.run(spec(0, make_task("good"), override_cpus=1, override_memory_mb=256), look)
    assert report.rewards == {"reward": 1.0} and report.sandbox_left == []
    assert [entry.state for entry in during] == ["live", "live"]
    (entry,) = entries(pool, unique)
    made = entry.made
    assert (entry.state, made.kind, made.key, made.trial) == ("removed", "bwrap", "s1.g0", f"{unique}-0")
    assert made.name == f"{unique}-0__env" and (made.cpus, made.memory_mb) == (1, 256)
    assert made.engine == process_name(os.getpid()) and made.runner == process_name(pool.pid)
    assert made.ts <= entry.created <= entry.closed


async def test_a_separate_verifiers_sandbox_is_in_the_ledger_too(pool, spec, make_task, unique):
    toml = '\n[verifier.environment]\nnetwork_mode = "public"\n'
    task = make_task("apart")
    text = (task / "task.toml").read_text()
    (task / "task.toml").write_text(text.replace("[verifier]\n", '[verifier]\nenvironment_mode = "separate"\n') + toml)
    report = await pool.run(spec(0, task), ignore)
    assert report.sandbox_left == []
    names = {entry.name: entry.state for entry in entries(pool, unique)}
    assert len(names) == 2 and set(names.values()) == {"removed"}, (names, report)
    assert any("__verifier__" in name for name in names)


async def test_a_cancelled_trial_is_closed(pool, spec, make_task, unique, wait_until):
    task = asyncio.create_task(pool.run(spec(0, make_task("long", "sleep 1000")), ignore))
    await wait_until(lambda: [entry.state for entry in entries(pool, unique)] == ["live"])
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert [entry.state for entry in entries(pool, unique)] == ["removed"]


async def test_a_trial_that_ends_before_its_create(pool, spec, make_task, unique):
    refused = spec(0, make_task("odd"), kwargs={"ro_binds": ["/nowhere"]})
    report = await pool.run(refused, ignore)
    assert report.exception_type == "TrialCreateError"
    assert entries(pool, unique) == []


async def test_kept_files_are_nobodys_to_remove(pool, spec, make_task, unique):
    await pool.run(spec(0, make_task("keep"), kwargs={"keep": True}), ignore)
    (entry,) = entries(pool, unique)
    assert entry.state == "kept" and Path(entry.root).is_dir()


async def test_a_root_that_cannot_be_removed_is_left(pool, spec, make_task, unique):
    held: list[Path] = []

    def hold(progress: Any) -> None:
        if progress.phase == "agent":
            root = Path(entries(pool, unique)[0].root)
            if os.geteuid():  # a directory without write permission keeps what is in it, but from root
                held.append(root.parent)
                root.parent.chmod(0o500)
            else:
                held.append(root / "busy")
                held[0].mkdir()
                subprocess.run(["mount", "-t", "tmpfs", "tmpfs", str(held[0])], check=True)

    try:
        report = await pool.run(spec(0, make_task("busy", "sleep 1"), kwargs={"storage": "disk"}), hold)
        (entry,) = entries(pool, unique)
        assert report.rewards == {"reward": 1.0}, "a removal that fails does not void the trial"
        assert report.sandbox_left == [entry.name] == pool.sandboxes_left
        assert entry.state == "left" and "cannot be removed" in entry.why
        view = LedgerView(ledger_of(pool).parent, process_name(os.getpid()))
        view.refresh()
        assert (view.left, view.live, view.orphaned) == ([entry.name], 0, [])
    finally:
        for path in held:
            _release(path)
        pool.sandboxes_left.clear()


async def test_a_stop_that_fails_does_not_leave_the_sandbox(pool, spec, make_task, unique, processes_naming):
    environment = {"import_path": "stuck_environments:Stuck", "kwargs": {"storage": "disk"}}
    report = await pool.run(spec(0, make_task("stuck"), **environment), ignore)
    assert report.rewards == {"reward": 1.0} and report.exception_type is None and report.sandbox_left == []
    (entry,) = entries(pool, unique)
    assert entry.state == "removed" and entry.why.startswith("found by its name: pid ")
    assert not Path(entry.root).exists() and processes_naming(entry.name) == []


@pytest.fixture
async def watched(tmp_path):
    """Custody with a ledger of its own, in this process."""
    writer = LedgerWriter(tmp_path / LEDGER)
    yield Custodian(writer).trial("k"), tmp_path / LEDGER
    await asyncio.to_thread(writer.close)


@pytest.mark.asyncio(loop_scope="function")
async def test_an_environment_that_nobody_stopped_is_removed(watched, make_environment, processes_naming):
    custody, ledger = watched
    environment = await make_environment(start=False, storage="disk")
    custody.take(environment)
    await environment.start(force_build=False)
    assert processes_naming(environment.session_id)
    await custody.settle()
    (entry,) = read_entries(ledger)
    assert (entry.state, custody.left, processes_naming(environment.session_id)) == ("removed", [], [])
    assert not Path(entry.root).exists()


@pytest.mark.asyncio(loop_scope="function")
async def test_settling_waits_for_a_stop_that_runs(watched, make_environment):
    custody, ledger = watched
    environment = await make_environment(start=False)
    began, go_on, stop = asyncio.Event(), asyncio.Event(), environment.stop

    async def slow(delete: bool) -> None:
        began.set()
        await go_on.wait()
        await stop(delete)

    environment.stop = slow
    custody.take(environment)
    await environment.start(force_build=False)
    stopping = asyncio.create_task(environment.stop(True))
    await began.wait()
    settling = asyncio.create_task(custody.settle())
    await asyncio.sleep(0.05)
    settling.cancel()  # as often as it likes: the last record is still to come
    await asyncio.sleep(0.05)
    assert not settling.done() and read_entries(ledger)[0].state == "live"
    go_on.set()
    await settling
    await stopping
    (entry,) = read_entries(ledger)
    assert (entry.state, entry.why) == ("removed", "")


async def test_the_death_of_a_runner_closes_its_entries(pool, spec, make_task, unique, wait_until):
    task = make_task("long", "sleep 1000")
    runs = [asyncio.create_task(pool.run(spec(n, task, kwargs={"storage": "disk"}), ignore)) for n in range(3)]
    await wait_until(lambda: [entry.state for entry in entries(pool, unique)] == ["live"] * 3)
    os.kill(pool.pid, signal.SIGKILL)
    reports = await asyncio.gather(*runs)
    assert {report.exception_type for report in reports} == {"RunnerLostError"}
    assert all(report.sandbox_left == [] for report in reports)
    found = entries(pool, unique)
    assert {entry.state for entry in found} == {"gone"} and not any(Path(entry.root).exists() for entry in found)


async def test_no_ledger_no_sandbox(spec, make_task, tmp_path, unique, processes_naming):
    directory = tmp_path / "full"
    directory.mkdir()
    (directory / LEDGER).symlink_to("/dev/full")
    pool = RunnerPool(log_path=tmp_path / "runner.log", root_dir=tmp_path / "roots", ledger=directory / LEDGER)
    await pool.start()
    try:
        report = await pool.run(spec(0, make_task("never", "echo ran > /app/ran")), ignore)
    finally:
        await pool.close()
    assert report.exception_type == "EnvironmentStartError" and report.exception_phase == "environment"
    assert "sandbox ledger" in report.exception_message and "nothing was created" in report.exception_message
    assert report.sandbox_left == []
