"""The health of a Tinker gateway, over plain HTTP: neither tinker nor torch is imported.

Asked are `healthz`, `get_server_capabilities` and, where it exists, `engine_load`. The SDK itself says nothing while a
gateway is away (it retries for minutes), so the console looks for itself.
"""

from __future__ import annotations

import time
from typing import Any

import httpx
import msgspec

from console.errors import GatewayLostError


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
    """Look at a gateway once. Never raises for network trouble, and never quotes the key."""
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
        raise GatewayLostError(f"{_place(base_url)} does not answer like a Tinker gateway")
    served = []
    for model in models:
        name = model.get("model_name") if isinstance(model, dict) else None
        if isinstance(name, str):
            window = model.get("max_context_length")
            served.append(ServedModel(name=name, context_window=window if isinstance(window, int) else None))
    return tuple(served)


class _Answered(GatewayLostError):
    """The gateway answered with an error status."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


async def _get(client: httpx.AsyncClient, base_url: str, route: str, api_key: str | None, timeout: float) -> Any:
    place = _place(base_url)
    headers = {} if api_key is None else {"X-API-Key": api_key}
    try:
        response = await client.get(f"{base_url.rstrip('/')}/api/v1/{route}", headers=headers, timeout=timeout)
    except httpx.TimeoutException:
        raise GatewayLostError(f"{place} did not answer within {timeout:g} s") from None
    except httpx.ConnectError:
        raise GatewayLostError(f"{place} cannot be reached; is the gateway running?") from None
    except Exception as problem:
        # The text of the exception may quote the headers, and with them the key: only its kind is told.
        raise GatewayLostError(f"{place} cannot be asked: {type(problem).__name__}") from None
    if response.status_code in (401, 403):
        raise _Answered(response.status_code, f"{place} refuses the API key (HTTP {response.status_code})")
    if response.status_code != 200:
        raise _Answered(response.status_code, f"{place} answers {route} with HTTP {response.status_code}")
    try:
        return response.json()
    except ValueError:
        raise GatewayLostError(f"{place} answers {route} with something that is not JSON") from None


def _place(base_url: str) -> str:
    """The address without user information."""
    try:
        url = httpx.URL(base_url)
        return f"{url.scheme}://{url.netloc.decode()}"
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
    return value if isinstance(value, int) and value > 0 else 0
