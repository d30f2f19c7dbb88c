"""Replies of the Anthropic dialect, whole and as events, and the bodies of its errors."""

from __future__ import annotations

import json
from typing import Any, get_args

import pytest

from console.capture.chat import ChatReply, ChatRequest, ToolCall
from console.capture.dialects.messages import Messages
from console.capture.refusals import RefusalKind, RefusedError, overflow

NODE = "n3xcccccccc"
LS = ToolCall(id="call_0", name="bash", arguments='{"command": "ls"}')
PWD = ToolCall(id="call_1", name="bash", arguments='{"b": [1, null], "a": "é\\u2028"}')
ODD = "a\u2028b\u0085c\n\ndata: x\n\nevent: ping\n\n é\U0001f600 "

THINK = {"type": "thinking", "thinking": "hm", "signature": f"qd1.{NODE}"}
USE = {"type": "tool_use", "id": f"toolu_{NODE}_0", "name": "bash", "input": {"command": "ls"}}
USE_1 = {"type": "tool_use", "id": f"toolu_{NODE}_1", "name": "bash", "input": {"b": [1, None], "a": "é\u2028"}}
EMPTY = {"type": "text", "text": ""}


def text(said: str) -> dict[str, Any]:
    return {"type": "text", "text": said}


# a reply; its blocks, its stop reason, its stop sequence
REPLIES: list[tuple[dict[str, Any], list[dict[str, Any]], str, str | None]] = [
    ({"text": "hi"}, [text("hi")], "end_turn", None),
    ({"text": ODD}, [text(ODD)], "end_turn", None),
    ({"text": "hi", "reasoning": "hm"}, [THINK, text("hi")], "end_turn", None),
    ({"reasoning": "hm"}, [THINK], "end_turn", None),
    ({"reasoning": "hm", "stop": "length"}, [THINK], "max_tokens", None),
    ({"text": "cut o", "stop": "length"}, [text("cut o")], "max_tokens", None),
    ({}, [EMPTY], "end_turn", None),
    ({"stop": "length"}, [EMPTY], "max_tokens", None),
    ({"text": "\n\n"}, [text("\n\n")], "end_turn", None),
    ({"text": "\n\n", "reasoning": "hm"}, [THINK], "end_turn", None),
    ({"text": "hi\n\n", "tool_calls": [LS], "stop": "tool_calls"}, [text("hi\n\n"), USE], "tool_use", None),
    ({"tool_calls": [LS, PWD], "stop": "tool_calls"}, [USE, USE_1], "tool_use", None),
    ({"text": "\n\n", "tool_calls": [LS], "stop": "tool_calls"}, [USE], "tool_use", None),
    ({"reasoning": "hm", "text": "hi", "tool_calls": [LS, PWD], "stop": "tool_calls"},
     [THINK, text("hi"), USE, USE_1], "tool_use", None),
    ({"text": "hi", "tool_calls": [LS], "stop": "length"}, [text("hi"), USE], "max_tokens", None),
    ({"text": "hi", "stop_string": "END"}, [text("hi")], "stop_sequence", "END"),
    ({"text": "hi", "stop": "length", "stop_string": ""}, [text("hi")], "max_tokens", None),
    ({"tool_calls": [LS], "stop": "tool_calls", "stop_string": "END"}, [USE], "tool_use", None),
]  # fmt: skip


def reply(**fields: Any) -> ChatReply:
    counts = {"prompt_tokens": 100, "cached_tokens": 90, "sampled_tokens": 20, "reasoning_tokens": 5}
    return ChatReply(node=NODE, model="policy", **counts | fields)


def events(data: bytes) -> list[dict[str, Any]]:
    """The data of each event, whose name must be its type."""
    found = []
    for block in data.decode("ascii").split("\n\n")[:-1]:
        name, body = block.split("\n")
        assert name.startswith("event: ") and body.startswith("data: ")
        found.append(json.loads(body.removeprefix("data: ")))
        assert found[-1]["type"] == name.removeprefix("event: ")
    return found


def put_together(data: bytes) -> dict[str, Any]:
    """The message that a client makes of a stream; checks the events' order."""
    first, *rest = [event for event in events(data) if event["type"] != "ping"]
    assert first["type"] == "message_start"
    whole: dict[str, Any] = first["message"]
    assert whole["content"] == [] and whole["stop_reason"] is None
    for event in rest[:-2]:
        if event["type"] == "content_block_start":
            assert event["index"] == len(whole["content"])
            whole["content"].append(event["content_block"] | {"json": "", "open": True})
            continue
        block = whole["content"][event["index"]]
        assert event["index"] == len(whole["content"]) - 1 and block["open"]
        if event["type"] == "content_block_stop":
            block["open"] = False
            continue
        delta = event["delta"]
        key = {"text_delta": "text", "thinking_delta": "thinking", "signature_delta": "signature",
               "input_json_delta": "json"}[delta["type"]]  # fmt: skip
        block[key] += delta[{"json": "partial_json"}.get(key, key)]
    assert [event["type"] for event in rest[-2:]] == ["message_delta", "message_stop"]
    for block in whole["content"]:
        assert not block.pop("open")
        arguments = block.pop("json")
        if block["type"] == "tool_use":
            block["input"] = json.loads(arguments)
    whole |= rest[-2]["delta"]
    whole["usage"] |= rest[-2]["usage"]
    return whole


@pytest.mark.parametrize(("fields", "blocks", "reason", "sequence"), REPLIES)
def test_a_reply_is_the_same_whole_and_streamed(
    fields: dict[str, Any], blocks: list[dict[str, Any]], reason: str, sequence: str | None
) -> None:
    dialect, request, said = Messages(), ChatRequest(dialect="messages", model="claude-x"), reply(**fields)

    body = dialect.reply(request, said)
    stream = dialect.stream(request, NODE, 100, "policy")
    data = stream.opening() + stream.keepalive() + stream.final(said)

    assert body == put_together(data)
    assert body["content"] == blocks
    assert (body["stop_reason"], body["stop_sequence"]) == (reason, sequence)
    assert (body["id"], body["type"], body["role"], body["model"]) == (
        f"msg_{NODE}", "message", "assistant", "claude-x",
    )  # fmt: skip
    json.dumps(body, allow_nan=False)


def test_the_policys_name_stands_in_for_a_model_that_was_not_named() -> None:
    request = ChatRequest(dialect="messages")
    assert Messages().reply(request, reply(text="hi"))["model"] == "policy"
    assert b'"model":"policy"' in Messages().stream(request, NODE, 1, "policy").opening()


def test_no_thoughts_for_an_agent_that_switched_them_off() -> None:
    dialect = Messages()
    body = {"max_tokens": 5, "messages": [{"role": "user", "content": "hi"}], "thinking": {"type": "disabled"}}
    request = dialect.parse(body, {})
    assert dialect.reply(request, reply(text="hi", reasoning="hm"))["content"] == [text("hi")]
    assert b"hm" not in dialect.stream(request, NODE, 1, "m").final(reply(text="hi", reasoning="hm"))
    assert dialect.reply(request, reply(reasoning="hm"))["content"] == [EMPTY]


@pytest.mark.parametrize(
    ("prompt", "cached", "fresh", "read"),
    [(100, 0, 100, 0), (100, 90, 10, 90), (100, 100, 1, 99), (100, 500, 1, 99), (1, 1, 1, 0), (0, 0, 0, 0)],
)
def test_input_and_cache_add_up_to_the_prompt(prompt: int, cached: int, fresh: int, read: int) -> None:
    """A stream's counts replace those of its beginning only where they are above zero, in claude-code."""
    dialect, request = Messages(), ChatRequest(dialect="messages")
    said = reply(text="hi", prompt_tokens=prompt, cached_tokens=cached)
    stream = dialect.stream(request, NODE, prompt, "m")
    first, last = events(stream.opening())[0]["message"]["usage"], events(stream.final(said))[-2]["usage"]
    for usage in (dialect.reply(request, said)["usage"], last):
        assert (usage["input_tokens"], usage["cache_read_input_tokens"]) == (fresh, read)
        assert (usage["output_tokens"], usage["output_tokens_details"]["thinking_tokens"]) == (20, 5)
        assert usage["cache_creation_input_tokens"] == sum(usage["cache_creation"].values()) == 0
        assert usage["service_tier"] == "standard"
    assert (first["input_tokens"], first["cache_read_input_tokens"], first["output_tokens"]) == (prompt, 0, 0)


ERRORS: dict[RefusalKind, str] = {
    "request": "invalid_request_error", "overflow": "invalid_request_error", "budget": "rate_limit_error",
    "auth": "authentication_error", "early": "api_error", "sealed": "permission_error",
    "not_found": "not_found_error", "method": "invalid_request_error", "too_large": "request_too_large",
    "media": "invalid_request_error", "busy": "rate_limit_error", "backend": "overloaded_error",
    "no_logprobs": "overloaded_error", "capture": "overloaded_error", "cancelled": "api_error",
}  # fmt: skip


@pytest.mark.parametrize("kind", get_args(RefusalKind))
def test_an_error_has_its_type(kind: RefusalKind) -> None:
    refusal = RefusedError(kind, "the words")
    expected = {"type": "error", "error": {"type": ERRORS[kind], "message": "the words"}}
    assert Messages().error(refusal) == expected
    stream = Messages().stream(ChatRequest(dialect="messages"), NODE, 1, "m")
    assert events(stream.failure(refusal)) == [expected]


def test_an_overflow_has_the_words_that_harbor_and_claude_code_know() -> None:
    body = Messages().error(overflow(70_000, 65_536))
    assert body["error"]["message"] == "prompt is too long: 70000 tokens > 65536 maximum"


def test_there_is_one_model() -> None:
    page = Messages().models("policy")
    assert [entry["id"] for entry in page["data"]] == ["policy"]
    assert (page["has_more"], page["first_id"], page["last_id"]) == (False, "policy", "policy")
