"""How long the gateway was away, as the health checks saw it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator

import httpx
import pytest
from aiohttp import web

from console.engine.plumbing import HealthWatch
from console.journal import events as ev


class Gateway:
    """Answers every health check with `status`."""

    url, status = "", 200

    async def answer(self, request: web.Request) -> web.Response:
        return web.json_response({"supported_models": [{"model_name": "m"}]}, status=self.status)


@pytest.fixture
async def gateway() -> AsyncIterator[Gateway]:
    served, app = Gateway(), web.Application()
    app.router.add_get("/{path:.*}", served.answer)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    served.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    yield served
    await runner.cleanup()


async def test_only_the_time_of_an_outage_counts_and_only_what_overlaps(gateway):
    events: list[ev.Event] = []
    watch = HealthWatch(gateway.url, "k", 1.0, events.append)
    start = time.monotonic()
    async with httpx.AsyncClient(trust_env=False) as client:
        await watch.once(client)
        assert watch.outage(start) == 0.0
        gateway.status = 503
        before = time.monotonic()
        await watch.once(client)
        await asyncio.sleep(0.05)
        during = time.monotonic()
        assert 0.05 <= watch.outage(start) <= during - before + 0.05
        await watch.once(client)
        gateway.status = 200
        await watch.once(client)
        after = time.monotonic()
    whole = watch.outage(start)
    assert during - before <= whole <= after - before
    await asyncio.sleep(0.02)
    assert watch.outage(start) == whole, "it is over"
    assert 0 < watch.outage(during) < whole, "a call that began in it lost the rest"
    assert watch.outage(after) == 0.0
    assert [event.reachable for event in events if isinstance(event, ev.GatewayHealth)] == [True, False, True]
