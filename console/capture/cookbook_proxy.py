"""A capture gateway on the cookbook's own proxy: one listener for all trials, whose token is a trial's address.

The proxy renders chat to tokens and speaks two dialects; the sampling client it is given is ours, so that each sample
is checked and written down before the agent gets its reply, and the reply fails when that is impossible. It keeps no
application per trial: aiohttp remembers a thousand of them, and with each all that its trial captured.
"""

from __future__ import annotations

import hashlib
import logging
import secrets
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from pathlib import Path
from typing import Any

from aiohttp import web
from tinker_cookbook.capture.proxy import app as proxy

from console.capture.base import CallReport, CapturedCall, CapturedTrial
from console.capture.call_log import CallLog
from console.capture.recorder import RecordingSampler, SampleFailedError, TrialEndedError, noted
from console.capture.turns import CallText, Conversation, Decoder, ListeningRenderer, asked
from console.errors import UsageError

BODY_LIMIT = 64 * 2**20
CLOSE_SECONDS = 0.2
SEALED_KEPT = 10_000
"""Tokens of ended trials that are still told so (410); older ones are unknown (401)."""

log = logging.getLogger(__name__)

type Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

_caller: ContextVar[RecordingSampler] = ContextVar("caller")


class _CallersSampler:
    """The sampler of whichever trial the current request belongs to."""

    async def sample_async(self, prompt: Any, num_samples: int, sampling_params: Any) -> Any:
        return await _caller.get().sample_async(prompt, num_samples, sampling_params)


class CookbookRoute:
    """One trial's token and recorder."""

    def __init__(self, recorder: RecordingSampler, url: str, api_key: str, on_sealed: Callable[[str], None]) -> None:
        self._recorder, self._on_sealed = recorder, on_sealed
        self.url, self.api_key = url, api_key
        self._captured: CapturedTrial | None = None

    def stop(self) -> None:
        """Take no more calls; those under way are cancelled and not captured."""
        self._recorder.stop()

    async def seal(self) -> CapturedTrial:
        """End the route at once, also when the caller is cancelled; then wait for what is being cancelled."""
        self._recorder.stop()
        self._on_sealed(self.api_key)
        await self._recorder.settled()
        if self._captured is None:
            self._captured = self._recorder.take()
        return self._captured


class CookbookCapture:
    """One listener; a fresh token for each try.

    Args:
        renderer: the cookbook's renderer of the policy; model_label: what the proxy calls the model.
        default_max_tokens: for requests without max_tokens; context_window: tokens, None when the gateway keeps it.
        listen_host: where to listen; advertised_host: what `{proxy_url}` names.
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
        self._window, self._outage = context_window, outage
        self._listen = listen_host
        self._advertised = f"[{advertised_host}]" if ":" in advertised_host else advertised_host
        self._log = CallLog(directory)
        self._decoder = Decoder(renderer)
        self._open: dict[bytes, RecordingSampler] = {}
        self._sealed: OrderedDict[bytes, None] = OrderedDict()
        self._step = 0
        self._port = 0
        app = proxy.make_app(
            proxy.ProxyDeps(
                renderer=ListeningRenderer(renderer),
                sampling_client=_CallersSampler(),
                model_label=model_label,
                default_max_tokens=default_max_tokens,
            )
        )
        app.middlewares.insert(0, self._door())
        app._client_max_size = BODY_LIMIT  # the proxy offers no other way; its default refuses long transcripts
        # A client that goes away cancels its sample, or it would be trained as if the agent had read it.
        self._runner = web.AppRunner(app, access_log=None, handler_cancellation=True, shutdown_timeout=CLOSE_SECONDS)

    @property
    def inflight(self) -> int:
        """Model calls under way."""
        return sum(recorder.inflight for recorder in self._open.values())

    async def start(self) -> None:
        """Listen. Raises `UsageError` when that is not possible at the address."""
        await self._runner.setup()
        try:
            await web.TCPSite(self._runner, self._listen, 0).start()
        except OSError as error:
            await self._runner.cleanup()
            raise UsageError(
                f"harbor.listen_host={self._listen}: cannot listen there ({error.strerror or error}); "
                "name an address of this machine, or 0.0.0.0"
            ) from None
        self._port = self._runner.addresses[0][1]

    def begin_step(self, step: int) -> None:
        """Calls from now on belong to this step."""
        self._step = step

    async def open_route(self, key: str, sampler: Any, on_call: Callable[[CallReport], None]) -> CookbookRoute:
        """A token for one try."""
        token = secrets.token_urlsafe(32)
        conversation = Conversation(token)

        def record(number: int, call: CapturedCall) -> None:
            self._log.write(self._step, key, number, call, self._text_of(conversation, call))

        self._open[_digest(token)] = RecordingSampler(sampler, record, on_call, self._window, self._outage)
        url = f"http://{self._advertised}:{self._port}"
        return CookbookRoute(self._open[_digest(token)], url, token, self._forget)

    def _text_of(self, conversation: Conversation, call: CapturedCall) -> CallText | None:
        """What the call said. Nobody's sample is lost because it cannot be put into words."""
        try:
            return conversation.text_of(asked.get(), call.tokens_T, self._decoder)
        except Exception:
            log.warning("a call is captured without its text", exc_info=True)
            return None

    def _forget(self, token: str) -> None:
        digest = _digest(token)
        if self._open.pop(digest, None) is not None:
            self._sealed[digest] = None
            while len(self._sealed) > SEALED_KEPT:
                self._sealed.popitem(last=False)

    async def sync(self) -> None:
        """Force the calls written so far to the disk; before a batch trains on them. Raises `CaptureError`."""
        await self._log.sync()

    async def close(self) -> None:
        """End every call, release the listener, and close the call log. Raises `CaptureError`."""
        for recorder in self._open.values():
            recorder.stop()
        await self._runner.cleanup()
        self._open.clear()
        await self._log.close()

    def _door(self) -> Any:
        """The outermost middleware: who calls; refusals are noted with the trial, and each failure has a JSON body."""

        @web.middleware
        async def door(request: web.Request, handler: Handler) -> web.StreamResponse:
            digest = _digest(_token_of(request))
            recorder = self._open.get(digest)
            if recorder is None or recorder.sealed:
                if recorder is not None or digest in self._sealed:
                    return _error(request, 410, "the trial has ended")
                return _error(request, 401, "unknown or missing API key")
            _caller.set(recorder)
            noted.set(False)
            response = await _served(request, handler)
            if response.status >= 400 and request.method == "POST" and not noted.get():
                text = response.text if isinstance(response, web.Response) else ""
                recorder.refused(f"HTTP {response.status} at {request.path[:80]}: {text}")
            return response

        return door


async def _served(request: web.Request, handler: Handler) -> web.StreamResponse:
    try:
        return await handler(request)
    except TrialEndedError:
        return _error(request, 410, "the trial has ended")
    except SampleFailedError as error:
        return _error(request, 500, str(error))
    except web.HTTPException as error:
        return _error(request, error.status, error.reason)
    except Exception as error:
        # The renderer takes what agents send at its word; a conversation it cannot render fails here every time.
        log.warning("a request could not be served: %s", type(error).__name__, exc_info=error)
        status = 500 if noted.get() else 400
        return _error(request, status, f"the request cannot be served: {type(error).__name__}")


def _token_of(request: web.Request) -> str:
    """The key as each dialect's clients send it; empty when there is none."""
    given = request.headers.get("x-api-key")
    if given is None:
        scheme, _, given = request.headers.get("Authorization", "").partition(" ")
        given = given if scheme.lower() == "bearer" else ""
    return given.strip()


def _digest(token: str) -> bytes:
    """What tokens are looked up by, so that no comparison tells how much of a guess was right."""
    return hashlib.sha256(token.encode("utf-8", "surrogateescape")).digest()


_ERROR_KINDS = {401: "authentication_error", 404: "not_found_error"}


def _error(request: web.Request, status: int, message: str) -> web.Response:
    """An error in the form of the request's dialect."""
    kind = "api_error" if status >= 500 else _ERROR_KINDS.get(status, "invalid_request_error")
    if request.path.endswith("/messages"):
        return web.json_response({"type": "error", "error": {"type": kind, "message": message}}, status=status)
    return web.json_response({"error": {"type": kind, "message": message, "code": None}}, status=status)
