"""Ends of a benchmark run that nobody planned: killed processes, a process that lingers, an owner that is gone."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from bench_runs import Bench, BenchRun, until

import console.engine.benchmark.engine as engine_module
from console.engine.benchmark.engine import BenchEngine
from console.journal import events as ev
from console.journal.reader import Journal


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("QUARTERDECK_STATE_DIR", str(tmp_path / "state"))


@pytest.fixture
def waiting(tmp_path: Path) -> Iterator[tuple[Bench, BenchRun]]:
    """A run with one trial that passed and two at work."""
    bench = Bench(tmp_path, {"a-good": "pass", "hang-1": "hang", "hang-2": "hang"})
    run = BenchRun(bench.options(), owned=True)
    try:
        until(lambda: len(bench.begun()) == 3 and run.of(ev.TrialFinished))
        yield bench, run
    finally:
        if run.process.poll() is None:
            run.process.kill()


def test_a_mop_up_that_ends_early_is_typed_with_its_parent(tmp_path: Path) -> None:
    bench = Bench(tmp_path, {"hang-1": "hang"})
    run = BenchRun(bench.options(parent=str(tmp_path / "jobs" / "first"), mop_up=2), owned=True)
    try:
        until(lambda: len(bench.begun()) == 1)
        asked = run.order("retry", group=0)
        os.kill(run.harbor(), signal.SIGKILL)
        assert run.ended() == 7
    finally:
        if run.process.poll() is None:
            run.process.kill()
    (end,) = run.of(ev.RunFinished)
    for said in (asked.text, end.reason):
        assert f"quarterdeck bench mop-up {tmp_path}/jobs/first" in said and str(bench.job_dir()) not in said


def _processes(path: Path) -> list[str]:
    """Command lines of live processes that name a directory."""
    found = [" ".join(p.info["cmdline"] or []) for p in psutil.process_iter(["cmdline"])]
    return [line for line in found if str(path) in line]


def test_a_killed_harbor_costs_the_trials_at_work(waiting: tuple[Bench, BenchRun], tmp_path: Path) -> None:
    bench, run = waiting
    os.kill(run.harbor(), signal.SIGKILL)
    assert run.ended() == 7
    end = run.of(ev.RunFinished)[0]
    assert "killed by SIGKILL (out of memory, or by hand); 2 trials have no result" in end.reason
    assert f"quarterdeck bench mop-up {bench.job_dir()}" in end.reason
    outcomes = [(e.outcome, e.cause, e.rule) for e in run.of(ev.TrialFinished)]
    assert outcomes[0][0] == "completed"
    assert outcomes[1:] == [("infrastructure", "runner", "bench.incomplete")] * 2
    assert not run.view.state.sandboxes_live
    until(lambda: not _processes(tmp_path))


def test_harbor_ends_with_a_killed_engine_and_takes_its_sandboxes_down(
    waiting: tuple[Bench, BenchRun], tmp_path: Path
) -> None:
    _, run = waiting
    harbor = psutil.Process(run.harbor())
    run.process.kill()
    run.process.wait()
    harbor.wait(10)
    until(lambda: not _processes(tmp_path))
    assert run.events(), "the journal of a killed engine cannot be read"


def test_harbor_ends_with_an_engine_that_is_killed_before_the_job_is_resolved(tmp_path: Path) -> None:
    run = BenchRun(Bench(tmp_path, {"good": "hang"}).options())
    until(lambda: _processes(tmp_path / "jobs" / "job.run"))
    until(lambda: psutil.Process(run.process.pid).children())
    harbor = psutil.Process(run.process.pid).children()[0]
    run.process.kill()
    run.process.wait()
    harbor.wait(10)


def test_a_run_from_the_background_of_a_shell_is_stopped_as_any_other(tmp_path: Path) -> None:
    bench = Bench(tmp_path, {"hang": "hang"})
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)  # as a shell does; children inherit it
    try:
        run = BenchRun(bench.options())
    finally:
        signal.signal(signal.SIGINT, before)
    until(bench.begun)
    run.order("stop_now")
    assert run.ended(30) == 3
    assert [e.outcome for e in run.of(ev.TrialFinished)] == ["cancelled"]


def test_the_end_of_the_command_that_owns_the_run_ends_it(waiting: tuple[Bench, BenchRun]) -> None:
    _, run = waiting
    assert run.launch.run is not None and run.launch.run.owner_fd is not None
    os.close(run.launch.run.owner_fd)
    assert run.ended() == 129
    assert [e.outcome for e in run.of(ev.TrialFinished)] == ["completed", "cancelled", "cancelled"]


async def test_a_job_that_is_done_is_complete_whatever_keeps_its_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine_module, "LINGER_SECONDS", 0.5)
    monkeypatch.setattr(engine_module, "LINGER_END_SECONDS", 0.5)
    monkeypatch.setenv("PYTHONPATH", f"{Path(__file__).parents[2]}:{Path(__file__).parents[1] / 'support'}")
    options = Bench(tmp_path, {"good": "thread"}).options()
    run_dir = Path(options.run_dir)
    run_dir.mkdir(parents=True)
    engine = BenchEngine(options, run_dir, "run-1")
    await engine.start()
    cause = await engine.run()
    assert (cause.status, cause.exit_code) == ("completed", 0)
    events = list(Journal(run_dir / "journal").events())
    notes = [e.text for e in events if isinstance(e, ev.Note)]
    assert len(notes) == 1 and "Harbor wrote the end of the job" in notes[0]
    assert [e.outcome for e in events if isinstance(e, ev.TrialFinished)] == ["completed"]
    assert [e for e in events if isinstance(e, ev.StepFinished)]
    assert not _processes(tmp_path)


async def test_a_full_journal_ends_the_run_and_harbor_with_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", f"{Path(__file__).parents[2]}:{Path(__file__).parents[1] / 'support'}")
    options = Bench(tmp_path, {"good": "hang"}).options()
    run_dir = Path(options.run_dir)
    run_dir.mkdir(parents=True)
    engine = BenchEngine(options, run_dir, "run-1")
    await engine.start()
    append = engine.board._journal.append

    def full(event: ev.Event) -> None:
        if isinstance(event, ev.TrialPhase) and event.phase == "agent":
            raise OSError(28, "No space left on device", str(run_dir))
        append(event)

    monkeypatch.setattr(engine.board._journal, "append", full)
    cause = await engine.run()
    assert cause.exit_code == 7 and "No space left on device" in cause.reason
    assert not _processes(tmp_path)
