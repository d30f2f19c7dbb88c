"""How long a command takes, from the socket to `accepted`, on a board with the real journal and audit on this disk.

The times are taken at the client: `accepted` is when the event of that name has come over the socket, by which it is on
the engine's disk; the result is the reply. `python benchmarks/commands.py [--json]`
"""

from __future__ import annotations

import argparse
import asyncio
import os
import statistics
import tempfile
import time

from engines import Engine
from report import Beside, Figure, add_json_option, emit

from console.control.client import ControlClient, new_command
from console.journal import events as ev

WARM = 20


async def round_trips(scene: str, count: int) -> tuple[list[float], list[float]]:
    """Milliseconds to `accepted` and to the result, of commands sent one after the other to the engine of a scene."""
    with Engine(scene) as engine:
        async with await ControlClient.connect(engine.socket) as client:
            accepted: asyncio.Queue[tuple[str, float]] = asyncio.Queue()
            attached = asyncio.Event()

            async def follow() -> None:
                async for item in client.subscribe():
                    attached.set()
                    if isinstance(item, ev.CommandAccepted):
                        accepted.put_nowait((item.id, time.perf_counter()))

            following = asyncio.create_task(follow())
            await attached.wait()
            to_accepted, to_result = [], []
            for _ in range(WARM + count):
                command = new_command("pause")
                began = time.perf_counter()
                result = await client.command(command)
                to_result.append((time.perf_counter() - began) * 1000)
                known, came = await accepted.get()
                to_accepted.append((came - began) * 1000)
                if result.status != "done" or known != command.id:
                    raise RuntimeError(f"{result.status}: {result.text}")
                await asyncio.sleep(0.01)
            following.cancel()
    return sorted(to_accepted[WARM:]), sorted(to_result[WARM:])


def one_sync(count: int) -> list[float]:
    """Milliseconds of one write of 200 bytes and its fsync on this disk."""
    times = []
    with tempfile.NamedTemporaryFile(prefix="qd-bench-") as file:
        for _ in range(count):
            time.sleep(0.005)
            began = time.perf_counter()
            os.write(file.fileno(), b"x" * 199 + b"\n")
            os.fdatasync(file.fileno())
            times.append((time.perf_counter() - began) * 1000)
    return sorted(times)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    add_json_option(parser)
    parser.add_argument("--commands", type=int, default=400)
    args = parser.parse_args()
    accepted, done = asyncio.run(round_trips("idle", args.commands))
    bare, _ = asyncio.run(round_trips("diskless", args.commands))
    sync = one_sync(args.commands)

    def p99(times: list[float]) -> float:
        return times[int(0.99 * len(times))]

    emit(
        [
            Figure("command, socket to accepted, median", statistics.median(accepted), "ms", 5.0,
                   beside=Beside("without the disk", statistics.median(bare))),
            Figure("command, socket to accepted, p99", p99(accepted), "ms", 5.0,
                   beside=Beside("without the disk", p99(bare))),
            Figure("command, socket to result, median", statistics.median(done), "ms"),
            Figure("command, socket to result, p99", p99(done), "ms"),
            Figure("one write and its sync on this disk, median", statistics.median(sync), "ms"),
            Figure("one write and its sync on this disk, p99", p99(sync), "ms"),
            Figure("load of the machine", os.getloadavg()[0], ""),
        ],
        as_json=args.json,
    )  # fmt: skip


if __name__ == "__main__":
    main()
