"""A stand-in for `tinker.SamplingClient` whose replies are written beforehand; what it answers are tinker's own types.

    sampler = ScriptedSampler(tokenizer, ["Hello.", Reply("late", delay=0.2), Reply(error=backend_error())])

Replies are used in the order of the calls; `by_prompt` chooses them from the prompt instead. Log-probs look real: each
is fixed by the token and what stands before it, finite and below zero.
"""

from __future__ import annotations

import asyncio
import math
import zlib
from collections import deque
from collections.abc import Callable, Generator, Iterable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, Literal

END = "<|im_end|>"

LogprobFault = Literal["null", "nan", "inf", "positive", "short", "long", "none_inside", "certain"]


@dataclass(kw_only=True)
class _Options:
    end: bool = True
    stop_reason: str | None = None
    logprobs: LogprobFault | list[float] | None = None
    delay: float = 0.0
    gate: asyncio.Event | None = None
    error: BaseException | None = None
    sequences: int = 1


@dataclass
class Reply(_Options):
    """One sample to come.

    Attributes:
        said: its text, or its ids as they are; "" or [] with `end=False` is a sample of no tokens.
        end: put the token that ends a turn behind a text; stop_reason: None for what follows from the length.
        logprobs: None for good ones, a list for just these, or what is wrong with them: null (no log-probs at all),
            nan, inf, positive (the last one), none_inside (one of them is None), short and long (one too few, one too
            many), certain (a hair above zero, as gateways give for certain tokens).
        delay: seconds before it comes; gate: it comes when this is set; error: raised instead.
        sequences: how many the response has, 0 for a gateway that gives none.
    """

    said: str | Sequence[int] = ""


@dataclass(kw_only=True)
class Asked:
    """A call as the sampler got it. `state`: running, done, failed or cancelled."""

    prompt: list[int]
    params: Any
    num_samples: int
    state: str = "running"
    tokens: list[int] = field(default_factory=list)
    logprobs: list[float] | None = None


type Scripted = str | Sequence[int] | Reply | BaseException


class ScriptedSampler:
    """Answers as scripted.

    Args:
        tokenizer: has `encode(text, add_special_tokens=False)`; replies: see the module.
        otherwise: the reply when the script is used up; by_prompt: makes the reply of a call from its prompt ids.
        window: context window in tokens; a call beyond it fails in the words of the hosted service.
        end: text of the token that ends a turn.
    """

    def __init__(
        self,
        tokenizer: Any,
        replies: Iterable[Scripted] = (),
        *,
        otherwise: Scripted = "Done.",
        by_prompt: Callable[[list[int]], Scripted] | None = None,
        window: int | None = None,
        end: str = END,
    ) -> None:
        self._tokenizer, self._replies = tokenizer, deque(replies)
        self._otherwise, self._by_prompt, self._window = otherwise, by_prompt, window
        self._end = self._ids(end)
        self.asked: list[Asked] = []
        self.changed = asyncio.Event()

    @property
    def running(self) -> int:
        """Calls under way."""
        return sum(call.state == "running" for call in self.asked)

    @property
    def cancelled(self) -> int:
        """Calls that were cancelled."""
        return sum(call.state == "cancelled" for call in self.asked)

    def script(self, *replies: Scripted) -> None:
        """More replies behind those that are left."""
        self._replies.extend(replies)

    async def until_running(self, calls: int) -> None:
        """Until so many calls are under way at once."""
        while self.running < calls:
            self.changed.clear()
            await self.changed.wait()

    def sample(self, prompt: Any, num_samples: int, sampling_params: Any, **options: Any) -> _Pending:
        """As `tinker.SamplingClient.sample`: something to await that is no coroutine."""
        call = Asked(prompt=list(prompt.to_ints()), params=sampling_params, num_samples=num_samples)
        self.asked.append(call)
        self.changed.set()
        pending = _Pending(self._answer(call, bool(options.get("include_prompt_logprobs"))))
        pending.future().add_done_callback(lambda future: self._gone(call) if future.cancelled() else None)
        return pending

    def _gone(self, call: Asked) -> None:
        call.state = "cancelled"
        self.changed.set()

    def compute_logprobs(self, prompt: Any, prompt_logprobs_last_n: int | None = None) -> _Pending:
        """As `tinker.SamplingClient.compute_logprobs`."""

        async def computed() -> list[float | None]:
            return self._prompt_logprobs(list(prompt.to_ints()))

        return _Pending(computed())

    async def _answer(self, call: Asked, prompt_logprobs: bool) -> Any:
        reply = self._next(call.prompt)
        try:
            if self._window is not None and len(call.prompt) + (call.params.max_tokens or 1) > self._window:
                raise overflow_error(len(call.prompt), call.params.max_tokens or 1, self._window)
            if reply.delay:
                await asyncio.sleep(reply.delay)
            if reply.gate is not None:
                await reply.gate.wait()
            if reply.error is not None:
                raise reply.error
            response = self._response(call, reply, prompt_logprobs)
        except asyncio.CancelledError:
            call.state = "cancelled"
            raise
        except Exception:
            call.state = "failed"
            raise
        finally:
            self.changed.set()
        call.state = "done"
        return response

    def _response(self, call: Asked, reply: Reply, prompt_logprobs: bool) -> Any:
        import numpy as np
        from tinker import types

        tokens = list(reply.said) if not isinstance(reply.said, str) else self._ids(reply.said)
        if isinstance(reply.said, str) and reply.end:
            tokens += self._end
        limit = call.params.max_tokens
        cut = limit is not None and len(tokens) > limit
        tokens = tokens[:limit] if cut else tokens
        stop_reason = reply.stop_reason or ("length" if cut or tokens[-len(self._end) :] != self._end else "stop")
        logprobs = _logprobs(call.prompt, tokens, reply.logprobs)
        call.tokens, call.logprobs = tokens, logprobs
        sequence = types.SampledSequence(
            stop_reason=stop_reason,  # type: ignore[arg-type]
            sequence_id=f"scripted-{len(self.asked)}",
            _tokens_list=tokens,
            _logprobs_list=logprobs,
        )
        scored = None
        if prompt_logprobs:
            scored = np.asarray([math.nan if p is None else p for p in self._prompt_logprobs(call.prompt)], np.float32)
        return types.SampleResponse(sequences=[sequence] * reply.sequences, prompt_logprobs_np=scored)

    def _next(self, prompt: list[int]) -> Reply:
        if self._by_prompt is not None:
            said = self._by_prompt(prompt)
        else:
            said = self._replies.popleft() if self._replies else self._otherwise
        if isinstance(said, BaseException):
            return Reply(error=said)
        return said if isinstance(said, Reply) else Reply(said)

    def _ids(self, text: str) -> list[int]:
        return list(self._tokenizer.encode(text, add_special_tokens=False)) if text else []

    def _prompt_logprobs(self, prompt: list[int]) -> list[float | None]:
        return [None, *(_logprob(prompt[i - 1], prompt[i]) for i in range(1, len(prompt)))]


class _Pending:
    """As what the SDK returns: under way at once, to be awaited, and no coroutine."""

    def __init__(self, work: Any) -> None:
        self._future: Future[Any] = asyncio.run_coroutine_threadsafe(work, asyncio.get_running_loop())

    def future(self) -> Future[Any]:
        """The one of `concurrent.futures`; cancelling it cancels the sample."""
        return self._future

    def __await__(self) -> Generator[Any, None, Any]:
        return asyncio.wrap_future(self._future).__await__()


def _logprob(before: int, token: int) -> float:
    """A log-prob between -4 and 0 that is the same whenever the same two tokens meet."""
    return -4.0 * (zlib.crc32(f"{before},{token}".encode()) % 9973 + 1) / 9974


def _logprobs(prompt: list[int], tokens: list[int], fault: LogprobFault | list[float] | None) -> list[Any] | None:
    if isinstance(fault, list):
        return fault
    chain = [prompt[-1] if prompt else 0, *tokens]
    good: list[Any] = [_logprob(before, token) for before, token in zip(chain, tokens)]
    if fault == "null" or (not tokens and fault is None):
        return None  # the SDK decodes the log-probs of no tokens to None
    if fault == "short":
        return good[:-1]
    if fault == "long":
        return [*good, -0.5]
    last = {"nan": math.nan, "inf": -math.inf, "positive": 0.25, "none_inside": None, "certain": 5e-6}
    return good if fault is None else [*good[:-1], last[fault]]


def overflow_error(prompt_tokens: int, max_tokens: int, window: int, *, through_the_future: bool = False) -> Exception:
    """What the SDK raises when a call does not fit the window: at once, or through the promise of a sample."""
    import tinker

    text = (
        "Prompt length plus max_tokens exceeds the model's context window: "
        f"{prompt_tokens} prompt tokens + {max_tokens} max_tokens > {window}."
    )
    if through_the_future:
        return tinker.RequestFailedError(text, request_id="r-1", category=tinker.types.RequestErrorCategory.User)
    return tinker.BadRequestError(text, response=_http_response(400), body=None)


def backend_error(text: str = "engine died", status: int = 500) -> Exception:
    """What the SDK raises when the gateway fails."""
    import tinker

    kind = tinker.RateLimitError if status == 429 else tinker.InternalServerError
    return kind(text, response=_http_response(status), body=None)


def _http_response(status: int) -> Any:
    import httpx

    return httpx.Response(status, request=httpx.Request("POST", "http://gateway.invalid/api/v1/asample"))
