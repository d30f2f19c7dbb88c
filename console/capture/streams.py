"""Replies as streams of events: begun at once, kept alive while the sample is under way, finished in one piece."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine, Mapping
from typing import Any

from aiohttp import web

from console.capture.calls import PendingCall
from console.capture.dialects.base import ReplyStream
from console.capture.refusals import RefusedError, UnforeseenError, traced

KEEPALIVE_SECONDS = 10.0
WRITE_SECONDS = 60.0
"""For so long a client may take nothing of what is written to it."""

HEADERS = {"Content-Type": "text/event-stream; charset=utf-8", "Cache-Control": "no-cache", "X-Accel-Buffering": "no"}

log = logging.getLogger(__name__)


async def stream_reply(
    request: web.BaseRequest, pending: PendingCall, stream: ReplyStream, headers: Mapping[str, str]
) -> tuple[web.StreamResponse, RefusedError | None]:
    """Answer with a stream. A client that goes away cancels the sample.

    Returns:
        The response, sent to its end, and the error that it ended with.
    """
    replying = asyncio.ensure_future(pending.reply())
    try:
        response = web.StreamResponse(headers={**HEADERS, **headers})
        await in_time(request, response.prepare(request))
        await in_time(request, response.write(stream.opening()))
        while not (await asyncio.wait({replying}, timeout=KEEPALIVE_SECONDS))[0]:
            await in_time(request, response.write(stream.keepalive()))
        refusal = None
        try:
            last = stream.final(replying.result())
        except RefusedError as problem:
            refusal = problem
        except Exception as error:
            log.warning("a stream could not be finished: %s", traced(error))
            refusal = UnforeseenError()
        if refusal is not None:
            last = stream.failure(refusal)
        await in_time(request, response.write(last))
        await in_time(request, response.write_eof())
        if refusal is None:
            pending.delivered()
        return response, refusal
    finally:
        if not replying.done():
            replying.cancel()
            await asyncio.wait({replying})
        if not replying.cancelled():
            replying.exception()


async def in_time[T](request: web.BaseRequest, writing: Coroutine[Any, Any, T]) -> T:
    """A write that ends. Raises `ConnectionError` when the client is gone or takes nothing."""
    try:
        async with asyncio.timeout(WRITE_SECONDS):
            return await writing
    except TimeoutError:
        if request.transport is not None:
            request.transport.abort()
        raise ConnectionResetError("the client takes nothing") from None
