"""What kind of Tinker gateway answers at an address, found out by questions that change nothing there.

Asked are its models, its list of checkpoints, its load, and two requests that it must refuse whatever it is: loading
a checkpoint without a model, and creating a model of rank 0 in a session that does not exist. The words of the refusals
tell what it takes.
"""

from __future__ import annotations

import asyncio
import json
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import httpx
import msgspec

from console.errors import GatewayLostError
from console.gateway.probe import capabilities, place_of
from console.gateway.profiles import PROFILES, GatewayProfile

HOSTED_HOSTS = ("thinkingmachines.dev", "thinkingmachines.ai")
"""The hosted service is known by its address, and asked for nothing but its models."""

NOBODY = "quarterdeck-asks"
"""Stands for a session and a checkpoint that do not exist."""

_MOST_BYTES = 64 * 1024
_LOAD = {
    "session_id": NOBODY,
    "model_seq_id": 0,
    "path": f"tinker://{NOBODY}/weights/none",
    "optimizer": False,
    "type": "load_weights",
}


class _Answer(NamedTuple):
    """`status`: 0 when none came; `text`: its first bytes; `body`: decoded, None when it is not JSON."""

    status: int
    text: str = ""
    body: Any = None

    @property
    def refuses(self) -> bool:
        """Whether it is a refusal of what was asked, and says so because of that."""
        return 400 <= self.status < 500 and self.status not in (401, 403, 407, 408, 425, 429)


async def detect(
    base_url: str,
    api_key: str,
    *,
    client: httpx.AsyncClient,
    wanted: str = "auto",
    window: int | None = None,
    rank: int | None = None,
    timeout: float = 10.0,
) -> GatewayProfile:
    """The profile of the gateway at `base_url`.

    Args:
        wanted: the profile's name, or `auto` for finding out; what the gateway answers corrects a given one, too.
        window: tokens of a prompt and its sample, rank: largest of an adapter, both as the options say.
        timeout: seconds for each of the questions, most of which are asked at once.

    Raises:
        GatewayLostError: it does not answer, refuses the key, or answers so that its kind cannot be told.
    """
    models = await capabilities(base_url, api_key, client=client, timeout=timeout)
    known = {"context_window": window, "max_rank": rank, "models": models}
    if wanted in ("auto", "hosted") and _is_hosted(base_url):
        return msgspec.structs.replace(PROFILES["hosted"], how="its address", **known)
    model = models[0].name if models else NOBODY
    listing, load, loading = await asyncio.gather(
        _ask(client, base_url, api_key, "checkpoints?limit=1", None, timeout),
        _ask(client, base_url, api_key, "engine_load", None, timeout),
        _ask(client, base_url, api_key, "load_weights", _LOAD, timeout),
    )
    creating = await _ask(client, base_url, api_key, "create_model", _creation(model), timeout)
    name, how = _name_of(listing, load, loading, creating) if wanted == "auto" else (wanted, "console.gateway_profile")
    if name is None:
        raise GatewayLostError(
            f"{place_of(base_url)} answers the questions that would tell what kind of gateway it is with HTTP "
            f"{loading.status} and {creating.status}; wait until it is well, or set console.gateway_profile"
        )
    return msgspec.structs.replace(PROFILES[name], how=how, **known, **_facts(listing, load, loading, creating))


def _creation(model: str) -> dict[str, Any]:
    """A create_model as the current SDK sends it; no gateway can fulfil it: the rank is 0 and nobody asks."""
    return {
        "session_id": NOBODY,
        "model_seq_id": 0,
        "base_model": model,
        "lora_config": {"rank": 0, "train_unembed": True, "train_mlp": True, "train_attn": True},
        "optimizer_config": {"type": "adamw"},
        "type": "create_model",
    }


def _name_of(listing: _Answer, load: _Answer, loading: _Answer, creating: _Answer) -> tuple[str | None, str]:
    """The profile's name and what told it; None for not to be told."""
    if _needs_model(loading):
        if loading.status == 422:
            return "skyrl", "it answers HTTP 422 where a checkpoint is loaded without a model"
        return "miles", "it asks for a model_id where a checkpoint is loaded"
    if _is_strict(creating):
        return "miles", "it takes requests of the SDK's generation 0.26 only"
    if not loading.refuses:
        return None, ""
    if listing.status == 200:
        ours = isinstance(load.body, dict) and "models" in load.body and "engines" in load.body
        if ours:
            return "embedded", "it lists checkpoints and counts its models"
        return "hosted", "it lists checkpoints, and creates models from them"
    return "hosted", "it answers like none of those known, and takes the requests of the current SDK"


def _facts(listing: _Answer, load: _Answer, loading: _Answer, creating: _Answer) -> dict[str, Any]:
    """What the answers say for sure, whatever the profile."""
    facts: dict[str, Any] = {}
    if _is_strict(creating):
        facts["sdk"] = "0.26"
    elif creating.refuses:
        facts["sdk"] = "current"
    if _needs_model(loading):
        facts["create_by_load"] = False
    elif loading.refuses and loading.status != 404:
        facts["create_by_load"] = True
    if listing.status == 200 or listing.refuses:
        facts["lists_checkpoints"] = listing.status == 200
    count = load.body.get("models") if isinstance(load.body, dict) else None
    capacity = count.get("capacity") if isinstance(count, dict) else None
    if type(capacity) is int and capacity > 0:
        facts["slots"] = capacity
    return facts


def _needs_model(answer: _Answer) -> bool:
    """It takes a checkpoint only into a model that exists."""
    return answer.status in (400, 422) and "model_id" in answer.text


def _is_strict(answer: _Answer) -> bool:
    """It refuses a field that it does not know."""
    return answer.status in (400, 422) and (
        "Extra inputs are not permitted" in answer.text or "extra_forbidden" in answer.text
    )


async def _ask(
    client: httpx.AsyncClient, base_url: str, api_key: str, route: str, body: dict[str, Any] | None, timeout: float
) -> _Answer:
    """One question. Never raises for trouble with the answer: then its status is 0."""
    headers = {"X-API-Key": api_key, "Accept-Encoding": "identity"}
    try:
        async with (
            asyncio.timeout(timeout),
            client.stream(
                "GET" if body is None else "POST",
                f"{base_url.rstrip('/')}/api/v1/{route}",
                json=body,
                headers=headers,
                timeout=timeout,
                follow_redirects=False,
            ) as response,
        ):
            data = bytearray()
            async for piece in response.aiter_raw():
                data += piece
                if len(data) > _MOST_BYTES:
                    break
            return _Answer(response.status_code, data[:_MOST_BYTES].decode(errors="replace"), _decoded(data))
    except Exception:
        # What it is, does not matter here, and its text may quote the headers, and with them the key.
        return _Answer(0)


def _decoded(data: bytes | bytearray) -> Any:
    try:
        return json.loads(data)
    except (ValueError, RecursionError):
        return None


def _is_hosted(base_url: str) -> bool:
    try:
        host = urlsplit(base_url).hostname or ""
    except ValueError:
        return False
    return any(host == known or host.endswith(f".{known}") for known in HOSTED_HOSTS)
