"""The machine under the engine: disk, memory, how late the engine's own loop is, and jumps of the clocks."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import shutil
from collections.abc import Callable
from pathlib import Path

import msgspec
import psutil

from console.engine.clocks import Clocks, ClockWatch, read_clocks
from console.journal import events as ev
from console.journal.layout import JournalWriteError

TICK_SECONDS = 0.5
LOOK_SECONDS = 5.0
AT_LEAST_EVERY = 60.0
SMALL_LAG = 0.1
"""Seconds of delay below which one is like another."""
_CGROUP_LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")

log = logging.getLogger(__name__)


class HostWatch:
    """Reports `HostStats`: at least once a minute, and when a figure moved by a tenth. `ClockJumped` at once.

    Args:
        run_dir: its file system is watched; emit: appends an event.
        on_moved: called at each look at which the directory is no longer where it was.
        read: takes a reading of the clocks.
    """

    def __init__(
        self,
        run_dir: Path,
        emit: Callable[[ev.Event], None],
        on_moved: Callable[[], None] = lambda: None,
        read: Callable[[], Clocks] = read_clocks,
    ) -> None:
        self._run_dir, self._emit, self._on_moved = run_dir, emit, on_moved
        self._was = _inode(run_dir)
        self._told: ev.HostStats | None = None
        self._told_at = 0.0
        self._lag = 0.0
        self._clocks = ClockWatch(read)

    async def run(self) -> None:
        """Watch for ever. The first report comes after the first look, when the run's first event is written."""
        loop = asyncio.get_running_loop()
        looked = loop.time()
        while True:
            before = loop.time()
            await asyncio.sleep(TICK_SECONDS)
            self.tick(loop.time() - before - TICK_SECONDS)
            if loop.time() - looked >= LOOK_SECONDS:
                looked = loop.time()
                if await asyncio.to_thread(lambda: self.moved):
                    self._on_moved()
                try:
                    self.report(await asyncio.to_thread(measure, self._run_dir), looked)
                except (OSError, psutil.Error) as problem:
                    log.warning("cannot look at the host: %s", problem)

    def tick(self, late: float) -> None:
        """Look at the clocks; `late`: seconds by which the loop came late to it.

        A machine that wakes up comes late to everything, which says nothing about the loop.
        """
        jump = self._clocks.jump()
        if jump is None or not jump.slept:
            self._lag = max(self._lag, late)
        if jump is not None:
            log.warning("the clocks jumped: slept %.1f s, time of day set by %.1f s", jump.slept, jump.stepped)
            with contextlib.suppress(JournalWriteError):  # the board ends the run
                self._emit(jump)

    @property
    def moved(self) -> bool:
        """Whether the run directory was moved, removed or replaced since the watch was made."""
        return _inode(self._run_dir) != self._was

    def report(self, stats: ev.HostStats, now: float) -> None:
        """Tell of a look at `now` (monotonic seconds), if it is due; the loop's lag is added."""
        stats.loop_lag = round(self._lag, 3)
        if self._told is not None and now - self._told_at < AT_LEAST_EVERY - LOOK_SECONDS and _alike(stats, self._told):
            return
        self._told, self._told_at, self._lag = msgspec.structs.replace(stats), now, 0.0
        with contextlib.suppress(JournalWriteError):  # the board ends the run
            self._emit(stats)


def measure(run_dir: Path) -> ev.HostStats:
    """Disk and memory now; `memory_total` is what this machine, or its container, may use. Raises OSError."""
    disk = shutil.disk_usage(run_dir)
    engine = psutil.Process()
    rss = 0
    for process in (engine, *engine.children(recursive=True)):
        with contextlib.suppress(psutil.Error):  # it has ended meanwhile
            rss += process.memory_info().rss
    return ev.HostStats(disk_free=disk.free, disk_total=disk.total, rss=rss, memory_total=_memory())


def _inode(path: Path) -> tuple[int, int] | None:
    """Which directory it is, None when there is none. Other errors pass: a mount that hangs moves nothing."""
    try:
        found = path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return None
    return found.st_dev, found.st_ino


def _memory() -> int:
    total = psutil.virtual_memory().total
    for path in _CGROUP_LIMITS:
        with contextlib.suppress(OSError, ValueError):
            total = min(total, int(Path(path).read_text()))
    return total


def _alike(a: ev.HostStats, b: ev.HostStats) -> bool:
    pairs = [(a.disk_free, b.disk_free), (a.rss, b.rss)]
    lags = max(a.loop_lag or 0.0, SMALL_LAG), max(b.loop_lag or 0.0, SMALL_LAG)
    return all(abs((x or 0) - (y or 0)) <= 0.1 * max(x or 0, y or 0) for x, y in (*pairs, lags))
