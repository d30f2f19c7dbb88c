"""A proxy between us and the gateway: who is asked through it, and what is said when it cannot be used."""

from __future__ import annotations

import pytest
from local_proxy import local_proxy

from console.errors import GatewayLostError, UsageError
from console.gateway.detect import detect
from console.gateway.probe import probe
from console.gateway.proxies import except_loopback, gateway_client, proxy_of
from tests.gateway.conftest import Served

NAMES = ("http_proxy", "https_proxy", "all_proxy", "no_proxy")


@pytest.fixture(autouse=True)
def _no_proxies(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (*NAMES, *map(str.upper, NAMES)):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize(
    ("env", "excepted"),
    [
        ({}, None),
        ({"NO_PROXY": "a.lan"}, "a.lan"),
        ({"HTTP_PROXY": "http://p"}, "localhost,127.0.0.1,::1"),
        ({"https_proxy": "http://p", "NO_PROXY": "a.lan, b.lan"}, "a.lan,b.lan,localhost,127.0.0.1,::1"),
        ({"ALL_PROXY": "http://p", "no_proxy": "::1", "NO_PROXY": "x"}, "::1,x,localhost,127.0.0.1"),
        ({"HTTP_PROXY": "http://p", "NO_PROXY": "*"}, "*"),
    ],
)
def test_this_machine_is_asked_directly(env, excepted):
    made = dict(env)
    except_loopback(made)
    assert made.get("NO_PROXY") == excepted
    assert made == env or made["no_proxy"] == excepted, "libraries differ in which of the two they read"
    again = dict(made)
    except_loopback(again)
    assert again == made


async def test_a_gateway_that_only_the_proxy_knows(tiny_gateway: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    with local_proxy(gateway_invalid=tiny_gateway.url) as proxy:
        monkeypatch.setenv("HTTP_PROXY", proxy.url)
        monkeypatch.setenv("NO_PROXY", "localhost,127.0.0.1,::1")
        assert (proxy_of("http://gateway.invalid:1"), proxy_of(tiny_gateway.url)) == ("http_proxy", "")
        async with gateway_client() as client:
            assert (await detect("http://gateway.invalid:1", "tml-x", client=client)).name == "embedded"
            assert proxy.asked.keys() == {"gateway.invalid"}
            lost = await probe("http://elsewhere.invalid:1", "tml-x", client=client)
            assert "through the proxy of http_proxy" in lost.detail and "502" in lost.detail
            direct = await probe(tiny_gateway.url, "tml-x", client=client)
            assert direct.reachable and "127.0.0.1" not in proxy.asked


async def test_a_proxy_that_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://user:secret@127.0.0.1:9")
    async with gateway_client() as client:
        with pytest.raises(GatewayLostError, match=r"through the proxy of http_proxy.*is the proxy running") as told:
            await detect("http://gateway.invalid:1", "tml-x", client=client)
    assert "secret" not in str(told.value)


@pytest.mark.parametrize(("name", "value"), [("ALL_PROXY", "gopher://secret:1"), ("NO_PROXY", "[::1]")])
def test_variables_that_cannot_be_used_are_named(name, value, monkeypatch):
    monkeypatch.setenv("HTTP_PROXY", "http://p:1")
    monkeypatch.setenv(name, value)
    with pytest.raises(UsageError, match=f"{name.lower()}") as told:
        gateway_client()
    assert "secret" not in str(told.value) and "\n" not in str(told.value)
