"""Starting the embedded gateway as a child process that ends with its parent. Imports neither torch nor tinker."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from console.errors import GatewayLostError
from console.memory_order import GATEWAY, yield_memory

_STOP_SECONDS = 5.0
_SECRETS = ("_API_KEY", "_TOKEN", "_SECRET", "_PASSWORD")


@dataclass
class EmbeddedGateway:
    """A running embedded gateway.

    Attributes:
        url: what a Tinker client takes as its base URL.
        model: the name to ask for as the base model.
        context_window: tokens.
    """

    url: str
    pid: int
    model: str
    context_window: int
    process: asyncio.subprocess.Process
    log_path: Path

    async def stop(self) -> int:
        """End the gateway in order, or by force after a few seconds; returns its exit code. May be called again."""
        process = self.process
        if process.stdin is not None:
            process.stdin.close()
        for end in (None, process.terminate, process.kill):
            if end is not None:
                with contextlib.suppress(ProcessLookupError):
                    end()
            with contextlib.suppress(TimeoutError):
                return await asyncio.wait_for(process.wait(), _STOP_SECONDS)
        return await process.wait()

    def last_log_line(self) -> str:
        """The last line that the gateway logged."""
        return _last_line(self.log_path)


async def start_embedded(
    model_dir: Path,
    *,
    checkpoints: Path,
    log_path: Path,
    name: str | None = None,
    host: str = "127.0.0.1",
    port: int = 0,
    options: Sequence[str] = (),
    timeout: float = 60.0,
) -> EmbeddedGateway:
    """Start a gateway and wait until it serves.

    The child's stdin is a pipe from this process: when this process dies, however it does, the child ends in order.

    Args:
        checkpoints: the directory of its checkpoints; it is made if need be.
        log_path: where its log is appended.
        options: further options of `console.gateway.embedded.serve`.

    Raises:
        GatewayLostError: it ended or did not serve in time; the message has the last line of its log.
    """
    command = [sys.executable, "-m", "console.gateway.embedded", "--exit-with-stdin"]
    command += ["--model", str(model_dir), "--checkpoints", str(checkpoints), "--host", host, "--port", str(port)]
    command += [] if name is None else ["--name", name]
    environment = {key: value for key, value in os.environ.items() if not key.endswith(_SECRETS)}
    with _open_log(log_path) as log:
        process = await asyncio.create_subprocess_exec(
            *command,
            *options,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=log,
            env=environment,
            start_new_session=True,  # an interrupt from the terminal is the parent's to handle
        )
    yield_memory(GATEWAY, process.pid)
    assert process.stdout is not None
    try:
        line = await asyncio.wait_for(process.stdout.readline(), timeout)
        said = json.loads(line) if line else None
    except (TimeoutError, ValueError):
        said = None
    except BaseException:
        await _kill(process)
        raise
    if not isinstance(said, dict) or said.get("type") != "listening":
        ended = process.returncode is not None or await _ends_soon(process)
        await _kill(process)
        what = f"ended with exit code {process.returncode}" if ended else f"did not serve within {timeout:g} s"
        last = _last_line(log_path)
        raise GatewayLostError(f"the embedded gateway {what}" + (f": {last}" if last else f"; see {log_path}"))
    return EmbeddedGateway(said["url"], said["pid"], said["model"], said["context_window"], process, log_path)


async def _ends_soon(process: asyncio.subprocess.Process) -> bool:
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(process.wait(), 1.0)
    return process.returncode is not None


async def _kill(process: asyncio.subprocess.Process) -> None:
    with contextlib.suppress(ProcessLookupError):
        process.kill()
    await process.wait()


def _open_log(path: Path) -> BinaryIO:
    path.parent.mkdir(parents=True, exist_ok=True)
    return path.open("ab")


def _last_line(path: Path) -> str:
    try:
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - 4096))
            lines = file.read().decode(errors="replace").split("\n")
    except OSError:
        return ""
    return next((line.strip() for line in reversed(lines) if line.strip()), "")
