"""The capture gateway of a run: one listener, and a trial behind each token.

It composes what lies around it: `routes` knows the trials, `exchange` answers requests, `calls` are a trial's own, and
`journal` keeps them. Nothing that a sandbox can reach opens, ends or reads a trial; that is for the engine, in process.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from console.capture.address import check_exposure, in_url, prefix_of
from console.capture.base import CallReport
from console.capture.bodies import BODY_LIMIT
from console.capture.calls import TrialCalls
from console.capture.chat import ChatMessage
from console.capture.dialects.base import Dialect
from console.capture.dialects.chat import Chat
from console.capture.dialects.messages import Messages
from console.capture.dialects.responses import Responses
from console.capture.exchange import Exchange
from console.capture.figures import CaptureFigures
from console.capture.listener import Listener
from console.capture.probe import Probe, probe_logprobs
from console.capture.routes import Entry, OpenRoute, Routes, new_token
from console.capture.service import CallService
from console.capture.settings import CallSettings
from console.capture.tls import server_context
from console.records.capture_format import Opened

if TYPE_CHECKING:
    from console.capture.journal import CallJournal
    from console.capture.rendering import PolicyRenderer

HELD_EACH = 1
"""Bodies of the largest size that one trial may have under way: no few of them use up what is for all."""


def all_dialects() -> dict[str, Dialect]:
    """What agents may speak, by name."""
    return {dialect.name: dialect for dialect in (Chat(), Responses(), Messages())}


class Capture:
    """See `base.CaptureGateway`.

    Args:
        renderer: the policy's; journal: where calls are kept; settings: how they are served.
        listen_host, listen_port: where to listen, port 0 for any; advertised_host: what `{proxy_url}` names;
            advertised_url: what it is, when something stands between the agents and this machine.
        tls_certificate, tls_key: PEM files, for TLS; allow_insecure: other machines may connect without it.
        outage: seconds since a monotonic time for which the policy's gateway did not answer its health checks.
        forgotten: told what the policy's gateway said when it did not know the sampler any more.
        body_limit: bytes of a request's body, also when it is unpacked.
    """

    def __init__(
        self,
        *,
        renderer: PolicyRenderer,
        journal: CallJournal,
        settings: CallSettings,
        listen_host: str = "127.0.0.1",
        listen_port: int = 0,
        advertised_host: str = "127.0.0.1",
        advertised_url: str | None = None,
        tls_certificate: str | None = None,
        tls_key: str | None = None,
        allow_insecure: bool = False,
        outage: Callable[[float], float] = lambda since: 0.0,
        forgotten: Callable[[str], None] = lambda text: None,
        body_limit: int = BODY_LIMIT,
        dialects: Mapping[str, Dialect] | None = None,
    ) -> None:
        self.service = CallService(renderer, settings, outage=outage, forgotten=forgotten)
        self._journal, self._renderer_name = journal, renderer.name
        self._listen = (listen_host, listen_port)
        self._advertised_host, self._advertised_url = advertised_host, advertised_url
        self._tls = (tls_certificate, tls_key)
        self._allow_insecure = allow_insecure
        self._held_each = HELD_EACH * body_limit
        self._routes = Routes()
        self._exchange = Exchange(
            self._routes,
            dialects if dialects is not None else all_dialects(),
            self.service,
            prefix=prefix_of(advertised_url or ""),
            body_limit=body_limit,
        )
        self._listener = Listener(self._exchange.handle, self._exchange.malformed)
        self._step = 0

    @property
    def inflight(self) -> int:
        """Model calls under way."""
        return self._routes.inflight

    @property
    def figures(self) -> CaptureFigures:
        """Totals since the start."""
        return self.service.figures

    @property
    def refusals(self) -> Counter[str]:
        """Requests that got an error, by kind, also those of nobody's trial."""
        return Counter(self.service.figures.refusals)

    @property
    def slowed(self) -> int:
        """Answers to wrong tokens that were held back, because their peer sends many."""
        return self._exchange.slowed

    @property
    def url(self) -> str:
        """What goes into `{proxy_url}`; without a slash at its end."""
        if self._advertised_url is not None:
            return self._advertised_url.rstrip("/")
        scheme = "http" if self._tls[0] is None else "https"
        return f"{scheme}://{in_url(self._advertised_host)}:{self._listener.port}"

    def warnings(self) -> list[str]:
        """What the operator should know of how calls are rendered, one line each."""
        renderer, said = self.service.renderer, []
        if not renderer.bridges and renderer.history_thinking == "keep":
            said.append(
                f"renderer {renderer.name} has no token bridge: every call is rendered in full, and extends the one "
                "before only where its tokens happen to"
            )
        if not renderer.guards:
            said.append(f"renderer {renderer.name}: control tokens in what tools and agents say cannot be kept as text")
        return said

    async def start(self) -> None:
        """Listen. Raises `UsageError` when that is not possible, or not safe and nobody said that it may be so."""
        certificate, key = self._tls
        host, port = self._listen
        check_exposure(host, tls=certificate is not None, allowed=self._allow_insecure)
        context = None if certificate is None or key is None else server_context(certificate, key)
        await self._listener.start(host, port, context)

    def begin_step(self, step: int) -> None:
        """Calls from now on belong to this step."""
        self._step = step

    async def open_route(
        self, key: str, sampler: Any, on_call: Callable[[CallReport], None], *, policy_version: int | None = None
    ) -> OpenRoute:
        """A route for one try; calls are taken once its `start` was called.

        Raises:
            CaptureError: the trial's file cannot be made.
        """
        token = new_token()
        settings = self.service.settings
        trial = self._journal.open_trial(
            Opened(
                key=key,
                step=self._step,
                policy_version=policy_version,
                sampler=str(getattr(sampler, "model_path", None) or ""),
                model=settings.model,
                renderer=self._renderer_name,
                window=self.service.window,
                sampling=settings.sampling,
                history_thinking=settings.history_thinking,
                train=settings.train,
                ts=time.time(),
            )
        )
        calls = TrialCalls(
            self.service, sampler, trial, key=key, secret=token, on_call=on_call, policy_version=policy_version
        )
        entry = Entry(calls, self._held_each)
        self._routes.add(token, entry)
        return OpenRoute(entry, self.url, token, self._routes.retire)

    async def probe(self, sampler: Any) -> Probe:
        """What the log-probs are that the policy's gateway returns. Never raises but for cancellation."""
        asked = [ChatMessage(role="user", text="Tell a short story about a ship and its crew.")]
        prompt = await self.service.workers.run("probe", self.service.renderer.render, asked, [])
        return await probe_logprobs(sampler, prompt)

    async def sync(self) -> None:
        """Force what was captured so far to the disk, before a batch trains on it. Raises `CaptureError`."""
        await self._journal.sync()

    async def close(self) -> None:
        """Seal what is open and release the listener. Raises `CaptureError`."""
        entries = self._routes.entries()
        for entry in entries:
            entry.stop()
        await self._listener.close()
        await asyncio.gather(*(entry.calls.seal() for entry in entries), return_exceptions=True)
        self._exchange.close()
        self.service.close()
        await self._journal.close()
