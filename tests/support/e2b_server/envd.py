"""What runs inside a sandbox, as the SDK sees it: files over HTTP, processes and file facts over Connect RPC."""

from __future__ import annotations

import asyncio
import signal
from base64 import b64decode
from collections.abc import AsyncIterator, Mapping
from typing import Any

from connectrpc.code import Code
from connectrpc.errors import ConnectError
from e2b.envd.filesystem import filesystem_connect, filesystem_pb
from e2b.envd.process import process_connect, process_pb
from protobuf import Oneof
from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, Response
from starlette.routing import Route

from .control import refusal
from .faults import Fault, RefusedError, cutter
from .sandboxes import Process, Sandbox
from .state import State

_CODES = {400: Code.INVALID_ARGUMENT, 401: Code.UNAUTHENTICATED, 404: Code.NOT_FOUND, 429: Code.RESOURCE_EXHAUSTED}
_KEEPALIVE = 20.0


def sandbox_of(state: State, headers: Mapping[str, str]) -> Sandbox:
    """The one that a request is for.

    Raises:
        RefusedError: 502 as the proxy answers when there is none, 401 for a wrong token.
    """
    sandbox = state.sandboxes.get(headers.get("e2b-sandbox-id", ""))
    if sandbox is None or sandbox.state != "running" or sandbox.ended is not None:
        raise RefusedError(502, "The sandbox was not found")
    if headers.get("x-access-token") != sandbox.token:
        raise RefusedError(401, "unauthorized access, please provide a valid access token")
    return sandbox


def user_of(sandbox: Sandbox, name: str | None) -> str:
    """The user that a request names, who must exist in the image."""
    if sandbox.home(name or "user") is None:
        raise RefusedError(401, f"invalid username: '{name}'")
    return name or "user"


class Files:
    """The HTTP part."""

    def __init__(self, state: State) -> None:
        self._state = state

    def routes(self) -> list[Route]:
        return [
            Route("/files", self._guarded("read", self.read), methods=["GET"]),
            Route("/files", self._guarded("write", self.write), methods=["POST"]),
            Route("/health", self._guarded("health", self.health), methods=["GET"]),
        ]

    def _guarded(self, operation: str, handler: Any) -> Any:
        async def guarded(request: Request) -> Response:
            self._state.calls[operation] += 1
            try:
                sandbox = sandbox_of(self._state, request.headers)
                path = request.query_params.get("path", "")
                await self._state.faults.meet(operation, sandbox.session, path)
                answer: Response = await handler(sandbox, request)
                await self._state.faults.meet(operation, sandbox.session, path, after=True)
                return answer
            except RefusedError as error:
                return refusal(error)

        return guarded

    async def health(self, sandbox: Sandbox, request: Request) -> Response:
        return Response(status_code=204)

    async def read(self, sandbox: Sandbox, request: Request) -> Response:
        user = user_of(sandbox, request.query_params.get("username"))
        path = sandbox.in_working_directory(request.query_params["path"], user)
        host = sandbox.host_path(path)
        if host is None or not host.exists():
            raise RefusedError(404, f"path '{path}' does not exist")
        if not host.is_file():
            raise RefusedError(400, f"path '{path}' is not a file")
        return FileResponse(host, media_type="application/octet-stream")

    async def write(self, sandbox: Sandbox, request: Request) -> Response:
        user = user_of(sandbox, request.query_params.get("username"))
        name = request.query_params.get("path")
        if request.headers.get("content-type", "").startswith("multipart/"):
            file: Any = (await request.form())["file"]
            data, name = await file.read(), name or file.filename
        else:
            data = await request.body()
        path = sandbox.in_working_directory(name or "", user)
        host = sandbox.host_path(path)
        if host is None or host.is_dir():
            raise RefusedError(400, f"path is a directory: {path}")
        host.parent.mkdir(parents=True, exist_ok=True)
        host.write_bytes(data)
        return JSONResponse([{"name": host.name, "type": "file", "path": path}])


def _as_rpc(error: RefusedError) -> ConnectError:
    """The Connect error of a refusal; a missing sandbox is the proxy's to tell, as UNAVAILABLE."""
    return ConnectError(_CODES.get(error.status, Code.UNAVAILABLE), error.message)


class Processes(process_connect.Process):
    """Start, connect to, list and signal processes."""

    def __init__(self, state: State) -> None:
        self._state = state

    async def start(self, request: Any, ctx: Any) -> AsyncIterator[Any]:
        self._state.calls["start"] += 1
        command = " ".join([request.process.cmd, *request.process.args])
        limit = ctx.request_headers.get("connect-timeout-ms")
        try:
            sandbox = sandbox_of(self._state, ctx.request_headers)
            user = user_of(sandbox, _basic_user(ctx.request_headers))
            await self._state.faults.meet("start", sandbox.session, command)
            cwd = sandbox.host_path(request.process.cwd or "/")
            if cwd is None or not (cwd.is_dir() or request.process.cwd.startswith(("/usr", "/proc", "/dev"))):
                raise RefusedError(400, f"cwd '{request.process.cwd}' does not exist")
            process = await sandbox.run(request.process, user, float(limit) / 1000 if limit else None)
        except RefusedError as error:
            raise _as_rpc(error) from None
        fault = self._state.faults.take("run", sandbox.session, command)
        async for event in self._events(sandbox, process, fault):
            yield process_pb.StartResponse(event=event)

    async def connect(self, request: Any, ctx: Any) -> AsyncIterator[Any]:
        self._state.calls["connect"] += 1
        try:
            sandbox = sandbox_of(self._state, ctx.request_headers)
            await self._state.faults.meet("connect", sandbox.session)
        except RefusedError as error:
            raise _as_rpc(error) from None
        process = self._process(sandbox, request)
        async for event in self._events(sandbox, process, None):
            yield process_pb.ConnectResponse(event=event)

    async def _events(self, sandbox: Sandbox, process: Process, fault: Fault | None) -> AsyncIterator[Any]:
        """From the start event to the end, or to what the fault does."""
        kinds = process_pb.ProcessEvent
        heard = process.listen()
        yield kinds(event=Oneof("start", kinds.StartEvent(pid=process.pid)))
        due = asyncio.create_task(self._suffer(sandbox, fault)) if fault is not None else None
        try:
            while True:
                try:
                    kind, value = await asyncio.wait_for(heard.get(), _KEEPALIVE)
                except TimeoutError:
                    yield kinds(event=Oneof("keepalive", kinds.KeepAlive()))
                    continue
                if kind == "lost":
                    message = f"the connection to sandbox {sandbox.id} ended before the stream completed"
                    raise ConnectError(Code.UNAVAILABLE, message)
                if kind == "end":
                    end = kinds.EndEvent(exit_code=value, exited=True, status=f"exit status {value}")
                    yield kinds(event=Oneof("end", end))
                    return
                yield kinds(event=Oneof("data", kinds.DataEvent(output=Oneof(kind, value))))
        finally:
            if due is not None:
                due.cancel()

    async def _suffer(self, sandbox: Sandbox, fault: Fault) -> None:
        await asyncio.sleep(fault.seconds)
        if fault.do == "kill":
            await asyncio.shield(self._state.end(sandbox, "lease"))
        elif fault.do == "cut":
            cutter.get().set()

    async def list(self, request: Any, ctx: Any) -> Any:
        try:
            sandbox = sandbox_of(self._state, ctx.request_headers)
        except RefusedError as error:
            raise _as_rpc(error) from None
        listed = [process_pb.ProcessInfo(config=p.config, pid=p.pid) for p in sandbox.processes.values()]
        return process_pb.ListResponse(processes=listed)

    async def send_signal(self, request: Any, ctx: Any) -> Any:
        self._state.calls["signal"] += 1
        try:
            sandbox = sandbox_of(self._state, ctx.request_headers)
        except RefusedError as error:
            raise _as_rpc(error) from None
        kill = request.signal == process_pb.Signal.SIGKILL
        self._process(sandbox, request).signal(signal.SIGKILL if kill else signal.SIGTERM)
        return process_pb.SendSignalResponse()

    def _process(self, sandbox: Sandbox, request: Any) -> Process:
        pid = request.process.selector.value
        if pid not in sandbox.processes:
            raise ConnectError(Code.NOT_FOUND, f"process with pid {pid} not found")
        return sandbox.processes[pid]


class FileFacts(filesystem_connect.Filesystem):
    """What a path is."""

    def __init__(self, state: State) -> None:
        self._state = state

    async def stat(self, request: Any, ctx: Any) -> Any:
        self._state.calls["stat"] += 1
        try:
            sandbox = sandbox_of(self._state, ctx.request_headers)
            await self._state.faults.meet("stat", sandbox.session, request.path)
            path = sandbox.in_working_directory(request.path, user_of(sandbox, _basic_user(ctx.request_headers)))
        except RefusedError as error:
            raise _as_rpc(error) from None
        host = sandbox.host_path(path)
        if host is None or not host.exists():
            raise ConnectError(Code.NOT_FOUND, f"file not found: {path}")
        kind = filesystem_pb.FileType.DIRECTORY if host.is_dir() else filesystem_pb.FileType.FILE
        size = 0 if host.is_dir() else host.stat().st_size
        entry = filesystem_pb.EntryInfo(name=host.name, path=path, size=size, type=kind)
        return filesystem_pb.StatResponse(entry=entry)


def _basic_user(headers: Mapping[str, str]) -> str | None:
    scheme, _, encoded = headers.get("authorization", "").partition(" ")
    return b64decode(encoded).decode().partition(":")[0] if scheme == "Basic" else None
