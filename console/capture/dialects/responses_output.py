"""Response objects of the Responses API, and the items of a reply in them."""

from __future__ import annotations

import time
from typing import Any

from console.capture import ids
from console.capture.chat import ChatReply, ChatRequest
from console.capture.dialects.responses_compaction import compaction_content
from console.capture.dialects.responses_tools import call_fields
from console.capture.refusals import RefusalKind, RefusedError

FAILED_CODE: dict[RefusalKind, str] = {"overflow": "context_length_exceeded", "busy": "rate_limit_exceeded"}
"""Codes of errors that come after a stream began, where they are not told by whether trying again is of use."""


def response_object(
    request: ChatRequest,
    *,
    node: str,
    model: str,
    created: int,
    status: str,
    reply: ChatReply | None = None,
    output: list[dict[str, Any]] | None = None,
    error: dict[str, str] | None = None,
) -> dict[str, Any]:
    """A response with every field that the API has.

    Args:
        status: in_progress, completed, incomplete or failed.
        reply: gives the usage, and says why a response is incomplete.

    What a response repeats of its request, tools and instructions, is left out of those in progress: it can be larger
    than all the rest, and the last one of a stream has it.
    """
    echo, sampling, running = request.echo, request.sampling, status == "in_progress"
    return {
        "id": f"resp_{node}",
        "object": "response",
        "created_at": created,
        "completed_at": max(created, int(time.time())) if status == "completed" else None,
        "status": status,
        "background": False,
        "error": error,
        "incomplete_details": {"reason": "max_output_tokens"} if status == "incomplete" else None,
        "instructions": None if running else echo.get("instructions"),
        "max_output_tokens": sampling.max_tokens,
        "max_tool_calls": None,
        "metadata": echo.get("metadata", {}),
        "model": model,
        "output": output or [],
        "parallel_tool_calls": echo.get("parallel_tool_calls", True),
        "previous_response_id": None,
        "prompt_cache_key": None,
        "reasoning": echo.get("reasoning", {"effort": None, "summary": None}),
        "safety_identifier": None,
        "service_tier": "default",
        "store": False,
        "temperature": sampling.temperature,
        "text": echo.get("text", {"format": {"type": "text"}}),
        "tool_choice": echo.get("tool_choice", "auto"),
        "tools": [] if running else echo.get("tools", []),
        "top_logprobs": 0,
        "top_p": sampling.top_p,
        "truncation": echo.get("truncation", "disabled"),
        "usage": None if reply is None else _usage(reply),
        "user": None,
    }


def status_of(reply: ChatReply) -> str:
    """completed, or incomplete for a reply that was cut off."""
    return "incomplete" if reply.stop == "length" else "completed"


def output_items(request: ChatRequest, reply: ChatReply) -> list[dict[str, Any]]:
    """The items of a reply: thoughts, text, calls. There is always one, so that its id leads back to the sample.

    A reply to a compaction is one item, whatever it holds: codex takes nothing else.
    """
    if request.echo.get("compaction"):
        return [{"type": "compaction", "id": f"cmp_{reply.node}", "encrypted_content": compaction_content(reply)}]
    items: list[dict[str, Any]] = []
    if reply.reasoning:
        items.append(
            {
                "type": "reasoning",
                "id": f"rs_{reply.node}",
                "summary": [{"type": "summary_text", "text": reply.reasoning}] if _summarised(request) else [],
                "content": [{"type": "reasoning_text", "text": reply.reasoning}],
                "encrypted_content": ids.signature(reply.node),
                "status": "completed",
            }
        )
    if reply.text or not reply.tool_calls:
        items.append(
            {
                "type": "message",
                "id": f"msg_{reply.node}",
                "role": "assistant",
                "content": [{"type": "output_text", "text": reply.text, "annotations": [], "logprobs": []}],
                "status": "completed",
            }
        )
    for index, call in enumerate(reply.tool_calls):
        items.append(
            {
                "id": ids.tool_call_id(reply.node, index, "fc"),
                "call_id": call.id,
                **call_fields(call, request.echo.get("forms", {})),
                "status": "completed",
            }
        )
    items[-1]["status"] = status_of(reply)
    return items


def failed_error(refusal: RefusedError) -> dict[str, str]:
    """`code` and `message` for an error after a stream began.

    codex tries again after any code that it does not know to be final; `invalid_prompt` is one that is, and that it
    shows with its message. After `rate_limit_exceeded` it waits for as long as the message says.
    """
    message = refusal.message
    if refusal.kind == "busy" and refusal.retry_after is not None:
        message = f"{message} Please try again in {refusal.retry_after:g}s."
    code = "invalid_prompt" if refusal.retry_after is None else "server_error"
    return {"code": FAILED_CODE.get(refusal.kind, code), "message": message}


def _summarised(request: ChatRequest) -> bool:
    return request.echo.get("reasoning", {}).get("summary") is not None


def _usage(reply: ChatReply) -> dict[str, Any]:
    return {
        "input_tokens": reply.prompt_tokens,
        "input_tokens_details": {"cached_tokens": reply.cached_tokens, "cache_write_tokens": 0},
        "output_tokens": reply.sampled_tokens,
        "output_tokens_details": {"reasoning_tokens": reply.reasoning_tokens},
        "total_tokens": reply.prompt_tokens + reply.sampled_tokens,
    }
