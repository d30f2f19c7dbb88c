"""The web application: routes, errors as JSON, and the sweeper of what has expired."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import time
from collections.abc import AsyncIterator
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from console.gateway.embedded.api_runs import RunRoutes
from console.gateway.embedded.api_sampling import SamplingRoutes
from console.gateway.embedded.api_sessions import SessionRoutes
from console.gateway.embedded.api_training import TrainingRoutes
from console.gateway.embedded.context import Gateway, reply
from console.gateway.embedded.likeness import Likeness
from console.gateway.embedded.problems import InvalidBody, OperationProblem, RequestProblem

log = logging.getLogger(__name__)

_CHECKPOINT_SWEEP = 60.0  # seconds between two looks for expired checkpoints
_STANDSTILL = 0.5  # a sweep this many seconds late means that the process was stopped, or the machine overloaded


def build_app(gateway: Gateway) -> Starlette:
    """The ASGI application; its lifespan runs the compute thread and the sweeper."""

    @contextlib.asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        gateway.engine.start()
        sweeper = asyncio.create_task(_sweep(gateway))
        try:
            yield
        finally:
            sweeper.cancel()
            gateway.futures.close()
            gateway.engine.stop()

    routes = [
        *SamplingRoutes(gateway).routes(),  # matched in order: the busiest come first
        *TrainingRoutes(gateway).routes(),
        *SessionRoutes(gateway).routes(),
        *RunRoutes(gateway).routes(),
    ]
    like = gateway.settings.like
    handlers: dict[Any, Any] = {
        RequestProblem: functools.partial(_refused, like),
        OperationProblem: functools.partial(_failed, like),
        HTTPException: _http,
        ClientDisconnect: _gone,
        Exception: _broken,
    }
    routes = [route for route in routes if not like.lacks(route.path)]
    return Starlette(routes=routes, exception_handlers=handlers, lifespan=lifespan)


async def _refused(like: Likeness, _: Request, problem: Exception) -> Response:
    assert isinstance(problem, RequestProblem)
    status = like.invalid if isinstance(problem, InvalidBody) else problem.status
    response = reply({like.error_field: problem.detail}, status)
    if problem.retry_after is not None:
        response.headers["retry-after"] = f"{problem.retry_after:g}"
    return response


async def _failed(like: Likeness, _: Request, problem: Exception) -> Response:
    assert isinstance(problem, OperationProblem)
    return reply({like.error_field: problem.detail}, 400 if problem.category == "user" else 500)


async def _http(request: Request, problem: Exception) -> Response:
    assert isinstance(problem, HTTPException)
    return reply({"detail": f"{request.method} {request.url.path}: {problem.detail}"}, problem.status_code)


async def _gone(_: Request, problem: Exception) -> Response:
    return Response(status_code=499)  # nobody reads it: the client hung up while sending


async def _broken(request: Request, problem: Exception) -> Response:
    log.error("%s %s failed", request.method, request.url.path, exc_info=problem)
    return reply({"detail": f"internal error: {type(problem).__name__}"}, 500)


async def _sweep(gateway: Gateway) -> None:
    """End dead sessions, fill gaps, forget old results, remove expired checkpoints."""
    settings = gateway.settings
    pause = max(0.05, min(1.0, settings.lease / 4, settings.gap_timeout / 4))
    since_checkpoints = _CHECKPOINT_SWEEP
    sweep, since_sessions = settings.lease * settings.like.sweep_share, 0.0
    before = time.monotonic()
    while True:
        stood_still = time.monotonic() - before - pause
        if stood_still > _STANDSTILL:
            gateway.registry.forgive(stood_still)
        before = time.monotonic()
        try:
            if since_sessions >= sweep:
                since_sessions = 0.0
                for session in gateway.registry.sweep():
                    log.info("session %s ended: lease expired", session)
            gateway.registry.give_up_gaps(settings.gap_timeout)
            gateway.futures.sweep()
            if since_checkpoints >= _CHECKPOINT_SWEEP:
                since_checkpoints = 0.0
                await asyncio.to_thread(gateway.checkpoints.sweep)
        except Exception:
            log.exception("the sweep failed")
        since_checkpoints += pause
        since_sessions += pause
        await asyncio.sleep(pause)
