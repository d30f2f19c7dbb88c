"""Every method on every path, however agents write it: what is there, what is not, and in whose words that is told."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest
from capture_bench import CHAT, MESSAGES, RESPONSES, Bench, said
from conformance_wire import CALLS, POSTS, TOLD, checked, refusal_problems


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[Bench]:
    async with Bench(tmp_path) as made:
        yield made


METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "PROPFIND")
UNKNOWN = (
    "/v1/completions", "/v1/embeddings", "/v1/responses/resp_1", "/v1/responses/resp_1/cancel", "/v1/messages/batches",
    "/v1/messages/count_tokens/x", "/v1/chat", "/v1/chat/completions/x", "/v2/messages", "/V1/messages", "/metrics",
    "/healthz", "/v1/../admin", "/%2e%2e/%2e%2e/etc/passwd", "/v1/files", "/favicon.ico", "/.env",
)  # fmt: skip


def written(path: str) -> list[str]:
    """Ways in which agents write a path."""
    bare = path.removeprefix("/v1")
    return [
        path,
        bare,
        path + "/",
        "/v1" + path,
        "/v1/v1" + path + "/",
        "/" + path,
        bare + "//",
        path + "?beta=true&a=%2F",
    ]


@pytest.mark.parametrize("version", [False, True], ids=["plain", "anthropic-version"])
async def test_every_method_on_every_path(bench: Bench, version: bool) -> None:
    agent, problems, refused = await bench.open(), [], 0
    headers = agent.key | ({"anthropic-version": "2023-06-01"} if version else {})
    family = MESSAGES if version else CHAT
    places = [(way, path, ("POST",)) for path in POSTS for way in written(path)]
    places += [
        (way, family, ("GET", "HEAD")) for path in ("/v1/models", "/v1/models/any/name") for way in written(path)
    ]
    places += [(way, family, ("GET", "HEAD")) for way in ("", "/", "/v1", "/v1/", "/v1/v1", "//", "/?a=b")]
    for way, path, methods in places:
        for method in METHODS:
            given = {"json": said(path)} if method == "POST" and methods == ("POST",) else {}
            reply = await bench.client.request(method, agent.route.url + way, headers=headers, **given)
            if method in methods:
                found = [] if reply.status_code == 200 else [f"{reply.status_code}"]
            elif method == "HEAD":
                found = [] if (reply.status_code, reply.content) == (405, b"") else [f"{reply.status_code}"]
            else:
                found = list(refusal_problems(path, reply, told=TOLD["method"], words=f"use {' or '.join(methods)}"))
            if method not in methods and reply.headers.get("allow") != ", ".join(methods):
                found.append(f"Allow is {reply.headers.get('allow')}")
            refused += method not in methods
            problems += [f"{method} {way}: {problem}" for problem in found]
    assert not problems, "\n".join(problems)
    assert bench.capture.refusals == {"method": refused}


@pytest.mark.parametrize("version", [False, True], ids=["plain", "anthropic-version"])
async def test_paths_that_are_not_there(bench: Bench, version: bool) -> None:
    agent, problems = await bench.open(), []
    for way in UNKNOWN:
        family = next((path for path in (RESPONSES, MESSAGES) if way.startswith(path)), MESSAGES if version else CHAT)
        for method in METHODS:
            for key in (agent.key, {}):
                headers = key | ({"anthropic-version": "2023-06-01"} if version else {})
                url = httpx.URL(agent.route.url).copy_with(raw_path=way.encode())
                reply = await bench.client.request(method, url, headers=headers)
                if method == "HEAD":
                    found = [] if (reply.status_code, reply.content) == (404, b"") else [f"{reply.status_code}"]
                else:
                    found = list(refusal_problems(family, reply, told=TOLD["not_found"], words="there is no such path"))
                problems += [f"{method} {way}: {problem}" for problem in found]
    assert not problems, "\n".join(problems)


@pytest.mark.parametrize("path", CALLS)
async def test_websockets_are_told_to_use_post(bench: Bench, path: str) -> None:
    agent = await bench.open()
    upgrade = {"Upgrade": "websocket", "Connection": "Upgrade", "Sec-WebSocket-Version": "13", "Sec-WebSocket-Key": "a"}
    for way in written(path):
        reply = await bench.client.get(agent.route.url + way, headers=agent.key | upgrade)
        checked(path, reply, "upgrade", "use POST")
        assert reply.headers["allow"] == "POST"
    assert (await agent.ask(path)).status_code == 200
