"""Bodies of requests: read within bounds, and decoded from JSON. All of it comes from a sandbox."""

from __future__ import annotations

import asyncio
import json
import math
import zlib
from collections.abc import Iterable
from typing import Any, NoReturn, Self

import msgspec
import zstandard
from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError

from console.capture.refusals import RefusedError

BODY_LIMIT = 32 * 2**20
READ_SECONDS = 120.0
IDLE_SECONDS = 20.0
"""A body may take so long altogether, and between two pieces of it."""

DEPTH_LIMIT = 64
VALUES_LIMIT = 500_000
"""JSON values in a body. Empty lists are two bytes in a body and fifty in memory."""

DIGITS_LIMIT = 300
"""Digits of a number. Beyond 64 bits it is a float, as most readers of JSON have it."""

_DIGITS_OF_INT64 = 19

ENCODINGS = ("gzip", "x-gzip", "deflate", "zstd")
_ZSTD_WINDOW = 2**27


class Meter:
    """Bytes that may be held at once."""

    def __init__(self, limit: int) -> None:
        self.limit, self.used = limit, 0

    def take(self, size: int) -> bool:
        """Count them in, unless that is beyond the limit."""
        if self.used + size > self.limit:
            return False
        self.used += size
        return True

    def give(self, size: int) -> None:
        """Count them out."""
        self.used -= size


class Held:
    """The bytes of one request, counted in a meter for as long as it is entered."""

    def __init__(self, meter: Meter) -> None:
        self._meter, self.size = meter, 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._meter.give(self.size)
        self.size = 0

    def take(self, size: int) -> None:
        """Count more in. Raises `RefusedError` (busy) when there is no room."""
        if not self._meter.take(size):
            raise RefusedError("busy", "too many bytes are under way; try again", retry_after=2.0)
        self.size += size


def check_headers(request: web.BaseRequest, limit: int) -> str:
    """Refuse a body by its headers, before any of it is read; the content encoding, "" for none.

    Raises:
        RefusedError: too_large or media, naming the header.
    """
    size = request.content_length
    if size is not None and size > limit:
        raise too_large(limit)
    if request.content_type.startswith("multipart/"):
        raise RefusedError("media", "Content-Type: a JSON body is wanted", param="Content-Type")
    charset = request.charset or "utf-8"
    if charset.lower() not in ("utf-8", "utf8", "us-ascii", "ascii"):
        raise RefusedError("media", "Content-Type: the charset must be utf-8", param="Content-Type")
    encoding = request.headers.get("Content-Encoding", "").strip().lower()
    if encoding in ("", "identity"):
        return ""
    if encoding not in ENCODINGS:
        raise RefusedError("media", f"Content-Encoding: only {', '.join(ENCODINGS)} are read", param="Content-Encoding")
    return encoding


async def read_body(request: web.BaseRequest, held: Iterable[Held], limit: int) -> bytes:
    """All of the body; its bytes are counted in each of `held`.

    Raises:
        RefusedError: too_large; request, when it comes too slowly (408) or is framed wrongly; busy.
    """
    if request.headers.get("Expect", "").strip().lower() == "100-continue":
        await request.writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        request.writer.output_size = 0
    body = bytearray()
    try:
        async with asyncio.timeout(READ_SECONDS):
            while True:
                async with asyncio.timeout(IDLE_SECONDS):
                    piece = await request.content.readany()
                if not piece:
                    return bytes(body)
                if len(body) + len(piece) > limit:
                    raise too_large(limit)
                for counted in held:
                    counted.take(len(piece))
                body += piece
    except TimeoutError:
        raise RefusedError("request", "the body did not come in time", status=408, retry_after=1.0) from None
    except (HttpProcessingError, web.RequestPayloadError):
        raise RefusedError("request", "the body is not framed as HTTP wants it") from None


def too_large(limit: int) -> RefusedError:
    """The body is larger than allowed."""
    return RefusedError("too_large", f"the body is larger than {limit} bytes")


def decompressed(data: bytes, encoding: str, limit: int) -> bytes:
    """The body as it was before its content encoding.

    Raises:
        RefusedError: too_large, when it holds more than `limit` bytes; request, when it is damaged.
    """
    if not encoding:
        return data
    try:
        plain, whole = _unzstd(data, limit) if encoding == "zstd" else _inflated(data, encoding, limit)
    except (zlib.error, zstandard.ZstdError):
        whole, plain = False, b""
    if len(plain) > limit:
        raise too_large(limit)
    if not whole:
        raise RefusedError("request", "Content-Encoding: the body is not what it says", param="Content-Encoding")
    return plain


def _inflated(data: bytes, encoding: str, limit: int) -> tuple[bytes, bool]:
    bits = 31
    if encoding == "deflate":
        # Some clients leave out the header that the name stands for.
        bits = 15 if data[:1] and data[0] & 15 == 8 else -15
    inflater = zlib.decompressobj(wbits=bits)
    plain = inflater.decompress(data, limit + 1)
    return plain, inflater.eof and not inflater.unused_data


def _unzstd(data: bytes, limit: int) -> tuple[bytes, bool]:
    with zstandard.ZstdDecompressor(max_window_size=_ZSTD_WINDOW).stream_reader(data) as reader:
        plain = bytearray()
        while len(plain) <= limit and (piece := reader.read(min(2**20, limit + 1 - len(plain)))):
            plain += piece
    return bytes(plain), True


def decoded(data: bytes) -> dict[str, Any]:
    """The JSON object in a body. Lone surrogates are replaced, keys may be repeated (the last one counts).

    Raises:
        RefusedError: request, in one line that says what is wrong with it.
    """
    if _has_too_many_values(data):
        raise RefusedError("request", f"the body holds more than {VALUES_LIMIT} values")
    try:
        value = _decoded_with_care(data) if _has_long_number(data) else msgspec.json.decode(data)
    except RecursionError:
        raise _too_deep() from None
    except msgspec.MsgspecError:
        value = _decoded_with_care(data)
    if not isinstance(value, dict):
        raise RefusedError("request", "the body must be a JSON object")
    level: list[Any] = [value]
    for _ in range(DEPTH_LIMIT):
        level = [
            inner
            for outer in level
            for inner in (outer.values() if type(outer) is dict else outer)
            if type(inner) is dict or type(inner) is list
        ]
        if not level:
            return value
    raise _too_deep()


def _decoded_with_care(data: bytes) -> Any:
    """The same for what the fast decoder cannot read but clients do send: lone surrogates, and very large numbers."""
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        raise RefusedError("request", "the body is not UTF-8") from None
    try:
        value = json.loads(text, parse_constant=_not_finite, parse_float=_finite, parse_int=_whole)
        if "\\ud" not in text and "\\uD" not in text:
            return value
        return msgspec.json.decode(json.dumps(value, ensure_ascii=False).encode("utf-8", "replace"))
    except RecursionError:
        raise _too_deep() from None
    except (ValueError, msgspec.MsgspecError):
        raise RefusedError("request", "the body is not valid JSON") from None


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        _not_finite(text)
    return value


def _whole(text: str) -> int | float:
    if len(text) > DIGITS_LIMIT:
        raise RefusedError("request", f"the body holds a number of more than {DIGITS_LIMIT} digits")
    value = int(text)
    return value if -(2**63) <= value < 2**64 else float(value)


def _not_finite(_: str) -> NoReturn:
    raise RefusedError("request", "the body holds a number that is not finite")


def _too_deep() -> RefusedError:
    return RefusedError("request", f"the body is nested deeper than {DEPTH_LIMIT} levels")


_DIGITS = bytes(48 if 48 <= byte <= 57 else 32 for byte in range(256))


def _has_long_number(data: bytes) -> bool:
    """Whether there are so many digits in a row that they may be a number beyond 64 bits. Text may have them too."""
    return data.translate(_DIGITS).find(b"0" * _DIGITS_OF_INT64) >= 0


def _has_too_many_values(data: bytes) -> bool:
    """Whether there are more values than allowed; what stands within strings does not count."""
    if data.count(b",") + data.count(b"[") + data.count(b"{") <= VALUES_LIMIT:
        return False
    plain = data.replace(rb"\\", b"").replace(rb"\"", b"")
    if plain.count(b'"') > 4 * VALUES_LIMIT:
        return True
    outside = b" ".join(plain.split(b'"')[::2])
    return outside.count(b",") + outside.count(b"[") + outside.count(b"{") > VALUES_LIMIT
