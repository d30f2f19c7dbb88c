"""The contract of headless output, and how an owned run ends with its command."""

import io
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from datetime import datetime
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent / "control"))

from small_engine import SmallEngine

from console.cli import run as quarterdeck
from console.control.messages import last_word
from console.control.runs import find_run
from console.headless import end_of, follow_headless
from console.headless.output import Reporter, to_alarm_record, to_done_record, to_launch_record, to_step_record
from console.headless.status import status_line, status_lines, status_record
from console.journal import events as ev
from console.records.run_dir import RunRecord
from console.state.model import AlarmState, RunState
from console.state.reduce import RunView, apply, fold

ENGINE = Path(__file__).parent / "control" / "small_engine.py"
OWNER = """
import sys
from console.control.runs import find_run
from console.headless import run_headless
sys.exit(run_headless(find_run(sys.argv[1]), plain="--plain" in sys.argv, owned="--watch" not in sys.argv))
"""


@pytest.fixture(autouse=True)
def own_state(tmp_path, monkeypatch):
    monkeypatch.setenv("QUARTERDECK_STATE_DIR", str(tmp_path / "state"))


@pytest.fixture
def run_dir(tmp_path):
    path = tmp_path / "run"
    path.mkdir()
    return path


@pytest.fixture
def processes():
    """Started processes; killed at the end."""
    started = []
    yield started
    for process in started:
        process.kill()
        process.communicate()


@pytest.fixture
def engine_process(run_dir, processes):
    """Starts the engine of `run_dir`."""
    with tempfile.TemporaryDirectory(prefix="qd-") as directory:

        def start(*options, steps=1000, interval=0.05):
            command = [sys.executable, ENGINE, run_dir, Path(directory) / "s.sock", "--registered"]
            process = subprocess.Popen(
                [*command, "--steps", str(steps), "--interval", str(interval), *options], stdout=subprocess.PIPE
            )
            processes.append(process)
            assert process.stdout.readline() == b"ready\n"
            return process

        yield start


@pytest.fixture
def command_process(run_dir, processes):
    """Starts the command that owns (or with --watch only follows) the run."""

    def start(*options, **changes):
        streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **changes}
        process = subprocess.Popen([sys.executable, "-c", OWNER, run_dir, *options], text=True, **streams)
        processes.append(process)
        return process

    return start


def recorded(run_dir, *events, finish=("completed", 0, "")):
    engine = SmallEngine(run_dir, run_dir / "s.sock")
    engine.begin()
    engine.step(0)
    for event in events:
        engine.writer.append(event)
    engine.step(1)
    if finish:
        engine.finish(*finish)
    engine.writer.close()
    return find_run(str(run_dir))


def report(run, **options):
    out, err = io.StringIO(), io.StringIO()
    code = follow_headless(run, out=out, err=err, **options)
    return code, out.getvalue(), err.getvalue()


def test_records_have_every_field_of_the_contract():
    step = to_step_record(
        ev.StepFinished(
            step=3, reward_mean=0.5, reward_std=0.1, outcomes={"completed": 7, "infrastructure": 1}, groups_kept=3,
            groups_dropped=1, groups_zero_variance=2, ppo_loss=-1.5, clip_fraction=0.1, kl_sample_train_v1=0.01,
            kl_sample_train_v2=9.0, entropy=1.2, tokens_prompt=10, tokens_sampled=20, tokens_trained=15,
            seconds_rollout=1.0, seconds_train=2.0, seconds_save=0.5, seconds_total=3.5, policy_version=4,
        )
    )  # fmt: skip
    assert step == {
        "v": 1, "type": "step", "step": 3, "reward_mean": 0.5, "reward_std": 0.1,
        "outcomes": {"completed": 7, "infrastructure": 1},
        "groups": {"kept": 3, "dropped": 1, "zero_variance": 2},
        "ppo_loss": -1.5, "clip_fraction": 0.1, "kl_sample_train": 0.01, "entropy": 1.2,
        "tokens": {"prompt": 10, "sampled": 20, "trained": 15},
        "seconds": {"rollout": 1.0, "train": 2.0, "save": 0.5, "total": 3.5}, "policy_version": 4,
    }  # fmt: skip
    launch = to_launch_record(RunState(run_id="r", run_dir="/d", pid=7, socket="/s", versions={"tinker": "0.38.1"}))
    assert launch == {
        "v": 1, "type": "launch", "run_id": "r", "run_dir": "/d", "pid": 7, "socket": "/s",
        "versions": {"tinker": "0.38.1"},
    }  # fmt: skip
    done = to_done_record("stopped", 3, 5, "by the operator")
    assert done == {
        "v": 1, "type": "done", "status": "stopped", "exit_code": 3, "steps": 5, "reason": "by the operator",
    }  # fmt: skip
    alarm = AlarmState(
        key="k", level="critical", text="a\x1b[2Jb", remedy="do", consequence="it\x07 stops", acked_by="ada"
    )
    assert to_alarm_record(alarm, "opened", 1.0) == {
        "v": 1, "type": "alarm", "state": "opened", "key": "k", "level": "critical", "ts": 1.0, "text": "ab",
        "consequence": "it stops", "remedy": "do",
    }  # fmt: skip
    assert to_alarm_record(alarm, "acknowledged", 1.0)["by"] == "ada"


def test_what_is_not_known_is_null():
    step = to_step_record(ev.StepFinished(step=0, ppo_loss=float("nan"), entropy=float("inf")))
    assert step["seconds"] == {"rollout": None, "train": None, "save": None, "total": None}
    assert step["tokens"]["trained"] is None
    for key in ("reward_mean", "reward_std", "ppo_loss", "clip_fraction", "kl_sample_train", "entropy"):
        assert step[key] is None
    assert to_launch_record(RunState(run_id="r"))["pid"] is None is to_launch_record(RunState())["socket"]


def test_a_finished_run(run_dir):
    alarm = ev.AlarmOpened(key="gateway", level="critical", text="gateway unreachable", remedy="look")
    code, out, err = report(recorded(run_dir, alarm, finish=("stopped", 4, "infrastructure\nin g1/t1")))
    records = [json.loads(line) for line in out.splitlines()]
    assert code == 4 and all(r["v"] == 1 for r in records)
    assert [r["type"] for r in records] == ["launch", "step", "step", "alarm", "done"]
    assert records[-1] == {
        "v": 1, "type": "done", "status": "stopped", "exit_code": 4, "steps": 2, "reason": "infrastructure in g1/t1",
    }  # fmt: skip
    assert records[1]["outcomes"] == {"completed": 4}
    assert "step 0 done reward 0.250" in err and "{" not in err


def test_plain_has_one_clean_line_a_change(run_dir):
    evil = ev.Note(text="pwned\x1b]0;title\x07\r\x1b[2J line\u2028two", level="error")
    code, out, err = report(recorded(run_dir, evil), plain=True)
    lines = out.split("\n")
    assert code == 0 and err == "" and lines.pop() == ""
    for line in lines:
        stamp, _, text = line.partition(" ")
        datetime.strptime(stamp, "%Y-%m-%dT%H:%M:%SZ")
        assert text and line.isprintable()
    assert "run first in" in lines[0] and lines[-1].endswith("done: completed, exit 0, 2 steps")


def test_a_view_in_mid_stream_repeats_nothing(run_dir):
    """After a hole in the stream a whole view comes again: what was printed is not printed twice, what is new is."""
    recorded(run_dir, ev.AlarmOpened(key="a", level="warning", text="one"), ev.AlarmClosed(key="a"), finish=None)
    record = RunRecord(run_dir)
    opened = next(e.seq for e in record.journal.events() if isinstance(e, ev.AlarmOpened))
    out = io.StringIO()
    reporter = Reporter(out, io.StringIO(), plain=False)
    for seq in (opened, opened, opened + 3, record.journal.last_seq):
        reporter.show(record.view_at(seq))
    records = [json.loads(line) for line in out.getvalue().splitlines()]
    assert [(r["type"], r.get("state")) for r in records] == [
        ("launch", None),
        ("step", None),
        ("alarm", "opened"),
        ("alarm", "closed"),
        ("step", None),
    ]


def test_an_alarm_is_opened_acknowledged_and_closed_once_each(run_dir):
    """A critical alarm that is over is closed, although the console keeps it until somebody has seen it."""
    a, b = ({"key": key, "level": "critical", "text": f"{key} is wrong"} for key in "ab")
    run = recorded(
        run_dir, ev.AlarmOpened(consequence="the run stops", remedy="look", **a), ev.AlarmAcked(key="a", by="ada"),
        ev.AlarmOpened(**b), ev.AlarmAcked(key="a", by="bob"), ev.AlarmClosed(key="b"),
        ev.AlarmClosed(key="a"), ev.AlarmAcked(key="b", by="bob"),
    )  # fmt: skip
    reporters = []
    for plain in (False, True):
        out = io.StringIO()
        reporter = Reporter(out, io.StringIO(), plain=plain)
        view = RunView()
        for event in RunRecord(run_dir).journal.events():
            apply(view, event)
            reporter.event(view, event)
        reporters.append(out.getvalue().splitlines())
    records = [r for r in map(json.loads, reporters[0]) if r["type"] == "alarm"]
    assert [(r["state"], r["key"], r.get("by")) for r in records] == [
        ("opened", "a", None), ("acknowledged", "a", "ada"), ("opened", "b", None), ("closed", "b", None),
        ("closed", "a", None),
    ]  # fmt: skip
    assert records[0]["consequence"] == "the run stops"
    lines = [text for line in reporters[1] if (text := line.partition(" ")[2]).startswith("alarm")]
    assert lines[:3] == [
        "alarm critical: a is wrong; the run stops (look)", "alarm acknowledged by ada: a is wrong",
        "alarm critical: b is wrong",
    ]  # fmt: skip
    assert lines[3:] == ["alarm over: b is wrong", "alarm over: a is wrong"]
    code, out, _ = report(run)
    assert code == 0 and '"type":"alarm"' not in out, "nothing is open in the end"


def test_status_counts_what_is_open_now():
    state = RunState(run_id="r", paused=True, paused_by="ada")
    state.alarms = {
        "w": AlarmState(key="w", level="warning", text="odd", since=1.0),
        "over": AlarmState(key="over", level="critical", text="was down", cleared=3.0),
        "c": AlarmState(
            key="c", level="critical", text="down", consequence="stops", remedy="look", since=2.0, acked_by="bob"
        ),
    }
    view = RunView(state)
    assert "2 alarms open" in status_line(state) and "dispatch paused" in status_line(state)
    lines = status_lines("live", view)
    assert [line for line in lines if line.startswith("alarm")] == [
        "alarm    critical: down; stops (look), seen by bob", "alarm    warning: odd",
    ]  # fmt: skip
    assert "dispatch paused by ada: no new trial begins" in lines
    record = status_record(view)
    assert [a["key"] for a in record["alarms"]] == ["c", "w"] and record["paused"] is True
    assert record["alarms"][0] == {
        "key": "c", "level": "critical", "text": "down", "consequence": "stops", "remedy": "look", "since": 2.0,
        "acknowledged_by": "bob",
    }  # fmt: skip


def test_an_engine_that_died(run_dir):
    code, out, _ = report(recorded(run_dir, finish=None))
    done = json.loads(out.splitlines()[-1])
    assert code == 7 and (done["status"], done["exit_code"], done["steps"]) == ("failed", 7, 2)
    assert done["reason"] == "the engine died in step 1"


def test_an_end_that_cannot_be_read_is_no_death(run_dir, capsys):
    recorded(run_dir)
    (chunk,) = (run_dir / "journal").glob("*.zst")
    os.truncate(chunk, chunk.stat().st_size - 4)
    said = "its end cannot be read: the journal is damaged"
    code, out, _ = report(find_run(str(run_dir)))
    done = json.loads(out.splitlines()[-1])
    assert code == 10 and (done["status"], done["exit_code"], done["reason"]) == ("unknown", 10, said)
    assert report(find_run(str(run_dir)), plain=True)[1].endswith(f"steps: {said}\n")
    assert quarterdeck(["ctl", str(run_dir), "status"]) == 0
    assert capsys.readouterr().out.splitlines()[0].endswith(f", damaged: {said}")


def test_an_ascii_terminal_gets_what_it_can_show(run_dir):
    recorded(run_dir, ev.Note(text="naïve"))
    raw = io.BytesIO()
    out = io.TextIOWrapper(raw, encoding="ascii")
    follow_headless(find_run(str(run_dir)), plain=True, out=out, err=io.StringIO())
    assert raw.getvalue().isascii() and b"2 steps" in raw.getvalue()


def read_steps(command, count):
    """Read records until so many steps have come."""
    while count:
        record = json.loads(command.stdout.readline())
        count -= record["type"] == "step"


def read_until(stream, text):
    """Read lines until one has the text."""
    for line in stream:
        if text in line:
            return
    raise AssertionError(f"{text!r} never came")


def wait_until_it_handles(process, number):
    """Wait until the process has a handler for the signal."""
    for _ in range(1000):
        status = Path(f"/proc/{process.pid}/status").read_text()
        caught = int(status.partition("SigCgt:")[2].split()[0], 16)
        if caught & (1 << (number - 1)):
            return
        time.sleep(0.01)
    raise AssertionError("no handler")


@pytest.mark.parametrize("options", [[], ["--no-socket"]])
def test_live_over_the_socket_and_from_the_files_alike(engine_process, command_process, run_dir, options):
    engine_process(*options, steps=8, interval=0.25 if options else 0.05)
    command = command_process()
    out, _ = command.communicate(timeout=30)
    records = [json.loads(line) for line in out.splitlines()]
    assert command.returncode == 0
    assert [r["type"] for r in records] == ["launch", *["step"] * 8, "done"]
    assert [r["step"] for r in records[1:-1]] == list(range(8))
    assert records[-1]["status"] == "completed" and records[-1]["steps"] == 8


def test_the_engine_killed_while_followed(engine_process, command_process):
    engine = engine_process()
    command = command_process()
    read_steps(command, 2)
    engine.kill()
    out, _ = command.communicate(timeout=30)
    done = json.loads(out.splitlines()[-1])
    assert command.returncode == 7 and done["status"] == "failed" and "the engine died" in done["reason"]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_ends_an_owned_run_in_order(engine_process, command_process, run_dir, number):
    engine = engine_process()
    command = command_process()
    read_steps(command, 2)
    command.send_signal(number)
    out, err = command.communicate(timeout=30)
    assert command.returncode == 128 + number
    done = json.loads(out.splitlines()[-1])
    assert (done["status"], done["exit_code"]) == ("stopped", 128 + number)
    assert engine.wait(10) == 0
    state = RunRecord(run_dir).view_at_end().state
    assert state.status == "stopped" and [c.command for c in state.commands.values()] == ["stop_now"]
    assert f"{signal.Signals(number).name}: stopping the run in order" in err


def test_a_second_signal_terminates_the_engine(engine_process, command_process, run_dir):
    engine = engine_process()
    command = command_process()
    read_steps(command, 1)
    os.kill(engine.pid, signal.SIGSTOP)  # so that the end takes as long as the test wants
    command.send_signal(signal.SIGINT)
    read_until(command.stderr, "stopping the run in order")
    command.send_signal(signal.SIGTERM)
    read_until(command.stderr, "again: ending without waiting")
    os.kill(engine.pid, signal.SIGCONT)
    command.communicate(timeout=30)
    assert command.returncode == 130
    assert engine.wait(10) == 0
    assert RunRecord(run_dir).view_at_end().state.status == "stopped"


def test_without_a_socket_the_engine_is_terminated(engine_process, command_process, run_dir):
    engine = engine_process("--no-socket")
    command = command_process()
    read_steps(command, 1)
    command.send_signal(signal.SIGTERM)
    command.communicate(timeout=30)
    assert command.returncode == 143 and engine.wait(10) == 0
    assert RunRecord(run_dir).view_at_end().state.status == "stopped"


def test_closed_output_ends_an_owned_run(engine_process, command_process, run_dir):
    engine = engine_process()
    command = command_process()
    read_steps(command, 1)
    command.stdout.close()
    assert command.wait(30) == 129 and engine.wait(10) == 0
    assert "Traceback" not in command.stderr.read()
    assert RunRecord(run_dir).view_at_end().state.status == "stopped"


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_a_full_output_does_not_keep_the_run_alive(engine_process, command_process, run_dir):
    """Nobody reads, the pipe is full, the command hangs in a write: a signal ends the run all the same."""
    read, write = os.pipe()
    os.set_blocking(write, False)
    try:
        while True:
            os.write(write, b"x" * 4096)
    except BlockingIOError:
        os.set_blocking(write, True)
    engine = engine_process()
    command = command_process(stdout=write)
    os.close(write)
    wait_until_it_handles(command, signal.SIGTERM)
    command.send_signal(signal.SIGTERM)
    assert engine.wait(20) == 0
    os.close(read)
    assert command.wait(20) in (129, 143)


def test_a_watcher_leaves_the_run_alone(engine_process, command_process):
    engine = engine_process()
    for end in ("signal", "pipe"):
        command = command_process("--watch")
        read_steps(command, 1)
        if end == "signal":
            command.send_signal(signal.SIGINT)
            assert command.wait(20) == 130
        else:
            command.stdout.close()
            assert command.wait(20) == 129
        assert "Traceback" not in command.stderr.read()
    assert engine.poll() is None


def test_a_status_has_what_was_captured() -> None:
    stats = ev.CaptureStats(
        seq=1, ts=1.0, calls=9, sampled_tokens=90, trained_tokens=70, bridged=6, unbridged={"first": 1, "tools": 2},
        refusals={"busy": 1}, excluded={"aux": 1}, temperature_low=0.7, temperature_high=1.0,
    )  # fmt: skip
    view = fold([stats, ev.SamplingProbed(seq=2, ts=2.0, tempered=True)])
    captured = status_record(view)["capture"]
    assert captured["tokens"] == {"prompt": 0, "sampled": 90, "trained": 70}
    assert (captured["bridged"], captured["unbridged"]) == (6, {"first": 1, "tools": 2})
    assert captured["untrained"] == {"aux": 1}
    assert (captured["refusals"], captured["temperatures"]) == ({"busy": 1}, [0.7, 1.0])
    assert captured["logprobs_tempered"] is True
    assert any("75 % of continuing calls bridged" in line for line in status_lines("live", view))


@pytest.mark.parametrize(
    ("told", "end"),
    [
        (last_word("failed", 7, "the disk: is full"), (7, "failed", "the disk: is full")),
        (last_word("stopped", 4, "g1/t1: no room"), (4, "stopped", "g1/t1: no room")),
        (last_word("finished", 0, ""), (0, "completed", "")),
        ("too many connections", (7, "failed", "too many connections")),
        ("", (7, "failed", "the engine died in step 3")),
    ],
)
def test_an_end_that_the_journal_did_not_take_is_told_by_the_engine(told: str, end: tuple[int, str, str]) -> None:
    view = RunView()
    view.state.step = 3
    assert end_of(view, told) == end
