"""Which gateway answers, found out from the real ones, from sick ones, and without leaving anything there."""

from __future__ import annotations

import json
import socket
from collections.abc import AsyncIterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import msgspec
import pytest
from gateway_faults import FaultyGateway, answer, cut, hang, status
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from console.engine.gateway_link import GatewayLink
from console.errors import GatewayLostError
from console.gateway.detect import detect
from console.gateway.embedded.likeness import LIKENESSES
from console.gateway.profiles import PROFILES
from console.journal import events as ev
from console.training.options import RunOptions, parse
from console.training.preflight_gateway import detect_as, preflight_gateway

if TYPE_CHECKING:
    from tests.gateway.conftest import Served

KEY = "tml-secret"


@pytest.fixture
async def client() -> AsyncIterator[httpx.AsyncClient]:
    """As the engine has one."""
    async with httpx.AsyncClient(trust_env=False) as client:
        yield client


@pytest.mark.parametrize(
    ("fixture", "name", "sdk", "by_load", "lists", "window"),
    [
        ("tiny_gateway", "embedded", "current", True, True, 512),
        ("miles_gateway", "miles", "0.26", False, False, None),
        ("skyrl_gateway", "skyrl", "current", False, False, None),
        ("hosted_gateway", "hosted", "current", True, True, 512),
    ],
)
async def test_each_is_told_by_its_answers(
    request: pytest.FixtureRequest,
    client: httpx.AsyncClient,
    fixture: str,
    name: str,
    sdk: str,
    by_load: bool,
    lists: bool,
    window: int | None,
) -> None:
    gateway: Served = request.getfixturevalue(fixture)
    found = await detect(gateway.url, KEY, client=client)
    assert (found.name, found.sdk, found.create_by_load, found.lists_checkpoints) == (name, sdk, by_load, lists)
    assert found.how and found.window("tiny") == window and found.window("other") is None
    assert (found.losses, found.lease, found.sequence_ids) == (
        PROFILES[name].losses, PROFILES[name].lease, PROFILES[name].sequence_ids,
    )  # fmt: skip
    told = await detect(gateway.url, KEY, client=client, wanted=name, window=500, rank=16)
    assert (told.name, told.how, told.window("tiny"), told.max_rank) == (name, "console.gateway_profile", 500, 16)


async def test_asking_leaves_nothing(miles_gateway: Served, client: httpx.AsyncClient) -> None:
    with miles_gateway.http(KEY) as http:
        before = http.get("/engine_load").json()
        await detect(miles_gateway.url, KEY, client=client)
        after = http.get("/engine_load").json()
    assert after["models"] == before["models"] and after["totals"] == before["totals"]


async def test_a_given_profile_is_corrected_by_what_is_sure(miles_gateway: Served, client: httpx.AsyncClient) -> None:
    found = await detect(miles_gateway.url, KEY, client=client, wanted="hosted")
    assert (found.name, found.sdk, found.create_by_load, found.slots) == ("hosted", "0.26", False, 50)


async def test_the_hosted_service_is_known_by_its_address_and_asked_for_its_models_only() -> None:
    asked = []

    async def capabilities(request: Request) -> JSONResponse:
        asked.append(request.url.path)
        return JSONResponse({"supported_models": [{"model_name": "m", "max_context_length": 4096}]})

    app = Starlette(routes=[Route("/{path:path}", capabilities, methods=["GET", "POST"])])
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app)) as client:
        found = await detect("https://tinker.thinkingmachines.dev/services/tinker-prod", KEY, client=client)
        assert (found.name, found.expiring, found.window("m")) == ("hosted", True, 4096)
        assert asked == ["/services/tinker-prod/api/v1/get_server_capabilities"]
        with pytest.raises(GatewayLostError, match=r"set console\.gateway_profile"):
            await detect("https://thinkingmachines.dev.example", KEY, client=client)
    assert len(asked) > 2, "another host of such a name is asked, and nobody takes what cannot be"


@pytest.mark.parametrize("fault", [status(500), status(429, retry_after=1), status(401), cut()])
async def test_a_sick_gateway_is_not_taken_for_another_one(
    miles_gateway: Served, client: httpx.AsyncClient, fault: Any
) -> None:
    async with FaultyGateway(miles_gateway.url) as faulty:
        for route in ("load_weights", "create_model", "checkpoints", "engine_load"):
            faulty.set(route, fault)
        with pytest.raises(GatewayLostError, match=r"set console\.gateway_profile") as caught:
            await detect(faulty.url, KEY, client=client)
        assert caught.value.exit_code == 5 and KEY not in str(caught.value) and "\n" not in str(caught.value)
        told = await detect(faulty.url, KEY, client=client, wanted="miles")
        assert (told.name, told.sdk, told.create_by_load) == ("miles", "0.26", False)
        faulty.clear()
        assert (await detect(faulty.url, KEY, client=client)).name == "miles"


@pytest.mark.parametrize(
    "fault",
    [
        answer(b"[" * 100_000),
        answer(b"\xff\x00" * 2_000_000),
        answer(b"", 302, headers={"location": "http://127.0.0.1:1/"}),
        answer(json.dumps({"models": {"capacity": "many"}, "engines": 3}).encode()),
        answer(b"model_id" * 50, 500),
        hang(),
    ],
)
async def test_nonsense_is_survived(miles_gateway: Served, client: httpx.AsyncClient, fault: Any) -> None:
    async with FaultyGateway(miles_gateway.url) as faulty:
        for route in ("load_weights", "create_model", "checkpoints", "engine_load"):
            faulty.set(route, fault)
        with pytest.raises(GatewayLostError, match=r"set console\.gateway_profile") as caught:
            await detect(faulty.url, KEY, client=client, timeout=0.5)
        assert KEY not in str(caught.value) and "\n" not in str(caught.value)
        told = await detect(faulty.url, KEY, client=client, wanted="miles", timeout=0.5)
        assert told.name == "miles" and told.slots is None


async def test_nobody_answers(miles_gateway: Served, client: httpx.AsyncClient) -> None:
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        address = f"http://user:pass@127.0.0.1:{held.getsockname()[1]}"
        with pytest.raises(GatewayLostError, match="cannot be reached") as caught:
            await detect(address, KEY, client=client)
    assert "pass" not in str(caught.value).replace("cannot", "")
    async with FaultyGateway(miles_gateway.url) as faulty:
        faulty.set("get_server_capabilities", hang())
        with pytest.raises(GatewayLostError, match=r"did not answer within 0\.2 s"):
            await detect(faulty.url, KEY, client=client, timeout=0.2)


async def test_a_wrong_key(hosted_gateway: Served, client: httpx.AsyncClient) -> None:
    with pytest.raises(GatewayLostError, match="refuses the API key"):
        await detect(hosted_gateway.url, "", client=client)


def options(gateway: Served, *more: str) -> RunOptions:
    """Of a run against a gateway; what is not about the gateway is nowhere."""
    return parse(
        [
            f"config.base_url={gateway.url}", "config.model_name=tiny", "config.renderer_name=role_colon",
            "config.learning_rate=1e-6", "config.max_tokens=64", "config.loss_fn=ppo", "config.log_path=/nowhere",
            "config.dataset_builder.tasks_dir=/nowhere", "harbor.trial_config=/nowhere", *more,
        ]
    )  # fmt: skip


@pytest.mark.parametrize(
    ("fixture", "words", "found"),
    [
        ("miles_gateway", ["config.ttl_seconds=None", "console.context_window=505"], []),
        ("miles_gateway", ["console.context_window=505"], ["error gateway.ttl"]),
        ("miles_gateway", ["config.ttl_seconds=None"], ["warning gateway.window"]),
        (
            "miles_gateway",
            ["config.ttl_seconds=None", "console.context_window=65536", "console.gateway_rank=16"],
            ["warning gateway.window", "error gateway.rank"],
        ),
        (
            "miles_gateway",
            ["config.model_name=other", "config.loss_fn=stable_reinforce", "console.context_window=505"],
            ["error gateway.model", "error gateway.ttl", "error gateway.loss"],
        ),
        ("skyrl_gateway", ["config.lora_rank=16"], ["note gateway.layout", "warning gateway.ttl"]),
        ("hosted_gateway", [], []),
        ("hosted_gateway", ["config.max_tokens=512"], ["error gateway.window"]),
        ("hosted_gateway", ["console.context_window=60"], ["error gateway.window"]),
        ("tiny_gateway", ["console.context_window=600"], ["warning gateway.window"]),
    ],
)
async def test_preflight_asks_and_refuses(
    request: pytest.FixtureRequest, fixture: str, words: list[str], found: list[str]
) -> None:
    gateway: Served = request.getfixturevalue(fixture)
    findings = await preflight_gateway(options(gateway, *words), {"TINKER_API_KEY": KEY})
    assert [f"{finding.level} {finding.code}" for finding in findings] == found
    assert all(finding.remedy or finding.level == "note" for finding in findings)
    assert all("\n" not in finding.line() and KEY not in finding.line() for finding in findings)


async def test_preflight_asks_where_the_environment_says(miles_gateway: Served) -> None:
    asked = msgspec.structs.replace(options(miles_gateway), config={"model_name": "tiny", "max_tokens": 64})
    assert asked.value("config.base_url") is None
    found = await preflight_gateway(asked, {"TINKER_API_KEY": KEY, "TINKER_BASE_URL": miles_gateway.url})
    assert "gateway.ttl" in [finding.code for finding in found]


async def test_what_the_options_say_goes_along(miles_gateway: Served, client: httpx.AsyncClient) -> None:
    words = "console.gateway_profile=hosted", "console.context_window=500", "console.gateway_rank=16"
    told = await detect_as(options(miles_gateway, *words), miles_gateway.url, KEY, client)
    assert (told.name, told.how, told.window("tiny"), told.max_rank) == ("hosted", "console.gateway_profile", 500, 16)
    own = options(miles_gateway, "console.gateway=embedded", *words)
    assert (await detect_as(own, miles_gateway.url, KEY, client)).name == "embedded", "the run's own is known"


async def test_the_engine_notes_what_is_more_than_a_note(skyrl_gateway: Served, tmp_path: Path) -> None:
    events: list[ev.Event] = []
    asked = options(skyrl_gateway, "config.lora_rank=16")
    link = GatewayLink(asked, tmp_path, events.append, None)
    try:
        await link.meet()
    finally:
        await link.close()
    notes = [event for event in events if isinstance(event, ev.Note)]
    found = await preflight_gateway(asked, {"TINKER_API_KEY": KEY})
    assert [(note.level, note.text) for note in notes] == [("warning", f.line()) for f in found if f.level == "warning"]
    assert len(found) == 2 and len(notes) == 1


def test_the_profiles_agree_with_what_the_gateways_do() -> None:
    """The likenesses of the embedded gateway and the profiles were written apart, and say the same."""
    for name, profile in PROFILES.items():
        like = LIKENESSES[name]
        assert profile.create_by_load == like.create_by_load and profile.sequence_ids == like.sequence_ids
        assert (profile.sdk == "0.26") == like.strict
        assert profile.expiring == (like.ttl == "taken") and ("ttl" in profile.refuses) == (like.ttl == "refused")
        if profile.losses and like.losses is not None:
            assert set(profile.losses) == like.losses
        if profile.lease is not None:
            assert profile.lease == like.lease
            assert profile.sweep is not None and profile.sweep >= like.sweep_share * like.lease
