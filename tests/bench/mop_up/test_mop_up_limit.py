"""Harbor never runs more than was chosen, wherever the dataset is."""

from __future__ import annotations

from pathlib import Path

from bench_runs import Bench, BenchRun

from console.journal import events as ev
from console.journal.events_bench import BenchPlanned


def test_more_trials_than_chosen_end_the_run_before_one_begins(tmp_path: Path) -> None:
    bench = Bench(tmp_path, {"one": "pass", "two": "pass"})
    run = BenchRun(bench.options(most_trials=1))
    assert run.ended() == 2
    assert not bench.begun()
    assert [event.trials for event in run.of(BenchPlanned)] == [2]
    (finished,) = run.of(ev.RunFinished)
    assert "Harbor would run 2 trials, and 1 were chosen" in finished.reason
