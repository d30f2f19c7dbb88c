"""The sandbox ledger: what an announcement costs the event loop, how long its trial waits, how syncs are shared.

    python benchmarks/ledger.py [--trials 512] [--parallel 16] [--directory DIR] [--json]

Trials announce, are created and removed, `--parallel` at a time; each write is checked to have been synced before its
caller went on, by the order of the calls. Beside the shared sync stands one sync a record in a thread of its own.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

from report import Beside, Figure, add_json_option, emit

from console.records.sandbox_ledger import LEDGER, Announced, Created, LedgerView, Record, Removed
from console.trials.ledger import LedgerWriter, append, process_name, this_boot, this_host


class Syncs:
    """Counts `fdatasync`, and remembers what was written before the last one."""

    def __init__(self) -> None:
        self.count, self.late = 0, 0
        self.synced: set[bytes] = set()
        self._written: list[bytes] = []
        self._write, self._sync = os.write, os.fdatasync

    def __enter__(self) -> Syncs:
        os.write, os.fdatasync = self.write, self.sync
        return self

    def __exit__(self, *error: object) -> None:
        os.write, os.fdatasync = self._write, self._sync

    def write(self, fd: int, data: Any) -> int:
        done = self._write(fd, data)
        if bytes(data).startswith(b'{"k":'):
            self._written.append(bytes(data))
        return done

    def sync(self, fd: int) -> None:
        written, self._written = self._written, []
        self._sync(fd)
        self.count += 1
        self.synced.update(written)


def announced(name: str) -> Announced:
    return Announced(
        ts=time.time(), name=f"{name}__env", kind="e2b", key="s12.g3.t5.y0", trial=name, where="https://api.e2b.app",
        account="0123abcd", cpus=2, memory_mb=4096, lease=3600, engine=process_name(os.getppid()),
        runner=process_name(os.getpid()), boot=this_boot(), host=this_host(),
    )  # fmt: skip


async def run(path: Path, trials: int, parallel: int) -> tuple[list[float], list[float], Syncs]:
    """Seconds waited for each announcement, seconds of loop time of each call, and the syncs."""
    waits: list[float] = []
    writer = LedgerWriter(path)
    gate = asyncio.Semaphore(parallel)

    async def one(number: int) -> None:
        async with gate:
            made = announced(f"task-{number}__s12.g3.t5.y0-0123ab")
            began = time.perf_counter()
            await writer.write(made)
            waits.append(time.perf_counter() - began)
            if not any(made.name.encode() in line for line in syncs.synced):
                syncs.late += 1
            await writer.write(Created(ts=time.time(), name=made.name, ids=["i0123456789abcdef"]))
            await writer.write(Removed(ts=time.time(), name=made.name))

    with Syncs() as syncs:
        await asyncio.gather(*(one(number) for number in range(trials)))
    await asyncio.to_thread(writer.close)
    return waits, await loop_time(path.with_name("again"), trials), syncs


async def loop_time(path: Path, calls: int) -> list[float]:
    """CPU seconds of the loop's thread for each of `calls` writes, measured in batches of 16."""
    writer = LedgerWriter(path)
    made = announced("task")
    await writer.write(made)
    costs = []
    for _ in range(max(1, calls // 16)):
        began = time.thread_time()
        await asyncio.gather(*(writer.write(made) for _ in range(16)))
        costs.append((time.thread_time() - began) / 16)
    await asyncio.to_thread(writer.close)
    return costs


async def each_alone(path: Path, trials: int, parallel: int) -> list[float]:
    """Seconds waited when every record is opened, written and synced by itself in a thread."""
    waits: list[float] = []
    gate = asyncio.Semaphore(parallel)

    async def one(record: Record) -> None:
        async with gate:
            began = time.perf_counter()
            await asyncio.to_thread(append, path, record)
            waits.append(time.perf_counter() - began)

    await asyncio.gather(*(one(announced(f"task-{number}")) for number in range(trials)))
    return waits


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--trials", type=int, default=512)
    parser.add_argument("--parallel", type=int, default=16)
    parser.add_argument("--directory", type=Path, help="on the disk to measure; default: the temporary directory")
    add_json_option(parser)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=args.directory) as name:
        path = Path(name, LEDGER)
        waits, costs, syncs = asyncio.run(run(path, args.trials, args.parallel))
        alone = asyncio.run(each_alone(Path(name, "alone"), args.trials, args.parallel))
        view = LedgerView(name)
        began = time.perf_counter()
        view.refresh()
        first = time.perf_counter() - began
        began = time.perf_counter()
        for _ in range(100):
            view.refresh()
            view.cost(time.time())
        idle = (time.perf_counter() - began) / 100
        records = 3 * args.trials
        if syncs.late or view.open or view.damaged:
            raise SystemExit(f"{syncs.late} records were not on the disk in time, {len(view.open)} entries are open")

    beside = Beside("one sync a record", 1000 * statistics.median(alone))
    emit(
        [
            Figure("loop time of a call, median", 1000 * statistics.median(costs), "ms", target=0.2),
            Figure("wait for an announcement, median", 1000 * statistics.median(waits), "ms", target=50, beside=beside),
            Figure("wait for an announcement, longest", 1000 * max(waits), "ms", target=50),
            Figure("records a sync", records / max(1, syncs.count), "records", better="higher"),
            Figure("announced and not on the disk", syncs.late, "records", target=0),
            Figure("first read of the ledger", 1000 * first, "ms"),
            Figure("a refresh with nothing new", 1000 * idle, "ms", target=1),
        ],
        args.json,
    )


if __name__ == "__main__":
    main()
