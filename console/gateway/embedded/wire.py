"""The JSON request bodies of the Tinker API, checked while they are decoded.

Fields that this gateway does not know are ignored, so that a newer client still gets through.
"""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct
from starlette.requests import Request

from console.gateway.embedded.problems import InvalidBody, RequestProblem

Id = Annotated[str, Meta(min_length=1, max_length=256)]
Sequence = Annotated[int, Meta(ge=0, le=2**62)]
Positive = Annotated[int, Meta(ge=1, le=2**31)]
Count = Annotated[int, Meta(ge=0, le=1024)]
Fraction = Annotated[float, Meta(ge=0.0, lt=1.0)]
NotNegative = Annotated[float, Meta(ge=0.0)]


class CreateSession(Struct, frozen=True):
    """POST create_session."""

    tags: list[str] = []
    user_metadata: dict[str, Any] | None = None
    sdk_version: str = ""
    display_name: str | None = None


class SessionRequest(Struct, frozen=True):
    """POST session_heartbeat."""

    session_id: Id


class FinishReason(Struct, frozen=True):
    """How a client says that its session went."""

    type: str = "success"


class FinishSession(Struct, frozen=True):
    """POST sessions/{id}/finish."""

    reason: FinishReason = FinishReason()
    detail: str | None = None


class LoraConfig(Struct, frozen=True):
    """The adapter of a new model."""

    rank: Annotated[int, Meta(ge=1, le=1024)] = 32
    seed: Annotated[int, Meta(ge=0, le=2**63 - 1)] | None = None
    train_unembed: bool = True
    train_mlp: bool = True
    train_attn: bool = True


class OptimizerConfig(Struct, frozen=True):
    """The optimiser of a new model."""

    type: str = "adamw"


class CreateModel(Struct, frozen=True):
    """POST create_model."""

    session_id: Id
    model_seq_id: Sequence
    base_model: str
    user_metadata: dict[str, Any] | None = None
    lora_config: LoraConfig | None = None
    optimizer_config: OptimizerConfig = OptimizerConfig()


class ModelRequest(Struct, frozen=True):
    """POST get_info, unload_model."""

    model_id: Id


class AdamParamsBody(Struct, frozen=True):
    """The hyperparameters of one AdamW step."""

    learning_rate: NotNegative = 1e-4
    beta1: Fraction = 0.9
    beta2: Fraction = 0.95
    eps: NotNegative = 1e-12
    weight_decay: NotNegative = 0.0
    grad_clip_norm: float = 0.0


class OptimStep(Struct, frozen=True):
    """POST optim_step."""

    model_id: Id
    seq_id: Sequence
    adam_params: AdamParamsBody | None = None
    optimizer_params: OptimizerConfig | None = None


class SaveWeights(Struct, frozen=True):
    """POST save_weights."""

    model_id: Id
    seq_id: Sequence
    path: str | None = None
    ttl_seconds: Positive | None = None
    overwrite: bool = False
    user_metadata: dict[str, str] | None = None


class SaveWeightsForSampler(Struct, frozen=True):
    """POST save_weights_for_sampler."""

    model_id: Id
    seq_id: Sequence
    path: str | None = None
    sampling_session_seq_id: Sequence | None = None
    kind: str = "snapshot"
    ttl_seconds: Positive | None = None
    overwrite: bool = False
    user_metadata: dict[str, str] | None = None


class LoadWeights(Struct, frozen=True):
    """POST load_weights: into a model (`model_id`, `seq_id`), or into a new one (`session_id`, `model_seq_id`)."""

    path: str
    optimizer: bool = False
    model_id: Id | None = None
    seq_id: Sequence | None = None
    session_id: Id | None = None
    model_seq_id: Sequence | None = None
    base_model: str | None = None
    user_metadata: dict[str, Any] | None = None
    optimizer_config: OptimizerConfig | None = None
    weights_access_token: str | None = None


class WeightsInfo(Struct, frozen=True):
    """POST weights_info."""

    tinker_path: str


class CreateSamplingSession(Struct, frozen=True):
    """POST create_sampling_session."""

    session_id: Id
    sampling_session_seq_id: Sequence
    base_model: str | None = None
    model_path: str | None = None


class PromptChunk(Struct, frozen=True):
    """A piece of a prompt; only text is supported."""

    type: str = "encoded_text"
    tokens: list[int] = []


class Prompt(Struct, frozen=True):
    """A prompt."""

    chunks: list[PromptChunk]


class SamplingParams(Struct, frozen=True):
    """How to sample."""

    max_tokens: Positive | None = None
    seed: int | None = None
    stop: str | list[str | int] | None = None
    temperature: Annotated[float, Meta(ge=0.0, le=100.0)] = 1.0
    top_k: int = -1
    top_p: Annotated[float, Meta(gt=0.0, le=1.0)] = 1.0


class Sample(Struct, frozen=True):
    """POST asample."""

    prompt: Prompt
    sampling_session_id: Id
    seq_id: Sequence
    num_samples: Annotated[int, Meta(ge=1, le=128)] = 1
    sampling_params: SamplingParams = SamplingParams()
    prompt_logprobs: bool | None = None
    prompt_logprobs_last_n: Positive | None = None
    topk_prompt_logprobs: Count = 0
    topk_sample_logprobs: Count = 0
    prompt_alt_tokens_k: Count = 0
    target_prompt_logprobs: Any = None


class RetrieveFuture(Struct, frozen=True):
    """POST retrieve_future, cancel_future."""

    request_id: Id


class SetTtl(Struct, frozen=True):
    """PUT training_runs/{id}/checkpoints/{id}/ttl."""

    ttl_seconds: Positive | None = None


async def read_body(request: Request, limit: int) -> bytes:
    """The request's body.

    Raises:
        RequestProblem: 413 when it is longer than `limit` bytes.
    """
    too_long = RequestProblem(413, f"the body is longer than {limit} bytes")
    if int(request.headers.get("content-length") or 0) > limit:
        raise too_long
    parts: list[bytes] = []
    size = 0
    async for part in request.stream():
        size += len(part)
        if size > limit:
            raise too_long
        parts.append(part)
    return b"".join(parts)


async def read_json[T](request: Request, kind: type[T], limit: int = 2**20) -> T:
    """The request's body as a `kind`.

    Raises:
        RequestProblem: 400 naming the field that is wrong, 413.
    """
    return decode(await read_body(request, limit), kind)


def decode[T](body: bytes, kind: type[T]) -> T:
    """A JSON body as a `kind`.

    Raises:
        InvalidBody: it is none; names the field that is wrong.
    """
    try:
        return msgspec.json.decode(body or b"{}", type=kind)
    except msgspec.ValidationError as problem:
        raise InvalidBody(f"invalid request: {problem}") from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as problem:
        raise InvalidBody(f"the body is not JSON: {problem}") from None
