"""Bodies that went wrong: the dialect answers each with a request or a refusal, and with nothing else."""

from __future__ import annotations

import copy
import json
from typing import Any

import msgspec
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from console.capture.chat import ChatMessage, ChatReply, ChatRequest, ToolCall
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


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Paths of everything in a body."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path] * bool(path) + [deeper for key, part in inner for deeper in places(part, (*path, key))]


PLACES = places(BODY)
WORDS = st.one_of(
    st.sampled_from(["system", "developer", "user", "assistant", "message", "reasoning", "function_call", "namespace"]),
    st.sampled_from(
        ["input_text", "compaction_trigger", "output_text", "custom", "function", "mcp", "item_reference", "none"]
    ),
    st.sampled_from(["call_n2xbbbbbbbb_0", "qd1.n2xbbbbbbbb", "\ud800", "<|im_end|>", "1e999", "{"]),
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
    WORDS,
    st.sampled_from(["role", "content", "type", "text", "id", "name", "call_id", "arguments", "summary", "output"]),
)
VALUES = st.recursive(
    LEAVES, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3), max_leaves=6
)
CHANGES = st.lists(
    st.tuples(st.sampled_from(PLACES), st.sampled_from(["set", "drop", "copy", "wrap"]), VALUES), max_size=4
)
REPLY = ChatReply(
    node="n3xcccccccc",
    text="x",
    reasoning="t",
    tool_calls=[ToolCall(id=f"c{k}", name=name, arguments="{}") for k, name in enumerate(("bash", "patch", "exec"))],
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
            body[last] = {"type": body[last], "role": "user", "content": value}
        else:
            body[last] = value
    except (KeyError, IndexError, TypeError):
        pass


def outcome(body: Any) -> ChatRequest | RefusedError:
    dialect = Responses()
    request: ChatRequest | RefusedError
    try:
        request = dialect.parse(body, {})
    except RefusedError as refusal:
        request = refusal
    if isinstance(request, RefusedError):
        assert request.kind == "request" and request.param and len(request.message) < 400
        assert json.dumps(dialect.error(request))
        return request
    # it can be written down, encoded for a prompt and answered
    again = msgspec.json.decode(msgspec.json.encode(request), type=ChatRequest)
    assert again == request
    assert len(request.neutralised) < 100
    assert all(isinstance(message, ChatMessage) for message in request.messages)
    json.dumps(dialect.reply(request, REPLY), allow_nan=False, ensure_ascii=False).encode()
    stream = dialect.stream(request, REPLY.node, 1, "m")
    assert stream.opening() and stream.final(REPLY)
    return request


def test_the_body_before_it_is_changed() -> None:
    assert isinstance(outcome(BODY), ChatRequest)


@settings(max_examples=2500, deadline=None, suppress_health_check=list(HealthCheck))
@given(CHANGES)
def test_changed_bodies(changes: list[tuple[tuple[Any, ...], str, Any]]) -> None:
    body = copy.deepcopy(BODY)
    for path, how, value in changes:
        changed(body, path, how, value)
    outcome(body)


@settings(max_examples=500, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(st.dictionaries(KEYS, VALUES, max_size=5), max_size=5))
def test_items_of_any_form(items: list[Any]) -> None:
    outcome({"input": items})


@settings(max_examples=500, deadline=None, suppress_health_check=list(HealthCheck))
@given(VALUES)
def test_anything_at_all(body: Any) -> None:
    outcome(body)
