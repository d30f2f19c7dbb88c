"""A relay in front of a real gateway that changes what passes, over real sockets."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable

import aiohttp
from aiohttp import web

PROTOBUF = "application/x-protobuf"
SKIPPED = {"content-length", "transfer-encoding", "connection", "content-encoding", "host"}


@contextlib.asynccontextmanager
async def strange_gateway(target: str, change: Callable[[str, bytes], bytes]) -> AsyncIterator[str]:
    """URL of a relay to `target`; `change(request type, body)` rewrites each protobuf answer."""

    async def relay(request: web.Request) -> web.Response:
        headers = {k: v for k, v in request.headers.items() if k.lower() not in SKIPPED}
        body = await request.read()
        async with session.request(request.method, target + request.path_qs, data=body, headers=headers) as answer:
            data = await answer.read()
            if answer.headers.get("content-type", "").startswith(PROTOBUF):
                data = change(request.headers.get("X-Tinker-Request-Type", ""), data)
            kept = {k: v for k, v in answer.headers.items() if k.lower() not in SKIPPED}
            return web.Response(status=answer.status, body=data, headers=kept)

    app = web.Application(client_max_size=1 << 28)
    app.router.add_route("*", "/{path:.*}", relay)
    runner = web.AppRunner(app, access_log=None)
    async with aiohttp.ClientSession(auto_decompress=False) as session:
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        try:
            yield f"http://127.0.0.1:{runner.addresses[0][1]}"
        finally:
            await runner.cleanup()
