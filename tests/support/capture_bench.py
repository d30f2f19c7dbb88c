"""A capture gateway over real sockets with a renderer of the cookbook, and a sampler whose replies are scripted."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterable
from functools import cache
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import httpx
from qwen_tokenizer import qwen_renderer, qwen_tokenizer
from scripted_sampler import Scripted, ScriptedSampler

from console.capture.base import CallReport
from console.capture.captured import CapturedTrial
from console.capture.journal import CallJournal
from console.capture.rendering import PolicyRenderer
from console.capture.server import Capture
from console.capture.settings import CallSettings

MODEL = "policy-under-test"
CHAT, RESPONSES, MESSAGES = "/v1/chat/completions", "/v1/responses", "/v1/messages"
COUNT = "/v1/messages/count_tokens"


def said(path: str, text: str = "List the files.", **more: Any) -> dict[str, Any]:
    """The body of a request in the dialect of a path."""
    if path == RESPONSES:
        return {"model": "m", "input": text} | more
    body: dict[str, Any] = {"model": "m", "messages": [{"role": "user", "content": text}]}
    return body | ({"max_tokens": 100} if path == MESSAGES else {}) | more


def text_of(path: str, body: Any) -> str:
    """The visible text of a reply in that dialect."""
    if path == CHAT:
        return str(body["choices"][0]["message"]["content"])
    if path == MESSAGES:
        return "".join(part["text"] for part in body["content"] if part["type"] == "text")
    return "".join(part["text"] for item in body["output"] if item["type"] == "message" for part in item["content"])


def message_of(path: str, body: Any) -> str:
    """The text of an error in that dialect; fails when it is not shaped as one."""
    error = body["error"]
    assert isinstance(error["message"], str) and error["message"] and isinstance(error["type"], str)
    assert (body.get("type") == "error") is path.startswith("/v1/messages")
    return str(error["message"])


class Agent:
    """An agent's side of a route: what it asks, and what the engine hears of it."""

    def __init__(self, bench: Bench, route: Any, reports: list[CallReport]) -> None:
        self._bench, self.route, self.reports = bench, route, reports

    @property
    def key(self) -> dict[str, str]:
        """The header that names the trial."""
        return {"Authorization": f"Bearer {self.route.api_key}"}

    async def ask(self, path: str = CHAT, text: str = "List the files.", **more: Any) -> httpx.Response:
        """A call in the dialect of a path."""
        return await self.post(path, said(path, text, **more))

    async def post(self, path: str, body: Any = None, **more: Any) -> httpx.Response:
        """A POST with the trial's token; `content` and `headers` as httpx has them."""
        given = {"content": more.pop("content")} if "content" in more else {"json": body}
        headers = self.key | more.pop("headers", {})
        return await self._bench.client.post(self.route.url + path, headers=headers, **given, **more)

    async def seal(self) -> CapturedTrial:
        """The trial's end."""
        return await self.route.seal()  # type: ignore[no-any-return]


class Bench:
    """Use as `async with Bench(tmp_path, replies) as bench`; keywords go to the gateway, `settings` to its calls."""

    def __init__(
        self, directory: Path, replies: Iterable[Scripted] = (), *, settings: dict[str, Any] | None = None, **more: Any
    ) -> None:
        self.sampler = ScriptedSampler(qwen_tokenizer(), replies)
        self.journal = CallJournal(directory / "capture")
        self.capture = Capture(
            renderer=policy_renderer(),
            journal=self.journal,
            settings=CallSettings(**{"model": MODEL, "max_tokens": 64, "window": 4096} | (settings or {})),
            **more,
        )
        self.client = httpx.AsyncClient(timeout=30, trust_env=False, verify=False)
        self._opened = 0

    async def __aenter__(self) -> Self:
        await self.capture.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.client.aclose()
        await self.capture.close()

    @property
    def address(self) -> tuple[str, int]:
        """Where it listens."""
        return "127.0.0.1", self.capture._listener.port

    async def open(self, *, start: bool = True, sampler: Any = None) -> Agent:
        """A trial, its agent running."""
        reports: list[CallReport] = []
        key = f"s0.g0.t{self._opened}.y0"
        self._opened += 1
        route = await self.capture.open_route(key, sampler or self.sampler, reports.append, policy_version=0)
        if start:
            route.start()
        return Agent(self, route, reports)

    async def raw(self, data: bytes) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """A connection on which these bytes were sent."""
        reader, writer = await asyncio.open_connection(*self.address)
        writer.write(data)
        await writer.drain()
        return reader, writer


@cache
def policy_renderer() -> PolicyRenderer:
    """One for all tests of a process."""
    return PolicyRenderer(qwen_renderer("qwen3_instruct"), name="qwen3_instruct")


def request_bytes(path: str, body: Any, key: str, *headers: str, method: str = "POST") -> bytes:
    """A whole HTTP request."""
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    lines = [f"{method} {path} HTTP/1.1", "Host: x", f"Authorization: Bearer {key}", f"Content-Length: {len(data)}"]
    return "\r\n".join([*lines, *headers, "", ""]).encode() + data


async def response(reader: asyncio.StreamReader) -> tuple[int, dict[str, str], bytes]:
    """Status, headers (lower case) and body of the next response on a connection."""
    head = (await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 20)).decode("latin-1").split("\r\n")
    headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in head[1:] if line)}
    body = b""
    if headers.get("transfer-encoding") == "chunked":
        while size := int((await reader.readuntil(b"\r\n")).strip(), 16):
            body += await reader.readexactly(size)
            await reader.readexactly(2)
        await reader.readexactly(2)
    elif headers.get("content-length"):
        body = await reader.readexactly(int(headers["content-length"]))
    return int(head[0].split()[1]), headers, body


async def until(condition: Callable[[], bool], seconds: float = 20.0) -> None:
    """Wait for a condition, a generous time."""
    async with asyncio.timeout(seconds):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.005)
