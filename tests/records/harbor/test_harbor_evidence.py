"""The ends of a trial's text files, which of them there are, and what its trajectory says."""

from __future__ import annotations

import json
import os
import tracemalloc
from pathlib import Path

import pytest
from harbor_jobs import HarborJob, put

from console.records.harbor import activity as trajectories
from console.records.harbor.activity import Activity, activity
from console.records.harbor.evidence import Tail, agent_texts, tail


@pytest.fixture
def trial(tmp_path: Path) -> Path:
    return HarborJob(tmp_path / "job").trial("a", 1.0)


def test_the_end_of_a_log_has_the_numbers_of_its_lines(trial):
    lines = [f"line {number}\r" if number % 7 else f"line\u2028\x0b {number}" for number in range(1, 200_001)]
    put(trial / "agent" / "log.txt", "\n".join(lines).encode())
    for limit in (100, 64 << 10, 1 << 20, 1 << 30):
        found = tail(trial, "agent/log.txt", limit)
        text = found.text.split("\n")
        assert found.first_line and text == lines[found.first_line - 1 :]
        assert found.size == (trial / "agent" / "log.txt").stat().st_size
    assert tail(trial, "agent/log.txt", 1 << 30).first_line == 1


def test_a_line_longer_than_what_is_read_is_cut(trial):
    put(trial / "agent" / "log.txt", "first\n" + "x" * 1000)
    assert tail(trial, "agent/log.txt", 10) == Tail(text="x" * 10, first_line=2, size=1006)


def test_a_log_of_two_gigabytes_costs_its_tail(trial):
    with (trial / "agent").joinpath("log.txt").open("wb") if (trial / "agent").mkdir() is None else trial.open() as log:
        log.truncate(2 << 30)
        log.seek(0, os.SEEK_END)
        log.write(b"\nsecond to last\nthe end \xff\n")
    tracemalloc.start()
    found = tail(trial, "agent/log.txt")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert found.text == "second to last\nthe end \ufffd\n" and found.first_line is None
    assert found.size == (2 << 30) + 26 and peak < 1 << 20


def test_what_is_no_regular_file_below_the_trial_is_empty(trial, tmp_path):
    put(tmp_path / "secret" / "x.txt", "secret")
    (trial / "agent").mkdir()
    (trial / "agent" / "link.txt").symlink_to(tmp_path / "secret" / "x.txt")
    (trial / "agent" / "into").symlink_to(tmp_path / "secret")
    os.mkfifo(trial / "agent" / "pipe.txt")
    names = (
        "link.txt",
        "into/x.txt",
        "pipe.txt",
        "../../../secret/x.txt",
        "",
        ".",
        "missing.txt",
        "a/b/c.txt",
        "x\0.txt",
    )
    for name in names:
        assert tail(trial, f"agent/{name}") == Tail()
    assert tail(trial, str(tmp_path / "secret" / "x.txt")) == Tail()
    link = tmp_path / "link"
    link.symlink_to(tmp_path / "secret")
    assert tail(link, "x.txt") == Tail() and agent_texts(link) == ()
    assert agent_texts(trial) == ("trial.log",)


def test_text_files_are_listed_the_agents_first(trial):
    for name in ("agent/b.txt", "agent/a.log", "agent/setup/stdout.txt", "agent/x/y/deep.txt", "agent/data.json"):
        put(trial / name, "x")
    for name in ("verifier/test-stdout.txt", "verifier/other.txt", "exception.txt", "artifacts/a.txt"):
        put(trial / name, "x")
    put(trial / "agent/empty.txt", "")
    put(trial / "steps/two/agent/c.txt", "x")
    put(trial / "steps/two/verifier/test-stderr.txt", "x")
    put(trial / "agent" / os.fsdecode(b"od\xff.txt"), "x")
    whole = (
        "agent/a.log",
        "agent/b.txt",
        "agent/setup/stdout.txt",
        "steps/two/agent/c.txt",
        "trial.log",
        "exception.txt",
        "verifier/test-stdout.txt",
        "steps/two/verifier/test-stderr.txt",
    )
    assert agent_texts(trial) == whole
    for number in range(300):
        put(trial / "agent" / f"n{number:03}" / "stdout.txt", "x")
    many = agent_texts(trial, most=10)
    assert len(many) == 10 and many[-4:] == whole[-4:] and set(many[:-4]) <= set(agent_texts(trial, most=10_000))
    assert len(agent_texts(trial)) == 64


def step(source="agent", **more):
    return {"step_id": 1, "source": source, "message": "m" * 100, "timestamp": "2026-05-28T20:26:40Z", **more}


def metrics(**extra):
    return {"prompt_tokens": 5, "completion_token_ids": [1, 2], "extra": extra}


def test_a_trajectory_tells_steps_calls_reasoning_and_its_last_time(trial):
    calls = [{"tool_call_id": "1", "function_name": "bash", "arguments": {"command": "ls"}}] * 2
    steps = [
        step("user"),
        step(tool_calls=calls, metrics=metrics(reasoning_tokens=100)),
        step(is_copied_context=True, tool_calls=calls),
        step(tool_calls=None, metrics=metrics(completion_tokens_details={"reasoning_tokens": 11}), timestamp=None),
        step("system", timestamp="2026-05-28T20:36:40+00:00"),
    ]
    put(trial / "agent" / "trajectory.json", {"schema_version": "ATIF-v1.8", "steps": steps})
    assert activity(trial) == Activity(steps=2, tool_calls=2, reasoning_tokens=111, last_step=1780000600.0)
    final = {"steps": [step()], "final_metrics": {"extra": {"reasoning_output_tokens": 9}}}
    put(trial / "steps" / "one" / "agent" / "trajectory.json", final)
    assert activity(trial) == Activity(steps=3, tool_calls=2, reasoning_tokens=120, last_step=1780000600.0)
    put(trial / "agent" / "trajectory.json", {"steps": [step(timestamp=None)]})
    (trial / "steps" / "one" / "agent" / "trajectory.json").unlink()
    assert activity(trial) == Activity(steps=1, tool_calls=0)


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("", "agent/trajectory.json is empty"),
        ("{", "agent/trajectory.json is no JSON"),
        ('{"steps": 3}', "agent/trajectory.json is no trajectory"),
        ('{"steps": [{"tool_calls": [1]}]}', "agent/trajectory.json is no trajectory"),
        ('{"x": ' + "[" * 100_000 + "]" * 100_000 + "}", "agent/trajectory.json is nested too deeply"),
    ],
)
def test_a_broken_trajectory_tells_nothing(trial, content, says):
    put(trial / "agent" / "trajectory.json", content)
    found = activity(trial)
    assert found.problem.startswith(says) and "\n" not in found.problem
    assert (found.steps, found.tool_calls, found.reasoning_tokens, found.last_step) == (None,) * 4


def test_a_large_trajectory_is_read_without_its_texts_or_not_at_all(trial, monkeypatch):
    text = json.dumps({"steps": [step(observation={"results": ["o" * 10_000]})] * 1000})
    put(trial / "agent" / "trajectory.json", text)
    tracemalloc.start()
    assert activity(trial).steps == 1000
    assert tracemalloc.get_traced_memory()[1] < len(text) * 1.2
    tracemalloc.stop()
    monkeypatch.setattr(trajectories, "LIMIT", len(text) - 1)
    assert activity(trial).steps is None and "more than the" in activity(trial).problem
    assert activity(trial.parent / "missing") == Activity()
