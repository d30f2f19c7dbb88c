"""What goes over the wire in a conformance test, and what is wrong with what comes back.

The checks name every problem that they see and stop at none, so that one run over a table shows all of its rows.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from decimal import Decimal
from typing import Any, NamedTuple

import httpx
from capture_bench import CHAT, COUNT, MESSAGES, RESPONSES

JSON = "application/json"
DEPTH, DIGITS, ECHOED = 64, 300, 80

CANARY = "canary-4f1c9be2"
"""Stands in every bad request, and in no answer."""


class Told(NamedTuple):
    """How one kind of error is answered.

    Attributes:
        openai: type and code in OpenAI's dialects; anthropic: type in the other.
        retry: seconds in Retry-After, None where clients are told not to try again.
    """

    status: int
    openai: tuple[str, str | None]
    anthropic: str
    retry: int | None = None


BAD_REQUEST = Told(400, ("invalid_request_error", None), "invalid_request_error")
TOLD = {
    "request": BAD_REQUEST,
    "overflow": Told(400, ("invalid_request_error", "context_length_exceeded"), "invalid_request_error"),
    "budget": Told(400, ("insufficient_quota", "insufficient_quota"), "rate_limit_error"),
    "auth": Told(401, ("authentication_error", "invalid_api_key"), "authentication_error"),
    "not_found": Told(404, ("not_found_error", "not_found"), "not_found_error"),
    "method": Told(405, ("invalid_request_error", "method_not_allowed"), "invalid_request_error"),
    "slow": Told(408, ("invalid_request_error", None), "invalid_request_error", 1),
    "early": Told(409, ("conflict_error", "trial_not_started"), "api_error", 1),
    "sealed": Told(410, ("permission_error", "trial_ended"), "permission_error"),
    "too_large": Told(413, ("invalid_request_error", "request_too_large"), "request_too_large"),
    "media": Told(415, ("invalid_request_error", "unsupported_media_type"), "invalid_request_error"),
    "upgrade": Told(426, ("invalid_request_error", "method_not_allowed"), "invalid_request_error"),
    "busy": Told(429, ("rate_limit_error", "rate_limit_exceeded"), "rate_limit_error", 2),
    "backend": Told(503, ("server_error", "service_unavailable"), "overloaded_error", 5),
    "no_logprobs": Told(503, ("server_error", "no_logprobs"), "overloaded_error", 1),
    "capture": Told(503, ("server_error", "capture_failed"), "overloaded_error", 5),
}


def encoded(value: Any) -> bytes:
    """JSON, as hostile as it may be: any depth, any number of digits, numbers that are not finite."""
    out: list[str] = []
    left: list[tuple[bool, Any]] = [(False, value)]
    while left:
        ready, item = left.pop()
        if ready:
            out.append(item)
        elif isinstance(item, dict):
            left.append((True, "}"))
            for number, (key, inner) in reversed(list(enumerate(item.items()))):
                left += [(False, inner), (True, f"{',' if number else ''}{json.dumps(key)}:")]
            out.append("{")
        elif isinstance(item, list):
            left.append((True, "]"))
            for number, inner in reversed(list(enumerate(item))):
                left += [(False, inner), (True, "," if number else "")]
            out.append("[")
        elif type(item) is int:
            out.append(str(Decimal(item)))
        else:
            out.append(json.dumps(item))
    return "".join(out).encode("ascii")


def before_parsing(body: Any) -> str:
    """The error of a body that no dialect gets to see; "" for one that they do."""
    if not isinstance(body, dict):
        return "the body must be a JSON object"
    level: list[Any] = [body]
    for _ in range(DEPTH):
        inside = [inner for outer in level for inner in (outer.values() if isinstance(outer, dict) else outer)]
        if any(isinstance(inner, float) and not math.isfinite(inner) for inner in inside):
            return "the body holds a number that is not finite"
        if any(type(inner) is int and len(str(Decimal(abs(inner)))) > DIGITS for inner in inside):
            return f"the body holds a number of more than {DIGITS} digits"
        level = [inner for inner in inside if isinstance(inner, dict | list)]
        if not level:
            return ""
    return f"the body is nested deeper than {DEPTH} levels"


def with_canary(body: Any) -> Any:
    """The same with a field that nobody knows."""
    return body | {"zz_nobody_knows": CANARY} if isinstance(body, dict) else body


def refusal_problems(
    path: str,
    reply: httpx.Response,
    *,
    told: Told = BAD_REQUEST,
    param: str | None = None,
    words: str = "",
    sent: Any = None,
) -> Iterator[str]:
    """What is wrong with an error: status, headers, shape, and that nothing of the body is repeated.

    Args:
        param: the field at fault; words: some of the message; sent: the body, as far as it is looked for.
    """
    if reply.status_code != told.status:
        yield f"status {reply.status_code} and not {told.status}: {reply.text[:200]}"
        return
    if reply.headers.get("content-type") != JSON:
        yield f"content type {reply.headers.get('content-type')}"
        return
    retry, again = reply.headers.get("retry-after"), reply.headers.get("x-should-retry")
    wanted = (None, "false") if told.retry is None else (str(told.retry), None)
    if (retry, again) != wanted:
        yield f"Retry-After and x-should-retry are {(retry, again)} and not {wanted}"
    yield from body_problems(path, reply.json(), told, param, words)
    if CANARY in reply.text or CANARY in str(reply.headers):
        yield "the canary is repeated"
    for text in texts(sent):
        if len(text) > ECHOED and text[: ECHOED + 1] in reply.text:
            yield f"more than {ECHOED} characters of the body are repeated"


def checked(path: str, reply: httpx.Response, kind: str, words: str, param: str | None = None) -> None:
    """Fail unless a reply is this kind of error, with these words."""
    problems = list(refusal_problems(path, reply, told=TOLD[kind], param=param, words=words))
    if problems:
        raise AssertionError("\n".join(problems))


def body_problems(path: str, body: Any, told: Told, param: str | None, words: str) -> Iterator[str]:
    """What is wrong with the body of an error."""
    if path.startswith(MESSAGES):
        shape: Any = {"type": "error", "error": {"type": told.anthropic, "message": body["error"].get("message")}}
    else:
        kind, code = told.openai
        message = body["error"].get("message")
        shape = {"error": {"message": message, "type": kind, "param": param, "code": code}}
    if body != shape:
        yield f"the body is {body} and not {shape}"
    message = body["error"]["message"]
    if not isinstance(message, str) or not message or len(message) >= 300:
        yield f"the message is {message!r}"
    elif words not in message or (told != TOLD["overflow"] and (param or "") not in message):
        yield f"{words!r} or {param!r} is missing in {message!r}"


def texts(value: Any) -> Iterator[str]:
    """Keys and texts in a body, near its top."""
    level = [value]
    for _ in range(12):
        inside: list[Any] = []
        for outer in level:
            if isinstance(outer, str):
                yield outer
            elif isinstance(outer, dict):
                inside += [*outer, *outer.values()]
            elif isinstance(outer, list):
                inside += outer[:100]
        level = inside


RANGES: list[tuple[dict[str, Any], str, str]] = [
    ({"temperature": 2.1}, "temperature", "must be from 0 to 2"),
    ({"temperature": -0.1}, "temperature", "must be from 0 to 2"),
    ({"temperature": -5}, "temperature", "must be from 0 to 2"),
    ({"temperature": 1e9}, "temperature", "must be from 0 to 2"),
    ({"temperature": 1e300}, "temperature", "must be from 0 to 2"),
    ({"top_p": 0}, "top_p", "must be above 0 and at most 1"),
    ({"top_p": -0.5}, "top_p", "must be above 0 and at most 1"),
    ({"top_p": 1.01}, "top_p", "must be above 0 and at most 1"),
    ({"top_k": -2}, "top_k", "must be 1 or more"),
    ({"top_k": -(2**52)}, "top_k", "must be 1 or more"),
]
"""Values that every dialect understands and none may have."""

NOT_JSON: list[tuple[bytes, str]] = [
    (b"", "not valid JSON"),
    (b" \n", "not valid JSON"),
    (b"{", "not valid JSON"),
    (b"{}}", "not valid JSON"),
    (b"{} {}", "not valid JSON"),
    (b"{'model': 'm'}", "not valid JSON"),
    (b'{"model": "m",}', "not valid JSON"),
    (b'{"model": m}', "not valid JSON"),
    (b'{"model": "\x01"}', "not valid JSON"),
    (b'{"model": "\\ud8"}', "not valid JSON"),
    (b'{"model": "\\x41"}', "not valid JSON"),
    (b"model=m&stream=true", "not valid JSON"),
    (b"\x00" * 64, "not valid JSON"),
    (b'\xff\xfe{\x00"\x00', "not UTF-8"),
    (b'{"model": "\xff"}', "not UTF-8"),
    (b"null", "must be a JSON object"),
    (b'"text"', "must be a JSON object"),
    (b"[{}]", "must be a JSON object"),
    (b"12", "must be a JSON object"),
    (b'{"n": 1e999}', "not finite"),
    (b'{"n": -Infinity}', "not finite"),
    (b'{"n": ' + b"9" * 301 + b"}", "more than 300 digits"),
    (b'{"n":' + b"[" * 100_000, "deeper than 64 levels"),
    (b'{"n":[' + b"[]," * 600_000 + b"[]]}", "more than 500000 values"),
]
"""Bodies that are no request of any dialect."""

CALLS = (CHAT, RESPONSES, MESSAGES)
POSTS = (*CALLS, COUNT)
