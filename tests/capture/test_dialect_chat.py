"""What a Chat Completions request may say: each row is a body, and what becomes of it."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from conformance_chat import BAD, GOOD, HI, body_of

from console.capture.chat import ChatMessage, ChatRequest
from console.capture.dialects.chat import Chat
from console.capture.dialects.openai_errors import error_body
from console.capture.refusals import RefusedError


def parse(added: Any) -> ChatRequest:
    return Chat().parse(body_of(added), {})


def at(request: ChatRequest, path: str) -> Any:
    found: Any = request
    for step in path.split("."):
        if isinstance(found, list):
            found = found[int(step)]
        else:
            found = found[step] if isinstance(found, dict) else getattr(found, step)
    return found


def test_the_table_is_long_enough() -> None:
    assert len(GOOD) + len(BAD) >= 250


@pytest.mark.parametrize(("added", "path", "expected"), GOOD, ids=[f"{i}-{row[1]}" for i, row in enumerate(GOOD)])
def test_honoured(added: dict[str, Any], path: str, expected: Any) -> None:
    request = parse(added)

    assert at(request, path) == expected
    msgspec.json.encode(request)  # whatever was said can be written down


@pytest.mark.parametrize(("added", "param", "words"), BAD, ids=[f"{i}-{row[1]}" for i, row in enumerate(BAD)])
def test_refused(added: Any, param: str, words: str) -> None:
    with pytest.raises(RefusedError) as refused:
        parse(added)

    assert (refused.value.kind, refused.value.status, refused.value.param) == ("request", 400, param)
    assert refused.value.message.startswith(f"'{param}' ") and words in refused.value.message
    assert len(refused.value.message) < 300
    error = json.loads(json.dumps(error_body(refused.value)))["error"]
    assert error == {
        "message": refused.value.message,
        "type": "invalid_request_error",
        "param": param,
        "code": None,
    }


@pytest.mark.parametrize(
    ("count", "retry"),
    [("0", False), ("1", True), ("02", True), ("", False), ("-1", False), ("x", False), ("²", False)],
)
def test_marked_retries(count: str, retry: bool) -> None:
    assert Chat().parse({"messages": [HI]}, {"x-stainless-retry-count": count}).retry is retry


def test_a_plain_request_has_nothing_but_what_was_said() -> None:
    request = parse({})

    assert request == ChatRequest(dialect="chat", model="m", messages=[ChatMessage(role="user", text="hi")])
