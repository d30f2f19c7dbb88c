"""What each of the agents' dialects does: bodies to `ChatRequest`, `ChatReply` and refusals back to bodies.

A dialect holds no state and knows nothing of HTTP beyond status, headers and bytes. Everything that it is given comes
from a sandbox: every field is checked for its type before it is used, and `parse` raises `RefusedError` only.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from console.capture.chat import ChatReply, ChatRequest
from console.capture.refusals import RefusedError


class ReplyStream(Protocol):
    """The events of one streamed reply, as bytes of `text/event-stream`, in this order: opening, any number of
    keep-alives, then either final or failure."""

    def opening(self) -> bytes:
        """What is sent at once, before anything was sampled."""

    def keepalive(self) -> bytes:
        """Keeps proxies and clients from giving up; carries nothing."""

    def final(self, reply: ChatReply) -> bytes:
        """The whole reply and the end of the stream. It is recorded as delivered before this is written."""

    def failure(self, refusal: RefusedError) -> bytes:
        """An error after the stream began, in the dialect's own form, and the end of the stream."""


class Dialect(Protocol):
    """One API that agents speak."""

    name: str

    def parse(self, body: Any, headers: Mapping[str, str]) -> ChatRequest:
        """The request in a decoded JSON body.

        Raises:
            RefusedError: kind `request`, naming the field, for whatever cannot be honoured.
        """

    def reply(self, request: ChatRequest, reply: ChatReply) -> dict[str, Any]:
        """The JSON body of a reply that is not streamed."""

    def stream(self, request: ChatRequest, node: str, prompt_tokens: int, model: str) -> ReplyStream:
        """The events of a reply. `node`: name of the sample to come; `prompt_tokens`: of its prompt."""

    def error(self, refusal: RefusedError) -> dict[str, Any]:
        """The JSON body of an error; status and Retry-After come from the refusal."""

    def models(self, model: str) -> dict[str, Any]:
        """The JSON body of the list of models, which has one."""
