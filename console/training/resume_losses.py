"""What the directory of a run has lost that is to go on, or to be forked: checkpoints, events, captured calls."""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from console.errors import RecordingError
from console.findings import WARNING, Finding
from console.journal.reader import Journal
from console.records.cookbook import checkpoint_rows
from console.records.run_dir import RunRecord
from console.state.model import CheckpointState

_NAMED = 3
"""Stretches of events that a finding names; of more it says how many."""


def losses(run_dir: Path, *, damaged: bool, lost: str) -> list[Finding]:
    """What a resume does without; nothing that forbids it.

    Args:
        damaged: whether the journal is known to be; lost: why a step that was trained is begun again, empty for none.

    Raises:
        RecordingError: the journal cannot be read.
    """
    found = []
    missing = _missing(run_dir) if damaged or lost else ""
    if missing:
        found.append(
            Finding(
                code="resume.journal",
                level=WARNING,
                object=str(run_dir / "journal"),
                message=f"is damaged: {missing}, and what they told is not used",
                remedy=f"put its files back from a copy; quarterdeck export {shlex.quote(str(run_dir))} tells more",
            )
        )
    if lost:
        step, _, why = lost.partition(": ")
        found.append(
            Finding(
                code="resume.again",
                level=WARNING,
                object=str(run_dir),
                message=f"{step} was trained, and is begun again: {why}",
                remedy="put back from a copy what is lost, or let trials run again",
            )
        )
    return found


def _missing(run_dir: Path) -> str:
    """That events are missing, and which; empty for none. Reads the whole journal. Raises RecordingError."""
    if not (run_dir / "journal").is_dir():
        return ""
    journal = Journal(run_dir / "journal")
    gaps, after = [], 0
    for event in journal.events():
        if event.seq > after + 1:
            gaps.append(_stretch(after + 1, event.seq - 1))
        after = event.seq
    if after < journal.last_seq:
        gaps.append(_stretch(after + 1, journal.last_seq))
    if not gaps:
        return "events at its end are missing" if journal.end_lost else ""
    if len(gaps) == 1 and gaps[0].isdigit():
        return f"event {gaps[0]} is missing"
    more = f" and {len(gaps) - _NAMED} more stretches" if len(gaps) > _NAMED else ""
    return f"events {', '.join(gaps[:_NAMED])}{more} are missing"


def _stretch(first: int, last: int) -> str:
    return str(first) if first == last else f"{first} to {last}"


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
