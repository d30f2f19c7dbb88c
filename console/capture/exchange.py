"""One request and its answer: who asks, what for, what it may cost, and every way in which it can fail.

A failure always has a body in the form of the dialect that was spoken, and is counted: with the trial when it is known
whose it is. Errors that nobody foresaw are logged by their kind only, since their text may hold what a sandbox sent.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import math
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Protocol, cast

import msgspec
from aiohttp import web

from console.capture.bodies import BODY_LIMIT, Held, Meter, check_headers, decoded, decompressed, read_body
from console.capture.calls import PendingCall
from console.capture.chat import ChatRequest
from console.capture.dialects.base import Dialect
from console.capture.listener import Connection
from console.capture.paths import READ, Place, resolve
from console.capture.peers import Peers
from console.capture.refusals import RefusedError, UnforeseenError, overflow, traced
from console.capture.routes import Entry, Routes
from console.capture.service import CallService
from console.capture.streams import in_time, stream_reply

IN_LOOP_BYTES = 16 * 2**10
"""Larger bodies are decoded in a thread."""

READ_AT_ONCE = 2**30
"""Bytes of bodies that may be read and decoded at once, of all trials."""

BYTES_PER_TOKEN = 16
"""A text of more bytes than this for each token of the window is too long, whatever its tokens are."""

LARGEST_WINDOW = 2**20
"""Tokens, where the policy's window is not known."""

DRAINED_BYTES, STRANGERS_BYTES, DRAINED_SECONDS = 160 * 2**20, 8 * 2**20, 5.0
"""So much of a body that is refused, of a known trial's and of a stranger's, is read and thrown away: a client that is
cut off while it sends does not see its answer."""

log = logging.getLogger(__name__)


class _Counting(Protocol):
    def parse_count(self, body: Any, headers: Mapping[str, str]) -> ChatRequest: ...

    def count_reply(self, tokens: int) -> dict[str, Any]: ...


class Visit:
    """A request on its way.

    Attributes:
        entry: the trial it belongs to, once that is known.
        expects: the client holds its body back until it is told to go on.
    """

    def __init__(self, request: web.BaseRequest, place: Place, dialect: Dialect) -> None:
        self.request, self.place, self.dialect = request, place, dialect
        self.entry: Entry | None = None
        self.expects = "expect" in request.headers


class Exchange:
    """Answers requests.

    Args:
        routes: the trials; dialects: by name; service: what the trials share.
        prefix: path of the advertised URL; body_limit: bytes of a body.
    """

    def __init__(
        self,
        routes: Routes,
        dialects: Mapping[str, Dialect],
        service: CallService,
        *,
        prefix: str = "",
        body_limit: int = BODY_LIMIT,
    ) -> None:
        self._routes, self._dialects, self._service = routes, dialects, service
        self._model, self._prefix, self._body_limit = service.settings.model, prefix, body_limit
        self._peers = Peers()
        self._reading = Meter(READ_AT_ONCE)
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="capture-bodies")

    @property
    def slowed(self) -> int:
        """Answers to wrong tokens that were held back."""
        return self._peers.slowed

    def close(self) -> None:
        """Decode nothing more."""
        self._thread.shutdown(wait=False, cancel_futures=True)

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        """The answer to a request, sent."""
        place = resolve(request.rel_url.path, self._prefix, request.headers)
        visit = Visit(request, place, self._dialects[place.dialect])
        try:
            return await self._answer(visit)
        except RefusedError as refusal:
            return await self._refuse(visit, refusal)
        except ConnectionError:
            raise
        except Exception as error:
            log.warning("a request could not be served: %s", traced(error))
            return await self._refuse(visit, UnforeseenError())

    def malformed(self, refusal: RefusedError) -> web.Response:
        """The answer to what is not HTTP."""
        self._service.figures.refused(refusal.kind)
        return _error(self._dialects["chat"], refusal)

    async def _answer(self, visit: Visit) -> web.StreamResponse:
        request, place = visit.request, visit.place
        if place.action == "base" and request.method in READ:
            return web.Response()
        if place.action == "none" or request.method not in place.methods:
            try:
                visit.entry = self._routes.find(request.headers)
            except RefusedError:
                pass  # whoever it is: there is nothing here
            if place.action == "call" and request.headers.get("upgrade", "").lower() == "websocket":
                raise RefusedError("method", "there are no WebSockets here; use POST", status=426)
            kind = "not_found" if place.action == "none" else "method"
            text = "there is no such path" if place.action == "none" else f"use {' or '.join(place.methods)}"
            raise RefusedError(kind, text)  # type: ignore[arg-type]
        visit.entry = entry = self._routes.find(request.headers)
        if isinstance(request.protocol, Connection):
            request.protocol.belongs_to(entry)
        if place.action in ("models", "model"):
            listed = visit.dialect.models(self._model)
            return _json(listed if place.action == "models" else listed["data"][0])
        await entry.begun()
        encoding = check_headers(request, self._body_limit)
        with Held(entry.held) as held:
            return await self._with_body(visit, entry, encoding, held)

    async def _with_body(self, visit: Visit, entry: Entry, encoding: str, held: Held) -> web.StreamResponse:
        dialect = visit.dialect
        counting = visit.place.action == "count"
        parse = cast(_Counting, dialect).parse_count if counting else dialect.parse
        visit.expects = False
        with Held(self._reading) as reading:
            data = await read_body(visit.request, (held, reading), self._body_limit)
            entry.calls.received(len(data))
            parsed, digest, size = await self._understood(data, encoding, parse, visit.request.headers)
            del data
        held.take(max(0, size - held.size))
        self._check_length(parsed)
        if counting:
            tokens = await entry.calls.count(parsed)
            return _json(cast(_Counting, dialect).count_reply(tokens))
        pending = await entry.calls.begin(parsed, digest)
        try:
            return await self._call(visit, entry, parsed, pending)
        finally:
            pending.abandon()

    async def _understood(
        self, data: bytes, encoding: str, parse: Callable[..., ChatRequest], headers: Mapping[str, str]
    ) -> tuple[ChatRequest, bytes, int]:
        """The request in a body, a digest of it, and its size; what takes long is done in the thread."""

        def work() -> tuple[ChatRequest, bytes, int]:
            plain = decompressed(data, encoding, self._body_limit)
            body = decoded(plain)
            try:
                request = parse(body, headers)
            except RefusedError:
                raise
            except Exception as error:
                log.warning("a body could not be understood: %s", traced(error))
                raise RefusedError("request", "the body cannot be understood") from None
            digest = hashlib.sha256(request.dialect.encode() + b"\0")
            # Of what it says: some clients send the same again with its keys in another order.
            digest.update(msgspec.json.encode(body, order="sorted"))
            return request, digest.digest(), len(plain)

        if len(data) <= IN_LOOP_BYTES and not encoding:
            return work()
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)

    def _check_length(self, request: ChatRequest) -> None:
        """Refuse a text that cannot fit before it costs a tokenisation. Raises `RefusedError` (overflow)."""
        window = self._service.window or LARGEST_WINDOW
        size = text_bytes(request, BYTES_PER_TOKEN * window)
        if size > BYTES_PER_TOKEN * window:
            raise overflow(size // 4, window)

    async def _call(self, visit: Visit, entry: Entry, parsed: ChatRequest, pending: PendingCall) -> web.StreamResponse:
        headers = {"request-id": pending.node, "x-request-id": pending.node}
        if parsed.stream:
            stream = visit.dialect.stream(parsed, pending.node, pending.prompt_tokens, self._model)
            response, refusal = await stream_reply(visit.request, pending, stream, headers)
            if refusal is not None:
                entry.calls.refused(refusal, visit.dialect.name)
            return response
        whole = _json(visit.dialect.reply(parsed, await pending.reply()), headers=headers)
        await in_time(visit.request, whole.prepare(visit.request))
        await in_time(visit.request, whole.write_eof())
        pending.delivered()
        return whole

    async def _refuse(self, visit: Visit, refusal: RefusedError) -> web.StreamResponse:
        """The answer to a request that gets none; what is left of its body is thrown away."""
        request = visit.request
        if visit.entry is not None:
            visit.entry.calls.refused(refusal, visit.dialect.name)
        else:
            self._service.figures.refused(refusal.kind)
        slow = refusal.kind == "auth" and self._peers.wrong(request.remote or "")
        if slow:
            await self._peers.hold()
        response = _error(visit.dialect, refusal)
        if refusal.kind == "method":
            response.headers["Allow"] = ", ".join(visit.place.methods)
        if slow or visit.expects or not request.content.is_eof():
            response.force_close()
        await in_time(request, response.prepare(request))
        await in_time(request, response.write_eof())
        if not visit.expects:
            await _drain(request, STRANGERS_BYTES if visit.entry is None else DRAINED_BYTES)
        return response


async def _drain(request: web.BaseRequest, left: int) -> None:
    try:
        async with asyncio.timeout(DRAINED_SECONDS):
            while left > 0 and not request.content.at_eof():
                left -= len(await request.content.readany())
    except Exception:  # it is of no use to anybody
        return


def text_bytes(request: ChatRequest, limit: int) -> int:
    """Bytes of the texts that would be rendered; counted no further than is needed to see that they exceed `limit`."""
    size = 0
    for message in request.messages:
        size += _bytes(message.text) + _bytes(message.reasoning)
        size += sum(_bytes(call.name) + _bytes(call.arguments) for call in message.tool_calls)
        if size > limit:
            return size
    return size + len(msgspec.json.encode(request.tools))


def _bytes(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode("utf-8", "replace"))


def _error(dialect: Dialect, refusal: RefusedError) -> web.Response:
    """An error as the dialect has it. What is the same every time is marked so that clients do not repeat it."""
    if refusal.retry_after is None:
        headers = {"x-should-retry": "false"}
    else:
        headers = {"Retry-After": str(max(1, math.ceil(refusal.retry_after)))}
    return _json(dialect.error(refusal), status=refusal.status, headers=headers)


def _json(body: dict[str, Any], *, status: int = 200, headers: Mapping[str, str] | None = None) -> web.Response:
    try:
        data = msgspec.json.encode(body)
    except UnicodeEncodeError:
        data = json.dumps(body).encode("ascii")
    return web.Response(body=data, status=status, headers=headers, content_type="application/json")
