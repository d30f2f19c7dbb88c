"""Viewers without a screen, and what they cost the engine that they look at.

As a program: so many viewers in one process; each follows the stream and applies it. `python viewers.py SOCKET COUNT`
answers a line on its input with the 99th percentile of the delays of the events since the last one, in seconds.
"""

from __future__ import annotations

import asyncio
import os
import socket as sockets
import subprocess
import sys
import time
from dataclasses import dataclass

from engines import Engine
from terminal import ROOT, cpu_seconds, rss

from console.control.follow import RunFollower
from console.journal.events import Event
from console.state.reduce import RunView, apply

WARM_SECONDS = 1.5


@dataclass(frozen=True)
class Slow:
    """Of an engine in fast motion, before and while a viewer does not read: share of a core, bytes, seconds."""

    cpu_before: float
    cpu: float
    memory: float
    delay_before: float
    delay: float


async def view(socket: str, count: int) -> None:
    """Follow with `count` viewers until the input ends."""
    delays: list[float] = []

    async def follow() -> None:
        current = RunView()
        async for item in RunFollower(socket).items():
            if isinstance(item, RunView):
                current = item
            elif isinstance(item, Event):
                delays.append(time.time() - item.ts)
                apply(current, item)

    tasks = [asyncio.create_task(follow()) for _ in range(count)]
    reader = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    while await reader.readline():
        found = sorted(delays) or [0.0]
        delays.clear()
        os.write(1, b"%f\n" % found[int(0.99 * len(found))])
    for task in tasks:
        task.cancel()


class Viewers:
    """Such viewers as a process."""

    def __init__(self, engine: Engine, count: int) -> None:
        self._process = subprocess.Popen(
            [sys.executable, __file__, str(engine.socket), str(count)], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            cwd=ROOT,
        )  # fmt: skip
        self.delay()

    def delay(self) -> float:
        """99th percentile of the delays since it was asked last, seconds."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(b"\n")
        self._process.stdin.flush()
        return float(self._process.stdout.readline())

    def __enter__(self) -> Viewers:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()


def engine_share(scene: str, viewers: int, seconds: float) -> float:
    """Share of a core that the engine of a scene takes with so many viewers."""
    with Engine(scene) as engine, Viewers(engine, viewers):
        time.sleep(WARM_SECONDS)
        return _share(engine, seconds)


def slow_viewer(seconds: float) -> Slow:
    """An engine in fast motion with one viewer that reads; then also with one that never does."""
    with Engine("busy") as engine, Viewers(engine, 1) as viewers:
        engine.go(10**7)
        time.sleep(WARM_SECONDS)
        viewers.delay()
        before, memory = _share(engine, seconds), rss(engine.pid)
        delay_before = viewers.delay()
        with sockets.socket(sockets.AF_UNIX) as silent:
            silent.connect(str(engine.socket))
            silent.sendall(b'{"msg":"subscribe"}\n')
            share = _share(engine, seconds)
            return Slow(before, share, max(0, rss(engine.pid) - memory), delay_before, viewers.delay())


def _share(engine: Engine, seconds: float) -> float:
    before, start = cpu_seconds(engine.pid), time.perf_counter()
    time.sleep(seconds)
    return (cpu_seconds(engine.pid) - before) / (time.perf_counter() - start)


if __name__ == "__main__":
    asyncio.run(view(sys.argv[1], int(sys.argv[2])))
