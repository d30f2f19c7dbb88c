"""The request models of SDK 0.26.2 as data, and what a service that holds requests to them says of others.

A service validates with the models of the SDK it was built with, and those forbid fields that they do not know. Which
fields may and which must be there is checked here; the types of their values, elsewhere.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from console.gateway.embedded.wire import (
    CreateModel,
    CreateSamplingSession,
    LoadWeights,
    OptimStep,
    Sample,
    SaveWeights,
    SaveWeightsForSampler,
)


@dataclass(frozen=True)
class Fields:
    """The fields of one object, in the order in which they are checked.

    Attributes:
        parts: the rules of the fields that are objects themselves.
    """

    required: tuple[str, ...]
    optional: tuple[str, ...] = ()
    parts: Mapping[str, Fields] = field(default_factory=dict)


_LORA = Fields(("rank",), ("seed", "train_unembed", "train_mlp", "train_attn"))
_ADAM = Fields((), ("learning_rate", "beta1", "beta2", "eps", "weight_decay", "grad_clip_norm"))

SDK_0_26: Mapping[type, Fields] = {
    CreateModel: Fields(
        ("session_id", "model_seq_id", "base_model"), ("user_metadata", "lora_config", "type"), {"lora_config": _LORA}
    ),
    CreateSamplingSession: Fields(("session_id", "sampling_session_seq_id"), ("base_model", "model_path", "type")),
    Sample: Fields(
        ("prompt", "sampling_params"),
        (
            "num_samples",
            "base_model",
            "model_path",
            "sampling_session_id",
            "seq_id",
            "prompt_logprobs",
            "topk_prompt_logprobs",
            "record_stability_info",
            "type",
        ),
        {"prompt": Fields(("chunks",))},
    ),
    OptimStep: Fields(("adam_params", "model_id"), ("seq_id", "type"), {"adam_params": _ADAM}),
    SaveWeights: Fields(("model_id",), ("path", "seq_id", "ttl_seconds", "overwrite", "type")),
    SaveWeightsForSampler: Fields(("model_id",), ("path", "sampling_session_seq_id", "seq_id", "ttl_seconds", "type")),
    LoadWeights: Fields(
        ("path", "optimizer"),
        (
            "model_id",
            "seq_id",
            "session_id",
            "model_seq_id",
            "base_model",
            "user_metadata",
            "weights_access_token",
            "type",
        ),
    ),
}


def complaint(kind: type, body: Any) -> str | None:
    """The first thing that SDK 0.26.2 finds wrong with a body of this kind, in its words; None when it fits."""
    rules = SDK_0_26.get(kind)
    return None if rules is None else _complaint(rules, body, "")


def _complaint(rules: Fields, body: Any, at: str) -> str | None:
    if not isinstance(body, dict):
        return f"{at.rstrip('.') or 'request'}: Input should be a valid dictionary"
    for name in rules.required:
        if name not in body:
            return f"{at}{name}: Field required"
    for name, part in rules.parts.items():
        if body.get(name) is not None and (found := _complaint(part, body[name], f"{at}{name}.")) is not None:
            return found
    known = {*rules.required, *rules.optional}
    extra = next((name for name in body if name not in known), None)
    return None if extra is None else f"{at}{extra}: Extra inputs are not permitted"
