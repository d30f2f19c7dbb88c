"""The prefix cache: what it finds, what it keeps, what it drops."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from console.gateway.embedded.kv import KeptSequence, PrefixCache


def _kept(adapter: str, tokens: list[int]) -> KeptSequence:
    values = torch.tensor(tokens, dtype=torch.float32).view(1, 1, -1, 1).expand(2, 2, -1, 4)
    return KeptSequence(adapter, np.asarray(tokens, np.int32), values, values)


def _prompt(*tokens: int) -> np.ndarray:
    return np.asarray(tokens, np.int32)


def test_finds_the_longest_shared_prefix_of_the_same_adapter() -> None:
    cache = PrefixCache(10**6)
    cache.keep(_kept("a", list(range(40))), None)
    longer = _kept("a", [*range(60), 7, 7, 7, 7])
    cache.keep(longer, None)
    source, known = cache.find("a", _prompt(*range(61), 99), 1000)
    assert source is longer and known == 60
    assert cache.find("a", _prompt(*range(61)), 33)[1] == 33
    assert cache.find("b", _prompt(*range(61)), 1000) == (None, 0)
    assert cache.find("a", _prompt(5, *range(61)), 1000) == (None, 0)
    keys, _ = source.read(known)
    assert keys[0, 0, :, 0].tolist() == list(range(60))


def test_a_sequence_replaces_the_one_that_it_extends() -> None:
    cache = PrefixCache(10**6)
    first = _kept("a", list(range(40)))
    cache.keep(first, None)
    cache.keep(_kept("a", list(range(80))), first)
    assert cache.kept_tokens == 80
    assert cache.find("a", _prompt(*range(41)), 1000)[1] == 41


def test_the_least_recently_used_goes_first() -> None:
    one = _kept("a", [1] * 40)
    cache = PrefixCache(one.nbytes * 2)
    cache.keep(one, None)
    cache.keep(_kept("a", [2] * 40), None)
    assert cache.find("a", _prompt(*[1] * 41), 1000)[0] is one
    cache.keep(_kept("a", [3] * 40), None)
    assert cache.nbytes <= one.nbytes * 2
    assert cache.find("a", _prompt(*[2] * 41), 1000) == (None, 0)
    assert cache.find("a", _prompt(*[1] * 41), 1000)[0] is one
    cache.forget("a")
    assert cache.nbytes == 0 and cache.find("a", _prompt(*[1] * 41), 1000) == (None, 0)


@pytest.mark.parametrize("seed", range(5))
def test_a_find_is_always_a_true_prefix(seed: int) -> None:
    """Whatever was kept and dropped: what is found shares its tokens with the prompt."""
    rng = np.random.default_rng(seed)
    cache = PrefixCache(100_000)
    history = [[int(token) for token in rng.integers(0, 2, rng.integers(1, 60))] for _ in range(5)]
    hits = 0
    for _ in range(300):
        tokens = [*history[rng.integers(len(history))], *(int(t) for t in rng.integers(0, 2, rng.integers(1, 40)))]
        adapter = "ab"[rng.integers(2)]
        source, known = cache.find(adapter, _prompt(*tokens), len(tokens) - 1)
        if source is not None:
            hits += 1
            assert source.adapter == adapter and source.cached[:known].tolist() == tokens[:known]
            assert source.read(known)[1][1, 1, :, 3].tolist() == tokens[:known]
        cache.keep(_kept(adapter, tokens), source if source is not None and known == len(source.cached) else None)
        history[rng.integers(len(history))] = tokens[:200]
        assert cache.nbytes <= 100_000
    assert hits > 30
