"""The official SDKs against the gateway: what they try again, what they do not, and that they read what it says."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import anthropic
import httpx
import openai
import pytest
from capture_bench import MODEL, Bench
from scripted_sampler import Reply, backend_error

from console.capture import streams
from console.capture.settings import Budgets

ASKED = [{"role": "user", "content": "List the files."}]


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[Bench]:
    settings = {"budgets": Budgets(calls=4), "terminal_replies": 0}
    async with Bench(tmp_path, settings=settings) as made:
        yield made


def openai_client(url: str, key: str) -> openai.AsyncOpenAI:
    return openai.AsyncOpenAI(base_url=url + "/v1", api_key=key, http_client=httpx.AsyncClient(trust_env=False))


def anthropic_client(url: str, key: str) -> anthropic.AsyncAnthropic:
    client = anthropic.DefaultAsyncHttpxClient(trust_env=False)
    return anthropic.AsyncAnthropic(base_url=url, api_key=key, http_client=client)


async def test_openais_sdk_speaks_both_its_dialects(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "KEEPALIVE_SECONDS", 0.01)
    agent = await bench.open()
    async with openai_client(agent.route.url, agent.route.api_key) as client:
        assert [model.id async for model in client.models.list()] == [MODEL]
        assert (await client.models.retrieve("whatever/it:is")).id == MODEL
        reply = await client.chat.completions.create(model="m", messages=ASKED)  # type: ignore[arg-type]
        assert reply.choices[0].message.content == "Done." and reply.usage is not None
        bench.sampler.script(Reply("Slowly.", delay=0.1), Reply("And again.", delay=0.1))
        text = ""
        async for chunk in await client.chat.completions.create(model="m", messages=ASKED, stream=True):  # type: ignore[call-overload]
            text += chunk.choices[0].delta.content or ""
        assert text == "Slowly."
        events = [event async for event in await client.responses.create(model="m", input="Hello.", stream=True)]
        assert events[-1].type == "response.completed" and events[-1].response.output_text == "And again."
        assert (await client.responses.create(model="m", input="Hello?")).output_text == "Done."


async def test_anthropics_sdk(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "KEEPALIVE_SECONDS", 0.01)
    agent = await bench.open()
    async with anthropic_client(agent.route.url, agent.route.api_key) as client:
        assert [model.id async for model in client.models.list()] == [MODEL]
        counted = await client.messages.count_tokens(model="m", messages=ASKED)  # type: ignore[arg-type]
        message = await client.messages.create(model="m", messages=ASKED, max_tokens=9)  # type: ignore[arg-type]
        assert message.usage.input_tokens == counted.input_tokens and message.content[0].text == "Done."
        bench.sampler.script(Reply("Slowly.", delay=0.1))
        async with client.messages.stream(model="m", messages=ASKED, max_tokens=9) as stream:  # type: ignore[arg-type]
            assert await stream.get_final_text() == "Slowly."


async def test_what_is_the_same_every_time_is_asked_once(bench: Bench) -> None:
    agent = await bench.open()
    async with (
        openai_client(agent.route.url, agent.route.api_key) as one,
        anthropic_client(agent.route.url, agent.route.api_key) as two,
    ):
        for number in range(4):
            assert (await agent.ask(text=f"{number}")).status_code == 200
        with pytest.raises(openai.APIStatusError, match="budget"):
            await one.chat.completions.create(model="m", messages=ASKED)  # type: ignore[arg-type]
        with pytest.raises(anthropic.APIStatusError, match="budget"):
            await two.messages.create(model="m", messages=ASKED, max_tokens=9)  # type: ignore[arg-type]
        assert bench.capture.refusals == {"budget": 2}
        await agent.seal()
        with pytest.raises(openai.APIStatusError) as ended:
            await one.responses.create(model="m", input="x")
        assert ended.value.status_code == 410 and bench.capture.refusals["sealed"] == 1
        async with openai_client(agent.route.url, "wrong") as stranger:
            with pytest.raises(openai.AuthenticationError):
                await stranger.models.list()
        assert bench.capture.refusals["auth"] == 1


async def test_what_passes_is_tried_again_and_answered(bench: Bench) -> None:
    bench.sampler.script(Reply(error=backend_error()))
    agent = await bench.open()
    waited: list[float] = []

    async def wait(seconds: float) -> None:
        waited.append(seconds)

    async with openai_client(agent.route.url, agent.route.api_key) as client:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("openai._base_client.anyio.sleep", wait)
            reply = await client.chat.completions.create(model="m", messages=ASKED)  # type: ignore[arg-type]
    assert reply.choices[0].message.content == "Done." and waited == [5.0], "as Retry-After says"
    evidence = (await agent.seal()).evidence
    assert (evidence.calls, evidence.failed, evidence.last_failure) == (1, 1, None)


async def test_a_client_that_gave_up_and_asks_again_gets_one_sample(bench: Bench) -> None:
    gate = asyncio.Event()
    bench.sampler.script(Reply("Late.", gate=gate))
    agent = await bench.open()
    async with openai_client(agent.route.url, agent.route.api_key) as client:
        asking = asyncio.ensure_future(
            client.with_options(timeout=0.3).chat.completions.create(model="m", messages=ASKED)  # type: ignore[arg-type]
        )
        await bench.sampler.until_running(1)
        reply = await asking
    gate.set()
    assert reply.choices[0].message.content == "Done."
    assert bench.sampler.cancelled == 1, "nobody waited for the first one any more"
    captured = await agent.seal()
    assert sum(len(segment.turns) for segment in captured.segments) == 1
