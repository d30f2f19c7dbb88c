"""A run whose engine was killed, at moments that matter, and resumed: nothing is trained twice, nothing done is redone.

A copy of the run directory, made at a moment, is what a kill at that moment leaves: all that an engine has written
went to the operating system.
"""

from __future__ import annotations

import shutil
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file
from whole_runs import Run, processes_of

from console.journal import events as ev
from console.journal.reader import Journal
from console.outcomes.classes import SCORED
from console.records.batches import read_batches
from console.records.captured_calls import CapturedTrialFile, find_trial_file
from console.records.run_dir import RunRecord
from console.records.token_check import check_tokens
from console.records.try_key import try_key

STEPS = 3
OPTIONS = (
    "config.save_every=0", f"config.max_steps={STEPS}", "config.dataset_builder.groups_per_batch=2",
    "config.dataset_builder.epochs=9", "config.num_substeps=2",
)  # fmt: skip
Moment = Callable[[ev.Event], bool]


def copies(moments: dict[Path, Moment]) -> Callable[[Any], Awaitable[None]]:
    """Copies the run directory when an event says so, each time once, before anything else happens."""

    async def during(engine: Any) -> None:
        def see(line: bytes, event: ev.Event) -> None:
            for target, moment in moments.items():
                if not target.exists() and moment(event):
                    copy(engine.run_dir, target)

        engine.board._journal.subscribe(see)

    return during


def copy(run_dir: Path, target: Path) -> None:
    """Threads go on meanwhile: a file that vanishes under the copy was renamed, and the copy is made again."""
    for _ in range(50):
        try:
            shutil.copytree(run_dir, target, symlinks=True, ignore=shutil.ignore_patterns("sandboxes", "trials"))
            return
        except (shutil.Error, FileNotFoundError):
            shutil.rmtree(target)
    raise AssertionError(f"{run_dir} never holds still")


class Ended:
    """So many trials of a step have ended."""

    def __init__(self, step: int, trials: int) -> None:
        self.step, self.left = step, trials

    def __call__(self, event: ev.Event) -> bool:
        self.left -= isinstance(event, ev.TrialFinished) and event.step == self.step and not event.reused
        return self.left <= 0


def scored_before(run_dir: Path) -> set[tuple[int, int, int]]:
    """Trials that ended with a score, whichever engine ran them."""
    ends = [e for e in Journal(run_dir / "journal").events() if isinstance(e, ev.TrialFinished)]
    return {(e.step, e.group, e.trial) for e in ends if e.outcome in SCORED}


def lora(gateway: Path, run: Run) -> dict[str, Any]:
    """The adapters that the run's last checkpoint has."""
    path = run.of(ev.CheckpointSaved)[-1].path
    model, _, name = path.removeprefix("tinker://").split("/")
    (found,) = gateway.glob(f"*/{model.replace(':', '+')}/weights/{name}/adapter_model.safetensors")
    return load_file(found)


def check(run: Run, before: set[tuple[int, int, int]]) -> ev.RunResumed:
    """What holds of every run that was resumed; what it was resumed with."""
    assert run.exit_code == 0, run.view.state.reason
    last = max(e.seq for e in run.of(ev.RunStarted))
    resumed = [e for e in run.of(ev.RunResumed) if e.seq > last]
    assert len(resumed) == 1
    begun = {(e.step, e.group, e.trial, e.try_) for e in run.of(ev.TrialPhase) if e.seq > last and e.phase == "create"}
    assert before & {place[:3] for place in begun} == set(), "a trial that had ended ran again"
    assert len({place[:3] for place in begun}) == len(begun)
    assert [row.step for row in run.view.history.rows] == list(range(STEPS))
    assert run.view == RunRecord(run.run_dir).view_at_end() == run.folded()
    check_lineage(run)
    before_it, carried = ([e for e in run.of(ev.CaptureStats) if (e.seq < last) is early] for early in (True, False))
    assert carried[0].seq == last + 1 and carried[0].trained_tokens == before_it[-1].trained_tokens
    counted = sum(row.tokens_trained for row in run.view.history.rows)
    assert run.view.state.capture.trained_tokens == counted, "what is trained again is not counted again"
    keys = [(e.step, e.group, e.trial, e.try_) for e in run.of(ev.TrialFinished) if not e.reused]
    assert len(keys) == len(set(keys)), "two tries of one name"
    assert processes_of(run.run_dir) == []
    return resumed[0]


def check_lineage(run: Run) -> None:
    """Every step once, each from the weights that the one before it made, of trials that are whole on the disk."""
    weights = run.of(ev.StepStarted)[0].weights
    recipe = None
    for step, row in enumerate(run.view.history.rows):
        opening = read_batches(run.run_dir).of(step)[-1]
        assert opening.weights == weights and opening.finished is not None
        sampled = 0
        for group in opening.groups.values():
            assert group.ended is not None and group.ended.kept
            for end in group.ends.values():
                path = find_trial_file(run.run_dir, try_key((step, end.group, end.trial, end.try_)))
                file = CapturedTrialFile(path)
                assert file.refresh() and file.sealed is not None and check_tokens(file) == []
                assert file.opened.policy_version == opening.policy_version
                sampled += sum(len(file.node(n).tokens()) for s in file.sealed.segments for n in s.nodes)
        assert row.tokens_trained == sampled, "each token once"
        weights = row.weights
        assert recipe is None or recipe != weights
        recipe = weights


async def test_kills_at_moments_that_matter(run_engine, tasks, trial_file, tmp_path, tmp_path_factory):
    tasks_dir, trial = tasks("create-file", "note-write", "copy-file"), trial_file()
    rolling, training, end = tmp_path / "rolling", tmp_path / "training", tmp_path / "end"
    whole = await run_engine(
        tasks_dir, trial, *OPTIONS,
        during=copies({
            rolling: Ended(1, 4),
            training: lambda e: isinstance(e, ev.RunPhase) and e.phase == "training" and rolling.exists(),
            end: lambda e: isinstance(e, ev.StepFinished) and e.step == STEPS - 1,
        }),
    )  # fmt: skip
    assert whole.exit_code == 0 and [c.kind for c in whole.of(ev.CheckpointSaved)] == ["start", "final"]
    check_lineage(whole)
    first = {row.step: row for row in whole.view.history.rows}
    assert whole.view.state.capture.trained_tokens == sum(row.tokens_trained for row in first.values())

    # All was trained, and nothing saved: the same weights come of it, without a single trial.
    again = await run_engine(tasks_dir, trial, *OPTIONS, run_dir=end)
    resumed = check(again, scored_before(end))
    assert (resumed.checkpoint, resumed.replayed, resumed.reused) == ("000000-start", [0, 1, 2], 0)
    for row in again.view.history.rows:
        assert row.replayed and row.weights == first[row.step].weights
        assert row.ppo_loss == pytest.approx(first[row.step].ppo_loss, abs=1e-4)
        assert (row.reward_mean, row.tokens_trained) == (first[row.step].reward_mean, first[row.step].tokens_trained)
        assert (row.outcomes, row.policy_version) == (first[row.step].outcomes, first[row.step].policy_version)
    gateway = next(path for path in tmp_path_factory.getbasetemp().glob("gateway*") if any(path.iterdir()))
    before, after = lora(gateway, whole), lora(gateway, again)
    assert before.keys() == after.keys() and before
    assert max(float((before[name] - after[name]).abs().max()) for name in before) == 0.0

    # In the middle of step 1, and once more when the first of its other trials had ended.
    twice = tmp_path / "twice"
    usable = scored_before(rolling)
    once = await run_engine(tasks_dir, trial, *OPTIONS, run_dir=rolling, during=copies({twice: Ended(1, 1)}))
    resumed = check(once, usable)
    assert (resumed.replayed, resumed.reused, resumed.redone) == ([0], 4, 2)
    more = scored_before(twice)
    assert len(more - usable) == 1
    resumed = check(await run_engine(tasks_dir, trial, *OPTIONS, run_dir=twice), more)
    assert (resumed.replayed, resumed.reused, resumed.redone) == ([0], 5, 1)

    # While step 1 was trained: all its trials are there.
    usable = scored_before(training)
    resumed = check(await run_engine(tasks_dir, trial, *OPTIONS, run_dir=training), usable)
    assert (resumed.replayed, resumed.reused, resumed.redone) == ([0], 6, 0)
