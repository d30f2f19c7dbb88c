"""The sandbox ledger of a run: `sandboxes.jsonl`, what was created, and what became of it.

Append-only, one JSON object a line, written by the run's runner processes, its engine, and `reap`. A sandbox is
announced on the disk before its create, and its entry is closed once its removal is confirmed, so that whatever is
open may exist and cost money. A torn or foreign line is skipped and counted.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

import msgspec

from console.errors import RecordingError
from console.records.regular import open_regular
from console.records.sandbox_prices import LOCAL, per_hour

LEDGER = "sandboxes.jsonl"
"""Its name in the run directory."""
OPEN = frozenset({"creating", "live", "left"})
"""States of an entry whose sandbox may exist; the others are removed, gone, failed and kept."""
CUT_OFF = "not listed after its create was cut off"
"""How the end of a sandbox is known that nobody ever saw: it may have come up later."""
_READ_BYTES = 4 << 20


class Announced(msgspec.Struct, tag="announced", tag_field="k", kw_only=True, omit_defaults=True, frozen=True):
    """A create is about to be asked for.

    Attributes:
        ts: Unix seconds; name: Harbor's session id, unique; key: the engine's name of the try; trial: Harbor's.
        kind: bwrap, e2b, docker, another type of Harbor, or an import path.
        where: address of the provider's or the Docker API; account: digest of the API key in use, empty for none.
        ref: what the provider will know it by when its id is not: the Docker Compose project, the parent of its root.
        cpus, memory_mb: asked for, None for the kind's own; lease: seconds until the provider ends it, unless renewed.
        engine, runner: the owning processes as `<pid>-<start ticks>`, on machine `host` since its start `boot`.
    """

    ts: float
    name: str
    kind: str
    key: str = ""
    trial: str = ""
    where: str = ""
    account: str = ""
    ref: str = ""
    cpus: float | None = None
    memory_mb: float | None = None
    lease: float | None = None
    engine: str = ""
    runner: str = ""
    boot: str = ""
    host: str = ""


class Created(msgspec.Struct, tag="created", tag_field="k", kw_only=True, omit_defaults=True, frozen=True):
    """It exists. `ids`: the provider's; `root`: its files on this machine; `process`: its first process here."""

    ts: float
    name: str
    ids: list[str] = []
    root: str = ""
    process: str = ""


class Removed(msgspec.Struct, tag="removed", tag_field="k", kw_only=True, omit_defaults=True, frozen=True):
    """Its removal is confirmed. `by`: whoever did it, empty for its trial; `how`: by what it is known."""

    ts: float
    name: str
    by: str = ""
    how: str = ""


class Gone(msgspec.Struct, tag="gone", tag_field="k", kw_only=True, omit_defaults=True, frozen=True):
    """Somebody looked, and it is not there. Fields as in `Removed`."""

    ts: float
    name: str
    by: str = ""
    how: str = ""


class Failed(msgspec.Struct, tag="failed", tag_field="k", kw_only=True, omit_defaults=True, frozen=True):
    """The create was refused for sure; nothing was made."""

    ts: float
    name: str
    why: str = ""


class Left(msgspec.Struct, tag="left", tag_field="k", kw_only=True, omit_defaults=True, frozen=True):
    """Its removal failed, or cannot be confirmed: it may live on."""

    ts: float
    name: str
    why: str = ""
    ids: list[str] = []


class Kept(msgspec.Struct, tag="kept", tag_field="k", kw_only=True, omit_defaults=True, frozen=True):
    """It stays because the configuration says so (`environment.delete`, `keep`); nobody's to remove."""

    ts: float
    name: str


type Record = Announced | Created | Removed | Gone | Failed | Left | Kept
_CLOSED = {Removed: "removed", Gone: "gone", Failed: "failed", Kept: "kept"}
_decoder = msgspec.json.Decoder(Announced | Created | Removed | Gone | Failed | Left | Kept)
_encoder = msgspec.json.Encoder()


def encode(record: Record) -> bytes:
    """One line."""
    return _encoder.encode(record) + b"\n"


class Entry(msgspec.Struct, kw_only=True):
    """A sandbox as its records tell it.

    Attributes:
        state: creating, live, left (all three: it may exist), removed, gone, failed, kept.
        made: its announcement; created, closed: Unix seconds, None for not (yet); seen: of its last record.
        ids, root, process: as in `Created`; why: of `Left` and `Failed`, or how its end is known.
    """

    made: Announced
    state: str = "creating"
    created: float | None = None
    closed: float | None = None
    seen: float = 0.0
    ids: list[str] = []
    root: str = ""
    process: str = ""
    why: str = ""

    @property
    def name(self) -> str:
        """Harbor's session id."""
        return self.made.name

    @property
    def since(self) -> float:
        """When it was created, or announced, in Unix seconds."""
        return self.made.ts if self.created is None else self.created

    def hours(self, now: float) -> float:
        """Hours that it has existed up to `now` (Unix seconds); 0 while its creation is not known."""
        if self.created is None:
            return 0.0
        return max(0.0, (now if self.closed is None else self.closed) - self.created) / 3600

    def cost(self, now: float, hourly: float | None = None) -> float | None:
        """Estimate in USD up to `now`; `hourly`: what an hour of a rented one costs. None: no price is known."""
        rate = _rate(self.made, hourly)
        return None if rate is None else self.hours(now) * rate

    def apply(self, record: Record) -> None:
        """Take in one of its records."""
        self.seen = record.ts
        match record:
            case Announced():
                self.made = record
            case Created():
                self.created = record.ts if self.created is None else self.created
                self.ids = [*self.ids, *(one for one in record.ids if one not in self.ids)]
                self.root, self.process = record.root or self.root, record.process or self.process
                if self.state == "creating":
                    self.state = "live"
            case Left():
                self.state, self.why, self.closed = "left", record.why, None
                self.ids = [*self.ids, *(one for one in record.ids if one not in self.ids)]
            case _:
                self.state, self.closed = _CLOSED[type(record)], record.ts
                self.why = record.why if isinstance(record, Failed) else getattr(record, "how", "")


def _engine(entry: Entry | None) -> str:
    return "" if entry is None else entry.made.engine


def _rate(made: Announced, hourly: float | None) -> float | None:
    if hourly is not None and made.kind not in LOCAL:
        return hourly
    return per_hour(made.kind, made.cpus, made.memory_mb)


class _Tail:
    """The whole lines of a growing file, as records. A file that shrank or was replaced is read anew."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offset = 0
        self._inode: tuple[int, int] | None = None
        self.damaged = 0
        self.restarted = False

    def read(self) -> Iterable[Record]:
        """Records written since. Raises RecordingError."""
        try:
            fd = open_regular(self._path)
            if fd is None:
                return
            try:
                yield from self._read(fd)
            finally:
                os.close(fd)
        except OSError as error:
            raise RecordingError(f"{self._path}: cannot be read ({error.strerror})") from error

    def _read(self, fd: int) -> Iterable[Record]:
        found = os.fstat(fd)
        if self._inode != (found.st_dev, found.st_ino) or found.st_size < self._offset:
            self.restarted = self._inode is not None
            self._inode, self._offset, self.damaged = (found.st_dev, found.st_ino), 0, 0
        while data := os.pread(fd, _READ_BYTES, self._offset):
            end = data.rfind(b"\n") + 1
            if end == 0:
                if len(data) < _READ_BYTES:
                    return  # the line that is being written
                end = len(data)  # no line of ours is that long
            self._offset += end
            for line in data[:end].splitlines():
                if not line:
                    continue
                try:
                    yield _decoder.decode(line)
                except (msgspec.DecodeError, UnicodeDecodeError):
                    self.damaged += 1


def read_entries(path: Path | str) -> list[Entry]:
    """Every sandbox of a ledger file, in order of announcement; empty when there is none. Raises RecordingError."""
    entries: dict[str, Entry] = {}
    for record in _Tail(Path(path)).read():
        _fold(entries, record)
    return list(entries.values())


def _fold(entries: dict[str, Entry], record: Record) -> Entry | None:
    """Apply a record to its entry; None when it has none. What is closed is opened by an announcement only."""
    entry = entries.get(record.name)
    if isinstance(record, Announced) and (entry is None or entry.state not in OPEN):
        entries.pop(record.name, None)
        entry = entries[record.name] = Entry(made=record, seen=record.ts)
        return entry
    if entry is not None and entry.state in OPEN:
        entry.apply(record)
    return entry


class LedgerView:
    """A run's ledger as it grows: cheap to refresh every second, however long the run is.

    Args:
        run_dir: the run directory; a ledger that is not there yet is empty.
        engine: `<pid>-<start ticks>` of the engine that runs now (`console.trials.ledger.process_name`), empty for
            none: then whatever is open is orphaned.
    """

    def __init__(self, run_dir: Path | str, engine: str = "") -> None:
        self._tail = _Tail(Path(run_dir) / LEDGER)
        self._engine = engine
        self._reset()

    def _reset(self) -> None:
        self._open: dict[str, Entry] = {}
        self._cut_off: dict[str, Entry] = {}
        self._heard: dict[str, float] = {}
        self._closed_hours = 0.0
        self._rented_hours = 0.0
        self._spent = 0.0
        self._unpriced = False

    def refresh(self) -> None:
        """Take in what was written since. Raises RecordingError."""
        for record in self._tail.read():
            if self._tail.restarted:
                self._tail.restarted = False
                self._reset()
            entry = _fold(self._open, record)
            if isinstance(record, Announced):
                self._cut_off.pop(record.name, None)
            if isinstance(record, Announced | Created):
                self._heard[record.engine if isinstance(record, Announced) else _engine(entry)] = record.ts
            if entry is not None and entry.state not in OPEN:
                del self._open[entry.name]
                self._settle(entry)
                if entry.why == CUT_OFF:
                    self._cut_off[entry.name] = entry

    def _settle(self, entry: Entry) -> None:
        hours = entry.hours(entry.seen)
        self._closed_hours += hours
        if entry.made.kind in LOCAL or not hours:
            return
        self._rented_hours += hours
        rate = _rate(entry.made, None)
        self._unpriced |= rate is None
        self._spent += hours * (rate or 0.0)

    @property
    def damaged(self) -> int:
        """Lines that could not be read."""
        return self._tail.damaged

    @property
    def open(self) -> list[Entry]:
        """Whatever may exist, in order of announcement."""
        return list(self._open.values())

    @property
    def cut_off(self) -> list[Entry]:
        """Those that were closed because nobody saw them after their create was cut off."""
        return list(self._cut_off.values())

    def _ours(self, entry: Entry) -> bool:
        return bool(self._engine) and entry.made.engine == self._engine

    @property
    def live(self) -> int:
        """Sandboxes of this engine that exist for a trial, or are being created."""
        return sum(entry.state != "left" and self._ours(entry) for entry in self._open.values())

    @property
    def creating(self) -> int:
        """Of the live ones: announced and not confirmed."""
        return sum(entry.state == "creating" and self._ours(entry) for entry in self._open.values())

    @property
    def left(self) -> list[str]:
        """Names of this engine's whose removal failed or is not confirmed."""
        return [entry.name for entry in self._open.values() if entry.state == "left" and self._ours(entry)]

    @property
    def orphaned(self) -> list[str]:
        """Names of those that an engine before this one left behind."""
        return [entry.name for entry in self._open.values() if not self._ours(entry)]

    @property
    def oldest(self) -> float | None:
        """When the oldest of all that may exist was created, Unix seconds."""
        return min((entry.since for entry in self._open.values()), default=None)

    def until(self, entry: Entry, now: float) -> float:
        """When an open one ended at the latest: `now`, or where nobody renews it any more, the end of its lease."""
        if entry.made.lease is None or self._ours(entry):
            return now
        heard = max(entry.since, self._heard.get(entry.made.engine, 0.0))
        return min(now, heard + entry.made.lease)

    def hours(self, now: float) -> float:
        """Sandbox hours of the run up to `now` (Unix seconds)."""
        return self._closed_hours + sum(entry.hours(self.until(entry, now)) for entry in self._open.values())

    def cost(self, now: float, hourly: float | None = None) -> float | None:
        """Estimate in USD up to `now` of what its rented sandboxes cost.

        Args:
            hourly: USD of an hour of any rented sandbox; None: of the known kinds by their size.

        Returns:
            None when nothing was rented, or a price is not known.
        """
        rented = [entry for entry in self._open.values() if entry.made.kind not in LOCAL]
        if not rented and not self._rented_hours:
            return None
        costs = [entry.cost(self.until(entry, now), hourly) for entry in rented]
        if hourly is not None:
            return self._rented_hours * hourly + sum(cost or 0.0 for cost in costs)
        if self._unpriced or None in costs:
            return None
        return self._spent + sum(cost or 0.0 for cost in costs)
