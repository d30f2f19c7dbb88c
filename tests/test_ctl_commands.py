"""`ctl` on a real engine: every command of the table, and everything there is to look at."""

from __future__ import annotations

import asyncio
import io
import json
import os
import sys
import tempfile
import threading
import time
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent / "control"))

from capture_files import CallsFile
from small_engine import SmallEngine

from console.cli import run as quarterdeck
from console.commands import ctl
from console.control.audit import read_audit
from console.control.client import ControlClient
from console.control.commands import COMMANDS
from console.control.registry import register
from console.journal import events as ev


class EngineThread:
    """A small engine on a loop of its own; `do` runs something on it."""

    def __init__(self, run_dir: Path, socket: Path) -> None:
        self.run_dir, self._socket = run_dir, socket
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever)
        self._thread.start()
        self.engine: SmallEngine = self.do(self._start)

    async def _start(self) -> SmallEngine:
        engine = SmallEngine(self.run_dir, self._socket)
        await engine.server.start()
        return engine

    def do(self, work, *args):
        async def call():
            result = work(*args)
            return await result if asyncio.iscoroutine(result) else result

        return asyncio.run_coroutine_threadsafe(call(), self.loop).result(20)

    def emit(self, event: ev.Event) -> None:
        self.do(self.engine.writer.append, event)
        self.do(self.engine.writer.sync)

    @property
    def commands(self):
        return [(c.command, c.args) for c in self.engine.handler.done]

    def close(self) -> None:
        self.do(self.engine.close)
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()
        self.loop.close()


@pytest.fixture
def live(tmp_path, monkeypatch):
    monkeypatch.setenv("QUARTERDECK_STATE_DIR", str(tmp_path / "state"))
    run_dir = tmp_path / "run"
    run_dir.mkdir()
    with tempfile.TemporaryDirectory(prefix="qd-") as sockets:
        engine = EngineThread(run_dir, Path(sockets) / "s.sock")
        engine.do(engine.engine.begin, 3, os.getpid())
        register("run-1", run_dir, "first", os.getpid(), engine._socket, time.time())
        yield engine
        engine.close()


@pytest.fixture
def do(capsys):
    """Runs `ctl`; its exit code and what it wrote."""

    def run(*words):
        code = quarterdeck(["ctl", *words])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return run


FORMS = [
    (["cancel-trial", "g3/t5", "--yes"], "cancel_trial", {"group": 2, "trial": 4}),
    (["cancel-group", "g3", "--yes"], "cancel_group", {"group": 2}),
    (["retry"], "retry", {}),
    (["retry", "g1/t2"], "retry", {"group": 0, "trial": 1}),
    (["retry", "g1/t2", "--step", "4"], "retry", {"group": 0, "trial": 1, "step": 4}),
    (["cancel-group", "g3", "--step", "0", "--yes"], "cancel_group", {"group": 2, "step": 0}),
    (["cancel-trial", "g3/t5", "--step", "4", "--yes"], "cancel_trial", {"group": 2, "trial": 4, "step": 4}),
    (["pause"], "pause", {}),
    (["resume"], "resume", {}),
    (["stop-after-step"], "stop_after_step", {}),
    (["stop_after_step", "--off"], "stop_after_step", {"on": False}),
    (["stop-now", "--yes"], "stop_now", {}),
    (["checkpoint"], "checkpoint", {}),
    (
        ["set", "parallel=2", "hold-timeout=900.5", "token_budget=none"],
        "set",
        {"parallel": 2, "hold_timeout": 900.5, "token_budget": None},
    ),
    (["set", "--max-tries", "4"], "set", {"max_tries": 4}),
    (["quarantine", "a=b/task"], "quarantine", {"task": "a=b/task"}),
    (["quarantine", "t", "--off"], "quarantine", {"task": "t", "on": False}),
    (["ack"], "ack", {}),
    (["ack", "disk.low"], "ack", {"alarm": "disk.low"}),
    (["shelve", "disk.low", "--minutes", "30"], "shelve", {"alarm": "disk.low", "minutes": 30}),
    (["shelve", "disk.low", "minutes=none"], "shelve", {"alarm": "disk.low", "minutes": None}),
    (["note", "two words", "more"], "note", {"text": "two words more"}),
    (["note", "pause"], "note", {"text": "pause"}),
    (["first", "note", "retry"], "note", {"text": "retry"}),
    (["--run", "run-1", "note", "x=1"], "note", {"text": "x=1"}),
]


def test_every_command_has_a_form_here():
    assert {name for _, name, _ in FORMS} == set(COMMANDS)


def test_every_command_goes_to_the_engine(live, do):
    for words, name, args in FORMS:
        assert do(*words)[0] == 0, words
        assert live.commands[-1] == (name, args), words
    done = len(live.commands)
    for words, name, _ in FORMS:
        code, out, _ = do(*[word for word in words if word != "--yes"], "--dry-run", "--json")
        assert (code, json.loads(out)["status"], json.loads(out)["command"]) == (0, "dry_run", name)
    assert len(live.commands) == done
    lines = read_audit(live.run_dir / "audit.jsonl")
    assert len([line for line in lines if line.stage == "result" and line.status == "done"]) == done


MISUSE = [
    (["paus"], "did you mean pause?"),
    (["set", "paralel=3"], "set does not know 'paralel': did you mean parallel?"),
    (["set", "parallel=x"], "parallel=x is not a number"),
    (["set", "parallel=nan"], "parallel=nan is not a number"),
    (["set", "parallel=none"], "parallel=none is not a number"),
    (["set", "parallel=0"], "must be a number above 0"),
    (["set", "token_budget=-1"], "must be a number from 0, or none"),
    (["set", "parallel=2", "--parallel", "3"], "given twice"),
    (["set"], "needs one of parallel"),
    (["set", "3"], "write name=value"),
    (["shelve"], "needs alarm"),
    (["quarantine"], "needs task"),
    (["quarantine", "a", "b"], "one task at a time"),
    (["note"], "needs text"),
    (["note", "\x1b"], "1 to 500 characters"),
    (["pause", "--minutes", "3"], "--minutes belongs to shelve, not to pause"),
    (["pause", "--step", "3"], "--step belongs to cancel-trial and cancel-group and retry and trial, not to pause"),
    (["retry", "--after", "3"], "--after belongs to events, not to retry"),
    (["ack", "--kind", "log"], "--kind belongs to trial, not to ack"),
    (["status", "extra"], "status takes nothing more"),
    (["trial"], "needs one trial"),
    (["trial", "g1"], "needs a trial: g1/t1"),
    (["trial", "g1/t1", "--kind", "frob"], "invalid choice"),
    (["trial", "g1/t1", "--call", "1"], "--call belongs to --kind tokens"),
    (["trial", "g1/t1", "--try", "0"], "--try counts from 1"),
    (["trial", "g1/t1", "--limit", "0"], "--limit 0: give 1 to"),
    (["events", "--after", "-3"], "give a number from 0"),
    (["events", "--limit", "99999999"], "give 1 to 10000"),
    (["retry", "--timeout", "0"], "seconds above 0"),
    (["cancel-group", "g1"], "scored ones too: add --yes"),
]


def test_misuse_is_one_line_and_does_nothing(live, do):
    live.do(live.engine.step, 0)
    for words, says in MISUSE:
        code, out, err = do(*words)
        assert (code, out, err.count("\n")) == (2, "", 1), words
        assert says in err, (words, err)
    assert live.commands == []


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_a_note_is_one_line_of_at_most_500_characters(live, do):
    code, out, err = do("note", "x" * 501)
    assert (code, out) == (2, "") and "note: 501 characters, and at most 500 are kept" in err and err.count("\n") == 1
    assert "--reason: 600 characters" in do("pause", "--reason", "y" * 600)[2]
    assert live.commands == []
    assert do("note", "one\ntwo", "x" * 400)[0] == 0
    assert live.commands == [("note", {"text": f"one two {'x' * 400}"})]


@pytest.mark.parametrize(
    ("words", "answer", "done"),
    [
        (["stop-now"], "first\n", True),
        (["stop-now"], "y\n", False),
        (["first", "stop-now"], "y\n", True),
        (["cancel-group", "g1"], "y\n", True),
        (["cancel-group", "g1"], "\n", False),
        (["cancel-group", "g1"], "", False),
    ],
)
def test_a_person_is_told_the_cost_and_asked(live, monkeypatch, words, answer, done):
    monkeypatch.setattr(sys, "stdin", Terminal(answer))
    monkeypatch.setattr(sys, "stderr", Terminal())
    assert quarterdeck(["ctl", *words]) == (0 if done else 2)
    assert "would be done" in sys.stderr.getvalue() and len(live.commands) == done


def test_what_the_engine_refuses_is_not_asked_about(live, monkeypatch, capsys):
    monkeypatch.setattr(sys, "stdin", Terminal("y\n"))
    monkeypatch.setattr(sys, "stderr", Terminal())
    assert quarterdeck(["ctl", "cancel-group", "g10"]) == ctl.EXIT_REFUSED
    assert "there is no group g10" in capsys.readouterr().out and sys.stderr.getvalue() == ""


def test_status_and_alarms(live, do):
    state = live.engine.view.state
    live.emit(ev.DispatchPaused(paused=True, by="ada@host"))
    live.emit(ev.AlarmOpened(key="disk.low", level="critical", text="disk \x1b[31mfull", consequence="the run ends"))
    live.emit(ev.AlarmOpened(key="slow", level="warning", text="slow", remedy="wait"))
    live.emit(ev.AlarmOpened(key="shelf", level="warning", text="shelved one"))
    live.emit(ev.AlarmAcked(key="slow", by="bob@host"))
    live.emit(ev.AlarmShelved(key="shelf", until=time.time() + 3000, by="bob@host"))
    state.tunables.update(parallel=4.0, token_budget=None)
    live.emit(ev.TaskQuarantined(task="bad-task", by="ada@host"))
    code, out, _ = do("status")
    assert code == 0 and "paused   no new trial begins, by ada@host" in out and "set      parallel 4, " in out
    assert "skipped  bad-task" in out and "watch    nobody has it" in out and "\x1b" not in out
    assert "alarms   1 open, 1 acknowledged, 1 shelved" in out
    assert out.count("no new trial begins") == 1
    record = json.loads(do("status", "--json")[1])
    assert (record["paused"], record["paused_by"], record["watch"]) == (True, "ada@host", None)
    assert record["quarantined"] == ["bad-task"] and record["tunables"]["token_budget"] is None
    assert record["run_id"] == "run-1" and record["steps_done"] == 0
    lines = do("alarms")[1].splitlines()
    assert lines[0] == "critical  open  disk.low  disk full; the run ends"
    assert "acked by bob@host" in lines[1] + lines[2] and "shelved until 20" in lines[1] + lines[2]
    alarms = json.loads(do("alarms", "--json")[1])["alarms"]
    assert {a["key"]: a["state"] for a in alarms} == {"disk.low": "open", "slow": "acknowledged", "shelf": "shelved"}


def test_groups(live, do):
    assert do("groups") == (0, "no groups yet\n", "")
    live.do(live.engine.step, 0)
    live.emit(ev.StepStarted(step=1, groups=2, policy_version=1))
    live.emit(ev.GroupStarted(step=1, group=0, task="t\x1b[0mask", size=2))
    live.emit(
        ev.TrialFinished(
            step=1, group=0, trial=1, outcome="infrastructure", exception="Sandbox\x07Error", retryable=True
        )
    )
    out = do("groups")[1]
    assert "g1    task  runs" in out and "g1/t2    infrastructure  SandboxError" in out and "\x1b" not in out
    (group,) = json.loads(do("groups", "--json")[1])["groups"]
    assert (group["group"], group["task"], group["kept"]) == ("g1", "task", None)
    assert [(t["trial"], t["outcome"], t["scored"]) for t in group["trials"]] == [
        ("g1/t1", None, None),
        ("g1/t2", "infrastructure", False),
    ]


def test_viewers(live, do):
    assert do("viewers") == (0, "nobody attends the run\n", "")

    async def attend():
        client = await ControlClient.connect(live._socket)
        client.attend("ada@host")
        return client

    client = live.do(attend)
    code, out, _ = do("viewers")
    assert code == 0 and out.startswith("watch  ada@host  since 20")
    (viewer,) = json.loads(do("viewers", "--json")[1])["viewers"]
    assert (viewer["author"], viewer["acts"]) == ("ada@host", True)
    assert do("retry")[0] == 0  # a script needs no watch
    live.do(client.close)


def test_events_from_a_cursor_live_and_recorded(live, do):
    for number in range(4):
        live.do(live.engine.step, number)
    page = json.loads(do("events", "--after", "10", "--limit", "30", "--json")[1])
    assert [e["seq"] for e in page["events"]] == list(range(11, 41)) and (page["cursor"], page["more"]) == (40, True)
    last = json.loads(do("events", "--after", "40", "--json")[1])
    assert (len(last["events"]), last["more"], last["cursor"]) == (37, False, 77)
    assert json.loads(do("events", "--after", "77", "--json")[1])["events"] == []
    assert [json.loads(do("events", "--json")[1])["events"][i]["seq"] for i in (0, -1)] == [28, 77]
    live.emit(ev.Note(text="\x1b]0;evil\x07hello\u202e"))
    out = do("events", "--limit", "2")[1]
    assert len(out.splitlines()) == 2 and "note  text=hello" in out and "\x1b" not in out
    assert "more: go on with --after 2" in do("events", "--after", "0", "--limit", "2")[1]
    live.do(live.engine.finish)
    live.do(live.engine.server.close)
    recorded = json.loads(do("run-1", "events", "--after", "10", "--limit", "30", "--json")[1])
    assert recorded == page


def test_a_trial_live_and_recorded(live, do):
    live.do(live.engine.step, 0)
    file = CallsFile(live.run_dir, "s0.g1.t0.y0")
    for number in range(300):
        fields = {"tokens": [5], "logprobs": [-0.25], "status": "length", "seconds": 1.0, "ts": 0.0, "end": "\x1b"}
        file.call([("user", f"\x1b[31mq{number}")], f"a\n{number}", prompt=[1], parent="", prompt_tokens=1, **fields)
    code, out, _ = do("trial", "g2/t1")
    assert code == 0 and "\x1b" not in out and out.count("\n  q") == 300
    assert "call 300 · assistant · 1 tokens in, 1 out · 1.0 s · ended by length\n  a\n  299\n" in out
    page = json.loads(do("trial", "g2/t1", "--json", "--limit", "5")[1])
    assert (len(page["turns"]), page["more"], page["turns"][0]["text"]) == (5, True, "\x1b[31mq0")
    assert (page["trial"], page["step"], page["try"], page["calls"]) == ("g2/t1", 0, 1, 300)
    tokens = json.loads(do("trial", "g2/t1", "--kind", "tokens", "--call", "7", "--json")[1])
    assert (tokens["call"], tokens["tokens"]) == (7, [{"id": 5, "text": "\x1b", "logprob": -0.25}])
    assert '-0.2500        5  ""' in do("trial", "g2/t1", "--kind", "tokens")[1]
    assert "note: " in do("trial", "g1/t1", "--kind", "log")[1]
    for words, says in [
        (["g9/t1"], "g9 does not exist in step 0: there are g1 to g2"),
        (["g2/t3"], "g2/t3 does not exist in step 0: there are t1 to t2"),
        (["g2/t1", "--try", "2"], "g2/t1 has no try 2 in step 0: there was one try"),
        (["g2/t1", "--step", "2"], "step 2 does not exist in run run-1: there are 0 to 0"),
    ]:
        assert do("trial", *words) == (2, "", f"quarterdeck: {says}\n")
    live.emit(ev.StepStarted(step=1, groups=3, policy_version=1))
    assert "no group has begun" in do("trial", "g1/t1")[2]
    live.emit(ev.GroupStarted(step=1, group=2, task="t", size=1))
    assert do("trial", "g3/t1")[:2] == (0, "note: no model call has been answered yet\n")
    assert "there are t1 to t2" in do("trial", "g2/t3", "--step", "0")[2]
    assert "call 300" in do("trial", "g2/t1", "--step", "0")[1]
    live.do(live.engine.finish)
    live.do(live.engine.server.close)
    assert do("first", "trial", "g2/t1", "--step", "0")[1] == out


def test_the_help_has_every_command_and_argument(capsys):
    with pytest.raises(SystemExit):
        quarterdeck(["ctl", "--help"])
    out = capsys.readouterr().out
    for name, spec in COMMANDS.items():
        assert f"  {name.replace('_', '-')}" in out and spec.help in " ".join(out.split())
        assert all(arg.name in out.lower() or arg.kind == "flag" for arg in spec.args)
