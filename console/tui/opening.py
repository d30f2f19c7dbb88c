"""From a run directory to a source: the engine's socket while it lives, else the recording."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from console.errors import RecordingError
from console.tui.source import engine_gone

if TYPE_CHECKING:
    from console.records.run_dir import RunRecord
    from console.tui.replay import ReplaySource
    from console.tui.source import Source

PATIENCE_SECONDS = 0.25
"""How long opening waits for the whole recording to be looked over; what it finds later shows on the timeline."""


def open_record(run_dir: Path | str) -> RunRecord:
    """The recording of a run, or a plain log of the cookbook. Raises `RecordingError`, also when it is empty."""
    from console.records.opening import open_run

    record = open_run(run_dir)
    if record.journal.last_seq == 0:
        raise RecordingError(f"{run_dir}: its journal is empty, there is nothing to show")
    return record


def notice_of(source: ReplaySource) -> str:
    """One line about what the recording lacks: missing events, a later schema; empty when nothing does."""
    source.read_marks(PATIENCE_SECONDS)
    record = source.record
    newer = record.newer_schema
    later = f"written by a later version (schema {newer}): some of it may not be shown; update quarterdeck"
    return "; ".join(part for part in (record.coarse, later if newer else "", source.missing()) if part)


def source_of_directory(path: Path, act: bool = True) -> tuple[Source, str]:
    """What to show of the run in a directory, and a notice about it. Raises `RecordingError`.

    `act`: attend as one who may act on the run; without it, it is only looked at.
    """
    record = open_record(path)
    view = record.view_at_end()
    state = view.state
    over = state.status in ("finished", "stopped", "failed")
    if not over and state.socket and not engine_gone(state.pid):
        from console.tui.live import LiveSource

        return LiveSource(state.socket, state.run_id, view, act=act), ""
    from console.tui.replay import ReplaySource

    source = ReplaySource(record, at_end=True)
    if record.coarse:
        why = ""
    elif over:
        why = "the run is over: this is its recording"
    else:
        why = "the engine is gone: this is the recording up to its end"
    return source, "; ".join(part for part in (why, notice_of(source)) if part)
