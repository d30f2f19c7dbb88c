"""Error bodies of the Anthropic dialect, in the words that its SDK, claude-code, litellm and Harbor tell apart."""

from __future__ import annotations

import re
from typing import Any

from console.capture.refusals import RefusalKind, RefusedError

TYPES: dict[RefusalKind, str] = {
    "request": "invalid_request_error",
    "overflow": "invalid_request_error",
    "budget": "rate_limit_error",
    "auth": "authentication_error",
    "early": "api_error",
    "sealed": "permission_error",
    "not_found": "not_found_error",
    "method": "invalid_request_error",
    "too_large": "request_too_large",
    "media": "invalid_request_error",
    "busy": "rate_limit_error",
    "backend": "overloaded_error",
    "no_logprobs": "overloaded_error",
    "capture": "overloaded_error",
    "cancelled": "api_error",
}
"""Trouble of ours is "overloaded": claude-code tries a stream that ends so again as a stream, and others without one,
where nothing keeps the connection alive."""

_OVERFLOW = re.compile(r"prompt is too long: \d+ tokens > \d+ maximum")


def error_body(refusal: RefusedError) -> dict[str, Any]:
    """`{"type": "error", "error": {"type", "message"}}` for a refusal."""
    message = refusal.message
    if refusal.kind == "overflow" and (words := _OVERFLOW.search(message)):
        message = words.group()  # agents of this dialect look for these words at the message's beginning
    return {"type": "error", "error": {"type": TYPES[refusal.kind], "message": message}}
