"""What goes back in Chat Completions: whole replies, streams, errors and the list of models, byte by byte."""

from __future__ import annotations

import json
from typing import Any, get_args

import pytest

from console.capture import ids
from console.capture.chat import ChatMessage, ChatReply, ChatRequest, ToolCall
from console.capture.dialects import sse
from console.capture.dialects.chat import Chat
from console.capture.refusals import RefusalKind, RefusedError, overflow

NODE = "n3xabcdef01"
CALLS = [
    ToolCall(id=ids.tool_call_id(NODE, 0), name="bash", arguments='{"command": "ls"}'),
    ToolCall(id=ids.tool_call_id(NODE, 1), name="bash", arguments="{}"),
]
USAGE = {
    "prompt_tokens": 120,
    "completion_tokens": 30,
    "total_tokens": 150,
    "prompt_tokens_details": {"cached_tokens": 100, "audio_tokens": 0},
    "completion_tokens_details": {
        "reasoning_tokens": 8,
        "audio_tokens": 0,
        "accepted_prediction_tokens": 0,
        "rejected_prediction_tokens": 0,
    },
}


def request(**fields: Any) -> ChatRequest:
    return ChatRequest(dialect="chat", model="m", messages=[ChatMessage(role="user", text="hi")], **fields)


def reply(**fields: Any) -> ChatReply:
    counts = {"prompt_tokens": 120, "cached_tokens": 100, "sampled_tokens": 30, "reasoning_tokens": 8}
    return ChatReply(**{"node": NODE, "created": 1_700_000_000.9, "model": "policy", **counts, **fields})


def chunks(data: bytes) -> list[dict[str, Any]]:
    """Events of a stream; the last one must be its end."""
    *events, end, nothing = data.decode("ascii").split("\n\n")
    assert (end, nothing) == ("data: [DONE]", "")
    return [json.loads(event.removeprefix("data: ")) for event in events]


def streamed(asked: ChatRequest, said: ChatReply) -> list[dict[str, Any]]:
    stream = Chat().stream(asked, NODE, 120, "policy")
    return chunks(stream.opening() + stream.final(said))


def test_whole_reply() -> None:
    body = Chat().reply(request(), reply(text="look", reasoning="hm", tool_calls=CALLS, stop="tool_calls"))

    assert body == {
        "id": f"chatcmpl-{NODE}",
        "object": "chat.completion",
        "created": 1_700_000_000,
        "model": "policy",
        "choices": [
            {
                "index": 0,
                "message": {
                    "role": "assistant",
                    "content": "look",
                    "refusal": None,
                    "reasoning_content": "hm",
                    "tool_calls": [
                        {"id": c.id, "type": "function", "function": {"name": c.name, "arguments": c.arguments}}
                        for c in CALLS
                    ],
                },
                "logprobs": None,
                "finish_reason": "tool_calls",
            }
        ],
        "usage": USAGE,
        "service_tier": "default",
        "system_fingerprint": None,
    }


@pytest.mark.parametrize(
    ("fields", "content", "reasoning", "has_calls"),
    [
        ({"text": "x"}, "x", None, False),
        ({}, "", None, False),
        ({"reasoning": "r"}, "", "r", False),
        ({"tool_calls": CALLS}, None, None, True),
        ({"text": "<think>a</think>b"}, "<think>a</think>b", None, False),
    ],
)
def test_content_of_a_reply(
    fields: dict[str, Any], content: str | None, reasoning: str | None, has_calls: bool
) -> None:
    message = Chat().reply(request(), reply(**fields))["choices"][0]["message"]

    assert message["content"] == content
    assert message["reasoning_content"] == reasoning
    assert ("tool_calls" in message) is has_calls


@pytest.mark.parametrize("stop", ["stop", "length", "tool_calls"])
def test_why_it_ended(stop: Any) -> None:
    said = reply(text="x", stop=stop)

    assert Chat().reply(request(), said)["choices"][0]["finish_reason"] == stop
    reasons = [chunk["choices"][0]["finish_reason"] for chunk in streamed(request(stream=True), said)]
    assert reasons == [None, None, stop]


def test_log_probs_when_asked_for() -> None:
    said = reply(text="né", token_logprobs=[("n", -0.5), ("\ufffd", -1.0), ("é", 0.0)])
    expected = {
        "content": [
            {"token": "n", "logprob": -0.5, "bytes": [110], "top_logprobs": []},
            {"token": "\ufffd", "logprob": -1.0, "bytes": None, "top_logprobs": []},
            {"token": "é", "logprob": 0.0, "bytes": [195, 169], "top_logprobs": []},
        ],
        "refusal": None,
    }

    assert Chat().reply(request(logprobs=True), said)["choices"][0]["logprobs"] == expected
    assert Chat().reply(request(), said)["choices"][0]["logprobs"] is None
    inside = [c["choices"][0]["logprobs"] for c in streamed(request(stream=True, logprobs=True), said)]
    assert [one for one in inside if one is not None] == [expected]  # once, however many chunks there are
    empty = [c["choices"][0]["logprobs"] for c in streamed(request(stream=True, logprobs=True), reply())]
    assert [one for one in empty if one is not None] == [{"content": [], "refusal": None}]


def test_stream() -> None:
    said = reply(text="look", reasoning="hm", tool_calls=CALLS, stop="tool_calls")
    events = streamed(request(stream=True, stream_usage=True), said)

    assert [event["choices"][0]["delta"] for event in events[:-1]] == [
        {"role": "assistant", "content": ""},
        {"reasoning_content": "hm"},
        {"content": "look"},
        *[
            {
                "tool_calls": [
                    {"index": i, "id": c.id, "type": "function", "function": {"name": c.name, "arguments": c.arguments}}
                ]
            }
            for i, c in enumerate(CALLS)
        ],
        {},
    ]
    assert all(event["usage"] is None for event in events[:-1])
    assert (events[-1]["choices"], events[-1]["usage"]) == ([], USAGE)
    heads = {(e["id"], e["object"], e["model"], e["created"], e["service_tier"]) for e in events}
    assert len(heads) == 1
    assert next(iter(heads))[:3] == (f"chatcmpl-{NODE}", "chat.completion.chunk", "policy")


def test_no_usage_unless_asked_for() -> None:
    events = streamed(request(stream=True), reply(text="x"))

    assert len(events) == 3
    assert not any("usage" in event for event in events)


def test_empty_reply_as_a_stream() -> None:
    assert [e["choices"][0]["delta"] for e in streamed(request(stream=True), reply())] == [
        {"role": "assistant", "content": ""},
        {},
    ]


def test_nothing_in_a_text_breaks_the_framing() -> None:
    text = "a\n\ndata: [DONE]\n\n\u2028\u2029\x85\x0b\x0c\x1c\r\x00é\U0001f600 \ufeff"
    stream = Chat().stream(request(stream=True), NODE, 120, "policy")
    data = stream.final(reply(text=text))

    assert data.isascii() and data.count(b"[DONE]") == 1 and b"\r" not in data
    assert chunks(data)[0]["choices"][0]["delta"] == {"content": text}


def test_keepalive_is_a_comment_within_the_next_event() -> None:
    stream = Chat().stream(request(stream=True), NODE, 120, "policy")

    assert stream.keepalive() == b": keepalive\n"
    assert stream.opening().endswith(b"\n\n")


def test_a_number_that_is_not_finite_is_never_sent() -> None:
    with pytest.raises(ValueError, match="JSON"):
        sse.event({"x": float("nan")})


def test_failure_in_a_stream() -> None:
    stream = Chat().stream(request(stream=True), NODE, 120, "policy")

    [event] = chunks(stream.failure(RefusedError("backend", "the policy's gateway failed")))
    assert event == {
        "error": {
            "message": "the policy's gateway failed",
            "type": "server_error",
            "param": None,
            "code": "service_unavailable",
        }
    }


def test_every_kind_of_refusal_has_an_error() -> None:
    for kind in get_args(RefusalKind):
        refusal = RefusedError(kind, "words", param="x")
        error = Chat().error(refusal)["error"]
        assert (error["message"], error["param"], sorted(error)) == ("words", "x", ["code", "message", "param", "type"])
        assert (error["type"] == "server_error") is (refusal.status >= 499)


def test_overflow_in_the_words_that_are_known() -> None:
    error = Chat().error(overflow(70_000, 65_536))["error"]

    assert error["message"].split("\n") == [
        "This model's maximum context length is 65536 tokens.",
        "prompt is too long: 70000 tokens > 65536 maximum",
    ]
    assert (error["type"], error["code"], error["param"]) == (
        "invalid_request_error",
        "context_length_exceeded",
        "messages",
    )


def test_models() -> None:
    assert Chat().models("policy") == {
        "object": "list",
        "data": [{"id": "policy", "object": "model", "created": 0, "owned_by": "quarterdeck"}],
    }


def test_what_was_said_comes_back_as_it_was() -> None:
    """An agent that sends a reply back word for word names its sample."""
    said = reply(text="look", reasoning="hm", tool_calls=CALLS, stop="tool_calls")
    message = Chat().reply(request(), said)["choices"][0]["message"]

    again = Chat().parse({"messages": [{"role": "user", "content": "hi"}, message]}, {}).messages[1]

    assert again == ChatMessage(role="assistant", text="look", reasoning="hm", tool_calls=CALLS, node=NODE)
