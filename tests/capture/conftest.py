"""A capture gateway over real sockets, with the real renderer and a sampler of the embedded gateway."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from console.capture.base import CallReport
from console.errors import CaptureError

MODEL_NAME = "quarterdeck/midshipman"


@pytest.fixture(scope="session")
def sampler(embedded_gateway: str) -> Any:
    import tinker

    service = tinker.ServiceClient(base_url=embedded_gateway, api_key="tml-tests")
    return service.create_sampling_client(base_model=MODEL_NAME).result()


@pytest.fixture(scope="session")
def renderer() -> Any:
    from console.training.setup import make_renderer, register_bundled_tokenizers

    register_bundled_tokenizers()
    return make_renderer(MODEL_NAME, "qwen3_instruct")


@pytest.fixture
async def make_capture(renderer: Any, tmp_path: Path) -> AsyncIterator[Callable[..., Any]]:
    """Starts a capture gateway that is closed at the end; keywords replace its own."""
    from console.capture.cookbook_proxy import CookbookCapture

    made: list[Any] = []

    async def make(**changes: Any) -> Any:
        values: dict[str, Any] = {
            "renderer": renderer,
            "model_label": MODEL_NAME,
            "default_max_tokens": 6,
            "context_window": None,
            "listen_host": "127.0.0.1",
            "advertised_host": "127.0.0.1",
            "directory": tmp_path / "capture",
        }
        made.append(CookbookCapture(**values | changes))
        await made[-1].start()
        return made[-1]

    yield make
    for capture in made:
        with contextlib.suppress(CaptureError):
            await capture.close()


class Agent:
    """An agent's side of a route: asks, and remembers what the gateway reported."""

    def __init__(self, route: Any, reports: list[CallReport], client: httpx.AsyncClient) -> None:
        self.route, self.reports, self._client = route, reports, client

    async def ask(self, content: str = "List the files.", key: str | None = None, **body: Any) -> httpx.Response:
        return await self.post(
            "/v1/chat/completions", {"messages": [{"role": "user", "content": content}]} | body, key=key
        )

    async def post(self, path: str, body: Any, key: str | None = None) -> httpx.Response:
        headers = {"Authorization": f"Bearer {key or self.route.api_key}"}
        return await self._client.post(self.route.url + path, json=body, headers=headers)


@pytest.fixture
async def open_agent(sampler: Any) -> AsyncIterator[Callable[..., Any]]:
    """Opens a route on a capture gateway and returns the agent's side of it."""
    async with httpx.AsyncClient(timeout=60, trust_env=False) as client:

        async def open_(capture: Any, key: str = "s0.g0.t0.y0", inner: Any = None) -> Agent:
            reports: list[CallReport] = []
            return Agent(await capture.open_route(key, inner or sampler, reports.append), reports, client)

        yield open_


class Latch:
    """The real sampler behind a latch: calls wait until it is opened."""

    def __init__(self, inner: Any) -> None:
        self._inner, self.opened, self.cancelled = inner, asyncio.Event(), 0

    async def sample(self, **arguments: Any) -> Any:
        try:
            await self.opened.wait()
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        return await self._inner.sample(**arguments)


@pytest.fixture
def latch(sampler: Any) -> Latch:
    return Latch(sampler)
