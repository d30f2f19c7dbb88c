"""What a run with these options begins with, from its run directory."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from console.errors import RecordingError
from console.journal import events as ev
from console.records.cookbook import last_checkpoint
from console.records.manifest import read_manifest
from console.training import lineage
from console.training.options import RunOptions
from console.training.replay import ResumePlan, plan


def resume_plan(options: RunOptions, run_dir: Path, rows: Sequence[ev.StepFinished]) -> ResumePlan:
    """The plan of a run that begins now, resumed or new; reads and checks what will be used: for a worker thread.

    Args:
        rows: the finished steps before the one at which the run begins.

    Raises:
        RecordingError, OSError: the journal cannot be read.
    """
    policy = lineage.beginning({key: options.value(key) for key in lineage.BEGINNING})
    given = options.value("config.load_checkpoint_path")
    checkpoint = last_checkpoint(run_dir)
    found = plan(
        run_dir,
        checkpoint=checkpoint,
        fresh_weights=policy if given else lineage.random_start(policy),
        recipe=lineage.recipe({key: options.value(key) for key in lineage.RECIPE}),
        rows=rows,
        num_substeps=int(options.value("config.num_substeps") or 1),
        max_steps=options.value("config.max_steps"),
    )
    if found.policy_version is None and checkpoint is not None:
        found.policy_version = _of_parent(run_dir, str(checkpoint["state_path"]))
    return found


def save_beginning(options: RunOptions, found: ResumePlan) -> bool:
    """Whether the weights that the run begins with must be saved: nothing else can bring them back.

    A checkpoint after the first step makes that unnecessary.
    """
    first, end = int(options.value("config.save_every") or 0), options.value("config.max_steps")
    return lineage.is_random_start(found.weights) and not found.checkpoint and first != 1 and (end is None or end > 1)


def _of_parent(run_dir: Path, path: str) -> int | None:
    """Optimiser steps behind a checkpoint of another run that this one began with."""
    try:
        ancestors = read_manifest(run_dir).lineage
    except RecordingError:
        return None
    return next((one.policy_version for one in reversed(ancestors) if one.path == path), None)
