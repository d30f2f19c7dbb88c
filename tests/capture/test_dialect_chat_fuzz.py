"""Bodies that went wrong: the dialect answers each with a request or a refusal, and with nothing else."""

from __future__ import annotations

import copy
import json
from typing import Any

import msgspec
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from console.capture.chat import ChatRequest
from console.capture.dialects.chat import Chat
from console.capture.refusals import RefusedError

BODY: dict[str, Any] = {
    "model": "m",
    "messages": [
        {"role": "system", "content": "s"},
        {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]},
        {
            "role": "assistant",
            "content": None,
            "reasoning_content": "r",
            "reasoning_details": [{"type": "reasoning.text", "text": "r", "signature": "qd1.n1xaaaaaaaa"}],
            "tool_calls": [
                {
                    "id": "call_n1xaaaaaaaa_0",
                    "type": "function",
                    "function": {"name": "bash", "arguments": '{"command": "ls"}'},
                }
            ],
        },
        {"role": "tool", "tool_call_id": "call_n1xaaaaaaaa_0", "content": "out"},
        {"role": "assistant", "content": [{"type": "refusal", "refusal": "no"}], "refusal": None},
        {"role": "user", "content": "go on"},
    ],
    "tools": [
        {
            "type": "function",
            "function": {
                "name": "bash",
                "description": "d",
                "strict": True,
                "parameters": {"type": "object", "properties": {"command": {"type": "string"}}},
            },
        }
    ],
    "tool_choice": "auto",
    "parallel_tool_calls": False,
    "max_tokens": 10,
    "max_completion_tokens": 10,
    "temperature": 1.0,
    "top_p": 1.0,
    "top_k": -1,
    "seed": 1,
    "stop": ["a"],
    "n": 1,
    "logprobs": True,
    "top_logprobs": 0,
    "stream": True,
    "stream_options": {"include_usage": True},
    "logit_bias": {},
    "response_format": {"type": "text"},
    "user": "u",
}


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Paths of everything in a body."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path] * bool(path) + [deeper for key, part in inner for deeper in places(part, (*path, key))]


PLACES = places(BODY)
WORDS = st.one_of(
    st.sampled_from(
        ["system", "developer", "user", "assistant", "tool", "function", "text", "refusal", "auto", "none"]
    ),
    st.sampled_from(["call_n2xbbbbbbbb_0", "n1xaaaaaaaa", "\ud800", "<|im_end|>", "1e999", "{"]),
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
    WORDS, st.sampled_from(["role", "content", "type", "text", "id", "name", "function", "arguments", "summary"])
)
VALUES = st.recursive(
    LEAVES, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3), max_leaves=6
)
CHANGES = st.lists(
    st.tuples(st.sampled_from(PLACES), st.sampled_from(["set", "drop", "copy", "wrap"]), VALUES), max_size=4
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
            body[last] = {"role": body[last], "content": value}
        else:
            body[last] = value
    except (KeyError, IndexError, TypeError):
        pass


def outcome(body: Any) -> ChatRequest | RefusedError:
    dialect = Chat()
    request: ChatRequest | RefusedError
    try:
        request = dialect.parse(body, {})
    except RefusedError as refusal:
        request = refusal
    if isinstance(request, RefusedError):
        assert request.kind == "request" and request.param and len(request.message) < 400
        assert json.dumps(dialect.error(request))
        return request
    # it can be written down, and nothing in it is what `chat.py` does not say it is
    again = msgspec.json.decode(msgspec.json.encode(request), type=ChatRequest)
    assert again == request
    assert len(request.neutralised) < 100
    return request


@settings(max_examples=3000, deadline=None, suppress_health_check=list(HealthCheck))
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
