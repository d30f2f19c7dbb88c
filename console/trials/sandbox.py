"""Client of the warden and its keepers: start a sandbox, run commands in it, open its files, take it down.

Asynchronous; one warden process per event loop's process, started on first use. Imports no Harbor.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import socket
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from console.trials.output import Output
from console.trials.roots import remove_root

_WARDEN_ENVIRONMENT = ("PATH", "LD_LIBRARY_PATH")  # an interpreter may need the second; secrets have no place there

_STOP_LIMIT = 20.0
"""Seconds to wait for a sandbox to be gone."""


class SandboxLostError(RuntimeError):
    """The sandbox died under its trial: infrastructure, never the policy's doing."""


class EnvironmentStartError(RuntimeError):
    """The sandbox did not start; the message carries bubblewrap's own words."""


@dataclass(frozen=True)
class Completed:
    """A finished command: exit code (124 when it was timed out), and what it wrote, bounded."""

    code: int
    stdout: str
    stderr: str
    timed_out: bool = False


class Warden:
    """The warden process of this process."""

    _current: Warden | None = None
    inherited_fd: int | None = None
    """A descriptor that the warden and its keepers hold until they end, for whoever waits for that."""

    def __init__(self) -> None:
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        package_root = str(Path(__file__).parents[2])
        code = f"import sys; sys.path.insert(0, {package_root!r}); from console.trials.warden import main; "
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-S", "-c", code + f"main({theirs.fileno()}, {self.inherited_fd})"],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()] if self.inherited_fd is None else [theirs.fileno(), self.inherited_fd],
                env={name: os.environ[name] for name in _WARDEN_ENVIRONMENT if name in os.environ},
                cwd="/",
            )
        self._owner = os.getpid()

    @classmethod
    def current(cls) -> Warden:
        """The running warden; a new one when there is none, it died, or this process is a fork."""
        warden = cls._current
        if warden is None or warden._owner != os.getpid() or warden._process.poll() is not None:
            warden = cls._current = Warden()
        return warden

    @property
    def pid(self) -> int:
        return self._process.pid

    def start(self, spec: dict[str, Any], keeper_end: socket.socket) -> None:
        """Ask for a sandbox; the keeper answers on the other end of `keeper_end`."""
        payload = memory_file(spec)
        try:
            socket.send_fds(self._socket, [b'{"op": "start"}'], [payload, keeper_end.fileno()])
        finally:
            os.close(payload)

    def forget(self, root: Path) -> None:
        """The root is removed, or to be kept: not the warden's to remove."""
        with contextlib.suppress(OSError):
            self._socket.send(json.dumps({"op": "forget", "root": str(root)}).encode())


def memory_file(content: dict[str, Any]) -> int:
    fd = os.memfd_create("payload", os.MFD_CLOEXEC)
    os.write(fd, json.dumps(content).encode())
    return fd


class Sandbox:
    """One sandbox. Not reusable: start once, stop once or more.

    Attributes:
        name: for messages; root: the host directory with its files, None when they are in memory.
    """

    def __init__(self, name: str, root: Path | None = None) -> None:
        self.name, self.root = name, root
        self._channel: socket.socket | None = None
        self._waiting: dict[int, asyncio.Future[tuple[dict[str, Any], int | None]]] = {}
        self._next = 1
        self._up: asyncio.Future[None] | None = None
        self._gone = asyncio.Event()
        self._lost = False
        self._stop: asyncio.Task[None] | None = None

    async def start(self, spec: dict[str, Any]) -> None:
        """Start it; a cancelled start is taken down by `stop`, wherever it stood.

        Raises:
            EnvironmentStartError: it did not come up.
        """
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        ours.setblocking(False)
        loop = asyncio.get_running_loop()
        self._channel, self._up = ours, loop.create_future()
        try:
            with theirs:
                self._warden = Warden.current()
                self._warden.start(spec, theirs)
        except OSError as error:
            ours.close()
            self._channel = None
            raise EnvironmentStartError(f"cannot reach the sandbox warden: {error}") from error
        loop.add_reader(ours, self._receive)
        await self._up

    @property
    def alive(self) -> bool:
        return self._channel is not None and not self._lost and not self._gone.is_set()

    def _receive(self) -> None:
        assert self._channel is not None and self._up is not None
        while True:
            try:
                data, fds, _, _ = socket.recv_fds(self._channel, 65536, 1)
            except BlockingIOError:
                return
            except OSError:
                data, fds = b"", []
            for fd in fds:
                os.set_inheritable(fd, False)
            if not data:
                self._closed()
                return
            self._answer(json.loads(data), fds[0] if fds else None)

    def _answer(self, message: dict[str, Any], fd: int | None) -> None:
        assert self._up is not None
        if "id" in message:
            waiter = self._waiting.pop(message["id"], None)
            if waiter is not None and not waiter.done():
                waiter.set_result((message, fd))
            elif fd is not None:
                os.close(fd)
        elif self._up.done():
            self._lose()
        elif "up" in message:
            self._up.set_result(None)
        else:
            self._up.set_exception(EnvironmentStartError(f"bubblewrap: {message.get('failed', 'died')}"))

    def _closed(self) -> None:
        assert self._channel is not None and self._up is not None
        asyncio.get_running_loop().remove_reader(self._channel)
        self._channel.close()
        self._gone.set()
        if not self._up.done():
            self._up.set_exception(EnvironmentStartError("the sandbox's keeper died"))
        self._lose()

    def _lose(self) -> None:
        self._lost = True
        for waiter in self._waiting.values():
            if not waiter.done():
                waiter.set_exception(SandboxLostError("the sandbox died"))
        self._waiting.clear()

    async def request(
        self, op: str, fds: list[int] | None = None, **arguments: Any
    ) -> tuple[dict[str, Any], int | None]:
        """One request to the keeper: its answer, and the descriptor that came with it (the caller's to close).

        Raises:
            SandboxLostError: the sandbox is gone.
            OSError: the keeper could not do it.
        """
        message, fd = await self._send(op, fds or [], arguments)
        if "error" in message:
            raise OSError(f"{arguments.get('path', op)}: {message['error']}")
        return message, fd

    async def listen(self, address: str, port: int) -> socket.socket:
        """A socket listening on the sandbox's own loopback device, to be served from this process.

        Raises:
            SandboxLostError, OSError: as `request`.
        """
        _, fd = await self.request("listen", address=address, port=port)
        listener = socket.socket(fileno=fd)
        listener.setblocking(False)
        return listener

    def _send(
        self, op: str, fds: list[int], arguments: dict[str, Any], number: int | None = None
    ) -> asyncio.Future[tuple[dict[str, Any], int | None]]:
        """Send at once; the future gets the answer. Packets are small: a full socket means a stuck keeper."""
        if not self.alive or self._channel is None:
            raise SandboxLostError("the sandbox is gone")
        waiter: asyncio.Future[tuple[dict[str, Any], int | None]] = asyncio.get_running_loop().create_future()
        if number is None:
            number, self._next = self._next, self._next + 1
            self._waiting[number] = waiter
        try:
            socket.send_fds(self._channel, [json.dumps({"op": op, "id": number, **arguments}).encode()], fds)
        except OSError as error:
            self._waiting.pop(number, None)
            raise SandboxLostError(f"the sandbox does not answer: {error}") from error
        return waiter

    async def run(self, order: dict[str, Any], timeout: float | None, limit: int) -> Completed:
        """Run a command.

        Args:
            order: `command`, `cwd`, `env` (complete), `limits`, `cpus`.
            timeout: seconds before its process group is killed, None for none.
            limit: characters kept of each stream.

        Raises:
            SandboxLostError: the sandbox died, before or meanwhile.
        """
        out, err = Output(limit), Output(limit)
        number, self._next = self._next, self._next + 1
        payload = memory_file(order)
        waiter = self._waiting[number] = asyncio.get_running_loop().create_future()
        try:
            self._send("exec", [payload, out.write_end, err.write_end], {}, number)
        except BaseException:
            self._waiting.pop(number, None)
            out.close()
            err.close()
            raise
        finally:
            os.close(payload)
        out.listen()
        err.listen()
        timed_out = False
        try:
            done, _ = await asyncio.wait({waiter}, timeout=timeout)
            if not done:
                timed_out = True
                self._kill(number)
                await asyncio.wait({waiter}, timeout=_STOP_LIMIT)
                if not waiter.done():
                    raise SandboxLostError("the sandbox does not answer")
            message, _ = waiter.result()
            if "error" in message:
                raise SandboxLostError(f"the sandbox cannot start a process: {message['error']}")
            await asyncio.gather(out.settle(), err.settle())
            return Completed(124 if timed_out else message["code"], out.text(), err.text(), timed_out)
        except asyncio.CancelledError:
            self._kill(number)
            raise
        finally:
            self._waiting.pop(number, None)
            out.close()
            err.close()

    def _kill(self, number: int) -> None:
        with contextlib.suppress(SandboxLostError):
            self._send("kill", [], {}, number).cancel()

    async def stop(self, keep: bool = False) -> None:
        """Take it down and remove its root (unless `keep`). Runs to its end even when the waiting task is cancelled.

        Raises:
            OSError: the root cannot be removed.
            SandboxLostError: the keeper does not end.
        """
        if self._stop is None:
            self._stop = asyncio.create_task(self._take_down(keep))
        await asyncio.shield(self._stop)

    async def _take_down(self, keep: bool) -> None:
        if self._channel is not None and not self._gone.is_set():
            self._lose()
            with contextlib.suppress(OSError):
                self._channel.shutdown(socket.SHUT_WR)
            try:
                await asyncio.wait_for(self._gone.wait(), _STOP_LIMIT)
            except TimeoutError:
                raise SandboxLostError(f"sandbox {self.name} does not end") from None
        if self.root is None:
            return
        if not keep:
            await asyncio.to_thread(remove_root, self.root)
        if self._channel is not None:
            self._warden.forget(self.root)
