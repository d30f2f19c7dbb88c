"""Replies of the Responses API: the object, the events of a stream, and that a replay leads back to the sample."""

from __future__ import annotations

import json
from typing import Any

import pytest
from openai.types.responses import Response, ResponseStreamEvent
from pydantic import TypeAdapter

from console.capture import ids
from console.capture.chat import ChatMessage, ChatReply, ChatRequest, ToolCall
from console.capture.dialects import sse
from console.capture.dialects.responses import Responses
from console.capture.refusals import RefusalKind, RefusedError, bad_request, overflow

NODE = "n3xcccccccc"
TOOLS: list[dict[str, Any]] = [
    {"type": "function", "name": "bash", "parameters": {"type": "object", "properties": {}}, "strict": None},
    {"type": "custom", "name": "patch"},
    {"type": "namespace", "name": "agents", "description": "", "tools": [{"type": "function", "name": "spawn"}]},
]
CALLS = [
    ToolCall(id=ids.tool_call_id(NODE, 0), name="bash", arguments='{"command":"ls"}'),
    ToolCall(id=ids.tool_call_id(NODE, 1), name="patch", arguments='{"input": "*** é\\n"}'),
    ToolCall(id=ids.tool_call_id(NODE, 2), name="agents__spawn", arguments="{}"),
    ToolCall(id=ids.tool_call_id(NODE, 3), name="nobody_knows", arguments="{}"),
]
COUNTS: dict[str, Any] = {"prompt_tokens": 50, "cached_tokens": 30, "sampled_tokens": 7, "reasoning_tokens": 2}
EVENTS: TypeAdapter[Any] = TypeAdapter(ResponseStreamEvent)


def request(**body: Any) -> ChatRequest:
    return Responses().parse({"model": "m", "input": "hi", "tools": TOOLS, **body}, {})


def reply(**fields: Any) -> ChatReply:
    return ChatReply(node=NODE, created=1700000000.5, model="policy", **COUNTS, **fields)


def events(data: bytes) -> list[dict[str, Any]]:
    found = []
    for block in data.decode("ascii").replace(sse.KEEPALIVE.decode(), "").split("\n\n"):
        if block:
            name, body = block.split("\n")
            event = json.loads(body.removeprefix("data: "))
            assert name == f"event: {event['type']}"
            found.append(event)
    return found


def streamed(asked: ChatRequest, given: ChatReply | RefusedError) -> list[dict[str, Any]]:
    stream = Responses().stream(asked, NODE, 50, "policy")
    data = stream.opening() + stream.keepalive()
    return events(data + (stream.failure(given) if isinstance(given, RefusedError) else stream.final(given)))


def replayed(output: list[dict[str, Any]]) -> list[ChatMessage]:
    return Responses().parse({"input": [{"role": "user", "content": "hi"}, *output]}, {}).messages[1:]


REPLIES = [
    reply(text="done"),
    reply(text=""),
    reply(text="two\n\nlines \u2028 é\U0001f600", reasoning="I think\n\nso"),
    reply(reasoning="only thoughts"),
    reply(text="and", reasoning="t", tool_calls=CALLS, stop="tool_calls"),
    reply(tool_calls=CALLS, stop="tool_calls"),
    reply(text="cut", stop="length"),
    reply(reasoning="cut", stop="length"),
    reply(tool_calls=CALLS[:1], stop="length"),
]


@pytest.mark.parametrize("given", REPLIES)
@pytest.mark.parametrize("summary", [None, "auto"])
def test_what_is_replayed_is_what_was_said(given: ChatReply, summary: str | None) -> None:
    asked = request(reasoning={"summary": summary})
    for output in (Responses().reply(asked, given)["output"], streamed(asked, given)[-1]["response"]["output"]):
        (message,) = replayed(output)
        assert (message.node, message.text, message.reasoning) == (NODE, given.text, given.reasoning)
        assert [(call.id, call.name) for call in message.tool_calls] == [(c.id, c.name) for c in given.tool_calls]
        for back, call in zip(message.tool_calls, given.tool_calls, strict=True):
            assert json.loads(back.arguments) == json.loads(call.arguments)


@pytest.mark.parametrize("given", REPLIES)
def test_each_item_alone_leads_back(given: ChatReply) -> None:
    for item in Responses().reply(request(), given)["output"]:
        (message,) = replayed([item])
        assert message.node == NODE


@pytest.mark.parametrize("given", REPLIES)
def test_stream_and_object_agree(given: ChatReply) -> None:
    asked = request(reasoning={"summary": "auto"}, instructions="i", metadata={"a": "b"}, temperature=0.5)
    whole, parts = Responses().reply(asked, given), streamed(asked, given)
    assert [event["sequence_number"] for event in parts] == list(range(len(parts)))
    assert [event["type"] for event in parts[:2]] == ["response.created", "response.in_progress"]
    assert all(event["response"]["status"] == "in_progress" for event in parts[:2])
    assert all(event["response"]["id"] == f"resp_{NODE}" for event in [*parts[:2], parts[-1]])
    last = parts[-1]["response"]
    times = {"created_at", "completed_at"}
    assert {k: v for k, v in last.items() if k not in times} == {k: v for k, v in whole.items() if k not in times}
    assert parts[-1]["type"] == f"response.{whole['status']}"
    # the events alone make up the same items
    made: list[dict[str, Any]] = []
    finished: list[dict[str, Any]] = []
    for event in parts:
        match event["type"].removeprefix("response."):
            case "output_item.added":
                made.append(event["item"] | {"content": [], "summary": []})
            case "content_part.added":
                made[event["output_index"]]["content"].append(event["part"])
            case "reasoning_summary_part.added":
                made[event["output_index"]]["summary"].append(event["part"])
            case "output_text.delta" | "reasoning_text.delta":
                made[event["output_index"]]["content"][event["content_index"]]["text"] += event["delta"]
            case "reasoning_summary_text.delta":
                made[event["output_index"]]["summary"][event["summary_index"]]["text"] += event["delta"]
            case "function_call_arguments.delta":
                made[event["output_index"]]["arguments"] += event["delta"]
            case "custom_tool_call_input.delta":
                made[event["output_index"]]["input"] += event["delta"]
            case "output_item.done":
                item, built = event["item"], made[event["output_index"]]
                assert built | {"status": item["status"]} == {"content": [], "summary": []} | item
                assert built["status"] == "in_progress"
                finished.append(item)
            case "output_text.done" | "reasoning_text.done":
                assert event["text"] == made[event["output_index"]]["content"][event["content_index"]]["text"]
            case "function_call_arguments.done":
                built = made[event["output_index"]]
                assert (event["arguments"], event["name"]) == (built["arguments"], built["name"])
            case "custom_tool_call_input.done":
                assert event["input"] == made[event["output_index"]]["input"]
    assert finished == whole["output"]


@pytest.mark.parametrize("given", REPLIES)
def test_the_sdk_takes_them_as_they_are(given: ChatReply) -> None:
    asked = request(reasoning={"summary": "auto"}, tools=TOOLS[:2])  # the SDK's namespaces want a description
    Response.model_validate(Responses().reply(asked, given))
    for event in streamed(asked, given):
        EVENTS.validate_python(event)


def test_fields_of_a_response() -> None:
    asked = request(
        instructions="be brief", temperature=0.5, top_p=0.9, max_output_tokens=99, metadata={"a": "b"},
        parallel_tool_calls=False, text={"verbosity": "low"}, reasoning={"effort": "low"}, user="u",
    )  # fmt: skip
    body = Responses().reply(asked, reply(text="x"))
    assert {key: body[key] for key in ("id", "object", "created_at", "status", "model", "error")} == {
        "id": f"resp_{NODE}",
        "object": "response",
        "created_at": 1700000000,
        "status": "completed",
        "model": "policy",
        "error": None,
    }
    assert (body["instructions"], body["tools"], body["tool_choice"]) == ("be brief", TOOLS, "auto")
    assert (body["temperature"], body["top_p"], body["max_output_tokens"]) == (0.5, 0.9, 99)
    assert (body["metadata"], body["parallel_tool_calls"], body["store"]) == ({"a": "b"}, False, False)
    assert (body["text"]["verbosity"], body["reasoning"]["effort"], body["incomplete_details"]) == ("low", "low", None)
    assert body["usage"] == {
        "input_tokens": 50,
        "input_tokens_details": {"cached_tokens": 30, "cache_write_tokens": 0},
        "output_tokens": 7,
        "output_tokens_details": {"reasoning_tokens": 2},
        "total_tokens": 57,
    }
    assert Response.model_fields.keys() - body.keys() <= {
        "conversation", "moderation", "prompt", "prompt_cache_options", "prompt_cache_retention",
    }  # fmt: skip


def test_a_reply_that_was_cut_off_is_incomplete() -> None:
    body = Responses().reply(request(), reply(text="cut", reasoning="t", stop="length"))
    assert (body["status"], body["incomplete_details"]) == ("incomplete", {"reason": "max_output_tokens"})
    assert [item["status"] for item in body["output"]] == ["completed", "incomplete"]
    assert body["completed_at"] is None


def test_calls_go_back_in_the_form_of_their_tool() -> None:
    plain, custom, nested, strange = Responses().reply(request(), reply(tool_calls=CALLS))["output"]
    assert plain == {
        "id": f"fc_{NODE}_0",
        "call_id": f"call_{NODE}_0",
        "type": "function_call",
        "name": "bash",
        "arguments": '{"command":"ls"}',
        "status": "completed",
    }
    assert (custom["type"], custom["name"], custom["input"]) == ("custom_tool_call", "patch", "*** é\n")
    assert "arguments" not in custom
    assert (nested["type"], nested["namespace"], nested["name"]) == ("function_call", "agents", "spawn")
    assert (strange["type"], strange["name"]) == ("function_call", "nobody_knows")
    assert "namespace" not in strange


@pytest.mark.parametrize("arguments", ["{}", '{"input": 1}', "[]", "{broken", '{"text": "x"}'])
def test_a_custom_tool_gets_what_was_said_when_it_was_not_a_string(arguments: str) -> None:
    call = ToolCall(id="c", name="patch", arguments=arguments)
    (item,) = Responses().reply(request(), reply(tool_calls=[call]))["output"]
    assert item["input"] == arguments


@pytest.mark.parametrize("given", REPLIES)
def test_a_compaction_is_one_item_that_holds_the_summary(given: ChatReply) -> None:
    asked = request(input=[{"role": "user", "content": "hi"}, {"type": "compaction_trigger"}])
    (item,) = streamed(asked, given)[-1]["response"]["output"]
    assert Responses().reply(asked, given)["output"] == [item]
    done = [event["item"] for event in streamed(asked, given) if event["type"] == "response.output_item.done"]
    assert (done, item["type"]) == ([item], "compaction")
    (told,) = replayed([item])
    assert (told.role, told.node) == ("user", "")
    assert told.text.endswith(f"\n\n{given.text.strip() or '(nothing)'}")


def test_thoughts_are_summarised_for_those_who_ask() -> None:
    thoughtful = reply(text="x", reasoning="t")
    for body, summary in (
        (request(), []),
        (request(reasoning={"summary": "auto"}), [{"type": "summary_text", "text": "t"}]),
    ):
        item = Responses().reply(body, thoughtful)["output"][0]
        assert item["summary"] == summary
        assert item["content"] == [{"type": "reasoning_text", "text": "t"}]
        assert item["encrypted_content"] == ids.signature(NODE)


# what came up after the stream began; the code that says whether trying again is of use
FAILURES: list[tuple[RefusalKind, float | None, str]] = [
    ("backend", 5, "server_error"),
    ("capture", 5, "server_error"),
    ("no_logprobs", 1, "server_error"),
    ("backend", None, "invalid_prompt"),
    ("sealed", None, "invalid_prompt"),
    ("budget", None, "invalid_prompt"),
    ("request", None, "invalid_prompt"),
    ("busy", 2, "rate_limit_exceeded"),
    ("busy", None, "rate_limit_exceeded"),
    ("overflow", None, "context_length_exceeded"),
]


@pytest.mark.parametrize(("kind", "retry_after", "code"), FAILURES)
def test_failures_after_the_stream_began(kind: RefusalKind, retry_after: float | None, code: str) -> None:
    refusal = RefusedError(kind, "what happened", retry_after=retry_after)
    *_, failed, error = streamed(request(), refusal)
    assert (failed["type"], error["type"]) == ("response.failed", "error")
    told = failed["response"]["error"]
    assert (failed["response"]["status"], told["code"]) == ("failed", code)
    wait = " Please try again in 2s." if kind == "busy" and retry_after else ""
    assert told["message"] == "what happened" + wait
    assert error["error"] == Responses().error(refusal)["error"]
    assert (error["code"], error["sequence_number"]) == (code, 3)


def test_overflow_in_the_words_that_agents_know() -> None:
    told = streamed(request(), overflow(70000, 65536))[-2]["response"]["error"]
    assert told["message"].splitlines()[1] == "prompt is too long: 70000 tokens > 65536 maximum"


def test_what_can_be_large_is_sent_once() -> None:
    first, second, *_, last = streamed(request(instructions="i" * 1000), reply(text="x"))
    assert [event["response"]["tools"] for event in (first, second, last)] == [[], [], TOOLS]
    assert [event["response"]["instructions"] for event in (first, second)] == [None, None]


def test_models() -> None:
    assert [entry["id"] for entry in Responses().models("policy")["data"]] == ["policy"]


def test_an_error_about_the_messages_names_the_field_that_they_are_in() -> None:
    error = Responses().error(bad_request("messages", "cannot be expressed by this renderer"))["error"]
    assert (error["param"], error["message"]) == ("input", "'input' cannot be expressed by this renderer")
