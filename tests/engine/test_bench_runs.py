"""Whole benchmark runs by real Harbor, as their journals tell them: ends of every kind, further tries, a second run."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from bench_runs import Bench, BenchRun

from console.cli import run as quarterdeck
from console.headless.benchmark import counts_record
from console.journal import events as ev
from console.records.sandbox_ledger import OPEN, read_entries


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A directory and a state directory for the runs of this module."""
    path = tmp_path_factory.mktemp("bench")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("QUARTERDECK_STATE_DIR", str(path / "state"))
        patch.setenv("OPENAI_API_KEY", "sk-abcdefghijklmnop")
        yield path


@pytest.fixture(scope="module")
def mixed(place: Path) -> BenchRun:
    """Two attempts of four tasks: passed, graded zero, infrastructure, and infrastructure that a further try cures."""
    bench = Bench(place / "mixed", {"good": "pass", "zero": "fail", "broken": "raise", "shaky": "once"})
    retry = {"max_retries": 1, "min_wait_sec": 0.1, "max_wait_sec": 0.1}
    run = BenchRun(bench.options(job={"n_attempts": 2, "retry": retry}))
    assert run.ended() == 0
    return run


def _finals(run: BenchRun) -> dict[str, list[ev.TrialFinished]]:
    """The last end of each trial, by task, in order of attempts."""
    tasks = {e.group: e.task for e in run.of(ev.GroupStarted)}
    last = {(e.group, e.trial): e for e in run.of(ev.TrialFinished)}
    found: dict[str, list[ev.TrialFinished]] = {}
    for key in sorted(last):
        found.setdefault(tasks[key[0]], []).append(last[key])
    return found


def test_each_trial_is_told_as_triage_judges_it(mixed: BenchRun) -> None:
    finals = _finals(mixed)
    assert sorted(finals) == ["broken", "good", "shaky", "zero"]
    for task, outcome, reward in (
        ("good", "completed", 1.0), ("zero", "completed", 0.0), ("shaky", "completed", 1.0),
        ("broken", "infrastructure", None),
    ):  # fmt: skip
        assert [(e.outcome, e.reward) for e in finals[task]] == [(outcome, reward)] * 2
    broken = finals["broken"][0]
    assert (broken.cause, broken.rule, broken.exception) == ("sandbox", "type.sandbox", "SandboxError")
    assert broken.retryable and "is gone" in broken.evidence and not finals["zero"][0].retryable
    good = finals["good"][0]
    assert (good.prompt_tokens, good.cached_tokens, good.sampled_tokens, good.cost_usd) == (100, 40, 10, 0.25)
    assert set(good.seconds) == {"environment", "setup", "agent", "verify", "total"}
    assert Path(str(good.trial_dir)).parent == Path(mixed.options.job_dir)


def test_harbors_retries_are_further_tries_of_a_trial_and_each_was_looked_at(mixed: BenchRun) -> None:
    again = mixed.of(ev.TrialRetried)
    assert len(again) == 4 and {e.try_ for e in again} == {1} and {e.by for e in again} == {"harbor"}
    tries = [(e.try_, e.outcome) for e in mixed.of(ev.TrialFinished) if e.group == again[0].group]
    assert tries.count((0, "infrastructure")) == 2
    # Harbor deletes a try before the next one: its verdict was made in time, from its own exception.
    assert all(e.exception == "SandboxError" for e in mixed.of(ev.TrialFinished) if e.try_ == 0 and e.reward is None)


def test_the_journal_is_that_of_a_run_with_one_step(mixed: BenchRun) -> None:
    state = mixed.view.state
    assert (state.kind, state.status, state.exit_code, state.steps_done) == ("benchmark", "finished", 0, 1)
    assert (state.bench.tasks, state.bench.trials, state.bench.attempts, state.bench.done) == (4, 8, 2, 8)
    step = mixed.of(ev.StepFinished)[0]
    assert step.outcomes == {"completed": 6, "infrastructure": 2}
    assert (step.reward_mean, step.groups_kept, step.groups_dropped) == (pytest.approx(4 / 6), 3, 1)
    dropped = [e for e in mixed.of(ev.GroupFinished) if not e.kept]
    assert [e.reason for e in dropped] == ["2 infrastructure"]
    planned = mixed.of(ev.BenchPlanned)[0]
    assert (planned.harbor, planned.agents, planned.concurrency, planned.done) == ("0.26.0", ["Acting"], 2, 0)
    assert mixed.events()[-1] == mixed.of(ev.RunFinished)[0]


def test_nothing_of_ours_is_in_harbors_directory_and_no_key_is_in_ours(mixed: BenchRun) -> None:
    job = Path(mixed.options.job_dir)
    assert {p.name for p in job.iterdir() if p.is_file()} == {"config.json", "job.log", "lock.json", "result.json"}
    assert not list(mixed.run_dir.glob("job.*")), "the job's file was not removed"
    assert (mixed.run_dir / "harbor.log").stat().st_mode & 0o777 == 0o600
    for path in mixed.run_dir.rglob("*"):
        assert not path.is_file() or b"sk-abcdefghijklmnop" not in path.read_bytes(), path


def test_every_sandbox_is_in_the_ledger_and_gone(mixed: BenchRun) -> None:
    entries = read_entries(mixed.run_dir / "sandboxes.jsonl")
    assert len(entries) == 8 and not [entry for entry in entries if entry.state in OPEN]


def test_a_second_run_of_the_job_keeps_what_stands(mixed: BenchRun) -> None:
    for trial in Path(mixed.options.job_dir).glob("zero__*"):
        (trial / "result.json").unlink()
    run = BenchRun(mixed.options)
    assert run.ended() == 0
    since = [e.seq for e in run.of(ev.RunStarted)][1]
    ended = [e for e in run.of(ev.TrialFinished) if e.seq > since]
    assert [e.outcome for e in ended if not e.reused] == ["completed"] * 2
    assert len(ended) == 8 and run.of(ev.BenchPlanned)[1].done == 6
    assert run.view.state.steps_done == 1 and len(run.view.history.rows) == 1


def test_several_agents_are_groups_of_their_own(place: Path) -> None:
    bench = Bench(place / "agents", {"good": "pass"})
    run = BenchRun(bench.options(job={"agents": [*bench.options().job["agents"], {"name": "nop"}]}))
    assert run.ended() == 0
    assert [e.task for e in run.of(ev.GroupStarted)] == ["good (Acting)", "good (nop)"]
    assert run.of(ev.BenchPlanned)[0].agents == ["Acting", "nop"]


@pytest.mark.parametrize(
    ("job", "says"),
    [
        ({"datasets": [{"path": "/nowhere/at/all"}]}, "/nowhere/at/all"),
        ({"agents": [{"import_path": "bench_runs:Nobody"}]}, "Nobody"),
        ({"n_attempts": "many"}, "n_attempts"),
    ],
)
def test_a_job_that_harbor_refuses_is_the_users_mistake(place: Path, job: dict[str, object], says: str) -> None:
    bench = Bench(place / f"refused-{says.strip('/').replace('/', '-')}", {"good": "pass"})
    run = BenchRun(bench.options(job=job))
    assert run.ended() == 2
    end = run.of(ev.RunFinished)[0]
    assert end.status == "failed" and says in end.reason and "\n" not in end.reason


def test_another_job_under_the_same_name_is_refused_and_stays(mixed: BenchRun) -> None:
    job = Path(mixed.options.job_dir)
    before = {p: p.stat().st_mtime_ns for p in job.rglob("*")}
    other = mixed.options.job | {"n_attempts": 3}
    run = BenchRun(type(mixed.options)(job=other, run_dir=f"{mixed.options.run_dir}2"))
    assert run.ended() == 2
    assert "cannot be resumed with a different config" in run.of(ev.RunFinished)[0].reason
    assert {p: p.stat().st_mtime_ns for p in job.rglob("*") if p.name != "job.log"} == {
        p: at for p, at in before.items() if p.name != "job.log"
    }


def test_a_job_in_which_everything_fails_alike_is_ended_early(place: Path) -> None:
    bench = Bench(place / "alike", {f"task-{n}": "raise" for n in range(6)})
    run = BenchRun(bench.options(concurrent=1, early_stop_trials=3))
    assert run.ended() == 4
    end = run.of(ev.RunFinished)[0]
    assert (
        end.status == "stopped" and "the first 3 trials all failed the same way, infrastructure/sandbox" in end.reason
    )
    assert "begin again with one task" in end.reason
    assert len(bench.begun()) < 6 and not run.of(ev.StepFinished)


def test_a_job_of_genuine_zeros_goes_on_to_its_end(place: Path) -> None:
    bench = Bench(place / "zeros", {f"task-{n}": "fail" for n in range(4)})
    run = BenchRun(bench.options(early_stop_trials=2))
    assert run.ended() == 0
    assert run.of(ev.StepFinished)[0].reward_mean == 0.0


def test_what_an_agent_that_failed_had_done_counts_as_the_tally_counts_it(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bench = Bench(place / "exits", {"left": "exit", "broken": "raise"})
    run = BenchRun(bench.options())
    assert run.ended() == 0
    (end,) = _finals(run)["left"]
    assert (end.outcome, end.exception, end.reward) == ("agent_failure", "NonZeroAgentExitCodeError", 1.0)
    passed = counts_record(run.view.state)["passed"]
    for mode in ("infra-excluded", "error-aware"):
        assert quarterdeck(["bench", "tally", str(bench.job_dir()), "--mode", mode, "--json"]) == 0
        (told,) = json.loads(capsys.readouterr().out)["modes"]
        assert [passed[mode][key] for key in ("numerator", "denominator")] == [told["numerator"], told["denominator"]]
    assert passed["infra-excluded"]["value"] == 1.0 == run.of(ev.StepFinished)[0].reward_mean
    assert sorted((e.reward_mean is None, e.reward_mean) for e in run.of(ev.GroupFinished)) == [
        (False, 1.0), (True, None),
    ]  # fmt: skip


def test_a_throttled_job_has_fewer_trials_at_once(place: Path) -> None:
    bench = Bench(place / "throttle", {f"task-{n}": "raise" for n in range(9)})
    run = BenchRun(bench.options(concurrent=4, throttle="auto", infra_window=4, early_stop=False))
    assert run.ended() == 0
    changes = run.of(ev.BenchLimited)
    assert [e.limit for e in changes] == [2, 1] and {e.by for e in changes} == {"policy"}
    assert "4 of the last 4 tries" in changes[0].why
    assert run.view.state.bench.limit == 1


def test_no_process_of_any_run_is_left(mixed: BenchRun, place: Path) -> None:
    named = [
        p.info["cmdline"] for p in psutil.process_iter(["cmdline"]) if str(place) in " ".join(p.info["cmdline"] or [])
    ]
    assert not named, json.dumps(named)
