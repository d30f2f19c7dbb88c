"""What an operator does to a benchmark run, through its socket, while real Harbor runs trials that wait."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from bench_runs import Bench, BenchRun, until

from console.journal import events as ev

Begin = tuple[Bench, BenchRun]


@pytest.fixture
def waiting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Begin]:
    """A run of four trials, two at once, that wait until they are told to go on."""
    monkeypatch.setenv("QUARTERDECK_STATE_DIR", str(tmp_path / "state"))
    bench = Bench(tmp_path, {f"task-{n}": "wait" for n in range(4)})
    run = BenchRun(bench.options(early_stop=False))
    try:
        until(lambda: len(bench.begun()) == 2)
        yield bench, run
    finally:
        if run.process.poll() is None:
            run.process.terminate()
            run.process.wait(30)


def test_a_pause_a_limit_and_the_end(waiting: Begin) -> None:
    bench, run = waiting
    assert "2 under way go on, 2 wait" in run.order("pause").text
    bench.go()
    until(lambda: len(run.of(ev.TrialFinished)) == 2)
    refused = run.order("set", concurrency=3)
    assert refused.status == "refused" and "n_concurrent_trials, 2" in refused.text
    assert run.order("set", concurrency=1).status == "done"
    assert len(bench.begun()) == 2, "a trial began while the run was paused"
    assert run.order("resume").text == "resumed: 1 trial begun"
    assert run.ended() == 0
    assert [e.limit for e in run.of(ev.BenchLimited)] == [1]
    at_work, most = set(), 0
    for event in run.events():
        if isinstance(event, ev.TrialPhase) and event.phase == "create":
            at_work.add((event.group, event.trial))
        elif isinstance(event, ev.TrialFinished):
            at_work.discard((event.group, event.trial))
        if event.seq > run.of(ev.BenchLimited)[0].seq:
            most = max(most, len(at_work))
    assert most == 1


def test_a_stop_lets_those_at_work_end_and_begins_no_more(waiting: Begin) -> None:
    bench, run = waiting
    assert "2 not begun: bench mop-up runs them" in run.order("stop_after_step").text
    bench.go()
    assert run.ended() == 3
    end = run.of(ev.RunFinished)[0]
    assert (
        end.status == "stopped"
        and f"2 of its trials had not begun: quarterdeck bench mop-up {bench.job_dir()}" in end.reason
    )
    assert [e.outcome for e in run.of(ev.TrialFinished)] == ["completed"] * 2 and len(bench.begun()) == 2
    assert not run.of(ev.StepFinished)
    results = list(bench.job_dir().glob("*/result.json"))
    assert len(results) == 2, "a trial that had not begun has a result"


def test_a_stop_lets_harbor_try_a_trial_at_work_once_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("QUARTERDECK_STATE_DIR", str(tmp_path / "state"))
    bench = Bench(tmp_path, {"a-shaky": "wait-once", "later": "pass"})
    # Between its tries, seconds in which nothing seems to be at work.
    run = BenchRun(bench.options(concurrent=1, job={"retry": {"max_retries": 1, "min_wait_sec": 3.0}}))
    until(lambda: len(bench.begun()) == 1)
    run.order("stop_after_step")
    bench.go()
    assert run.ended() == 3
    assert [(e.try_, e.outcome) for e in run.of(ev.TrialFinished)] == [(0, "infrastructure"), (1, "completed")]
    assert "1 of its trials had not begun" in run.of(ev.RunFinished)[0].reason


def test_a_stop_is_taken_back(waiting: Begin) -> None:
    bench, run = waiting
    run.order("stop_after_step")
    assert run.order("stop_after_step", on=False).text == "goes on"
    bench.go()
    assert run.ended() == 0 and len(run.of(ev.TrialFinished)) == 4


def test_a_stop_at_once_cancels_the_trials(waiting: Begin) -> None:
    _, run = waiting
    assert run.order("stop_now").text == "stopping: 2 trials cancelled"
    assert run.ended() == 3
    assert [(e.outcome, e.cause) for e in run.of(ev.TrialFinished)] == [("cancelled", "operator")] * 2
    assert "stopped now by" in run.of(ev.RunFinished)[0].reason


def test_what_harbor_cannot_do_is_refused_with_what_can_be_done(waiting: Begin) -> None:
    bench, run = waiting
    for name, args, says in (
        ("retry", {}, f"quarterdeck bench mop-up {bench.job_dir()}"),
        ("cancel_trial", {"group": 0, "trial": 0}, "`stop-now` ends all"),
        ("checkpoint", {}, "no weights"),
        ("quarantine", {"task": "task-0"}, "exclude_task_names"),
        ("set", {"parallel": 2}, "`set concurrency=` is"),
        ("resume", {}, "not paused"),
    ):
        answer = run.order(name, **args)
        assert says in answer.text, answer
    assert run.order("note", text="seen").status == "done"
    assert [e.text for e in run.of(ev.Note)] == ["seen"]
