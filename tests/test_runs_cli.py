"""`runs`, `ctl` and headless following as a shell sees them, on a real engine process."""

import json
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from rich.cells import cell_len

from console.cli import run as quarterdeck
from console.control.audit import read_audit
from console.control.registry import register
from console.control.runs import find_run
from console.headless import follow_headless

ENGINE = Path(__file__).parent / "control" / "small_engine.py"


@pytest.fixture(autouse=True)
def own_state(tmp_path, monkeypatch):
    monkeypatch.setenv("QUARTERDECK_STATE_DIR", str(tmp_path / "state"))


@pytest.fixture
def start(tmp_path):
    """Starts engine processes, registered; ends them."""
    started = []

    def run(*options, steps=1000, interval=0.02):
        socket = Path(tempfile.mkdtemp(prefix="qd-")) / "s.sock"
        run_dir = tmp_path / f"run{len(started)}"
        run_dir.mkdir()
        command = [sys.executable, ENGINE, run_dir, socket, "--steps", str(steps), "--interval", str(interval)]
        process = subprocess.Popen([*command, "--registered", *options], stdout=subprocess.PIPE)
        started.append((process, socket))
        assert process.stdout.readline() == b"ready\n"
        return process, run_dir

    yield run
    for process, socket in started:
        process.kill()
        process.wait()
        process.stdout.close()
        socket.unlink(missing_ok=True)
        socket.parent.rmdir()


def test_runs_of_nobody_teach(capsys):
    assert quarterdeck(["runs"]) == 0
    assert "quarterdeck demo" in capsys.readouterr().out
    assert quarterdeck(["runs", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == []


def test_runs_json_and_table(start, capsys):
    process, run_dir = start()
    assert quarterdeck(["runs", "--json"]) == 0
    (run,) = json.loads(capsys.readouterr().out)
    assert list(run) == [
        "run_id", "run_dir", "state", "step", "steps", "kind", "trials", "trials_done", "started", "pid", "socket",
    ]  # fmt: skip
    assert (run["kind"], run["trials"], run["trials_done"]) == ("training", None, None)
    assert (run["run_id"], run["run_dir"], run["state"]) == ("run-1", str(run_dir), "live")
    assert (run["steps"], run["pid"]) == (1000, process.pid) and run["started"] > 1.6e9
    assert Path(run["socket"]).is_socket()
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert quarterdeck(["runs"]) == 0
    heading, line = capsys.readouterr().out.splitlines()
    assert heading.split()[:3] == ["RUN", "NAME", "STATE"] and line.split()[:3] == ["run-1", "first", "dead"]


def test_ctl_does_a_command_and_audits_it(start, capsys):
    process, run_dir = start()
    assert quarterdeck(["ctl", "retry", "--reason", "network is back", "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert (result["status"], result["command"], result["text"]) == ("done", "retry", "retry done")
    assert quarterdeck(["ctl", "run-1", "cancel-group", "g3", "--yes"]) == 0
    assert capsys.readouterr().out == "done: cancel_group done\n"
    assert quarterdeck(["ctl", str(run_dir), "cancel-trial", "g3/t5", "--dry-run"]) == 0
    assert capsys.readouterr().out == "dry run: cancel_trial would be done\n"
    assert quarterdeck(["ctl", "stop-after-step", "--off"]) == 0
    assert quarterdeck(["ctl", "cancel-group", "g10", "--yes"]) == 1
    assert "refused: there is no group g10" in capsys.readouterr().out
    lines = read_audit(run_dir / "audit.jsonl")
    assert [(x.command, x.args) for x in lines if x.stage == "intent"] == [
        ("retry", {}),
        ("cancel_group", {"group": 2}),
        ("stop_after_step", {"on": False}),
        ("cancel_group", {"group": 9}),
    ]
    assert lines[0].reason == "network is back" and "@" in lines[0].author
    assert quarterdeck(["ctl", "stop-now", "--yes"]) == 0
    assert process.wait(10) == 0
    capsys.readouterr()
    assert quarterdeck(["ctl", "run-1", "retry"]) == 2
    assert "run run-1 is not live (stopped)" in capsys.readouterr().err


MISUSE = [
    ([], "a command is missing"),
    (["frob"], "unknown command 'frob'"),
    (["run-1", "frob"], "unknown command 'frob'"),
    (["run-1"], "unknown command 'run-1'"),
    (["cancel-group"], "needs a target: g3"),
    (["cancel-group", "3"], "is not a group or a trial"),
    (["cancel-group", "g3/t1"], "takes a group, not a trial: g3"),
    (["cancel-trial", "g3"], "needs a trial: g3/t1"),
    (["stop-now", "g3"], "takes no target"),
    (["retry", "g1", "g2"], "one target at a time"),
    (["retry", "--off"], "--off belongs to stop-after-step"),
    (["stop-now"], "the trials under way are lost: add --yes"),
    (["nobody", "retry"], "no run 'nobody'"),
    (["retry", "--frob"], "unrecognized arguments: --frob"),
]


def test_ctl_misuse_is_one_line_and_does_nothing(start, capsys):
    _, run_dir = start()
    for words, says in MISUSE:
        assert quarterdeck(["ctl", *words]) == 2, words
        captured = capsys.readouterr()
        assert captured.out == "" and captured.err.count("\n") == 1 and says in captured.err
    assert read_audit(run_dir / "audit.jsonl") == []


def test_ctl_status(start, capsys):
    process, _ = start("--no-socket", steps=2)
    assert process.wait(20) == 0
    assert quarterdeck(["ctl", "run-1", "status", "--json"]) == 0
    status = json.loads(capsys.readouterr().out)
    assert (status["run_id"], status["steps"]) == ("run-1", 2)
    assert all(value in (None, [], {}) for value in status["gateway"].values())
    assert {"reachable", "latency_ms", "lease_left", "waiting", "oldest"} <= status["gateway"].keys()
    assert status["last_step"]["type"] == "step" and status["last_step"]["entropy"] is None
    assert quarterdeck(["ctl", "run-1", "status"]) == 0
    out = capsys.readouterr().out
    assert "run      first (run-1)" in out and "reward   0." in out and "\x1b" not in out


def test_ctl_and_an_engine_that_hangs(start, capsys):
    process, _ = start()
    os.kill(process.pid, signal.SIGSTOP)
    try:
        assert quarterdeck(["ctl", "retry", "--timeout", "0.3"]) == 2
        assert "gave no answer within 0.3 s" in capsys.readouterr().err
    finally:
        os.kill(process.pid, signal.SIGCONT)


def test_the_only_live_run_is_followed_without_a_name(start, capsys):
    start(steps=3)
    assert follow_headless(find_run()) == 0
    records = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [r["type"] for r in records] == ["launch", "step", "step", "step", "done"]


@pytest.mark.parametrize("known", [True, False])
def test_a_socket_is_followed_without_a_console(start, capsys, monkeypatch, tmp_path, known):
    start(steps=3)  # another run: not the one that is meant
    _, run_dir = start(steps=3)
    run = find_run(str(run_dir))
    if not known:  # as behind a forwarded socket
        monkeypatch.setenv("QUARTERDECK_STATE_DIR", str(tmp_path / "elsewhere"))
    assert quarterdeck(["attach", "--socket", run.socket, "--headless"]) == 0
    records = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [r["type"] for r in records] == ["launch", "step", "step", "step", "done"]
    assert records[0]["run_dir"] == str(run_dir)
    code = quarterdeck(["attach", "--socket", str(tmp_path / "none"), "--plain"])
    assert code == 2 and "no socket there" in capsys.readouterr().err


def test_a_plain_log_is_not_followed(capsys, tmp_path):
    (tmp_path / "metrics.jsonl").write_text('{"step": 0}\n')
    assert quarterdeck(["attach", str(tmp_path), "--plain"]) == 2
    assert "a plain log of the cookbook" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["runs", "ctl"])
def test_help_teaches(name, capsys):
    with pytest.raises(SystemExit) as end:
        quarterdeck([name, "--help"])
    assert end.value.code == 0 and "examples:" in capsys.readouterr().out


@pytest.mark.parametrize(
    "name", ["demo", "train", "fork", "runs", "attach", "ctl", "replay", "export", "keys", "gateway", "reap", "doctor"]
)
def test_help_fits_the_terminal_and_breaks_no_word(name, capsys, monkeypatch):
    def help_at(columns):
        monkeypatch.setenv("COLUMNS", str(columns))
        try:
            quarterdeck([name, "--help"])
        except SystemExit:
            pass
        return capsys.readouterr().out

    narrow, wide = help_at(80), help_at(120)
    long = [line for line in narrow.splitlines() if len(line) > 80 and " " in line.strip()]
    assert narrow and not long, long
    assert sorted(narrow.replace(" \\\n", " ").split()) == sorted(wide.replace(" \\\n", " ").split())


def test_the_overview_fits_a_terminal(capsys):
    quarterdeck([])
    assert max(map(len, capsys.readouterr().out.splitlines())) <= 80


def test_the_table_of_runs_fits_a_terminal(tmp_path, capsys, monkeypatch):
    name = "a name that is " + "very " * 12 + "long 漢字" + "x" * 90
    (tmp_path / "run").mkdir()
    register("20261129-142233-7f3a", tmp_path / "run", name, 0, None, 1_790_000_000.0)
    assert quarterdeck(["runs"]) == 0
    assert name in capsys.readouterr().out
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    for columns in (60, 80, 120):
        monkeypatch.setenv("COLUMNS", str(columns))
        assert quarterdeck(["runs"]) == 0
        lines = capsys.readouterr().out.splitlines()
        assert len(lines) == 2 and max(map(cell_len, lines)) <= columns
        assert "20261129-142233-7f3a" in lines[1] and "dead" in lines[1]


def test_nothing_heavy_is_imported():
    code = (
        "import sys, console.cli, console.commands.ctl, console.headless\n"
        "print([m for m in ('textual', 'tinker', 'harbor', 'torch', 'pydantic', 'httpx') if m in sys.modules])"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "[]\n"
