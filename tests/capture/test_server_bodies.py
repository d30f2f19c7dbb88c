"""Bodies of requests: how large, how packed, how slow, how deep, and what is told of those that are not taken."""

from __future__ import annotations

import asyncio
import gzip
import json
import tracemalloc
import zlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import zstandard
from capture_bench import CHAT, COUNT, MESSAGES, RESPONSES, Bench, message_of, request_bytes, response, said

from console.capture import bodies, exchange
from console.capture.bodies import DEPTH_LIMIT, decoded, decompressed
from console.capture.refusals import RefusedError

LIMIT = 1 << 20
PATHS = (CHAT, RESPONSES, MESSAGES, COUNT)


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[Bench]:
    async with Bench(tmp_path, body_limit=LIMIT) as made:
        yield made


# --- decoding -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("data", "value"),
    [
        (b'{"a": 1, "a": 2}', {"a": 2}),
        (b' \n{"a": "\\ud800x"}', {"a": "?x"}),
        (b'{"\\udfff": "\\ud83d\\ude00 \\udc00"}', {"?": "\U0001f600 ?"}),
        (b'{"a": 1e300, "b": 18446744073709551616}', {"a": 1e300, "b": float(2**64)}),
        (b'{"a": [18446744073709551615, -9223372036854775808]}', {"a": [2**64 - 1, -(2**63)]}),
        (b'{"a": "' + b"7" * 5000 + b'"}', {"a": "7" * 5000}),
        ('{"\u00e9": "\u2028"}'.encode(), {"\u00e9": "\u2028"}),
        (b"{}", {}),
    ],
)
def test_what_clients_do_send_is_read(data: bytes, value: object) -> None:
    assert decoded(data) == value


@pytest.mark.parametrize(
    ("data", "told"),
    [
        (b"", "not valid JSON"),
        (b"{", "not valid JSON"),
        (b'{"a": 1} x', "not valid JSON"),
        (b'{"a": "\x01"}', "not valid JSON"),
        (b"{'a': 1}", "not valid JSON"),
        (b'{"a": tru}', "not valid JSON"),
        (b'{"a": "\\ud8"}', "not valid JSON"),
        (b"[]", "must be a JSON object"),
        (b"null", "must be a JSON object"),
        (b'"x"', "must be a JSON object"),
        (b'{"a": NaN}', "not finite"),
        (b'{"a": [Infinity]}', "not finite"),
        (b'{"a": -Infinity}', "not finite"),
        (b'{"a": 1e999}', "not finite"),
        (b'{"a": ' + b"9" * 301 + b"}", "more than 300 digits"),
        (b'{"a": -' + b"9" * 100_000 + b"}", "more than 300 digits"),
        (b'{"a": "\xff"}', "not UTF-8"),
        (b'{"a": "\xed\xa0\x80"}', "not UTF-8"),
        (b'{"a":' * 100_000, "deeper than"),
        (b"[" * 5_000_000, "values"),
        (b'{"a":[' + b"[]," * 600_000 + b"[]]}", "values"),
        (b'{"a":' + b'"",' * 3_000_000, "values"),
    ],
    ids=lambda value: repr(value[:12]),
)
def test_what_is_no_request_is_refused_in_one_line(data: bytes, told: str) -> None:
    with pytest.raises(RefusedError) as caught:
        decoded(data)
    assert told in caught.value.message and caught.value.status == 400 and "\n" not in caught.value.message


def test_numbers_beyond_64_bits_are_floats() -> None:
    values = decoded(b'{"a": [18446744073709551616, -9223372036854775809, ' + b"9" * 300 + b"]}")["a"]
    assert values == [float(2**64), -float(2**63), 1e300] and {type(value) for value in values} == {float}
    assert type(decoded(b'{"a": 18446744073709551615}')["a"]) is int


def test_depth_is_bounded_to_the_level() -> None:
    def nested(levels: int) -> bytes:
        return b'{"a":' + b"[" * (levels - 1) + b"]" * (levels - 1) + b"}"

    assert decoded(nested(DEPTH_LIMIT))
    with pytest.raises(RefusedError, match="deeper"):
        decoded(nested(DEPTH_LIMIT + 1))


def test_text_may_be_full_of_what_stands_between_values() -> None:
    text = "a,b[c{" * 300_000 + '\\"' * 1000 + "\\\\"
    assert decoded(json.dumps({"a": text}).encode()) == {"a": text}


# --- size -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", PATHS)
async def test_a_body_that_says_it_is_too_large_is_not_read(
    bench: Bench, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exchange, "DRAINED_SECONDS", 0.05)
    agent = await bench.open()
    head = request_bytes(path, b"", agent.route.api_key).replace(b"Content-Length: 0", b"Content-Length: 100000000")
    reader, writer = await bench.raw(head + b"{")
    status, headers, body = await response(reader)
    assert status == 413 and headers["content-type"] == "application/json" and headers["x-should-retry"] == "false"
    assert message_of(path, json.loads(body)) == f"the body is larger than {LIMIT} bytes"
    assert await asyncio.wait_for(reader.read(), 20) == b"", "and the connection is over"
    writer.close()


async def test_who_sends_too_much_all_the_same_gets_his_answer(bench: Bench) -> None:
    agent = await bench.open()
    reply = await agent.post(CHAT, content=b"x" * (100 << 20), headers={"Content-Type": "application/json"})
    assert reply.status_code == 413
    assert (await agent.ask()).status_code == 200
    evidence = (await agent.seal()).evidence
    assert (evidence.calls, evidence.failed) == (1, 1) and bench.capture.refusals == {"too_large": 1}


async def test_a_flood_of_chunks_ends_at_the_limit(bench: Bench) -> None:
    agent = await bench.open()

    async def flood() -> AsyncIterator[bytes]:
        for _ in range(200):
            yield b"x" * 65536

    reply = await agent.post(CHAT, content=flood())
    assert reply.status_code == 413
    assert bench.capture._exchange._reading.used == 0
    assert all(entry.held.used == 0 for entry in bench.capture._routes.entries())


async def test_what_fits_is_read_in_chunks_too(bench: Bench) -> None:
    agent = await bench.open()
    data = json.dumps(said(CHAT, "x " * 1000)).encode()

    async def pieces() -> AsyncIterator[bytes]:
        for start in range(0, len(data), 100):
            yield data[start : start + 100]

    assert (await agent.post(CHAT, content=pieces())).status_code == 200


async def test_a_long_text_is_an_overflow_before_it_is_tokenised(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    async def nothing_is_rendered(*_: object, **__: object) -> None:
        raise AssertionError

    monkeypatch.setattr(bench.capture.service.workers, "run", nothing_is_rendered)
    agent = await bench.open()
    for path in PATHS:
        reply = await agent.post(path, said(path, "9" * 70_000))
        told = message_of(path, reply.json())
        assert reply.status_code == 400 and "prompt is too long: " in told and " tokens > 4096 maximum" in told
    assert bench.sampler.asked == []
    schema = {"type": "object", "properties": {"x": {"type": "string", "description": "9" * 70_000}}}
    for tool in ({"description": "9" * 70_000, "parameters": {}}, {"description": "", "parameters": schema}):
        function = {"type": "function", "function": {"name": "run"} | tool}
        assert "prompt is too long: " in (await agent.ask(tools=[function])).text
    evidence = (await agent.seal()).evidence
    assert evidence.overflowed and evidence.last_failure == "overflow" and evidence.failed == 6


async def test_a_long_text_is_refused_also_when_the_window_is_not_known(tmp_path: Path) -> None:
    async with Bench(tmp_path, settings={"window": None}) as bench:
        agent = await bench.open()
        assert "prompt is too long: " in (await agent.ask(text="9" * (17 << 20))).text
        assert (await agent.ask()).status_code == 200


async def test_one_trials_bytes_are_bounded(bench: Bench) -> None:
    agent, other = await bench.open(), await bench.open()
    half = request_bytes(CHAT, b"x" * 900_000, agent.route.api_key)[:-1]
    held = [await bench.raw(half)]
    entry = bench.capture._routes.entries()[0]
    async with asyncio.timeout(20):
        while entry.held.used < 850_000:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    reply = await agent.post(CHAT, content=b"{" + b" " * 900_000 + b"}")
    assert reply.status_code == 429 and reply.headers["Retry-After"] == "2"
    assert (await other.ask()).status_code == 200
    for _, writer in held:
        writer.close()
    async with asyncio.timeout(20):
        while entry.held.used:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    assert (await agent.ask()).status_code == 200


async def test_all_bytes_that_are_read_are_bounded(bench: Bench) -> None:
    bench.capture._exchange._reading.limit = 10_000
    agent = await bench.open()
    assert (await agent.ask(text="x" * 20_000)).status_code == 429
    assert (await agent.ask()).status_code == 200
    assert bench.capture._exchange._reading.used == 0


# --- packing --------------------------------------------------------------------------------------------------------


def raw_deflate(data: bytes) -> bytes:
    packer = zlib.compressobj(wbits=-15)
    return packer.compress(data) + packer.flush()


PACKERS = {
    "gzip": gzip.compress,
    "x-gzip": gzip.compress,
    "GZIP": gzip.compress,
    "deflate": zlib.compress,
    "deflate ": raw_deflate,
    "zstd": zstandard.compress,
    "identity": bytes,
}


@pytest.mark.parametrize("encoding", PACKERS)
async def test_packed_bodies_are_unpacked(bench: Bench, encoding: str) -> None:
    agent = await bench.open()
    data = PACKERS[encoding](json.dumps(said(CHAT, "Unpack me. " * 50)).encode())
    reply = await agent.post(CHAT, content=data, headers={"Content-Encoding": encoding.strip()})
    assert reply.status_code == 200, reply.text


@pytest.mark.parametrize("encoding", ["gzip", "deflate", "zstd"])
async def test_packed_bodies_are_bounded_and_whole(bench: Bench, encoding: str) -> None:
    agent = await bench.open()
    pack = PACKERS[encoding]
    bomb = pack(b'{"a":"' + b"x" * (64 << 20) + b'"}')
    assert len(bomb) < 100_000
    reply = await agent.post(CHAT, content=bomb, headers={"Content-Encoding": encoding})
    assert reply.status_code == 413
    good = pack(json.dumps(said(CHAT)).encode())
    for broken in (good[:-5], good + b"more", b"nothing of the kind", b""):
        reply = await agent.post(CHAT, content=broken, headers={"Content-Encoding": encoding})
        assert reply.status_code == 400, broken
    assert bench.capture._exchange._reading.used == 0


@pytest.mark.parametrize("encoding", ["gzip", "deflate", "zstd"])
def test_what_a_bomb_holds_is_not_held(encoding: str) -> None:
    bomb = PACKERS[encoding](bytes(256 << 20))
    tracemalloc.start()
    try:
        with pytest.raises(RefusedError):
            decompressed(bomb, encoding, LIMIT)
        assert tracemalloc.get_traced_memory()[1] < 16 * LIMIT
    finally:
        tracemalloc.stop()


async def test_what_is_unpacked_counts_as_the_trials_bytes(bench: Bench) -> None:
    agent = await bench.open()
    bench.capture._routes.entries()[0].held.limit = 10_000
    data = gzip.compress(json.dumps(said(CHAT, "x" * 20_000)).encode())
    assert len(data) < 1000
    assert (await agent.post(CHAT, content=data, headers={"Content-Encoding": "gzip"})).status_code == 429
    assert (await agent.ask()).status_code == 200


@pytest.mark.parametrize(
    ("header", "value"),
    [
        ("Content-Encoding", "br"), ("Content-Encoding", "gzip, gzip"), ("Content-Encoding", "x" * 500),
        ("Content-Type", "multipart/form-data; boundary=x"), ("Content-Type", "application/json; charset=utf-16"),
    ],
)  # fmt: skip
async def test_what_cannot_be_unpacked_names_its_header(bench: Bench, header: str, value: str) -> None:
    agent = await bench.open()
    for path in PATHS:
        reply = await agent.post(path, content=b"{}", headers={header: value})
        assert reply.status_code == 415 and message_of(path, reply.json()).startswith(header + ": ")
        assert value not in reply.text


@pytest.mark.parametrize(
    "kind", ["application/json; charset=UTF-8", "text/plain", "application/x-www-form-urlencoded", ";;;", "a"]
)
async def test_json_is_read_whatever_it_is_called(bench: Bench, kind: str) -> None:
    agent = await bench.open()
    reply = await agent.post(CHAT, content=json.dumps(said(CHAT)).encode(), headers={"Content-Type": kind})
    assert reply.status_code == 200


# --- time -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("limit", ["IDLE_SECONDS", "READ_SECONDS"])
async def test_a_body_that_does_not_come_is_not_waited_for(
    bench: Bench, limit: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bodies, limit, 0.1)
    monkeypatch.setattr(exchange, "DRAINED_SECONDS", 0.05)
    agent = await bench.open()
    reader, writer = await bench.raw(request_bytes(MESSAGES, b"x" * 100, agent.route.api_key)[:-50])

    async def trickle() -> None:
        while True:
            writer.write(b" ")
            await asyncio.sleep(0.02)

    trickling = asyncio.ensure_future(trickle()) if limit == "READ_SECONDS" else None
    status, headers, body = await response(reader)
    assert (status, headers["retry-after"]) == (408, "1") and "in time" in message_of(MESSAGES, json.loads(body))
    assert await asyncio.wait_for(reader.read(), 20) == b""
    if trickling is not None:
        trickling.cancel()
    writer.close()
    assert (await agent.ask()).status_code == 200


async def test_a_client_may_ask_before_it_sends(bench: Bench) -> None:
    agent = await bench.open()
    whole = request_bytes(CHAT, said(CHAT), agent.route.api_key, "Expect: 100-continue")
    head, _, body = whole.partition(b"\r\n\r\n")
    reader, writer = await bench.raw(head + b"\r\n\r\n")
    assert await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 20) == b"HTTP/1.1 100 Continue\r\n\r\n"
    writer.write(body)
    assert (await response(reader))[0] == 200
    writer.write(whole)
    assert await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 20) == b"HTTP/1.1 100 Continue\r\n\r\n"
    assert (await response(reader))[0] == 200, "once more on the same connection, without waiting"
    writer.close()
    for key, size, expected in (("wrong", 10, 401), (agent.route.api_key, LIMIT + 1, 413)):
        head = request_bytes(CHAT, b"", key, "Expect: 100-continue")
        reader, writer = await bench.raw(head.replace(b"Content-Length: 0", b"Content-Length: %d" % size))
        status, headers, _ = await response(reader)
        assert (status, headers["connection"]) == (expected, "close"), "and nobody waits for the body"
        assert await asyncio.wait_for(reader.read(), 20) == b""
        writer.close()
