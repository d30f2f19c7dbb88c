"""A capture gateway on the cookbook's own proxy: one listener and one token per trial.

The proxy renders chat to tokens and speaks two dialects; the sampling client it is given is ours (`RecordingSampler`),
so that each sample is checked and written down before the agent gets its reply, and the reply fails when that is
impossible.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from aiohttp import web
from tinker_cookbook.capture.proxy import app as proxy

from console.capture.base import CallReport, CapturedTrial
from console.capture.call_log import CallLog
from console.capture.recorder import RecordingSampler, SampleFailedError, TrialEndedError, noted
from console.errors import UsageError

BODY_LIMIT = 64 * 2**20
CLOSE_SECONDS = 0.2

log = logging.getLogger(__name__)

type Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class CookbookRoute:
    """One trial's listener, token and recorder."""

    def __init__(
        self,
        sampler: RecordingSampler,
        runner: web.AppRunner,
        url: str,
        api_key: str,
        on_sealed: Callable[[CookbookRoute], None],
    ) -> None:
        self._sampler, self._runner, self._on_sealed = sampler, runner, on_sealed
        self.url, self.api_key = url, api_key
        self._sealing: asyncio.Task[CapturedTrial] | None = None

    @property
    def inflight(self) -> int:
        """Its calls under way."""
        return self._sampler.inflight

    def stop(self) -> None:
        """Take no more calls; those under way are cancelled and not captured."""
        self._sampler.stop()

    async def seal(self) -> CapturedTrial:
        """Close the listener. It goes on when the caller is cancelled."""
        self.stop()
        if self._sealing is None:
            self._sealing = asyncio.ensure_future(self._seal())
        return await asyncio.shield(self._sealing)

    async def _seal(self) -> CapturedTrial:
        try:
            await self._runner.cleanup()
        except Exception:
            log.exception("closing %s", self.url)
        self._on_sealed(self)
        return CapturedTrial(calls=list(self._sampler.calls), evidence=self._sampler.evidence())


class CookbookCapture:
    """Opens a proxy per trial.

    Args:
        renderer: the cookbook's renderer of the policy; model_label: what the proxy calls the model.
        default_max_tokens: for requests without max_tokens; context_window: tokens, None when the gateway keeps it.
        listen_host: where proxies bind; advertised_host: what `{proxy_url}` names.
        directory: where calls are written.
        outage: see `RecordingSampler`.
    """

    def __init__(
        self,
        *,
        renderer: Any,
        model_label: str,
        default_max_tokens: int,
        context_window: int | None,
        listen_host: str,
        advertised_host: str,
        directory: Path,
        outage: Callable[[float], float] = lambda since: 0.0,
    ) -> None:
        self._renderer, self._label = renderer, model_label
        self._max_tokens, self._window, self._outage = default_max_tokens, context_window, outage
        self._listen, self._advertised = listen_host, advertised_host
        self._log = CallLog(directory)
        self._open: set[CookbookRoute] = set()
        self._step = 0

    @property
    def inflight(self) -> int:
        """Model calls under way."""
        return sum(route.inflight for route in self._open)

    async def check(self) -> None:
        """Raises `UsageError` when nothing can listen at the address."""
        try:
            server = await asyncio.start_server(lambda reader, writer: None, self._listen, 0)
        except OSError as error:
            raise UsageError(
                f"harbor.listen_host={self._listen}: cannot listen there ({error.strerror or error}); "
                "name an address of this machine, or 0.0.0.0"
            ) from None
        server.close()

    def begin_step(self, step: int) -> None:
        """Calls from now on belong to this step."""
        self._step = step

    async def open_route(self, key: str, sampler: Any, on_call: Callable[[CallReport], None]) -> CookbookRoute:
        """Start a listener of its own for one try. Raises `OSError` when it cannot listen."""
        recorder = RecordingSampler(
            sampler,
            lambda number, call: self._log.write(self._step, key, number, call),
            on_call,
            self._window,
            self._outage,
        )
        token = secrets.token_urlsafe(32)
        deps = proxy.ProxyDeps(
            renderer=self._renderer,
            sampling_client=recorder,
            model_label=self._label,
            default_max_tokens=self._max_tokens,
        )
        app = proxy.make_app(deps, auth_token=token)
        app.middlewares.insert(0, _door(recorder))
        app._client_max_size = BODY_LIMIT  # the proxy offers no other way; its default refuses long transcripts
        # A client that goes away cancels its sample, or it would be trained as if the agent had read it.
        runner = web.AppRunner(app, access_log=None, handler_cancellation=True, shutdown_timeout=CLOSE_SECONDS)
        try:
            await runner.setup()
            await web.TCPSite(runner, self._listen, 0).start()
        except BaseException:
            await runner.cleanup()
            raise
        port = runner.addresses[0][1]
        host = f"[{self._advertised}]" if ":" in self._advertised else self._advertised
        route = CookbookRoute(recorder, runner, f"http://{host}:{port}", token, self._open.discard)
        self._open.add(route)
        return route

    async def sync(self) -> None:
        """Force the calls written so far to the disk; before a batch trains on them. Raises `CaptureError`."""
        await self._log.sync()

    async def close(self) -> None:
        """Seal what is open and close the call log. Raises `CaptureError`."""
        await asyncio.gather(*(route.seal() for route in list(self._open)))
        self._open.clear()
        await self._log.close()


def _door(recorder: RecordingSampler) -> Any:
    """The outermost middleware: a sealed trial is gone, each refusal is noted, and each failure has a JSON body."""

    @web.middleware
    async def door(request: web.Request, handler: Handler) -> web.StreamResponse:
        if recorder.sealed:
            return _error(request, 410, "the trial has ended")
        noted.set(False)
        try:
            response = await handler(request)
        except TrialEndedError:
            return _error(request, 410, "the trial has ended")
        except SampleFailedError as error:
            return _error(request, 500, str(error))
        except web.HTTPException as error:
            response = _error(request, error.status, error.reason)
        except Exception as error:
            # The renderer takes what agents send at its word; a conversation it cannot render fails here every time.
            log.warning("a request could not be served: %s", type(error).__name__, exc_info=error)
            status = 500 if noted.get() else 400
            response = _error(request, status, f"the request cannot be served: {type(error).__name__}")
        if response.status >= 400 and request.method == "POST" and not noted.get():
            text = response.text if isinstance(response, web.Response) else ""
            kind = "auth" if response.status == 401 else "request"
            recorder.refused(kind, f"HTTP {response.status} at {request.path[:80]}: {text}")
        return response

    return door


def _error(request: web.Request, status: int, message: str) -> web.Response:
    """An error in the form of the request's dialect."""
    kind = "api_error" if status >= 500 else "invalid_request_error"
    if request.path.endswith("/messages"):
        return web.json_response({"type": "error", "error": {"type": kind, "message": message}}, status=status)
    return web.json_response({"error": {"type": kind, "message": message, "code": None}}, status=status)
