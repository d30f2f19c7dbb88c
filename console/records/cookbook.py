"""What the cookbook leaves in a run directory."""

from __future__ import annotations

import json
from pathlib import Path


def last_checkpoint_batch(run_dir: Path) -> int | None:
    """The step at which the cookbook resumes: `batch` of the last row of checkpoints.jsonl that has a `state_path`.

    None when there is no such row. Lines that are not JSON objects are passed over, as after a crash.
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
            return int(row["batch"])
    return None
