"""Bodies that went wrong: the Anthropic dialect answers each with a request or a refusal, and with nothing else."""

from __future__ import annotations

import json
from typing import Any

from body_fuzz import Change, Spoiler, checked, examples, values, words
from hypothesis import given
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

BLOCKS = ["text", "thinking", "redacted_thinking", "tool_use", "tool_result", "tool_reference", "image", "document"]
WORDS = words(
    ["system", "user", "assistant", "auto", "none", "any", "custom", "disabled", *BLOCKS],
    ["toolu_n2xbbbbbbbb_0", "qd1.n1xaaaaaaaa", "web_search_1"],
)
KEYS = WORDS | st.sampled_from(
    ["role", "content", "type", "text", "id", "name", "input", "tool_use_id", "input_schema"]
)
VALUES = values(KEYS, WORDS)
SPOILER = Spoiler(
    BODY,
    {
        "wrap": lambda old, value: [{"type": "text", "text": old}, {"type": old, "content": value}],
        "swap": lambda old, value: old | {"role": value, "type": value},
    },
)


def outcome(body: Any) -> ChatRequest | RefusedError:
    """What the body becomes: a request that can be answered too, or a refusal."""
    dialect = Messages()
    for parse in (dialect.parse_count, dialect.parse):
        request = checked(dialect, lambda body, parse=parse: parse(body, {"anthropic-beta": "x"}), body)
        if isinstance(request, ChatRequest):
            assert all(isinstance(json.loads(c.arguments), dict) for m in request.messages for c in m.tool_calls)
            json.dumps(dialect.reply(request, ChatReply(node="n1xaaaaaaaa", text="a", reasoning="b")), allow_nan=False)
    return request


@examples(2000)
@given(SPOILER.changes(VALUES))
def test_changed_bodies(changes: list[Change]) -> None:
    outcome(SPOILER.changed(changes))


@examples(500)
@given(VALUES)
def test_other_bodies(body: Any) -> None:
    outcome(body)


def test_each_field_as_each_type() -> None:
    taken = [isinstance(outcome(body), ChatRequest) for body in SPOILER.odd()]
    assert len(taken) > 800
    assert 100 < sum(taken) < len(taken) - 100  # some are taken, some refused
