"""A small server that speaks dialects with scripted replies, for trying dialects with real clients over real sockets.

It calls a dialect in the order in which the capture gateway does: parse, then either the reply, or the stream's
opening, keep-alives, and the final events or a failure. It runs in a thread of its own, so that clients which block
can be used too.
"""

from __future__ import annotations

import asyncio
import json
import secrets
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Self

import msgspec
from aiohttp import web

from console.capture import ids
from console.capture.chat import ChatReply, ChatRequest
from console.capture.dialects.base import Dialect
from console.capture.refusals import RefusedError


class Late(Exception):
    """A refusal that comes up after the stream was opened; without a stream it is answered like any other."""

    def __init__(self, refusal: RefusedError) -> None:
        super().__init__(refusal.message)
        self.refusal = refusal


Step = ChatReply | RefusedError | Late | Callable[[ChatRequest], "ChatReply | RefusedError | Late"]


class ScriptedServer:
    """Answers the calls of `dialects` ({path: dialect}), in the order of arrival, with what the script says.

    A reply without a node gets a fresh one, its tool calls without ids get ids made of it (`prefix`), and counts that
    are zero are filled in. When the script has ended, its last step is repeated.

    Attributes:
        requests: what parse made of each body, refused ones left out; bodies, headers: of all calls;
        answered: the replies as they were sent; refused: the refusals, those of parse among them;
        unknown: method and path of requests that no dialect takes; upgrades: to a web socket, all declined with 426.
    """

    def __init__(
        self,
        dialects: Mapping[str, Dialect],
        script: Sequence[Step],
        *,
        prefix: str = "call",
        keepalives: int = 1,
        pause: float = 0.0,
        routes: Mapping[str, Callable[[Any, Mapping[str, str]], dict[str, Any]]] | None = None,
        model: str = "policy",
        chunk: int = 0,
    ) -> None:
        """`pause`: seconds before the final events; `routes`: further POST paths, body and headers to a JSON body;
        `chunk`: bytes that are written at once at most, 0 for all of it."""
        self.dialects, self.script, self.prefix = dict(dialects), list(script), prefix
        self.keepalives, self.pause, self.routes, self.model, self.chunk = keepalives, pause, routes or {}, model, chunk
        self.requests: list[ChatRequest] = []
        self.bodies: list[Any] = []
        self.headers: list[dict[str, str]] = []
        self.answered: list[ChatReply] = []
        self.refused: list[RefusedError] = []
        self.unknown: list[str] = []
        self.url = ""
        self.upgrades = 0
        self._calls = 0
        self._loop = asyncio.new_event_loop()
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._run, name="scripted-server", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        self._ready.wait(30)
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        app = web.Application(client_max_size=1 << 28)
        app.router.add_route("*", "/{path:.*}", self._handle)
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.2)

        async def start() -> None:
            await runner.setup()
            await web.TCPSite(runner, "127.0.0.1", 0).start()
            self.url = f"http://127.0.0.1:{runner.addresses[0][1]}"

        self._loop.run_until_complete(start())
        self._ready.set()
        try:
            self._loop.run_forever()
        finally:
            self._loop.run_until_complete(runner.cleanup())
            self._loop.close()

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        first = next(iter(self.dialects.values()))
        if request.method == "HEAD":
            return web.Response()
        if request.method == "GET" and request.path.rstrip("/").endswith("/models"):
            return web.json_response(first.models(self.model))
        if request.method == "POST" and request.path in self.routes:
            return await self._route(request)
        dialect = self.dialects.get(request.path)
        if request.headers.get("Upgrade", "").lower() == "websocket":
            self.upgrades += 1
            return self._error(dialect or first, RefusedError("method", "no web sockets here", status=426))
        if dialect is None or request.method != "POST":
            self.unknown.append(f"{request.method} {request.path}")
            return self._error(first, RefusedError("not_found", "no such path"))
        try:
            return await self._call(request, dialect)
        except RefusedError as refusal:
            return self._error(dialect, refusal)

    async def _route(self, request: web.Request) -> web.Response:
        body = json.loads(await request.read())
        try:
            return web.json_response(self.routes[request.path](body, request.headers))
        except RefusedError as refusal:
            return self._error(next(iter(self.dialects.values())), refusal)

    async def _call(self, request: web.Request, dialect: Dialect) -> web.StreamResponse:
        body = json.loads(await request.read())
        self.bodies.append(body)
        self.headers.append({key.lower(): value for key, value in request.headers.items()})
        parsed = dialect.parse(body, request.headers)
        self.requests.append(parsed)
        step = self.script[min(self._calls, len(self.script) - 1)]
        self._calls += 1
        if callable(step):
            step = step(parsed)
        if isinstance(step, RefusedError):
            raise step
        number = self._calls
        if not parsed.stream:
            await asyncio.sleep(self.pause)
            if isinstance(step, Late):
                raise step.refusal
            reply = self._filled(step, number, parsed)
            self.answered.append(reply)
            return web.json_response(dialect.reply(parsed, reply))
        node = step.node if isinstance(step, ChatReply) and step.node else f"n{number}x{secrets.token_hex(4)}"
        stream = dialect.stream(parsed, node, 100 * number, self.model)
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream", "Cache-Control": "no-cache"})
        await response.prepare(request)
        await self._write(response, stream.opening())
        for _ in range(self.keepalives):
            await self._write(response, stream.keepalive())
        await asyncio.sleep(self.pause)
        if isinstance(step, Late):
            self.refused.append(step.refusal)
            await self._write(response, stream.failure(step.refusal))
        else:
            reply = self._filled(step, number, parsed, node)
            self.answered.append(reply)
            await self._write(response, stream.final(reply))
        await response.write_eof()
        return response

    async def _write(self, response: web.StreamResponse, data: bytes) -> None:
        size = self.chunk or max(1, len(data))
        for start in range(0, len(data), size):
            await response.write(data[start : start + size])
            if self.chunk:
                await asyncio.sleep(0)

    def _filled(self, reply: ChatReply, number: int, request: ChatRequest, node: str = "") -> ChatReply:
        node = node or reply.node or ids.new_node(number)
        calls = [
            msgspec.structs.replace(call, id=call.id or ids.tool_call_id(node, index, self.prefix))
            for index, call in enumerate(reply.tool_calls)
        ]
        return msgspec.structs.replace(
            reply,
            node=node,
            tool_calls=calls,
            stop="tool_calls" if calls and reply.stop == "stop" else reply.stop,
            prompt_tokens=reply.prompt_tokens or 100 * number,
            sampled_tokens=reply.sampled_tokens or 20,
            created=reply.created or time.time(),
            model=reply.model or self.model,
        )

    def _error(self, dialect: Dialect, refusal: RefusedError) -> web.Response:
        self.refused.append(refusal)
        headers = {} if refusal.retry_after is None else {"Retry-After": f"{refusal.retry_after:g}"}
        return web.json_response(dialect.error(refusal), status=refusal.status, headers=headers)
