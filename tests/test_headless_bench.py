"""What a headless benchmark prints, and what `ctl` and `runs` say of one."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
from bench_journal import begin, begun, end
from made_bench import BenchPlan, make_bench

from console.cli import run as quarterdeck
from console.control.registry import register
from console.control.runs import run_at
from console.headless import follow_headless
from console.headless.benchmark import trial_text
from console.headless.output import Reporter
from console.headless.status import status_line, status_lines, status_record
from console.journal import events as ev
from console.records.run_dir import RunRecord
from console.state.reduce import RunView, apply


@pytest.fixture(scope="module")
def over(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("over") / "run"
    make_bench(path, BenchPlan(tasks=24, attempts=2, ended=None, over=True, stood=3))
    return path


@pytest.fixture(autouse=True)
def own_state(tmp_path, monkeypatch):
    monkeypatch.setenv("QUARTERDECK_STATE_DIR", str(tmp_path / "state"))


def told(run: Path, plain: bool = False) -> list[str]:
    """Everything that a reporter prints of a journal that it follows from the beginning."""
    out, view = io.StringIO(), RunView()
    reporter = Reporter(out, io.StringIO(), plain)
    for event in RunRecord(run).journal.events():
        apply(view, event)
        reporter.event(view, event)
    reporter.done("completed", 0, 1, "")
    return out.getvalue().splitlines()


def test_one_record_for_each_try_between_launch_and_done(over: Path) -> None:
    records = [json.loads(line) for line in told(over)]
    assert {r["type"] for r in records} == {"launch", "trial", "done"}
    assert (records[0]["type"], records[0]["kind"], records[-1]["type"]) == ("launch", "benchmark", "done")
    trials = records[1:-1]
    assert len(trials) == 49 and trials[-1]["done"] == trials[-1]["trials"] == 48  # one was tried again
    assert len({(t["task"], t["attempt"]) for t in trials}) == 48 and {t["attempt"] for t in trials} == {1, 2}
    (again,) = [t for t in trials if t["try"] == 2]
    (first,) = [t for t in trials if (t["trial"], t["try"]) == (again["trial"], 1)]
    assert (first["class"], first["cause"], first["reward"]) == ("infrastructure", "sandbox", None)
    assert first["exception"] == "SandboxError" and first["cost_usd"] is None and again["seconds"] > 0
    assert sum(t["stood"] for t in trials) == 3 and all(t["trial_dir"].startswith("/runs/jobs/") for t in trials)


def test_done_has_counts_and_what_passed_by_its_rule(over: Path) -> None:
    done = json.loads(told(over)[-1])
    b = RunRecord(over).view_at_end().state.bench
    assert done["counts"] == b.finished and sum(done["counts"].values()) == done["done"] == done["trials"] == 48
    excluded = done["passed"]["infra-excluded"]
    assert excluded["denominator"] + excluded["left_out"] == 48 and excluded["ci95"] is None
    assert excluded["value"] == excluded["numerator"] / excluded["denominator"]
    assert (done["status"], done["exit_code"], done["job_dir"]) == ("completed", 0, "/runs/jobs/tb21-full")


def test_plain_is_a_line_a_trial_with_progress_and_time_left(over: Path) -> None:
    lines = [line.partition(" ")[2] for line in told(over, plain=True)]
    trials = [line for line in lines if line.startswith("trial ")]
    assert len(trials) == 49 and trials[-1].startswith("trial 48/48 g")
    assert "stood from before" in trials[0] and "passed" in trials[0] and "infra-excluded" in trials[0]
    assert all("; left " in line for line in trials[10:-1])
    assert any("SandboxError" in line and "infrastructure" in line for line in trials)
    assert lines[-1].startswith("done: completed, exit 0, 48 of 48 trials, passed ")
    assert any("24 tasks, 2 attempts each: 48 trials, 8 at once; 3 stand from before" in line for line in lines)
    assert not any("step" in line or "group" in line or "gateway" in line for line in lines)


def test_a_view_in_mid_stream_repeats_no_trial(over: Path) -> None:
    out, record = io.StringIO(), RunRecord(over)
    reporter = Reporter(out, io.StringIO(), plain=False)
    last = record.journal.last_seq
    for seq in (last // 2, last // 2, last, last):
        reporter.show(record.view_at(seq))
    found = [json.loads(line) for line in out.getvalue().splitlines()]
    keys = [(r["trial"], r["try"]) for r in found if r["type"] == "trial"]
    assert len(keys) == len(set(keys)) >= 48
    times = [r["ts"] for r in found if r["type"] == "trial"][:20]
    assert times == sorted(times)


def test_following_a_run_that_is_over_gives_its_exit_code(over: Path) -> None:
    out = io.StringIO()
    assert follow_headless(run_at(over), out=out, err=io.StringIO()) == 0
    records = [json.loads(line) for line in out.getvalue().splitlines()]
    assert [r["type"] for r in records] == ["launch", *["trial"] * 48, "done"]


def test_an_alarm_is_a_record_as_in_training() -> None:
    view, out = begun(), io.StringIO()
    reporter = Reporter(out, io.StringIO(), plain=False)
    event = ev.AlarmOpened(ts=120, key="bench.infrastructure", level="critical", text="70 %", remedy="lower it")
    apply(view, event)
    reporter.event(view, event)
    assert json.loads(out.getvalue())["key"] == "bench.infrastructure"


def test_hostile_names_stay_in_their_line() -> None:
    view, out, err = begun(trials=1), io.StringIO(), io.StringIO()
    view.state.groups[0].task = "task\x1b[2J\nname"
    event = ev.TrialFinished(
        ts=120, step=0, group=0, trial=0, outcome="infrastructure", cause="\x1b]0;x\x07", exception="E\nF",
        evidence="\x1b[31m\n", seconds={"total": float("inf")}, cost_usd=float("nan"),
    )  # fmt: skip
    apply(view, event)
    for plain in (False, True):
        Reporter(out, err, plain).event(view, event)
    lines = [*out.getvalue().splitlines(), *err.getvalue().splitlines()]
    assert len(lines) == 3 and all(line.isprintable() for line in lines)
    record = json.loads(lines[0])
    assert record["seconds"] is None is record["cost_usd"]


def test_status_is_a_benchmarks() -> None:
    view = begun(trials=10)
    for n in range(3):
        begin(view, n, 100)
        end(view, n, 200, took=100.0, **({"outcome": "infrastructure", "reward": None} if n == 2 else {}))
    begin(view, 3, 200)
    apply(view, ev.BenchLimited(ts=210, limit=1, why="one of three failed"))
    line = status_line(view.state)
    assert line.startswith("3 of 10 trials ended, 1 at work of 1, rollout; passed 2/2 (100.0 %) infra-excluded")
    assert "infrastructure 1 of the last 3" in line and "; left " in line and "step" not in line
    text = "\n".join(status_lines("live", view))
    assert "benchmark, live" in text and "at work  1 of 1 at once, by policy: one of three failed" in text
    assert "2/3 (66.7 %, 95 % interval 20.8 to 93.9) error-aware" in text
    for word in ("step", "ppo", "capture", "gateway", "loss"):
        assert word not in text.lower(), word
    record = status_record(view)
    assert record["kind"] == "benchmark" and record["benchmark"]["done"] == 3 and record["benchmark"]["limit"] == 1
    left = record["benchmark"]["seconds_left"]
    assert left["low"] <= left["likely"] <= left["high"]
    json.dumps(record, allow_nan=False)


def test_runs_and_ctl_tell_it(over: Path, capsys) -> None:
    state = RunRecord(over).view_at_end().state
    register(run_id=state.run_id, run_dir=str(over), name=state.name, pid=0, socket=None, started=state.started)
    assert quarterdeck(["runs", "--json"]) == 0
    (run,) = json.loads(capsys.readouterr().out)
    assert (run["kind"], run["trials"], run["trials_done"], run["state"]) == ("benchmark", 48, 48, "finished")
    assert quarterdeck(["runs"]) == 0
    assert "48/48 trials" in capsys.readouterr().out
    assert quarterdeck(["ctl", "status", "--run", str(over)]) == 0
    assert "24 tasks, 2 attempts each" in capsys.readouterr().out
    assert quarterdeck(["ctl", "status", "--json", "--run", str(over)]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["kind"] == "benchmark" and found["benchmark"]["counts"] == state.bench.finished
    assert quarterdeck(["ctl", "groups", "--run", str(over)]) == 0
    groups = capsys.readouterr().out
    assert "graded  reward" in groups and "kept" not in groups


def test_no_trial_took_no_time() -> None:
    view = begun(trials=1)
    end(view, 0, 101.0, took=0.2)
    group = view.state.groups[0]
    assert " in <1 s;" in trial_text(view.state, group, group.trials[0], None)
