"""`quarterdeck reap`: what dead runs left behind is listed, removed and made sure of; nothing else is touched."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from docker_api import DockerApi
from e2b import Sandbox, Template
from e2b_server.faults import Fault
from e2b_server.server import E2BServer

from console.commands.reap import reap_main
from console.control.registry import register
from console.errors import UsageError
from console.records.sandbox_ledger import CUT_OFF, LEDGER, Announced, Created, Entry, Gone, Left, Record, read_entries
from console.trials.finders_e2b import e2b_account
from console.trials.ledger import append, process_name, this_boot, this_host
from console.trials.pool import RunnerPool

DEAD = "1-1"


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[E2BServer]:
    with E2BServer(tmp_path_factory.mktemp("e2b")) as server, pytest.MonkeyPatch.context() as patch:
        for name, value in server.environment.items():
            patch.setenv(name, value)
        Template.build(Template().from_image("debian:12"), "small")
        yield server


@pytest.fixture
def server(service: E2BServer) -> Iterator[E2BServer]:
    yield service
    service.faults.clear()
    for sandbox in service.live:
        service.end(sandbox)


@pytest.fixture(autouse=True)
def own_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("QUARTERDECK_STATE_DIR", str(tmp_path / "state"))


@pytest.fixture
def run_dir(tmp_path: Path) -> Path:
    path = tmp_path / "run"
    path.mkdir()
    return path


@pytest.fixture
def reap(capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, dict[str, Any]]]:
    """Exit code and what `--json` says."""

    def reap(*words: object) -> tuple[int, dict[str, Any]]:
        code = reap_main([*map(str, words), "--json"])
        return code, json.loads(capsys.readouterr().out)

    return reap


def announced(name: str, *, engine: str = DEAD, **kwargs: Any) -> Announced:
    given: dict[str, Any] = {
        "kind": "e2b", "where": os.environ.get("E2B_API_URL", ""), "account": e2b_account(), "cpus": 2,
        "memory_mb": 1024, "lease": 3600.0, "key": "s1.g0.t0.y0", "trial": name, "runner": engine, "host": this_host(),
    }  # fmt: skip
    return Announced(ts=time.time() - 1800, name=name, engine=engine, boot=this_boot(), **(given | kwargs))


def sandbox(name: str) -> str:
    """One of the real SDK's, as Harbor makes them; its id."""
    made = Sandbox.create("small", metadata={"session_id": name, "harbor.trial_name": name}, timeout=600)
    return made.sandbox_id


def state_of(run_dir: Path, name: str) -> Entry:
    (found,) = [entry for entry in read_entries(run_dir / LEDGER) if entry.name == name]
    return found


def write(run_dir: Path, *records: Record) -> None:
    append(run_dir / LEDGER, *records)


def test_orphans_are_listed_then_removed(server, run_dir, reap):
    ids = {name: sandbox(name) for name in ("known", "unheard", "stranger")}
    write(run_dir, announced("known"), Created(ts=time.time() - 1200, name="known", ids=[ids["known"]]))
    write(run_dir, announced("unheard"), announced("vanished"))
    code, said = reap(run_dir, "--dry-run")
    assert code == 8 and said["dry_run"]
    assert {row["name"]: row["state"] for row in said["sandboxes"]} == {
        "known": "there", "unheard": "there", "vanished": "gone",
    }  # fmt: skip
    row = next(row for row in said["sandboxes"] if row["name"] == "known")
    assert row["ids"] == [ids["known"]] and 1100 < row["age"] < 1300 and 0.02 < row["cost"] < 0.05
    assert len(server.live) == 3 and state_of(run_dir, "vanished").state == "creating", "a dry run changes nothing"
    code, said = reap(run_dir, "--yes")
    assert (code, said["removed"], said["gone"], said["left"]) == (0, 2, 1, 0)
    assert [one.session for one in server.live] == ["stranger"], "what is in no ledger is nobody's to remove"
    assert [state_of(run_dir, name).state for name in ("known", "unheard", "vanished")] == [
        "removed",
        "removed",
        "gone",
    ]
    assert reap(run_dir, "--yes") == (0, said | {"sandboxes": [], "removed": 0, "gone": 0})


def test_damaged_lines_are_no_clean_end(server, run_dir, reap, capsys):
    write(run_dir, announced("vanished"))
    with (run_dir / LEDGER).open("ab") as ledger:
        ledger.write(b'garbage\n{"a":1}\n\xff\xfe\n')
    assert reap_main([str(run_dir), "--yes"]) == 8
    said = capsys.readouterr().err
    assert said.count("\n") == 1 and "3 lines cannot be read" in said
    code, found = reap(run_dir, "--yes")
    assert (code, found["left"], found["damaged_lines"]) == (8, 0, 3)


def test_many_pages_of_other_peoples_sandboxes(server, run_dir, reap, monkeypatch):
    monkeypatch.setattr("console.trials.finders_e2b._PAGE", 2)
    server.plan.concurrent = 30
    for number in range(3):
        sandbox(f"other{number}")
    for name in ("one", "two"):
        sandbox(name)
        write(run_dir, announced(name))
    assert reap(run_dir, "--yes")[1]["removed"] == 2 and len(server.live) == 3
    monkeypatch.setattr("console.trials.finders_e2b._PAGES", 1)
    write(run_dir, announced("three"), announced("four"))
    code, said = reap(run_dir, "--yes")
    assert (code, said["left"]) == (8, 2) and "more than 2 sandboxes" in said["sandboxes"][0]["why"]
    assert state_of(run_dir, "three").state == "left", "not seen is not gone"


def test_what_would_not_go_is_said(server, run_dir, reap, monkeypatch):
    monkeypatch.setattr("console.trials.finders_e2b._TRIES", (0.0, 0.1))
    sandbox("stuck")
    write(run_dir, announced("stuck"))
    server.faults.add(Fault(at="kill", message="it is stuck"))
    code, said = reap(run_dir, "--yes")
    assert (code, said["left"]) == (8, 1) and "it is stuck" in said["sandboxes"][0]["why"]
    assert state_of(run_dir, "stuck").state == "left"
    server.faults.clear()
    assert reap(run_dir, "--yes")[0] == 0 and server.live == []


def test_a_live_engines_are_left_alone(server, run_dir, reap):
    here = process_name(os.getpid())
    for name in ("busy", "failed"):
        sandbox(name)
        write(run_dir, announced(name, engine=here))
    write(run_dir, Left(ts=0, name="failed", why="502"))
    code, said = reap(run_dir, "--yes")
    assert (code, said["removed"], said["busy"]) == (0, 1, 1)
    assert [one.session for one in server.live] == ["busy"] and state_of(run_dir, "busy").state == "creating"


def test_one_that_came_up_after_it_was_given_up(server, run_dir, reap):
    write(run_dir, announced("late"), Gone(ts=time.time(), name="late", how=CUT_OFF))
    assert reap(run_dir, "--yes")[0] == 0 and state_of(run_dir, "late").state == "gone"
    sandbox("late")
    code, said = reap(run_dir, "--yes")
    assert (code, said["removed"], server.live) == (0, 1, []) and state_of(run_dir, "late").state == "removed"


def test_one_given_up_is_looked_for_as_long_as_its_lease_may_last(server, run_dir, reap):
    write(run_dir, announced("over", lease=60.0), Gone(ts=time.time() - 100, name="over", how=CUT_OFF))
    sandbox("over")
    code, said = reap(run_dir, "--yes")
    assert (code, said["sandboxes"], len(server.live)) == (0, [], 1)


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        ({"account": "00000000"}, "not the key that it was made with"),
        ({"where": "https://api.elsewhere.dev"}, "made at https://api.elsewhere.dev"),
        ({"kind": "modal"}, "no way to look for modal"),
        ({"kind": "bwrap", "host": "another"}, "made on another"),
    ],
)
def test_what_cannot_be_looked_for_stays_open(server, run_dir, reap, capsys, wrong, why):
    write(run_dir, announced("far", **wrong))
    code, said = reap(run_dir, "--yes")
    assert code == 8 and why in said["sandboxes"][0]["why"]
    assert state_of(run_dir, "far").state == "left"
    assert reap_main([str(run_dir), "--forget", "far"]) == 0
    assert capsys.readouterr().out == "1 closed without looking\n"
    assert state_of(run_dir, "far").why == "by the operator's word"
    assert reap(run_dir, "--yes")[0] == 0
    with pytest.raises(UsageError, match="--forget far: no open sandbox"):
        reap_main([str(run_dir), "--forget", "far"])


def test_another_account_is_no_matter_once_the_lease_is_over(server, run_dir, reap):
    write(run_dir, announced("old", account="00000000", lease=60.0))
    assert reap(run_dir, "--yes")[0] == 0


def test_usage(server, run_dir, reap, monkeypatch, capsys):
    write(run_dir, announced("one"))
    for words, message in (
        ([], "name a run, or give --all"),
        ([str(run_dir)], "add --yes"),
        ([str(run_dir), "--all", "--yes"], "not both"),
        (["no-such-run", "--yes"], "no run 'no-such-run'"),
        ([str(run_dir), "--forget", "x", "--dry-run"], "--forget"),
    ):
        with pytest.raises(UsageError, match=message):
            reap_main(words)
    monkeypatch.delenv("E2B_API_KEY")
    with pytest.raises(UsageError, match="E2B_API_KEY is not set"):
        reap_main([str(run_dir), "--yes"])
    monkeypatch.setenv("E2B_API_KEY", "e2b_" + "f" * 40)
    code, said = reap(run_dir, "--yes")
    assert code == 8 and "refuses E2B_API_KEY" in said["sandboxes"][0]["why"]


def test_all_known_runs_and_the_table(server, tmp_path, capsys):
    for number in range(2):
        directory = tmp_path / f"run{number}"
        directory.mkdir()
        sandbox(f"n{number}")
        evil = "evil\x1b[31m\u202e" if number else "plain"
        write(directory, announced(f"n{number}", trial=evil))
        register(f"r{number}", directory, "", 0, None, time.time())
    assert reap_main(["--all", "--dry-run"]) == 8
    out = capsys.readouterr().out
    assert "r0" in out and "r1" in out and "30 min" in out and "there" in out
    assert "\x1b" not in out and "\u202e" not in out
    assert reap_main(["--all", "--yes"]) == 0 and server.live == []
    assert "2 removed, 0 were gone already, 0 left" in capsys.readouterr().out
    assert reap_main(["--all", "--yes"]) == 0
    assert capsys.readouterr().out == "No sandboxes left behind.\n"


def test_docker_projects(run_dir, tmp_path, reap, monkeypatch):
    with DockerApi(tmp_path / "docker.sock") as docker:
        monkeypatch.setattr("console.trials.finders_docker._TRIES", (0.0, 0.1))
        docker.things |= {
            "networks/n1": "one__env", "containers/c1": "one__env", "containers/c2": "one__env",
            "volumes/v1": "one__env",
            "containers/c3": "two__env", "containers/c9": "somebody-elses",
        }  # fmt: skip
        docker.stubborn.add("containers/c3")
        for name in ("One__env", "Two__env", "Gone__env"):
            write(run_dir, announced(name, kind="docker", where=docker.address, ref=name.lower()))
        code, said = reap(run_dir, "--yes")
        assert (code, said["removed"], said["gone"], said["left"]) == (8, 1, 1, 1)
        assert docker.things == {"containers/c3": "two__env", "containers/c9": "somebody-elses"}
        of_one = [thing for thing in docker.deleted if thing != "containers/c3"]
        assert of_one == ["containers/c1", "containers/c2", "networks/n1", "volumes/v1"], "in an order that works"
        assert "active endpoints" in state_of(run_dir, "Two__env").why
        assert said["sandboxes"][0]["cost"] == 0
    code, said = reap(run_dir, "--yes")
    assert code == 8 and "cannot be asked" in said["sandboxes"][0]["why"], "without a daemon nothing is known"


ENGINE = """
import asyncio, sys
from pathlib import Path
from console.trials.pool import RunnerPool
from console.trials.protocol import StartTrial

async def main():
    directory = Path(sys.argv[1])
    ledger = directory / "sandboxes.jsonl"
    pool = RunnerPool(log_path=directory / "runner.log", root_dir=directory / "roots", ledger=ledger)
    await pool.start()
    environment = {"import_path": "console.trials.bwrap:BwrapEnvironment", "kwargs": {"storage": sys.argv[4]}}
    config = {"task": {"path": sys.argv[2]}, "trial_name": sys.argv[3], "trials_dir": str(directory / "trials"),
              "agent": {"name": "oracle"}, "environment": environment}
    def told(progress):
        if progress.phase == "agent":
            print(pool.pid, flush=True)
    await pool.run(StartTrial(key="k", config=config), told)

asyncio.run(main())
"""


@pytest.fixture
def engine(run_dir: Path, make_task: Callable[..., Path], unique: str) -> Iterator[Callable[..., Any]]:
    """Start an engine with one trial in its agent phase: its process, and its runner's id."""
    engines: list[subprocess.Popen[bytes]] = []
    runners: list[int] = []

    def start(storage: str) -> tuple[subprocess.Popen[bytes], int]:
        task = make_task("long", "sleep 1000")
        command = [sys.executable, "-c", ENGINE, str(run_dir), str(task), unique, storage]
        engines.append(subprocess.Popen(command, stdout=subprocess.PIPE))
        assert engines[0].stdout is not None
        runners.append(int(engines[0].stdout.readline()))
        return engines[0], runners[0]

    yield start
    for process in engines:
        process.kill()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()
    for runner in runners:
        with contextlib.suppress(ProcessLookupError):
            os.kill(runner, signal.SIGKILL)


async def test_the_death_of_an_engine_closes_its_entries(run_dir, engine, unique, wait_until, processes_naming):
    process, _ = engine("disk")
    process.kill()
    await wait_until(lambda: state_of(run_dir, f"{unique}__env").state == "removed")
    assert processes_naming(f"{unique}__env") == []


async def test_the_next_engine_closes_what_died_with_its_runner(run_dir, engine, unique, wait_until, processes_naming):
    process, runner = engine("disk")
    os.kill(runner, signal.SIGSTOP)
    process.kill()
    os.kill(runner, signal.SIGKILL)
    await wait_until(lambda: not processes_naming(f"{unique}__env"))
    assert state_of(run_dir, f"{unique}__env").state == "live", "nobody was left to write it"
    pool = RunnerPool(log_path=run_dir / "runner.log", root_dir=run_dir / "roots", ledger=run_dir / LEDGER)
    await pool.start()
    await pool.close()
    found = state_of(run_dir, f"{unique}__env")
    assert found.state in ("gone", "removed"), found.why


@pytest.mark.parametrize("storage", ["disk", "memory"])
def test_bubblewrap_of_a_runner_that_hangs(run_dir, engine, unique, processes_naming, reap, storage):
    process, runner = engine(storage)
    name = f"{unique}__env"
    code, said = reap(run_dir, "--yes")
    assert (code, said["busy"]) == (0, 1) and processes_naming(name), "a live engine's"
    os.kill(runner, signal.SIGSTOP)  # it does not see its engine die
    process.kill()
    process.wait()
    code, said = reap(run_dir, "--dry-run")
    assert code == 8 and said["sandboxes"][0]["ids"][0].startswith("pid ")
    code, said = reap(run_dir, "--yes")
    assert (code, said["removed"]) == (0, 1)
    assert processes_naming(name) == [] and list((run_dir / "roots").glob("*")) == []
    assert state_of(run_dir, name).state == "removed"
