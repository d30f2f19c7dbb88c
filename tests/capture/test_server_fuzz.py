"""Bodies that are almost right: whatever is wrong with them, each gets an answer in its dialect, and none breaks us."""

from __future__ import annotations

import asyncio
import copy
import json
import os
import random
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import conformance_chat
import conformance_messages
import conformance_responses
import pytest
from capture_bench import CHAT, COUNT, MESSAGES, RESPONSES, Bench, message_of

BODIES_EACH = int(os.environ.get("QUARTERDECK_FUZZ", 1200)) // 4
"""Spoilt bodies for each of the four paths; the variable is their number altogether, for longer runs by hand."""

ALL_AT_ONCE = 6

SCHEMA = {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]}
FUNCTION = {"name": "run", "description": "Runs.", "parameters": SCHEMA}
BODIES: dict[str, dict[str, Any]] = {
    CHAT: {
        "model": "m", "temperature": 0.5, "top_p": 0.9, "stop": ["x"], "seed": 3, "max_tokens": 20, "stream": False,
        "stream_options": {"include_usage": True}, "n": 1, "tools": [{"type": "function", "function": FUNCTION}],
        "messages": [
            {"role": "system", "content": "s"},
            {"role": "user", "content": [{"type": "text", "text": "hi"}]},
            {"role": "assistant", "content": None, "reasoning_content": "r", "tool_calls": [
                {"id": "c1", "type": "function", "function": {"name": "run", "arguments": '{"a":"x"}'}}]},
            {"role": "tool", "tool_call_id": "c1", "content": "out"},
        ],
    },
    RESPONSES: {
        "model": "m", "instructions": "be", "stream": True, "store": False, "max_output_tokens": 30, "temperature": 1,
        "tools": [FUNCTION | {"type": "function"}, {"type": "web_search"}], "reasoning": {"effort": "low"},
        "include": ["reasoning.encrypted_content"], "metadata": {"a": "b"},
        "input": [
            {"type": "message", "role": "developer", "content": [{"type": "input_text", "text": "x"}]},
            {"role": "user", "content": "y"},
            {"type": "reasoning", "id": "rs_n0x00000000", "summary": [{"type": "summary_text", "text": "t"}]},
            {"type": "function_call", "call_id": "c", "name": "run", "arguments": "{}"},
            {"type": "function_call_output", "call_id": "c", "output": "o"},
        ],
    },
    MESSAGES: {
        "model": "m", "max_tokens": 20, "stop_sequences": ["z"], "temperature": 0.3, "top_k": 3, "stream": True,
        "system": [{"type": "text", "text": "s", "cache_control": {"type": "ephemeral"}}],
        "tools": [{"name": "run", "description": "Runs.", "input_schema": SCHEMA}],
        "messages": [
            {"role": "user", "content": [{"type": "text", "text": "h"}]},
            {"role": "assistant", "content": [
                {"type": "thinking", "thinking": "t", "signature": "qd1.n0x00000000"}, {"type": "text", "text": "a"},
                {"type": "tool_use", "id": "toolu_1", "name": "run", "input": {"a": "x"}}]},
            {"role": "user", "content": [
                {"type": "tool_result", "tool_use_id": "toolu_1", "content": [{"type": "text", "text": "o"}]}]},
        ],
    },
}  # fmt: skip
BODIES[COUNT] = {key: BODIES[MESSAGES][key] for key in ("model", "system", "messages", "tools")}
TABLES = {CHAT: conformance_chat, RESPONSES: conformance_responses}
JUNK: list[Any] = [
    None, True, False, 0, -1, 1e308, 2**70, -(2**63) - 1, 1.5, "", "x", "\ud800", "\x00", "<|im_end|>", "true", "{",
    "n0x00000000", "call_n0x00000000_0", [], {}, [[]], [None], {"a": None}, {"": ""}, {"type": "text", "text": 3},
    {"type": None}, [{"type": "image_url", "image_url": {"url": "http://x"}}], "a" * 10000, {"role": "user"},
    {"$ref": "#"},
]  # fmt: skip


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        yield (*path, key)
        yield from places(inner, (*path, key))


def sound(chance: random.Random, path: str) -> dict[str, Any]:
    """A body as it was before it is spoilt: one that has everything, or one of the dialect's table."""
    if chance.random() < 0.5:
        return BODIES[path]
    table = TABLES.get(path, conformance_messages)
    body: dict[str, Any] = table.body_of(chance.choice(table.GOOD)[0])
    return body | ({"stream": True} if chance.random() < 0.5 else {})


def spoilt(chance: random.Random, body: dict[str, Any]) -> bytes:
    body = copy.deepcopy(body)
    for _ in range(chance.choice([1, 1, 1, 2, 4])):
        *way, last = chance.choice(list(places(body)) or [("model",)])
        parent: Any = body
        for key in way:
            parent = parent[key]
        what = chance.random()
        if what < 0.7:
            parent[last] = copy.deepcopy(chance.choice(JUNK))
        elif what < 0.85 and last in (parent if isinstance(parent, dict) else range(len(parent))):
            del parent[last]
        elif isinstance(parent, list):
            parent.append(copy.deepcopy(parent[last]))
        else:
            parent[chance.choice(["role", "type", "content", "id", "text", "tools"])] = copy.deepcopy(
                chance.choice(JUNK)
            )
    data = bytearray(json.dumps(body).encode())
    for _ in range(chance.choice([0, 0, 0, 0, 0, 1, 3])):
        data[chance.randrange(len(data))] = chance.randrange(256)
    return bytes(data)


@pytest.mark.parametrize("path", BODIES)
async def test_bodies_that_are_almost_right(tmp_path: Path, path: str, caplog: pytest.LogCaptureFixture) -> None:
    chance = random.Random(path)
    async with Bench(tmp_path) as bench:
        agent = await bench.open()

        async def send(data: bytes) -> int:
            began = time.monotonic()
            reply = await agent.post(path, content=data, headers={"Content-Type": "application/json"})
            seconds.append(time.monotonic() - began)
            if reply.status_code != 200:
                told = message_of(path, reply.json())
                assert reply.status_code == 400 and "understood" not in told and "served" not in told, (data, told)
            return reply.status_code

        seconds: list[float] = []
        statuses: list[int] = []
        for _ in range(BODIES_EACH // ALL_AT_ONCE):
            statuses += await asyncio.gather(*(send(spoilt(chance, sound(chance, path))) for _ in range(ALL_AT_ONCE)))
        captured = await agent.seal()
    print(path, dict(Counter(statuses)), f"the slowest took {max(seconds):.3f} s")
    assert {200, 400} == set(statuses)
    assert captured.evidence.lost == 0 and captured.evidence.failed == statuses.count(400)
    assert not [record for record in caplog.records if record.levelname != "DEBUG" and "capture" in record.name]
