"""What a sampling request asks for, what it gets, and the choice of the next tokens."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from console.gateway.embedded.kv import Tokens
from console.gateway.embedded.lora import LoraTensors
from console.gateway.embedded.problems import OperationProblem

TopK = list[tuple[list[int], list[float]]]
"""One (token ids, log-probs) pair a position."""


@dataclass(frozen=True)
class Adapter:
    """Weights to sample from, never changed once made.

    Attributes:
        key: equal keys mean equal weights of one tenant; the prefix cache and the merged weights go by it.
    """

    key: str
    lora: LoraTensors | None
    scale: float


@dataclass(frozen=True)
class SampleSpec:
    """A checked sampling request.

    Attributes:
        stop_ids: sampling ends with one of these tokens, which is part of the sample.
        stop_strings: sampling ends with the token that completes one of these.
        scored: how many of the last prompt tokens get log-probs.
    """

    prompt: Tokens
    max_tokens: int
    num_samples: int = 1
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = -1
    seed: int | None = None
    stop_ids: frozenset[int] = frozenset()
    stop_strings: tuple[str, ...] = ()
    scored: int = 0
    topk_prompt: int = 0
    topk_sample: int = 0

    @property
    def plain(self) -> bool:
        """Whether tokens are drawn from the model's own distribution."""
        return self.temperature == 1.0 and self.top_p >= 1.0 and self.top_k <= 0


@dataclass
class SampledSequence:
    """One sample: `tokens` and `logprobs` (at temperature 1, unfiltered) of equal length."""

    tokens: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    topk: TopK | None = None
    stopped: bool = False


@dataclass
class SampleResult:
    """What a request gets.

    Attributes:
        prompt_logprobs: one per prompt token, NaN where none was asked for; None without scoring.
        reused: prompt tokens whose keys and values were taken from an earlier sequence.
    """

    sequences: list[SampledSequence]
    prompt_logprobs: list[float] | None
    prompt_topk: TopK | None
    reused: int


class SampleJob:
    """A request on its way through the engine."""

    def __init__(
        self, adapter: Adapter, spec: SampleSpec, done: Callable[[SampleResult | OperationProblem], None]
    ) -> None:
        self.adapter = adapter
        self.spec = spec
        self.done = done
        self.cancelled = False
        self.result = SampleResult([SampledSequence() for _ in range(spec.num_samples)], None, None, 0)
        self.open_rows = spec.num_samples


class TokenChooser:
    """Draws the next token of every row by inverting the cumulative distribution at one uniform number a row."""

    def __init__(self) -> None:
        self._uniform = np.random.default_rng()

    def choose(
        self, logits: Tensor, specs: Sequence[SampleSpec], seeded: Sequence[random.Random | None]
    ) -> tuple[list[int], list[float], Tensor]:
        """Next tokens and their log-probs from `logits` (R, V), and all log-probs (R, V).

        Log-probs are the model's own: neither temperature, top-k nor top-p changes them. A seeded row draws from its
        own generator, so that what it gets does not depend on the company it keeps.
        """
        logprobs = logits.log_softmax(-1)
        weights = (logprobs if all(spec.plain for spec in specs) else _shaped(logits, specs)).exp().double()
        cumulative = weights.cumsum(-1)
        draws = self._uniform.random(len(specs))
        for row, generator in enumerate(seeded):
            if generator is not None:
                draws[row] = generator.random()
        # Kept below one, so that the search never passes the last token that has any weight.
        target = torch.from_numpy(np.minimum(draws, 1.0 - 1e-9))[:, None] * cumulative[:, -1:]
        tokens = torch.searchsorted(cumulative, target, right=True)
        return tokens[:, 0].tolist(), logprobs.gather(1, tokens)[:, 0].tolist(), logprobs


def _shaped(logits: Tensor, specs: Sequence[SampleSpec]) -> Tensor:
    """Log-probs (R, V) after temperature, then top-k, then top-p."""
    temperature = torch.tensor([spec.temperature for spec in specs])[:, None]
    scaled = logits / temperature.clamp(min=1e-4)
    for row, spec in enumerate(specs):
        # Greedy keeps the first maximum, as argmax does. Top-k keeps exactly k, also among equals.
        keep = 1 if spec.temperature == 0.0 else spec.top_k
        if 0 < keep < logits.shape[1]:
            kept = scaled[row].argmax()[None] if keep == 1 else scaled[row].topk(keep).indices
            scaled[row] = torch.full_like(scaled[row], -math.inf).index_copy_(0, kept, scaled[row][kept])
    if any(spec.top_p < 1.0 for spec in specs):
        top_p = torch.tensor([spec.top_p for spec in specs])[:, None]
        ordered, order = scaled.softmax(-1).sort(-1, descending=True)
        beyond = (ordered.cumsum(-1) - ordered >= top_p) & (top_p < 1.0)
        beyond[:, 0] = False
        scaled = scaled.masked_fill(torch.zeros_like(beyond).scatter_(1, order, beyond), -math.inf)
    return scaled.log_softmax(-1)
