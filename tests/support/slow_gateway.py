"""A relay in front of a real gateway that can be made slow and fast again, over real sockets, on its own thread."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections import Counter
from collections.abc import Iterator

import aiohttp
from aiohttp import web

HOP_BY_HOP = {"content-length", "transfer-encoding", "connection", "content-encoding", "host"}
FAST_SECONDS, SLOW_SECONDS = 0.02, 0.55
DESCRIPTIONS = ("get_server_capabilities", "engine_load")
"""Requests that pass at once: they cost a gateway nothing, and each health check waits for them too."""


class SlowGateway:
    """The relay's switch.

    Every second request of a path takes half as long again, so that each health check differs from the one before.

    Attributes:
        url: of the relay.
    """

    def __init__(self) -> None:
        self.url = ""
        self._seconds = FAST_SECONDS
        self._seen: Counter[str] = Counter()

    def slow(self) -> None:
        """From now on each request takes `SLOW_SECONDS` longer, or half as long again."""
        self._seconds = SLOW_SECONDS

    def recover(self) -> None:
        """From now on it is as fast as at the start."""
        self._seconds = FAST_SECONDS

    def delay(self, path: str) -> float:
        """Seconds that the next request of a path waits."""
        if path.endswith(DESCRIPTIONS):
            return 0.0
        self._seen[path] += 1
        return self._seconds * (1.0 if self._seen[path] % 2 else 1.5)


@contextlib.contextmanager
def slow_gateway(target: str) -> Iterator[SlowGateway]:
    """A relay to the gateway at `target`."""
    gateway, loop, over, ready = SlowGateway(), asyncio.new_event_loop(), asyncio.Event(), threading.Event()

    async def serve() -> None:
        async def relay(request: web.Request) -> web.Response:
            body = await request.read()
            await asyncio.sleep(gateway.delay(request.path))
            headers = {k: v for k, v in request.headers.items() if k.lower() not in HOP_BY_HOP}
            async with session.request(request.method, target + request.path_qs, data=body, headers=headers) as answer:
                data = await answer.read()
                kept = {k: v for k, v in answer.headers.items() if k.lower() not in HOP_BY_HOP}
                return web.Response(status=answer.status, body=data, headers=kept)

        app = web.Application(client_max_size=1 << 28)
        app.router.add_route("*", "/{path:.*}", relay)
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=1.0)
        timeout, connector = aiohttp.ClientTimeout(total=None), aiohttp.TCPConnector(limit=0)
        async with aiohttp.ClientSession(auto_decompress=False, timeout=timeout, connector=connector) as session:
            await runner.setup()
            await web.TCPSite(runner, "127.0.0.1", 0).start()
            gateway.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
            ready.set()
            await over.wait()
            await runner.cleanup()

    def run() -> None:
        try:
            loop.run_until_complete(serve())
        finally:
            ready.set()
            loop.close()

    thread = threading.Thread(target=run, name="slow gateway")
    thread.start()
    ready.wait(30)
    try:
        yield gateway
    finally:
        with contextlib.suppress(RuntimeError):  # its loop has ended by itself
            loop.call_soon_threadsafe(over.set)
        thread.join(30)
