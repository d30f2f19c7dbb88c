"""A capture gateway on the cookbook's own proxy: one listener and one token per trial.

The proxy renders chat to tokens and speaks two dialects; the sampling client it is given is ours (`RecordingSampler`),
so that each sample is checked and written down before the agent gets its reply, and the reply fails when that is
impossible.
"""

from __future__ import annotations

import asyncio
import math
import os
import secrets
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import tinker
from aiohttp import web
from tinker_cookbook.capture.proxy import app as proxy

from console.capture.base import CallReport, CapturedCall, CapturedTrial
from console.outcomes.classes import CallEvidence

BODY_LIMIT = 64 * 2**20
FAILURE_TEXT = 300


class CallLog:
    """Appends one JSON line a call to `<directory>/calls-NNNNNN.jsonl`, a new file each step.

    The line reaches the operating system before the reply leaves; it survives the death of the process.
    """

    def __init__(self, directory: Path) -> None:
        directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._directory = directory
        self._step = -1
        self._fd: int | None = None

    def write(self, step: int, key: str, number: int, call: CapturedCall) -> None:
        """Append one call. Raises `OSError` when it cannot be written whole."""
        if step != self._step or self._fd is None:
            self.close()
            path = self._directory / f"calls-{step:06d}.jsonl"
            self._fd, self._step = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), step
        line = msgspec.json.encode({"trial": key, "call": number, **msgspec.structs.asdict(call)}) + b"\n"
        view = memoryview(line)
        while view:
            view = view[os.write(self._fd, view) :]

    def sync(self) -> None:
        """Force what was written to the disk."""
        if self._fd is not None:
            os.fsync(self._fd)

    def close(self) -> None:
        """Sync and close the current file."""
        if self._fd is not None:
            os.fsync(self._fd)
            os.close(self._fd)
            self._fd = None


class RecordingSampler:
    """Stands between the proxy and one trial's sampling client: checks, records, and counts every call."""

    def __init__(
        self,
        inner: Any,
        record: Callable[[int, CapturedCall], None],
        on_call: Callable[[CallReport], None],
        context_window: int | None,
    ) -> None:
        self._inner, self._record, self._on_call, self._window = inner, record, on_call, context_window
        self.calls: list[CapturedCall] = []
        self.sealed = False
        self.inflight = 0
        self._failed = self._lost = self._no_logprobs = 0
        self._last_failure: str | None = None
        self._last_failure_text = ""
        self._overflowed = False
        self._backend_seconds = 0.0
        self._truncated = False

    async def sample_async(
        self, prompt: tinker.ModelInput, num_samples: int, sampling_params: tinker.SamplingParams
    ) -> Any:
        """Sample once for the agent. Raises what the proxy turns into the agent's error reply."""
        if self.sealed:
            raise RuntimeError("the trial has ended")
        started = time.monotonic()
        prompt_P = prompt.to_ints()
        self._refuse_overflow(len(prompt_P), sampling_params.max_tokens or 0, started)
        self.inflight += 1
        try:
            response = await self._inner.sample_async(
                prompt=prompt, num_samples=num_samples, sampling_params=sampling_params
            )
        except asyncio.CancelledError:
            self._fail("client", "the agent went away", len(prompt_P), started)
            raise
        except Exception as error:
            if proxy._is_context_overflow(str(error)):
                self._overflow(len(prompt_P), sampling_params.max_tokens or 0, started, error)
            self._fail("backend", f"{type(error).__name__}: {error}", len(prompt_P), started)
            raise
        finally:
            self.inflight -= 1
        if self.sealed:
            raise RuntimeError("the trial has ended")
        self._keep(prompt_P, response.sequences[0], started)
        return response

    def evidence(self) -> CallEvidence:
        """What happened to the calls so far."""
        return CallEvidence(
            calls=len(self.calls),
            failed=self._failed,
            sampled_tokens=sum(len(c.tokens_T) for c in self.calls),
            lost=self._lost,
            no_logprobs=self._no_logprobs,
            last_failure=self._last_failure,
            last_failure_text=self._last_failure_text,
            backend_seconds=self._backend_seconds,
            overflowed=self._overflowed,
            truncated=self._truncated,
        )

    def _refuse_overflow(self, prompt: int, budget: int, started: float) -> None:
        if self._window is not None and prompt + budget > self._window:
            self._overflow(prompt, budget, started, None)

    def _overflow(self, prompt: int, budget: int, started: float, cause: Exception | None) -> None:
        self._overflowed = True
        # Harbor recognises exactly this wording as a context overflow.
        limit = self._window if self._window is not None else prompt + budget - 1
        text = f"prompt is too long: {prompt + budget} tokens > {limit} maximum"
        self._fail("overflow", text, prompt, started)
        raise proxy._BadRequest(text) from cause

    def _keep(self, prompt_P: list[int], sequence: Any, started: float) -> None:
        tokens_T = list(sequence.tokens)
        logprobs_T = list(sequence.logprobs) if sequence.logprobs is not None else []
        seconds = time.monotonic() - started
        # A sample of no tokens has no log-probs either; the SDK decodes both to nothing.
        if len(logprobs_T) != len(tokens_T) or not all(math.isfinite(p) and p <= 1e-4 for p in logprobs_T):
            self._no_logprobs += 1
            text = f"{len(tokens_T)} sampled tokens came with {len(logprobs_T)} usable log-probs"
            self._fail("no_logprobs", text, len(prompt_P), started)
            raise RuntimeError(text)
        call = CapturedCall(
            prompt_P=prompt_P,
            tokens_T=tokens_T,
            logprobs_T=logprobs_T,
            stop_reason=str(sequence.stop_reason or "stop"),
            seconds=seconds,
        )
        try:
            self._record(len(self.calls), call)
        except OSError as error:
            self._lost += 1
            self._fail("capture", f"the call could not be written: {error}", len(prompt_P), started)
            raise
        self.calls.append(call)
        self._last_failure, self._last_failure_text = None, ""
        self._truncated = call.stop_reason == "length"
        self._on_call(
            CallReport(
                status=call.stop_reason,
                ok=True,
                prompt_tokens=len(prompt_P),
                sampled_tokens=len(tokens_T),
                seconds=seconds,
            )
        )

    def _fail(self, kind: str, text: str, prompt: int, started: float) -> None:
        seconds = time.monotonic() - started
        self._failed += 1
        self._last_failure, self._last_failure_text = kind, text[:FAILURE_TEXT]
        if kind == "backend":
            self._backend_seconds += seconds
        self._on_call(CallReport(status=kind, ok=False, prompt_tokens=prompt, seconds=seconds))


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
        self._sealed: CapturedTrial | None = None

    @property
    def inflight(self) -> int:
        """Its calls under way."""
        return self._sampler.inflight

    def stop(self) -> None:
        """Take no more calls."""
        self._sampler.sealed = True

    async def seal(self) -> CapturedTrial:
        """Close the listener; calls under way are cancelled and not captured."""
        if self._sealed is None:
            self._sampler.sealed = True
            await self._runner.cleanup()
            self._on_sealed(self)
            self._sealed = CapturedTrial(calls=list(self._sampler.calls), evidence=self._sampler.evidence())
        return self._sealed


class CookbookCapture:
    """Opens a proxy per trial.

    Args:
        renderer: the cookbook's renderer of the policy; model_label: what the proxy calls the model.
        default_max_tokens: for requests without max_tokens; context_window: tokens, None when the gateway keeps it.
        listen_host: where proxies bind; advertised_host: what `{proxy_url}` names.
        directory: where calls are written.
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
    ) -> None:
        self._renderer, self._label = renderer, model_label
        self._max_tokens, self._window = default_max_tokens, context_window
        self._listen, self._advertised = listen_host, advertised_host
        self._log = CallLog(directory)
        self._open: set[CookbookRoute] = set()
        self._step = 0

    @property
    def inflight(self) -> int:
        """Model calls under way."""
        return sum(route.inflight for route in self._open)

    def begin_step(self, step: int) -> None:
        """Calls from now on belong to this step."""
        self._step = step

    async def open_route(self, key: str, sampler: Any, on_call: Callable[[CallReport], None]) -> CookbookRoute:
        """Start a listener of its own for one try."""
        recorder = RecordingSampler(
            sampler, lambda number, call: self._log.write(self._step, key, number, call), on_call, self._window
        )
        token = secrets.token_urlsafe(32)
        deps = proxy.ProxyDeps(
            renderer=self._renderer,
            sampling_client=recorder,
            model_label=self._label,
            default_max_tokens=self._max_tokens,
        )
        app = proxy.make_app(deps, auth_token=token)
        app._client_max_size = BODY_LIMIT  # the proxy offers no other way; its default refuses long transcripts
        # A client that goes away cancels its sample, or it would be trained as if the agent had read it.
        runner = web.AppRunner(app, access_log=None, handler_cancellation=True, shutdown_timeout=0.2)
        await runner.setup()
        await web.TCPSite(runner, self._listen, 0).start()
        port = runner.addresses[0][1]
        host = f"[{self._advertised}]" if ":" in self._advertised else self._advertised
        route = CookbookRoute(recorder, runner, f"http://{host}:{port}", token, self._open.discard)
        self._open.add(route)
        return route

    def sync(self) -> None:
        """Force the calls written so far to the disk; before a batch trains on them."""
        self._log.sync()

    async def close(self) -> None:
        """Seal what is open and close the call log."""
        for route in list(self._open):
            await route.seal()
        self._open.clear()
        self._log.close()
