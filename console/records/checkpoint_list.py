"""The checkpoints of a run: the cookbook's rows, with what the journal knows about each."""

from __future__ import annotations

from pathlib import Path

import msgspec

from console.errors import RecordingError
from console.journal.events import CheckpointSaved, StepFinished
from console.journal.reader import Journal
from console.records.cookbook import checkpoint_rows
from console.records.manifest import read_manifest


class Checkpoint(msgspec.Struct, kw_only=True, frozen=True):
    """A checkpoint that training can go on from.

    Attributes:
        name: as saved; step: steps that are in it, and the step a resume goes on with.
        state_path: weights and optimizer, where the gateway has them; sampler_path: the weights for sampling.
        kind: start, periodic, rolling, final, stop or request; fork for the one that the run began with.
        saved: Unix seconds, None when the journal does not tell.
        policy_version: optimiser steps behind the weights; weights: their name, empty when unknown.
    """

    name: str
    step: int
    state_path: str
    sampler_path: str | None = None
    kind: str = ""
    saved: float | None = None
    policy_version: int | None = None
    weights: str = ""


def list_checkpoints(run_dir: Path) -> list[Checkpoint]:
    """The checkpoints of a run, oldest first. Reads the whole journal: a second for half a million events.

    Raises:
        RecordingError: the cookbook's file cannot be read.
    """
    saved, versions = _from_journal(run_dir)
    try:
        ancestors = {ancestor.path: ancestor for ancestor in read_manifest(run_dir).lineage}
    except RecordingError:
        ancestors = {}
    found = []
    for row in checkpoint_rows(run_dir):
        path, step = str(row["state_path"]), int(row["batch"])
        event, ancestor = saved.get(path), ancestors.get(path)
        kind, weights, version = "rolling" if row.get("rolling") else "", "", versions.get(step)
        if ancestor is not None:
            kind, weights, version = "fork", ancestor.weights, ancestor.policy_version
        elif event is not None:
            kind, weights = event.kind, event.weights
        found.append(
            Checkpoint(
                name=str(row.get("name", "")),
                step=step,
                state_path=path,
                sampler_path=row["sampler_path"] if isinstance(row.get("sampler_path"), str) else None,
                kind=kind,
                saved=event.ts if event is not None else None,
                policy_version=version,
                weights=weights,
            )
        )
    return found


def _from_journal(run_dir: Path) -> tuple[dict[str, CheckpointSaved], dict[int, int]]:
    """The saves by path, and the policy version by number of steps done."""
    saved: dict[str, CheckpointSaved] = {}
    versions: dict[int, int] = {0: 0}
    if (run_dir / "journal").is_dir():
        try:
            for event in Journal(run_dir / "journal").events():
                if isinstance(event, CheckpointSaved):
                    saved[event.path] = event
                elif isinstance(event, StepFinished):
                    versions[event.step + 1] = event.policy_version
        except RecordingError:  # the rows are there all the same
            pass
    return saved, versions
