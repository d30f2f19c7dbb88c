"""The server: `with E2BServer(directory) as server:` runs it on a thread of its own."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import uvicorn
from e2b.envd.filesystem import filesystem_connect
from e2b.envd.process import process_connect
from starlette.applications import Starlette

from .control import Control
from .envd import FileFacts, Files, Processes
from .faults import CutError, Faults, cutter
from .sandboxes import Sandbox
from .state import KEY, Plan, State

type Receive = Callable[[], Awaitable[dict[str, Any]]]
type Send = Callable[[dict[str, Any]], Awaitable[None]]

_RPC = "/process.Process/", "/filesystem.Filesystem/"


class _App:
    """Sends a request where it belongs, and closes its connection when that is asked for or its client has gone."""

    def __init__(self, state: State) -> None:
        self._apps: dict[str, Any] = {
            _RPC[0]: process_connect.ProcessASGIApplication(Processes(state)),
            _RPC[1]: filesystem_connect.FilesystemASGIApplication(FileFacts(state)),
        }
        self._rest = Starlette(routes=[*Control(state).routes(), *Files(state).routes()])

    async def __call__(self, scope: dict[str, Any], receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        cut, started = asyncio.Event(), False
        cutter.set(cut)
        body = await _body(receive)
        sent = False

        async def heard() -> dict[str, Any]:
            nonlocal sent
            if sent:
                await asyncio.Event().wait()
            sent = True
            return {"type": "http.request", "body": body, "more_body": False}

        async def said(message: dict[str, Any]) -> None:
            nonlocal started
            started = True
            await send(message)

        app = next((app for prefix, app in self._apps.items() if scope["path"].startswith(prefix)), self._rest)
        serving = asyncio.create_task(app(scope, heard, said))
        ends = [asyncio.create_task(cut.wait()), asyncio.create_task(_gone(receive))]
        try:
            await asyncio.wait([serving, *ends], return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (serving, *ends):
                task.cancel()
            done = await asyncio.gather(serving, *ends, return_exceptions=True)
        if not started and (cut.is_set() or isinstance(done[0], CutError)):
            # Whoever returns with less than was promised has its connection closed by uvicorn.
            await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"9")]})
            await send({"type": "http.response.body", "body": b"{", "more_body": True})


async def _body(receive: Receive) -> bytes:
    parts = []
    while True:
        message = await receive()
        parts.append(message.get("body", b""))
        if not message.get("more_body"):
            return b"".join(parts)


async def _gone(receive: Receive) -> None:
    """Until the client has gone."""
    while (await receive())["type"] != "http.disconnect":
        pass


class E2BServer:
    """One E2B account.

    Attributes:
        url: where it listens; faults: to be switched; plan: its limits, which may change while it runs.
        state: all it has, for a look.
    """

    def __init__(self, directory: Path, plan: Plan | None = None, key: str = KEY) -> None:
        self.state = State(directory, plan or Plan(), key)
        self._socket = socket.create_server(("127.0.0.1", 0), backlog=512)
        self.url = f"http://127.0.0.1:{self._socket.getsockname()[1]}"
        self._ready, self._loop = threading.Event(), asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="e2b server")

    @property
    def faults(self) -> Faults:
        return self.state.faults

    @property
    def plan(self) -> Plan:
        return self.state.plan

    @property
    def live(self) -> list[Sandbox]:
        """The sandboxes that are there now."""
        return list(self.state.sandboxes.values())

    @property
    def environment(self) -> dict[str, str]:
        """Environment variables that lead the real SDK here."""
        return {"E2B_API_KEY": self.state.key, "E2B_API_URL": self.url, "E2B_SANDBOX_URL": self.url}

    def end(self, sandbox: Sandbox, why: str = "killed") -> None:
        """It is gone when this returns."""
        asyncio.run_coroutine_threadsafe(self.state.end(sandbox, why), self._loop).result(30)

    def __enter__(self) -> E2BServer:
        self._thread.start()
        assert self._ready.wait(30)
        return self

    def __exit__(self, *error: object) -> None:
        self._uvicorn.should_exit = self._uvicorn.force_exit = True
        self._thread.join(30)

    def _run(self) -> None:
        with contextlib.closing(self._loop):
            self._loop.run_until_complete(self._serve())

    async def _serve(self) -> None:
        config = uvicorn.Config(
            _App(self.state),
            log_level="critical",
            lifespan="off",
            timeout_graceful_shutdown=1,
            timeout_keep_alive=75,
        )
        self._uvicorn = uvicorn.Server(config)
        self._uvicorn.install_signal_handlers = lambda: None  # type: ignore[attr-defined]
        leases = asyncio.create_task(self.state.expire())
        self._ready.set()
        await self._uvicorn.serve(sockets=[self._socket])
        leases.cancel()
        await self.state.close()
        for task in asyncio.all_tasks() - {asyncio.current_task()}:  # requests that hang
            task.cancel()
