"""Harbor's process: its start, its log, what it says, and its end."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import socket
import sys
from pathlib import Path
from typing import Any

import msgspec

from console.records.sandbox_ledger import LEDGER
from console.trials.job_plugin_protocol import LINE_LIMIT, FromJob, ToJob
from console.trials.ledger import process_name

LOG = "harbor.log"
LOG_LIMIT = 16 << 20
"""Bytes of the log beyond which its beginning is dropped."""
LOG_KEPT = 4 << 20
TERM_SECONDS, KILL_SECONDS = 40.0, 5.0
"""After an interrupt Harbor takes its sandboxes down; then it is asked once more, and then it is killed."""

_MAIN, _PLUGIN = "console.trials.job_plugin_main", "console.trials.job_plugin:Watch"
_QUIET = {
    "HARBOR_TELEMETRY": "0",
    "LITELLM_LOCAL_MODEL_COST_MAP": "True",
    "TQDM_DISABLE": "1",
    # What it says is read by us: no boxes, no colours, no lines broken at 80 columns.
    "TYPER_STANDARD_TRACEBACK": "1",
    "NO_COLOR": "1",
    "COLUMNS": "400",
}

log = logging.getLogger(__name__)


class HarborProcess:
    """One `harbor run`, in a session of its own.

    Attributes:
        pid: of the process, 0 before its start; owner: its name in the sandbox ledger.
    """

    def __init__(self, job: dict[str, Any], run_dir: Path, run_id: str) -> None:
        self._job, self._run_dir = job, run_dir
        self._config = run_dir / f"job.{run_id}.{os.getpid()}.json"
        self._process: asyncio.subprocess.Process | None = None
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None
        self._encoder, self._decoder = msgspec.json.Encoder(), msgspec.json.Decoder(FromJob)
        self.pid, self.owner = 0, ""

    async def start(self) -> None:
        """Raises OSError: it cannot be started."""
        with os.fdopen(os.open(self._config, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
            file.write(msgspec.json.encode(self._job))
        ours, theirs = socket.socketpair()
        output = os.open(self._run_dir / LOG, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
        kwargs = (f"fd={theirs.fileno()}", f"ledger={self._run_dir / LEDGER}")
        command = [sys.executable, "-P", "-m", _MAIN, "--fd", str(theirs.fileno()), "run", "-c", str(self._config)]
        command += ["-y", "--plugin", _PLUGIN, *(word for kwarg in kwargs for word in ("--plugin-kwarg", kwarg))]
        try:
            self._process = await asyncio.create_subprocess_exec(
                *command,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
                pass_fds=[theirs.fileno()],
                env=os.environ | _QUIET,
            )
        except BaseException:
            ours.close()
            raise
        finally:
            os.close(output)
            theirs.close()
        self.pid = self._process.pid
        self.owner = process_name(self.pid)
        self._reader, self._writer = await asyncio.open_connection(sock=ours, limit=LINE_LIMIT)

    async def read(self) -> FromJob | None:
        """What the watch in it says next; None at its end."""
        assert self._reader is not None
        while True:
            try:
                line = await self._reader.readline()
            except (OSError, ValueError) as error:
                log.error("Harbor's socket: %s", error)
                return None
            if not line:
                return None
            try:
                return self._decoder.decode(line)
            except msgspec.MsgspecError as error:
                log.error("Harbor's socket: %s", error)

    def send(self, message: ToJob) -> None:
        """Tell the watch in it."""
        if self._writer is not None and not self._writer.is_closing():
            self._writer.write(self._encoder.encode(message) + b"\n")

    def forget_config(self) -> None:
        """Remove the job's file: Harbor has read it."""
        with contextlib.suppress(OSError):
            self._config.unlink(missing_ok=True)

    @property
    def exit_code(self) -> int | None:
        """Of the process, negative for a signal; None while it runs, and before."""
        return self._process.returncode if self._process is not None else None

    async def wait(self) -> int:
        """Until it has ended."""
        assert self._process is not None
        return await self._process.wait()

    async def end(self, term_seconds: float = TERM_SECONDS, kill_seconds: float = KILL_SECONDS) -> None:
        """Interrupt it, and insist. When this returns, however it does, nothing of its session is left."""
        if self._process is None:
            return
        try:
            for sig, seconds in ((signal.SIGINT, term_seconds), (signal.SIGTERM, kill_seconds)):
                if await self._ends_after(sig, seconds):
                    return
            log.warning("Harbor did not end when it was told to: killed")
        finally:
            self.kill()
        await self._process.wait()

    async def _ends_after(self, sig: signal.Signals, seconds: float) -> bool:
        assert self._process is not None
        with contextlib.suppress(ProcessLookupError):
            self._process.send_signal(sig)  # to it alone: it still needs the commands that it has started
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._process.wait(), seconds)
        return self._process.returncode is not None

    def kill(self) -> None:
        """At once, with all that it has started and that did not leave its session."""
        if self.pid:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, signal.SIGKILL)

    def close(self) -> None:
        """Leave the socket."""
        self.forget_config()
        if self._writer is not None:
            self._writer.close()

    def trim_log(self) -> None:
        """Keep the end of a log that has grown too large. What is written meanwhile may be lost."""
        path = self._run_dir / LOG
        try:
            if path.stat().st_size <= LOG_LIMIT:
                return
            with path.open("r+b") as file:
                file.seek(-LOG_KEPT, os.SEEK_END)
                kept = file.read(LOG_KEPT)
                file.truncate(0)
                file.seek(0)
                file.write(b"[the beginning of this log was dropped]\n" + kept.partition(b"\n")[2])
        except OSError as error:
            log.warning("%s: %s", path, error)
