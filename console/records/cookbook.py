"""What the cookbook leaves in a run directory."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

FINAL = "final"
"""Name of the checkpoint with which the cookbook ends a run."""
WEIGHTS = "weights"
"""Key under which a row of checkpoints.jsonl has the name of its weights, as in `StepStarted`."""


def last_checkpoint(run_dir: Path) -> dict[str, Any] | None:
    """The row at which the cookbook resumes: the last one of checkpoints.jsonl with a `state_path` and a `batch`.

    None when there is none. Lines that are not JSON objects are passed over, as after a crash.
    """
    try:
        lines = (run_dir / "checkpoints.jsonl").read_text(errors="replace").splitlines()
    except (FileNotFoundError, NotADirectoryError):
        return None
    for line in reversed(lines):
        try:
            row = json.loads(line)
        except ValueError:
            continue
        if isinstance(row, dict) and row.get("state_path") and isinstance(row.get("batch"), int):
            return row
    return None


def last_checkpoint_batch(run_dir: Path) -> int | None:
    """The step at which the cookbook resumes: `batch` of that row, None when there is none."""
    row = last_checkpoint(run_dir)
    return int(row["batch"]) if row is not None else None
