"""What a request of the Anthropic dialect may say: each row is a body, and what becomes of it."""

from __future__ import annotations

import json
from functools import reduce
from typing import Any

import pytest
from conformance_messages import (
    BAD,
    BASH,
    BILLING,
    GOOD,
    HI,
    IMAGE,
    NODE,
    agent,
    body_of,
    result,
    talk,
    text,
    thought,
    use,
    user,
)

from console.capture.dialects.messages import Messages
from console.capture.refusals import RefusedError


def numbered(rows: list[Any]) -> list[str]:
    return [f"{number}-{row[1]}" for number, row in enumerate(rows)]


def at(value: Any, path: str) -> Any:
    return reduce(lambda part, key: part[int(key)] if key.isdigit() else getattr(part, key), path.split("."), value)


@pytest.mark.parametrize(("added", "path", "expected"), GOOD, ids=numbered(GOOD))
def test_a_request_is_taken(added: dict[str, Any], path: str, expected: Any) -> None:
    assert at(Messages().parse(body_of(added), {}), path) == expected


@pytest.mark.parametrize(("added", "param", "words"), BAD, ids=numbered(BAD))
def test_a_request_is_refused_by_name(added: Any, param: str, words: str) -> None:
    with pytest.raises(RefusedError) as caught:
        Messages().parse(body_of(added), {})
    refusal = caught.value
    assert (refusal.kind, refusal.status, refusal.param) == ("request", 400, param)
    assert words in refusal.message and param in refusal.message
    assert len(refusal.message) < 300
    said = Messages().error(refusal)
    assert said == {"type": "error", "error": {"type": "invalid_request_error", "message": refusal.message}}
    json.dumps(said, allow_nan=False)


def test_the_table_is_as_long_as_it_should_be() -> None:
    assert len(GOOD) + len(BAD) >= 250


def test_parsing_leaves_the_body_as_it_is() -> None:
    body = body_of({"tools": [BASH], **agent(thought(), use())})
    before = json.dumps(body)
    Messages().parse(body, {})
    assert json.dumps(body) == before


@pytest.mark.parametrize(("count", "retry"), [("0", False), ("1", True), ("12", True), ("", False), ("x", False)])
def test_a_marked_retry_is_told_from_a_first_try(count: str, retry: bool) -> None:
    assert Messages().parse(body_of({}), {"x-stainless-retry-count": count}).retry is retry


def test_betas_in_a_header_are_noted() -> None:
    parsed = Messages().parse(body_of({}), {"anthropic-beta": "context-1m-2025-08-07"})
    assert parsed.neutralised == ["anthropic-beta"]


COUNTED: list[dict[str, Any]] = [
    {},
    {"max_tokens": None},
    {"system": "s", "tools": [BASH]},
    talk({"role": "assistant", "content": "so far"}),
    {"tool_choice": {"type": "any"}, "tools": [BASH]},
    {"tool_choice": {"type": "tool", "name": "bash"}, "tools": [BASH]},
]


@pytest.mark.parametrize("added", COUNTED)
def test_tokens_can_be_counted(added: dict[str, Any]) -> None:
    body = {key: value for key, value in body_of(added).items() if key != "max_tokens"}
    parsed = Messages().parse_count(body, {})
    assert parsed.messages and len(parsed.tools) == len(added.get("tools", []))
    assert Messages().count_reply(7) == {"input_tokens": 7}


@pytest.mark.parametrize(
    ("added", "param"),
    [({"messages": []}, "messages"), ({"tool_choice": {"type": "x"}}, "tool_choice"), ({"tools": 7}, "tools"),
     (user(IMAGE), "messages[1].content[0].type"), ({"max_tokens": "x"}, "max_tokens")],
)  # fmt: skip
def test_a_count_is_refused_by_name(added: dict[str, Any], param: str) -> None:
    with pytest.raises(RefusedError) as caught:
        Messages().parse_count(body_of(added), {})
    assert caught.value.param == param


def test_what_claude_code_changes_between_calls_does_not_break_the_prefix() -> None:
    """Cache marks move to the last block, a single text block becomes a string, the billing line changes."""
    marked = text("go on") | {"cache_control": {"type": "ephemeral"}}
    first = {
        "system": [text(BILLING), text("You are an agent."), text("\nBe good.")],
        "messages": [HI, {"role": "user", "content": [marked]}],
    }
    second = {
        "system": [text(BILLING.replace("23e", "3d9") + " cc_is_subagent=true;"), *first["system"][1:]],
        "messages": [
            HI,
            {"role": "user", "content": "go on"},
            {"role": "assistant", "content": [thought(signature=f"qd1.{NODE}"), use(f"toolu_{NODE}_0")]},
            {"role": "user", "content": [result(call_id=f"toolu_{NODE}_0") | {"cache_control": {"type": "ephemeral"}}]},
        ],
    }
    before, after = (Messages().parse(body_of(body), {}).messages for body in (first, second))
    assert after[: len(before)] == before
    assert [message.role for message in after[len(before) :]] == ["assistant", "tool"]
