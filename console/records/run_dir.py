"""A run directory as a reader has it: manifest, journal, and the state at any moment."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from console.errors import RecordingError
from console.journal.events import SCHEMA_VERSION, Event, RunStarted, StepFinished
from console.journal.layout import Damage
from console.journal.reader import Journal
from console.records.event_log import EventLog
from console.records.manifest import Manifest, read_manifest, write_manifest
from console.records.timeline import Gap, StepMark, Timeline
from console.state.model import History
from console.state.reduce import RunView, fold, state_of

__all__ = ["Manifest", "RunRecord", "StepMark", "Timeline", "read_manifest", "write_manifest"]


class RunRecord:
    """A recorded run, finished or not; read-only.

    A view at a moment costs the nearest snapshot and the events after it, not the whole journal, and equals the fold
    of all events up to there.

    Args:
        path: the run directory, or the journal directory in it.

    Attributes:
        journal: its events; coarse: what the recording lacks by its nature, one sentence, empty for nothing.

    Raises:
        RecordingError: the path is no run directory, or cannot be read.
    """

    def __init__(self, path: Path | str) -> None:
        self.path = _run_directory(Path(path))
        self.journal: EventLog = Journal(self.path / "journal")
        self.coarse = ""
        self._rows: list[Event] | None = None
        self._down: dict[int, Gap] = {}

    @property
    def manifest(self) -> Manifest:
        """The manifest. Raises RecordingError: it is missing or damaged (the journal may be readable all the same)."""
        return read_manifest(self.path)

    @property
    def damage(self) -> list[Damage]:
        """What of the journal could not be read so far."""
        return self.journal.damage

    @property
    def newer_schema(self) -> int | None:
        """The schema of its events when a later version wrote them, None when this version knows it."""
        latest = max((row.schema for row in self._step_rows() if isinstance(row, RunStarted)), default=0)
        return latest if latest > SCHEMA_VERSION else None

    def again(self) -> RunRecord:
        """The same recording for another thread: nothing of a record may be shared between two."""
        return RunRecord(self.path)

    def refresh(self) -> None:
        """Take in what was written since. Raises RecordingError."""
        self.journal.refresh()
        self._rows = None

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
                history = _history(row for row in self._step_rows() if row.seq <= snapshot.seq)
                return fold(journal.events(snapshot.seq, until), RunView(state, history))
            bound = snapshot.seq - 1
        return fold(journal.events(0, until))

    def _step_rows(self) -> list[Event]:
        if self._rows is None:
            self._rows = self.journal.step_rows()
        return self._rows

    def timeline(self) -> Timeline:
        """First and last time, the finished steps, and times without an engine; no marks. Raises RecordingError."""
        journal, rows = self.journal, self._step_rows()
        return Timeline(
            first_ts=journal.first_ts,
            last_ts=journal.last_ts,
            last_seq=journal.last_seq,
            steps=[_mark(row) for row in _history(rows).rows],
            down=[self._gap(row) for row in rows[1:] if isinstance(row, RunStarted)],
        )

    def _gap(self, start: RunStarted) -> Gap:
        found = self._down.get(start.seq)
        if found is None:
            before = [event.ts for event in self.journal.events(start.seq - 2, start.seq - 1)]
            found = self._down[start.seq] = Gap(start=before[-1] if before else start.ts, end=start.ts)
        return found


def _history(rows: Iterable[Event]) -> History:
    """The history of finished steps: what the reducer makes of the same rows, without its state."""
    history = History()
    for row in rows:
        if isinstance(row, StepFinished):
            history.add(row)
        elif isinstance(row, RunStarted) and row.resumed_from is not None:
            history.rows = [done for done in history.rows if done.step < row.resumed_from]
    return history


def _mark(row: StepFinished) -> StepMark:
    started = row.ts - row.seconds_total if row.seconds_total is not None else None
    return StepMark(step=row.step, seq=row.seq, ended=row.ts, started=started, outcomes=row.outcomes)


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
