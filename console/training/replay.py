"""What a resumed run begins with: which steps are trained again from their captured batches, which trials are used.

The cookbook goes on at its last checkpoint. Its weights have a name (`lineage`), and so have those after each batch
that was trained since. A batch is trained again as it was when it was sampled from the weights at hand, trained, and is
wholly there. The first one that is not is begun again: of its trials those that ended, are scored, and whose captured
calls are whole, are used; the others run. What was sampled from other weights is never used.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from console.journal import events as ev
from console.outcomes.classes import SCORED
from console.records.batches import Batches, Opening, read_batches, untold
from console.records.cookbook import WEIGHTS
from console.records.try_key import TrialPlace, try_key
from console.records.untold import Untold
from console.training import lineage
from console.training.recorded import (
    RecordedBatch,
    RecordedGroup,
    RecordedTrial,
    cancelled_trial,
    recorded_trial,
)
from console.training.recovered import recovered_row


class ResumePlan(msgspec.Struct, kw_only=True):
    """What was found. A new run has an empty one.

    Attributes:
        weights: name of the weights that the run begins with; recipe: how batches are trained, see `lineage`.
        step: at which it begins; checkpoint: name of what it begins with, empty for none.
        policy_version: optimiser steps behind these weights, None for not known.
        batches: by step, those to be trained again and the interrupted one, the last.
        tries: by step, group and trial, the first try that may be run.
        why_not: why the replay ends where it does, or why trials are not used; empty for nothing to say.
        missing: rows of steps that are in the checkpoint and were not written.
        untold: calls that are in no total, because the engine before was killed first.
    """

    weights: str
    recipe: str = ""
    step: int = 0
    checkpoint: str = ""
    policy_version: int | None = None
    batches: dict[int, RecordedBatch] = {}
    tries: dict[TrialPlace, int] = {}
    why_not: str = ""
    missing: list[ev.StepFinished] = []
    untold: Untold = msgspec.field(default_factory=Untold)

    @property
    def replayed(self) -> list[int]:
        """Steps that are trained again."""
        return [step for step, batch in self.batches.items() if batch.replayed]

    @property
    def interrupted(self) -> RecordedBatch | None:
        """The batch that is begun again, None when none was begun."""
        last = next(reversed(self.batches.values()), None)
        return last if last is not None and not last.replayed else None

    def reused(self, step: int) -> int:
        """Trials of a step that need not run."""
        return self.batches[step].reused if step in self.batches else 0

    def batch(self, step: int, weights: str) -> RecordedBatch | None:
        """What is recorded of a step from these weights; None for nothing."""
        found = self.batches.get(step)
        return found if found is not None and lineage.same_policy(weights, found.weights) else None

    def group(self, step: int, group: int, weights: str) -> RecordedGroup:
        """What is recorded of a group from these weights; of one that is not, only which tries are taken."""
        batch = self.batch(step, weights)
        known = batch.groups.get(group) if batch is not None else None
        tries = {place[2]: try_ for place, try_ in self.tries.items() if place[:2] == (step, group)}
        return msgspec.structs.replace(known if known is not None else RecordedGroup(), tries=tries)

    def event(self) -> ev.RunResumed:
        """What the journal is told of it."""
        begun = self.interrupted
        return ev.RunResumed(
            checkpoint=self.checkpoint,
            step=self.step,
            replayed=self.replayed,
            reused=begun.reused if begun is not None else 0,
            redone=begun.redone if begun is not None else None,
            why_not=self.why_not[:400],
        )


def plan(
    run_dir: Path,
    *,
    checkpoint: dict[str, Any] | None,
    fresh_weights: str,
    recipe: str,
    rows: Sequence[ev.StepFinished] = (),
    num_substeps: int = 1,
    max_steps: int | None = None,
) -> ResumePlan:
    """What a run begins with. It reads and checks every file that will be used: for a worker thread.

    Args:
        checkpoint: the cookbook's last row with a `state_path`, None for none; fresh_weights: name of the weights
            that the run begins with in that case.
        recipe: name of the training options; num_substeps: optimiser steps a batch; max_steps: where the run ends.
        rows: the finished steps that the journal has before the step at which the run begins.

    Raises:
        RecordingError, OSError: the journal cannot be read.
    """
    step = int(checkpoint["batch"]) if checkpoint is not None else 0
    done = rows[-1].step + 1 if rows else 0
    batches = read_batches(run_dir, max(0, min(step - 1, done)))
    found = ResumePlan(weights=fresh_weights, recipe=recipe, step=step, tries=batches.next_try)
    found.untold = untold(run_dir, batches)
    if checkpoint is not None:
        found.checkpoint = str(checkpoint.get("name") or "")
        found.weights = _weights_of(checkpoint, step, batches, recipe)
    if done < step:
        found.missing = _missing(batches, done, step, found.weights, num_substeps)
    ended = [*rows, *found.missing]
    found.policy_version = ended[-1].policy_version if ended else None
    _follow(found, run_dir, batches, max_steps)
    return found


def _weights_of(checkpoint: dict[str, Any], step: int, batches: Batches, recipe: str) -> str:
    """The name of what a checkpoint holds: as its row says, as it was reported, or as its last step has it."""
    if checkpoint.get(WEIGHTS):
        return str(checkpoint[WEIGHTS])
    path = str(checkpoint.get("state_path") or "")
    saved = batches.saved.get(path)
    if saved is not None and saved.weights:
        return saved.weights
    row = batches.recovered.get(step - 1)
    last = next(reversed(batches.of(step - 1)), None)
    if row is None and last is not None:
        row = last.finished
    if row is not None and row.weights:
        return row.weights
    if last is not None and last.weights and last.complete and row is None:
        return lineage.after(last.weights, recipe, _trained(last))
    return lineage.of_checkpoint(path)


def _missing(batches: Batches, first: int, end: int, weights: str, num_substeps: int) -> list[ev.StepFinished]:
    """Rows of the steps of a checkpoint that the journal lacks, as far as it has their batches; `weights`: its own."""
    rows: list[ev.StepFinished] = []
    for step in range(first, end):
        last = next(reversed(batches.of(step)), None)
        if last is not None:
            rows.append(recovered_row(last, weights if step == end - 1 else "", num_substeps))
    return rows


def _follow(found: ResumePlan, run_dir: Path, batches: Batches, max_steps: int | None) -> None:
    """Go from batch to batch, as long as they follow from the weights that the run begins with."""
    weights = found.weights
    for step in itertools.count(found.step):
        opened = batches.of(step)
        if not opened or (max_steps is not None and step >= max_steps):
            return
        alike = [opening for opening in opened if lineage.same_policy(weights, opening.weights)]
        if not alike:
            found.why_not = found.why_not or f"step {step}: {_other_weights(found, opened)}"
            return
        problem = ""
        for opening in reversed(alike):
            if opening.finished is None:
                continue
            batch = _replayed(run_dir, opening)
            if isinstance(batch, RecordedBatch):
                found.batches[step] = batch
                break
            problem = problem or batch
        else:
            found.batches[step], unused = _begun(run_dir, alike)
            found.why_not = found.why_not or (f"step {step} is begun again: {problem}" if problem else unused)
            return
        weights = lineage.after(weights, found.recipe, found.batches[step].trained_keys)


def _other_weights(found: ResumePlan, opened: list[Opening]) -> str:
    if not any(opening.weights for opening in opened):
        return "its trials run again, for the journal does not say which weights they were sampled from"
    if not found.checkpoint and lineage.is_random_start(found.weights):
        return "its trials run again: the adapters that they were sampled from began at random, and were not saved"
    return "its trials run again, for they were sampled from other weights"


def _trained(opening: Opening) -> list[str]:
    return [try_key((end.step, end.group, end.trial, end.try_)) for end in opening.scored() if end.reward is not None]


def _replayed(run_dir: Path, opening: Opening) -> RecordedBatch | str:
    """A batch that was trained, as it was, or why it cannot be trained again."""
    assert opening.finished is not None
    if not opening.complete:
        return "the journal lacks a part of its batch"
    groups: dict[int, RecordedGroup] = {}
    for index, group in sorted(opening.groups.items()):
        assert group.ended is not None
        trials: dict[int, RecordedTrial] = {}
        for number, end in sorted(group.ends.items()):
            if group.ended.kept and end.outcome in SCORED:
                trial = recorded_trial(run_dir, end, opening.policy_version, counted=True)
                if isinstance(trial, str):
                    return trial
                trials[number] = trial
            else:
                trials[number] = RecordedTrial(end=end, counted=True)
        groups[index] = RecordedGroup(task=group.task, size=group.size, trials=trials, ended=group.ended)
    kept = sum(group.ended is not None and group.ended.kept for group in opening.groups.values())
    if kept != opening.finished.groups_kept:
        return f"the journal has {kept} groups that were kept, and {opening.finished.groups_kept} were trained"
    return RecordedBatch(step=opening.step, weights=opening.weights, size=opening.size, groups=groups, replayed=True)


def _begun(run_dir: Path, openings: list[Opening]) -> tuple[RecordedBatch, str]:
    """A batch that is begun again, with what all engines have of it, and why trials of it are not used."""
    last = openings[-1]
    groups: dict[int, RecordedGroup] = {}
    why_not = ""
    for index in range(max(opening.size for opening in openings)):
        same = [(opening, opening.groups[index]) for opening in openings if index in opening.groups]
        if not same or index >= last.size:
            continue
        task, size = same[-1][1].task, same[-1][1].size
        same = [(opening, group) for opening, group in same if (group.task, group.size) == (task, size)]
        trials: dict[int, RecordedTrial] = {}
        for number in range(size):
            found = _usable(run_dir, [(o, g.ends[number]) for o, g in same if number in g.ends])
            if isinstance(found, RecordedTrial):
                trials[number] = found
            else:
                why_not = why_not or found
        cancelled_by = next((group.cancelled_by for _, group in reversed(same) if group.cancelled_by), "")
        groups[index] = RecordedGroup(task=task, size=size, trials=trials, cancelled_by=cancelled_by)
    batch = RecordedBatch(step=last.step, weights=last.weights, size=last.size, groups=groups)
    return batch, f"not used: {why_not}" if why_not else ""


def _usable(run_dir: Path, ends: list[tuple[Opening, ev.TrialFinished]]) -> RecordedTrial | str:
    """The last end of a trial that counts; else why a scored one is not used, "" when there is none."""
    why_not = ""
    for opening, end in reversed(ends):
        if (cancelled := cancelled_trial(end)) is not None:
            return cancelled
        if end.outcome not in SCORED:
            continue
        counted = any(o.counted for o, e in ends if e.try_ == end.try_)
        found = recorded_trial(run_dir, end, opening.policy_version, counted)
        if isinstance(found, RecordedTrial):
            return found
        why_not = why_not or found
    return why_not
