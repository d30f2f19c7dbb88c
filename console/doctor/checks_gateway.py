"""The Tinker gateway, asked only with --live."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from email.utils import parsedate_to_datetime
from urllib.parse import urlsplit

from console.doctor.case import Case
from console.doctor.report import Check, Question
from console.errors import GatewayLostError

ANSWERS = Question("gateway.answers", "a run cannot begin without it; the SDK itself retries for minutes in silence")
PROFILE = Question("gateway.profile", "gateways differ in what they take: requests, losses, checkpoints that expire")
CLOCK = Question("gateway.clock", "leases and checkpoint times of another clock are hard to read")
SKEW_SECONDS = 60.0
"""Between the gateway's clock and ours; certificates are refused from some minutes on."""


def gateway(case: Case) -> Iterator[Check]:
    """Whether it answers, what it serves, what kind it is, and its clock."""
    url, reason = _address(case)
    if url is None or not case.live:
        for question in (ANSWERS, PROFILE, CLOCK):
            yield question.skipped(reason if url is None else "only --live asks it")
        return
    yield from asyncio.run(_ask(case, url))


def _address(case: Case) -> tuple[str | None, str]:
    """Where it is, or why nobody is asked."""
    if case.options is not None and case.options.embedded:
        return None, "the embedded gateway is started with the run"
    url = case.options.value("config.base_url") if case.options is not None else None
    url = url or case.host.env.get("TINKER_BASE_URL")
    if url:
        try:
            parts = urlsplit(url)
            if parts.scheme in ("http", "https") and parts.hostname:
                return url, ""
        except ValueError:
            pass
        return None, "its address cannot be read"
    return None, "no gateway of yours is named: give options with config.base_url, or TINKER_BASE_URL"


async def _ask(case: Case, url: str) -> list[Check]:
    from console.gateway.detect import detect
    from console.gateway.probe import probe
    from console.gateway.proxies import except_loopback, gateway_client
    from console.training.preflight_gateway import detect_as

    key, options = case.host.env.get("TINKER_API_KEY", ""), case.options
    except_loopback(os.environ)
    async with gateway_client() as client:
        health = await probe(url, key, client=client)
        if not health.reachable:
            lost = ANSWERS.error(health.detail, "start the gateway, or correct config.base_url or TINKER_API_KEY")
            return [lost, *(question.skipped("the gateway does not answer") for question in (PROFILE, CLOCK))]
        models = ", ".join(
            f"{model.name}{f' ({model.context_window} tokens)' if model.context_window else ''}"
            for model in health.models[:5]
        )
        found = f"in {health.latency_ms or 0:.0f} ms; it serves {models or 'models that it does not name'}"
        checks = [
            ANSWERS.warning(f"{found}; {health.detail}", "look at the gateway") if health.detail else ANSWERS.ok(found)
        ]
        try:
            if options is not None:
                profile = await detect_as(options, url, key, client)
            else:
                profile = await detect(url, key, client=client)
        except GatewayLostError as problem:
            checks.append(PROFILE.warning(str(problem), "set console.gateway_profile"))
        else:
            slots = f", {profile.slots} model slots" if profile.slots is not None else ""
            checks.append(PROFILE.ok(f"{profile.name}: {profile.how}; requests of SDK {profile.sdk}{slots}"))
        return [*checks, await _clock(case, url, client)]


async def _clock(case: Case, url: str, client: object) -> Check:
    import httpx

    assert isinstance(client, httpx.AsyncClient)
    try:
        async with client.stream("GET", f"{url.rstrip('/')}/api/v1/healthz", timeout=5.0) as answer:
            sent = answer.headers.get("date")
        there = parsedate_to_datetime(sent).timestamp() if sent else None
    except (httpx.HTTPError, ValueError, OverflowError):
        there = None
    if there is None:
        return CLOCK.skipped("it does not tell its time")
    ahead = there - case.host.now
    if abs(ahead) > SKEW_SECONDS:
        way = "ahead of" if ahead > 0 else "behind"
        return CLOCK.warning(f"its clock is {abs(ahead):.0f} s {way} this machine's", "have both kept by NTP")
    return CLOCK.ok("its clock and this machine's agree")
