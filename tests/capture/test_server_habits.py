"""What clients do that is not in any book: other key orders, WebSockets, connections that outlive their trial."""

from __future__ import annotations

import asyncio
import contextlib
import gc
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from capture_bench import CHAT, RESPONSES, Bench, request_bytes, said
from scripted_sampler import Reply

from console.capture import listener
from console.capture.graph import Graph


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[Bench]:
    async with Bench(tmp_path) as made:
        yield made


async def test_a_call_sent_again_with_its_keys_in_another_order_joins(bench: Bench) -> None:
    agent = await bench.open()
    bench.sampler.script(Reply("One.", delay=0.2), Reply("Two."))
    body = said(CHAT, metadata={"a": "1", "b": "2"})
    turned = dict(reversed((body | {"metadata": {"b": "2", "a": "1"}}).items()))
    first, second = await asyncio.gather(agent.post(CHAT, body), agent.post(CHAT, turned))
    assert first.json()["id"] == second.json()["id"] and len(bench.sampler.asked) == 1


async def test_a_websocket_is_told_to_use_post(bench: Bench) -> None:
    agent = await bench.open()
    upgrade = {"Upgrade": "websocket", "Connection": "Upgrade", "Sec-WebSocket-Version": "13"}
    reply = await bench.client.get(agent.route.url + RESPONSES, headers=agent.key | upgrade)
    assert reply.status_code == 426 and "POST" in reply.json()["error"]["message"]


async def test_nothing_of_a_sealed_trial_stays_for_a_connection_that_is_kept_open(bench: Bench) -> None:
    agent = await bench.open()
    bench.sampler.script(Reply("Hello."))
    reader, _ = await bench.raw(request_bytes(CHAT, said(CHAT), agent.route.api_key))
    assert b"200 OK" in await reader.readuntil(b"\r\n\r\n")
    await agent.seal()
    del agent
    await asyncio.sleep(0)
    gc.collect()
    assert not [thing for thing in gc.get_objects() if type(thing) is Graph and thing.nodes]


async def test_a_connection_whose_trial_ended_is_closed_like_a_strangers(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent = await bench.open()
    bench.sampler.script(Reply("Hello."))
    reader, _ = await bench.raw(request_bytes(CHAT, said(CHAT), agent.route.api_key))
    assert b"200 OK" in await reader.readuntil(b"\r\n\r\n")
    monkeypatch.setattr(listener, "STRANGER_SECONDS", 0.1)
    await agent.seal()
    with contextlib.suppress(ConnectionError):
        await asyncio.wait_for(reader.read(), 10)  # to the end


async def test_two_trials_share_a_connection_and_the_end_of_one_does_not_lose_the_others_call(bench: Bench) -> None:
    first, second = await bench.open(), await bench.open()
    bench.sampler.script(Reply("One."), Reply("Two."))
    reader, writer = await bench.raw(request_bytes(CHAT, said(CHAT), first.route.api_key))
    assert b"200 OK" in await reader.readuntil(b"\r\n\r\n")
    assert b"One." in await reader.readuntil(b"}]") and bench.capture.inflight == 0
    await first.seal()
    # The seal is no moment at which a client knows that it must not send.
    writer.write(request_bytes(CHAT, said(CHAT), second.route.api_key))
    assert b"Two." in await asyncio.wait_for(reader.readuntil(b"Two."), 10)
