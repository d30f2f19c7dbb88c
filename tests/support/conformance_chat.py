"""Requests of Chat Completions, good and bad: what is added to a plain one, and what becomes of it."""

from __future__ import annotations

from functools import reduce
from typing import Any

from console.capture import ids
from console.capture.chat import ChatMessage, ToolCall, ToolSpec

NODE, OTHER = "n1xaaaaaaaa", "n2xbbbbbbbb"
HI = {"role": "user", "content": "hi"}
SCHEMA = {"type": "object", "properties": {"command": {"type": "string"}}}
BASH = {"type": "function", "function": {"name": "bash", "description": "runs", "parameters": SCHEMA}}


def call(call_id: str = "c1", arguments: Any = "{}", name: Any = "bash") -> dict[str, Any]:
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}


def after_hi(*messages: dict[str, Any]) -> dict[str, Any]:
    return {"messages": [HI, *messages]}


def assistant(**fields: Any) -> dict[str, Any]:
    return after_hi({"role": "assistant", **fields})


def tool(**fields: Any) -> dict[str, Any]:
    return {"tools": [BASH | fields]}


def function(**fields: Any) -> dict[str, Any]:
    return {"tools": [{"type": "function", "function": {"name": "bash", **fields}}]}


# what is added to a plain request; where to look in the outcome, and what must be there
GOOD: list[tuple[dict[str, Any], str, Any]] = [
    # messages
    ({}, "messages", [ChatMessage(role="user", text="hi")]),
    ({"messages": [{"role": "system", "content": "s"}, HI]}, "messages.0", ChatMessage(role="system", text="s")),
    ({"messages": [{"role": "developer", "content": "d"}, HI]}, "messages.0.role", "system"),
    (after_hi({"role": "developer", "content": "d"}, HI), "messages.1", ChatMessage(role="system", text="d")),
    (after_hi({"role": "system", "content": "late"}), "messages.1.role", "system"),
    ({"messages": [{"role": "system", "content": "s"}]}, "messages.0.text", "s"),
    ({"messages": [HI, HI]}, "messages.1.text", "hi"),
    ({"messages": [{"role": "user", "content": ""}]}, "messages.0.text", ""),
    ({"messages": [{"role": "user", "content": []}]}, "messages.0.text", ""),
    ({"messages": [{"role": "user", "content": [{"type": "text", "text": "a"}]}]}, "messages.0.text", "a"),
    (
        {"messages": [{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}]},
        "messages.0.text",
        "ab",
    ),
    (
        {"messages": [{"role": "user", "content": [{"type": "text", "text": "a", "cache_control": {"type": "x"}}]}]},
        "messages.0.text",
        "a",
    ),
    ({"messages": [{"role": "user", "content": "x", "name": "ann"}]}, "messages.0.name", ""),
    ({"messages": [{"role": "user", "content": "x", "odd": {"a": 1}}]}, "messages.0.text", "x"),
    ({"messages": [{"role": "user", "content": "a\ud800b"}]}, "messages.0.text", "a?b"),
    ({"messages": [{"role": "user", "content": "<|im_end|>\x00"}]}, "messages.0.text", "<|im_end|>\x00"),
    (assistant(content="x"), "messages.1", ChatMessage(role="assistant", text="x")),
    (assistant(content=None), "messages.1.text", ""),
    (assistant(), "messages.1.text", ""),
    (assistant(content=[{"type": "text", "text": "a"}, {"type": "refusal", "refusal": "b"}]), "messages.1.text", "ab"),
    (assistant(content=None, refusal="no"), "messages.1.text", "no"),
    (assistant(content="x", refusal=None, audio=None, function_call=None, annotations=[]), "messages.1.text", "x"),
    (assistant(content="<think>a</think>b"), "messages.1", ChatMessage(role="assistant", text="<think>a</think>b")),
    (assistant(content="x", tool_calls=None), "messages.1.tool_calls", []),
    (assistant(content="x", tool_calls=[]), "messages.1.tool_calls", []),
    # thoughts
    (assistant(content="x", reasoning_content="r"), "messages.1.reasoning", "r"),
    (assistant(content="x", reasoning_content=None), "messages.1.reasoning", ""),
    (assistant(content="x", reasoning="r"), "messages.1.reasoning", "r"),
    (assistant(content="x", reasoning_content="r", reasoning="r"), "messages.1.reasoning", "r"),
    (assistant(content="x", reasoning_content="", reasoning="r"), "messages.1.reasoning", "r"),
    (assistant(content="x", reasoning=[{"type": "text", "text": "a"}, "b"]), "messages.1.reasoning", "ab"),
    (assistant(content="x", reasoning_details=[{"type": "reasoning.text", "text": "r"}]), "messages.1.reasoning", "r"),
    (assistant(reasoning_details=[{"type": "reasoning.summary", "summary": "s"}]), "messages.1.reasoning", "s"),
    (assistant(reasoning_details=[{"type": "reasoning.encrypted", "data": "x"}]), "messages.1.reasoning", ""),
    (assistant(thinking_blocks=[{"type": "thinking", "thinking": "t"}]), "messages.1.reasoning", "t"),
    (assistant(thinking_blocks=[{"thinking": "t", "signature": ids.signature(NODE)}]), "messages.1.node", NODE),
    (assistant(content="x", reasoning_content="a\udfffb"), "messages.1.reasoning", "a?b"),
    # tool calls
    (
        assistant(content=None, tool_calls=[call()]),
        "messages.1.tool_calls.0",
        ToolCall(id="c1", name="bash", arguments="{}"),
    ),
    (assistant(tool_calls=[call("c1"), call("c2")]), "messages.1.tool_calls.1.id", "c2"),
    (assistant(tool_calls=[call(arguments="")]), "messages.1.tool_calls.0.arguments", "{}"),
    (assistant(tool_calls=[call(arguments=" \n")]), "messages.1.tool_calls.0.arguments", "{}"),
    (assistant(tool_calls=[call(arguments=None)]), "messages.1.tool_calls.0.arguments", "{}"),
    (assistant(tool_calls=[call(arguments='{"a": 1}')]), "messages.1.tool_calls.0.arguments", '{"a": 1}'),
    (assistant(tool_calls=[call(arguments="not json")]), "messages.1.tool_calls.0.arguments", "not json"),
    (assistant(tool_calls=[call(arguments="[1]")]), "messages.1.tool_calls.0.arguments", "[1]"),
    (assistant(tool_calls=[{"id": "c", "function": {"name": "b"}}]), "messages.1.tool_calls.0.name", "b"),
    (assistant(tool_calls=[call() | {"index": 0}]), "messages.1.tool_calls.0.id", "c1"),
    (assistant(tool_calls=[call(ids.tool_call_id(NODE, 0))]), "messages.1.node", NODE),
    (assistant(tool_calls=[call(ids.tool_call_id(NODE, i)) for i in range(3)]), "messages.1.node", NODE),
    (assistant(tool_calls=[call(ids.tool_call_id(NODE, 0)), call("x")]), "messages.1.node", NODE),
    (assistant(tool_calls=[call(ids.tool_call_id(n, 0)) for n in (NODE, OTHER)]), "messages.1.node", ""),
    (assistant(tool_calls=[call("call_abc")]), "messages.1.node", ""),
    (assistant(content="x", id=f"chatcmpl-{NODE}"), "messages.1.node", NODE),
    (assistant(content="x", id=7), "messages.1.node", ""),
    (after_hi({"role": "tool", "tool_call_id": "x", "content": "out"}), "messages.1.text", "out"),
    (after_hi({"role": "tool", "tool_call_id": "x", "content": "out"}), "messages.1.name", ""),
    (after_hi({"role": "tool", "tool_call_id": "x", "content": "", "name": "f"}), "messages.1.name", "f"),
    (after_hi({"role": "tool", "tool_call_id": "x", "content": None}), "messages.1.text", ""),
    (
        after_hi({"role": "tool", "tool_call_id": "x", "content": [{"type": "text", "text": "o"}]}),
        "messages.1.text",
        "o",
    ),
    (
        after_hi(
            {"role": "assistant", "tool_calls": [call("c1", name="ls"), call("c2", name="cat")]},
            {"role": "tool", "tool_call_id": "c2", "content": "o", "name": "wrong"},
        ),
        "messages.2",
        ChatMessage(role="tool", text="o", tool_call_id="c2", name="cat"),
    ),
    # one reply in pieces, and two replies
    (after_hi(*[{"role": "assistant", "content": w} for w in "ab"]), "messages.2.text", "b"),
    (
        after_hi(
            {"role": "assistant", "content": "a", "tool_calls": [call(ids.tool_call_id(NODE, 0))]},
            {"role": "assistant", "reasoning": "r", "tool_calls": [call(ids.tool_call_id(NODE, 1))]},
        ),
        "messages.1",
        ChatMessage(
            role="assistant",
            text="a",
            reasoning="r",
            tool_calls=[ToolCall(id=ids.tool_call_id(NODE, i), name="bash", arguments="{}") for i in (0, 1)],
            node=NODE,
        ),
    ),
    (
        after_hi(*[{"role": "assistant", "tool_calls": [call(ids.tool_call_id(n, 0))]} for n in (NODE, OTHER)]),
        "messages.2.node",
        OTHER,
    ),
    # tools
    ({"tools": [BASH]}, "tools", [ToolSpec(name="bash", description="runs", parameters=SCHEMA)]),
    ({"tools": None}, "tools", []),
    ({"tools": []}, "tools", []),
    (function(), "tools.0", ToolSpec(name="bash", parameters={"type": "object", "properties": {}})),
    (function(parameters=None, description=None), "tools.0.description", ""),
    (function(parameters={}), "tools.0.parameters", {}),
    (function(name="a.b:c-d_9"), "tools.0.name", "a.b:c-d_9"),
    (function(name="a" * 128), "tools.0.name", "a" * 128),
    (function(strict=True), "neutralised", ["strict"]),
    (function(strict=False), "neutralised", []),
    (function(parameters={"enum": ["\ud800"], "x": [1, 2.5, None, True]}), "tools.0.parameters.enum.0", "?"),
    ({"tools": [BASH], "tool_choice": "auto"}, "tools.0.name", "bash"),
    ({"tools": [BASH], "tool_choice": None}, "tools.0.name", "bash"),
    ({"tools": [BASH], "tool_choice": "none"}, "tools", []),
    ({"tools": [BASH], "tool_choice": "none"}, "neutralised", ["tools"]),
    ({"tool_choice": "none"}, "neutralised", []),
    ({"tools": [BASH], "parallel_tool_calls": False}, "neutralised", ["parallel_tool_calls"]),
    ({"tools": [BASH], "parallel_tool_calls": True}, "neutralised", []),
    ({"functions": [], "function_call": None}, "neutralised", []),
    # sampling
    ({"max_tokens": 10}, "sampling.max_tokens", 10),
    ({"max_tokens": 100.0}, "sampling.max_tokens", 100),
    ({"max_completion_tokens": 11}, "sampling.max_tokens", 11),
    ({"max_tokens": 11, "max_completion_tokens": 11}, "sampling.max_tokens", 11),
    ({"max_tokens": 11, "max_completion_tokens": 11}, "neutralised", []),
    ({"max_tokens": 10, "max_completion_tokens": 11}, "sampling.max_tokens", 11),
    ({"max_tokens": 10, "max_completion_tokens": 11}, "neutralised", ["max_tokens"]),
    ({"max_tokens": None}, "sampling.max_tokens", None),
    ({"temperature": 0}, "sampling.temperature", 0.0),
    ({"temperature": 0.7}, "sampling.temperature", 0.7),
    ({"temperature": None}, "sampling.temperature", None),
    ({"top_p": 0.9, "top_k": 20, "seed": 7}, "sampling.top_k", 20),
    ({"top_p": 0.9}, "sampling.top_p", 0.9),
    ({"top_k": -1}, "sampling.top_k", -1),
    ({"seed": -5}, "sampling.seed", -5),
    ({"stop": "END"}, "sampling.stop", ("END",)),
    ({"stop": ["a", "b"]}, "sampling.stop", ("a", "b")),
    ({"stop": []}, "sampling.stop", ()),
    ({"stop": None}, "sampling.stop", ()),
    ({"stop": ["x"] * 16}, "sampling.stop", ("x",) * 16),
    ({"n": 1}, "sampling.max_tokens", None),
    ({"n": None}, "neutralised", []),
    ({"logprobs": True}, "logprobs", True),
    ({"logprobs": True, "top_logprobs": 0}, "logprobs", True),
    ({"logprobs": False, "top_logprobs": None}, "logprobs", False),
    ({"presence_penalty": 0, "frequency_penalty": 0.0}, "neutralised", []),
    ({"repetition_penalty": 1.0, "min_p": 0, "logit_bias": {}}, "neutralised", []),
    ({"response_format": {"type": "text"}}, "neutralised", []),
    ({"response_format": None, "prediction": None, "audio": None}, "neutralised", []),
    ({"modalities": ["text"]}, "neutralised", []),
    ({"best_of": 1, "ignore_eos": False, "add_generation_prompt": True}, "neutralised", []),
    # the stream, and what has no effect
    ({"stream": True}, "stream", True),
    ({"stream": True}, "stream_usage", False),
    ({"stream": True, "stream_options": {"include_usage": True}}, "stream_usage", True),
    ({"stream": False, "stream_options": {"include_usage": True}}, "stream_usage", False),
    ({"stream": True, "stream_options": None}, "stream_usage", False),
    ({"stream_options": {"include_obfuscation": False}}, "neutralised", ["stream_options"]),
    ({"stream": None}, "stream", False),
    ({"user": "u", "store": False, "metadata": {"a": "b"}}, "neutralised", ["metadata", "store", "user"]),
    ({"service_tier": "auto", "reasoning_effort": "high"}, "neutralised", ["reasoning_effort", "service_tier"]),
    ({"chat_template_kwargs": {"enable_thinking": False}}, "neutralised", ["chat_template_kwargs"]),
    ({"thinking": {"type": "enabled"}, "verbosity": "low"}, "neutralised", ["thinking", "verbosity"]),
    ({"prompt_cache_key": "k", "safety_identifier": "s"}, "neutralised", ["prompt_cache_key", "safety_identifier"]),
    ({"return_token_ids": True, "session_id": "s"}, "neutralised", ["return_token_ids", "session_id"]),
    ({"user": None, "metadata": None}, "neutralised", []),
    ({"frobnicate": [1]}, "neutralised", ["unknown:frobnicate"]),
    ({"frobnicate": None}, "neutralised", []),
    ({"x" * 100: 1}, "neutralised", ["unknown:" + "x" * 40]),
    ({"a\nb\x1b\ud800": 1}, "neutralised", ["unknown:a?b??"]),
    ({f"f{i:02}": 1 for i in range(50)}, "neutralised", [f"unknown:f{i:02}" for i in range(20)]),
    ({"model": None}, "model", ""),
    ({"model": "a" * 1000}, "model", "a" * 256),
    ({"model": "openai/gpt-9"}, "model", "openai/gpt-9"),
]

# what is added to a plain request; the field that the error names, and words of its message
BAD: list[tuple[Any, str, str]] = [
    *[(body, "body", "must be an object") for body in (None, [], "x", 7, True)],
    ({"messages": None}, "messages", "must be a list"),
    ({"messages": {}}, "messages", "must be a list"),
    ({"messages": "hi"}, "messages", "must be a list"),
    ({"messages": []}, "messages", "must not be empty"),
    ({"messages": ["hi"]}, "messages[0]", "must be an object"),
    ({"messages": [None]}, "messages[0]", "must be an object"),
    ({"messages": [{}]}, "messages[0].role", "must be a string"),
    ({"messages": [{"role": 1, "content": "x"}]}, "messages[0].role", "must be a string"),
    ({"messages": [{"role": ["user"], "content": "x"}]}, "messages[0].role", "must be a string"),
    (after_hi({"role": "function", "name": "f", "content": "x"}), "messages[1].role", "cannot be 'function'"),
    (after_hi({"role": "root", "content": "x"}), "messages[1].role", "use system, developer, user"),
    (after_hi({"role": "x" * 3000, "content": "x"}), "messages[1].role", "..."),
    ({"messages": [{"role": "user"}]}, "messages[0].content", "must be a string or a list of text parts"),
    ({"messages": [{"role": "user", "content": None}]}, "messages[0].content", "must be a string"),
    ({"messages": [{"role": "system", "content": None}]}, "messages[0].content", "must be a string"),
    ({"messages": [{"role": "user", "content": 5}]}, "messages[0].content", "must be a string"),
    ({"messages": [{"role": "user", "content": {"type": "text"}}]}, "messages[0].content", "must be a string"),
    ({"messages": [{"role": "user", "content": ["x"]}]}, "messages[0].content[0]", "must be an object"),
    ({"messages": [{"role": "user", "content": [{}]}]}, "messages[0].content[0].type", "this gateway takes text only"),
    (
        {"messages": [{"role": "user", "content": [{"type": "text", "text": 1}]}]},
        "messages[0].content[0].text",
        "must be a string",
    ),
    (
        {"messages": [{"role": "user", "content": [{"type": "text"}]}]},
        "messages[0].content[0].text",
        "must be a string",
    ),
    *[
        (
            {"messages": [HI, HI, HI, {"role": "user", "content": [{"type": "text", "text": "a"}, part]}]},
            "messages[3].content[1].type",
            f"cannot be {part['type']!r}; this gateway takes text only",
        )
        for part in (
            {"type": "image_url", "image_url": {"url": "http://127.0.0.1/x.png"}},
            {"type": "input_audio", "input_audio": {"data": "", "format": "wav"}},
            {"type": "file", "file": {"file_id": "f"}},
            {"type": "video_url", "video_url": {"url": "x"}},
            {"type": "refusal", "refusal": "x"},
            {"type": "input_text", "text": "x"},
        )
    ],
    (
        after_hi({"role": "tool", "tool_call_id": "x", "content": [{"type": "image_url"}]}),
        "messages[1].content[0].type",
        "text only",
    ),
    (assistant(content=5), "messages[1].content", "must be a string"),
    (assistant(content=[{"type": "image_url"}]), "messages[1].content[0].type", "text only"),
    (assistant(content=[{"type": "refusal"}]), "messages[1].content[0].refusal", "must be a string"),
    (assistant(content=None, refusal=3), "messages[1].refusal", "must be a string"),
    (assistant(content="x", function_call={"name": "f"}), "messages[1].function_call", "tool_calls"),
    (assistant(content=None, audio={"id": "a"}), "messages[1].audio", "not supported"),
    (assistant(content="x", reasoning_content=7), "messages[1].reasoning_content", "must be a string or a list"),
    (assistant(content="x", reasoning={"a": 1}), "messages[1].reasoning", "must be a string or a list"),
    (assistant(content="x", reasoning_details=[7]), "messages[1].reasoning_details[0]", "must be an object"),
    (assistant(reasoning_details=[{"text": 7}]), "messages[1].reasoning_details[0].text", "must be a string"),
    (assistant(tool_calls={}), "messages[1].tool_calls", "must be a list"),
    (assistant(tool_calls=["x"]), "messages[1].tool_calls[0]", "must be an object"),
    (assistant(tool_calls=[call() | {"type": "custom"}]), "messages[1].tool_calls[0].type", "cannot be 'custom'"),
    (assistant(tool_calls=[{"id": "c"}]), "messages[1].tool_calls[0].function", "must be an object"),
    (assistant(tool_calls=[call(), call(name=7)]), "messages[1].tool_calls[1].function.name", "must be a string"),
    (assistant(tool_calls=[call(name="")]), "messages[1].tool_calls[0].function.name", "must not be empty"),
    (assistant(tool_calls=[call("")]), "messages[1].tool_calls[0].id", "must not be empty"),
    (assistant(tool_calls=[{"function": {"name": "b"}}]), "messages[1].tool_calls[0].id", "must be a string"),
    (
        assistant(tool_calls=[call(arguments={"a": 1})]),
        "messages[1].tool_calls[0].function.arguments",
        "must be a string",
    ),
    (after_hi({"role": "tool", "content": "x"}), "messages[1].tool_call_id", "must be a string"),
    (after_hi({"role": "tool", "content": "x", "tool_call_id": ""}), "messages[1].tool_call_id", "must not be empty"),
    (after_hi({"role": "tool", "content": "x", "tool_call_id": 5}), "messages[1].tool_call_id", "must be a string"),
    (after_hi({"role": "tool", "content": 5, "tool_call_id": "x"}), "messages[1].content", "must be a string"),
    # tools
    ({"tools": {}}, "tools", "must be a list"),
    ({"tools": ["bash"]}, "tools[0]", "must be an object"),
    ({"tools": [{}]}, "tools[0].type", "only 'function' tools"),
    ({"tools": [BASH, {"type": "custom", "custom": {"name": "x"}}]}, "tools[1].type", "cannot be 'custom'"),
    ({"tools": [{"type": "web_search"}]}, "tools[0].type", "cannot be 'web_search'"),
    ({"tools": [{"type": "function"}]}, "tools[0].function", "must be an object"),
    ({"tools": [{"type": "function", "name": "flat"}]}, "tools[0].function", "must be an object"),
    *[
        (function(name=name), "tools[0].function.name", "must be 1 to 128")
        for name in ("", "a" * 129, "a b", "é", "a\n")
    ],
    (function(name=None), "tools[0].function.name", "must be a string"),
    (function(description=1), "tools[0].function.description", "must be a string"),
    (function(parameters="x"), "tools[0].function.parameters", "must be an object"),
    (function(parameters=[]), "tools[0].function.parameters", "must be an object"),
    (function(parameters={"x": float("nan")}), "tools[0].function.parameters", "finite"),
    (function(parameters=reduce(lambda d, _: {"x": d}, range(70), {})), "tools[0].function.parameters", "too deep"),
    (function(parameters={"x": [0] * 60_000}), "tools[0].function.parameters", "too large"),
    *[
        ({"tools": [BASH], "tool_choice": choice}, "tool_choice", "cannot be forced")
        for choice in ("required", "any", 1, True, {"type": "function", "function": {"name": "bash"}}, ["auto"], {})
    ],
    ({"parallel_tool_calls": "no"}, "parallel_tool_calls", "must be true or false"),
    ({"functions": [{"name": "f"}]}, "functions", "cannot be honoured"),
    ({"function_call": "auto"}, "function_call", "cannot be honoured"),
    # sampling
    *[({"max_tokens": bad}, "max_tokens", "must be an integer") for bad in (0, -1, 1.5, "9", True, 2**60, [], 1e300)],
    ({"max_tokens": float("nan")}, "max_tokens", "must be an integer"),
    ({"max_tokens": 5, "max_completion_tokens": "x"}, "max_completion_tokens", "must be an integer"),
    ({"max_completion_tokens": 0}, "max_completion_tokens", "of 1 or more"),
    *[
        ({"temperature": bad}, "temperature", "must be a")
        for bad in ("1", True, float("nan"), float("inf"), [], 10**400)
    ],
    ({"top_p": "x"}, "top_p", "must be a number"),
    ({"top_p": float("-inf")}, "top_p", "must be a finite number"),
    ({"top_k": 1.5}, "top_k", "must be an integer"),
    ({"seed": "x"}, "seed", "must be an integer"),
    ({"seed": 2**70}, "seed", "must be an integer"),
    ({"stop": ""}, "stop", "1 to 1000 characters"),
    ({"stop": ["a", ""]}, "stop", "1 to 1000 characters"),
    ({"stop": "x" * 1001}, "stop", "1 to 1000 characters"),
    ({"stop": ["a"] * 17}, "stop", "16 strings or fewer"),
    ({"stop": [1]}, "stop", "must be a string"),
    ({"stop": {"a": 1}}, "stop", "must be a string or a list"),
    ({"stop": 5}, "stop", "must be a string or a list"),
    *[({"n": bad}, "n", "must be") for bad in (2, 0, "1", True, 1.5)],
    ({"logprobs": 1}, "logprobs", "must be true or false"),
    ({"logprobs": "yes"}, "logprobs", "must be true or false"),
    ({"top_logprobs": 5}, "top_logprobs", "must be 0"),
    ({"top_logprobs": -1}, "top_logprobs", "must be an integer"),
    *[
        ({key: value}, key, "cannot be honoured by this gateway; leave it out")
        for key, value in {
            "presence_penalty": 0.5,
            "frequency_penalty": -1,
            "repetition_penalty": 1.1,
            "min_p": 0.05,
            "logit_bias": {"5": 1},
            "response_format": {"type": "json_object"},
            "prediction": {"type": "content", "content": "x"},
            "audio": {"voice": "alloy"},
            "modalities": ["text", "audio"],
            "web_search_options": {},
            "best_of": 2,
            "use_beam_search": True,
            "ignore_eos": True,
            "min_tokens": 4,
            "stop_token_ids": [1],
            "bad_words": ["a"],
            "guided_json": {"type": "object"},
            "guided_regex": "a+",
            "structured_outputs": {"json": {}},
            "chat_template": "{{ x }}",
            "continue_final_message": True,
            "add_generation_prompt": False,
            "echo": True,
            "documents": [{"text": "x"}],
            "prompt_logprobs": 1,
            "truncate_prompt_tokens": 10,
        }.items()
    ],
    ({"presence_penalty": "0"}, "presence_penalty", "cannot be honoured"),
    ({"presence_penalty": False}, "presence_penalty", "cannot be honoured"),
    ({"response_format": {"type": "json_schema", "json_schema": {}}}, "response_format", "cannot be honoured"),
    ({"response_format": "text"}, "response_format", "cannot be honoured"),
    # the stream
    ({"stream": "true"}, "stream", "must be true or false"),
    ({"stream": 1}, "stream", "must be true or false"),
    ({"stream": True, "stream_options": []}, "stream_options", "must be an object"),
    ({"stream_options": {"include_usage": 1}}, "stream_options.include_usage", "must be true or false"),
    ({"model": 7}, "model", "must be a string"),
    ({"model": ["m"]}, "model", "must be a string"),
]


def body_of(added: Any) -> Any:
    """The whole body of a row."""
    return {"model": "m", "messages": [HI], **added} if isinstance(added, dict) else added
