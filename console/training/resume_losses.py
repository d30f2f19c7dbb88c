"""What the directory of a run has lost that is to go on, or to be forked: checkpoints that only the journal knows."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from console.errors import RecordingError
from console.findings import Finding
from console.records.cookbook import checkpoint_rows
from console.records.run_dir import RunRecord
from console.state.model import CheckpointState


def lost_checkpoint(
    run_dir: Path, saved: Sequence[CheckpointState], rows: Sequence[dict[str, Any]], or_else: str = ""
) -> Finding | None:
    """That the cookbook's file lacks the last checkpoint; None when it has it.

    Args:
        saved: the checkpoints that the journal knows; rows: of checkpoints.jsonl; both oldest first.
        or_else: what can be done besides bringing the row back.
    """
    if not saved or saved[-1].step <= max((int(row["batch"]) for row in rows), default=-1):
        return None
    last = saved[-1]
    row = json.dumps({"name": last.name, "batch": last.step, "state_path": last.path})
    return Finding(
        code="resume.checkpoint",
        object=str(run_dir / "checkpoints.jsonl"),
        message=f"is damaged: it lacks checkpoint {last.name}, which was saved after step {last.step}",
        remedy=f"put it back from a copy, {or_else}or append the line {row}",
    )


def lost_to_fork(run_dir: Path) -> Finding | None:
    """As `lost_checkpoint`, for a run that stays as it is; None also when its journal cannot be read."""
    try:
        saved = RunRecord(run_dir).view_at_end().state.checkpoints
    except RecordingError:
        return None
    return lost_checkpoint(run_dir, saved, checkpoint_rows(run_dir), or_else="name an earlier one with --at, ")
