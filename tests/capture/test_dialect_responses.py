"""What a request of the Responses API may say: each row is a body, and what becomes of it."""

from __future__ import annotations

import json
from functools import reduce
from typing import Any

import msgspec
import pytest
from conformance_responses import BAD, GOOD, body_of, tool

from console.capture.chat import ChatRequest
from console.capture.dialects.openai_errors import error_body
from console.capture.dialects.responses import Responses
from console.capture.refusals import RefusedError


def parsed(body: Any) -> ChatRequest:
    return Responses().parse(body_of(body), {})


def at(request: ChatRequest, path: str) -> Any:
    if path == "count":
        return len(request.messages)

    def step(value: Any, name: str) -> Any:
        if isinstance(value, list):
            return value[int(name)]
        return value[name] if isinstance(value, dict) else getattr(value, name)

    return reduce(step, path.split("."), request)


@pytest.mark.parametrize(("body", "path", "expected"), GOOD)
def test_what_is_honoured(body: dict[str, Any], path: str, expected: Any) -> None:
    request = parsed(body)
    assert at(request, path) == expected
    assert msgspec.json.decode(msgspec.json.encode(request), type=ChatRequest) == request


@pytest.mark.parametrize(("body", "param", "words"), BAD)
def test_what_is_refused(body: Any, param: str, words: str) -> None:
    with pytest.raises(RefusedError) as refused:
        parsed(body)
    assert (refused.value.status, refused.value.kind, refused.value.param) == (400, "request", param)
    assert words in refused.value.message and refused.value.message.startswith(f"'{param}'")
    assert len(refused.value.message) < 300
    assert error_body(refused.value)["error"]["type"] == "invalid_request_error"
    assert json.dumps(Responses().error(refused.value))


def test_the_table_is_large_enough() -> None:
    assert len(GOOD) + len(BAD) >= 150


def test_unknown_fields_are_bounded() -> None:
    request = parsed({f"field{k}": 1 for k in range(100)})
    assert len(request.neutralised) == 20


def test_marked_retries() -> None:
    body = {"input": "x"}
    assert Responses().parse(body, {"x-stainless-retry-count": "1"}).retry
    assert not Responses().parse(body, {"x-stainless-retry-count": "0"}).retry


def test_deep_tools_are_refused() -> None:
    deep: Any = {}
    for _ in range(5000):
        deep = {"a": deep}
    with pytest.raises(RefusedError, match=r"'tools\[0\]' is too deep"):
        parsed(tool(parameters=deep))
