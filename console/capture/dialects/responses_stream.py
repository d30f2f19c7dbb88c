"""Events of the Responses API."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

from console.capture.chat import ChatReply, ChatRequest
from console.capture.dialects import sse
from console.capture.dialects.openai_errors import error_body
from console.capture.dialects.responses_output import failed_error, output_items, response_object, status_of
from console.capture.refusals import RefusedError


class ResponsesStream:
    """The events of one response; see `base.ReplyStream`. The text of each part comes as one delta."""

    def __init__(self, request: ChatRequest, node: str, model: str) -> None:
        self._request, self._node, self._model = request, node, model
        self._created = int(time.time())
        self._number = 0

    def opening(self) -> bytes:
        """response.created and response.in_progress."""
        response = self._response("in_progress")
        return self._event("response.created", response=response) + self._event(
            "response.in_progress", response=response
        )

    def keepalive(self) -> bytes:
        """A comment."""
        return sse.KEEPALIVE

    def final(self, reply: ChatReply) -> bytes:
        """Each item from added to done, then response.completed or response.incomplete, at which clients stop."""
        output = output_items(self._request, reply)
        events = [self._item(index, item) for index, item in enumerate(output)]
        status = status_of(reply)
        response = self._response(status, reply=reply, output=output)
        return b"".join([*events, self._event(f"response.{status}", response=response)])

    def failure(self, refusal: RefusedError) -> bytes:
        """response.failed, which codex reads, and an error event, which makes OpenAI's SDK raise."""
        error, body = failed_error(refusal), error_body(refusal, prompt="input")
        response = self._response("failed", error=error)
        return self._event("response.failed", response=response) + self._event(
            "error", code=error["code"], message=error["message"], param=body["error"]["param"], **body
        )

    def _response(self, status: str, **given: Any) -> dict[str, Any]:
        return response_object(
            self._request, node=self._node, model=self._model, created=self._created, status=status, **given
        )

    def _event(self, kind: str, **data: Any) -> bytes:
        number = self._number
        self._number += 1
        return sse.event({"type": kind, "sequence_number": number, **data}, kind)

    def _item(self, index: int, item: dict[str, Any]) -> bytes:
        at = {"item_id": item["id"], "output_index": index}
        bare: dict[str, Any]
        events: Iterator[bytes]
        match item["type"]:
            case "reasoning":
                bare, events = {"summary": [], "content": []}, self._thoughts(item, at)
            case "message":
                bare, events = {"content": []}, self._part("output_text", item["content"][0], {"logprobs": []}, at)
            case "compaction":
                bare, events = {}, iter(())
            case "custom_tool_call":
                bare, events = {"input": ""}, self._call("custom_tool_call_input", "input", item, {}, at)
            case _:
                bare = {"arguments": ""}
                events = self._call("function_call_arguments", "arguments", item, {"name": item["name"]}, at)
        begun = item | bare | {"status": "in_progress"}
        return b"".join(
            [
                self._event("response.output_item.added", output_index=index, item=begun),
                *events,
                self._event("response.output_item.done", output_index=index, item=item),
            ]
        )

    def _thoughts(self, item: dict[str, Any], at: dict[str, Any]) -> Iterator[bytes]:
        for number, part in enumerate(item["summary"]):
            here = at | {"summary_index": number}
            yield self._event("response.reasoning_summary_part.added", **here, part=part | {"text": ""})
            yield self._event("response.reasoning_summary_text.delta", **here, delta=part["text"])
            yield self._event("response.reasoning_summary_text.done", **here, text=part["text"])
            yield self._event("response.reasoning_summary_part.done", **here, part=part)
        yield from self._part("reasoning_text", item["content"][0], {}, at)

    def _part(self, name: str, part: dict[str, Any], more: dict[str, Any], at: dict[str, Any]) -> Iterator[bytes]:
        """A part that has text. `more`: further fields of its delta and its end."""
        here = at | {"content_index": 0}
        yield self._event("response.content_part.added", **here, part=part | {"text": ""})
        if part["text"]:
            yield self._event(f"response.{name}.delta", **here, delta=part["text"], **more)
        yield self._event(f"response.{name}.done", **here, text=part["text"], **more)
        yield self._event("response.content_part.done", **here, part=part)

    def _call(
        self, name: str, field: str, item: dict[str, Any], more: dict[str, Any], at: dict[str, Any]
    ) -> Iterator[bytes]:
        """What a call passes. `more`: further fields of its end."""
        yield self._event(f"response.{name}.delta", **at, delta=item[field])
        yield self._event(f"response.{name}.done", **at, **more, **{field: item[field]})
