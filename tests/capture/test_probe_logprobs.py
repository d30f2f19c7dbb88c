"""Whether a gateway's log-probs are tempered, asked of gateways of either kind, of poor ones, and of the real one."""

from __future__ import annotations

import asyncio
import math
import random
from itertools import pairwise
from typing import Any

import pytest
from tinker import types

from console.capture.probe import probe_logprobs

VOCABULARY = 12
PROMPT = [1, 2, 3]


class Toy:
    """A model whose next token depends on the one before it."""

    def __init__(self, *, tempered: bool, sharpness: float = 1.5, scores: bool = True, noise: float = 0.0) -> None:
        self._tempered, self._scores, self._noise = tempered, scores, noise
        self._random = random.Random(7)
        self._logits = [[self._random.gauss(0, sharpness) for _ in range(VOCABULARY)] for _ in range(VOCABULARY)]
        self.sampled = 0

    def _logprobs(self, before: int, temperature: float) -> list[float]:
        scaled = [value / temperature for value in self._logits[before]]
        top = max(scaled)
        total = top + math.log(sum(math.exp(value - top) for value in scaled))
        return [value - total for value in scaled]

    async def sample(self, prompt: Any, num_samples: int, sampling_params: Any) -> types.SampleResponse:
        sequences = []
        for _ in range(num_samples):
            tokens: list[int] = []
            logprobs = []
            before = prompt.to_ints()[-1]
            for _ in range(sampling_params.max_tokens):
                drawn = self._logprobs(before, sampling_params.temperature)
                told = drawn if self._tempered else self._logprobs(before, 1.0)
                before = self._random.choices(range(VOCABULARY), [math.exp(p) for p in drawn])[0]
                tokens.append(before)
                logprobs.append(told[before] + self._random.gauss(0, self._noise))
            self.sampled += len(tokens)
            sequences.append(
                types.SampledSequence(
                    stop_reason="length", sequence_id="s", _tokens_list=tokens, _logprobs_list=logprobs
                )
            )
        return types.SampleResponse(sequences=sequences)

    async def compute_logprobs(self, prompt: Any) -> list[float | None]:
        if not self._scores:
            raise NotImplementedError
        ids = prompt.to_ints()
        return [None, *(self._logprobs(before, 1.0)[token] for before, token in pairwise(ids))]


@pytest.mark.parametrize("scores", [True, False])
@pytest.mark.parametrize("tempered", [True, False])
async def test_either_kind_is_told(tempered: bool, scores: bool):
    toy = Toy(tempered=tempered, scores=scores)
    probe = await probe_logprobs(toy, PROMPT)
    assert probe.tempered is tempered, probe
    assert "differ by" in probe.detail and toy.sampled <= 64


async def test_noise_of_low_precision_does_not_look_like_a_temperature():
    assert (await probe_logprobs(Toy(tempered=False, noise=0.05), PROMPT)).tempered is False
    assert (await probe_logprobs(Toy(tempered=True, noise=0.05), PROMPT)).tempered is True


async def test_a_model_that_is_sure_of_its_tokens_tells_nothing():
    probe = await probe_logprobs(Toy(tempered=True, sharpness=400.0), PROMPT)
    assert probe.tempered is None and "too sure" in probe.detail


async def test_prompt_logprobs_of_another_model_are_not_believed():
    toy = Toy(tempered=False)
    other = Toy(tempered=False, sharpness=5.0)
    toy.compute_logprobs = other.compute_logprobs  # type: ignore[method-assign]
    probe = await probe_logprobs(toy, PROMPT)
    assert probe.tempered is False and "at temperature 1;" in probe.detail


class Broken(Toy):
    def __init__(self, error: Exception | None = None, logprobs: bool = True, waits: bool = False) -> None:
        super().__init__(tempered=False)
        self._error, self._with, self._waits = error, logprobs, waits

    async def sample(self, prompt: Any, num_samples: int, sampling_params: Any) -> types.SampleResponse:
        if self._error is not None:
            raise self._error
        if self._waits:
            await asyncio.Event().wait()
        sequence = types.SampledSequence(stop_reason="stop", sequence_id="s", _tokens_list=[4, 5], _logprobs_list=None)
        return types.SampleResponse(sequences=[sequence])


@pytest.mark.parametrize(
    ("broken", "said"),
    [
        (Broken(ValueError("secret")), "could not be asked: ValueError"),
        (Broken(), "sampled no tokens; no token came at both"),
        (Broken(waits=True), "did not answer within 0.05 s"),
    ],
)
async def test_a_gateway_that_cannot_answer_fails_nothing(broken: Broken, said: str):
    probe = await probe_logprobs(broken, PROMPT, seconds=0.05)
    assert probe.tempered is None and said in probe.detail and "secret" not in probe.detail


async def test_the_embedded_gateway_returns_log_probs_of_temperature_one(sampler, renderer):
    prompt = renderer.build_generation_prompt([{"role": "user", "content": "List the files."}]).to_ints()
    probe = await probe_logprobs(sampler, prompt)
    assert probe.tempered is False, probe
