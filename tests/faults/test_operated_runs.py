"""Whole real runs that an operator steers: paused, saved, tuned, and with a task left out."""

from __future__ import annotations

import json
from typing import Any

from whole_runs import command, processes_of, until

from console.journal import events as ev
from console.records.cookbook import last_checkpoint_batch


def begun(run: Any) -> dict[tuple[int, int, int], int]:
    """Trial to the event with which it began."""
    return {(e.step, e.group, e.trial): e.seq for e in reversed(run.of(ev.TrialPhase))}


async def test_paused_tuned_saved_and_resumed_the_run_completes(run_engine, tasks, trial_file):
    """Step 0 begins in a pause that was asked for while the engine prepared; its checkpoint is of untrained weights."""
    said: dict[str, Any] = {}

    async def during(engine: Any) -> None:
        said["early"] = await command(engine, "checkpoint")
        said["pause"] = await command(engine, "pause")
        said["out"] = await command(engine, "quarantine", task="note-write")
        await until(lambda: len(engine.active_groups) == 2)
        said["saved"] = await command(engine, "checkpoint")
        said["again"] = await command(engine, "checkpoint")
        said["before"] = [t.phase for g in engine.board.view.state.groups.values() for t in g.trials]
        said["phase"] = engine.board.view.state.phase
        said["set"] = await command(engine, "set", parallel=2, max_tries=5)
        said["resume"] = await command(engine, "resume")
        await until(lambda: engine.board.view.state.step == 1)
        await command(engine, "pause")
        said["later"] = await command(engine, "checkpoint")
        await command(engine, "resume")

    run = await run_engine(
        tasks("create-file", "make-folder", "note-write", "rename-file"), trial_file(), "config.max_steps=2",
        "config.dataset_builder.groups_per_batch=2", "config.dataset_builder.group_size=3",
        "harbor.max_parallel_trials_per_group=1", "config.rolling_save_every=1", during=during,
    )  # fmt: skip
    assert run.exit_code == 0, run.view.state.reason
    assert said["early"].status == "refused" and "no weights to save yet" in said["early"].text
    assert said["before"] == ["queued"] * 6 and said["phase"] == "rollout"
    assert said["saved"].text.startswith("checkpoint 000000-start has these weights already")
    assert said["again"].text.startswith("checkpoint 000000-start has these weights already")
    assert said["resume"].text == "resumed: 4 trials begun"
    assert said["later"].text.startswith("checkpoint 000001-request saved in ")
    paused, resumed, *_ = [e.seq for e in run.of(ev.DispatchPaused)]
    assert not [seq for seq in begun(run).values() if paused < seq < resumed] and len(begun(run)) == 12
    assert [(e.name, e.old, e.new) for e in run.of(ev.RunTuned)] == [("parallel", 1, 2), ("max_tries", 3, 5)]
    assert [(e.step, e.task) for e in run.of(ev.GroupStarted)] == [
        (0, "create-file"), (0, "make-folder"), (1, "create-file"), (1, "rename-file"),
    ]  # fmt: skip
    assert [(r.groups_kept, r.policy_version) for r in run.view.history.rows] == [(2, 1), (2, 2)]
    saved = run.of(ev.CheckpointSaved)
    assert sorted(c.kind for c in saved) == ["final", "request", "rolling", "rolling", "start"]
    names = [row.weights for row in run.view.history.rows]
    assert {c.step: c.weights for c in saved} == {0: run.of(ev.StepStarted)[0].weights, 1: names[0], 2: names[1]}
    rows = [json.loads(line) for line in (run.run_dir / "checkpoints.jsonl").read_text().splitlines()]
    assert {row["batch"]: row["weights"] for row in rows} == {c.step: c.weights for c in saved}
    started = run.of(ev.RunStarted)[0]
    assert set(started.tunables) == set(ev.TUNABLES) and started.tunables["parallel"] == 1 and started.thresholds
    assert run.folded() == run.view
    assert processes_of(run.run_dir) == []


async def test_a_checkpoint_of_a_rollout_is_where_the_next_engine_goes_on(run_engine, tasks, trial_file):
    """The first engine is asked while step 1 rolls out, and is stopped there; the second one ends by a budget."""
    said: list[Any] = []

    async def during(engine: Any) -> None:
        await command(engine, "quarantine", task="create-file")
        await until(lambda: engine.board.view.state.step == 1 and bool(engine.active_groups))
        await command(engine, "pause")
        said.append(await command(engine, "checkpoint"))
        await command(engine, "stop_now")

    where, trial = tasks("create-file", "note-write", "make-folder"), trial_file()
    first = await run_engine(where, trial, "config.max_steps=3", during=during)
    assert first.exit_code == 3 and said[0].status == "done", said
    assert [r.step for r in first.view.history.rows] == [0]
    assert last_checkpoint_batch(first.run_dir) == 1
    saved = json.loads((first.run_dir / "checkpoints.jsonl").read_text().splitlines()[-1])
    assert saved["name"] == "000001-request" and saved["state_path"] and saved["sampler_path"]
    captured = first.view.state.capture
    tokens = captured.prompt_tokens + captured.sampled_tokens

    async def budget(engine: Any) -> None:
        """Used up already it would be refused; the step at hand uses so much more."""
        await until(lambda: engine.board.view.state.step == 1)
        refused = await command(engine, "set", token_budget=tokens)
        said.extend([refused, await command(engine, "set", token_budget=tokens + 60)])

    second = await run_engine(where, trial, "config.max_steps=3", run_dir=first.run_dir, during=budget)
    assert (second.exit_code, second.view.state.reason) == (3, f"token budget of {tokens + 60:,} reached")
    assert [answer.status for answer in said] == ["done", "refused", "done"], said
    assert [(r.step, r.policy_version) for r in second.view.history.rows] == [(0, 1), (1, 2)]
    assert [(e.when, e.by) for e in second.of(ev.StopRequested)] == [("now", "test"), ("after_step", "token budget")]
    assert {e.task for e in second.of(ev.GroupStarted)} == {"make-folder"}
    assert second.of(ev.RunStarted)[1].resumed_from == 1
