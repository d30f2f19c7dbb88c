"""A run directory as a reader has it: manifest, journal, and the state at any moment."""

from __future__ import annotations

from pathlib import Path

import msgspec

from console.errors import RecordingError
from console.journal.events import StepFinished
from console.journal.layout import Damage
from console.journal.reader import Journal
from console.records.manifest import Manifest, read_manifest, write_manifest
from console.state.reduce import RunView, fold, state_of

__all__ = ["Manifest", "RunRecord", "StepMark", "Timeline", "read_manifest", "write_manifest"]


class StepMark(msgspec.Struct, frozen=True, kw_only=True):
    """A finished step on the timeline: event number and Unix seconds of its end; `started` None when unknown."""

    step: int
    seq: int
    ended: float
    started: float | None


class Timeline(msgspec.Struct, frozen=True, kw_only=True):
    """What a replay can seek in. Times are Unix seconds, None for an empty journal; steps that were undone are out."""

    first_ts: float | None
    last_ts: float | None
    last_seq: int
    steps: list[StepMark]


class RunRecord:
    """A recorded run, finished or not; read-only.

    A view at a moment costs the nearest snapshot and the events after it, not the whole journal, and equals the fold
    of all events up to there.

    Args:
        path: the run directory, or the journal directory in it.

    Raises:
        RecordingError: the path is no run directory, or cannot be read.
    """

    def __init__(self, path: Path | str) -> None:
        self.path = _run_directory(Path(path))
        self.journal = Journal(self.path / "journal")

    @property
    def manifest(self) -> Manifest:
        """The manifest. Raises RecordingError: it is missing or damaged (the journal may be readable all the same)."""
        return read_manifest(self.path)

    @property
    def damage(self) -> list[Damage]:
        """What of the journal could not be read so far."""
        return self.journal.damage

    def refresh(self) -> None:
        """Take in what was written since. Raises RecordingError."""
        self.journal.refresh()

    def view_at_end(self) -> RunView:
        """State and history after the last event. Raises RecordingError."""
        return self._view(self.journal.last_seq)

    def view_at(self, seq: int | None = None, ts: float | None = None) -> RunView:
        """State and history after event `seq`, or after the last event at or before `ts` (Unix seconds).

        Raises RecordingError, and ValueError unless exactly one of the two is given.
        """
        if (seq is None) == (ts is None):
            raise ValueError("give either seq or ts")
        if seq is None:
            assert ts is not None
            seq = self.journal.seq_at(ts)
        return self._view(min(seq, self.journal.last_seq))

    def _view(self, until: int) -> RunView:
        journal = self.journal
        bound = until
        while (snapshot := journal.nearest_snapshot(seq=bound)) is not None:
            state = state_of(snapshot)
            if state is not None:
                history = fold(row for row in journal.step_rows() if row.seq <= snapshot.seq).history
                return fold(journal.events(snapshot.seq, until), RunView(state, history))
            bound = snapshot.seq - 1
        return fold(journal.events(0, until))

    def timeline(self) -> Timeline:
        """First and last time, and the finished steps. Raises RecordingError."""
        journal = self.journal
        rows = fold(journal.step_rows()).history.rows
        return Timeline(
            first_ts=journal.first_ts,
            last_ts=journal.last_ts,
            last_seq=journal.last_seq,
            steps=[_mark(row) for row in rows],
        )


def _mark(row: StepFinished) -> StepMark:
    started = row.ts - row.seconds_total if row.seconds_total is not None else None
    return StepMark(step=row.step, seq=row.seq, ended=row.ts, started=started)


def _run_directory(path: Path) -> Path:
    try:
        if (path / "journal").is_dir():
            return path
        if path.name == "journal" and path.is_dir():
            return path.resolve().parent
        if not path.exists():
            raise RecordingError(f"{path}: there is no such directory; `quarterdeck runs` lists the known runs")
    except OSError as error:
        raise RecordingError(f"{path}: cannot be read ({error.strerror})") from error
    raise RecordingError(f"{path}: not a run directory (no journal/ in it); name the run's config.log_path")
