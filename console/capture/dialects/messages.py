"""The Anthropic Messages dialect, with `count_tokens`.

What an agent sends back leads to the sample that it extends: thoughts travel with a signature, tool calls with ids,
both made of the sample's name. A reply of text alone has neither, and is found by its text.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from console.capture.chat import ChatReply, ChatRequest
from console.capture.dialects.messages_errors import error_body
from console.capture.dialects.messages_request import parse_request
from console.capture.dialects.messages_stream import MessagesStream, content, message, reply_usage, stopped
from console.capture.refusals import RefusedError


class Messages:
    """`POST /v1/messages` and `POST /v1/messages/count_tokens`; see `base.Dialect`."""

    name = "messages"

    def parse(self, body: Any, headers: Mapping[str, str]) -> ChatRequest:
        """The request in a decoded JSON body.

        Raises:
            RefusedError: kind `request`, naming the field, for whatever cannot be honoured.
        """
        return parse_request(body, headers)

    def parse_count(self, body: Any, headers: Mapping[str, str]) -> ChatRequest:
        """The request in a body of `count_tokens`, which has no `max_tokens` and may end with the assistant.

        Raises:
            RefusedError: kind `request`, naming the field.
        """
        return parse_request(body, headers, counting=True)

    def reply(self, request: ChatRequest, reply: ChatReply) -> dict[str, Any]:
        """The message object."""
        body: dict[str, Any] = message(
            reply.node, request.model or reply.model, content(request, reply), stopped(reply), reply_usage(reply)
        )
        return body

    def count_reply(self, tokens: int) -> dict[str, Any]:
        """The body of `count_tokens`; `tokens`: of the rendered prompt."""
        return {"input_tokens": tokens}

    def stream(self, request: ChatRequest, node: str, prompt_tokens: int, model: str) -> MessagesStream:
        """The events of a reply."""
        return MessagesStream(request, node, prompt_tokens, model)

    def error(self, refusal: RefusedError) -> dict[str, Any]:
        """The JSON body of an error."""
        return error_body(refusal)

    def models(self, model: str) -> dict[str, Any]:
        """A page of models that has one; its date is the epoch, which the API allows where none is known."""
        entry = {"type": "model", "id": model, "display_name": model, "created_at": "1970-01-01T00:00:00Z"}
        return {"data": [entry], "has_more": False, "first_id": model, "last_id": model}
