"""Replies of the three dialects, whole and streamed, checked with the SDKs' own models and read into one form."""

from __future__ import annotations

import json
import typing
from collections.abc import Iterator
from functools import cache
from typing import Any, NamedTuple

import httpx
from capture_bench import CHAT, MESSAGES, MODEL, RESPONSES
from scripted_sampler import Reply


class Said(NamedTuple):
    """What a reply says. `calls`: name and arguments of each tool call; `stop`: stop, length or tool_calls."""

    text: str = ""
    thoughts: str = ""
    calls: tuple[tuple[str, dict[str, Any]], ...] = ()
    stop: str = "stop"


def _call(command: str) -> str:
    return f"<tool_call>\n<function=bash>\n<parameter=command>\n{command}\n</parameter>\n</function>\n</tool_call>"


BROKEN = "<tool_call>\n{broken\n</tool_call>"
SCRIPT: list[tuple[Reply, Said]] = [
    (Reply("Hm.\n</think>\n\nDone."), Said("Done.", "Hm.")),
    (
        Reply(f"Hm.\n</think>\n\nI look.\n\n{_call('ls -l')}"),
        Said("I look.", "Hm.", (("bash", {"command": "ls -l"}),), "tool_calls"),
    ),
    (Reply("</think>\n\nÄ \U0001f600 \u2028 [DONE]"), Said("Ä \U0001f600 \u2028 [DONE]")),
    (Reply(f"</think>\n\n{BROKEN}"), Said(BROKEN)),
    (Reply("Hm.\n</think>\n\nHalf of a", end=False), Said("Half of a", "Hm.", stop="length")),
    (
        Reply(f"Both.\n</think>\n\n{_call('ls')}\n{_call('pwd')}"),
        Said("", "Both.", (("bash", {"command": "ls"}), ("bash", {"command": "pwd"})), "tool_calls"),
    ),
    (Reply("</think>\n\n"), Said()),
]
"""Samples of a policy that thinks, and what an agent gets of each."""


def read_reply(path: str, reply: httpx.Response) -> tuple[Said, dict[str, Any]]:
    """What a whole reply says, and its usage. Raises pydantic's ValidationError, or AssertionError."""
    assert reply.headers["content-type"] == "application/json", "content type"
    body = reply.json()
    _models(path)[0].model_validate(_bare(body))
    node = reply.headers["x-request-id"]
    assert reply.headers["request-id"] == node and body["id"].endswith(node), "names of the sample"
    return _read_body(path, body), body["usage"]


def read_stream(path: str, reply: httpx.Response) -> tuple[Said, dict[str, Any] | None]:
    """What a streamed reply says, and its usage where it has one; checks that no event is missing or out of place."""
    assert reply.headers["content-type"].startswith("text/event-stream"), "content type"
    assert reply.content.isascii() and reply.content.endswith(b"\n\n"), "framing"
    events = list(_events(reply.text))
    if path == CHAT:
        return _read_chunks(events)
    assert all(name == data["type"] for name, data in events), "names of events"
    return (_read_blocks if path == MESSAGES else _read_items)([data for _, data in events])


def _events(text: str) -> Iterator[tuple[str, Any]]:
    """Name and data of each event; the data of the last one of Chat Completions is a word."""
    for block in text.removesuffix("\n\n").split("\n\n"):
        fields = [line.partition(": ") for line in block.split("\n") if not line.startswith(":")]
        given = {name: value for name, _, value in fields}
        assert len(given) == len(fields) and {"data"} <= given.keys() <= {"event", "data"}, f"event {block!r}"
        yield given.get("event", ""), given["data"] if given["data"] == "[DONE]" else json.loads(given["data"])


def _bare(body: dict[str, Any]) -> dict[str, Any]:
    """A reply without the agent's own tools, which are repeated as they came, valid or not."""
    return body | {"tools": []} if "tools" in body else body


@cache
def _models(path: str) -> tuple[Any, dict[str, Any]]:
    """The SDK's model of a reply, and those of its events by type."""
    if path == CHAT:
        from openai.types.chat import ChatCompletion, ChatCompletionChunk

        return ChatCompletion, {"": ChatCompletionChunk}
    if path == MESSAGES:
        from anthropic.types import Message, RawMessageStreamEvent

        return Message, _by_type(RawMessageStreamEvent)
    from openai.types.responses import Response, ResponseStreamEvent

    return Response, _by_type(ResponseStreamEvent)


def _by_type(union: Any) -> dict[str, Any]:
    members = typing.get_args(typing.get_args(union)[0])
    return {typing.get_args(member.model_fields["type"].annotation)[0]: member for member in members}


def _read_body(path: str, body: dict[str, Any]) -> Said:
    if path == CHAT:
        (choice,) = body["choices"]
        message = choice["message"]
        calls = [call["function"] for call in message.get("tool_calls") or []]
        ended = choice["finish_reason"]
        assert body["model"] == MODEL, "model"
        return Said(message["content"] or "", message["reasoning_content"] or "", _named(calls), ended)
    if path == MESSAGES:
        text, thoughts, calls = "", "", []
        for block in body["content"]:
            text += block.get("text", "")
            thoughts += block.get("thinking", "")
            if block["type"] == "tool_use":
                calls.append((block["name"], block["input"]))
        stops = {"end_turn": "stop", "stop_sequence": "stop", "max_tokens": "length", "tool_use": "tool_calls"}
        return Said(text, thoughts, tuple(calls), stops[body["stop_reason"]])
    assert body["model"] == MODEL, "model"
    text, thoughts, functions = "", "", []
    for item in body["output"]:
        if item["type"] == "message":
            text += "".join(part["text"] for part in item["content"])
        elif item["type"] == "reasoning":
            thoughts += "".join(part["text"] for part in item["content"])
        elif item["type"] != "compaction":
            functions.append(item)
    assert body["status"] in ("completed", "incomplete"), "status"
    stop = "length" if body["status"] == "incomplete" else "tool_calls" if functions else "stop"
    return Said(text, thoughts, _named(functions), stop)


def _named(calls: list[dict[str, Any]]) -> tuple[tuple[str, dict[str, Any]], ...]:
    """Custom tools are called with a text, which is their `input`."""
    return tuple(
        (call["name"], json.loads(call["arguments"]) if "arguments" in call else {"input": call["input"]})
        for call in calls
    )


def _read_chunks(events: list[tuple[str, Any]]) -> tuple[Said, dict[str, Any] | None]:
    assert events[-1] == ("", "[DONE]"), "the end"
    chunks = [data for _, data in events[:-1]]
    for chunk in chunks:
        _models(CHAT)[1][""].model_validate(chunk)
    assert len({(chunk["id"], chunk["created"], chunk["model"]) for chunk in chunks}) == 1, "heads of chunks"
    used = chunks.pop()["usage"] if not chunks[-1]["choices"] else None
    choices = [choice for chunk in chunks for choice in chunk["choices"]]
    assert [choice["finish_reason"] is None for choice in choices] == [True] * (len(choices) - 1) + [False], "the end"
    deltas = [choice["delta"] for choice in choices]
    assert deltas[0] == {"role": "assistant", "content": ""} and deltas[-1] == {}, "first and last delta"
    calls = [call for delta in deltas for call in delta.get("tool_calls", ())]
    assert [call["index"] for call in calls] == list(range(len(calls))), "tool calls"
    text = "".join(delta.get("content", "") for delta in deltas)
    thoughts = "".join(delta.get("reasoning_content", "") for delta in deltas)
    return Said(text, thoughts, _named([call["function"] for call in calls]), choices[-1]["finish_reason"]), used


def _read_blocks(events: list[Any]) -> tuple[Said, dict[str, Any]]:
    models = _models(MESSAGES)[1]
    for event in events:
        if event["type"] != "ping":  # the SDK passes over them
            models[event["type"]].model_validate(event)
    events = [event for event in events if event["type"] != "ping"]
    first, *inner, delta, last = events
    assert (first["type"], delta["type"], last) == ("message_start", "message_delta", {"type": "message_stop"}), "ends"
    whole = first["message"] | delta["delta"] | {"usage": delta["usage"], "content": []}
    assert first["message"]["content"] == [] and first["message"]["stop_reason"] is None, "start"
    while inner:
        start = inner.pop(0)
        assert (start["type"], start["index"]) == ("content_block_start", len(whole["content"])), "block"
        block, pieces = dict(start["content_block"]), ""
        while (event := inner.pop(0))["type"] == "content_block_delta":
            given = event["delta"]
            pieces += given.get("partial_json", "")
            for field in ("text", "thinking", "signature"):
                if field in given:
                    block[field] += given[field]
        assert event == {"type": "content_block_stop", "index": start["index"]}, "end of a block"
        if block["type"] == "tool_use":
            block["input"] = json.loads(pieces)
        whole["content"].append(block)
    _models(MESSAGES)[0].model_validate(whole)
    return _read_body(MESSAGES, whole), whole["usage"]


def _read_items(events: list[Any]) -> tuple[Said, dict[str, Any]]:
    for event in events:
        given = event | {"response": _bare(event["response"])} if "response" in event else event
        _models(RESPONSES)[1][event["type"]].model_validate(given)
    assert [event["sequence_number"] for event in events] == list(range(len(events))), "sequence numbers"
    created, running, *inner, last = events
    assert (created["type"], running["type"]) == ("response.created", "response.in_progress"), "start"
    assert last["type"] in ("response.completed", "response.incomplete"), "end"
    done, open_item = [], None
    for event in inner:
        kind = event["type"].removeprefix("response.")
        if kind == "output_item.added":
            assert open_item is None and event["item"]["status"] == "in_progress", "an item begins"
            open_item = event["item"]["id"]
        elif kind == "output_item.done":
            assert event["item"]["id"] == open_item, "an item ends"
            open_item = None
            done.append(event["item"])
        else:
            assert event["item_id"] == open_item, "a part of an item"
        assert event["output_index"] == len(done) - (kind == "output_item.done"), "index of an item"
    assert open_item is None and last["response"]["output"] == done, "the items"
    assert last["response"]["id"] == created["response"]["id"], "the response"
    return _read_body(RESPONSES, last["response"]), last["response"]["usage"]


def prompt_and_sampled(path: str, usage: dict[str, Any]) -> tuple[int, int]:
    """The two counts of a usage, in tokens."""
    if path == CHAT:
        assert usage["total_tokens"] == usage["prompt_tokens"] + usage["completion_tokens"], "total"
        return usage["prompt_tokens"], usage["completion_tokens"]
    if path == MESSAGES:
        return usage["input_tokens"] + usage["cache_read_input_tokens"], usage["output_tokens"]
    assert usage["total_tokens"] == usage["input_tokens"] + usage["output_tokens"], "total"
    return usage["input_tokens"], usage["output_tokens"]
