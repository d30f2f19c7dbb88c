"""What the cookbook leaves in a run directory."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from console.errors import RecordingError

FINAL = "final"
"""Name of the checkpoint with which the cookbook ends a run."""
WEIGHTS = "weights"
"""Key under which a row of checkpoints.jsonl has the name of its weights, as in `StepStarted`."""


def checkpoint_rows(run_dir: Path) -> list[dict[str, Any]]:
    """The rows of checkpoints.jsonl that a resume can take, oldest first: with a `state_path` and a `batch`.

    Lines that are not JSON objects are passed over, as after a crash; there may be no such file.

    Raises:
        RecordingError: it cannot be read.
    """
    path = run_dir / "checkpoints.jsonl"
    try:
        lines = path.read_text(errors="replace").splitlines()
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        raise RecordingError(f"{path}: cannot be read ({error.strerror})") from None
    rows = []
    for line in lines:
        try:
            row = json.loads(line)
        except (ValueError, RecursionError):
            continue
        match row:
            case {"state_path": str(state), "batch": int(batch)} if state and not isinstance(batch, bool):
                rows.append(row)
    return rows


def last_checkpoint(run_dir: Path) -> dict[str, Any] | None:
    """The row at which the cookbook resumes: the last one of `checkpoint_rows`, None when there is none.

    Raises:
        RecordingError: checkpoints.jsonl cannot be read.
    """
    return next(reversed(checkpoint_rows(run_dir)), None)


def last_checkpoint_batch(run_dir: Path) -> int | None:
    """The step at which the cookbook resumes: `batch` of that row, None when there is none. Raises RecordingError."""
    row = last_checkpoint(run_dir)
    return int(row["batch"]) if row is not None else None
