"""The sampler that an agent's calls go through: checks every sample, records it, and counts what went wrong."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any

import tinker
from tinker_cookbook.capture.proxy import app as proxy

from console.capture.base import CallReport, CapturedCall, CapturedTrial
from console.outcomes.classes import CallEvidence

FAILURE_TEXT = 300
LOGPROB_SLACK = 1e-4
"""Log-probs of certain tokens come out a little above zero."""

noted: ContextVar[bool] = ContextVar("noted", default=False)
"""Whether the call of the current request is in the record already, as a sample or as a failure."""


class SampleFailedError(Exception):
    """No usable sample: the backend failed, its answer is unusable, or it could not be written down."""


class TrialEndedError(Exception):
    """The trial is over: its route takes no more calls."""


class RecordingSampler:
    """Stands between the proxy and one trial's sampling client. Belongs to one event loop.

    Args:
        inner: the policy's `tinker.SamplingClient`; record: writes call number n down, raises `OSError`.
        on_call: told of each call that ended; context_window: tokens, None when the gateway keeps it.
        outage: seconds since a monotonic time for which the gateway did not answer its health checks. The SDK repeats
            a call for as long as the gateway is away, so this is the only trace of it.
    """

    def __init__(
        self,
        inner: Any,
        record: Callable[[int, CapturedCall], None],
        on_call: Callable[[CallReport], None],
        context_window: int | None,
        outage: Callable[[float], float] = lambda since: 0.0,
    ) -> None:
        self._inner, self._record, self._on_call = inner, record, on_call
        self._window, self._outage = context_window, outage
        self.calls: list[CapturedCall] = []
        self.sealed = False
        self._running: set[asyncio.Future[Any]] = set()
        self._failed = self._lost = self._no_logprobs = 0
        self._last_failure: str | None = None
        self._last_failure_text = ""
        self._overflowed = False
        self._backend_seconds = 0.0
        self._truncated = False

    @property
    def inflight(self) -> int:
        """Calls under way."""
        return len(self._running)

    def stop(self) -> None:
        """Take no more calls, and cancel those under way: nobody will read their answers."""
        self.sealed = True
        for sample in self._running:
            sample.cancel()

    async def sample_async(
        self, prompt: tinker.ModelInput, num_samples: int, sampling_params: tinker.SamplingParams
    ) -> Any:
        """Sample once for the agent; called by the proxy.

        Raises:
            SampleFailedError, TrialEndedError: see there; the agent gets an error reply.
        """
        if self.sealed:
            raise TrialEndedError
        started = time.monotonic()
        prompt_P = prompt.to_ints()
        budget = sampling_params.max_tokens or 0
        if self._window is not None and len(prompt_P) + budget > self._window:
            self._overflow(len(prompt_P), budget, started, None)
        sample = asyncio.ensure_future(
            self._inner.sample(prompt=prompt, num_samples=num_samples, sampling_params=sampling_params)
        )
        self._running.add(sample)
        try:
            response = await sample
        except asyncio.CancelledError:
            ended = self.sealed
            self._fail("client", "the trial ended" if ended else "the agent went away", len(prompt_P), started)
            if ended:
                raise TrialEndedError from None
            raise
        except Exception as error:
            if proxy._is_context_overflow(str(error)):
                self._overflow(len(prompt_P), budget, started, error)
            self._fail("backend", f"{type(error).__name__}: {error}", len(prompt_P), started)
            raise SampleFailedError(f"the policy's gateway failed: {type(error).__name__}") from error
        finally:
            self._running.discard(sample)
        if self.sealed:
            self._fail("client", "the trial ended", len(prompt_P), started)
            raise TrialEndedError
        self._keep(prompt_P, response, started)
        return response

    async def settled(self) -> None:
        """After `stop`: until the cancelled calls are in the record."""
        if self._running:
            await asyncio.wait(list(self._running))
        while self._running:  # noqa: ASYNC110 - a turn or two of the loop
            await asyncio.sleep(0)

    def take(self) -> CapturedTrial:
        """All that was captured; the recorder keeps none of it."""
        taken = CapturedTrial(calls=self.calls, evidence=self.evidence())
        self.calls, self._on_call = [], lambda report: None
        return taken

    def refused(self, text: str) -> None:
        """Note a request that never came to a sample."""
        self._fail("request", text, 0, time.monotonic())

    def evidence(self) -> CallEvidence:
        """What happened to the calls so far. An answer without a single token is no sample."""
        return CallEvidence(
            calls=sum(bool(call.tokens_T) for call in self.calls),
            failed=self._failed,
            sampled_tokens=sum(len(call.tokens_T) for call in self.calls),
            lost=self._lost,
            no_logprobs=self._no_logprobs,
            last_failure=self._last_failure,
            last_failure_text=self._last_failure_text,
            backend_seconds=self._backend_seconds,
            overflowed=self._overflowed,
            truncated=self._truncated,
        )

    def _overflow(self, prompt: int, budget: int, started: float, cause: Exception | None) -> None:
        self._overflowed = True
        # Harbor recognises exactly this wording as a context overflow.
        limit = self._window if self._window is not None else prompt + budget - 1
        text = f"prompt is too long: {prompt + budget} tokens > {limit} maximum"
        self._fail("overflow", text, prompt, started)
        raise proxy._BadRequest(text) from cause

    def _keep(self, prompt_P: list[int], response: Any, started: float) -> None:
        if not response.sequences:
            self._fail("backend", "the gateway answered without a sequence", len(prompt_P), started)
            raise SampleFailedError("the policy's gateway answered without a sequence")
        sequence = response.sequences[0]
        tokens_T = list(sequence.tokens)
        logprobs_T = list(sequence.logprobs) if sequence.logprobs is not None else []
        # A sample of no tokens has no log-probs either; the SDK decodes both to nothing.
        if len(logprobs_T) != len(tokens_T) or not all(math.isfinite(p) and p <= LOGPROB_SLACK for p in logprobs_T):
            self._no_logprobs += 1
            text = f"{len(tokens_T)} sampled tokens came with {len(logprobs_T)} log-probs, not all of them usable"
            self._fail("no_logprobs", text, len(prompt_P), started)
            raise SampleFailedError(text)
        call = CapturedCall(
            prompt_P=prompt_P,
            tokens_T=tokens_T,
            logprobs_T=logprobs_T,
            stop_reason=str(sequence.stop_reason or "stop"),
            seconds=time.monotonic() - started,
        )
        try:
            self._record(len(self.calls), call)
        except OSError as error:
            self._lost += 1
            self._fail("capture", f"the call could not be written: {error}", len(prompt_P), started)
            raise SampleFailedError("the call could not be written down") from error
        self.calls.append(call)
        noted.set(True)
        self._backend_seconds += min(call.seconds, self._outage(started))
        self._last_failure, self._last_failure_text = None, ""
        self._truncated = call.stop_reason == "length"
        self._on_call(
            CallReport(
                status=call.stop_reason,
                ok=True,
                prompt_tokens=len(prompt_P),
                sampled_tokens=len(tokens_T),
                seconds=call.seconds,
            )
        )

    def _fail(self, kind: str, text: str, prompt: int, started: float) -> None:
        seconds = time.monotonic() - started
        noted.set(True)
        self._failed += 1
        self._last_failure, self._last_failure_text = kind, text[:FAILURE_TEXT]
        self._backend_seconds += seconds if kind == "backend" else min(seconds, self._outage(started))
        self._on_call(CallReport(status=kind, ok=False, prompt_tokens=prompt, seconds=seconds))
