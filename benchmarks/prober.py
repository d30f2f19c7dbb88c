"""What the watch over a gateway costs the engine, at one look every five seconds: processor, delay of the main loop.

The gateway is the embedded one, in a process of its own; the others are small servers that never answer, answer with
garbage, 100 MB, or ten bytes a second. The processor time is that of this process, those servers included.
`python benchmarks/prober.py [--json]`
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import httpx
from report import Figure, add_json_option, emit

from console.gateway.embedded.launch import start_embedded
from console.gateway.health import HealthWatch, SdkFigures
from console.gateway.probe import probe
from console.resources import BUNDLED_MODEL, models_dir

INTERVAL = 5.0
KEY = "tml-benchmark"
OK = b"HTTP/1.1 200 OK\r\n"
SCENES = {
    "answers garbage": (OK + b"Content-Length: 200000\r\n\r\n" + b"[" * 200_000, b""),
    "answers 100 MB": (OK + b"Content-Length: 100000000\r\n\r\n", b"x" * 65536),
    "drips": (OK + b"Content-Length: 100000\r\n\r\n", b" "),
    "never answers": (b"", b""),
}
"""What a server says at first, and then again and again."""


@contextlib.asynccontextmanager
async def server(head: bytes, body: bytes) -> AsyncIterator[str]:
    """A server on a thread-free loop: its work is small, and counted."""

    async def say(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            await reader.readuntil(b"\r\n\r\n")
            writer.write(head)
            while True:
                writer.write(body)
                await writer.drain()
                await asyncio.sleep(0.1 if len(body) < 100 else 0)
                if not body:
                    await reader.read()
                    break
        writer.close()

    running = await asyncio.start_server(say, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{running.sockets[0].getsockname()[1]}"
    finally:
        running.close()


async def cost(look: Callable[[], Awaitable[object]], count: int) -> tuple[float, float]:
    """Seconds of processor a look, and the longest delay of the loop meanwhile, seconds."""
    worst, over = 0.0, asyncio.Event()

    async def feel() -> None:
        nonlocal worst
        while not over.is_set():
            before = time.perf_counter()
            await asyncio.sleep(0.002)
            worst = max(worst, time.perf_counter() - before - 0.002)

    await look()
    quiet = time.process_time()
    feeling = asyncio.create_task(feel())
    await asyncio.sleep(1.0)
    idle = time.process_time() - quiet  # what the feeling itself costs a second
    worst = 0.0
    began, cpu = time.perf_counter(), time.process_time()
    for _ in range(count):
        await look()
    spent = time.process_time() - cpu - idle * (time.perf_counter() - began)
    over.set()
    await feeling
    return max(0.0, spent) / count, worst


def sdk_scene() -> SdkFigures:
    """A busy SDK."""
    return SdkFigures(contact_age=0.1, heartbeat_age=4.0, pending={"sample": 400}, oldest={"sample": 90.0})


async def measure(looks: int) -> list[Figure]:
    """All figures."""
    found: list[Figure] = []
    with tempfile.TemporaryDirectory(prefix="qd-bench-") as directory:
        path = Path(directory)
        gateway = await start_embedded(
            models_dir() / BUNDLED_MODEL, name="m", checkpoints=path / "c", log_path=path / "log"
        )
        try:
            watch = HealthWatch(gateway.url, KEY, INTERVAL, lambda event: None)
            watch.attach(sdk_scene, lease=300.0)
            async with httpx.AsyncClient(trust_env=False) as client:
                spent, worst = await cost(lambda: watch.once(client), looks)
        finally:
            await gateway.stop()
    found.append(Figure("share of a core", 100 * spent / INTERVAL, "%", target=0.5))
    found.append(Figure("a look", 1000 * spent, "ms of processor"))
    found.append(Figure("delay of the loop", 1000 * worst, "ms", target=20.0))
    for name, (head, body) in SCENES.items():
        async with server(head, body) as url, httpx.AsyncClient(trust_env=False) as client:
            spent, worst = await cost(lambda: probe(url, KEY, client=client), 2)
        found.append(Figure(f"share of a core, {name}", 100 * spent / INTERVAL, "%", target=0.5))
        found.append(Figure(f"delay of the loop, {name}", 1000 * worst, "ms"))
    found.append(Figure("SDK's figures with 2000 operations under way", figures_cost(), "ms", target=5.0))
    return found


def figures_cost() -> float:
    """Milliseconds of `SdkWatch.figures` with 2000 promises open."""
    from console.gateway.sdk_watch import SdkWatch, _Promise

    watch = SdkWatch()
    for n in range(2000):
        promise = _Promise("sample", float(n), str(n))
        promise.queue = "active"
        watch._begin(promise)
    began = time.perf_counter()
    for _ in range(20):
        watch.figures()
    return 1000 * (time.perf_counter() - began) / 20


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    add_json_option(parser)
    parser.add_argument("--looks", type=int, default=200)
    args = parser.parse_args()
    emit(asyncio.run(measure(args.looks)), as_json=args.json)


if __name__ == "__main__":
    main()
