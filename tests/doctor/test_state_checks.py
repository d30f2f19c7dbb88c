"""The state directory, sockets, runs and their sandboxes, as they lie on a real disk."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import msgspec
import pytest

from console.control.registry import register
from console.doctor import checks_state as checks
from console.doctor.case import Case, Host
from console.records.sandbox_ledger import LEDGER, Announced, Created, Left, Removed, encode
from console.trials.roots import start_ticks

ENGINE = Path(__file__).parents[1] / "control" / "small_engine.py"


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("QUARTERDECK_STATE_DIR", str(tmp_path / "state"))
    return tmp_path / "state"


def case(state: Path, **env: str) -> Case:
    return Case(host=Host(uid=os.getuid(), now=time.time(), env={"QUARTERDECK_STATE_DIR": str(state)} | env))


def one(check, of: Case):
    (made,) = check(of)
    return made


def test_a_directory_that_is_not_there_yet_is_not_made(state: Path) -> None:
    for check in (checks.directory, checks.registry, checks.listening, checks.dead_runs, checks.orphaned_sandboxes):
        assert one(check, case(state)).level == "ok"
    assert not state.exists()


def test_a_file_or_a_link_in_its_place(state: Path, tmp_path: Path) -> None:
    state.write_text("")
    assert one(checks.directory, case(state)).level == "error"
    state.unlink()
    state.symlink_to(tmp_path)
    assert one(checks.directory, case(state)).level == "error"


def test_a_directory_of_somebody_else(state: Path) -> None:
    state.mkdir()
    theirs = Case(host=Host(uid=os.getuid() + 1, env={"QUARTERDECK_STATE_DIR": str(state)}))
    assert one(checks.directory, theirs).level == "error" and one(checks.directory, case(state)).level == "ok"


def test_a_directory_that_a_log_out_removes(state: Path, tmp_path: Path) -> None:
    assert one(checks.directory, case(state, XDG_RUNTIME_DIR=str(tmp_path))).level == "warning"
    assert one(checks.directory, case(state, XDG_RUNTIME_DIR=str(tmp_path / "other"))).level == "ok"


def test_a_read_only_file_system(doctor) -> None:
    place = Path(tempfile.mkdtemp(prefix="qd-"))
    script = f'mount -t tmpfs none {place} && mount -o remount,ro {place} && exec "$@"'
    inside = ("unshare", "--user", "--map-root-user", "--mount", "sh", "-c", script, "sh")
    code, told = doctor("--only", "state", before=inside, QUARTERDECK_STATE_DIR=str(place / "state"))
    assert code == 2 and "Read-only file system" in told["state.dir"]["found"]
    assert told["state.socket"]["level"] == "error" and told["state.registry"]["level"] == "ok"
    place.rmdir()


@pytest.mark.parametrize(("kind", "level"), [("nfs4", "warning"), ("ext4", "ok"), ("fuse.sshfs", "warning")])
def test_directories_on_a_network(host, tmp_path: Path, kind: str, level: str) -> None:
    mounts = f"1 0 0:1 / / rw - ext4 /dev/vda rw\n2 1 0:2 / {tmp_path} rw shared:1 - {kind} server:/x rw\n"
    mounts += "3 1 0:3 / /tmp/elsewhere rw - nfs4 server:/y rw\n4 1 0:4 / /tmp rw - tmpfs none rw\n"
    env = {"QUARTERDECK_STATE_DIR": str(tmp_path / "state")}
    there = host({"proc/self/mountinfo": mounts}, env=env, uid=os.getuid())
    assert one(checks.directory, Case(host=there)).level == level


def test_lines_of_the_registry(state: Path, tmp_path: Path) -> None:
    register("r1", tmp_path, "", 1, None, 1.0)
    assert one(checks.registry, case(state)).found == "1 lines"
    with (state / "runs.jsonl").open("a") as file:
        file.write('{"run_id": "r2", "run_\n[]\n')
    assert one(checks.registry, case(state)).level == "warning"
    assert one(checks.registry, case(state)).found.startswith("2 of 3 lines")


def test_long_paths_of_sockets(tmp_path: Path) -> None:
    deep = tmp_path / ("d" * 60) / ("e" * 60)
    made = one(checks.listening, case(deep))
    assert made.level == "ok" and "in /tmp" in made.found, "engines go to /tmp then"
    short = Path(tempfile.mkdtemp(prefix="qd-"))
    assert one(checks.listening, case(short)).found == f"sockets can be bound in {short}"
    assert list(short.iterdir()) == []
    short.rmdir()


@pytest.fixture
def engine(tmp_path: Path, state: Path):
    """An engine process, registered; its run directory."""
    socket = Path(tempfile.mkdtemp(prefix="qd-")) / "s.sock"
    run_dir = tmp_path / "run"
    run_dir.mkdir()
    process = subprocess.Popen(
        [sys.executable, ENGINE, run_dir, socket, "--steps", "1000", "--interval", "0.02", "--registered"],
        stdout=subprocess.PIPE,
    )
    assert process.stdout.readline() == b"ready\n"
    yield process, run_dir
    process.kill()
    process.wait()
    process.stdout.close()
    socket.unlink(missing_ok=True)
    socket.parent.rmdir()


def test_a_run_that_dies_and_what_it_left(engine, state: Path) -> None:
    process, run_dir = engine
    us = f"{process.pid}-{start_ticks(process.pid)}"
    ledger = (run_dir / LEDGER).open("ab", buffering=0)
    for name in ("t1__env", "t2__env", "t3__env"):
        ledger.write(encode(Announced(ts=time.time(), name=name, kind="e2b", engine=us)))
        ledger.write(encode(Created(ts=time.time(), name=name, ids=[name])))
    ledger.write(encode(Removed(ts=time.time(), name="t1__env")))
    assert one(checks.dead_runs, case(state)).found == "1 live, none dead"
    assert one(checks.orphaned_sandboxes, case(state)).level == "ok", "a live engine sees to its own"
    ledger.write(encode(Left(ts=time.time(), name="t2__env", why="refused")))
    left = one(checks.orphaned_sandboxes, case(state))
    assert left.level == "warning" and "1 may still exist, of run-1: t2__env" in left.found

    process.send_signal(signal.SIGKILL)
    process.wait()
    dead = one(checks.dead_runs, case(state))
    assert dead.level == "warning" and "run-1" in dead.found and "--resume" in dead.remedy
    orphans = one(checks.orphaned_sandboxes, case(state))
    assert "2 may still exist, of run-1: t2__env, t3__env" in orphans.found and "reap run-1" in orphans.remedy
    for name in ("t2__env", "t3__env"):
        ledger.write(encode(Removed(ts=time.time(), name=name, by="reap")))
    ledger.close()
    assert one(checks.orphaned_sandboxes, case(state)).level == "ok"

    month = Case(host=Host(now=time.time() + 30 * 86400, env={"QUARTERDECK_STATE_DIR": str(state)}))
    assert one(checks.dead_runs, month).level == "note", "what died long ago is no news"


def test_sandboxes_of_a_run_on_another_host(state: Path, tmp_path: Path) -> None:
    journal = tmp_path / "journal"
    journal.mkdir()
    (journal / "000.jsonl").write_text("")
    (tmp_path / LEDGER).write_bytes(encode(Announced(ts=time.time(), name="t1__env", kind="e2b", engine="7-7")))
    entry = register("r1", tmp_path, "", os.getpid(), None, 1.0)
    entry.host = "another-host"
    (state / "runs.jsonl").write_bytes(msgspec.json.encode(entry) + b"\n")
    assert one(checks.orphaned_sandboxes, case(state)).level == "ok", "its journal is fresh: its engine sees to it"
    os.utime(journal / "000.jsonl", (1.0, 1.0))
    assert one(checks.orphaned_sandboxes, case(state)).level == "warning"


def test_ledgers_that_cannot_be_read_are_named(doctor, state: Path, tmp_path: Path) -> None:
    register("r1", tmp_path, "", 999_999_999, None, 1.0)
    (tmp_path / LEDGER).write_text("")
    account = ("unshare", "--user", "--map-user=4321")  # owns the same files, and is not root
    assert doctor("--only", "sandboxes.", before=account)[1]["sandboxes.orphaned"]["level"] == "ok"
    (tmp_path / LEDGER).chmod(0)
    told = doctor("--only", "sandboxes.", before=account)[1]["sandboxes.orphaned"]
    assert (told["level"], told["found"]) == ("warning", "the ledger of r1 cannot be read")


def test_of_many_runs_the_newest_are_looked_at(state: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(5):
        (tmp_path / f"r{number}").mkdir()
        register(f"r{number}", tmp_path / f"r{number}", "", 999_999_999, None, float(number))
    monkeypatch.setattr(checks, "LOOK_SECONDS", -1.0)
    made = one(checks.dead_runs, case(state))
    assert "r4" in made.found and "the newest 1 of 5 were looked at" in made.found
