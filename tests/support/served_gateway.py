"""`quarterdeck gateway serve` as a child process that can be killed, and started again with the same checkpoints."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from types import TracebackType
from typing import Self

ROOT = Path(__file__).resolve().parents[2]


class ServedGateway:
    """The bundled model, served like one of the gateways that people have.

    Args:
        directory: of checkpoints and log; options: of `gateway serve`.

    Attributes:
        url: the same after each start.
    """

    def __init__(self, directory: Path, *options: str) -> None:
        self.directory, self._options, self._port = directory, options, 0
        self.url = ""
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it, and wait until it serves."""
        self.directory.mkdir(parents=True, exist_ok=True)
        with (self.directory / "gateway.log").open("ab") as log:
            process = subprocess.Popen(
                [
                    *(sys.executable, "-m", "console", "gateway", "serve", "--port", str(self._port)),
                    *("--checkpoints", str(self.directory), "--exit-with-stdin", *self._options),
                ],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, cwd=ROOT,
            )  # fmt: skip
        assert process.stdout is not None
        self._process = process
        self.url = json.loads(process.stdout.readline())["url"]
        self._port = int(self.url.rpartition(":")[2])

    def kill(self) -> None:
        """Kill it with -9: what it had in memory is gone, its checkpoints stay."""
        assert self._process is not None
        self._process.kill()
        self._reap(self._process)

    def stop(self) -> None:
        """End it in order, if it lives."""
        if self._process is not None and self._process.poll() is None:
            assert self._process.stdin is not None
            self._process.stdin.close()
            try:
                self._process.wait(10)
            except subprocess.TimeoutExpired:
                self._process.kill()
            self._reap(self._process)

    def _reap(self, process: subprocess.Popen[bytes]) -> None:
        process.wait(20)
        for end in (process.stdin, process.stdout):
            if end is not None:
                end.close()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
