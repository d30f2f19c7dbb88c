"""Where the gateway listens, what it advertises, its certificate, and what is on a connection before HTTP is."""

from __future__ import annotations

import asyncio
import errno
import json
import socket
import ssl
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest
from capture_bench import CHAT, MESSAGES, Bench, message_of, request_bytes, response, said, until
from certificates import make_certificate

from console.capture import listener
from console.capture.address import check_exposure, in_url, insecure_allowed, is_loopback
from console.capture.tls import server_context
from console.errors import UsageError


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[Bench]:
    async with Bench(tmp_path) as made:
        yield made


async def refused(tmp_path: Path, **options: object) -> str:
    with pytest.raises(UsageError) as caught:
        async with Bench(tmp_path, **options):
            pass
    text = str(caught.value)
    assert "\n" not in text and caught.value.exit_code == 2
    return text


# --- addresses ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
async def test_the_port_of_the_url_is_the_one_that_listens(tmp_path: Path, host: str) -> None:
    async with Bench(tmp_path, listen_host=host, advertised_host=host) as bench:
        agent = await bench.open()
        assert agent.route.url == f"http://{host}:{bench.address[1]}"
        assert (await agent.ask()).status_code == 200


async def test_a_port_may_be_chosen_and_is_free_again_at_the_end(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        told = await refused(tmp_path / "a", listen_port=port)
        assert told.startswith(f"harbor.listen_port={port}: is in use at 127.0.0.1") and "choose another" in told
    for name in ("b", "c"):
        async with Bench(tmp_path / name, listen_port=port) as bench:
            assert (await (await bench.open()).ask()).status_code == 200


@pytest.mark.skipif(not socket.has_ipv6, reason="this machine has no IPv6")
async def test_ipv6_stands_in_brackets(tmp_path: Path) -> None:
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        pytest.skip("this machine has no IPv6 address")
    for host in ("::1", "[::1]"):
        async with Bench(tmp_path / host.strip("[]"), listen_host=host, advertised_host=host) as bench:
            agent = await bench.open()
            assert agent.route.url.startswith("http://[::1]:")
            assert (await agent.ask()).status_code == 200


@pytest.mark.parametrize("host", ["203.0.113.9", "no-such-host.invalid", "a" * 300, "bad host"])
async def test_an_address_of_another_machine_names_the_option(tmp_path: Path, host: str) -> None:
    told = await refused(tmp_path, listen_host=host, allow_insecure=True)
    assert (
        told.startswith(f"harbor.listen_host={host}: cannot listen there") and "name an address of this machine" in told
    )


async def test_a_privileged_port_names_the_option(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def forbidden(*_: object) -> None:
        raise PermissionError(errno.EACCES, "Permission denied")  # as for everybody but the superuser

    monkeypatch.setattr(listener, "_listening", forbidden)
    assert (await refused(tmp_path, listen_port=1)).startswith("harbor.listen_port=1: this user may not listen there")


async def test_other_machines_need_tls_or_a_word(tmp_path: Path) -> None:
    told = await refused(tmp_path / "a", listen_host="0.0.0.0")
    for part in ("harbor.listen_host=0.0.0.0: ", "harbor.tls_certificate", "harbor.allow_insecure=true"):
        assert part in told
    async with Bench(tmp_path / "b", listen_host="0.0.0.0", allow_insecure=True) as bench:
        assert (await (await bench.open()).ask()).status_code == 200


def test_what_counts_as_this_machine() -> None:
    assert all(map(is_loopback, ("127.0.0.1", "127.9.9.9", "::1", "[::1]", "localhost", "LocalHost", " 127.0.0.1 ")))
    assert not any(map(is_loopback, ("0.0.0.0", "::", "10.0.0.1", "", "127.1", "localhost.example", "2130706433")))
    assert [in_url(host) for host in ("a.b", "::1", "[::1]", "1.2.3.4")] == ["a.b", "[::1]", "[::1]", "1.2.3.4"]
    assert insecure_allowed(True, {}) and insecure_allowed(False, {"QUARTERDECK_ALLOW_INSECURE": " 1 "})
    assert not insecure_allowed(False, {"QUARTERDECK_ALLOW_INSECURE": "no"})
    check_exposure("0.0.0.0", tls=True, allowed=False)


# --- TLS ------------------------------------------------------------------------------------------------------------


async def test_with_a_certificate_it_speaks_tls_only(tmp_path: Path) -> None:
    certificate, key = make_certificate(tmp_path)
    trusted = ssl.create_default_context(cafile=certificate)
    options = {"tls_certificate": certificate, "tls_key": key, "listen_host": "0.0.0.0", "advertised_host": "localhost"}
    async with Bench(tmp_path, **options) as bench:
        agent = await bench.open()
        assert agent.route.url.startswith("https://localhost:")
        async with httpx.AsyncClient(verify=trusted, trust_env=False) as client:
            for stream in (False, True):
                reply = await client.post(agent.route.url + CHAT, json=said(CHAT, stream=stream), headers=agent.key)
                assert reply.status_code == 200 and "Done." in reply.text
            big = await client.post(agent.route.url + CHAT, json=said(CHAT, "x" * 5_000_000), headers=agent.key)
            assert big.status_code == 400 and "prompt is too long" in big.text
        async with httpx.AsyncClient(trust_env=False) as client:
            with pytest.raises(httpx.ConnectError):
                await client.get(agent.route.url)
            with pytest.raises(httpx.HTTPError):
                await client.get(agent.route.url.replace("https", "http"))
        assert (await agent.ask()).status_code == 200


def test_tls_is_not_old(tmp_path: Path) -> None:
    assert server_context(*make_certificate(tmp_path)).minimum_version >= ssl.TLSVersion.TLSv1_2


async def test_a_bad_certificate_is_told_at_the_start(tmp_path: Path) -> None:
    certificate, _ = make_certificate(tmp_path)
    _, key = make_certificate(tmp_path, "other")
    told = await refused(tmp_path, tls_certificate=certificate, tls_key=key)
    assert told == f"harbor.tls_key={key}: is not the key of {certificate}; give the two together"


# --- before there is a request --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "data",
    [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"x" * 300,
        b"hello\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        b"POST /v1/messages HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n",
        b"POST /v1/messages HTTP/1.1\r\nHost: x\r\nContent-Length: 5, 6\r\n\r\nhello",
        b"POST /v1/messages HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"GET /" + b"x" * 40_000 + b" HTTP/1.1\r\nHost: x\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: x\r\nX: " + b"x" * 40_000 + b"\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: x\r\n" + b"".join(b"X%d: 1\r\n" % n for n in range(500)) + b"\r\n",
        b"GET / HTTP/1.1\r\nHost: x\r\nbad header\r\n\r\n",
        b"BREW / HTTP/1.1\r\nHost: x\r\n\r\n",
    ],
    ids=lambda data: repr(data[:24]),
)
async def test_what_is_no_http_is_answered_in_json(bench: Bench, data: bytes, caplog: pytest.LogCaptureFixture) -> None:
    reader, writer = await bench.raw(data)
    status, headers, body = await response(reader)
    assert (status, headers["content-type"]) == (400, "application/json")
    assert message_of("/", json.loads(body)) == "this is not valid HTTP, or its headers are too long"
    assert await asyncio.wait_for(reader.read(), 20) == b""
    writer.close()
    assert bench.capture.refusals == {"request": 1} and caplog.text == ""
    assert (await (await bench.open()).ask()).status_code == 200


@pytest.mark.parametrize("body", [b"zz\r\nx", b"5\r\nhello", b"ffffffffffffffffff\r\n", b"5\r\nhelloworld\r\n"])
async def test_chunks_that_are_none_end_the_request_only(bench: Bench, body: bytes) -> None:
    agent = await bench.open()
    head = request_bytes(CHAT, b"", agent.route.api_key).replace(b"Content-Length: 0", b"Transfer-Encoding: chunked")
    reader, writer = await bench.raw(head + body)
    if body != b"5\r\nhello":
        status, headers, _ = await response(reader)
        assert (status, headers["content-type"]) == (400, "application/json")
    writer.close()
    await until(lambda: bench.capture._routes.entries()[0].held.used == 0)
    assert (await agent.ask()).status_code == 200


async def test_who_says_nothing_is_not_waited_for(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listener, "STRANGER_SECONDS", 0.2)
    agent = await bench.open()
    slow = [await bench.raw(data) for data in (b"", b"POST /v1/mess", request_bytes(CHAT, b"x" * 99, "no key")[:-9])]

    async def trickle(writer: asyncio.StreamWriter) -> None:
        for _ in range(2000):
            writer.write(b"a")
            await asyncio.sleep(0.01)

    trickling = asyncio.ensure_future(trickle(slow[1][1]))
    for reader, writer in slow:
        try:
            await asyncio.wait_for(reader.read(), 20)
        except ConnectionError:
            pass
        writer.close()
    trickling.cancel()
    await until(lambda: not bench.capture._listener._strangers)
    reader, writer = await bench.raw(request_bytes(CHAT, said(CHAT), agent.route.api_key))
    assert (await response(reader))[0] == 200
    await asyncio.sleep(0.3)
    writer.write(request_bytes(CHAT, said(CHAT, "again"), agent.route.api_key))
    assert (await response(reader))[0] == 200, "a trial's connection stays"
    writer.close()


async def test_a_flood_of_connections_keeps_nobody_out(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listener, "STRANGERS", 20)
    monkeypatch.setattr(listener, "STRANGER_SECONDS", 3600.0)
    agent = await bench.open()
    reader, writer = await bench.raw(request_bytes(CHAT, said(CHAT), agent.route.api_key))
    assert (await response(reader))[0] == 200
    flood = [await bench.raw(b"GET / HTTP/1.1\r\nHo") for _ in range(200)]
    assert (await agent.ask(MESSAGES)).status_code == 200, "a new connection"
    writer.write(request_bytes(CHAT, said(CHAT, "again"), agent.route.api_key))
    assert (await response(reader))[0] == 200, "and one that was there"
    await until(lambda: len(bench.capture._listener._strangers) <= 20)
    for _, other in [(reader, writer), *flood]:
        other.close()


async def test_closing_ends_connections_and_seals_what_is_open(tmp_path: Path) -> None:
    from scripted_sampler import Reply

    async with Bench(tmp_path) as bench:
        agent = await bench.open()
        assert (await agent.ask()).status_code == 200
        idle = await bench.raw(b"GET / HTTP/1.1\r\n")
        bench.sampler.script(Reply("x", gate=asyncio.Event()))
        busy = await bench.raw(request_bytes(CHAT, said(CHAT, "busy"), agent.route.api_key))
        await bench.sampler.until_running(1)
    assert (await response(busy[0]))[0] == 410
    for reader, writer in (idle, busy):
        assert await asyncio.wait_for(reader.read(), 20) == b""
        writer.close()
    assert len(list((tmp_path / "capture").rglob("*.calls.zst"))) == 1
    assert (await agent.seal()).evidence.calls == 1
