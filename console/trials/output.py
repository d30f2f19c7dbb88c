"""Collecting what a command in a sandbox writes, without ever holding more than a bound or spinning on a flood."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os

_PIECE = 1 << 18
_FLOOD_PAUSE = 0.01
"""Seconds between reads once the bound is passed: a flood then costs a few percent of a core, and is slowed down."""
_SETTLE_STEP, _SETTLE_STEPS = 0.02, 5


class Output:
    """One stream of one command: a pipe whose write end the sandbox gets."""

    def __init__(self, limit: int) -> None:
        """
        Args:
            limit: bytes kept; the rest is counted and dropped.
        """
        self._read_end, self.write_end = os.pipe()
        os.set_blocking(self._read_end, False)
        with contextlib.suppress(OSError, AttributeError):
            fcntl.fcntl(self._read_end, fcntl.F_SETPIPE_SZ, _PIECE)
        self._limit = limit
        self._kept = bytearray()
        self._dropped = 0
        self._ended = False
        self._timer: asyncio.TimerHandle | None = None

    def listen(self) -> None:
        """Start collecting. The write end has been handed over."""
        self._loop = asyncio.get_running_loop()
        os.close(self.write_end)
        self.write_end = -1
        self._loop.add_reader(self._read_end, self._readable)

    def _readable(self) -> None:
        self._drain()
        if self._dropped and not self._ended:
            self._loop.remove_reader(self._read_end)
            self._timer = self._loop.call_later(_FLOOD_PAUSE, self._resume)

    def _resume(self) -> None:
        self._timer = None
        self._loop.add_reader(self._read_end, self._readable)

    def _drain(self) -> bool:
        """One read; False when there was nothing."""
        if self._ended:
            return False
        try:
            piece = os.read(self._read_end, _PIECE)
        except BlockingIOError:
            return False
        if not piece:
            self._ended = True
            self._loop.remove_reader(self._read_end)
            return False
        room = self._limit - len(self._kept)
        self._kept += piece[:room]
        self._dropped += max(0, len(piece) - room)
        return True

    async def settle(self) -> None:
        """After the command has ended: take what it left in the pipe.

        Its background processes may hold the pipe open for ever, so end of file is not waited for; output of a process
        substitution that ends just behind its shell still arrives.
        """
        for _ in range(_SETTLE_STEPS):
            while self._drain():
                if self._dropped:
                    return
            if self._ended:
                return
            await asyncio.sleep(_SETTLE_STEP)

    def text(self) -> str:
        """What was kept, decoded with replacement characters; a last line tells what was dropped."""
        text = self._kept.decode(errors="replace")
        return text if not self._dropped else f"{text}\n[{self._dropped} or more bytes of output dropped]\n"

    def close(self) -> None:
        """Idempotent."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self.write_end >= 0:
            os.close(self.write_end)
            self.write_end = -1
        if self._read_end >= 0:
            if hasattr(self, "_loop"):
                self._loop.remove_reader(self._read_end)
            os.close(self._read_end)
            self._read_end = -1
