"""LoRA adapters as plain dicts of tensors, merged into the base weights wherever they are used.

An adapter maps `<linear>.lora_A` (rank, in) and `<linear>.lora_B` (out, rank). The weight in force is
`W + scale * B @ A`: sampling and training both multiply by that one matrix, so their log-probs agree, and the
backward pass still costs only two small products per pair instead of a full weight gradient.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from console.gateway.embedded.config import ATTENTION, MLP, ModelConfig

ALPHA = 32.0
"""LoRA alpha, fixed as on Tinker: the scale is `ALPHA / rank`."""

LoraTensors = dict[str, Tensor]


@dataclass(frozen=True)
class LoraLayout:
    """Which matrices carry a pair, and of which rank."""

    rank: int
    attn: bool = True
    mlp: bool = True
    unembed: bool = True

    @property
    def scale(self) -> float:
        """The factor before `B @ A`."""
        return ALPHA / self.rank

    def targets(self, config: ModelConfig) -> Iterator[tuple[str, tuple[int, int]]]:
        """Name and (out, in) of every matrix that carries a pair."""
        for name, shape in config.linear_shapes().items():
            leaf = name.rsplit(".", 1)[-1]
            if (leaf in ATTENTION and self.attn) or (leaf in MLP and self.mlp) or (leaf == "lm_head" and self.unembed):
                yield name, shape

    def modules(self) -> list[str]:
        """The leaf names of the matrices, as PEFT's `target_modules` wants them."""
        return [*(ATTENTION if self.attn else ()), *(MLP if self.mlp else ()), *(("lm_head",) if self.unembed else ())]


def new_lora(config: ModelConfig, layout: LoraLayout, seed: int | None) -> LoraTensors:
    """A fresh adapter: A uniform in ±1/sqrt(in), B zero, so that it changes nothing yet."""
    generator = torch.Generator()
    generator.manual_seed(int.from_bytes(os.urandom(6), "little") if seed is None else seed)
    tensors: LoraTensors = {}
    for name, (out_size, in_size) in layout.targets(config):
        uniform = torch.rand(layout.rank, in_size, generator=generator)
        tensors[name + ".lora_A"] = (uniform * 2 - 1) / math.sqrt(in_size)
        tensors[name + ".lora_B"] = torch.zeros(out_size, layout.rank)
    return tensors


def merged(weight: Tensor, name: str, lora: LoraTensors | None, scale: float) -> Tensor:
    """`weight` (out, in) with the adapter's pair of `name` added, or `weight` itself without one."""
    if lora is None or name + ".lora_A" not in lora:
        return weight
    return torch.addmm(weight, lora[name + ".lora_B"].detach(), lora[name + ".lora_A"].detach(), alpha=scale)


class _MergedProduct(torch.autograd.Function):
    """`x @ W.T` with W the merged weight; gradients go to x and to the A and B of each part of W's rows."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor, scale: float, parts: Sequence[tuple[int, int]], *ab: Tensor
    ) -> Tensor:
        ctx.save_for_backward(x, weight, *ab)
        ctx.scale, ctx.parts = scale, parts
        return x @ weight.t()

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        (grad,) = grads
        x, weight, *ab = ctx.saved_tensors
        out: list[Tensor | None] = [grad @ weight if ctx.needs_input_grad[0] else None, None, None, None]
        for (first, last), a, b in zip(ctx.parts, ab[::2], ab[1::2], strict=True):
            part = grad[:, first:last]
            out.append(((part @ b).t() @ x).mul_(ctx.scale))
            out.append((part.t() @ (x @ a.t())).mul_(ctx.scale))
        return tuple(out)


def trainable_product(
    weights: Sequence[Tensor], names: Sequence[str], lora: LoraTensors, scale: float
) -> Callable[[Tensor], Tensor]:
    """A differentiable `x (N, in) -> (N, out)` over the stacked rows of `weights`, merged with the adapter now."""
    full = torch.cat([merged(weight, name, lora, scale) for weight, name in zip(weights, names, strict=True)])
    parts: list[tuple[int, int]] = []
    ab: list[Tensor] = []
    first = 0
    for weight, name in zip(weights, names, strict=True):
        if name + ".lora_A" in lora:
            parts.append((first, first + weight.shape[0]))
            ab += [lora[name + ".lora_A"], lora[name + ".lora_B"]]
        first += weight.shape[0]
    return lambda x: _MergedProduct.apply(x, full, scale, parts, *ab)
