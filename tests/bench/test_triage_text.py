"""What `bench triage` says to a person of trials that failed alike or not, that are at work, or that count although
they failed."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from harbor_jobs import HarborJob

from console.bench.figures.modes import MODES, told_by_class
from console.bench.session import Session
from console.commands.bench_triage_text import triage_text
from console.outcomes.classes import OutcomeClass
from console.records.harbor import jobs as job_records


def said(job: Path) -> str:
    """The whole text, its lines joined."""
    session = Session([job], cache=False)
    return " ".join(" ".join(triage_text(session, session.judged(), None, each=False)).split())


def crashed(path: Path, *messages: str, reward: float | None = 0.0) -> Path:
    made = HarborJob(path)
    for at, message in enumerate(messages):
        made.trial(f"org/task-{at}", reward, error=("RuntimeError", message))
    return made.write()


def test_crashes_of_one_cause_that_differ_are_shown_apart(tmp_path: Path) -> None:
    lost = [f"the parser fell over at {at}: KeyError 'tool_calls'" for at in range(4)]
    text = said(crashed(tmp_path / "a", *lost, "command exited 137: Killed", "command exited 1: gone"))
    assert "agent_failure/crash: 6 trials of 6 tasks" in text
    assert text.count("> RuntimeError: the parser fell over") == 1
    assert "> in 1 trial: RuntimeError: command exited 137: Killed" in text
    assert "> in 1 trial: RuntimeError: command exited 1: gone" in text
    assert "more kind" not in text and "memory ran out" in text


def test_of_many_kinds_three_are_shown_the_most_frequent_first(tmp_path: Path) -> None:
    words = ["alpha", "beta", "beta", "gamma", "delta", "delta", "delta", "epsilon"]
    text = said(crashed(tmp_path / "a", *words))
    assert len(re.findall(r"> (?:in \d trials?: )?RuntimeError: ", text)) == 3
    assert text.index("in 3 trials: RuntimeError: delta") < text.index("in 2 trials: RuntimeError: beta")
    assert "and 2 more kinds of failure" in text


def test_an_agents_failure_is_said_with_the_reward_that_was_written_and_what_becomes_of_it(tmp_path: Path) -> None:
    text = said(crashed(tmp_path / "a", "gone", "gone"))
    assert "agent_failure 2 0 2 the agent's own program failed" in text
    assert "the verifier wrote a reward for 2 of them, 0 above 0: counted with that reward" in text
    assert "not judged" not in text and "never scored" not in text
    assert "crash: 1 trial of 1 task" in (none := said(crashed(tmp_path / "b", "gone", reward=None)))
    assert "no reward: counted with that reward, as 0 without one, by infra-excluded;" in none


def test_what_is_said_of_the_modes_names_each_that_goes_by_class() -> None:
    text = told_by_class(OutcomeClass.AGENT_FAILURE)
    assert "as 0 without one, by infra-excluded;" in text
    assert "counted as 0 by infra-excluded-strict, error-aware;" in text
    assert text.endswith("left out by clean-only, training")
    assert all((name in text) is (mode.by_exception is None) for name, mode in MODES.items())


@pytest.mark.parametrize(
    ("running", "words"),
    [
        (True, "unreadable 1 the trial is at work or waits for its turn, and has no result yet"),
        (False, "unreadable 1 the trial was cut off before it had a result"),
    ],
)
def test_a_trial_without_a_result_is_called_what_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, running: bool, words: str
) -> None:
    monkeypatch.setattr(job_records, "is_running", lambda path: running)
    made = HarborJob(tmp_path / "a")
    made.trial("org/a", result=False)
    text = said(made.write(finished=False))
    assert words in text and "cannot be read" not in text


def test_several_causes_are_said_in_words_for_all_of_them(tmp_path: Path) -> None:
    made = HarborJob(tmp_path / "a")
    made.trial("org/a", result=False)
    (made.trial("org/b", 1.0) / "result.json").write_text("{")
    assert "unreadable 2 there is no result to read: the trial is at work, was cut off, or" in said(
        made.write(finished=False)
    )
