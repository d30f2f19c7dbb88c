"""How long the gateway was away, and what is reported of it, as the health checks saw it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
from aiohttp import web

from console.gateway import health
from console.gateway.health import HealthWatch, SdkFigures, merged
from console.gateway.probe import GatewayHealth
from console.journal import events as ev


class Gateway:
    """Answers every health check with `status`."""

    url, status, load = "", 200, 0

    async def answer(self, request: web.Request) -> web.Response:
        engines = [{"queued_requests": self.load, "running_requests": 0}]
        return web.json_response({"supported_models": [{"model_name": "m"}], "engines": engines}, status=self.status)


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


async def test_what_the_sdk_goes_through_is_told_when_it_matters(gateway, monkeypatch):
    async def no_latency(*_: Any, **__: Any) -> GatewayHealth:  # it may differ by a quarter from look to look
        return GatewayHealth(reachable=True)

    monkeypatch.setattr(health, "probe", no_latency)
    changes = (
        SdkFigures(contact_age=1.0, heartbeat_age=4.04, pending={"sample": 3}, oldest={"sample": 12.34}),
        SdkFigures(heartbeat_age=9.0, pending={"sample": 9}, oldest={"sample": 17.0}),  # nothing new
        SdkFigures(heartbeat_age=9.0, queue="paused_capacity", queue_reason="full"),
        SdkFigures(heartbeat_age=9.0, queue="paused_capacity", queue_reason="fuller"),
        SdkFigures(heartbeat_age=9.0, backoff=3.21),
        SdkFigures(heartbeat_age=9.0, backoff=1.0),  # nothing new
        SdkFigures(heartbeat_age=9.0, backoff=1.0, pending={"optim_step": 1}, oldest={"optim_step": 0.1}),
    )
    events: list[Any] = []
    watch, now = HealthWatch(gateway.url, "k", 1.0, events.append), changes[0]
    watch.attach(lambda: now, lease=300.0)
    async with httpx.AsyncClient(trust_env=False) as client:
        for now in changes:  # noqa: B007 - the watch asks for it
            await watch.once(client)
    told = [(e.queue, e.queue_reason, e.backoff, e.pending) for e in events]
    assert told == [
        ("", "", None, {"sample": 3}), ("paused_capacity", "full", None, {}), ("paused_capacity", "fuller", None, {}),
        ("", "", 3.2, {}), ("", "", 1.0, {"optim_step": 1}),
    ]  # fmt: skip
    assert (events[0].heartbeat_age, events[0].lease_left, events[0].oldest) == (4.0, 296.0, {"sample": 12.3})


def test_of_a_lease_that_is_over_or_not_known_nothing_is_left() -> None:
    well = GatewayHealth(reachable=True)
    assert merged(well, SdkFigures(heartbeat_age=400.0), 300.0).lease_left == 0.0
    assert merged(well, SdkFigures(heartbeat_age=400.0), None).lease_left is None
    assert merged(well, SdkFigures(), 300.0).lease_left is None


async def test_a_service_without_an_address_is_judged_by_what_the_sdk_hears(gateway):
    events: list[Any] = []
    watch = HealthWatch("", "k", 1.0, events.append)
    now = SdkFigures()
    watch.attach(lambda: now)
    async with httpx.AsyncClient(trust_env=False) as client:
        assert (await watch.once(client)).reachable, "nothing was asked yet"
        now = SdkFigures(contact_age=60.0)
        assert (await watch.once(client)).reachable
        now = SdkFigures(contact_age=61.0)
        assert not (await watch.once(client)).reachable
        assert watch.outage(0.0) > 0
    assert events[-1].detail == "the SDK got no answer for 61 s" and not events[-1].reachable


async def test_a_name_service_that_hangs_is_asked_once_and_holds_nothing_up(gateway, monkeypatch):
    answered, asked = asyncio.Event(), 0
    loop = asyncio.get_running_loop()

    def look_up(host: str, port: int | None) -> list[Any]:
        nonlocal asked
        asked += 1
        asyncio.run_coroutine_threadsafe(answered.wait(), loop).result()
        return [host]

    monkeypatch.setattr(health, "getaddrinfo", look_up)
    name = health._Name("http://gateway.invalid:8000")
    assert [await name.known(0.01) for _ in range(3)] == [False, False, False] and asked == 1
    answered.set()
    assert await name.known() and asked == 1
    assert await name.known() and asked == 2, "names are looked up anew"
    for address in (gateway.url, "http://[::1]:80", ""):
        assert await health._Name(address).known()
    assert asked == 2


async def test_an_unknown_name_is_told_as_that() -> None:
    events: list[Any] = []
    watch = HealthWatch("http://gateway.invalid:1", "k", 1.0, events.append)
    async with httpx.AsyncClient(trust_env=False) as client:
        assert not (await watch.once(client)).reachable
    assert events[0].detail == "the name gateway.invalid cannot be resolved"
