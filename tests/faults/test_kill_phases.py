"""An engine killed at a moment of each phase, seeded; the full set is `python -m tests.faults.kill_harness`.

A copy of the run directory, made at a moment, is what a kill at that moment leaves: of such copies it is checked what
a resume would do with them. And one run is killed for real, where only the inside of an engine shows the moment.
"""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest
from kill_harness import Victim, options, tasks_of
from kill_moments import points
from kill_plan import FIRST, PHASES, START, Kill, Point, spec
from kill_verify import Report, after_kill, captured_tokens, tokens_of
from test_resume_replayed import copies, copy

from console.commands.start import _owes
from console.journal import events as ev
from console.journal.layout import PLAIN, chunk_name, list_chunks
from console.records.cookbook import last_checkpoint, last_checkpoint_batch
from console.records.run_dir import RunRecord
from console.training import lineage
from console.training.options import parse
from console.training.resume import resume_plan

SEED = 5
STEPS = 3
RESUMED = {"planning", "replay", "reuse"}
"""Phases that only an engine has which resumes a run."""
INSIDE = {"starting", "training", "at random"}
"""Phases without an event that a copy could be made at."""


def seen_from_outside() -> dict[str, tuple[str, int]]:
    """Of each phase a moment right after an event: which event, and the how manyth."""
    rng = random.Random(SEED)
    found = {}
    for phase in PHASES.keys() - RESUMED - INSIDE:
        point = rng.choice([point for point in PHASES[phase] if point.name.partition(":")[0] in ("before", "after")])
        count = rng.randint(1, point.count) + (6 if point.first == FIRST and not point.saves else 0) * (point.count > 2)
        found[phase] = (point.name.partition(":")[2], count)
    # What is saved has the last step in it, which has no row yet; at the end there is all but the run's end.
    return found | {"saving": ("checkpoint.saved:periodic", 1), "end": ("checkpoint.saved:final", 1)}


async def test_what_a_kill_in_each_phase_leaves(run_engine, tasks, trial_file, tmp_path):
    moments, copied = seen_from_outside(), {}

    async def during(engine) -> None:
        counted: dict[str, int] = {}

        def see(line: bytes, event: ev.Event) -> None:
            for name in points(event):
                counted[name] = counted.get(name, 0) + 1
            for phase, (name, count) in moments.items():
                if phase not in copied and counted.get(name, 0) >= count:
                    copied[phase] = tmp_path / phase.replace(" ", "-")
                    copy(engine.run_dir, copied[phase])
                    if phase == "saving":
                        _without_final(copied[phase] / "checkpoints.jsonl")

        engine.board._journal.subscribe(see)

    words = (f"config.save_every={STEPS}", f"config.max_steps={STEPS}", "config.dataset_builder.groups_per_batch=2",
             "config.dataset_builder.epochs=9", "config.num_substeps=2")  # fmt: skip
    tasks_dir, trial = tasks("create-file", "note-write", "copy-file"), trial_file()
    whole = await run_engine(tasks_dir, trial, *words, during=during)
    assert whole.exit_code == 0 and copied.keys() == moments.keys()
    resumed = parse([*_words(whole.run_dir, tasks_dir, trial), *words])
    used = 0
    for phase, run_dir in copied.items():
        report = Report()
        usable = after_kill(run_dir, report)
        assert not report.problems, (phase, report.problems)
        plan = resume_plan(resumed, run_dir, list(RunRecord(run_dir).view_at_end().history.rows))
        found = {
            ((step, index, trial), lineage.policy_of(batch.weights))
            for step, batch in plan.batches.items()
            for index, group in batch.groups.items()
            for trial in group.trials
        }
        due = {one for one in usable.trials if one[0][0] >= plan.step}
        assert found >= due and not plan.why_not, (phase, due - found, plan.why_not)
        used += len(due)
        counted = [
            t.key for b in plan.batches.values() for g in b.groups.values() for t in g.trials.values() if t.counted
        ]
        told, more = RunRecord(run_dir).view_at_end().state.capture, plan.untold
        assert plan.step or told.trained_tokens == sum(tokens_of(run_dir, key) for key in counted), f"{phase}: once"
        tokens = told.prompt_tokens + more.prompt_tokens, told.sampled_tokens + more.sampled_tokens
        assert (told.calls + more.calls, *tokens) == captured_tokens(run_dir), f"{phase}: every captured token, once"
    assert used > 20, "a kill in each phase leaves something to use"

    saved = {run_dir: last_checkpoint_batch(run_dir) for run_dir in (*copied.values(), whole.run_dir)}
    ended = {run_dir: _owes(run_dir, last_checkpoint(run_dir)) for run_dir, steps in saved.items() if steps == STEPS}
    assert ended == {copied["saving"]: True, copied["end"]: True, whole.run_dir: False}

    # All is trained and saved, but not as the last checkpoint, which alone never expires, and a row is missing.
    run_dir = copied["saving"]
    again = await run_engine(tasks_dir, trial, *words, run_dir=run_dir)
    last = max(e.seq for e in again.of(ev.RunStarted))
    assert again.exit_code == 0 and not [e for e in again.of(ev.TrialPhase) if e.seq > last]
    assert [(row.step, row.recovered) for row in again.view.history.rows] == [(0, False), (1, False), (2, True)]
    saved = [(c.kind, c.step) for c in again.of(ev.CheckpointSaved)]
    assert saved == [("start", 0), ("periodic", STEPS), ("final", STEPS)]
    totals = whole.view.state.capture, again.view.state.capture
    assert totals[0].trained_tokens == totals[1].trained_tokens


@pytest.mark.parametrize("told", [True, False])
async def test_the_tokens_of_a_killed_engine_are_counted_whether_its_last_calls_were_told_or_not(
    run_engine, tasks, trial_file, tmp_path, told: bool
):
    """Told as a kill leaves it, after the last report; else as a power failure does, which takes the journal's end."""
    killed = tmp_path / "killed"
    calls = iter(range(99))
    third = copies({killed: lambda e: isinstance(e, ev.TrialTurn) and next(calls) == 2})
    tasks_dir, trial = tasks("create-file"), trial_file()
    await run_engine(tasks_dir, trial, during=third)
    if not told:
        (chunk,) = (killed / "journal" / (chunk_name(first) + PLAIN) for first in list_chunks(killed / "journal"))
        lines = chunk.read_bytes().splitlines(keepends=True)
        told_first = next(at for at, line in enumerate(lines) if b'"trial.phase"' in line)
        chunk.write_bytes(b"".join(lines[:told_first]))
    captured = captured_tokens(killed)
    assert captured[0] >= 3
    again = await run_engine(tasks_dir, trial, run_dir=killed)
    c = again.view.state.capture
    assert (c.calls, c.prompt_tokens, c.sampled_tokens) == captured_tokens(killed) > captured
    assert c.trained_tokens <= c.sampled_tokens


def _without_final(rows: Path) -> None:
    """The loop's thread goes on while a copy is made, and may have saved for the last time."""
    lines = rows.read_text().splitlines(keepends=True)
    rows.write_text("".join(line for line in lines if json.loads(line)["name"] != "final"))


def _words(run_dir: Path, tasks_dir: Path, trial: Path) -> list[str]:
    return [
        "config.base_url=http://127.0.0.1:9", "config.model_name=quarterdeck/midshipman", "config.loss_fn=ppo",
        "config.learning_rate=3e-3", "config.lora_rank=8", "config.max_tokens=24", "config.ttl_seconds=None",
        f"config.log_path={run_dir}", f"config.dataset_builder.tasks_dir={tasks_dir}", f"harbor.trial_config={trial}",
    ]  # fmt: skip


def test_a_run_killed_inside_its_phases(tmp_path, monkeypatch):
    monkeypatch.setenv("QUARTERDECK_STATE_DIR", str(tmp_path / "state"))
    rng = random.Random(SEED)
    run_dir = tmp_path / "run"
    steps = 2
    victim = Victim(run_dir, options(run_dir, tasks_of(tmp_path), 0, steps), rng, steps)
    training = Kill("training", rng.choice(PHASES["training"]))
    training.spec = spec(training.point, rng) | {"skip": 1}
    todo = [training]
    again = Point("after:run.phase:training+replay", START)
    todo.append(Kill("replay", again, spec(again, rng)))
    assert [kill.label for kill in todo if not victim.killed(kill)] == []
    victim.complete()
    report = victim.report
    assert report.problems == []
    assert report.replayed >= 1 and report.trials == 6 * steps, "what was trained is trained again, not run"
