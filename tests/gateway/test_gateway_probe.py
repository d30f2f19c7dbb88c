"""The health probe against a gateway, against nothing, and against what is no gateway."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from console.errors import GatewayLostError
from console.gateway.probe import capabilities, probe

if TYPE_CHECKING:
    from tests.gateway.conftest import Served

_KEY = "tml-do-not-tell"


@pytest.fixture(scope="module")
def other_server() -> Iterator[str]:
    """A web server with several characters, by the first part of the path."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            _, character, *_, route = self.path.split("/")
            status, body = 200, b'{"status":"ok"}'
            if route == "get_server_capabilities":
                body = b'{"supported_models":[{"model_name":"m"},{"model_name":7},3]}'
                if character == "refusing":
                    status = 401
                if character == "mad":
                    body = b'{"supported_models":[{"model_name":"m","max_context_length":-1},{"model_name":"%s"}]}' % (
                        b"n" * 201
                    )
                if character == "web":
                    body = b"<html>hello</html>"
                if character == "json":
                    body = b'["hello"]'
            if route == "engine_load":
                status = {"plain": 404, "lost": 503}.get(character, 200)
                if character == "odd":
                    body = b'{"engines":[{"running_requests":"3","full_kv":null},7]}'
                if character == "mad":
                    body = b'{"engines":[{"running_requests":true,"queued_requests":1%s}]}' % (b"0" * 40)
            self.send_response(status)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


async def test_a_gateway_in_health(tiny_gateway: Served) -> None:
    async with httpx.AsyncClient() as client:
        health = await probe(tiny_gateway.url + "/", _KEY, client=client)
    assert health.reachable and health.detail == "" and health.latency_ms is not None and health.latency_ms > 0
    assert [(model.name, model.context_window) for model in health.models] == [("tiny", 512)]
    assert health.queued == 0 and health.running == 0 and health.kv_fraction == 0.0


async def test_load_is_optional_but_not_its_failure(other_server: str) -> None:
    async with httpx.AsyncClient() as client:
        plain = await probe(f"{other_server}/plain", _KEY, client=client)
        lost = await probe(f"{other_server}/lost", _KEY, client=client)
        odd = await probe(f"{other_server}/odd", _KEY, client=client)
    assert plain.reachable and plain.detail == "" and plain.queued is None
    assert [(model.name, model.context_window) for model in plain.models] == [("m", None)]
    assert lost.reachable and "engine load" in lost.detail and "503" in lost.detail
    assert odd.reachable and odd.running == 0 and odd.kv_fraction is None


async def test_trouble_is_told_in_one_line_without_the_key(other_server: str) -> None:
    with socket.socket() as silent, socket.socket() as closed:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        closed.bind(("127.0.0.1", 0))
        cases = [
            (f"http://127.0.0.1:{closed.getsockname()[1]}", _KEY, "cannot be reached"),
            (f"http://127.0.0.1:{silent.getsockname()[1]}", _KEY, "did not answer within 0.2 s"),
            (f"{other_server}/refusing", _KEY, "refuses the API key (HTTP 401)"),
            (f"{other_server}/web", _KEY, "not JSON"),
            (f"{other_server}/json", _KEY, "does not answer like a Tinker gateway"),
            (f"{other_server}/plain", _KEY + "\n", "cannot be asked: LocalProtocolError"),
            (f"{other_server}/plain", _KEY + "é\u2026", "cannot be asked"),
            ("http://[", _KEY, "cannot be"),
            ("gopher://x", _KEY, "cannot be asked"),
            (f"http://user:{_KEY}@127.0.0.1:{closed.getsockname()[1]}", _KEY, "cannot be reached"),
        ]
        async with httpx.AsyncClient() as client:
            for url, key, complaint in cases:
                health = await probe(url, key, client=client, timeout=0.2 if "within" in complaint else 5)
                assert not health.reachable and complaint in health.detail, (url, health)
                assert _KEY not in health.detail and "\n" not in health.detail
                assert health.models == () and health.queued is None
            with pytest.raises(GatewayLostError) as caught:
                await capabilities(f"{other_server}/plain", _KEY + "\n", client=client)
    assert _KEY not in str(caught.value) and caught.value.__cause__ is None and caught.value.__suppress_context__


@pytest.fixture
async def raw_server() -> AsyncIterator[Callable[[bytes, bytes, float], Awaitable[str]]]:
    """A factory of servers that say `head`, then `body` again and again, every `pause` seconds."""
    servers = []

    async def make(head: bytes, body: bytes, pause: float) -> str:
        async def say(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            with contextlib.suppress(ConnectionError):
                await reader.readuntil(b"\r\n\r\n")
                writer.write(head)
                while body:
                    writer.write(body)
                    sent.append(len(body))
                    await writer.drain()
                    await asyncio.sleep(pause)
            writer.close()

        server = await asyncio.start_server(say, "127.0.0.1", 0)
        servers.append(server)
        return f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"

    sent: list[int] = []
    make.sent = sent  # type: ignore[attr-defined]
    yield make
    for server in servers:
        server.close()


async def test_what_answers_without_end_is_left(raw_server: Any) -> None:
    ok = b"HTTP/1.1 200 OK\r\n"
    gzip_head = ok + b"Content-Encoding: gzip\r\nContent-Length: 1000\r\n\r\n"
    cases = [
        (ok + b"Content-Length: 100000000\r\n\r\n", b"x" * 65536, 0.0, "with more than 256 KiB"),
        (ok + b"Transfer-Encoding: chunked\r\n\r\n", b"10000\r\n" + b"[" * 65536 + b"\r\n", 0.0, "more than 256 KiB"),
        (gzip_head, b"\x1f\x8b", 0.0, "compressed form that it was not asked for"),
        (ok + b"Content-Length: 100000\r\n\r\n", b" ", 0.02, "did not answer within 0.3 s"),
        (ok + b"X-Long: ", b"x" * 65536, 0.0, "cannot be asked: RemoteProtocolError"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n" + b"[" * 100000, b"", 0.0, "not JSON"),
        (b"HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 0\r\n\r\n", b"", 0.0, "redirects"),
        (b"SSH-2.0-OpenSSH\r\n", b"", 0.0, "cannot be asked: RemoteProtocolError"),
    ]
    async with httpx.AsyncClient(follow_redirects=True) as client:
        for head, body, pause, complaint in cases:
            raw_server.sent.clear()
            url = await raw_server(head, body, pause)
            async with asyncio.timeout(20):  # the look ends by itself, long before the server does
                health = await probe(url, _KEY, client=client, timeout=0.3 if "within" in complaint else 5)
            assert not health.reachable and complaint in health.detail, (head, health)
            assert sum(raw_server.sent) < 20_000_000


async def test_figures_out_of_this_world_are_no_figures(other_server: str) -> None:
    async with httpx.AsyncClient() as client:
        health = await probe(f"{other_server}/mad", _KEY, client=client)
    assert health.reachable and (health.queued, health.running, health.kv_fraction) == (0, 0, None)
    assert [(model.name, model.context_window) for model in health.models] == [("m", None)]
