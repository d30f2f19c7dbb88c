"""Bodies that went wrong: the dialect answers each with a request or a refusal, and with nothing else."""

from __future__ import annotations

from typing import Any

from body_fuzz import Change, Spoiler, checked, examples, values, words
from hypothesis import given
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

WORDS = words(
    ["system", "developer", "user", "assistant", "tool", "function", "text", "refusal", "auto", "none"],
    ["call_n2xbbbbbbbb_0", "n1xaaaaaaaa"],
)
KEYS = WORDS | st.sampled_from(["role", "content", "type", "text", "id", "name", "function", "arguments", "summary"])
VALUES = values(KEYS, WORDS)
SPOILER = Spoiler(BODY, {"wrap": lambda old, value: {"role": old, "content": value}})


def outcome(body: Any) -> ChatRequest | RefusedError:
    dialect = Chat()
    return checked(dialect, lambda body: dialect.parse(body, {}), body)


@examples(3000)
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
