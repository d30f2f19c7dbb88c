"""Of which distribution are the log-probs that a gateway returns with a sample: that of the sampling temperature, or
that of temperature 1? Gateways differ, and none says.

The trainer computes log-probs at temperature 1. Where samples were drawn at another temperature, either PPO ratios do
not start at 1 (tempered log-probs), or they do and the samples come from a distribution that nothing corrects for.

Found by sampling a few tokens at temperature 2 and comparing what came with them with the log-probs of the same tokens
as part of a prompt, which are those of temperature 1; the same at temperature 1 tells how far the two may differ
anyhow. A gateway that does not score prompts is asked for single tokens at temperatures 1 and 0.5: a token that comes
at both has the same log-prob, or it has not.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence
from typing import Any

import msgspec

SECONDS = 10.0
SAMPLES, TOKENS, SINGLES = 2, 8, 16
SAME, OTHER = 0.1, 0.3
"""Mean differences of log-probs up to which they are the same, and from which they are not, in nats."""
CERTAIN, CERTAIN_ONE = 0.1, 0.3
"""-log p, as a mean and of one token, below which a model is so sure that no temperature shows."""


class Probe(msgspec.Struct, frozen=True, kw_only=True):
    """What was found. `tempered`: None when it cannot be told; detail: how it was found, or why not, in one line."""

    tempered: bool | None = None
    detail: str = ""


class _Unscored(Exception):
    """The gateway's log-probs of prompts are of no use here."""


async def probe_logprobs(sampler: Any, prompt: Sequence[int], *, seconds: float = SECONDS) -> Probe:
    """Ask a gateway. Samples some dozens of tokens at most, and never raises but for cancellation.

    Args:
        sampler: a `tinker.SamplingClient`; prompt: ids of any prompt that many replies fit; seconds: for all of it.
    """
    try:
        async with asyncio.timeout(seconds):
            try:
                return await _by_scoring(sampler, list(prompt))
            except _Unscored as problem:
                found = await _by_repetition(sampler, list(prompt))
                return msgspec.structs.replace(found, detail=f"{problem}; {found.detail}")
    except TimeoutError:
        return Probe(detail=f"the gateway did not answer within {seconds:g} s")
    except Exception as error:
        return Probe(detail=f"the gateway could not be asked: {type(error).__name__}")


async def _by_scoring(sampler: Any, prompt: list[int]) -> Probe:
    plain, _ = await _differences(sampler, prompt, 1.0)
    noise = _mean(plain)
    if noise > OTHER:
        raise _Unscored(f"log-probs of samples and of prompts differ by {noise:.2f} at temperature 1")
    hot, scored = await _differences(sampler, prompt, 2.0)
    gap = _mean(hot)
    said = f"at temperature 2 sampled and scored log-probs differ by {gap:.3f} on average ({noise:.3f} at 1)"
    if _mean([-p for p in scored]) < CERTAIN:
        raise _Unscored("the model is too sure of its tokens")
    if gap <= max(SAME, 3 * noise):
        return Probe(tempered=False, detail=said)
    if gap >= max(OTHER, 5 * noise):
        return Probe(tempered=True, detail=said)
    raise _Unscored(said)


async def _differences(sampler: Any, prompt: list[int], temperature: float) -> tuple[list[float], list[float]]:
    """Of some sampled tokens: how far their log-probs are from those of the prompt, and the latter."""
    import tinker

    differences: list[float] = []
    scored_all: list[float] = []
    for tokens, logprobs in await _sampled(sampler, prompt, temperature, SAMPLES, TOKENS):
        try:
            scored = await sampler.compute_logprobs(tinker.ModelInput.from_ints(prompt + tokens))
            values = [float(value) for value in scored[len(prompt) : len(prompt) + len(tokens)]]
        except Exception as error:
            raise _Unscored(f"the gateway does not score prompts ({type(error).__name__})") from error
        if len(values) != len(tokens) or not all(map(math.isfinite, values)):
            raise _Unscored("the gateway does not score prompts")
        differences += [abs(one - other) for one, other in zip(logprobs, values)]
        scored_all += values
    if not differences:
        raise _Unscored("the gateway sampled no tokens")
    return differences, scored_all


async def _by_repetition(sampler: Any, prompt: list[int]) -> Probe:
    """Whether a token that is sampled first at two temperatures has one log-prob or two."""
    seen: list[dict[int, float]] = []
    for temperature in (1.0, 0.5):
        drawn = await _sampled(sampler, prompt, temperature, SINGLES, 1)
        seen.append({tokens[0]: logprobs[0] for tokens, logprobs in drawn})
    both = seen[0].keys() & seen[1].keys()
    if not both:
        return Probe(detail="no token came at both temperatures")
    gap = max(abs(seen[0][token] - seen[1][token]) for token in both)
    said = f"the same tokens' log-probs at temperatures 1 and 0.5 differ by {gap:.3f} at most"
    if max(-seen[0][token] for token in both) < CERTAIN_ONE:
        return Probe(detail=f"{said}, but the model is too sure of them")
    return Probe(tempered=gap > SAME, detail=said)


async def _sampled(
    sampler: Any, prompt: list[int], temperature: float, samples: int, tokens: int
) -> list[tuple[list[int], list[float]]]:
    """Sampled ids with their log-probs, of samples that have both."""
    import tinker

    response = await sampler.sample(
        prompt=tinker.ModelInput.from_ints(prompt),
        num_samples=samples,
        sampling_params=tinker.SamplingParams(max_tokens=tokens, temperature=temperature),
    )
    drawn = []
    for sequence in response.sequences:
        logprobs = sequence.logprobs
        if sequence.tokens and logprobs is not None and len(logprobs) == len(sequence.tokens):
            drawn.append((list(sequence.tokens), [float(value) for value in logprobs]))
    return drawn


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values) if values else math.inf
