"""Ending an owned run in order when its command is told to go: signals, and a closed output."""

from __future__ import annotations

import os
import signal
import socket
import threading
import time
from types import FrameType, TracebackType
from typing import Any, TextIO

from console.control.client import new_command, send_command
from console.control.runs import RunInfo
from console.errors import ControlError

SIGNALS = (signal.SIGHUP, signal.SIGINT, signal.SIGTERM)
ATTEMPTS = 30
_BYTE_CLOSE, _BYTE_CLOSED_OUTPUT = 0, 255


class Stopper:
    """While entered: the first signal stops the run within seconds, the second one at once.

    Job runners kill some seconds after their first signal: what cannot be taken down by then is left to the runners,
    which go on without the engine, and to `reap`.

    A thread does the work, woken through a pipe, because the main thread may be blocked in a write to a full stdout,
    where a signal handler still runs but nothing else does.

    Attributes:
        exit_code: 128 + the first signal, or what `stop` was given; None while nobody asked.
    """

    def __init__(self, run: RunInfo, err: TextIO) -> None:
        self.exit_code: int | None = None
        self._run, self._err = run, err
        self._read, self._write = os.pipe()
        self._reason = ""
        self._before: dict[int, Any] = {}
        self._thread = threading.Thread(target=self._serve, name="stopper", daemon=True)

    def __enter__(self) -> Stopper:
        self._thread.start()
        for number in SIGNALS:
            self._before[number] = signal.signal(number, self._on_signal)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        os.write(self._write, bytes([_BYTE_CLOSE]))
        self._thread.join(timeout=2.0)
        os.close(self._write)

    def stop(self, reason: str, exit_code: int) -> None:
        """Stop the run, as a signal would."""
        if self.exit_code is None:
            self.exit_code, self._reason = exit_code, reason
            os.write(self._write, bytes([_BYTE_CLOSED_OUTPUT]))

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        if self.exit_code is None:
            self.exit_code, self._reason = 128 + number, signal.Signals(number).name
        os.write(self._write, bytes([number]))

    def _serve(self) -> None:
        sender: threading.Thread | None = None
        while (byte := os.read(self._read, 1)) and byte[0] != _BYTE_CLOSE:
            if sender is None:
                self._say(f"{self._reason}: stopping the run in order, within 6 seconds; again: at once")
                sender = threading.Thread(target=self._send, name="stop-sender", daemon=True)
                sender.start()
            else:
                self._terminate(f"{signal.Signals(byte[0]).name} again: ending without waiting for sandboxes")
        os.close(self._read)

    def _send(self) -> None:
        """Ask the engine; when its socket fails, terminate its process, which ends it in order as well."""
        command = new_command("stop_now", {"soon": True}, reason=f"the command that owns the run ended: {self._reason}")
        terminated = False
        for _ in range(ATTEMPTS):
            try:
                if self._run.socket is None:
                    raise ControlError("the run has no socket")
                result = send_command(self._run.socket, command, timeout=20.0, run=self._run.run_id)
                if result.status != "done":
                    self._say(f"the engine refused to stop: {result.text}")
                return
            except ControlError as error:
                if not self._run.alive():
                    return
                if not terminated:
                    terminated = True
                    self._terminate(str(error))
            time.sleep(1.0)
        self._say(f"the engine, process {self._run.pid}, does not end; `quarterdeck runs` shows it")

    def _terminate(self, why: str) -> None:
        if self._run.pid is None or self._run.entry.host not in ("", socket.gethostname()):
            return
        self._say(f"{why}; terminating process {self._run.pid}")
        try:
            os.kill(self._run.pid, signal.SIGTERM)
        except OSError:
            pass

    def _say(self, text: str) -> None:
        try:
            self._err.write(f"quarterdeck: {text}\n")
            self._err.flush()
        except (OSError, ValueError):
            pass
