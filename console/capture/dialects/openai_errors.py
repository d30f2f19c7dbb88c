"""Error bodies of OpenAI's two dialects, in the words that SDKs, litellm and Harbor tell apart.

litellm maps an error by the text of its body before it looks at the status: whatever has `invalid_request_error` in it
is a bad request there, so only those that are have that type.
"""

from __future__ import annotations

from typing import Any

from console.capture.refusals import RefusalKind, RefusedError

TYPE_AND_CODE: dict[RefusalKind, tuple[str, str | None]] = {
    "request": ("invalid_request_error", None),
    "overflow": ("invalid_request_error", "context_length_exceeded"),
    "budget": ("insufficient_quota", "insufficient_quota"),
    "auth": ("authentication_error", "invalid_api_key"),
    "early": ("conflict_error", "trial_not_started"),
    "sealed": ("permission_error", "trial_ended"),
    "not_found": ("not_found_error", "not_found"),
    "method": ("invalid_request_error", "method_not_allowed"),
    "too_large": ("invalid_request_error", "request_too_large"),
    "media": ("invalid_request_error", "unsupported_media_type"),
    "busy": ("rate_limit_error", "rate_limit_exceeded"),
    "backend": ("server_error", "service_unavailable"),
    "no_logprobs": ("server_error", "no_logprobs"),
    "capture": ("server_error", "capture_failed"),
    "cancelled": ("server_error", "cancelled"),
}


def error_body(refusal: RefusedError, *, prompt: str | None = None) -> dict[str, Any]:
    """`{"error": {"message", "type", "param", "code"}}` for a refusal.

    Args:
        prompt: where this dialect has the messages, by which name they are then called.
    """
    kind, code = TYPE_AND_CODE[refusal.kind]
    param, message = refusal.param, refusal.message
    if prompt is not None and param == "messages":
        param, message = prompt, message.replace("'messages'", f"'{prompt}'", 1)
    return {"error": {"message": message, "type": kind, "param": param, "code": code}}
