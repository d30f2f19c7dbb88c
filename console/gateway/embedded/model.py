"""A functional Qwen3 decoder in float32: one forward for training, one with a key-value cache for sampling.

Shapes: B rows, T positions, N = B * T, D hidden size, V vocabulary.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.nn.functional as F
from safetensors.torch import load_file
from torch import Tensor

from console.gateway.embedded.config import ModelConfig, load_config, weight_files
from console.gateway.embedded.kv import KVBatch
from console.gateway.embedded.lora import LoraTensors, merged, trainable_product

Product = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class _Layer:
    qkv: Product
    out: Product
    gate_up: Product
    down: Product
    input_norm: Tensor
    mlp_norm: Tensor
    qk_norm: Tensor  # (heads + kv_heads, head_dim): the query and key norms, one row a head


@dataclass(frozen=True)
class Weights:
    """The matrices of one adapter, ready to multiply. Made by `Model.frozen` or `Model.trainable`."""

    layers: list[_Layer]
    unembed: Product
    nbytes: int


class Model:
    """The base weights and the forward passes. Immutable; used from the compute thread."""

    def __init__(self, config: ModelConfig, tensors: dict[str, Tensor]) -> None:
        self.config = config
        self._tensors = tensors
        self._embedding = tensors["model.embed_tokens.weight"]
        if config.tied:
            tensors["lm_head.weight"] = self._embedding
        inverse = config.rope_theta ** (-torch.arange(0, config.head_dim, 2).double() / config.head_dim)
        angles = torch.arange(config.context_window).double()[:, None] * inverse
        self._cos = torch.cat([angles.cos(), angles.cos()], -1).float()
        self._sin = torch.cat([-angles.sin(), angles.sin()], -1).float()  # the sign of the rotated half is in here
        self._qk_norms = [
            torch.cat(
                [
                    self._layer_tensor(i, "self_attn.q_norm").expand(config.heads, -1),
                    self._layer_tensor(i, "self_attn.k_norm").expand(config.kv_heads, -1),
                ]
            )
            for i in range(config.layers)
        ]
        self.base = self.frozen(None, 0.0)

    @classmethod
    def load(cls, directory: Path) -> Model:
        """Read a model directory.

        Raises:
            UsageError: it holds no Qwen3 model that this gateway can run.
        """
        config = load_config(directory)
        tensors: dict[str, Tensor] = {}
        for path in weight_files(directory):
            tensors.update({name: tensor.float() for name, tensor in load_file(path).items()})
        return cls(config, {name: tensors[name] for name in config.weight_shapes()})

    def _layer_tensor(self, layer: int, name: str) -> Tensor:
        return self._tensors[f"model.layers.{layer}.{name}.weight"]

    def frozen(self, lora: LoraTensors | None, scale: float) -> Weights:
        """The weights with the adapter merged in, for sampling and scoring."""
        size = 0

        def product(weights: list[Tensor], names: list[str]) -> Product:
            nonlocal size
            parts = [merged(weight, name, lora, scale) for weight, name in zip(weights, names, strict=True)]
            full = parts[0] if len(parts) == 1 else torch.cat(parts)
            if full is not weights[0]:
                size += full.nbytes
            return lambda x: F.linear(x, full)

        weights = self._build(product)
        return Weights(weights.layers, weights.unembed, size)

    def trainable(self, lora: LoraTensors, scale: float) -> Weights:
        """The weights as functions of the adapter's tensors, which must require gradients."""
        return self._build(lambda weights, names: trainable_product(weights, names, lora, scale))

    def _build(self, product: Callable[[list[Tensor], list[str]], Product]) -> Weights:
        layers = []
        for i in range(self.config.layers):
            at = f"model.layers.{i}."

            def stacked(*leaves: str, at: str = at) -> Product:
                names = [at + leaf for leaf in leaves]
                return product([self._tensors[name + ".weight"] for name in names], names)

            layers.append(
                _Layer(
                    qkv=stacked("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
                    out=stacked("self_attn.o_proj"),
                    gate_up=stacked("mlp.gate_proj", "mlp.up_proj"),
                    down=stacked("mlp.down_proj"),
                    input_norm=self._layer_tensor(i, "input_layernorm"),
                    mlp_norm=self._layer_tensor(i, "post_attention_layernorm"),
                    qk_norm=self._qk_norms[i],
                )
            )
        return Weights(layers, product([self._tensors["lm_head.weight"]], ["lm_head"]), 0)

    def hidden(self, weights: Weights, ids: Tensor) -> Tensor:
        """Last hidden states (B*T, D) of right-padded `ids` (B, T); padding comes after what it could disturb."""
        rows, length = ids.shape
        cos, sin = self._cos[:length, None], self._sin[:length, None]

        def attend(_: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            q, k, v = q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2)
            mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
            return mixed.transpose(1, 2)

        return self._forward(weights, ids, cos, sin, attend).view(rows * length, -1)

    def extend(self, weights: Weights, ids: Tensor, starts: Tensor, kv: KVBatch, first: int) -> Tensor:
        """Append `ids` (B, S) to rows `first..first+B` of the cache, row b at position `starts[b]`.

        Returns the last hidden states (B, S, D). Right-padded positions write values that later tokens overwrite.
        """
        rows, length = ids.shape
        positions = starts[:, None] + torch.arange(length)
        reach = int(positions.max()) + 1
        at = positions.clamp(max=self.config.context_window - 1)
        cos, sin = self._cos[at][:, :, None], self._sin[at][:, :, None]
        hidden = torch.arange(reach) > positions[:, :, None]
        bias = torch.zeros(hidden.shape).masked_fill_(hidden, -math.inf)[:, None]  # (B, 1, S, reach)
        grouped = (rows, self.config.kv_heads, -1, self.config.head_dim)

        def attend(layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            keys, values = kv.append(layer, first, positions, k, v, reach)
            if length == 1:
                # The queries that share a key head look at the same positions: they pass as if they were successive.
                return F.scaled_dot_product_attention(q.reshape(grouped), keys, values, attn_mask=bias)
            mixed = F.scaled_dot_product_attention(q.transpose(1, 2), keys, values, attn_mask=bias, enable_gqa=True)
            return mixed.transpose(1, 2)

        return self._forward(weights, ids, cos, sin, attend)

    def _forward(
        self,
        weights: Weights,
        ids: Tensor,
        cos: Tensor,
        sin: Tensor,
        attend: Callable[[int, Tensor, Tensor, Tensor], Tensor],
    ) -> Tensor:
        config = self.config
        rows, length = ids.shape
        size, eps = (config.hidden,), config.rms_eps
        split = config.heads + config.kv_heads
        x = F.embedding(ids.reshape(-1), self._embedding)  # (N, D) throughout, so that products are plain 2-D ones
        for i, layer in enumerate(weights.layers):
            heads = layer.qkv(F.rms_norm(x, size, layer.input_norm, eps)).view(rows, length, -1, config.head_dim)
            qk = F.rms_norm(heads[:, :, :split], (config.head_dim,), None, eps) * layer.qk_norm
            qk = qk * cos + qk.roll(config.head_dim // 2, -1) * sin
            mixed = attend(i, qk[:, :, : config.heads], qk[:, :, config.heads :], heads[:, :, split:])
            x = x + layer.out(mixed.reshape(rows * length, -1))
            gate, up = layer.gate_up(F.rms_norm(x, size, layer.mlp_norm, eps)).chunk(2, -1)
            x = x + layer.down(F.silu(gate) * up)
        return F.rms_norm(x, size, self._tensors["model.norm.weight"], eps).view(rows, length, -1)
