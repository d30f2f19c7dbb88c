"""Replies of the Anthropic dialect: content blocks and usage, as one body or as events."""

from __future__ import annotations

import json
from typing import Any

from console.capture import ids
from console.capture.chat import ChatReply, ChatRequest, Stop
from console.capture.dialects.messages_errors import error_body
from console.capture.dialects.sse import event
from console.capture.refusals import RefusedError

STOP_REASONS: dict[Stop, str] = {"stop": "end_turn", "length": "max_tokens", "tool_calls": "tool_use"}


def content(request: ChatRequest, reply: ChatReply) -> list[dict[str, Any]]:
    """The reply's blocks: thoughts with a signature that names the sample, text, tool calls.

    Thoughts are left out for an agent that switched thinking off: it reads the first block as the answer. There is
    always a block: agents that index the list of an empty reply find an empty text.
    """
    blocks: list[dict[str, Any]] = []
    if reply.reasoning and request.echo.get("thinking", True):
        blocks.append({"type": "thinking", "thinking": reply.reasoning, "signature": ids.signature(reply.node)})
    if reply.text.strip():
        blocks.append({"type": "text", "text": reply.text})
    for index, call in enumerate(reply.tool_calls):
        minted = ids.tool_call_id(reply.node, index, "toolu")
        blocks.append({"type": "tool_use", "id": minted, "name": call.name, "input": json.loads(call.arguments)})
    return blocks or [{"type": "text", "text": reply.text}]


def usage(prompt_tokens: int, cached_tokens: int, sampled_tokens: int, reasoning_tokens: int = 0) -> dict[str, Any]:
    """Token counts. What was read from the cache is not counted as input: agents add the two to know the window.

    At least one input token is left: claude-code takes a zero there for "not known" and keeps the number from the
    stream's beginning, which would count the prompt twice.
    """
    cached = max(0, min(cached_tokens, prompt_tokens - 1))
    return {
        "input_tokens": prompt_tokens - cached,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": cached,
        "cache_creation": {"ephemeral_5m_input_tokens": 0, "ephemeral_1h_input_tokens": 0},
        "output_tokens": sampled_tokens,
        "output_tokens_details": {"thinking_tokens": reasoning_tokens},
        "service_tier": "standard",
    }


def reply_usage(reply: ChatReply) -> dict[str, Any]:
    """`usage` of a reply."""
    return usage(reply.prompt_tokens, reply.cached_tokens, reply.sampled_tokens, reply.reasoning_tokens)


def stopped(reply: ChatReply) -> dict[str, Any]:
    """`stop_reason` and `stop_sequence` of a reply."""
    if reply.stop == "stop" and reply.stop_string:
        return {"stop_reason": "stop_sequence", "stop_sequence": reply.stop_string}
    return {"stop_reason": STOP_REASONS[reply.stop], "stop_sequence": None}


def message(node: str, model: str, blocks: list[dict[str, Any]], ended: dict[str, Any], used: dict[str, Any]) -> Any:
    """The message object."""
    return {
        "id": f"msg_{node}",
        "type": "message",
        "role": "assistant",
        "model": model,
        "content": blocks,
        **ended,
        "usage": used,
    }


class MessagesStream:
    """Events of one streamed reply."""

    def __init__(self, request: ChatRequest, node: str, prompt_tokens: int, model: str) -> None:
        self._request, self._node, self._prompt_tokens, self._model = (
            request,
            node,
            prompt_tokens,
            request.model or model,
        )

    def opening(self) -> bytes:
        """`message_start`, and a first ping."""
        open_ended = {"stop_reason": None, "stop_sequence": None}
        started = message(self._node, self._model, [], open_ended, usage(self._prompt_tokens, 0, 0))
        return _event("message_start", message=started) + self.keepalive()

    def keepalive(self) -> bytes:
        """`ping`."""
        return _event("ping")

    def final(self, reply: ChatReply) -> bytes:
        """All blocks, `message_delta` with the counts, `message_stop`."""
        parts = [_block(index, block) for index, block in enumerate(content(self._request, reply))]
        parts.append(_event("message_delta", delta=stopped(reply), usage=reply_usage(reply)))
        parts.append(_event("message_stop"))
        return b"".join(parts)

    def failure(self, refusal: RefusedError) -> bytes:
        """`error`, after which nothing comes."""
        return event(error_body(refusal), "error")


def _block(index: int, block: dict[str, Any]) -> bytes:
    """One block's events. Each delta has all of its field: what is sampled is known in whole by then."""
    if block["type"] == "thinking":
        empty = {"type": "thinking", "thinking": "", "signature": ""}
        deltas = [
            {"type": "thinking_delta", "thinking": block["thinking"]},
            {"type": "signature_delta", "signature": block["signature"]},
        ]
    elif block["type"] == "tool_use":
        empty = block | {"input": {}}
        deltas = [{"type": "input_json_delta", "partial_json": json.dumps(block["input"])}]
    else:
        empty = {"type": "text", "text": ""}
        deltas = [{"type": "text_delta", "text": block["text"]}]
    return b"".join(
        [
            _event("content_block_start", index=index, content_block=empty),
            *(_event("content_block_delta", index=index, delta=delta) for delta in deltas),
            _event("content_block_stop", index=index),
        ]
    )


def _event(name: str, **data: Any) -> bytes:
    return event({"type": name} | data, name)
