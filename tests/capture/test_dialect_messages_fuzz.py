"""Bodies that went wrong: the Anthropic dialect answers each with a request or a refusal, and with nothing else."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from typing import Any

import msgspec
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from console.capture.chat import ChatReply, ChatRequest
from console.capture.dialects.messages import Messages
from console.capture.refusals import RefusedError

EPHEMERAL = {"type": "ephemeral"}
BODY: dict[str, Any] = {
    "model": "claude-opus-4-8",
    "max_tokens": 64_000,
    "system": [
        {"type": "text", "text": "x-anthropic-billing-header: cc_version=1;"},
        {"type": "text", "text": "You are an agent.", "cache_control": EPHEMERAL},
    ],
    "messages": [
        {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]},
        {"role": "system", "content": "tools are there"},
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "hm", "signature": "qd1.n1xaaaaaaaa"},
                {"type": "redacted_thinking", "data": "qd1.n1xaaaaaaaa"},
                {"type": "text", "text": "I look."},
                {"type": "tool_use", "id": "toolu_n1xaaaaaaaa_0", "name": "Bash", "input": {"command": "ls", "n": [1]}},
                {"type": "tool_use", "id": "toolu_n1xaaaaaaaa_1", "name": "Read", "input": {}},
            ],
        },
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "toolu_n1xaaaaaaaa_0", "content": "out", "is_error": False},
                {
                    "type": "tool_result",
                    "tool_use_id": "toolu_n1xaaaaaaaa_1",
                    "content": [{"type": "text", "text": "x"}, {"type": "image", "source": {"type": "base64"}}],
                    "is_error": True,
                },
                {"type": "text", "text": "go on", "cache_control": EPHEMERAL},
            ],
        },
    ],
    "tools": [
        {"name": "Bash", "description": "d", "input_schema": {"type": "object", "properties": {"command": {}}}},
        {"type": "web_search_20250305", "name": "web_search", "max_uses": 8},
    ],
    "tool_choice": {"type": "auto", "disable_parallel_tool_use": True},
    "temperature": 1.0,
    "top_p": 0.9,
    "top_k": 20,
    "stop_sequences": ["a"],
    "stream": True,
    "thinking": {"type": "adaptive"},
    "output_config": {"effort": "high"},
    "context_management": {"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]},
    "metadata": {"user_id": "u"},
    "mcp_servers": [],
}


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Paths of everything in a body."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path] * bool(path) + [deeper for key, part in inner for deeper in places(part, (*path, key))]


PLACES = places(BODY)
BLOCKS = ["text", "thinking", "redacted_thinking", "tool_use", "tool_result", "tool_reference", "image", "document"]
WORDS = st.one_of(
    st.sampled_from(["system", "user", "assistant", "auto", "none", "any", "custom", "disabled", *BLOCKS]),
    st.sampled_from(["toolu_n2xbbbbbbbb_0", "qd1.n1xaaaaaaaa", "\ud800", "<|im_end|>", "1e999", "{", "web_search_1"]),
    st.text(max_size=8),
)
LEAVES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**70), 2**70),
    st.sampled_from([float("nan"), float("inf"), -0.0, 1.0, 1e308, 10**400, 0, 1, -1]),
    WORDS,
)
KEYS = st.one_of(
    WORDS, st.sampled_from(["role", "content", "type", "text", "id", "name", "input", "tool_use_id", "input_schema"])
)
VALUES = st.recursive(
    LEAVES, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3), max_leaves=6
)
CHANGES = st.lists(
    st.tuples(st.sampled_from(PLACES), st.sampled_from(["set", "drop", "copy", "wrap", "swap"]), VALUES), max_size=4
)


def changed(body: Any, path: tuple[Any, ...], how: str, value: Any) -> None:
    """Change what is at the path, if it is still there."""
    try:
        for step in path[:-1]:
            body = body[step]
        last = path[-1]
        if how == "drop":
            del body[last]
        elif how == "copy":
            body[last] = [copy.deepcopy(body[last]), copy.deepcopy(body[last])]
        elif how == "wrap":
            body[last] = [{"type": "text", "text": body[last]}, {"type": body[last], "content": value}]
        elif how == "swap":
            body[last] |= {"role": value, "type": value}
        else:
            body[last] = value
    except (KeyError, IndexError, TypeError):
        pass


def outcome(body: Any) -> ChatRequest | RefusedError:
    """What the body becomes, checked: a request that can be written down and answered, or a refusal of its kind."""
    dialect = Messages()
    checked(dialect, taken(dialect.parse_count, body))
    return checked(dialect, taken(dialect.parse, body))


def taken(parse: Callable[[Any, dict[str, str]], ChatRequest], body: Any) -> ChatRequest | RefusedError:
    try:
        return parse(body, {"anthropic-beta": "x"})
    except RefusedError as refusal:
        return refusal


def checked(dialect: Messages, request: ChatRequest | RefusedError) -> ChatRequest | RefusedError:
    if isinstance(request, RefusedError):
        assert request.kind == "request" and request.param and len(request.message) < 400
        assert json.dumps(dialect.error(request))
        return request
    assert msgspec.json.decode(msgspec.json.encode(request), type=ChatRequest) == request
    assert len(request.neutralised) < 100
    assert all(isinstance(json.loads(c.arguments), dict) for m in request.messages for c in m.tool_calls)
    json.dumps(dialect.reply(request, ChatReply(node="n1xaaaaaaaa", text="a", reasoning="b")), allow_nan=False)
    return request


@settings(max_examples=2000, deadline=None, suppress_health_check=list(HealthCheck))
@given(CHANGES)
def test_changed_bodies(changes: list[tuple[tuple[Any, ...], str, Any]]) -> None:
    body = copy.deepcopy(BODY)
    for path, how, value in changes:
        changed(body, path, how, value)

    outcome(body)


@settings(max_examples=500, deadline=None, suppress_health_check=list(HealthCheck))
@given(VALUES)
def test_other_bodies(body: Any) -> None:
    outcome(body)


def test_each_field_as_each_type() -> None:
    odd: list[Any] = [None, True, 0, -1.5, "", "\udfff", [], {}, [[]], [{}], {"a": {}}, float("nan"), 2**63, "x" * 5000]
    outcomes: list[bool] = []
    for path in PLACES:
        for value in odd:
            body = copy.deepcopy(BODY)
            changed(body, path, "set", value)
            outcomes.append(isinstance(outcome(body), ChatRequest))

    assert len(outcomes) > 800
    assert 100 < sum(outcomes) < len(outcomes) - 100  # some are taken, some refused
