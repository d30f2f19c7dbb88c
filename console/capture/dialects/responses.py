"""The OpenAI Responses API, which codex speaks and nothing else.

Nothing is kept between calls: an agent sends the whole conversation, and the ids and the `encrypted_content` of what it
was given lead back to the sample.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from console.capture.chat import ChatReply, ChatRequest
from console.capture.dialects.openai_errors import error_body
from console.capture.dialects.responses_output import output_items, response_object, status_of
from console.capture.dialects.responses_request import parse_request
from console.capture.dialects.responses_stream import ResponsesStream
from console.capture.refusals import RefusedError


class Responses:
    """The dialect of `/v1/responses`; see `base.Dialect`."""

    name = "responses"

    def parse(self, body: Any, headers: Mapping[str, str]) -> ChatRequest:
        """The request in a decoded JSON body; raises RefusedError."""
        return parse_request(body, headers)

    def reply(self, request: ChatRequest, reply: ChatReply) -> dict[str, Any]:
        """A `response` object."""
        return response_object(
            request,
            node=reply.node,
            model=reply.model,
            created=int(reply.created),
            status=status_of(reply),
            reply=reply,
            output=output_items(request, reply),
        )

    def stream(self, request: ChatRequest, node: str, prompt_tokens: int, model: str) -> ResponsesStream:
        """The events of a response."""
        return ResponsesStream(request, node, model)

    def error(self, refusal: RefusedError) -> dict[str, Any]:
        """`{"error": {...}}`."""
        return error_body(refusal, prompt="input")

    def models(self, model: str) -> dict[str, Any]:
        """A list of one model."""
        entry = {"id": model, "object": "model", "created": 0, "owned_by": "quarterdeck"}
        return {"object": "list", "data": [entry]}
