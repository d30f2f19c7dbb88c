"""A relay in front of a real gateway that misbehaves on demand, over real sockets, on its own thread.

    async with FaultyGateway(upstream_url) as faulty:   # or: with FaultyGateway(upstream_url) as faulty:
        faulty.set("asample", status(429, retry_after=1))
        faulty.set("retrieve_future", slow(2.0))
        faulty.clear()

Every method may be called from any thread, at any time. The relay has a thread of its own, so it serves on while the
test's event loop is blocked.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import json
import threading
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Any, Literal, Self

import aiohttp
from aiohttp import web

_HOP_BY_HOP = {"content-length", "transfer-encoding", "connection", "content-encoding", "host"}
Kind = Literal["answer", "slow", "hang", "cut", "lose", "truncate", "paused"]


@dataclass(frozen=True)
class Behaviour:
    """What happens to a request; made by the functions below.

    Attributes:
        times: how often it happens, then the route works again; None for always.
        every: it happens to each `every`-th matching request, the first included.
    """

    kind: Kind
    seconds: float = 0.0
    status: int = 200
    body: bytes = b""
    headers: tuple[tuple[str, str], ...] = ()
    times: int | None = None
    every: int = 1

    def only(self, times: int) -> Behaviour:
        """The same, `times` times."""
        return replace(self, times=times)

    def each(self, every: int) -> Behaviour:
        """The same, for each `every`-th request."""
        return replace(self, every=every)


def status(code: int, detail: str = "a fault was asked for", *, retry_after: float | None = None) -> Behaviour:
    """Answer with an error status; the upstream hears nothing."""
    headers: tuple[tuple[str, str], ...] = (("content-type", "application/json"),)
    if retry_after is not None:
        headers += (("retry-after", f"{retry_after:g}"),)
    return Behaviour("answer", status=code, body=json.dumps({"detail": detail}).encode(), headers=headers)


def answer(
    body: bytes, code: int = 200, *, content_type: str = "application/json", headers: dict[str, str] | None = None
) -> Behaviour:
    """Answer with just this (garbage, a redirect, 100 MB); the upstream hears nothing."""
    given = (("content-type", content_type), *(headers or {}).items())
    return Behaviour("answer", status=code, body=body, headers=given)


def slow(seconds: float) -> Behaviour:
    """The request waits, then passes."""
    return Behaviour("slow", seconds=seconds)


def hang() -> Behaviour:
    """Never an answer; the connection stays open until the client gives up or the fault is cleared, then it is cut."""
    return Behaviour("hang")


def cut() -> Behaviour:
    """The connection ends without an answer; the upstream hears nothing."""
    return Behaviour("cut")


def lose() -> Behaviour:
    """The upstream gets the request and acts on it; its answer is lost with the connection."""
    return Behaviour("lose")


def truncate() -> Behaviour:
    """The connection ends in the middle of the upstream's answer."""
    return Behaviour("truncate")


def paused(reason: str = "no capacity", *, state: str = "paused_capacity", poll: float = 0.2) -> Behaviour:
    """For `retrieve_future`: no result, but a queue that is paused, after `poll` seconds (as HTTP 408)."""
    body = {"type": "try_again", "queue_state": state, "queue_state_reason": reason}
    headers = (("content-type", "application/json"),)
    return Behaviour("paused", seconds=poll, status=408, body=json.dumps(body).encode(), headers=headers)


class FaultyGateway:
    """The relay and its switches.

    Attributes:
        url: of the relay; it stays the same for its life.
        upstream: where requests go; may be changed when the upstream was started anew elsewhere.
        counts: requests seen, by route (the path behind `/api/v1/`).
        faults: requests that a fault was done to, by route.
        statuses: answers by (route, HTTP status); those without an answer are not among them.
    """

    def __init__(self, upstream: str) -> None:
        self.url = ""
        self.upstream = upstream.rstrip("/")
        self.counts: Counter[str] = Counter()
        self.faults: Counter[str] = Counter()
        self.statuses: Counter[tuple[str, int]] = Counter()
        self._rules: dict[str, Behaviour] = {}
        self._done: Counter[str] = Counter()
        self._matched: Counter[str] = Counter()
        self._lock = threading.Lock()
        self._loop = asyncio.new_event_loop()
        self._cleared = asyncio.Event()
        self._ready, self._over = threading.Event(), asyncio.Event()
        self._site: web.TCPSite | None = None
        self._runner: web.AppRunner | None = None
        self._port = 0
        self._thread = threading.Thread(target=self._run, name="faulty gateway", daemon=True)

    def set(self, route: str, behaviour: Behaviour | None) -> None:
        """From now on, do this to requests whose path contains `route` ("" for all); the latest rule that fits wins.

        None makes these requests work again, and ends those that hang.
        """
        with self._lock:
            self._rules.pop(route, None)
            self._done[route] = self._matched[route] = 0
            if behaviour is not None:
                self._rules[route] = behaviour
        if behaviour is None:
            self._end_hanging()

    def clear(self) -> None:
        """Everything works again; requests that hang are cut."""
        with self._lock:
            self._rules.clear()
        self._end_hanging()

    def down(self) -> None:
        """Refuse connections, and cut those that are open, as if the gateway had died."""
        self._call(self._go_down())

    def up(self) -> None:
        """Listen again, on the same port."""
        self._call(self._listen())

    def cut_all(self) -> None:
        """Cut every open connection once; the next ones work."""
        self._call(self._cut_open())

    def __enter__(self) -> Self:
        self._thread.start()
        if not self._ready.wait(30) or not self.url:
            raise RuntimeError("the faulty gateway did not start")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        with contextlib.suppress(RuntimeError):  # its loop has ended by itself
            self._loop.call_soon_threadsafe(self._over.set)
        self._thread.join(30)

    async def __aenter__(self) -> Self:
        return await asyncio.to_thread(self.__enter__)

    async def __aexit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        await asyncio.to_thread(self.__exit__, kind, problem, trace)

    def _call(self, act: Coroutine[Any, Any, None]) -> None:
        future: concurrent.futures.Future[None] = asyncio.run_coroutine_threadsafe(act, self._loop)
        future.result(30)

    def _end_hanging(self) -> None:
        def release() -> None:
            self._cleared.set()
            self._cleared = asyncio.Event()

        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(release)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_until_complete(self._serve())
        finally:
            self._ready.set()
            self._loop.close()

    async def _serve(self) -> None:
        timeout, connector = aiohttp.ClientTimeout(total=None), aiohttp.TCPConnector(limit=0)
        async with aiohttp.ClientSession(auto_decompress=False, timeout=timeout, connector=connector) as session:

            async def handle(request: web.Request) -> web.StreamResponse:
                return await self._handle(request, session)

            app = web.Application(client_max_size=1 << 28)
            app.router.add_route("*", "/{path:.*}", handle)
            self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.2)
            await self._runner.setup()
            await self._listen()
            self._ready.set()
            await self._over.wait()
            self._cleared.set()
            await self._cut_open()
            await self._runner.cleanup()

    async def _listen(self) -> None:
        if self._site is None:
            assert self._runner is not None
            self._site = web.TCPSite(self._runner, "127.0.0.1", self._port, reuse_address=True)
            await self._site.start()
            self._port = self._site._server.sockets[0].getsockname()[1]  # type: ignore[union-attr]
            self.url = f"http://127.0.0.1:{self._port}"

    async def _go_down(self) -> None:
        if self._site is not None:
            site, self._site = self._site, None
            await site.stop()
        await self._cut_open()

    async def _cut_open(self) -> None:
        assert self._runner is not None and self._runner.server is not None
        for connection in list(self._runner.server.connections):
            if connection.transport is not None:
                connection.transport.abort()

    def _fault_for(self, path: str) -> Behaviour | None:
        with self._lock:
            for route, rule in reversed(self._rules.items()):
                if route not in path:
                    continue
                if rule.times is not None and self._done[route] >= rule.times:
                    continue
                self._matched[route] += 1
                if (self._matched[route] - 1) % rule.every:
                    continue
                self._done[route] += 1
                return rule
        return None

    async def _handle(self, request: web.Request, session: aiohttp.ClientSession) -> web.StreamResponse:
        route = request.path.rpartition("/api/v1/")[2]
        self.counts[route] += 1
        body = await request.read()
        fault = self._fault_for(request.path)
        acts: dict[Kind, Callable[[], Awaitable[web.StreamResponse]]] = {
            "hang": lambda: self._hang(request),
            "cut": lambda: _cut(request),
        }
        if fault is not None:
            self.faults[route] += 1
            if fault.kind in acts:
                return await acts[fault.kind]()
            await asyncio.sleep(fault.seconds)
            if fault.kind in ("answer", "paused"):
                self.statuses[route, fault.status] += 1
                return web.Response(status=fault.status, body=fault.body, headers=dict(fault.headers))
        headers = {k: v for k, v in request.headers.items() if k.lower() not in _HOP_BY_HOP - {"content-encoding"}}
        try:
            url = self.upstream + request.path_qs
            async with session.request(request.method, url, data=body, headers=headers) as upstream:
                data = await upstream.read()
        except aiohttp.ClientError:
            return await _cut(request)  # the upstream died: so does the connection
        kept = {k: v for k, v in upstream.headers.items() if k.lower() not in _HOP_BY_HOP - {"content-encoding"}}
        if fault is not None and fault.kind == "lose":
            return await _cut(request)
        if fault is not None and fault.kind == "truncate":
            half = web.StreamResponse(status=upstream.status, headers=kept | {"content-length": str(len(data) + 1)})
            await half.prepare(request)
            await half.write(data[: len(data) // 2])
            return await _cut(request)
        self.statuses[route, upstream.status] += 1
        return web.Response(status=upstream.status, body=data, headers=kept)

    async def _hang(self, request: web.Request) -> web.StreamResponse:
        await self._cleared.wait()
        return await _cut(request)


async def _cut(request: web.Request) -> web.StreamResponse:
    if request.transport is not None:
        request.transport.abort()
    raise asyncio.CancelledError  # nobody is there to be answered
