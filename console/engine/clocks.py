"""Did the machine sleep, or was its time of day set? Told from three clocks that run at one pace otherwise.

The monotonic clock stands still while a machine sleeps, the boot clock goes on, and the time of day can be set besides.
A virtual machine that was paused and not told shows as a time of day that was set forward.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NamedTuple

from console.journal import events as ev

JUMP_SECONDS = 1.0
"""Differences below are rounding, a slew of the time of day, or a moment between two readings."""
_BOOT_CLOCK = getattr(time, "CLOCK_BOOTTIME", getattr(time, "CLOCK_MONOTONIC", None))
"""Linux: CLOCK_BOOTTIME. macOS: its CLOCK_MONOTONIC counts sleep, which `time.monotonic` there does not."""
_CLOSE_SECONDS = 0.02
_READINGS = 5


class Clocks(NamedTuple):
    """One reading, in seconds: without sleep, with sleep, and Unix time."""

    monotonic: float
    boot: float
    wall: float


def read_clocks() -> Clocks:
    """The clocks as close to one moment as it goes: a process may be kept waiting between two readings."""
    for _ in range(_READINGS):
        before = time.monotonic()
        boot = before if _BOOT_CLOCK is None else time.clock_gettime(_BOOT_CLOCK)
        wall = time.time()
        if time.monotonic() - before < _CLOSE_SECONDS:
            break
    return Clocks(before, boot, wall)


class RunClock:
    """The time of a run, in Unix seconds: the machine's when its engine starts, and from then on the boot clock's.

    A time of day that is set while the run goes on moves nothing of it: no order, age or delay becomes wrong, and no
    event stands still. The next engine begins with the machine's time again, but never before the run's last event.

    Args:
        last: of the run's last event, Unix seconds; read: takes a reading.
    """

    def __init__(self, last: float = 0.0, read: Callable[[], Clocks] = read_clocks) -> None:
        self._read = read
        begun = read()
        self._began = max(begun.wall, last) - begun.boot

    def now(self) -> float:
        """Unix seconds."""
        return self._began + self._read().boot

    def ahead(self) -> float:
        """Seconds by which the run's time is ahead of the time of day."""
        seen = self._read()
        return self._began + seen.boot - seen.wall


class ClockWatch:
    """Compares each reading with the one before.

    Args:
        read: takes a reading; another one for tests.
    """

    def __init__(self, read: Callable[[], Clocks] = read_clocks) -> None:
        self._read = read
        self._last = read()

    def jump(self) -> ev.ClockJumped | None:
        """What happened since the last call, None when nothing did. Each jump is told once."""
        before, now = self._last, self._read()
        self._last = now
        passed = now.boot - before.boot
        slept = passed - (now.monotonic - before.monotonic)
        stepped = (now.wall - before.wall) - passed
        told = ev.ClockJumped(
            slept=round(slept, 3) if slept >= JUMP_SECONDS else 0.0,
            stepped=round(stepped, 3) if abs(stepped) >= JUMP_SECONDS else 0.0,
        )
        return told if told.slept or told.stepped else None
