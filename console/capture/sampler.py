"""The one place that asks the policy's sampler, and that looks at what it gives before anybody else does."""

from __future__ import annotations

import math
import re
from array import array
from typing import Any, Literal

import msgspec

from console.capture.effective import Effective

LOGPROB_SLACK = 1e-4
"""Log-probs of certain tokens come out a little above zero; they are kept as they are given."""

_OVERFLOWS = (
    re.compile(r"prompt length plus max_tokens exceeds", re.IGNORECASE),
    re.compile(r"\d+\s*prompt tokens\s*\+\s*\d+\s*max_tokens\s*>\s*\d+", re.IGNORECASE),
    re.compile(r"prompt is too long", re.IGNORECASE),
    re.compile(r"maximum context length", re.IGNORECASE),
)
"""How gateways say that prompt and budget do not fit the window, at once or through the promise of a sample."""
_WINDOW = re.compile(r"max_tokens\s*>\s*(\d{1,9})|>\s*(\d{1,9})\s*maximum|context length is (\d{1,9})", re.IGNORECASE)


class Sample(msgspec.Struct, frozen=True, kw_only=True):
    """A checked sample: ids and log-probs of equal length, the latter finite. `stop_reason`: stop or length."""

    tokens_T: array[int]
    logprobs_T: array[float]
    stop_reason: str


class SampleFailedError(Exception):
    """No usable sample.

    Attributes:
        kind: backend, overflow or no_logprobs; text: what the gateway said, for the record and not for the agent.
        window: of an overflow, the context window in tokens when the gateway names it.
        forgotten: the gateway knows the sampler no more: no call of the run will ever be answered.
        brief: what the agent may know.
    """

    def __init__(
        self,
        kind: Literal["backend", "overflow", "no_logprobs"],
        text: str,
        brief: str,
        window: int | None = None,
        forgotten: bool = False,
    ) -> None:
        super().__init__(text)
        self.kind: Literal["backend", "overflow", "no_logprobs"] = kind
        self.text, self.brief, self.window, self.forgotten = text, brief, window, forgotten


def model_input(prompt: array[int]) -> Any:
    """The prompt as the SDK wants it. Takes half a millisecond for a long one, and twice that with the SDK's checks."""
    import tinker

    chunk = tinker.EncodedTextChunk.model_construct(tokens=prompt.tolist())
    return tinker.ModelInput.model_construct(chunks=[chunk])


async def sample(client: Any, prompt: Any, effective: Effective, stop: list[int] | list[str]) -> Sample:
    """One sample.

    Args:
        client: the policy's `tinker.SamplingClient`; prompt: see `model_input`; effective: how to sample.
        stop: where the renderer's turns end. The agent's own stop strings are no part of it: a gateway takes ids or
            strings, and without the ids no turn would end.

    Raises:
        SampleFailedError: the gateway failed, refused, or gave what cannot be used. Cancelling cancels the sample.
    """
    import tinker

    params = tinker.SamplingParams(
        max_tokens=effective.max_tokens,
        temperature=effective.temperature,
        top_p=effective.top_p,
        top_k=effective.top_k,
        seed=effective.seed,
        stop=stop,
    )
    try:
        response = await client.sample(prompt=prompt, num_samples=1, sampling_params=params)
    except Exception as error:
        raise failed(error) from error
    return checked(response)


def failed(error: Exception) -> SampleFailedError:
    """What an exception of the SDK means. Its name may be told to the agent, its text may not."""
    from console.gateway.loss import forgotten

    text = f"{type(error).__name__}: {error}"
    if any(pattern.search(text) for pattern in _OVERFLOWS):
        said = _WINDOW.search(text)
        window = int(next(group for group in said.groups() if group)) if said else None
        return SampleFailedError("overflow", text, "", window)
    brief = f"the policy's gateway failed: {type(error).__name__}"
    return SampleFailedError("backend", text, brief, forgotten=forgotten(error))


def checked(response: Any) -> Sample:
    """The only sequence of a response.

    Raises:
        SampleFailedError: there is none (backend), or its log-probs are missing, of the wrong number, not finite or
            above zero (no_logprobs). A sample of no tokens has no log-probs either; the SDK decodes both to nothing.
    """
    if not response.sequences:
        raise SampleFailedError("backend", "the gateway answered without a sequence", "the gateway sent no sample")
    sequence = response.sequences[0]
    try:
        tokens_T = array("i", sequence.tokens)
    except (TypeError, OverflowError):
        raise SampleFailedError("backend", "the gateway sent tokens that are no ids", "unusable sample") from None
    given = sequence.logprobs if sequence.logprobs is not None else ()
    try:
        logprobs_T = array("f", given)
    except TypeError:  # a None among them
        logprobs_T = array("f")
    if len(logprobs_T) != len(tokens_T) or not all(math.isfinite(p) and p <= LOGPROB_SLACK for p in logprobs_T):
        text = f"{len(tokens_T)} sampled tokens came with {len(given)} log-probs, not all of them usable"
        raise SampleFailedError("no_logprobs", text, text)
    stop_reason = "length" if sequence.stop_reason == "length" else "stop"
    return Sample(tokens_T=tokens_T, logprobs_T=logprobs_T, stop_reason=stop_reason)
