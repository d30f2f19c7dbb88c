"""Reading and checking a Hugging Face model directory, without torch, so that a bad one is refused at once."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from console.errors import UsageError

_HEADER_LIMIT = 100_000_000  # the safetensors format's own limit on its JSON header
_FLOATS = {"F16", "BF16", "F32", "F64"}

ATTENTION = ("q_proj", "k_proj", "v_proj", "o_proj")
MLP = ("gate_proj", "up_proj", "down_proj")


@dataclass(frozen=True)
class ModelConfig:
    """The shape of a Qwen3 decoder.

    Attributes:
        context_window: positions the model was made for; prompt plus sampled tokens stay within it.
        eos_ids: tokens that end a sample when the request names no stop.
    """

    vocab: int
    hidden: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    mlp: int
    context_window: int
    rms_eps: float
    rope_theta: float
    tied: bool
    eos_ids: frozenset[int]

    @property
    def kv_bytes_per_token(self) -> int:
        """Bytes of keys and values (float32) that one token occupies."""
        return 2 * self.layers * self.kv_heads * self.head_dim * 4

    def linear_shapes(self) -> dict[str, tuple[int, int]]:
        """(out, in) of every weight matrix that can carry a LoRA pair, by its name in the state dict."""
        queries, keys = self.heads * self.head_dim, self.kv_heads * self.head_dim
        shapes: dict[str, tuple[int, int]] = {}
        for layer in range(self.layers):
            at = f"model.layers.{layer}."
            shapes[at + "self_attn.q_proj"] = (queries, self.hidden)
            shapes[at + "self_attn.k_proj"] = (keys, self.hidden)
            shapes[at + "self_attn.v_proj"] = (keys, self.hidden)
            shapes[at + "self_attn.o_proj"] = (self.hidden, queries)
            shapes[at + "mlp.gate_proj"] = (self.mlp, self.hidden)
            shapes[at + "mlp.up_proj"] = (self.mlp, self.hidden)
            shapes[at + "mlp.down_proj"] = (self.hidden, self.mlp)
        shapes["lm_head"] = (self.vocab, self.hidden)
        return shapes

    def weight_shapes(self) -> dict[str, tuple[int, ...]]:
        """The shape of every tensor that the weight files must hold."""
        shapes: dict[str, tuple[int, ...]] = {
            "model.embed_tokens.weight": (self.vocab, self.hidden),
            "model.norm.weight": (self.hidden,),
        }
        for name, shape in self.linear_shapes().items():
            if name != "lm_head" or not self.tied:
                shapes[name + ".weight"] = shape
        for layer in range(self.layers):
            at = f"model.layers.{layer}."
            shapes[at + "input_layernorm.weight"] = shapes[at + "post_attention_layernorm.weight"] = (self.hidden,)
            shapes[at + "self_attn.q_norm.weight"] = shapes[at + "self_attn.k_norm.weight"] = (self.head_dim,)
        return shapes


def weight_files(directory: Path) -> list[Path]:
    """The safetensors files of a model directory, in order."""
    return sorted(directory.glob("*.safetensors"))


def load_config(directory: Path) -> ModelConfig:
    """Read `config.json` and the headers of the weight files.

    Raises:
        UsageError: the directory holds no Qwen3 model that this gateway can run.
    """
    if not directory.is_dir():
        raise UsageError(
            f"model directory {str(directory)!r} does not exist; pass --model DIR with a Qwen3 model in it"
        )
    path = directory / "config.json"
    try:
        raw = json.loads(path.read_text())
    except FileNotFoundError:
        raise UsageError(f"{str(directory)!r} has no config.json; pass a Hugging Face model directory") from None
    except (OSError, ValueError) as problem:
        raise UsageError(f"{str(path)!r} cannot be read: {problem}") from None
    if not isinstance(raw, dict):
        raise UsageError(f"{str(path)!r} is not a JSON object")
    config = _parse(raw, path)
    _check_weights(directory, config)
    return config


def _parse(raw: dict[str, Any], path: Path) -> ModelConfig:
    def refuse(why: str) -> UsageError:
        return UsageError(f"{str(path)!r}: {why}")

    def whole(key: str, default: int | None = None) -> int:
        value = raw.get(key)
        value = default if value is None else value
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise refuse(f"{key} must be a positive integer, it is {value!r}")
        return value

    if raw.get("model_type") != "qwen3":
        raise refuse(f"model_type is {raw.get('model_type')!r}; the embedded gateway runs qwen3 only")
    if raw.get("attention_bias"):
        raise refuse("attention_bias is not supported")
    if raw.get("use_sliding_window"):
        raise refuse("use_sliding_window is not supported")
    if raw.get("hidden_act", "silu") != "silu":
        raise refuse(f"hidden_act {raw.get('hidden_act')!r} is not supported, only 'silu'")
    rope = raw.get("rope_parameters") or raw.get("rope_scaling") or {}
    if rope.get("rope_type", rope.get("type", "default")) != "default":
        raise refuse("rope scaling is not supported")
    theta = raw.get("rope_theta") or rope.get("rope_theta") or 10000.0
    eps = raw.get("rms_norm_eps", 1e-6)
    if not isinstance(theta, int | float) or not isinstance(eps, int | float):
        raise refuse("rope_theta and rms_norm_eps must be numbers")
    eos = raw.get("eos_token_id")
    eos_ids = eos if isinstance(eos, list) else [] if eos is None else [eos]
    if not all(isinstance(token, int) for token in eos_ids):
        raise refuse(f"eos_token_id must be an integer or a list of integers, it is {eos!r}")
    hidden, heads = whole("hidden_size"), whole("num_attention_heads")
    config = ModelConfig(
        vocab=whole("vocab_size"),
        hidden=hidden,
        layers=whole("num_hidden_layers"),
        heads=heads,
        kv_heads=whole("num_key_value_heads", heads),
        head_dim=whole("head_dim", hidden // heads),
        mlp=whole("intermediate_size"),
        context_window=whole("max_position_embeddings"),
        rms_eps=float(eps),
        rope_theta=float(theta),
        tied=bool(raw.get("tie_word_embeddings", False)),
        eos_ids=frozenset(eos_ids),
    )
    if config.heads % config.kv_heads or config.head_dim % 2:
        raise refuse("num_attention_heads must be a multiple of num_key_value_heads, and head_dim even")
    return config


def _check_weights(directory: Path, config: ModelConfig) -> None:
    files = weight_files(directory)
    if not files:
        raise UsageError(f"{str(directory)!r} has no model.safetensors")
    found: dict[str, tuple[tuple[int, ...], str]] = {}
    for path in files:
        for name, entry in _header(path).items():
            if name != "__metadata__":
                found[name] = (tuple(entry["shape"]), entry["dtype"])
    for name, shape in config.weight_shapes().items():
        if name not in found:
            raise UsageError(f"{str(directory)!r}: the weights lack {name!r}, which config.json asks for")
        if found[name][0] != shape or found[name][1] not in _FLOATS:
            raise UsageError(
                f"{str(directory)!r}: {name!r} is {found[name][1]} {list(found[name][0])}, "
                f"config.json asks for floats of shape {list(shape)}"
            )


def _header(path: Path) -> dict[str, Any]:
    try:
        with path.open("rb") as file:
            size = int.from_bytes(file.read(8), "little")
            if not 0 < size <= min(_HEADER_LIMIT, path.stat().st_size - 8):
                raise ValueError("the header is cut off")
            header: dict[str, Any] = json.loads(file.read(size))
            body = path.stat().st_size - 8 - size
        entries = [entry for name, entry in header.items() if name != "__metadata__"]
        if max((entry["data_offsets"][1] for entry in entries), default=0) > body:
            raise ValueError("the tensors are cut off")
        return header
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as problem:
        raise UsageError(f"{str(path)!r} is not a readable safetensors file: {problem}") from None
