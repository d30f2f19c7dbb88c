"""OpenAI Chat Completions.

Thoughts go out as `reasoning_content`, the one name that litellm, mini-swe-agent, opencode and qwen-code all read and
send back. It is there, null, when there are none: litellm would else look for `<think>` in the visible text.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from console.capture.chat import ChatReply, ChatRequest, ToolCall
from console.capture.dialects import sse
from console.capture.dialects.chat_request import parse_request
from console.capture.dialects.openai_errors import error_body
from console.capture.refusals import RefusedError


class Chat:
    """The dialect of `/v1/chat/completions`; see `base.Dialect`."""

    name = "chat"

    def parse(self, body: Any, headers: Mapping[str, str]) -> ChatRequest:
        """The request in a decoded JSON body; raises RefusedError."""
        return parse_request(body, headers)

    def reply(self, request: ChatRequest, reply: ChatReply) -> dict[str, Any]:
        """A `chat.completion` object."""
        message: dict[str, Any] = {
            "role": "assistant",
            "content": None if not reply.text and reply.tool_calls else reply.text,
            "refusal": None,
            "reasoning_content": reply.reasoning or None,
        }
        if reply.tool_calls:
            message["tool_calls"] = [_call(call) for call in reply.tool_calls]
        choice = {
            "index": 0,
            "message": message,
            "logprobs": _logprobs(reply) if request.logprobs else None,
            "finish_reason": reply.stop,
        }
        return {
            "id": f"chatcmpl-{reply.node}",
            "object": "chat.completion",
            "created": int(reply.created),
            "model": reply.model,
            "choices": [choice],
            "usage": _usage(reply),
            "service_tier": "default",
            "system_fingerprint": None,
        }

    def stream(self, request: ChatRequest, node: str, prompt_tokens: int, model: str) -> ChatStream:
        """The chunks of a reply."""
        return ChatStream(request, node, model)

    def error(self, refusal: RefusedError) -> dict[str, Any]:
        """`{"error": {...}}`."""
        return error_body(refusal)

    def models(self, model: str) -> dict[str, Any]:
        """A list of one model."""
        entry = {"id": model, "object": "model", "created": 0, "owned_by": "quarterdeck"}
        return {"object": "list", "data": [entry]}


class ChatStream:
    """`chat.completion.chunk` events of one reply; see `base.ReplyStream`."""

    def __init__(self, request: ChatRequest, node: str, model: str) -> None:
        self._request, self._node, self._model, self._created = request, node, model, int(time.time())

    def opening(self) -> bytes:
        """The role."""
        return self._chunk({"role": "assistant", "content": ""})

    def keepalive(self) -> bytes:
        """A comment."""
        return sse.KEEPALIVE

    def final(self, reply: ChatReply) -> bytes:
        """Thoughts, text and each tool call in a chunk of its own, then why it ended, usage if wanted, and the end."""
        deltas: list[dict[str, Any]] = []
        if reply.reasoning:
            deltas.append({"reasoning_content": reply.reasoning})
        if reply.text:
            deltas.append({"content": reply.text})
        for index, call in enumerate(reply.tool_calls):
            deltas.append({"tool_calls": [{"index": index, **_call(call)}]})
        logprobs = _logprobs(reply) if self._request.logprobs else None
        chunks = []
        for delta in deltas:
            chunks.append(self._chunk(delta, logprobs=logprobs))
            logprobs = None  # they are the reply's, once
        chunks.append(self._chunk({}, logprobs=logprobs, finish_reason=reply.stop))
        if self._request.stream_usage:
            chunks.append(sse.event(self._head() | {"choices": [], "usage": _usage(reply)}))
        return b"".join([*chunks, sse.DONE])

    def failure(self, refusal: RefusedError) -> bytes:
        """An event with the error, which SDKs raise, and the end."""
        return sse.event(error_body(refusal)) + sse.DONE

    def _head(self) -> dict[str, Any]:
        return {
            "id": f"chatcmpl-{self._node}",
            "object": "chat.completion.chunk",
            "created": self._created,
            "model": self._model,
            "service_tier": "default",
            "system_fingerprint": None,
        }

    def _chunk(
        self, delta: dict[str, Any], *, logprobs: dict[str, Any] | None = None, finish_reason: str | None = None
    ) -> bytes:
        chunk = self._head()
        chunk["choices"] = [{"index": 0, "delta": delta, "logprobs": logprobs, "finish_reason": finish_reason}]
        if self._request.stream_usage:
            chunk["usage"] = None
        return sse.event(chunk)


def _call(call: ToolCall) -> dict[str, Any]:
    return {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}


def _logprobs(reply: ChatReply) -> dict[str, Any]:
    content = [
        {
            "token": piece,
            "logprob": logprob,
            # a token that is part of a character has no text of its own, and its bytes are not known here
            "bytes": None if "\ufffd" in piece else list(piece.encode("utf-8", "replace")),
            "top_logprobs": [],
        }
        for piece, logprob in reply.token_logprobs
    ]
    return {"content": content, "refusal": None}


def _usage(reply: ChatReply) -> dict[str, Any]:
    return {
        "prompt_tokens": reply.prompt_tokens,
        "completion_tokens": reply.sampled_tokens,
        "total_tokens": reply.prompt_tokens + reply.sampled_tokens,
        "prompt_tokens_details": {"cached_tokens": reply.cached_tokens, "audio_tokens": 0},
        "completion_tokens_details": {
            "reasoning_tokens": reply.reasoning_tokens,
            "audio_tokens": 0,
            "accepted_prediction_tokens": 0,
            "rejected_prediction_tokens": 0,
        },
    }
