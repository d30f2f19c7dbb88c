"""Sampling through the real SDK, against the Hugging Face implementation of the same weights."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import tinker
import torch
from tinker import types

if TYPE_CHECKING:
    from tests.gateway.conftest import Served

_PROMPT = [int(token) for token in np.random.default_rng(1).integers(0, 256, 40)]


@pytest.fixture(scope="module")
def sampler(service: Any) -> Any:
    return service.create_sampling_client(base_model="tiny").result()


@pytest.fixture(scope="module")
def other_sampler(tiny_gateway: Served) -> Iterator[Any]:
    """The same model under another API key, which has a prefix cache of its own."""
    client = tinker.ServiceClient(base_url=tiny_gateway.url, api_key="tml-two")
    yield client.create_sampling_client(base_model="tiny").result()
    client.holder.close()


def _sample(client: Any, prompt: list[int], n: int = 1, **params: Any) -> Any:
    options = {key: params.pop(key) for key in list(params) if key.startswith(("topk", "include", "prompt_"))}
    future = client.sample(types.ModelInput.from_ints(prompt), n, types.SamplingParams(**params), **options)
    return future.result()


@torch.no_grad()
def _logprobs(hf_model: Any, tokens: list[int]) -> torch.Tensor:
    """Log-probs (T, V) of what follows each token."""
    return hf_model(torch.tensor([tokens])).logits[0].log_softmax(-1)


def _check_logprobs(hf_model: Any, prompt: list[int], sequence: Any) -> None:
    every = _logprobs(hf_model, prompt + sequence.tokens)[len(prompt) - 1 : -1]
    expected = every.gather(1, torch.tensor(sequence.tokens)[:, None])[:, 0]
    np.testing.assert_allclose(sequence.logprobs, expected.numpy(), atol=2e-4)


def test_logprobs_are_those_of_the_model_whatever_shapes_the_draw(sampler: Any, hf_model: Any) -> None:
    for shape in ({}, {"temperature": 0.5}, {"temperature": 2.0, "top_k": 9}, {"top_p": 0.6}):
        result = _sample(sampler, _PROMPT, 3, max_tokens=25, stop=[], **shape)
        assert [sequence.stop_reason for sequence in result.sequences] == ["length"] * 3
        for sequence in result.sequences:
            assert len(sequence.tokens) == 25
            _check_logprobs(hf_model, _PROMPT, sequence)


def test_tokens_follow_the_distribution(sampler: Any, hf_model: Any) -> None:
    expected = _logprobs(hf_model, _PROMPT)[-1].exp()
    counts = torch.zeros(300)
    futures = [
        sampler.sample(types.ModelInput.from_ints(_PROMPT), 128, types.SamplingParams(max_tokens=1, stop=[]))
        for _ in range(16)
    ]
    for future in futures:
        for sequence in future.result().sequences:
            counts[sequence.tokens[0]] += 1
    total = counts.sum()
    assert total == 2048
    # Each frequency within five standard deviations, and the whole within what 2048 draws give.
    deviation = (counts / total - expected).abs() / (expected * (1 - expected) / total).sqrt().clamp(min=1e-3)
    assert float(deviation.max()) < 5
    assert float((counts / total - expected).abs().sum() / 2) < 0.15


def test_greedy_takes_the_most_likely(sampler: Any, hf_model: Any) -> None:
    for params in ({"temperature": 0.0}, {"top_k": 1}, {"top_p": 1e-6}):
        (sequence,) = _sample(sampler, _PROMPT, max_tokens=12, stop=[], **params).sequences
        every = _logprobs(hf_model, _PROMPT + sequence.tokens)[len(_PROMPT) - 1 : -1]
        assert sequence.tokens == every.argmax(-1).tolist()


def test_top_k_and_top_p_stay_within_their_sets(sampler: Any, hf_model: Any) -> None:
    for sequence in _sample(sampler, _PROMPT, 8, max_tokens=12, stop=[], temperature=3.0, top_k=4).sequences:
        every = _logprobs(hf_model, _PROMPT + sequence.tokens)[len(_PROMPT) - 1 : -1]
        ranks = (every > every.gather(1, torch.tensor(sequence.tokens)[:, None])).sum(-1)
        assert int(ranks.max()) < 4
    seen = set()
    for sequence in _sample(sampler, _PROMPT, 64, max_tokens=1, stop=[], top_p=0.5).sequences:
        seen |= set(sequence.tokens)
    ordered = _logprobs(hf_model, _PROMPT)[-1].exp().sort(descending=True)
    nucleus = ordered.indices[: int((ordered.values.cumsum(0) < 0.5).sum()) + 1].tolist()
    assert seen <= set(nucleus) and len(seen) > 1


def test_seed_decides_whatever_else_is_running(sampler: Any) -> None:
    def draw(seed: int) -> list[list[int]]:
        sequences = _sample(sampler, _PROMPT, 3, max_tokens=20, stop=[], seed=seed).sequences
        return [sequence.tokens for sequence in sequences]

    first = draw(5)
    assert first[0] != first[1] != first[2]
    noise = [
        sampler.sample(types.ModelInput.from_ints(_PROMPT[:n]), 2, types.SamplingParams(max_tokens=40, stop=[]))
        for n in range(5, 15)
    ]
    assert draw(5) == first
    assert draw(6) != first
    for future in noise:
        future.result()


def test_stops(sampler: Any) -> None:
    (free,) = _sample(sampler, _PROMPT, max_tokens=40, stop=[], seed=9).sequences
    token = free.tokens[7]
    (stopped,) = _sample(sampler, _PROMPT, max_tokens=40, stop=[token], seed=9).sequences
    assert stopped.tokens == free.tokens[: free.tokens.index(token) + 1] and stopped.stop_reason == "stop"
    (none,) = _sample(sampler, _PROMPT, max_tokens=5, stop=["\x00never\x00"], seed=9).sequences
    assert none.stop_reason == "length"


def test_stop_string_over_two_tokens(sampler: Any, tiny_model: Any) -> None:
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(tiny_model / "tokenizer.json"))
    text = ""
    for seed in range(200):  # a seed whose sample has two printable ASCII letters in a row
        (free,) = _sample(sampler, _PROMPT, max_tokens=40, stop=[], seed=seed).sequences
        for index in range(1, 40):
            text = tokenizer.decode(free.tokens[index - 1 : index + 1], skip_special_tokens=False)
            earlier = tokenizer.decode(free.tokens[:index], skip_special_tokens=False)
            if len(text) == 2 and text.isascii() and text.isprintable() and text not in earlier:
                (stopped,) = _sample(sampler, _PROMPT, max_tokens=40, stop=[text], seed=seed).sequences
                assert stopped.stop_reason == "stop" and stopped.tokens == free.tokens[: index + 1]
                return
    pytest.fail("no sample had two printable letters in a row")


def test_the_default_stop_is_the_models_own(sampler: Any) -> None:
    result = _sample(sampler, _PROMPT, 64, max_tokens=60, temperature=3.0)
    for sequence in result.sequences:
        assert (sequence.tokens[-1] == 257) == (sequence.stop_reason == "stop")
        assert 257 not in sequence.tokens[:-1]
    assert {sequence.stop_reason for sequence in result.sequences} == {"stop", "length"}


def test_prompt_logprobs(sampler: Any, hf_model: Any) -> None:
    every = _logprobs(hf_model, _PROMPT)
    expected = every[:-1].gather(1, torch.tensor(_PROMPT[1:])[:, None])[:, 0].numpy()
    prompt = types.ModelInput.from_ints(_PROMPT)
    got = sampler.compute_logprobs(prompt).result()
    assert got[0] is None
    np.testing.assert_allclose(got[1:], expected, atol=2e-4)
    result = _sample(
        sampler, _PROMPT, max_tokens=1, include_prompt_logprobs=True, topk_prompt_logprobs=5, prompt_logprobs_last_n=7
    )
    scored = result.prompt_logprobs
    assert scored[:-7] == [None] * (len(_PROMPT) - 7)
    np.testing.assert_allclose(scored[-7:], expected[-7:], atol=2e-4)
    top = result.topk_prompt_logprobs[-1]
    assert [token for token, _ in top] == every[-2].topk(5).indices.tolist()


def test_topk_of_the_sampled_tokens(sampler: Any, hf_model: Any) -> None:
    (sequence,) = _sample(sampler, _PROMPT, max_tokens=6, stop=[], topk_sample_logprobs=3).sequences
    every = _logprobs(hf_model, _PROMPT + sequence.tokens)[len(_PROMPT) - 1 : -1]
    assert [[token for token, _ in row] for row in sequence.topk_logprobs] == every.topk(3).indices.tolist()


async def _conversation(client: Any, seed: int) -> tuple[list[Any], list[int]]:
    """Six turns, each of whose prompts extends the one before; the last turn forks from the third."""
    tokens = [int(token) for token in np.random.default_rng(seed).integers(0, 256, 30)]
    rng = np.random.default_rng(seed + 1000)
    results, prompts, reused = [], [], []
    for turn in range(6):
        prompt = [*prompts[2], 1, 2, 3] if turn == 5 else list(tokens)
        prompts.append(prompt)
        params = types.SamplingParams(max_tokens=20, stop=[], seed=seed * 10 + turn)
        result = await client.sample(types.ModelInput.from_ints(prompt), 1, params)
        results.append(result.sequences[0])
        reused.append(result.prompt_cache_hit_tokens)
        tokens = [*prompt, *result.sequences[0].tokens, *(int(token) for token in rng.integers(0, 256, 9))]
        await asyncio.sleep(0)
    return results, reused


async def test_prefix_reuse_changes_nothing(sampler: Any, other_sampler: Any) -> None:
    """Conversations that run side by side and reuse their prefixes, against single requests that cannot."""
    together = await asyncio.gather(*(_conversation(sampler, seed) for seed in range(100, 108)))
    for seed, (results, reused) in enumerate(together, 100):
        assert reused[0] < 16
        assert all(count > 0 for count in reused[1:])
        assert reused[2] >= 30 + 20 + 9 - 1  # the second turn's whole prompt, and more
        assert reused[5] >= 30 + 2 * 29 - 16
        if seed < 103:
            tokens = [int(token) for token in np.random.default_rng(seed).integers(0, 256, 30)]
            rng = np.random.default_rng(seed + 1000)
            prompts = []
            for turn, sequence in enumerate(results):
                prompt = [*prompts[2], 1, 2, 3] if turn == 5 else tokens
                prompts.append(prompt)
                # Scoring the whole prompt computes it anew; the cache is not used.
                fresh = _sample(
                    other_sampler,
                    prompt,
                    max_tokens=20,
                    stop=[],
                    seed=seed * 10 + turn,
                    include_prompt_logprobs=True,
                )
                assert fresh.prompt_cache_hit_tokens == 0
                assert fresh.sequences[0].tokens == sequence.tokens
                np.testing.assert_allclose(fresh.sequences[0].logprobs, sequence.logprobs, atol=2e-4)
                tokens = [*prompt, *sequence.tokens, *(int(token) for token in rng.integers(0, 256, 9))]


def test_equal_prompts_are_computed_once(sampler: Any, tiny_gateway: Served, hf_model: Any) -> None:
    prompt = [int(token) for token in np.random.default_rng(77).integers(0, 256, 100)]

    def totals() -> dict[str, int]:
        with tiny_gateway.http("tml-one") as http:
            return http.get("/engine_load").json()["totals"]

    before = totals()["prefilled"]
    result = _sample(sampler, prompt, 16, max_tokens=4, stop=[])
    assert totals()["prefilled"] - before == 100
    for sequence in result.sequences:
        _check_logprobs(hf_model, prompt, sequence)


def test_sampling_while_training_and_snapshots_that_stay(service: Any, sampler: Any) -> None:
    """A snapshot samples the same before and after training; a new one does not."""
    client = service.create_lora_training_client("tiny", rank=4, seed=2).result()
    twin = service.create_lora_training_client("tiny", rank=4, seed=2).result()
    unused = twin.save_weights_and_get_sampling_client().result()
    before = client.save_weights_and_get_sampling_client().result()
    (first,) = _sample(before, _PROMPT, max_tokens=30, stop=[], seed=1).sequences
    datum = types.Datum(
        model_input=types.ModelInput.from_ints(_PROMPT[:-1]),
        loss_fn_inputs={
            "target_tokens": types.TensorData.from_numpy(np.array(_PROMPT[1:])),
            "weights": types.TensorData.from_numpy(np.ones(39, np.float32)),
        },
    )
    during = [
        before.sample(types.ModelInput.from_ints(_PROMPT), 4, types.SamplingParams(max_tokens=60, stop=[], seed=3))
        for _ in range(4)
    ]
    losses = []
    for _ in range(4):
        twin.forward_backward([datum], "cross_entropy")
        twin.optim_step(types.AdamParams(learning_rate=1e-2)).result()
        training = client.forward_backward([datum] * 8, "cross_entropy")
        step = client.optim_step(types.AdamParams(learning_rate=1e-2))
        losses.append(training.result().metrics["loss:sum"])
        step.result()
    assert losses[-1] < losses[0] - 1
    drawn = {tuple(tuple(sequence.tokens) for sequence in future.result().sequences) for future in during}
    assert len(drawn) == 1
    (again,) = _sample(before, _PROMPT, max_tokens=30, stop=[], seed=1).sequences
    assert again.tokens == first.tokens
    np.testing.assert_allclose(again.logprobs, first.logprobs, atol=2e-4)
    # A new adapter changes nothing: its snapshot scores like the base model, also when first used after training.
    prompt = types.ModelInput.from_ints(_PROMPT)
    np.testing.assert_allclose(
        unused.compute_logprobs(prompt).result()[1:], sampler.compute_logprobs(prompt).result()[1:], atol=1e-5
    )
    after = client.save_weights_and_get_sampling_client().result()
    scores = [
        math.fsum(each.compute_logprobs(types.ModelInput.from_ints(_PROMPT)).result()[1:]) for each in (before, after)
    ]
    assert scores[1] > scores[0] + 5


def test_overflow_is_told_in_the_hosted_services_words(sampler: Any) -> None:
    with pytest.raises(
        tinker.BadRequestError, match=r"Prompt length plus max_tokens exceeds .* 40 prompt tokens \+ 473"
    ):
        _sample(sampler, _PROMPT, max_tokens=473)
    (full,) = _sample(sampler, _PROMPT, stop=[], temperature=0.0).sequences
    assert len(full.tokens) == 512 - 40
