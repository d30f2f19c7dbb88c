"""From a run directory to a source: the engine's socket while it lives, else the recording."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from console.errors import RecordingError
from console.tui.source import engine_gone

if TYPE_CHECKING:
    from console.records.run_dir import RunRecord
    from console.tui.source import Source


def open_record(run_dir: Path | str) -> RunRecord:
    """The recording of a run. Raises `RecordingError`, also when nothing was recorded."""
    from console.records.run_dir import RunRecord

    record = RunRecord(run_dir)
    if record.journal.last_seq == 0:
        raise RecordingError(f"{run_dir}: its journal is empty, there is nothing to show")
    return record


def damage_notice(record: RunRecord) -> str:
    """One line about what cannot be read, empty when everything can."""
    found = record.damage
    return f"the journal is damaged in {len(found)} places; what is readable is shown" if found else ""


def source_of_directory(path: Path) -> tuple[Source, str]:
    """What to show of the run in a directory, and a notice about it. Raises `RecordingError`."""
    record = open_record(path)
    view = record.view_at_end()
    state = view.state
    over = state.status in ("finished", "stopped", "failed")
    if not over and state.socket and not engine_gone(state.pid):
        from console.tui.live import LiveSource

        return LiveSource(state.socket, state.run_id, view), ""
    from console.tui.replay import ReplaySource

    why = (
        "the run is over: this is its recording" if over else "the engine is gone: this is the recording up to its end"
    )
    damaged = damage_notice(record)
    return ReplaySource(record, at_end=True), f"{why}; {damaged}" if damaged else why
