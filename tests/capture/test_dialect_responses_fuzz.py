"""Bodies that went wrong: the dialect answers each with a request or a refusal, and with nothing else."""

from __future__ import annotations

import json
from typing import Any

from body_fuzz import Change, Spoiler, checked, examples, values, words
from hypothesis import given
from hypothesis import strategies as st

from console.capture.chat import ChatReply, ChatRequest, ToolCall
from console.capture.dialects.responses import Responses
from console.capture.refusals import RefusedError

BODY: dict[str, Any] = {
    "model": "m",
    "instructions": "i",
    "input": [
        {"type": "additional_tools", "role": "developer", "tools": [{"type": "custom", "name": "exec"}]},
        {"type": "message", "role": "developer", "content": [{"type": "input_text", "text": "d"}]},
        {"role": "user", "content": "hi"},
        {
            "type": "reasoning",
            "id": "rs_n1xaaaaaaaa",
            "summary": [{"type": "summary_text", "text": "t"}],
            "content": [{"type": "reasoning_text", "text": "t"}],
            "encrypted_content": "qd1.n1xaaaaaaaa",
        },
        {
            "type": "message",
            "id": "msg_n1xaaaaaaaa",
            "role": "assistant",
            "content": [{"type": "output_text", "text": "a", "annotations": []}],
        },
        {
            "type": "function_call",
            "id": "fc_n1xaaaaaaaa_0",
            "call_id": "call_n1xaaaaaaaa_0",
            "namespace": "agents",
            "name": "bash",
            "arguments": '{"command": "ls"}',
        },
        {"type": "function_call_output", "call_id": "call_n1xaaaaaaaa_0", "output": "out"},
        {"type": "custom_tool_call", "call_id": "call_n1xaaaaaaaa_1", "name": "patch", "input": "x"},
        {
            "type": "custom_tool_call_output",
            "call_id": "call_n1xaaaaaaaa_1",
            "output": [{"type": "input_text", "text": "a"}, {"type": "input_image", "image_url": "data:"}],
        },
        {"type": "local_shell_call", "call_id": "c", "action": {"type": "exec", "command": ["ls"]}},
        {"type": "compaction", "encrypted_content": "qd1.n1xaaaaaaaa\nsummary"},
        {"type": "agent_message", "content": [{"type": "encrypted_content", "encrypted_content": "x"}]},
    ],
    "tools": [
        {"type": "function", "name": "bash", "description": "d", "strict": True, "parameters": {"type": "object"}},
        {"type": "custom", "name": "patch", "format": {"type": "grammar", "syntax": "lark", "definition": "d"}},
        {"type": "namespace", "name": "agents", "description": "d", "tools": [{"type": "function", "name": "bash"}]},
        {"type": "web_search", "external_web_access": True},
    ],
    "tool_choice": "auto",
    "parallel_tool_calls": False,
    "max_output_tokens": 10,
    "temperature": 1.0,
    "top_p": 1.0,
    "top_k": -1,
    "seed": 1,
    "top_logprobs": 0,
    "stream": True,
    "stream_options": {"include_obfuscation": False},
    "text": {"format": {"type": "text"}, "verbosity": "low"},
    "reasoning": {"effort": "low", "summary": "auto"},
    "include": ["reasoning.encrypted_content"],
    "store": False,
    "background": False,
    "truncation": "disabled",
    "metadata": {"a": "b"},
    "client_metadata": {"x-codex-turn-metadata": "{}"},
    "service_tier": "auto",
}

WORDS = words(
    ["system", "developer", "user", "assistant", "message", "reasoning", "function_call", "namespace"],
    ["input_text", "compaction_trigger", "output_text", "custom", "function", "mcp", "item_reference", "none"],
    ["call_n2xbbbbbbbb_0", "qd1.n2xbbbbbbbb"],
)
KEYS = WORDS | st.sampled_from(
    ["role", "content", "type", "text", "id", "name", "call_id", "arguments", "summary", "output"]
)
VALUES = values(KEYS, WORDS)
SPOILER = Spoiler(BODY, {"wrap": lambda old, value: {"type": old, "role": "user", "content": value}})
REPLY = ChatReply(
    node="n3xcccccccc",
    text="x",
    reasoning="t",
    tool_calls=[ToolCall(id=f"c{k}", name=name, arguments="{}") for k, name in enumerate(("bash", "patch", "exec"))],
)


def outcome(body: Any) -> ChatRequest | RefusedError:
    """What the body becomes: a request that can be answered too, or a refusal."""
    dialect = Responses()
    request = checked(dialect, lambda body: dialect.parse(body, {}), body)
    if isinstance(request, ChatRequest):
        json.dumps(dialect.reply(request, REPLY), allow_nan=False, ensure_ascii=False).encode()
        stream = dialect.stream(request, REPLY.node, 1, "m")
        assert stream.opening() and stream.final(REPLY)
    return request


def test_the_body_before_it_is_changed() -> None:
    assert isinstance(outcome(BODY), ChatRequest)


@examples(2500)
@given(SPOILER.changes(VALUES))
def test_changed_bodies(changes: list[Change]) -> None:
    outcome(SPOILER.changed(changes))


@examples(500)
@given(st.lists(st.dictionaries(KEYS, VALUES, max_size=5), max_size=5))
def test_items_of_any_form(items: list[Any]) -> None:
    outcome({"input": items})


@examples(500)
@given(VALUES)
def test_anything_at_all(body: Any) -> None:
    outcome(body)
