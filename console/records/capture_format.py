"""What is kept of a trial's model calls: the records of `capture/step-NNNNNN/<key>.calls` and `<key>.calls.zst`.

A file holds one try, `<key>` being the engine's name of it (`s3.g1.t2.y0`). It is appended to while the try runs and
replaced by a compressed one of the same records when it is sealed. Version 1; how records lie in the file is in
`capture_frames`. Token ids are little-endian int32, log-probs little-endian float32, both as bytes.

What was sent to the sampler for a call is the chain of its parents: the prompt of call c is
`parent's prompt + parent's tokens + c.prompt_new`, or `c.prompt_new` alone when it has no parent.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence

import msgspec

VERSION = 1


class Record(msgspec.Struct, tag_field="kind"):
    """Base of the records."""


class KeptMessage(msgspec.Struct, kw_only=True, omit_defaults=True):
    """A chat message as the agent sent it. `cut`: characters that were left out of `text`."""

    role: str
    text: str = ""
    cut: int = 0


class Opened(Record, tag="opened", kw_only=True, omit_defaults=True):
    """First record of a file.

    Attributes:
        version: of this format; key: the try; step: of the run; policy_version: of the weights that sampled, None when
            it is not known; sampler: the sampler's path or name.
        model, renderer: names; window: context window in tokens, None when the gateway keeps it to itself.
        sampling: agent or force; history_thinking: keep or template; train: all or main; ts: Unix seconds.
    """

    version: int = VERSION
    key: str
    step: int
    policy_version: int | None = None
    sampler: str = ""
    model: str = ""
    renderer: str = ""
    window: int | None = None
    sampling: str = "agent"
    history_thinking: str = "keep"
    train: str = "all"
    ts: float = 0.0


class Intent(Record, tag="intent", kw_only=True, omit_defaults=True):
    """A call goes to the sampler; written before it does.

    Attributes:
        call: number within the try, from 0; node: the sample's name; parent: the node that its prompt extends, "" for
            none; reason: why it extends none (first, tools, system, rewritten, compacted, truncated, renderer,
            template).
        prompt_new: ids behind the parent's, see the module; prompt_tokens: of the whole prompt.
        dialect, model: as the agent asked; ts: Unix seconds.
        max_tokens, temperature, top_p, top_k, seed: the effective ones; stop: the agent's stop strings.
        neutralised: fields that have no effect; tools: digest of the tools, "" for none; tool_names: their names.
        kept: messages before those in `messages`, which hold only what no earlier call of the try had.
        fields_given: names of the sampling parameters that the agent gave itself.
    """

    call: int
    node: str
    parent: str = ""
    reason: str = ""
    prompt_new: bytes = b""
    prompt_tokens: int = 0
    dialect: str = ""
    model: str = ""
    ts: float = 0.0
    max_tokens: int = 0
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = -1
    seed: int | None = None
    stop: list[str] = []
    fields_given: list[str] = []
    neutralised: list[str] = []
    tools: str = ""
    tool_names: list[str] = []
    kept: int = 0
    messages: list[KeptMessage] = []


class Outcome(Record, tag="outcome", kw_only=True, omit_defaults=True):
    """How a call ended; of one that was answered it is written before the reply leaves.

    Attributes:
        status: stop, length, or the kind of failure (client, backend, overflow, no_logprobs, capture, sealed, ...).
        tokens, logprobs: sampled ids and their log-probs as the gateway gave them, of equal length.
        stop_reason: stop or length; seconds: from request to sample; ts: Unix seconds of the end.
        reply: the sampled text without the token that ends it; reply_cut: characters left out of it.
        end: text of the token that ends it, "" when the last one is part of `reply`.
        pieces: characters of each token's text within `reply`, one uint8 a token, empty when they do not add up to it.
        malformed: a tool call in it could not be parsed, and the agent got the raw text; error: what failed.
    """

    call: int
    status: str
    ts: float = 0.0
    seconds: float = 0.0
    tokens: bytes = b""
    logprobs: bytes = b""
    stop_reason: str = ""
    reply: str = ""
    reply_cut: int = 0
    end: str = ""
    pieces: bytes = b""
    malformed: bool = False
    error: str = ""


class Refusal(Record, tag="refusal", kw_only=True, omit_defaults=True):
    """A request that never came to the sampler. `reason`: the refusal's kind; message: what the agent was told."""

    ts: float = 0.0
    reason: str
    message: str = ""
    dialect: str = ""


class Delivered(Record, tag="delivered", kw_only=True, omit_defaults=True):
    """The reply of a call was handed to the agent's connection, once more if it had been before."""

    call: int
    ts: float = 0.0


class SegmentLine(msgspec.Struct, kw_only=True, omit_defaults=True):
    """A run of calls that is trained as one sequence. `nodes`: their names in order; `reason`: why it begins."""

    nodes: list[str]
    reason: str = ""
    kind: str = "main"


class Sealed(Record, tag="sealed", kw_only=True, omit_defaults=True):
    """Last record of a file: the trial has ended and nothing follows.

    Attributes:
        calls: answered calls whose answer had tokens; failed: calls that were not answered; lost: always 0, or the
            trial is `capture_loss`.
        segments: what is trained; excluded: answered calls that are not, by reason (aux, foreign, superseded, late,
            undelivered, rule, empty).
        excluded_nodes: their names, by the same reasons.
    """

    ts: float = 0.0
    calls: int = 0
    failed: int = 0
    lost: int = 0
    no_logprobs: int = 0
    segments: list[SegmentLine] = []
    excluded: dict[str, int] = {}
    excluded_nodes: dict[str, list[str]] = {}


AnyRecord = Opened | Intent | Outcome | Refusal | Delivered | Sealed


def ids_bytes(ids: Sequence[int]) -> bytes:
    """Token ids as the records hold them."""
    return _little(array("i", ids)).tobytes()


def ids_of(data: bytes) -> array[int]:
    """Token ids of a record. Raises `ValueError` for a torn one."""
    ids = array("i")
    ids.frombytes(data)
    return _little(ids)


def logprobs_bytes(logprobs: Sequence[float]) -> bytes:
    """Log-probs as the records hold them."""
    return _little(array("f", logprobs)).tobytes()


def logprobs_of(data: bytes) -> array[float]:
    """Log-probs of a record. Raises `ValueError` for a torn one."""
    values = array("f")
    values.frombytes(data)
    return _little(values)


def _little[T: (int, float)](values: array[T]) -> array[T]:
    import sys

    if sys.byteorder == "big":
        values.byteswap()
    return values
