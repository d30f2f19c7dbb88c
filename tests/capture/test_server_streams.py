"""Replies as streams: begun at once, kept alive, finished whole, and ended with the client."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from capture_bench import CHAT, MESSAGES, MODEL, RESPONSES, Bench, request_bytes, response, said, until
from scripted_sampler import Reply, backend_error

from console.capture import streams
from console.records.captured_calls import CapturedTrialFile

PATHS = (CHAT, RESPONSES, MESSAGES)


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[Bench]:
    async with Bench(tmp_path) as made:
        yield made


def events(text: str) -> list[dict[str, Any]]:
    """The JSON objects of a stream."""
    lines = [line.removeprefix("data: ") for line in text.splitlines() if line.startswith("data: ")]
    return [json.loads(line) for line in lines if line != "[DONE]"]


@pytest.mark.parametrize("path", PATHS)
async def test_a_stream_begins_before_there_is_anything_to_say(
    bench: Bench, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streams, "KEEPALIVE_SECONDS", 0.02)
    gate = asyncio.Event()
    bench.sampler.script(Reply("At last.", gate=gate))
    agent = await bench.open()
    async with bench.client.stream(
        "POST", agent.route.url + path, json=said(path, stream=True), headers=agent.key
    ) as reply:
        assert reply.status_code == 200 and reply.headers["content-type"].startswith("text/event-stream")
        assert reply.headers["cache-control"] == "no-cache" and reply.headers["x-request-id"].startswith("n0x")
        pieces = reply.aiter_text()
        begun = await anext(pieces)
        assert begun.startswith(("data: ", "event: ")) and "At last." not in begun
        kept = "".join([await anext(pieces) for _ in range(4)])
        assert ("event: ping" if path == MESSAGES else ": keepalive") in kept and "At last." not in kept
        gate.set()
        last = "".join([piece async for piece in pieces])
    assert "At last." in last and events(begun + kept + last)
    captured = await agent.seal()
    assert captured.evidence.calls == 1 and captured.evidence.failed == 0 and len(captured.segments) == 1


@pytest.mark.parametrize("path", PATHS)
async def test_what_is_refused_before_the_stream_has_a_status(bench: Bench, path: str) -> None:
    agent = await bench.open()
    reply = await agent.ask(path, "word " * 5000, stream=True)
    assert reply.status_code == 400 and reply.headers["content-type"] == "application/json"
    assert "prompt is too long" in reply.text
    assert (await agent.ask(path, stream=True, temperature=-3)).status_code == 400


@pytest.mark.parametrize("path", PATHS)
async def test_what_fails_after_its_beginning_ends_in_the_dialects_form(bench: Bench, path: str) -> None:
    bench.sampler.script(Reply(error=backend_error("secret words")), Reply("x", logprobs="nan"))
    agent = await bench.open()
    for _ in range(2):
        reply = await agent.ask(path, stream=True)
        assert reply.status_code == 200 and "secret" not in reply.text
        last = events(reply.text)[-1]
        error = last if path == RESPONSES else last["error"]
        assert error["message"]
        assert "[DONE]" not in reply.text or path == CHAT
    captured = await agent.seal()
    evidence = captured.evidence
    assert (evidence.calls, evidence.failed, evidence.no_logprobs, captured.segments) == (0, 2, 1, [])
    assert bench.capture.refusals == {"backend": 1, "no_logprobs": 1}


@pytest.mark.parametrize("path", PATHS)
async def test_what_fails_without_a_stream_is_told_to_be_tried_again(bench: Bench, path: str) -> None:
    bench.sampler.script(Reply(error=backend_error("secret words", 429)))
    agent = await bench.open()
    reply = await agent.ask(path)
    assert reply.status_code == 503 and int(reply.headers["Retry-After"]) >= 1 and "secret" not in reply.text
    assert "x-should-retry" not in reply.headers and reply.headers["content-type"] == "application/json"


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("path", PATHS)
async def test_a_client_that_goes_away_cancels_its_sample(bench: Bench, path: str, stream: bool) -> None:
    bench.sampler.script(Reply("Nobody reads this.", gate=asyncio.Event()))
    agent = await bench.open()
    reader, writer = await bench.raw(request_bytes(path, said(path, stream=stream), agent.route.api_key))
    await bench.sampler.until_running(1)
    if stream:
        await asyncio.wait_for(reader.readuntil(b"\n\n"), 20)
    writer.close()
    await until(lambda: bench.sampler.cancelled == 1 and bench.capture.inflight == 0)
    captured = await agent.seal()
    assert (captured.segments, captured.evidence.calls, captured.evidence.last_failure) == ([], 0, "client")


async def test_a_client_that_goes_away_before_its_call_began_leaves_nothing(bench: Bench) -> None:
    agent = await bench.open()
    for _ in range(30):
        _, writer = await bench.raw(request_bytes(CHAT, said(CHAT, stream=True), agent.route.api_key))
        writer.transport.abort()
    await until(lambda: not bench.capture._listener._strangers and bench.capture.inflight == 0)
    entry = bench.capture._routes.entries()[0]
    await until(lambda: not entry.connections)
    assert entry.held.used == 0
    assert (await agent.ask()).status_code == 200


async def test_a_client_that_takes_nothing_is_given_up(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    import socket

    monkeypatch.setattr(streams, "WRITE_SECONDS", 0.3)
    monkeypatch.setattr(streams, "KEEPALIVE_SECONDS", 0.001)
    huge = b": " + b"x" * 1_000_000 + b"\n"
    dialect = bench.capture._exchange._dialects["chat"]
    stream_of = dialect.stream

    def chatty(*args: Any) -> Any:
        stream = stream_of(*args)
        stream.keepalive = lambda: huge  # type: ignore[method-assign]
        return stream

    monkeypatch.setattr(dialect, "stream", chatty)
    bench.sampler.script(Reply("x", gate=asyncio.Event()))
    agent = await bench.open()
    deaf = socket.create_connection(bench.address)
    deaf.sendall(request_bytes(CHAT, said(CHAT, stream=True), agent.route.api_key))
    await bench.sampler.until_running(1)
    await until(lambda: bench.sampler.cancelled == 1)
    deaf.close()
    assert (await agent.seal()).evidence.last_failure == "client"


async def test_only_what_was_handed_over_counts_as_delivered(bench: Bench, tmp_path: Path) -> None:
    agent = await bench.open()
    for stream in (False, True):
        assert (await agent.ask(text=f"{stream}", stream=stream)).status_code == 200
    gate = asyncio.Event()
    bench.sampler.script(Reply("Gone.", gate=gate))
    _, writer = await bench.raw(request_bytes(CHAT, said(CHAT, "3", stream=True), agent.route.api_key))
    await bench.sampler.until_running(1)
    writer.transport.abort()
    await until(lambda: bench.capture.inflight == 0)
    await agent.seal()
    (file,) = (tmp_path / "capture").rglob("*.calls.zst")
    kept = CapturedTrialFile(file)
    kept.refresh()
    assert [(call.intent.call, call.delivered) for call in kept] == [(0, 1), (1, 1), (2, 0)]


async def test_a_fault_of_ours_is_told_as_one_that_passes(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, caplog: Any
) -> None:
    agent = await bench.open()
    dialect = bench.capture._exchange._dialects["chat"]

    def broken(*_: Any) -> Any:
        raise RuntimeError("text of a prompt")

    with monkeypatch.context() as patch:
        patch.setattr(dialect, "reply", broken)
        reply = await agent.ask()
        assert (reply.status_code, reply.headers["Retry-After"]) == (503, "1")
        assert reply.headers["content-type"] == "application/json" and "text of" not in reply.text
    stream = dialect.stream(dialect.parse(said(CHAT), {}), "n0x00000000", 1, MODEL)
    with monkeypatch.context() as patch:
        patch.setattr(dialect, "stream", broken)
        assert (await agent.ask(text="1", stream=True)).status_code == 503
        await until(lambda: bench.capture.inflight == 0)
    with monkeypatch.context() as patch:
        patch.setattr(type(stream), "final", broken)
        reply = await agent.ask(text="2", stream=True)
        assert "server_error" in reply.text and "text of" not in reply.text
    with monkeypatch.context() as patch:
        patch.setattr(dialect, "parse", broken)
        reply = await agent.ask(text="3")
        assert reply.status_code == 400 and reply.headers["x-should-retry"] == "false"
    assert "RuntimeError" in caplog.text and "text of" not in caplog.text
    assert bench.capture.refusals == {"capture": 3, "request": 1}
    assert (await agent.ask(text="4")).status_code == 200


async def test_several_requests_on_one_connection_are_answered_in_order(bench: Bench) -> None:
    agent = await bench.open()
    one = request_bytes(CHAT, said(CHAT, "one"), agent.route.api_key)
    stream = request_bytes(MESSAGES, said(MESSAGES, "two", stream=True), agent.route.api_key)
    wrong = request_bytes("/v1/nothing", b"{}", agent.route.api_key)
    reader, writer = await bench.raw(one + stream + wrong + one)
    statuses = [(await response(reader))[0] for _ in range(4)]
    assert statuses == [200, 200, 404, 200]
    writer.close()
    assert (await agent.seal()).evidence.calls == 3


@pytest.mark.parametrize("stream", [False, True])
async def test_two_hundred_at_once(bench: Bench, stream: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    agents = [await bench.open() for _ in range(25)]
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=None)
    async with httpx.AsyncClient(timeout=60, trust_env=False, limits=limits) as client:

        async def ask(number: int) -> int:
            agent, path = agents[number % 25], PATHS[number % 3]
            reply = await client.post(
                agent.route.url + path, json=said(path, f"{number}", stream=stream), headers=agent.key
            )
            assert "Done." in reply.text
            return reply.status_code

        assert set(await asyncio.gather(*map(ask, range(200)))) == {200}
    evidence = [(await agent.seal()).evidence for agent in agents]
    assert sum(one.calls for one in evidence) == 200 and not any(one.failed for one in evidence)
