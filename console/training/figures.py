"""The figures of a training batch that the cookbook does not keep, from the batch and the trainer's log-probs.

Notation: over the action tokens t of a batch (mask 1), q is the sampler's log-prob, p the trainer's before the update,
A the advantage, w = exp(p - q).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np

CLIP_LOW, CLIP_HIGH = 0.8, 1.2
"""PPO's clip thresholds when `loss_fn_config` names none (the Tinker service's defaults)."""


class BatchFigures(msgspec.Struct, kw_only=True, frozen=True):
    """Of one forward-backward pass: `ppo_loss` summed over tokens, the rest means over them; None when not known."""

    tokens: int
    ppo_loss: float | None = None
    clip_fraction: float | None = None
    kl_v1: float | None = None
    kl_v2: float | None = None
    kl_k3: float | None = None
    entropy: float | None = None


def batch_figures(
    data_D: Sequence[Any],
    training_logprobs_D: Sequence[Any],
    loss_fn: str,
    loss_fn_config: dict[str, Any] | None,
    reported_loss: float | None,
) -> BatchFigures:
    """Figures of a batch.

    Args:
        data_D: the cookbook's datums with `logprobs`, `advantages` and `mask` per token.
        training_logprobs_D: the trainer's log-probs, one tensor a datum.
        loss_fn: ppo, importance_sampling, ...; loss_fn_config: its thresholds.
        reported_loss: the gateway's `loss:sum`, None when it reports none; then PPO's is computed:
            -sum min(w A, clip(w) A), Schulman et al. 2017, equation 7.
    """
    if len(data_D) != len(training_logprobs_D) or not data_D:
        return BatchFigures(tokens=0, ppo_loss=reported_loss if loss_fn == "ppo" else None)
    rows = [_action_tokens(d, p) for d, p in zip(data_D, training_logprobs_D)]
    q, p, a = (np.concatenate(column).astype(np.float64) for column in zip(*rows))
    if q.size == 0:
        return BatchFigures(tokens=0, ppo_loss=reported_loss if loss_fn == "ppo" else None)
    config = loss_fn_config or {}
    low = float(config.get("clip_low_threshold", CLIP_LOW))
    high = float(config.get("clip_high_threshold", CLIP_HIGH))
    delta = p - q
    with np.errstate(over="ignore", invalid="ignore"):
        w = np.exp(delta)
        clipped = ((a > 0) & (w > high)) | ((a < 0) & (w < low))
        loss = reported_loss
        if loss is None:
            loss = float(-np.minimum(w * a, np.clip(w, low, high) * a).sum())
        k3 = float((w - 1.0 - delta).mean())
    clips = loss_fn in ("ppo", "cispo")
    return BatchFigures(
        tokens=int(q.size),
        ppo_loss=loss if loss_fn == "ppo" else None,
        clip_fraction=float(clipped.mean()) if clips else None,
        kl_v1=float(-delta.mean()),
        kl_v2=float(0.5 * np.square(delta).mean()),
        kl_k3=k3,
        entropy=float(-q.mean()),
    )


def combine(parts: Sequence[BatchFigures]) -> BatchFigures:
    """Several passes of one step as one: losses add up, means are weighted by tokens."""
    tokens = sum(part.tokens for part in parts)
    losses = [part.ppo_loss for part in parts if part.ppo_loss is not None]

    def mean(name: str) -> float | None:
        known = [(getattr(part, name), part.tokens) for part in parts if getattr(part, name) is not None]
        weight = sum(n for _, n in known)
        return math.fsum(value * n for value, n in known) / weight if weight else None

    return BatchFigures(
        tokens=tokens,
        ppo_loss=math.fsum(losses) if losses else None,
        clip_fraction=mean("clip_fraction"),
        kl_v1=mean("kl_v1"),
        kl_v2=mean("kl_v2"),
        kl_k3=mean("kl_k3"),
        entropy=mean("entropy"),
    )


def finite(value: float | None, name: str, nonfinite: list[str]) -> float | None:
    """The value, or None when it is not finite; then its name goes on the list."""
    if value is not None and not math.isfinite(value):
        nonfinite.append(name)
        return None
    return value


def _action_tokens(datum: Any, training_logprobs: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    inputs = datum.loss_fn_inputs
    q = np.asarray(inputs["logprobs"].to_numpy())
    a = np.asarray(inputs["advantages"].to_numpy())
    p = np.asarray(training_logprobs)
    mask = inputs.get("mask")
    chosen = np.asarray(mask.to_numpy()) > 0 if mask is not None else np.ones(q.shape, dtype=bool)
    n = min(len(q), len(p), len(a), len(chosen))
    return q[:n][chosen[:n]], p[:n][chosen[:n]], a[:n][chosen[:n]]
