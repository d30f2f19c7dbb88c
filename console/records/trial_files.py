"""Harbor's files of a trial, read with care: a sandbox writes into them and names them as it likes.

Only regular files below the run's own trials directory are opened, no link is followed, and no more than a bound is
ever read.
"""

from __future__ import annotations

import contextlib
import os
import re
import threading
import time
from collections import OrderedDict
from collections.abc import Iterator
from pathlib import Path

import msgspec

from console.journal.events import BenchPlanned, Event, RunFinished, RunStarted, StepFinished, TrialFinished
from console.journal.reader import Journal
from console.records.regular import open_regular

STEPS_KEPT = 4
LOOK_SECONDS = 0.25
LIST_SECONDS = 2.0
NAMES_LISTED = 1000

Try = tuple[int, int, int]
"""Group, trial and try, indices from 0."""


class TryEnds(msgspec.Struct):
    """How far the tries of a step have ended.

    Attributes:
        dirs: of each try that has, Harbor's directory or None; over: all have; stopped: the engine ended before.
        seq: the last event that was taken in; checked: when, `time.monotonic()`.
        job_dir: Harbor's job directory, of a benchmark; empty for a training.
    """

    dirs: dict[Try, str | None] = {}
    over: bool = False
    stopped: bool = False
    seq: int = 0
    checked: float = 0.0
    job_dir: str = ""


class StepEnds:
    """What the journal says about the ends of tries, for any step, read as it grows. Safe to call from threads."""

    def __init__(self, run_dir: Path) -> None:
        """Nothing is opened before the first question."""
        self._directory = run_dir / "journal"
        self._journal: Journal | None = None
        self._steps: OrderedDict[int, TryEnds] = OrderedDict()
        self._lock = threading.Lock()

    def of(self, step: int) -> TryEnds:
        """The step's ends now. Raises RecordingError when the journal cannot be read."""
        with self._lock:
            known = self._steps.get(step)
            now = time.monotonic()
            if known is None or not (known.over or now - known.checked < LOOK_SECONDS):
                known = self._look(step, known)
                known.checked = now
                self._steps[step] = known
                while len(self._steps) > STEPS_KEPT:
                    self._steps.popitem(last=False)
            self._steps.move_to_end(step)
            return known

    def _look(self, step: int, known: TryEnds | None) -> TryEnds:
        if self._journal is None:
            self._journal = Journal(self._directory)
        else:
            self._journal.refresh()
        if known is None:
            known = TryEnds(seq=_begin(self._journal.step_rows(), step))
        dirs = dict(known.dirs)
        for event in self._journal.events(known.seq):
            known.seq = event.seq
            if isinstance(event, TrialFinished) and event.step == step:
                dirs[(event.group, event.trial, event.try_)] = event.trial_dir
            elif isinstance(event, StepFinished) and event.step == step:
                known.over = True
                break
            elif isinstance(event, BenchPlanned):
                known.job_dir = event.job_dir
            elif isinstance(event, RunStarted | RunFinished):
                known.stopped = isinstance(event, RunFinished)
        known.dirs = dirs
        return known


def _begin(rows: list[Event], step: int) -> int:
    """The `seq` after which the step's events stand that count: those of its last time, when a resume did it again."""
    begin = 0
    for row in rows:
        undone = isinstance(row, RunStarted) and row.resumed_from is not None and row.resumed_from <= step
        if undone or (isinstance(row, StepFinished) and row.step < step):
            begin = row.seq
    return begin


class TrialDirs:
    """Finds a try's directory below `root`, the run's trials directory or Harbor's job directory, also while the try
    runs if its name bears the try's key. Safe to call from threads."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._names: list[str] = []
        self._listed = -LIST_SECONDS
        self._lock = threading.Lock()

    def locate(self, recorded: str | None, key: str) -> tuple[str | None, str]:
        """The name of a try's directory, None when there is none, and why not.

        Args:
            recorded: the directory named at the try's end, None before; key: the try's, which a name may bear.
        """
        if recorded:
            parent, name = os.path.split(recorded.rstrip("/"))
            # A run directory may have been moved, so only the last two names count.
            if os.path.basename(parent) == self.root.name and is_name(name):
                return name, ""
            return None, f"Harbor's files of this trial are not in the run directory but in {recorded[:300]}"
        pattern = re.compile(rf"(?<![A-Za-z0-9]){re.escape(key)}(?![0-9])")
        found = [name for name in self._list() if pattern.search(name)]
        return max(found, key=self._changed, default=None), "" if found else "Harbor has no files of this trial yet"

    def _list(self) -> list[str]:
        with self._lock:
            now = time.monotonic()
            if now - self._listed >= LIST_SECONDS:
                self._listed = now
                try:
                    self._names = os.listdir(self.root)
                except OSError:
                    self._names = []
            return self._names

    def _changed(self, name: str) -> float:
        try:
            return os.lstat(self.root / name).st_mtime
        except OSError:
            return 0.0

    @contextlib.contextmanager
    def open(self, *parts: str) -> Iterator[int | None]:
        """A descriptor of the directory `parts` below the root, reached without following a link; None without one."""
        fd: int | None = None
        try:
            fd = _open_dir(self.root, None, follow=True)
            for part in parts:
                if fd is None:
                    break
                inner = _open_dir(part, fd) if is_name(part) else None
                os.close(fd)
                fd = inner
            yield fd
        finally:
            if fd is not None:
                os.close(fd)


def job_dirs(run_dir: Path, job_dir: str) -> TrialDirs:
    """The trials of a benchmark: in its job directory, or, when that was moved together with the run, beside it."""
    recorded = Path(job_dir)
    return TrialDirs(recorded if recorded.is_dir() else run_dir.absolute().parent / recorded.name)


def is_name(text: str) -> bool:
    """Whether it names something in a directory, and nothing elsewhere."""
    return text not in ("", ".", "..") and "/" not in text and "\0" not in text


def read_block(name: str, dir_fd: int, offset: int, size: int) -> tuple[bytes, int] | None:
    """At most `size` bytes of a regular file from `offset` on, and the file's size; None without such a file.

    A negative offset counts from the end. Raises OSError.
    """
    fd = open_regular(name, dir_fd)
    if fd is None:
        return None
    try:
        length = os.fstat(fd).st_size
        return os.pread(fd, size, max(0, length + offset) if offset < 0 else offset), length
    finally:
        os.close(fd)


def names_in(dir_fd: int) -> list[str]:
    """Names in a directory, sorted; of very many, some."""
    names = []
    with os.scandir(dir_fd) as entries:
        for entry in entries:
            names.append(entry.name)
            if len(names) == NAMES_LISTED:
                break
    return sorted(names)


def _open_dir(path: Path | str, dir_fd: int | None, follow: bool = False) -> int | None:
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | (0 if follow else os.O_NOFOLLOW)
    try:
        return os.open(path, flags, dir_fd=dir_fd)
    except OSError:
        return None
