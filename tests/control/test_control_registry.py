"""Runs are found and judged by what is true, not by a process id."""

import os
import shutil
import socket as sockets
import stat
import subprocess
import sys
import time

import msgspec
import pytest
from small_engine import SmallEngine

from console.control import registry
from console.control.binding import PATH_LIMIT
from console.control.registry import RunEntry, engine_alive, entries, process_started, register, socket_path, state_dir
from console.control.runs import find_run, list_runs, load_view
from console.errors import ControlError, RecordingError, UsageError


@pytest.fixture(autouse=True)
def own_state(tmp_path, monkeypatch):
    monkeypatch.setenv(registry.STATE_DIR_VARIABLE, str(tmp_path / "state"))


@pytest.fixture
def other_process():
    """A process that is no engine."""
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    yield process
    process.communicate(b"\n")


def make_run(path, run_id="run-1", *, finished=None, steps=1):
    path.mkdir(parents=True, exist_ok=True)
    engine = SmallEngine(path, path / "s.sock", run_id)
    engine.begin(pid=os.getpid())
    for number in range(steps):
        engine.step(number)
    if finished:
        engine.finish(*finished)
    engine.writer.close()
    return path


def add(path, run_id="run-1", name="first", pid=None, **changes):
    """Register, then change the line as asked."""
    entry = register(run_id, path, name, os.getpid() if pid is None else pid, None, time.time())
    if changes:
        entry = msgspec.structs.replace(entry, **changes)
        with (state_dir() / "runs.jsonl").open("ab") as file:
            file.write(msgspec.json.encode(entry) + b"\n")
    return entry


def test_states_follow_from_journal_and_process(tmp_path):
    add(make_run(tmp_path / "a", finished=("completed", 0)))
    assert [(r.state, r.exit_code) for r in list_runs()] == [("finished", 0)]
    for number, (status, code) in enumerate([("stopped", 3), ("failed", 7)]):
        path = make_run(tmp_path / str(number), finished=(status, code))
        add(path)
        assert list_runs()[0].state == status and len(list_runs()) == 1  # one line a run, the newest counts
    add(make_run(tmp_path / "live", steps=2))
    (run,) = list_runs()
    assert (run.state, run.step, run.steps, run.steps_done, run.pid) == ("live", 1, 3, 2, os.getpid())


def test_a_dead_process_is_dead(tmp_path, other_process):
    path = make_run(tmp_path / "a")
    add(path, pid=other_process.pid)
    assert list_runs()[0].state == "live"
    other_process.kill()
    deadline = time.monotonic() + 10
    while process_started(other_process.pid) is not None and time.monotonic() < deadline:
        time.sleep(0.01)
    assert list_runs()[0].state == "dead"  # not reaped yet: a zombie is dead too


def test_a_run_whose_end_cannot_be_read_is_not_called_dead(tmp_path):
    """It may have ended in order: the last event is lost, and a step and a start are kept beside it."""
    path = make_run(tmp_path / "a", finished=("stopped", 3))
    add(path, pid_started=1.0)
    assert list_runs()[0].state == "stopped"
    (chunk,) = (path / "journal").glob("*.zst")
    os.truncate(chunk, chunk.stat().st_size - 4)
    (run,) = list_runs()
    assert (run.state, run.steps_done, run.exit_code) == ("damaged", 1, None)
    assert find_run(str(path)).state == "damaged"


def test_an_engine_that_writes_is_live_whatever_can_be_read(tmp_path):
    path = make_run(tmp_path / "a")
    (chunk,) = (path / "journal").glob("*.zst")
    os.truncate(chunk, chunk.stat().st_size - 4)
    add(path)
    assert list_runs()[0].state == "live"


def test_a_process_id_used_again_is_not_the_engine(tmp_path):
    add(make_run(tmp_path / "a"), pid_started=time.time() - 100_000)
    assert list_runs()[0].state == "dead"
    add(tmp_path / "a", pid_started=None)
    assert list_runs()[0].state == "dead"


async def test_in_doubt_the_socket_decides(tmp_path, new_engine):
    """The clock was set, so the start time does not fit; the engine answers, and that is that."""
    import asyncio

    engine = new_engine()
    await engine.server.start()
    entry = RunEntry(
        run_id="run-1", run_dir=str(engine.run_dir), pid=os.getpid(), pid_started=1.0, socket=str(engine.socket)
    )
    assert await asyncio.to_thread(engine_alive, entry)
    other = msgspec.structs.replace(entry, run_id="run-2")
    assert not await asyncio.to_thread(engine_alive, other)
    await engine.close()
    assert not await asyncio.to_thread(engine_alive, entry)


def test_a_run_of_another_host_is_judged_by_its_journal(tmp_path):
    path = make_run(tmp_path / "a")
    add(path, pid=0, host="elsewhere")
    assert list_runs()[0].state == "live"
    for file in (path / "journal").iterdir():
        os.utime(file, (1, 1))
    assert list_runs()[0].state == "dead"


def test_removed_directories_are_listed_on_request_only(tmp_path):
    add(tmp_path / "never-there")
    assert list_runs() == []
    assert [r.state for r in list_runs(missing=True)] == ["gone"]


def test_torn_and_foreign_lines_cost_only_themselves(tmp_path):
    add(make_run(tmp_path / "a", finished=("completed", 0)), "run-1")
    path = state_dir() / "runs.jsonl"
    path.write_bytes(b"\xff\xfe\n[]\n" + path.read_bytes() + b'{"v":1,"run_id":"torn')
    add(tmp_path / "b", "run-2")
    assert [e.run_id for e in entries()] == ["run-1", "run-2"]
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(state_dir().stat().st_mode) == 0o700


def test_a_directory_made_anew_holds_one_run(tmp_path):
    for run_id in ("run-1", "run-2"):
        shutil.rmtree(tmp_path / "a", ignore_errors=True)
        add(make_run(tmp_path / "a", run_id, finished=("completed", 0)), run_id, "first")
    assert [run.run_id for run in list_runs(missing=True)] == ["run-2"]
    assert find_run("first").run_id == find_run("run-").run_id == "run-2"
    with pytest.raises(UsageError, match="no run 'run-1'"):
        find_run("run-1")
    add(make_run(tmp_path / "b", "run-1"), "run-1", "moved")
    add(tmp_path / "a", "run-2", "first")
    assert [run.run_id for run in list_runs()] == ["run-2", "run-1"]


def test_find_run(tmp_path):
    with pytest.raises(UsageError, match="no run is live: name a run"):
        find_run()
    add(make_run(tmp_path / "a"), "run-1", "first")
    assert find_run().run_id == "run-1"
    for number in (21, 22):
        run_id = f"run-{number}"
        add(make_run(tmp_path / str(number), run_id, finished=("completed", 0)), run_id, "again")
    assert find_run("run-1").run_id == find_run("first").run_id == find_run().run_id == "run-1"
    assert find_run("run-22").run_id == "run-22"
    with pytest.raises(UsageError, match=r"'again' means 2 runs.*run-22.*run-21"):
        find_run("again")
    with pytest.raises(UsageError, match="'run-2' means 2 runs"):
        find_run("run-2")
    add(make_run(tmp_path / "23", "run-23"), "run-23", "again")
    assert find_run("again").run_id == "run-23"  # the only live one of that name
    with pytest.raises(UsageError, match=r"2 runs are live, name one: run-23 .*, run-1 \(first"):
        find_run()
    with pytest.raises(UsageError, match="no run 'nope'"):
        find_run("nope")


def test_a_directory_needs_no_registry(tmp_path, monkeypatch):
    path = make_run(tmp_path / "a", finished=("stopped", 3), steps=2)
    run = find_run(str(path))
    assert (run.run_id, run.state, run.step, run.exit_code, run.run_dir) == ("run-1", "stopped", 1, 3, str(path))
    assert len(load_view(run).history.rows) == 2
    monkeypatch.chdir(path)
    assert find_run(".").run_dir == str(path)
    with pytest.raises(RecordingError):
        find_run(str(tmp_path))
    assert find_run(str(make_run(tmp_path / "b"))).state == "dead"  # its process id alone proves nothing
    add(tmp_path / "b")
    assert find_run(str(tmp_path / "b")).state == "live"


def test_socket_paths_are_short_and_private(tmp_path, monkeypatch):
    path = socket_path("run-1")
    assert path == tmp_path / "state" / "sockets" / "run-1.sock" or len(str(path)) <= PATH_LIMIT
    monkeypatch.setenv(registry.STATE_DIR_VARIABLE, str(tmp_path / ("x" * 100)))
    paths = {socket_path(run_id) for run_id in ("run-1", "run-2", "../../etc/passwd", "a" * 200, "a b")}
    assert len(paths) == 5
    for path in paths:
        assert len(os.fsencode(path)) <= PATH_LIMIT and path.suffix == ".sock"
        assert path.parent == type(path)(f"/tmp/quarterdeck-{os.getuid()}")
        assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    monkeypatch.setenv(registry.STATE_DIR_VARIABLE, str(tmp_path / "y"))
    assert socket_path("..").name != "...sock"


def test_a_state_directory_that_cannot_be_is_one_line(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv(registry.STATE_DIR_VARIABLE, str(tmp_path / "file"))
    with pytest.raises(ControlError, match="QUARTERDECK_STATE_DIR"):
        register("run-1", tmp_path, "x", 1, None, 0.0)


def test_many_writers_leave_whole_lines(tmp_path):
    code = (
        "import sys; from console.control.registry import register\n"
        "for i in range(50):\n"
        "    run = f'{sys.argv[1]}-{i}'\n"
        "    register(run, f'/nowhere/{run}' + 'x' * 3000, 'n', 0, None, 0.0)"
    )
    writers = [subprocess.Popen([sys.executable, "-c", code, str(n)]) for n in range(3)]
    assert [w.wait(60) for w in writers] == [0, 0, 0]
    assert len(entries()) == 150 and entries()[0].host == sockets.gethostname()
