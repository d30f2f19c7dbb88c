"""Whole real runs: what each failure is called, what it does to the run, and what is left of it."""

from __future__ import annotations

import shutil
from typing import Any

import pytest
from whole_runs import command, processes_of, until

from console.journal import events as ev
from console.records.captured_calls import CapturedTrialFile, trial_files
from console.records.run_dir import RunRecord
from console.records.token_check import check_tokens


def finals(run: Any) -> dict[int, ev.TrialFinished]:
    """The last try of each trial of step 0, group 0."""
    return {e.trial: e for e in run.of(ev.TrialFinished) if e.step == 0 and e.group == 0}


async def test_a_clean_run_trains_and_every_reader_sees_the_same(run_engine, tasks, trial_file):
    run = await run_engine(tasks("create-file", "note-write"), trial_file(), "config.max_steps=2")
    assert run.exit_code == 0
    row = run.view.history.rows[0]
    assert row.outcomes == {"completed": 3}
    assert row.groups_kept == 1
    assert row.reward_mean == pytest.approx(sum(e.reward for e in finals(run).values()) / 3)
    assert row.ppo_loss is not None and row.clip_fraction == 0.0
    assert row.kl_sample_train_v1 == pytest.approx(0.0, abs=1e-3)
    assert row.entropy is not None and row.entropy > 0
    assert row.tokens_trained == row.tokens_sampled > 0
    assert [r.policy_version for r in run.view.history.rows] == [1, 2]
    assert run.folded() == run.view
    assert RunRecord(run.run_dir).view_at_end() == run.view
    files = [CapturedTrialFile(path) for path in trial_files(run.run_dir) if "step-000000" in str(path)]
    assert len(files) == 3 and all(file.refresh() and file.complete for file in files)
    assert sum(len(call.tokens()) for file in files for call in file) == row.tokens_sampled
    assert [problem for file in files for problem in check_tokens(file)] == []
    assert processes_of(run.run_dir) == []


async def test_stop_policy_ends_the_run_and_its_siblings(run_engine, tasks, trial_file, tmp_path):
    trial = trial_file("fault_agents:SandboxKiller", fuse=str(tmp_path / "fuse"))
    run = await run_engine(tasks("create-file"), trial)
    assert run.exit_code == 4
    outcomes = sorted(e.outcome for e in finals(run).values())
    assert outcomes.count("infrastructure") == 1
    failed = next(e for e in finals(run).values() if e.outcome == "infrastructure")
    assert (failed.cause, failed.exception, failed.reward) == ("sandbox", "SandboxLostError", None)
    assert "create-file" in run.view.state.reason and "SandboxLostError" in run.view.state.reason
    assert run.view.history.rows == []
    assert run.view.state.sandboxes_live == 0
    assert processes_of(run.run_dir) == []


async def test_retry_policy_tries_again_and_the_step_completes(run_engine, tasks, trial_file, tmp_path):
    trial = trial_file("fault_agents:SandboxKiller", fuse=str(tmp_path / "fuse"))
    run = await run_engine(tasks("create-file"), trial, on_failure="retry")
    assert run.exit_code == 0
    assert len(run.of(ev.TrialRetried)) == 1
    assert run.view.history.rows[0].outcomes == {"completed": 3}
    assert sorted(e.try_ for e in finals(run).values()) == [0, 0, 1]


async def test_retries_are_bounded(run_engine, tasks, trial_file, tmp_path):
    trial = trial_file("fault_agents:SandboxKiller", fuse=str(tmp_path / "fuse"), fuses=9)
    run = await run_engine(tasks("create-file"), trial, "harbor.max_tries=2", on_failure="retry")
    assert run.exit_code == 4
    assert max(e.try_ for e in run.of(ev.TrialFinished)) == 1


@pytest.mark.parametrize("agent", ["RunnerKiller", "RunnerStarver"])
async def test_a_killed_runner_is_infrastructure_of_its_trials(run_engine, tasks, trial_file, tmp_path, agent):
    """Also one that has no memory any more: what it was at is run again, and never scored."""
    trial = trial_file(f"fault_agents:{agent}", fuse=str(tmp_path / "fuse"))
    run = await run_engine(tasks("create-file"), trial, on_failure="retry")
    assert run.exit_code == 0, run.view.state.reason
    lost = [e for e in run.of(ev.TrialFinished) if e.outcome == "infrastructure"]
    assert lost and {e.cause for e in lost} == {"runner"}
    assert run.view.history.rows[0].outcomes == {"completed": 3}
    assert processes_of(run.run_dir) == []


async def test_hold_waits_for_the_operator(run_engine, tasks, trial_file, tmp_path):
    seen: list[Any] = []

    async def during(engine: Any) -> None:
        await until(lambda: any(t.phase == "held" for g in engine.board.view.state.groups.values() for t in g.trials))
        engine.board.check_alarms()
        seen.append(dict(engine.board.view.state.alarms))
        seen.append(await command(engine, "retry"))

    trial = trial_file("fault_agents:SandboxKiller", fuse=str(tmp_path / "fuse"))
    run = await run_engine(tasks("create-file"), trial, on_failure="hold", during=during)
    assert run.exit_code == 0
    assert "held.g1" in seen[0]
    assert seen[1].status == "done"
    assert run.view.history.rows[0].outcomes == {"completed": 3}
    assert [e.by for e in run.of(ev.TrialRetried)] == ["test"]
    order = [type(e).__name__ for e in run.events if type(e).__name__.startswith("Command")]
    assert order == ["CommandRequested", "CommandAccepted", "CommandFinished"]


async def test_a_run_directory_that_is_moved_away_is_the_cause(run_engine, tasks, trial_file, tmp_path, monkeypatch):
    """Whether the engine notices it by itself, or a trial fails of it first."""
    monkeypatch.setattr("console.engine.host.LOOK_SECONDS", 0.5)
    place, away = tmp_path / "run", tmp_path / "away"

    async def during(engine):
        await until(lambda: bool(engine.active_groups))
        place.rename(away)
        await until(lambda: engine.board._closed)
        shutil.rmtree(place, ignore_errors=True)  # what writes by name makes it anew
        away.rename(place)

    run = await run_engine(tasks("create-file"), trial_file(), during=during)
    assert run.exit_code == 7
    assert run.of(ev.RunFinished)[0].reason == f"the run directory {place} was moved or removed while the run went on"


async def test_hold_stops_at_its_deadline(run_engine, tasks, trial_file, tmp_path):
    trial = trial_file("fault_agents:SandboxKiller", fuse=str(tmp_path / "fuse"))
    run = await run_engine(tasks("create-file"), trial, "console.hold_timeout=0.5", on_failure="hold")
    assert run.exit_code == 4
    assert len(run.of(ev.TrialHeld)) == 1


@pytest.mark.parametrize(
    ("task", "outcome", "cause"),
    [
        ("reward-nan", "bad_reward", "non_finite"),
        ("reward-missing", "bad_reward", "missing"),
        ("reward-string", "bad_reward", "non_numeric"),
        ("reward-huge", "bad_reward", "too_large"),
        ("tests-not-fetched", "bad_reward", "verifier_fault"),
        ("tests-none-ran", "bad_reward", "verifier_fault"),
    ],
)
async def test_a_broken_verifier_is_never_scored(run_engine, tasks, trial_file, task, outcome, cause):
    run = await run_engine(tasks(task), trial_file())
    assert run.exit_code == 4
    decided = [e for e in finals(run).values() if e.outcome != "cancelled"]
    assert decided and {(e.outcome, e.cause, e.reward) for e in decided} == {(outcome, cause, None)}
    assert run.view.history.rows == []


async def test_a_zero_whose_tests_never_ran_can_be_scored_by_choice(run_engine, tasks, trial_file):
    run = await run_engine(tasks("tests-none-ran"), trial_file(), "harbor.verifier_faults=score")
    assert run.exit_code == 0
    assert run.view.history.rows[0].reward_mean == 0.0
    assert run.view.history.rows[0].groups_zero_variance == 1


async def test_no_model_call_is_no_samples(run_engine, tasks, trial_file):
    run = await run_engine(tasks("create-file"), trial_file("fault_agents:Silent"))
    assert run.exit_code == 4
    assert "no_samples" in {e.outcome for e in finals(run).values()}


async def test_an_unknown_exception_of_the_agent_is_never_scored(run_engine, tasks, trial_file):
    run = await run_engine(tasks("create-file"), trial_file("fault_agents:Crasher"))
    assert run.exit_code == 4
    decided = [e for e in finals(run).values() if e.outcome != "cancelled"]
    assert {(e.outcome, e.reward) for e in decided} == {("agent_failure", None)}


async def test_a_cancelled_trial_leaves_its_group_and_a_cancelled_group_leaves_the_step(run_engine, tasks, trial_file):
    results: list[Any] = []

    async def during(engine: Any) -> None:
        await until(lambda: len(engine.active_groups) == 2 and all(g.trials for g in engine.active_groups.values()))
        results.append(await command(engine, "cancel_group", group=1))
        results.append(await command(engine, "cancel_trial", group=0, trial=0))
        results.append(await command(engine, "cancel_group", group=7))

    run = await run_engine(
        tasks("create-file", "note-write"), trial_file(), "config.dataset_builder.groups_per_batch=2", during=during
    )
    assert run.exit_code == 0
    assert [r.status for r in results] == ["done", "done", "refused"]
    row = run.view.history.rows[0]
    assert (row.groups_kept, row.groups_dropped) == (1, 1)
    assert row.outcomes == {"completed": 2, "cancelled": 4}
    assert finals(run)[0].outcome == "cancelled"
    assert all(e.retryable is False for e in run.of(ev.TrialFinished))


async def test_stop_after_the_step_saves_and_a_later_start_goes_on(run_engine, tasks, trial_file):
    async def during(engine: Any) -> None:
        await until(lambda: engine.board.view.state.step == 0)
        await command(engine, "stop_after_step", on=True)

    where, trial = tasks("create-file", "note-write", "make-folder"), trial_file()
    first = await run_engine(where, trial, "config.max_steps=3", during=during)
    assert first.exit_code == 3
    assert [r.step for r in first.view.history.rows] == [0]
    assert [(c.name, c.step) for c in first.view.state.checkpoints] == [("000000-start", 0), ("000001", 1)]
    second = await run_engine(where, trial, "config.max_steps=3", run_dir=first.run_dir)
    assert second.exit_code == 0
    assert [(r.step, r.policy_version) for r in second.view.history.rows] == [(0, 1), (1, 2), (2, 3)]
    assert second.of(ev.RunStarted)[1].resumed_from == 1


async def test_stop_now_cancels_and_leaves_nothing(run_engine, tasks, trial_file):
    async def during(engine: Any) -> None:
        await until(lambda: engine.board.view.state.sandboxes_live > 0 or bool(engine.active_groups))
        await command(engine, "stop_now")

    run = await run_engine(tasks("create-file"), trial_file("fault_agents:Sleeper"), during=during)
    assert run.exit_code == 3
    assert {e.outcome for e in finals(run).values()} <= {"cancelled"}
    assert processes_of(run.run_dir) == []
