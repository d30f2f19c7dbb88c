"""From a sample to the reply: the agent's stop strings, thoughts, text and tool calls. Runs in the render thread."""

from __future__ import annotations

import time
from array import array
from typing import TYPE_CHECKING

import msgspec

from console.capture.chat import ChatReply, ChatRequest
from console.capture.sampler import Sample
from console.capture.stops import before_stop, first_stop, tokens_kept

if TYPE_CHECKING:
    from console.capture.rendering import PolicyRenderer


class Reading(msgspec.Struct, frozen=True, kw_only=True):
    """A sample and what it says.

    Attributes:
        tokens_T, logprobs_T: what is kept of the sample; stop_reason: stop or length.
        reply: for the agent; malformed, raw, pieces: as the renderer parses; end: text of the token that ends the
            sample, "" when the last one is part of `raw`.
    """

    tokens_T: array[int]
    logprobs_T: array[float]
    stop_reason: str
    reply: ChatReply
    malformed: bool
    raw: str
    pieces: list[str]
    end: str


def read(
    renderer: PolicyRenderer,
    sample: Sample,
    request: ChatRequest,
    node: str,
    prompt_tokens: int,
    cached: int,
    model: str,
) -> Reading:
    """The reply that a sample is.

    Args:
        node: the sample's name; prompt_tokens, cached: of its prompt, and those that an earlier call had.
        model: what the policy is called.
    """
    tokens_T, logprobs_T, stop_reason = sample.tokens_T, sample.logprobs_T, sample.stop_reason
    stops = request.sampling.stop
    parsed = renderer.parse(tokens_T, request.tools, node, stop_reason=stop_reason)
    kept = tokens_kept(parsed.raw, parsed.pieces, stops)
    stop_string = ""
    text, reasoning = parsed.text, parsed.reasoning
    if kept is not None:
        tokens_T, logprobs_T, stop_reason = tokens_T[:kept], logprobs_T[:kept], "stop"
        parsed = renderer.parse(tokens_T, request.tools, node, stop_reason=stop_reason)
        hit = first_stop(parsed.raw, stops)
        stop_string = hit[1] if hit is not None else ""
        text, reasoning = before_stop(parsed.text, stops), before_stop(parsed.reasoning, stops)
    cut_off = stop_reason == "length"
    ended = bool(tokens_T) and tokens_T[-1] in renderer.sampling_stop()
    reply = ChatReply(
        node=node,
        text=text,
        reasoning=reasoning,
        tool_calls=parsed.tool_calls,
        stop="length" if cut_off else "tool_calls" if parsed.tool_calls else "stop",
        stop_string=stop_string,
        prompt_tokens=prompt_tokens,
        cached_tokens=cached,
        sampled_tokens=len(tokens_T),
        reasoning_tokens=parsed.reasoning_tokens,
        token_logprobs=list(zip(parsed.pieces, logprobs_T)) if request.logprobs else [],
        created=time.time(),
        model=model,
    )
    return Reading(
        tokens_T=tokens_T,
        logprobs_T=logprobs_T,
        stop_reason=stop_reason,
        reply=reply,
        malformed=parsed.malformed,
        raw=parsed.raw,
        pieces=parsed.pieces,
        end=renderer.text_of(tokens_T[-1:]) if ended else "",
    )
