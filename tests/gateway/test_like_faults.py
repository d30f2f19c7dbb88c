"""The relay that misbehaves on demand: each fault as a client sees it, and as the upstream does."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import httpx
import pytest
from gateway_faults import FaultyGateway, answer, cut, hang, lose, paused, slow, status, truncate

if TYPE_CHECKING:
    from tests.gateway.conftest import Served

_KEY = {"X-API-Key": "tml-faults"}


async def test_each_fault_as_a_client_sees_it(tiny_gateway: Served) -> None:
    async with FaultyGateway(tiny_gateway.url) as faulty:
        async with httpx.AsyncClient(base_url=faulty.url + "/api/v1", headers=_KEY, timeout=10) as client:
            assert (await client.get("healthz")).json() == {"status": "ok"}
            faulty.set("healthz", status(500))
            assert (await client.get("healthz")).status_code == 500
            assert (await client.get("get_server_capabilities")).status_code == 200
            faulty.set("", status(429, retry_after=1.5).only(2))
            answers = [await client.get("get_server_capabilities") for _ in range(3)]
            assert [each.status_code for each in answers] == [429, 429, 200]
            assert answers[0].headers["retry-after"] == "1.5"
            faulty.clear()
            faulty.set("healthz", cut().each(2))
            for broken in (True, False, True, False):
                if broken:
                    with pytest.raises(httpx.TransportError):
                        await client.get("healthz")
                else:
                    assert (await client.get("healthz")).status_code == 200
            faulty.set("healthz", answer(b"<html>", 302, content_type="text/html", headers={"location": "/x"}))
            assert (await client.get("healthz")).headers["location"] == "/x"
            faulty.set("healthz", hang())
            with pytest.raises(httpx.ReadTimeout):
                await client.get("healthz", timeout=0.3)
            faulty.set("healthz", slow(0.3))
            with pytest.raises(httpx.ReadTimeout):
                await client.get("healthz", timeout=0.1)
            assert (await client.get("healthz")).status_code == 200
            faulty.set("healthz", truncate())
            with pytest.raises(httpx.RemoteProtocolError):
                await client.get("healthz")
            faulty.set("retrieve_future", paused("8 GPUs are away"))
            waiting = await client.post("retrieve_future", json={"request_id": "x"})
            assert waiting.status_code == 408 and waiting.json()["queue_state_reason"] == "8 GPUs are away"
            faulty.set("create_session", lose())
            sessions = len((await client.get("sessions")).json()["sessions"])
            with pytest.raises(httpx.TransportError):
                await client.post("create_session", json={"tags": []})
            assert len((await client.get("sessions")).json()["sessions"]) == sessions + 1
            assert faulty.counts["create_session"] == faulty.faults["create_session"] == 1
            assert faulty.statuses["healthz", 500] == 1


async def test_down_and_up_on_the_same_port(tiny_gateway: Served) -> None:
    async with FaultyGateway(tiny_gateway.url) as faulty, httpx.AsyncClient(timeout=10) as client:
        url = faulty.url + "/healthz"
        assert (await client.get(url)).status_code == 200
        faulty.down()
        with pytest.raises(httpx.ConnectError):
            await client.get(url)
        faulty.up()
        assert (await client.get(url)).status_code == 200
        faulty.upstream = "http://127.0.0.1:9"  # nobody is there
        with pytest.raises(httpx.TransportError):
            await client.get(url)
        faulty.upstream = tiny_gateway.url
        assert (await client.get(url)).status_code == 200


async def test_the_sdk_comes_through_what_passes(tiny_gateway: Served) -> None:
    """Each fault happens to the real SDK, over its own transport, and the result is the one without faults."""
    import tinker
    from tinker import types

    prompt, params = types.ModelInput.from_ints([5, 6, 7]), types.SamplingParams(max_tokens=8, seed=3, stop=[])
    async with FaultyGateway(tiny_gateway.url) as faulty:
        service = tinker.ServiceClient(base_url=faulty.url, api_key="tml-faults")
        sampler = await service.create_sampling_client_async(base_model="tiny")
        plain = (await sampler.sample_async(prompt, 1, params)).sequences[0].tokens
        for fault in (status(503).only(1), paused("busy", poll=0.1).only(2), cut().only(1), truncate().only(1)):
            faulty.set("retrieve_future", fault)
            assert (await sampler.sample_async(prompt, 1, params)).sequences[0].tokens == plain, fault
        assert faulty.faults["retrieve_future"] == 5 and faulty.statuses["retrieve_future", 408] == 2
        # The gateway has acted on the first request, whose answer was lost: the SDK's repetition is the same sample.
        faulty.set("asample", lose().only(1))
        before, sent = await _sampled(tiny_gateway), faulty.counts["asample"]
        assert (await sampler.sample_async(prompt, 1, params)).sequences[0].tokens == plain
        assert faulty.counts["asample"] == sent + 2 and await _sampled(tiny_gateway) == before + 8
        await asyncio.to_thread(service.close("success").result)


async def _sampled(gateway: Served) -> int:
    """Tokens that the gateway itself has sampled."""
    async with httpx.AsyncClient(headers=_KEY) as client:
        return (await client.get(gateway.url + "/api/v1/engine_load")).json()["totals"]["sampled"]
