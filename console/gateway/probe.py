"""The health of a Tinker gateway, over plain HTTP: neither tinker nor torch is imported.

Asked are `healthz`, `get_server_capabilities` and, where it exists, `engine_load`. The SDK itself says nothing while a
gateway is away (it retries for minutes), so the console looks for itself. What answers may be anything: the time and
the bytes of each answer are bounded, redirects are not followed, and nothing compressed is unpacked.
"""

from __future__ import annotations

import asyncio
import json
import time
from typing import Any

import httpx
import msgspec

from console.errors import GatewayLostError
from console.gateway.proxies import proxy_of

BYTES_MOST = 1 << 18
"""Of one answer. The list of a service's models is a few kilobytes."""
MODELS_MOST, NAME_MOST = 1000, 200


class ServedModel(msgspec.Struct, frozen=True, kw_only=True):
    """A model that the gateway serves; `context_window` in tokens, None when the gateway does not say."""

    name: str
    context_window: int | None = None


class GatewayHealth(msgspec.Struct, frozen=True, kw_only=True):
    """What one look at a gateway showed; None means unknown.

    Attributes:
        reachable: it answers, and it takes the key.
        latency_ms: round trip of the cheapest request.
        queued, running: sampling requests, summed over the engines.
        kv_fraction: the share of key-value memory in use by running requests, 0 to 1.
        detail: what is wrong, in one line; empty when nothing is.
    """

    reachable: bool
    latency_ms: float | None = None
    models: tuple[ServedModel, ...] = ()
    queued: int | None = None
    running: int | None = None
    kv_fraction: float | None = None
    detail: str = ""


async def probe(base_url: str, api_key: str, *, client: httpx.AsyncClient, timeout: float = 5.0) -> GatewayHealth:
    """Look at a gateway once. Never raises for network trouble, and never quotes the key.

    `timeout`: seconds for each of the three answers, from the first byte asked to the last one read.
    """
    started = time.perf_counter()
    try:
        await _get(client, base_url, "healthz", None, timeout)
        latency = (time.perf_counter() - started) * 1000
        models = await capabilities(base_url, api_key, client=client, timeout=timeout)
    except GatewayLostError as problem:
        return GatewayHealth(reachable=False, detail=str(problem))
    try:
        load = await _get(client, base_url, "engine_load", api_key, timeout)
    except GatewayLostError as problem:
        # Not every gateway has it; one that does and cannot answer has lost its engines.
        known = isinstance(problem, _Answered) and problem.status in (404, 405, 501)
        return GatewayHealth(
            reachable=True, latency_ms=latency, models=models, detail="" if known else f"engine load: {problem}"
        )
    return _with_load(GatewayHealth(reachable=True, latency_ms=latency, models=models), load)


async def capabilities(
    base_url: str, api_key: str, *, client: httpx.AsyncClient, timeout: float = 5.0
) -> tuple[ServedModel, ...]:
    """The models that a gateway serves.

    Raises:
        GatewayLostError: it does not answer, refuses the key, or answers nonsense. The key is never quoted.
    """
    answer = await _get(client, base_url, "get_server_capabilities", api_key, timeout)
    models = answer.get("supported_models") if isinstance(answer, dict) else None
    if not isinstance(models, list):
        raise GatewayLostError(f"{place_of(base_url)} does not answer like a Tinker gateway")
    served = []
    for model in models[:MODELS_MOST]:
        name = model.get("model_name") if isinstance(model, dict) else None
        if isinstance(name, str) and len(name) <= NAME_MOST:
            served.append(ServedModel(name=name, context_window=_count(model.get("max_context_length")) or None))
    return tuple(served)


class _Answered(GatewayLostError):
    """The gateway answered with an error status."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


async def _get(client: httpx.AsyncClient, base_url: str, route: str, api_key: str | None, timeout: float) -> Any:
    place = place_of(base_url)
    headers = {"Accept-Encoding": "identity"} | ({} if api_key is None else {"X-API-Key": api_key})
    address = f"{base_url.rstrip('/')}/api/v1/{route}"
    try:
        async with (
            asyncio.timeout(timeout),
            client.stream("GET", address, headers=headers, timeout=timeout, follow_redirects=False) as response,
        ):
            _check_status(response, place, route)
            body = await _read(response, f"{place} answers {route}")
    except GatewayLostError:
        raise
    except (httpx.TimeoutException, TimeoutError):
        raise GatewayLostError(f"{place} did not answer within {timeout:g} s") from None
    except httpx.ConnectError:
        what = "the proxy" if proxy_of(base_url) else "the gateway"
        raise GatewayLostError(f"{place} cannot be reached; is {what} running?") from None
    except Exception as problem:
        # The text of the exception may quote the headers, and with them the key: only its kind is told.
        raise GatewayLostError(f"{place} cannot be asked: {type(problem).__name__}") from None
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        raise GatewayLostError(f"{place} answers {route} with something that is not JSON") from None


def _check_status(response: httpx.Response, place: str, route: str) -> None:
    status = response.status_code
    if status in (401, 403):
        raise _Answered(status, f"{place} refuses the API key (HTTP {status})")
    if response.is_redirect:
        raise _Answered(status, f"{place} redirects {route} elsewhere (HTTP {status}): name the gateway's own address")
    if status != 200:
        raise _Answered(status, f"{place} answers {route} with HTTP {status}")


async def _read(response: httpx.Response, what: str) -> bytes:
    """The body. Raises `GatewayLostError` when it is too long, or compressed although that was not asked for."""
    if response.headers.get("content-encoding", "identity").lower() != "identity":
        raise GatewayLostError(f"{what} in a compressed form that it was not asked for")
    body = bytearray()
    async for piece in response.aiter_raw():
        body += piece
        if len(body) > BYTES_MOST:
            raise GatewayLostError(f"{what} with more than {BYTES_MOST >> 10} KiB")
    return bytes(body)


def place_of(base_url: str) -> str:
    """The address without user information, and whether it is asked through a proxy."""
    try:
        url = httpx.URL(base_url)
        proxy = proxy_of(base_url)
        return f"{url.scheme}://{url.netloc.decode()}" + (f" (through the proxy of {proxy})" if proxy else "")
    except Exception:
        return "the gateway's address"


def _with_load(health: GatewayHealth, load: Any) -> GatewayHealth:
    engines = load.get("engines") if isinstance(load, dict) else None
    if not isinstance(engines, list):
        return health
    queued = running = used = total = 0
    for engine in engines:
        if isinstance(engine, dict):
            queued += _count(engine.get("queued_requests"))
            running += _count(engine.get("running_requests"))
            kv = engine.get("full_kv")
            if isinstance(kv, dict):
                used += _count(kv.get("used_tokens"))
                total += _count(kv.get("total_tokens"))
    fraction = min(1.0, used / total) if total else None
    return msgspec.structs.replace(health, queued=queued, running=running, kv_fraction=fraction)


def _count(value: Any) -> int:
    return value if type(value) is int and 0 < value < 1 << 53 else 0
