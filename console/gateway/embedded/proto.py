"""The protobuf messages of the Tinker API: training requests in, samples and training results out."""

from __future__ import annotations

import importlib.util
import math
import sys
from types import ModuleType
from typing import Any

import numpy as np
import numpy.typing as npt
import zstandard

from console.gateway.embedded.config import ModelConfig
from console.gateway.embedded.losses import LOSSES, Loss
from console.gateway.embedded.problems import RequestProblem
from console.gateway.embedded.sampling import SampleResult, TopK
from console.gateway.embedded.trainer import Datum, TrainResult

MEDIA_TYPE = "application/x-protobuf"
MAX_DATA = 1024
_EMPTY_LOGPROB = -99999.0  # what the protocol puts in an empty top-k cell


def _load_messages() -> ModuleType:
    """The generated message module of the `tinker` package, without importing the package, which takes seconds."""
    name = "tinker.proto.tinker_public_pb2"
    if name in sys.modules:
        return sys.modules[name]
    package = importlib.util.find_spec("tinker")
    if package is None or not package.submodule_search_locations:
        raise ImportError("the package tinker is not installed; install quarterdeck[engine]")
    path = f"{package.submodule_search_locations[0]}/proto/tinker_public_pb2.py"
    spec = importlib.util.spec_from_file_location("_tinker_messages", path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} cannot be loaded")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


messages: Any = _load_messages()

_NUMPY: dict[int, np.dtype[Any]] = {
    messages.DTYPE_FLOAT32: np.dtype(np.float32),
    messages.DTYPE_INT64: np.dtype(np.int64),
    messages.DTYPE_INT32: np.dtype(np.int32),
}


class TrainRequest:
    """A decoded `forward_backward` request: its address first, since the data are only checked for a known model."""

    def __init__(self, body: bytes) -> None:
        """Parse the message.

        Raises:
            RequestProblem: 400 when it is no such message.
        """
        try:
            self._message = messages.ForwardBackwardRequest.FromString(body)
        except Exception as problem:  # DecodeError's class differs between protobuf implementations
            raise RequestProblem(400, f"the body is not a ForwardBackwardRequest: {problem}") from None
        self.model_id: str = self._message.model_id
        self.seq_id: int = self._message.seq_id
        self.loss_name: str = self._message.loss_fn
        self.forward_only: bool = self._message.forward_only

    def decode(self, config: ModelConfig) -> tuple[list[Datum], dict[str, float]]:
        """The data and the loss options, checked against the model and the loss.

        Raises:
            RequestProblem: 400 naming the field that is wrong.
        """
        loss = LOSSES.get(self.loss_name)
        if loss is None:
            raise RequestProblem(400, f"loss_fn {self.loss_name!r} is not supported; use one of {', '.join(LOSSES)}")
        options = self._options(loss)
        count = len(self._message.data)
        if not 1 <= count <= MAX_DATA:
            raise RequestProblem(400, f"data has {count} entries; 1 to {MAX_DATA} are allowed")
        return [_datum(f"data[{i}]", datum, loss, config) for i, datum in enumerate(self._message.data)], options

    def _options(self, loss: Loss) -> dict[str, float]:
        given: dict[str, Any] = dict(self._message.loss_fn_config)
        for key, value in self._message.loss_fn_config_v2.items():
            given[key] = value.number if value.WhichOneof("value") == "number" else value.text
        options: dict[str, float] = {}
        for key, value in given.items():
            if key not in loss.options:
                known = ", ".join(loss.options) or "none"
                raise RequestProblem(
                    400, f"loss_fn_config.{key} is not an option of {self.loss_name}; options: {known}"
                )
            if not isinstance(value, float) or not math.isfinite(value) or value < 0:
                raise RequestProblem(400, f"loss_fn_config.{key} must be a number of 0 or more, it is {value!r}")
            options[key] = value
        for key, default in loss.options.items():
            if key not in options:
                if default is None:
                    raise RequestProblem(400, f"loss_fn_config.{key} is required for {self.loss_name}")
                options[key] = default
        return options


def unzstd(body: bytes, limit: int) -> bytes:
    """Decompress a zstd body.

    Raises:
        RequestProblem: 400 when it is not zstd, 413 when it grows beyond `limit` bytes.
    """
    try:
        with zstandard.ZstdDecompressor().stream_reader(body) as reader:
            out = reader.read(limit + 1)
    except zstandard.ZstdError as problem:
        raise RequestProblem(400, f"the body is not zstd: {problem}") from None
    if len(out) > limit:
        raise RequestProblem(413, f"the decompressed body is longer than {limit} bytes")
    return out


def _datum(at: str, datum: Any, loss: Loss, config: ModelConfig) -> Datum:
    parts = []
    for index, chunk in enumerate(datum.model_input):
        if chunk.WhichOneof("chunk") != "encoded_text" or len(chunk.encoded_text.tokens) % 4:
            raise RequestProblem(400, f"{at}.model_input[{index}] must be encoded text of int32 tokens")
        parts.append(np.frombuffer(chunk.encoded_text.tokens, np.int32))
    ids = np.concatenate(parts).astype(np.int64) if parts else np.empty(0, np.int64)
    # The last target is one token beyond the input.
    if not 1 <= len(ids) < config.context_window:
        raise RequestProblem(
            400, f"{at}.model_input has {len(ids)} tokens; 1 to {config.context_window - 1} fit the context window"
        )
    _check_ids(f"{at}.model_input", ids, config)
    given = datum.loss_fn_inputs
    targets = _tensor(f"{at}.loss_fn_inputs.target_tokens", given, "target_tokens", len(ids)).astype(np.int64)
    _check_ids(f"{at}.loss_fn_inputs.target_tokens", targets, config)
    inputs: dict[str, npt.NDArray[np.float32]] = {}
    for name in loss.inputs:
        field = f"{at}.loss_fn_inputs.{name}"
        inputs[name] = _tensor(field, given, name, len(ids)).astype(np.float32)
        if not np.isfinite(inputs[name]).all():
            raise RequestProblem(400, f"{field} has a value that is not finite")
    return Datum(ids, targets, inputs)


def _tensor(field: str, given: Any, name: str, length: int) -> npt.NDArray[Any]:
    if name not in given:
        raise RequestProblem(400, f"{field} is missing")
    tensor = given[name]
    dtype = _NUMPY.get(tensor.dtype)
    if tensor.WhichOneof("encoding") != "dense" or dtype is None or len(tensor.shape) > 1:
        raise RequestProblem(400, f"{field} must be a dense, one-dimensional tensor of float32, int32 or int64")
    if len(tensor.dense) != length * dtype.itemsize:
        got = len(tensor.dense) // dtype.itemsize
        raise RequestProblem(400, f"{field} has {got} values for {length} tokens of model_input")
    return np.frombuffer(tensor.dense, dtype)


def _check_ids(field: str, ids: npt.NDArray[np.int64], config: ModelConfig) -> None:
    if int(ids.min()) < 0 or int(ids.max()) >= config.vocab:
        raise RequestProblem(400, f"{field} has a token outside the vocabulary of {config.vocab}")


def encode_train_result(result: TrainResult) -> bytes:
    """A `ForwardBackwardOutput` message."""
    message = messages.ForwardBackwardOutput(loss_fn_output_type="ArrayRecord")
    for name, value in result.metrics.items():
        message.metrics[name] = value
    record = message.loss_fn_outputs.add(num_datums=len(result.logprobs))
    offsets = np.cumsum([0, *(array.nbytes for array in result.logprobs)]).astype(np.int64)
    tensor = messages.BatchedTensor(
        data=b"".join(array.tobytes() for array in result.logprobs),
        offsets=offsets.tobytes(),
        dtype=messages.DTYPE_FLOAT32,
    )
    record.fields["logprobs"].CopyFrom(tensor)
    encoded: bytes = message.SerializeToString()
    return encoded


def encode_sample_result(result: SampleResult) -> bytes:
    """A `SampleResponse` message."""
    message = messages.SampleResponse(prompt_cache_hit_tokens=result.reused)
    for sequence in result.sequences:
        out = message.sequences.add(
            stop_reason=messages.STOP_REASON_STOP if sequence.stopped else messages.STOP_REASON_LENGTH,
            tokens=np.asarray(sequence.tokens, np.int32).tobytes(),
            logprobs=np.asarray(sequence.logprobs, np.float32).tobytes(),
        )
        if sequence.topk is not None:
            _fill_topk(out.topk_sampled_logprobs, sequence.topk)
    if result.prompt_logprobs is not None:
        message.prompt_logprobs = np.asarray(result.prompt_logprobs, np.float32).tobytes()
    if result.prompt_topk is not None:
        _fill_topk(message.topk_prompt_logprobs, result.prompt_topk)
    encoded: bytes = message.SerializeToString()
    return encoded


def _fill_topk(message: Any, rows: TopK) -> None:
    width = max(len(tokens) for tokens, _ in rows)
    ids = np.zeros((len(rows), width), np.int32)
    logprobs = np.full((len(rows), width), _EMPTY_LOGPROB, np.float32)
    for row, (tokens, values) in enumerate(rows):
        ids[row, : len(tokens)], logprobs[row, : len(values)] = tokens, values
    message.token_ids, message.logprobs = ids.tobytes(), logprobs.tobytes()
    message.k, message.length = width, len(rows)
