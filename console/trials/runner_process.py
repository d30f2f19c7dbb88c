"""The engine's side of one runner process: its start, its trials, and its end with all that it had."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
import sys
from collections.abc import Callable
from pathlib import Path

import msgspec

from console.errors import QuarterdeckError
from console.trials.ledger import process_name
from console.trials.orphans import Settled, settle_runner
from console.trials.protocol import (
    CancelTrial,
    FromRunner,
    RunnerLog,
    RunnerReady,
    RunnerSpent,
    Shutdown,
    StartTrial,
    ToRunner,
    TrialProgress,
    TrialReport,
)
from console.trials.roots import ENVIRONMENT_VARIABLE, sweep

log = logging.getLogger(__name__)

LINE_LIMIT = 16 << 20
SETTLE_LIMIT = 15.0
"""Seconds for the sandboxes of a dead runner to be found and removed; what is not confirmed by then is left."""
_START_LIMIT = 120.0
_DRAIN_LIMIT = 30.0
"""Seconds for the trials of a runner that cannot go on to end in it."""
_ENVIRONMENT = {
    "HARBOR_TELEMETRY": "0",
    "LITELLM_LOCAL_MODEL_COST_MAP": "True",  # importing litellm would fetch it from the network
    "PYTHONUNBUFFERED": "1",
}
_PAGE = os.sysconf("SC_PAGE_SIZE")

type OnProgress = Callable[[TrialProgress], None]


class RunnerStartError(QuarterdeckError):
    """A runner process did not come up; the message quotes the end of its log."""


class RunnerProcess:
    """One runner process and the trials it has in hand."""

    def __init__(
        self, log_path: Path, root_dir: Path | None, ledger: Path | None, stop_limit: float, left: list[str]
    ) -> None:
        self._left, self._ledger = left, ledger
        self._log_path, self._root_dir, self._stop_limit = log_path, root_dir, stop_limit
        self.pid = 0
        self.versions: dict[str, str] = {}
        self.reports: dict[str, asyncio.Future[TrialReport]] = {}
        self._listeners: dict[str, OnProgress] = {}
        self._phases: dict[str, str] = {}
        self._decoder = msgspec.json.Decoder(FromRunner)
        self._encoder = msgspec.json.Encoder()
        self._over: asyncio.Task[None] | None = None
        self._draining: asyncio.Task[None] | None = None
        self.closing = False
        self.spent = ""
        """What it has none left of: nothing new begins in it."""

    @property
    def alive(self) -> bool:
        return self._over is not None and not self._over.done() and not self.closing

    @property
    def gone(self) -> bool:
        return self._over is None or self._over.done()

    @property
    def takes_trials(self) -> bool:
        return self.alive and not self.spent

    async def start(self) -> None:
        """Spawn it and wait until it takes trials.

        Raises:
            RunnerStartError: it does not come up.
        """
        spawn = asyncio.ensure_future(self._spawn())
        try:
            await asyncio.shield(spawn)
            await asyncio.wait_for(asyncio.shield(self._ready), _START_LIMIT)
        except BaseException as error:
            await asyncio.wait({spawn})  # cut off in the middle, it would leave a process that nobody knows
            if spawn.exception() is None and self._over is not None:
                self.kill()
                await self._over
            if isinstance(error, TimeoutError):
                raise RunnerStartError(f"the runner does not come up within {_START_LIMIT:.0f} s") from None
            raise

    async def _spawn(self) -> None:
        ours, theirs = socket.socketpair()
        # Held by the runner, its warden and its keepers: end of file means that all of them are gone.
        held_read, held_write = os.pipe()
        environment = os.environ | _ENVIRONMENT
        if self._root_dir is not None:
            environment[ENVIRONMENT_VARIABLE] = str(self._root_dir.absolute())
        self._log_path.parent.mkdir(parents=True, exist_ok=True)
        ledger = () if self._ledger is None else ("--ledger", str(self._ledger.absolute()))
        try:
            with self._log_path.open("ab") as log_file:
                self._process = await asyncio.create_subprocess_exec(
                    *(sys.executable, "-m", "console.trials.runner"),
                    *("--fd", str(theirs.fileno()), "--held-fd", str(held_write), *ledger),
                    stdin=asyncio.subprocess.DEVNULL,
                    stdout=log_file,
                    stderr=log_file,
                    env=environment,
                    pass_fds=[theirs.fileno(), held_write],
                    start_new_session=True,
                )
        except OSError as error:
            ours.close()
            os.close(held_read)
            raise RunnerStartError(f"cannot start a runner: {error}") from error
        finally:
            theirs.close()
            os.close(held_write)
        self.pid = self._process.pid
        self._name = process_name(self.pid)
        loop = asyncio.get_running_loop()
        self._gone = asyncio.StreamReader()
        transport, _ = await loop.connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(self._gone), os.fdopen(held_read, "rb")
        )
        self._held = transport
        self._reader, self._writer = await asyncio.open_connection(sock=ours, limit=LINE_LIMIT)
        self._ready: asyncio.Future[None] = loop.create_future()
        self._over = asyncio.create_task(self._read())

    async def _read(self) -> None:
        """Until the runner closes its end, then until it and its sandboxes are gone; then every trial has a report."""
        code: int | None = None
        left: list[str] = []
        settled = Settled({}, [])
        try:
            await self._take_all()
            code = await self._end()
            left = await asyncio.to_thread(sweep, self._root_dir) if self._root_dir is not None else []
            # What it had when it died. After an orderly end that is what it could not remove: one more try.
            settled = await settle_runner(self._ledger, self._name, f"engine: runner {self.pid} ended", SETTLE_LIMIT)
            self._left[:] = [name for name in self._left if name not in settled.keys] + settled.left
        finally:  # whoever waits for a report does so until there is one
            self._report_lost(code, left, settled)

    async def _take_all(self) -> None:
        try:
            while line := await self._reader.readline():
                self._take(self._decoder.decode(line))
        except (OSError, ValueError) as error:  # a reset, an oversized line, or one that is not a message
            if not self.closing:
                log.error("runner %d: %s", self.pid, error)
        self._writer.close()
        if not self.closing:
            self.kill()  # a runner that closed its end unasked is no use

    def _report_lost(self, code: int | None, left: list[str], settled: Settled) -> None:
        if not self._ready.done():
            self._ready.set_exception(RunnerStartError(f"the runner ended at once: {self._log_end()}"))
            self._ready.exception()  # seen: whoever waited may have been cancelled
        died = f"the runner process {self.pid} died (exit status {code})"
        if self.spent:
            died = f"the runner process {self.pid} had no {self.spent} left and was ended"
        for key, report in self.reports.items():
            if not report.done():
                report.set_result(
                    TrialReport(
                        key=key,
                        exception_type="RunnerLostError",
                        exception_message=died,
                        exception_phase=self._phases.get(key),
                        sandbox_left=left + [name for name in settled.left if settled.keys[name] == key],
                    )
                )

    async def _end(self) -> int | None:
        """Exit status, once the process and everything it started are gone or the limit has passed."""
        code = None
        try:
            async with asyncio.timeout(self._stop_limit):
                code = await self._process.wait()
        except TimeoutError:
            self.kill()
            code = await self._process.wait()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._stop_limit):
                await self._gone.read()
        self._held.close()
        return code

    def _log_end(self) -> str:
        try:
            lines = self._log_path.read_text(errors="replace").strip().splitlines()
        except OSError:
            lines = []
        return f"{lines[-1][:300] if lines else 'it said nothing'} (see {self._log_path})"

    def _take(self, message: FromRunner) -> None:
        match message:
            case RunnerReady():
                self.versions = message.versions
                if not self._ready.done():
                    self._ready.set_result(None)
            case TrialProgress():
                self._phases[message.key] = message.phase
                if (listener := self._listeners.get(message.key)) is not None:
                    try:
                        listener(message)
                    except Exception:
                        log.exception("progress of %s", message.key)
            case TrialReport():
                self._left += message.sandbox_left
                report = self.reports.get(message.key)
                if report is not None and not report.done():
                    report.set_result(message)
            case RunnerSpent():
                log.warning("runner %d has no %s left: it takes no more trials", self.pid, message.lacks)
                self.spent = message.lacks
                self._draining = asyncio.create_task(self._drain())
            case RunnerLog():
                log.log(logging.getLevelNamesMapping().get(message.level, logging.WARNING), "runner: %s", message.text)

    def _send(self, message: ToRunner) -> None:
        self._writer.write(self._encoder.encode(message) + b"\n")

    async def run(self, spec: StartTrial, on_progress: OnProgress) -> TrialReport:
        report: asyncio.Future[TrialReport] = asyncio.get_running_loop().create_future()
        self.reports[spec.key] = report
        self._listeners[spec.key] = on_progress
        try:
            self._send(spec)
            try:
                return await asyncio.shield(report)
            except asyncio.CancelledError:
                await self._cancel(spec.key, report)
                raise
        finally:
            del self.reports[spec.key]
            del self._listeners[spec.key]
            self._phases.pop(spec.key, None)

    async def _cancel(self, key: str, report: asyncio.Future[TrialReport]) -> None:
        """Until the report is there, that is, the sandbox gone; a runner that does not obey is killed."""
        self._send(CancelTrial(key=key))
        end = asyncio.get_running_loop().time() + self._stop_limit
        while not report.done():
            left = end - asyncio.get_running_loop().time()
            if left <= 0:
                log.error("runner %d does not cancel %s: killed", self.pid, key)
                self.kill()
                end += self._stop_limit * 3
            try:
                await asyncio.wait({report}, timeout=max(left, 0.1))
            except asyncio.CancelledError:  # cancelled again: the sandbox must still go
                continue

    def kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            self._process.kill()

    async def _drain(self) -> None:
        """What it has may end in it for a while; then it goes, and the rest with it.

        Without memory a read of a command's output fails, and such a trial would wait for ever.
        """
        running = list(self.reports.values())
        if running:
            _, running_still = await asyncio.wait(running, timeout=_DRAIN_LIMIT)
            if running_still:
                self.kill()
        await self.close()

    async def close(self) -> None:
        """In order: its trials are cancelled, its sandboxes go, it exits; by force after the limit."""
        if self._over is None:
            return
        if not self.closing:
            self.closing = True
            with contextlib.suppress(OSError):
                self._send(Shutdown())
        done, _ = await asyncio.wait({self._over}, timeout=self._stop_limit)
        if not done:
            self.kill()
            await self._over

    def rss_mb(self) -> float:
        """Resident memory, 0 for a process that is gone."""
        try:
            return int(Path(f"/proc/{self.pid}/statm").read_text().split()[1]) * _PAGE / (1 << 20)
        except OSError:
            return 0.0
