"""What an engine that was killed had captured and not told of is counted by the one that goes on, once."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from capture_files import CallsFile
from recorded_runs import RUNNING, RecordedRun

from console.journal import events as ev
from console.journal.layout import PLAIN, chunk_name, list_chunks
from console.records.untold import Untold

AT = {"step": 0, "group": 0}


@pytest.fixture
def run(tmp_path: Path) -> Iterator[RecordedRun]:
    """A scored trial, and one that was running when the engine was killed: one call of 3 + 2 tokens each."""
    recorded = RecordedRun(tmp_path / "run")
    recorded.engine()
    recorded.begin(0)
    recorded.group(0, 0, {0: 1.0, 1: RUNNING}, ended=False)
    yield recorded
    recorded.close()


def unknown(run: RecordedRun, ts: float, key: str = "s0.g0.t2.y0") -> CallsFile:
    """The file of a try that the journal never heard of, begun at a time."""
    file = CallsFile(run.run_dir, key, ts=ts)
    file.call(tokens=[1, 2, 3], logprobs=[-1.0, -1.0, -1.0])
    return file


def test_calls_of_tries_that_had_not_ended_count_as_far_as_they_were_not_told_of(run):
    assert run.plan().untold == Untold(calls=1, prompt_tokens=3, sampled_tokens=2)
    run.emit(ev.TrialTurn(trial=1, turn=1, status="backend", **AT))
    assert run.plan().untold.calls == 1, "one that failed is none"
    run.emit(ev.TrialTurn(trial=1, turn=1, prompt_tokens=3, sampled_tokens=2, status="stop", **AT))
    assert run.plan().untold == Untold()


def test_they_are_counted_once_whatever_becomes_of_later_engines(run):
    run.engine(0)
    assert run.plan().untold.calls == 1, "an engine that ended before it resumed has counted nothing"
    run.emit(ev.RunResumed(step=0))
    assert run.plan().untold == Untold()
    run.engine(0)
    assert run.plan().untold == Untold()
    run.begin(0)
    run.group(0, 0, {0: 1.0, 1: RUNNING}, reused=frozenset({0}), tries={1: 1}, ended=False)
    assert run.plan().untold.calls == 1


def test_tries_of_which_a_power_failure_took_all_count_too(run):
    run.emit(ev.TrialTurn(trial=1, turn=1, status="stop", **AT))
    file = unknown(run, ts=time.time())
    assert run.plan().untold == Untold(), "it may just have begun"
    run.engine(0)
    assert run.plan().untold == Untold(calls=1, prompt_tokens=3, sampled_tokens=3)
    file.call()
    run.engine(0)
    assert run.plan().untold.calls == 2
    run.emit(ev.RunResumed(step=0))
    run.engine(0)
    assert run.plan().untold == Untold(), "it is older than what the journal ends with"


def test_what_a_damaged_journal_lacks_is_in_a_later_total(run):
    (chunk,) = (run.run_dir / "journal" / (chunk_name(first) + PLAIN) for first in list_chunks(run.run_dir / "journal"))
    run.emit(*(ev.Note(text="x") for _ in range(3)))
    lines = chunk.read_bytes().splitlines(keepends=True)
    chunk.write_bytes(b"".join([*lines[:-2], b"#" * (len(lines[-2]) - 1) + b"\n", lines[-1]]))
    assert run.plan().untold == Untold()


def test_a_file_that_cannot_be_read_costs_nothing_else(run):
    run.emit(ev.TrialPhase(trial=2, phase="agent", **AT))
    path = CallsFile(run.run_dir, "s0.g0.t2.y0").path
    path.write_bytes(b"what is this?" * 9)
    assert run.plan().untold.calls == 1
