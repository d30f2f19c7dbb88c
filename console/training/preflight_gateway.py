"""Findings about the Tinker gateway: what options and environment say of it, then what it answers when asked."""

from __future__ import annotations

import importlib.metadata
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from console.errors import GatewayLostError
from console.findings import ERROR, NOTE, WARNING, Finding
from console.training.options import RunOptions

if TYPE_CHECKING:
    import httpx

    from console.gateway.profiles import GatewayProfile

KEY_FORMS = ("tml-", "eyJ")
"""What the SDK takes as the beginning of a key; it refuses others before it asks any gateway."""


def gateway_options(options: RunOptions, env: Mapping[str, str]) -> Iterator[Finding]:
    """What can be said without asking the gateway.

    Args:
        env: environment variables of the process that will train.
    """
    base_url = options.value("config.base_url")
    if options.embedded:
        yield from _embedded(options)
        return
    for name in ("embedded_model", "embedded_checkpoints"):
        if getattr(options.console, name) is not None:
            yield Finding(
                code="gateway.unused",
                level=WARNING,
                object=f"console.{name}",
                message="has no effect without console.gateway=embedded",
                remedy="set that too, or remove it",
            )
    if base_url is not None and not is_url(base_url):
        yield Finding(
            code="gateway.url",
            object="config.base_url",
            message=f"{base_url!r} is not an http address",
            remedy="write it as http://HOST:PORT",
        )
    yield from _key(env)
    elsewhere = env.get("TINKER_BASE_URL", "").strip()
    if base_url is None and elsewhere and not is_url(elsewhere):
        yield Finding(
            code="gateway.url",
            object="TINKER_BASE_URL",
            message="is not an http address",
            remedy="write it as http://HOST:PORT, or unset it and set config.base_url",
        )
    elif base_url is None:
        yield Finding(
            code="gateway.hosted",
            level=NOTE,
            object="config.base_url",
            message="is not set: this trains "
            + ("where TINKER_BASE_URL says" if elsewhere else "on the hosted Tinker service"),
        )


def _embedded(options: RunOptions) -> Iterator[Finding]:
    if options.value("config.base_url") is not None:
        yield Finding(
            code="gateway.both",
            object="config.base_url",
            message="contradicts console.gateway=embedded, which sets it",
            remedy="remove one of the two",
        )
    model = options.console.embedded_model
    if model is not None and not (Path(model) / "config.json").is_file():
        yield Finding(
            code="gateway.embedded_model",
            object="console.embedded_model",
            message=f"{model} holds no config.json",
            remedy="name a Hugging Face model directory",
        )


def _key(env: Mapping[str, str]) -> Iterator[Finding]:
    key = env.get("TINKER_API_KEY", "").strip()
    if not key:
        yield Finding(
            code="gateway.key",
            object="TINKER_API_KEY",
            message="is not set; the Tinker SDK asks for one, whatever the gateway does with it",
            remedy="export TINKER_API_KEY=tml-...",
        )
    elif not key.startswith(KEY_FORMS):
        yield Finding(
            code="gateway.key",
            object="TINKER_API_KEY",
            message="does not begin with tml-, and the Tinker SDK refuses such a key whatever the gateway says",
            remedy="export a key of the form tml-..., which the Miles gateway takes as the tenant's name",
        )


def is_url(text: str) -> bool:
    """Whether it is an http(s) address with a host."""
    try:
        parts = urlsplit(text)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False


async def preflight_gateway(options: RunOptions, env: Mapping[str, str]) -> list[Finding]:
    """Findings about a gateway that somebody else runs: whether it answers, what it is, serves and takes.

    Five requests at most, none of which changes anything there. Without an address, which means the hosted service,
    nobody is asked.
    """
    base_url = options.value("config.base_url") or env.get("TINKER_BASE_URL", "").strip()
    if options.embedded or not is_url(base_url):
        return []
    from console.gateway.proxies import except_loopback, gateway_client

    except_loopback(os.environ)
    try:
        async with gateway_client() as client:
            profile = await detect_as(options, base_url, env.get("TINKER_API_KEY", "").strip(), client)
    except GatewayLostError as problem:
        return [
            Finding(
                code="gateway.unreachable",
                object="config.base_url",
                message=str(problem),
                remedy="start the gateway, or correct the address",
            )
        ]
    return profile_findings(options, profile)


async def detect_as(options: RunOptions, base_url: str, api_key: str, client: httpx.AsyncClient) -> GatewayProfile:
    """The profile of the gateway at an address, found out with what the options say of it.

    Raises:
        GatewayLostError: as `console.gateway.detect.detect` does.
    """
    from console.gateway.detect import detect

    console = options.console
    return await detect(
        base_url,
        api_key,
        client=client,
        wanted="embedded" if options.embedded else console.gateway_profile,
        window=console.context_window,
        rank=console.gateway_rank,
    )


def profile_findings(options: RunOptions, profile: GatewayProfile) -> list[Finding]:
    """Findings about the options against what a gateway takes."""
    served = {model.name: model.context_window for model in profile.models}
    return [
        *check_served(options, served),
        *_window(options, profile),
        *_adapter(options, profile),
        *_checkpoints(options, profile),
        *_loss(options, profile),
        *_sdk(profile),
    ]


def check_served(options: RunOptions, served: Mapping[str, int | None]) -> list[Finding]:
    """Findings about the models that a gateway names.

    Args:
        served: model name to context window in tokens, None where the gateway does not say; empty when it names none.
    """
    name = options.value("config.model_name")
    if not served:
        return []
    if name not in served:
        names = sorted(served)
        more = f" and {len(names) - 8} more" if len(names) > 8 else ""
        return [
            Finding(
                code="gateway.model",
                object="config.model_name",
                message=f"{name} is not served by this gateway",
                remedy=f"it serves {', '.join(names[:8])}{more}",
            )
        ]
    return _room(options, served[name])


def _room(options: RunOptions, window: int | None) -> list[Finding]:
    limit = options.value("config.max_tokens")
    if window is None or limit < window:
        return []
    return [
        Finding(
            code="gateway.window",
            object="config.max_tokens",
            message=f"{limit} leaves no room for a prompt in the gateway's window of {window} tokens",
            remedy="lower it",
        )
    ]


def _window(options: RunOptions, profile: GatewayProfile) -> Iterator[Finding]:
    from console.gateway.profiles import MILES_RESERVED_TOKENS

    given, served = options.console.context_window, {m.name: m.context_window for m in profile.models}
    says = served.get(options.value("config.model_name"))
    if given is not None:
        if says is not None and given > says:
            yield Finding(
                code="gateway.window",
                level=WARNING,
                object="console.context_window",
                message=f"{given} is more than the {says} tokens that the gateway names; those are used",
                remedy="remove it",
            )
        elif says is None or given < says:
            yield from _room(options, given)
        if says is None and profile.name == "miles" and given % 1024 == 0:
            fits = given - MILES_RESERVED_TOKENS
            yield Finding(
                code="gateway.window",
                level=WARNING,
                object="console.context_window",
                message=f"{given} looks like the context length that the gateway was started with, of which it can "
                f"sample {fits}; a longer call would be refused instead of ending as a context overflow",
                remedy=f"set console.context_window={fits}",
            )
    elif says is None and profile.name == "miles":
        yield Finding(
            code="gateway.window",
            level=WARNING,
            object="console.context_window",
            message="is not set, and this gateway does not name its window: an agent that outgrows it sees its calls "
            "refused instead of a context overflow",
            remedy="set it to the gateway's --sglang-context-length less 7, e.g. 65529 for 65536",
        )


def _adapter(options: RunOptions, profile: GatewayProfile) -> Iterator[Finding]:
    from console.gateway.profiles import MODULES

    rank, most = options.value("config.lora_rank"), profile.max_rank
    if most is not None and rank > most:
        yield Finding(
            code="gateway.rank",
            object="config.lora_rank",
            message=f"{rank} is more than the gateway's adapters have, {most}",
            remedy=f"set config.lora_rank={most}, or start the gateway with --lora-rank {rank}",
        )
    if profile.modules and set(profile.modules) != set(MODULES):
        refused = "layout" in profile.refuses
        yield Finding(
            code="gateway.layout",
            level=ERROR if refused else NOTE,
            object="config.base_url",
            message=f"the gateway trains {', '.join(profile.modules)}, and the cookbook asks for {', '.join(MODULES)}"
            + ("" if refused else "; the rest is not trained"),
            remedy=f"start it with --target-modules {','.join(MODULES)}" if refused else "",
        )


def _checkpoints(options: RunOptions, profile: GatewayProfile) -> Iterator[Finding]:
    ttl = options.value("config.ttl_seconds")
    if profile.expiring is False and ttl is not None:
        refused = "ttl" in profile.refuses
        given = "" if "config.ttl_seconds" in options.given else ", the cookbook's default"
        yield Finding(
            code="gateway.ttl",
            level=ERROR if refused else WARNING,
            object="config.ttl_seconds",
            message=f"is {ttl}{given}; checkpoints of this gateway ({profile.name}) do not expire"
            + (", and it refuses to save them with a lifetime" if refused else ""),
            remedy="set config.ttl_seconds=None",
        )


def _loss(options: RunOptions, profile: GatewayProfile) -> Iterator[Finding]:
    loss = options.value("config.loss_fn")
    if profile.losses and loss not in profile.losses:
        yield Finding(
            code="gateway.loss",
            object="config.loss_fn",
            message=f"{loss} is not trained by this gateway ({profile.name})",
            remedy=f"it trains {', '.join(profile.losses)}",
        )


def _sdk(profile: GatewayProfile) -> Iterator[Finding]:
    from console.gateway.profiles import TRANSLATED_SDK

    if profile.sdk == "current" and profile.create_by_load and profile.sequence_ids:
        return
    try:
        version = importlib.metadata.version("tinker")
    except importlib.metadata.PackageNotFoundError:
        return  # what is missing is said elsewhere
    if version != TRANSLATED_SDK and not version.startswith(f"{TRANSLATED_SDK}."):
        yield Finding(
            code="gateway.sdk",
            object="tinker",
            message=f"{version} is installed, whose requests cannot be translated for this gateway ({profile.name})",
            remedy=f"install tinker~={TRANSLATED_SDK}.0",
        )
