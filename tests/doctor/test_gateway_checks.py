"""The gateway, asked over real sockets, and only when it may be."""

from __future__ import annotations

import socket
import sys
import time
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))

import gateway_faults as faults

from console.doctor import checks_gateway as checks
from console.doctor.case import Case, Host
from console.training.options import parse

KEY = "tml-doctor-key"


def told(url: str | None, *, live: bool = True, key: str = KEY, **facts) -> dict[str, tuple[str, str]]:
    env = {"TINKER_API_KEY": key} | ({"TINKER_BASE_URL": url} if url else {})
    made = checks.gateway(Case(host=Host(env=env, now=facts.pop("now", time.time())), live=live, **facts))
    found = {check.code: (check.level, check.found) for check in made}
    assert set(found) == {"gateway.answers", "gateway.profile", "gateway.clock"}
    assert all(KEY not in text for _, text in found.values())
    return found


def levels(found: dict[str, tuple[str, str]]) -> list[str]:
    return [found[f"gateway.{name}"][0] for name in ("answers", "profile", "clock")]


def test_a_gateway_that_is_well(embedded_gateway: str) -> None:
    found = told(embedded_gateway)
    assert levels(found) == ["ok", "ok", "ok"]
    assert "quarterdeck/midshipman" in found["gateway.answers"][1]
    assert found["gateway.profile"][1].startswith("embedded: ")


def test_what_the_options_say_of_it(embedded_gateway: str) -> None:
    words = [
        f"config.base_url={embedded_gateway}", "config.model_name=x", "config.max_tokens=64",
        "config.learning_rate=1e-6", "config.loss_fn=ppo", "config.log_path=/nowhere",
        "config.dataset_builder.tasks_dir=/nowhere", "harbor.trial_config=/nowhere", "console.gateway_profile=hosted",
    ]  # fmt: skip
    found = told(None, options=parse(words))
    assert levels(found) == ["ok", "ok", "ok"]
    assert found["gateway.profile"][1].startswith("hosted: console.gateway_profile; ")


def test_without_live_nobody_is_asked() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(0.2)
        assert levels(told(f"http://127.0.0.1:{listener.getsockname()[1]}", live=False)) == ["skipped"] * 3
        with pytest.raises(TimeoutError):
            listener.accept()


def test_gateways_that_are_not_named() -> None:
    assert levels(told(None)) == levels(told("gateway:1")) == levels(told("http://[::1")) == ["skipped"] * 3


def test_a_gateway_that_is_away() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    found = told(f"http://user:{KEY}@127.0.0.1:{port}")
    assert levels(found) == ["error", "skipped", "skipped"]


async def test_gateways_in_trouble(embedded_gateway: str) -> None:
    import asyncio

    async with faults.FaultyGateway(embedded_gateway) as gateway:
        gateway.set("get_server_capabilities", faults.status(401))
        found = await asyncio.to_thread(told, gateway.url)
        assert levels(found) == ["error", "skipped", "skipped"] and "refuses the API key" in found["gateway.answers"][1]
        gateway.clear()
        gateway.set("engine_load", faults.status(500))
        found = await asyncio.to_thread(told, gateway.url)
        assert found["gateway.answers"][0] == "warning" and "engine load" in found["gateway.answers"][1]
        gateway.clear()
        gateway.set("load_weights", faults.status(500))
        gateway.set("create_model", faults.status(500))
        found = await asyncio.to_thread(told, gateway.url)
        assert found["gateway.answers"][0] == "ok" and found["gateway.profile"][0] == "warning"


@pytest.mark.parametrize(("off", "level"), [(0.0, "ok"), (50.0, "ok"), (600.0, "warning"), (-600.0, "warning")])
def test_clocks_that_differ(embedded_gateway: str, off: float, level: str) -> None:
    found = told(embedded_gateway, now=time.time() + off)["gateway.clock"]
    assert found[0] == level and (level == "ok" or ("behind" if off > 0 else "ahead of") in found[1])
