"""An HTTP proxy on this machine, as companies have them: it alone knows where a name leads."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections import Counter
from collections.abc import Iterator
from urllib.parse import urlsplit

import aiohttp
from aiohttp import web

_HOP_BY_HOP = {"content-length", "transfer-encoding", "connection", "proxy-connection", "host"}


class LocalProxy:
    """The proxy.

    Attributes:
        url: of the proxy; asked: requests by the host that they were for.
        leads: host to the URL of the server that answers for it; others are answered with 502.
    """

    def __init__(self) -> None:
        self.url = ""
        self.asked: Counter[str] = Counter()
        self.leads: dict[str, str] = {}


@contextlib.contextmanager
def local_proxy(**leads: str) -> Iterator[LocalProxy]:
    """A proxy on a thread of its own. `leads`: see there, with underscores for the dots of a host."""
    proxy, loop, over, ready = LocalProxy(), asyncio.new_event_loop(), asyncio.Event(), threading.Event()
    proxy.leads = {host.replace("_", "."): url for host, url in leads.items()}

    async def pass_on(request: web.BaseRequest) -> web.StreamResponse:
        host = urlsplit(request.raw_path if "://" in request.raw_path else f"//{request.host}").hostname or ""
        proxy.asked[host] += 1
        if host not in proxy.leads:
            return web.Response(status=502, text="the proxy knows no such host")
        headers = {name: value for name, value in request.headers.items() if name.lower() not in _HOP_BY_HOP}
        url, body = proxy.leads[host] + request.rel_url.path_qs, await request.read()
        async with session.request(request.method, url, data=body, headers=headers) as answer:
            kept = {name: value for name, value in answer.headers.items() if name.lower() not in _HOP_BY_HOP}
            return web.Response(status=answer.status, body=await answer.read(), headers=kept)

    async def serve() -> None:
        nonlocal session
        async with aiohttp.ClientSession(auto_decompress=False, timeout=aiohttp.ClientTimeout(total=None)) as session:
            server = web.Server(pass_on, access_log=None)
            runner = web.ServerRunner(server, shutdown_timeout=0.2)
            await runner.setup()
            await web.TCPSite(runner, "127.0.0.1", 0).start()
            proxy.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
            ready.set()
            await over.wait()
            await runner.cleanup()

    session: aiohttp.ClientSession

    def run() -> None:
        try:
            loop.run_until_complete(serve())
        finally:
            ready.set()
            loop.close()

    thread = threading.Thread(target=run, name="proxy", daemon=True)
    thread.start()
    ready.wait(30)
    try:
        yield proxy
    finally:
        with contextlib.suppress(RuntimeError):  # its loop has ended by itself
            loop.call_soon_threadsafe(over.set)
        thread.join(30)
