"""The loss functions of the Tinker API, per token, summed.

Formulas: the loss pages of the Tinker documentation. `logp` is the policy's log-prob of the target token, `logprobs`
the sampler's, `ratio = exp(logp - logprobs)`.

| loss | per token |
| --- | --- |
| `cross_entropy` | `-logp * weights` |
| `importance_sampling` | `-ratio * advantages` |
| `ppo` | `-min(ratio * advantages, clip(ratio, low, high) * advantages)` |
| `cispo` | `-stop(clip(ratio, low, high)) * logp * advantages` |
| `dro` | `-(logp * advantages - beta / 2 * (logp - logprobs)^2)` |
| `gspo` | ppo with every ratio replaced by the sequence's geometric mean over `sequence_ratio_mask` |
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

Inputs = Mapping[str, Tensor]
Options = Mapping[str, float]


@dataclass(frozen=True)
class Loss:
    """One loss function.

    Attributes:
        inputs: the float tensors that each datum must carry besides `target_tokens`.
        options: the accepted keys of `loss_fn_config` with their defaults; None means that the key is required.
        terms: per-token losses (B, T) of `logp` (B, T), the inputs and the options.
    """

    inputs: tuple[str, ...]
    options: Mapping[str, float | None]
    terms: Callable[[Tensor, Inputs, Options], Tensor]


_CLIP = {"clip_low_threshold": 0.8, "clip_high_threshold": 1.2}
_RL = ("logprobs", "advantages")


def _cross_entropy(logp: Tensor, x: Inputs, options: Options) -> Tensor:
    return -logp * x["weights"]


def _importance_sampling(logp: Tensor, x: Inputs, options: Options) -> Tensor:
    return -torch.exp(logp - x["logprobs"]) * x["advantages"]


def _clipped(ratio: Tensor, options: Options) -> Tensor:
    return ratio.clamp(options["clip_low_threshold"], options["clip_high_threshold"])


def _pessimistic(ratio: Tensor, x: Inputs, options: Options) -> Tensor:
    return -torch.minimum(ratio * x["advantages"], _clipped(ratio, options) * x["advantages"])


def _ppo(logp: Tensor, x: Inputs, options: Options) -> Tensor:
    return _pessimistic(torch.exp(logp - x["logprobs"]), x, options)


def _cispo(logp: Tensor, x: Inputs, options: Options) -> Tensor:
    return -_clipped(torch.exp(logp - x["logprobs"]), options).detach() * logp * x["advantages"]


def _dro(logp: Tensor, x: Inputs, options: Options) -> Tensor:
    return -(logp * x["advantages"] - 0.5 * options["beta"] * (logp - x["logprobs"]) ** 2)


def _gspo(logp: Tensor, x: Inputs, options: Options) -> Tensor:
    return _pessimistic(torch.exp(_sequence_log_ratio(logp, x) + logp - logp.detach()), x, options)


def _sequence_log_ratio(logp: Tensor, x: Inputs) -> Tensor:
    counted = (x["sequence_ratio_mask"] != 0).float()
    total = ((logp.detach() - x["logprobs"]) * counted).sum(-1, keepdim=True)
    return total / counted.sum(-1, keepdim=True).clamp(min=1.0)


LOSSES: Mapping[str, Loss] = {
    "cross_entropy": Loss(("weights",), {}, _cross_entropy),
    "importance_sampling": Loss(_RL, {}, _importance_sampling),
    "ppo": Loss(_RL, _CLIP, _ppo),
    "cispo": Loss(_RL, _CLIP, _cispo),
    "dro": Loss(_RL, {"beta": 0.05}, _dro),
    "gspo": Loss((*_RL, "sequence_ratio_mask"), dict.fromkeys(_CLIP), _gspo),
}


class Metrics:
    """Sums over the tokens of one `forward_backward`, as the `name:reduction` metrics that the SDK merges.

    A token counts when its advantage (or, for cross_entropy, its weight) is not zero.
    """

    def __init__(self, name: str, options: Options) -> None:
        self._name, self._options = name, options
        self._loss = self._tokens = self._clipped = self._kl = 0.0
        self._highest = 0.0

    def add(self, logp: Tensor, x: Inputs, loss: Tensor, mask: Tensor) -> None:
        """Count one micro-batch; all tensors are detached, (B, T), and `mask` is true for real tokens."""
        self._loss += loss.double().item()
        counted = mask & (x["weights" if self._name == "cross_entropy" else "advantages"] != 0)
        self._tokens += int(counted.sum())
        if self._name == "cross_entropy":
            return
        log_ratio = logp - x["logprobs"]
        self._kl -= float(log_ratio[counted].double().sum())
        ratio = torch.exp(_sequence_log_ratio(logp, x).expand_as(logp) if self._name == "gspo" else log_ratio)
        self._highest = max(self._highest, float(ratio[counted].max()) if counted.any() else 0.0)
        if "clip_low_threshold" in self._options:
            # Clipped means that the clip takes effect: for ppo it only does on the side that the minimum picks.
            above, below = ratio > self._options["clip_high_threshold"], ratio < self._options["clip_low_threshold"]
            if self._name != "cispo":
                above, below = above & (x["advantages"] > 0), below & (x["advantages"] < 0)
            self._clipped += int((counted & (above | below)).sum())

    def result(self) -> dict[str, float]:
        """The metrics; `approx_kl` is the mean of `logprobs - logp`, the estimator k1 of KL(sampler || policy)."""
        out = {"loss:sum": self._loss, "tokens:sum": self._tokens}
        if self._name != "cross_entropy" and self._tokens:
            out["approx_kl:mean"] = self._kl / self._tokens
            out["ratio:max"] = self._highest
            if "clip_low_threshold" in self._options:
                out["clipped_tokens:sum"] = self._clipped
                out["clip_fraction:mean"] = self._clipped / self._tokens
        return {name: value for name, value in out.items() if math.isfinite(value)}
