"""Requests of the Responses API, good and bad: what is added to a plain one, and what becomes of it."""

from __future__ import annotations

from typing import Any

from console.capture import ids
from console.capture.chat import ChatMessage, ToolCall, ToolSpec
from console.capture.dialects.responses_compaction import ASK, TOLD

NODE, OTHER = "n1xaaaaaaaa", "n2xbbbbbbbb"
HI = {"role": "user", "content": "hi"}
SCHEMA = {"type": "object", "properties": {"command": {"type": "string"}}}
BASH = {"type": "function", "name": "bash", "description": "runs", "parameters": SCHEMA}
PATCH = {"type": "custom", "name": "patch", "description": "edits"}
GRAMMAR = {"type": "grammar", "syntax": "lark", "definition": "start: A"}
AGENTS = {"type": "namespace", "name": "agents", "description": "Agents.", "tools": [BASH, PATCH | {"format": GRAMMAR}]}
IMAGE = {"type": "input_image", "image_url": "data:image/png;base64,AAAA"}
TEXT_INPUT = {
    "type": "object",
    "properties": {"input": {"type": "string", "description": "The whole input, as it is."}},
    "required": ["input"],
}


def said(role: str, *texts: str, kind: str = "input_text", **more: Any) -> dict[str, Any]:
    return {"type": "message", "role": role, "content": [{"type": kind, "text": text} for text in texts], **more}


def answer(text: str = "a", node: str = "") -> dict[str, Any]:
    return said("assistant", text, kind="output_text", **({"id": f"msg_{node}"} if node else {}))


def thought(text: str = "t", node: str = "", **more: Any) -> dict[str, Any]:
    signed = {"id": f"rs_{node}", "encrypted_content": ids.signature(node)} if node else {}
    return {
        "type": "reasoning",
        "summary": [],
        "content": [{"type": "reasoning_text", "text": text}],
        **signed,
        **more,
    }


def call(call_id: Any = "c1", **more: Any) -> dict[str, Any]:
    return {"type": "function_call", "call_id": call_id, "name": "bash", "arguments": "{}", **more}


def output(call_id: Any = "c1", value: Any = "out", kind: str = "function_call_output") -> dict[str, Any]:
    return {"type": kind, "call_id": call_id, "output": value}


def items(*given: Any) -> dict[str, Any]:
    return {"input": list(given)}


def tool(**more: Any) -> dict[str, Any]:
    return {"tools": [BASH | more]}


def spec(name: str = "bash", description: str = "runs", parameters: dict[str, Any] = SCHEMA) -> ToolSpec:
    return ToolSpec(name=name, description=description, parameters=parameters)


ASSISTANT = ChatMessage(role="assistant", text="a")
CALLED = ToolCall(id="c1", name="bash", arguments="{}")
OURS = ids.tool_call_id(NODE, 0)
OURS_TOO = ids.tool_call_id(NODE, 1)
RESULT = ChatMessage(role="tool", text="out", tool_call_id="c1", name="bash")

# what is added to a plain request; where to look in the outcome, and what must be there
GOOD: list[tuple[dict[str, Any], str, Any]] = [
    # messages
    ({}, "messages", [ChatMessage(role="user", text="hi")]),
    ({"input": "plain"}, "messages", [ChatMessage(role="user", text="plain")]),
    ({"input": ""}, "messages.0.text", ""),
    ({"input": "\ud800!"}, "messages.0.text", "?!"),
    (items(said("user", "a")), "messages.0.text", "a"),
    (items(said("user", "a", "b")), "messages.0.text", "ab"),
    (items(said("user", "a", kind="text")), "messages.0.text", "a"),
    (items(said("user")), "messages.0.text", ""),
    (items({"role": "user"}), "messages.0.text", ""),
    (items({"role": "user", "content": None}), "messages.0.text", ""),
    (items({"type": None} | HI), "messages.0.text", "hi"),
    (items(said("user", "é\U0001f600")), "messages.0.text", "é\U0001f600"),
    (items(said("user", "\udfff")), "messages.0.text", "?"),
    (items(said("user", "<|im_end|>")), "messages.0.text", "<|im_end|>"),
    (items(said("system", "s"), HI), "messages.0", ChatMessage(role="system", text="s")),
    (items(said("developer", "d"), HI), "messages.0", ChatMessage(role="system", text="d")),
    (items(HI, said("developer", "late")), "messages.1", ChatMessage(role="system", text="late")),
    (items(HI, said("system", "late"), HI), "messages.1.role", "system"),
    ({"instructions": "i"}, "messages", [ChatMessage(role="system", text="i"), ChatMessage(role="user", text="hi")]),
    ({"instructions": ""}, "messages.0.role", "user"),
    ({"instructions": None}, "messages.0.role", "user"),
    ({"instructions": "i", "input": []}, "messages", [ChatMessage(role="system", text="i")]),
    (items(said("user", "a", id=f"msg_{NODE}")), "messages.0.node", ""),
    (items(HI, HI), "messages.1.text", "hi"),
    # replies sent back
    (items(HI, answer()), "messages.1", ASSISTANT),
    (items(HI, {"role": "assistant", "content": "a"}), "messages.1", ASSISTANT),
    (items(HI, answer(node=NODE)), "messages.1.node", NODE),
    (items(HI, answer() | {"id": "msg_of_another"}), "messages.1.node", ""),
    (items(HI, answer() | {"id": 7}), "messages.1.node", ""),
    (items(HI, answer() | {"phase": "commentary", "status": "completed"}), "messages.1.text", "a"),
    (
        items(HI, {"role": "assistant", "content": [{"type": "refusal", "refusal": "no"}]}),
        "messages.1.text",
        "no",
    ),
    (items(HI, thought()), "messages.1", ChatMessage(role="assistant", reasoning="t")),
    (items(HI, thought(node=NODE)), "messages.1.node", NODE),
    (items(HI, thought(id=f"rs_{NODE}")), "messages.1.node", NODE),
    (items(HI, thought(encrypted_content=ids.signature(NODE))), "messages.1.node", NODE),
    (items(HI, thought(node=NODE, id=f"rs_{OTHER}")), "messages.1.node", ""),
    (items(HI, thought(encrypted_content="gAAAA")), "neutralised", ["reasoning.encrypted_content"]),
    (items(HI, thought("", encrypted_content="gAAAA")), "messages", [ChatMessage(role="user", text="hi")]),
    (items(HI, thought("", node=NODE)), "messages.1", ChatMessage(role="assistant", node=NODE)),
    (items(HI, thought(content=None, summary=[{"type": "summary_text", "text": "s"}])), "messages.1.reasoning", "s"),
    (items(HI, thought(summary=[{"type": "summary_text", "text": "s"}])), "messages.1.reasoning", "t"),
    (items(HI, thought(content=[], summary=[])), "messages", [ChatMessage(role="user", text="hi")]),
    (items(HI, thought(summary=None, status=None)), "messages.1.reasoning", "t"),
    (items(HI, thought(content=[{"type": "text", "text": "t"}])), "messages.1.reasoning", "t"),
    (items(HI, call()), "messages.1", ChatMessage(role="assistant", tool_calls=[CALLED])),
    (items(HI, call(arguments='{"a": 1}')), "messages.1.tool_calls.0.arguments", '{"a": 1}'),
    (items(HI, call(arguments="")), "messages.1.tool_calls.0.arguments", "{}"),
    (items(HI, call(arguments="{broken")), "messages.1.tool_calls.0.arguments", "{broken"),
    (items(HI, call(OURS)), "messages.1.node", NODE),
    (items(HI, call(id=f"fc_{NODE}_0")), "messages.1.node", NODE),
    (items(HI, call(OURS, id=f"fc_{OTHER}_0")), "messages.1.node", ""),
    (items(HI, call(namespace="agents")), "messages.1.tool_calls.0.name", "agents__bash"),
    (items(HI, call(namespace="mcp__x__")), "messages.1.tool_calls.0.name", "mcp__x__bash"),
    (items(HI, call(namespace="")), "messages.1.tool_calls.0.name", "bash"),
    (
        items(HI, {"type": "custom_tool_call", "call_id": "c1", "name": "patch", "input": "é\n"}),
        "messages.1.tool_calls.0",
        ToolCall(id="c1", name="patch", arguments='{"input": "é\\n"}'),
    ),
    (
        items(HI, {"type": "local_shell_call", "call_id": "c1", "action": {"type": "exec", "command": ["ls"]}}),
        "messages.1.tool_calls.0",
        ToolCall(id="c1", name="local_shell", arguments='{"type": "exec", "command": ["ls"]}'),
    ),
    (items(HI, call(), output()), "messages.2", RESULT),
    (items(HI, call(), output(value=[{"type": "input_text", "text": "out"}])), "messages.2", RESULT),
    (items(HI, call(), output(value=[{"type": "output_text", "text": "out"}])), "messages.2", RESULT),
    (items(HI, call(), output(kind="custom_tool_call_output")), "messages.2", RESULT),
    (items(HI, call(), output(kind="local_shell_call_output")), "messages.2", RESULT),
    (items(HI, call(), output(value=None)), "messages.2.text", ""),
    (items(HI, call(), output(value=[])), "messages.2.text", ""),
    (items(HI, output("elsewhere")), "messages.1.name", ""),
    (items(HI, call(), output(value=[IMAGE])), "messages.2.text", "[image not shown: this model reads text only]"),
    (items(HI, call(), output(value=[IMAGE, IMAGE])), "neutralised", ["input_image"]),
    (
        items({"type": "agent_message", "author": "/root", "content": [{"type": "input_text", "text": "do "}]}),
        "messages",
        [ChatMessage(role="user", text="do ")],
    ),
    (
        items({"type": "agent_message", "content": [{"type": "encrypted_content", "encrypted_content": "it"}]}),
        "messages.0.text",
        "it",
    ),
    (
        items({"type": "compaction", "encrypted_content": f"{ids.signature(NODE)}\nsum\n\nmary"}, HI),
        "messages",
        [ChatMessage(role="user", text=TOLD + "sum\n\nmary"), ChatMessage(role="user", text="hi")],
    ),
    (items(HI, {"type": "compaction_trigger"}), "messages.1", ChatMessage(role="user", text=ASK)),
    (items(HI, {"type": "compaction_trigger"}), "echo.compaction", True),
    ({}, "echo.compaction", False),
    # replies put together again
    (
        items(HI, thought(node=NODE), answer(node=NODE), call(OURS), call(OURS_TOO)),
        "messages.1",
        ChatMessage(
            role="assistant",
            text="a",
            reasoning="t",
            tool_calls=[ToolCall(id=word, name="bash", arguments="{}") for word in (OURS, OURS_TOO)],
            node=NODE,
        ),
    ),
    (items(HI, thought(node=NODE), answer(node=NODE), call(OURS)), "count", 2),
    (items(HI, thought(), answer(), call("c1"), call("c2")), "count", 2),
    (items(HI, thought(), answer(), call("c1"), call("c2")), "messages.1.tool_calls.1.id", "c2"),
    (items(HI, thought(), thought("u")), "messages.1.reasoning", "t\n\nu"),
    (items(HI, thought(), call()), "count", 2),
    (items(HI, thought(node=NODE), answer()), "messages.1.node", NODE),
    (items(HI, thought(), answer(node=NODE)), "messages.1.node", NODE),
    (items(HI, answer(), answer("b")), "count", 3),
    (items(HI, answer(node=NODE), answer("b", node=NODE)), "messages.1.text", "ab"),
    (items(HI, answer(node=NODE), answer("b", node=OTHER)), "count", 3),
    (items(HI, call(), answer()), "count", 3),
    (items(HI, answer(), thought()), "count", 3),
    (items(HI, answer(node=NODE), thought(node=OTHER)), "messages.2.node", OTHER),
    (items(HI, call(), output(), answer()), "messages.3", ASSISTANT),
    (items(HI, call("c1"), output("c1"), call("c2"), output("c2")), "count", 5),
    (items(HI, call(OURS), output(OURS), call(OURS_TOO), output(OURS_TOO)), "count", 4),
    (items(HI, call(OURS), output(OURS), call(OURS_TOO), output(OURS_TOO)), "messages.1.tool_calls.1.id", OURS_TOO),
    (items(HI, call(OURS), output(OURS), call(OURS_TOO), output(OURS_TOO)), "messages.3.tool_call_id", OURS_TOO),
    (items(HI, call(OURS), output(OURS), HI, call(OURS_TOO)), "count", 5),
    (items(HI, call(OURS), output(OURS), call("c2")), "count", 4),
    # tools
    ({"tools": [BASH]}, "tools", [spec()]),
    ({"tools": []}, "tools", []),
    ({"tools": None}, "tools", []),
    (tool(parameters=None), "tools.0.parameters", {"type": "object", "properties": {}}),
    (tool(description=None), "tools.0.description", ""),
    (tool(strict=True), "neutralised", ["strict"]),
    (tool(strict=False), "neutralised", []),
    (tool(defer_loading=True), "tools", [spec()]),
    ({"tools": [PATCH]}, "tools", [spec("patch", "edits", TEXT_INPUT)]),
    ({"tools": [PATCH]}, "echo.forms", {"patch": {"kind": "custom", "name": "patch"}}),
    ({"tools": [PATCH | {"format": {"type": "text"}}]}, "neutralised", []),
    ({"tools": [PATCH | {"format": GRAMMAR}]}, "neutralised", ["tools.format"]),
    (
        {"tools": [PATCH | {"format": GRAMMAR}]},
        "tools.0.description",
        "edits\n\nThe input must follow this grammar (lark):\nstart: A",
    ),
    ({"tools": [BASH, AGENTS]}, "tools.0.name", "bash"),
    ({"tools": [BASH, AGENTS]}, "tools.1.name", "agents__bash"),
    ({"tools": [AGENTS]}, "tools.0.description", "Agents.\n\nruns"),
    ({"tools": [AGENTS]}, "tools.1.parameters", TEXT_INPUT),
    (
        {"tools": [AGENTS]},
        "echo.forms",
        {
            "agents__bash": {"kind": "function", "name": "bash", "namespace": "agents"},
            "agents__patch": {"kind": "custom", "name": "patch", "namespace": "agents"},
        },
    ),
    ({"tools": [AGENTS | {"tools": []}]}, "tools", []),
    ({"tools": [AGENTS | {"tools": [{"type": "web_search"}]}]}, "neutralised", ["tools.web_search"]),
    ({"tools": [BASH, {"type": "web_search", "external_web_access": True}]}, "tools", [spec()]),
    ({"tools": [{"type": "web_search"}, {"type": "web_search"}]}, "neutralised", ["tools.web_search"]),
    ({"tools": [{"type": "image_generation"}]}, "neutralised", ["tools.image_generation"]),
    ({"tools": [{"type": "file_search"}]}, "neutralised", ["tools.file_search"]),
    ({"tools": [{"type": "computer_use_preview"}]}, "neutralised", ["tools.computer_use_preview"]),
    ({"tools": [{"type": "code_interpreter"}]}, "neutralised", ["tools.code_interpreter"]),
    ({"tools": [{"type": "mcp", "server_label": "x"}]}, "neutralised", ["tools.mcp"]),
    ({"tools": [{"type": "local_shell"}]}, "neutralised", ["tools.local_shell"]),
    ({"tools": [{"type": "tool_search", "execution": "client"}]}, "neutralised", ["tools.tool_search"]),
    (items({"type": "additional_tools", "role": "developer", "tools": [AGENTS]}, HI), "tools.0.name", "agents__bash"),
    (items({"type": "additional_tools", "tools": None}, HI), "tools", []),
    (
        {"tools": [BASH]} | items({"type": "additional_tools", "tools": [BASH | {"description": "new"}]}, HI),
        "tools",
        [spec(description="new")],
    ),
    ({"tools": [BASH], "tool_choice": "auto"}, "tools", [spec()]),
    ({"tools": [BASH], "tool_choice": "none"}, "tools", []),
    ({"tools": [BASH], "tool_choice": "none"}, "neutralised", ["tools"]),
    ({"tool_choice": "none"}, "neutralised", []),
    ({"tool_choice": None}, "tools", []),
    ({"parallel_tool_calls": True}, "neutralised", []),
    ({"parallel_tool_calls": False}, "neutralised", ["parallel_tool_calls"]),
    # sampling
    ({"max_output_tokens": 100}, "sampling.max_tokens", 100),
    ({"max_output_tokens": 100.0}, "sampling.max_tokens", 100),
    ({"max_output_tokens": None}, "sampling.max_tokens", None),
    ({"temperature": 0.5}, "sampling.temperature", 0.5),
    ({"temperature": 0}, "sampling.temperature", 0.0),
    ({"temperature": -5}, "sampling.temperature", -5.0),  # ranges are checked further on
    ({"top_p": 0.9}, "sampling.top_p", 0.9),
    ({"top_k": -1}, "sampling.top_k", -1),
    ({"seed": 7}, "sampling.seed", 7),
    ({"top_logprobs": 0}, "neutralised", []),
    ({"stop": []}, "neutralised", []),
    ({"presence_penalty": 0.0}, "neutralised", []),
    ({"logit_bias": {}}, "neutralised", []),
    ({"n": 1}, "neutralised", []),
    # the rest
    ({}, "dialect", "responses"),
    ({"model": "gpt-any"}, "model", "gpt-any"),
    ({"model": None}, "model", ""),
    ({"model": "m" * 1000}, "model", "m" * 256),
    ({"stream": True}, "stream", True),
    ({"stream": None}, "stream", False),
    ({"stream_options": {"include_obfuscation": False}}, "neutralised", []),
    ({"stream_options": {"other": 1}}, "neutralised", ["stream_options"]),
    ({"text": {"format": {"type": "text"}}}, "neutralised", []),
    ({"text": {"verbosity": "low"}}, "neutralised", ["text.verbosity"]),
    ({"text": {}}, "neutralised", []),
    ({"reasoning": {"effort": "high"}}, "neutralised", ["reasoning.effort"]),
    (
        {"reasoning": {"effort": "low", "context": "all_turns"}},
        "neutralised",
        ["reasoning.effort", "reasoning.context"],
    ),
    ({"reasoning": {"summary": "auto"}}, "neutralised", []),
    ({"reasoning": {"summary": "auto"}}, "echo.reasoning.summary", "detailed"),
    ({"reasoning": {"generate_summary": "concise"}}, "echo.reasoning.summary", "detailed"),
    ({"reasoning": {"summary": "none"}}, "echo.reasoning.summary", None),
    ({"reasoning": {}}, "echo.reasoning", {"effort": None, "summary": None}),
    ({"include": ["reasoning.encrypted_content"]}, "neutralised", []),
    ({"include": ["message.output_text.logprobs"] * 2}, "neutralised", ["include"]),
    ({"store": True}, "neutralised", ["store"]),
    ({"store": False}, "neutralised", []),
    ({"background": False}, "neutralised", []),
    ({"previous_response_id": None, "conversation": None, "prompt": None}, "neutralised", []),
    ({"truncation": "disabled"}, "neutralised", []),
    ({"truncation": "auto"}, "neutralised", ["truncation"]),
    ({"service_tier": "auto"}, "neutralised", []),
    ({"service_tier": "priority"}, "neutralised", ["service_tier"]),
    ({"max_tool_calls": 3}, "neutralised", ["max_tool_calls"]),
    ({"metadata": {"a": "b"}}, "echo.metadata", {"a": "b"}),
    ({"metadata": None}, "echo.metadata", {}),
    ({"user": "u", "safety_identifier": "s", "prompt_cache_key": "k"}, "neutralised", []),
    ({"client_metadata": {"x-codex-turn-metadata": "{}"}}, "neutralised", []),
    ({"foo": 1}, "neutralised", ["unknown:foo"]),
    ({"foo": None}, "neutralised", []),
    ({"a\nb": 1}, "neutralised", ["unknown:a?b"]),
    ({"x" * 100: 1}, "neutralised", ["unknown:" + "x" * 40]),
]

# what is added to a plain request; the field that is refused, and words of the message
BAD: list[tuple[Any, str, str]] = [
    ([], "body", "must be an object"),
    (None, "body", "must be an object"),
    ("{}", "body", "must be an object"),
    ({"input": None}, "input", "a string or a list of items"),
    ({"input": 1}, "input", "a string or a list of items"),
    ({"input": {}}, "input", "a string or a list of items"),
    ({"input": []}, "input", "must not be empty"),
    (items("text"), "input[0]", "must be an object"),
    (items(HI, None), "input[1]", "must be an object"),
    (items({}), "input[0].type", "messages, reasoning, tool calls"),
    (items({"type": 1}), "input[0].type", "cannot be 'int'"),
    (items({"type": "x" * 1000}), "input[0].type", "cannot be 'xxx"),
    (items({"type": "item_reference", "id": "rs_1"}), "input[0].type", "send the item itself"),
    (items({"type": "web_search_call", "id": "ws_1"}), "input[0].type", "cannot be 'web_search_call'"),
    (items({"type": "image_generation_call"}), "input[0].type", "cannot be 'image_generation_call'"),
    (items({"type": "file_search_call"}), "input[0].type", "cannot be 'file_search_call'"),
    (items({"type": "computer_call"}), "input[0].type", "cannot be 'computer_call'"),
    (items({"type": "code_interpreter_call"}), "input[0].type", "cannot be 'code_interpreter_call'"),
    (items({"type": "mcp_call"}), "input[0].type", "cannot be 'mcp_call'"),
    (items({"type": "compaction", "encrypted_content": "x"}), "input[0].encrypted_content", "not made by this gateway"),
    (items({"type": "compaction", "encrypted_content": None}), "input[0].encrypted_content", "must be a string"),
    (items({"type": "compaction_trigger"}, HI), "input[1]", "must not follow"),
    (items({"type": "tool_search_output"}), "input[0].type", "cannot be 'tool_search_output'"),
    (items({"type": "message"}), "input[0].role", "must be a string"),
    (items({"role": 1}), "input[0].role", "must be a string"),
    (items({"role": "tool", "content": "x"}), "input[0].role", "use system, developer, user or assistant"),
    (items({"role": "wizard"}), "input[0].role", "cannot be 'wizard'"),
    (items({"role": "user", "content": 1}), "input[0].content", "a string or a list of text parts"),
    (items({"role": "user", "content": {}}), "input[0].content", "a string or a list of text parts"),
    (items({"role": "user", "content": ["a"]}), "input[0].content[0]", "must be an object"),
    (items({"role": "user", "content": [{}]}), "input[0].content[0].type", "text only"),
    (items({"role": "user", "content": [{"type": []}]}), "input[0].content[0].type", "text only"),
    (items({"role": "user", "content": [IMAGE]}), "input[0].content[0].type", "cannot be 'input_image'"),
    (
        items(HI, HI, {"role": "user", "content": [{"type": "input_text", "text": "a"}, IMAGE]}),
        "input[2].content[1].type",
        "this gateway takes text only",
    ),
    (items({"role": "user", "content": [{"type": "input_file"}]}), "input[0].content[0].type", "'input_file'"),
    (items({"role": "user", "content": [{"type": "input_audio"}]}), "input[0].content[0].type", "'input_audio'"),
    (items({"role": "user", "content": [{"type": "input_text"}]}), "input[0].content[0].text", "must be a string"),
    (
        items({"role": "user", "content": [{"type": "encrypted_content", "encrypted_content": "x"}]}),
        "input[0].content[0].type",
        "cannot be 'encrypted_content'",
    ),
    (items({"role": "assistant", "content": [{"type": "refusal"}]}), "input[0].content[0].refusal", "a string"),
    (items({"type": "agent_message", "content": [IMAGE]}), "input[0].content[0].type", "text only"),
    (items(thought(content="t")), "input[0].content", "must be a list"),
    (items(thought(summary="t")), "input[0].summary", "must be a list"),
    (items(thought(content=["t"])), "input[0].content[0]", "must be an object"),
    (items(thought(content=[{"type": "output_text"}])), "input[0].content[0].type", "must be reasoning_text"),
    (items(thought(summary=[{"type": "text", "text": ""}])), "input[0].summary[0].type", "must be summary_text"),
    (items(thought(content=[{"type": "text", "text": 1}])), "input[0].content[0].text", "must be a string"),
    (items(thought(encrypted_content=1)), "input[0].encrypted_content", "must be a string"),
    (items(call(None)), "input[0].call_id", "must be a string"),
    (items(call(1)), "input[0].call_id", "must be a string"),
    (items(call("")), "input[0].call_id", "must not be empty"),
    (items(call(name="")), "input[0].name", "must not be empty"),
    (items(call(name=None)), "input[0].name", "must be a string"),
    (items(call(arguments=None)), "input[0].arguments", "must be a string"),
    (items(call(arguments={"a": 1})), "input[0].arguments", "must be a string"),
    (items(call(namespace=1)), "input[0].namespace", "must be a string"),
    (items({"type": "custom_tool_call", "call_id": "c", "name": "x"}), "input[0].input", "must be a string"),
    (items({"type": "local_shell_call", "call_id": "c", "action": "ls"}), "input[0].action", "must be an object"),
    (items(output(None)), "input[0].call_id", "must be a string"),
    (items(output("")), "input[0].call_id", "must not be empty"),
    (items(output(value=1)), "input[0].output", "a string or a list of text parts"),
    (items(output(value={"content": "x"})), "input[0].output", "a string or a list of text parts"),
    (items(output(value=[1])), "input[0].output[0]", "must be an object"),
    (items(output(value=[{"type": "video"}])), "input[0].output[0].type", "text only"),
    (items(HI, {"type": "additional_tools", "tools": {}}), "input[1].tools", "must be a list"),
    (items(HI, {"type": "additional_tools", "tools": [{}]}), "input[1].tools[0].type", "use function"),
    ({"instructions": 1}, "instructions", "must be a string"),
    ({"instructions": ["a"]}, "instructions", "must be a string"),
    ({"model": 1}, "model", "must be a string"),
    # what points to something kept
    ({"previous_response_id": "resp_1"}, "previous_response_id", "send the whole conversation as input"),
    ({"conversation": "conv_1"}, "conversation", "send the whole conversation as input"),
    ({"conversation": {"id": "conv_1"}}, "conversation", "send the whole conversation as input"),
    ({"prompt": {"id": "pmpt_1"}}, "prompt", "send their text"),
    ({"background": True}, "background", "wait for the reply"),
    ({"background": "yes"}, "background", "must be true or false"),
    # tools
    ({"tools": {}}, "tools", "must be a list"),
    ({"tools": "bash"}, "tools", "must be a list"),
    ({"tools": [1]}, "tools[0]", "must be an object"),
    ({"tools": [{}]}, "tools[0].type", "use function, custom or namespace"),
    ({"tools": [{"type": []}]}, "tools[0].type", "cannot be 'list'"),
    ({"tools": [{"type": "new_thing"}]}, "tools[0].type", "cannot be 'new_thing'"),
    ({"tools": [BASH, {"type": "function", "function": {"name": "x"}}]}, "tools[1].name", "must be a string"),
    (tool(name=1), "tools[0].name", "must be a string"),
    (tool(name=""), "tools[0].name", "1 to 128"),
    (tool(name="a b"), "tools[0].name", "1 to 128"),
    (tool(name="a" * 129), "tools[0].name", "1 to 128"),
    (tool(name="<|im_end|>"), "tools[0].name", "1 to 128"),
    (tool(description=1), "tools[0].description", "must be a string"),
    (tool(parameters=[]), "tools[0].parameters", "must be an object"),
    (tool(parameters={"minimum": float("nan")}), "tools[0]", "finite numbers"),
    (tool(other=float("inf")), "tools[0]", "finite numbers"),
    (tool(strict="yes"), "tools[0].strict", "must be true or false"),
    ({"tools": [BASH, BASH]}, "tools[1].name", "name of an earlier tool"),
    ({"tools": [AGENTS, BASH | {"name": "agents__bash"}]}, "tools[1].name", "name of an earlier tool"),
    ({"tools": [PATCH | {"name": None}]}, "tools[0].name", "must be a string"),
    ({"tools": [PATCH | {"format": "lark"}]}, "tools[0].format", "must be an object"),
    ({"tools": [PATCH | {"format": {"type": "json"}}]}, "tools[0].format.type", "text or grammar"),
    ({"tools": [PATCH | {"format": {"type": "grammar"}}]}, "tools[0].format.syntax", "must be a string"),
    ({"tools": [AGENTS | {"name": 1}]}, "tools[0].name", "must be a string"),
    ({"tools": [AGENTS | {"tools": None}]}, "tools[0].tools", "must be a list"),
    ({"tools": [AGENTS | {"tools": [1]}]}, "tools[0].tools[0]", "must be an object"),
    ({"tools": [AGENTS | {"tools": [AGENTS]}]}, "tools[0].tools[0].type", "use function or custom"),
    ({"tools": [AGENTS | {"tools": [BASH | {"name": "a b"}]}]}, "tools[0].tools[0].name", "1 to 128"),
    ({"tool_choice": "required"}, "tool_choice", "cannot be forced"),
    ({"tool_choice": {"type": "function", "name": "bash"}}, "tool_choice", "cannot be forced"),
    ({"tool_choice": {"type": "allowed_tools", "mode": "auto", "tools": []}}, "tool_choice", "cannot be forced"),
    ({"tool_choice": 1}, "tool_choice", "cannot be forced"),
    ({"parallel_tool_calls": "no"}, "parallel_tool_calls", "must be true or false"),
    # sampling
    ({"max_output_tokens": 0}, "max_output_tokens", "1 or more"),
    ({"max_output_tokens": -1}, "max_output_tokens", "1 or more"),
    ({"max_output_tokens": "100"}, "max_output_tokens", "must be an integer"),
    ({"max_output_tokens": 1.5}, "max_output_tokens", "must be an integer"),
    ({"max_output_tokens": True}, "max_output_tokens", "must be an integer"),
    ({"max_output_tokens": 2**60}, "max_output_tokens", "must be an integer"),
    ({"temperature": "hot"}, "temperature", "must be a number"),
    ({"temperature": float("nan")}, "temperature", "finite"),
    ({"temperature": float("inf")}, "temperature", "finite"),
    ({"temperature": 10**400}, "temperature", "finite"),
    ({"temperature": True}, "temperature", "must be a number"),
    ({"top_p": []}, "top_p", "must be a number"),
    ({"top_k": 1.5}, "top_k", "must be an integer"),
    ({"seed": "x"}, "seed", "must be an integer"),
    ({"top_logprobs": 5}, "top_logprobs", "must be 0"),
    ({"top_logprobs": -1}, "top_logprobs", "0 or more"),
    ({"stop": "x"}, "stop", "cannot be honoured"),
    ({"n": 2}, "n", "cannot be honoured"),
    ({"presence_penalty": 0.5}, "presence_penalty", "cannot be honoured"),
    ({"frequency_penalty": True}, "frequency_penalty", "cannot be honoured"),
    ({"repetition_penalty": 1.1}, "repetition_penalty", "cannot be honoured"),
    ({"min_p": 0.1}, "min_p", "cannot be honoured"),
    ({"logit_bias": {"1": 5}}, "logit_bias", "cannot be honoured"),
    ({"context_management": [{"type": "compaction"}]}, "context_management", "cannot be honoured"),
    ({"moderation": {"model": "x"}}, "moderation", "cannot be honoured"),
    ({"response_format": {"type": "json_object"}}, "response_format", "cannot be honoured"),
    # the rest
    ({"text": "short"}, "text", "must be an object"),
    ({"text": {"format": "json"}}, "text.format", "must be an object"),
    ({"text": {"format": {"type": "json_object"}}}, "text.format", "cannot be honoured"),
    ({"text": {"format": {"type": "json_schema", "name": "x", "schema": {}}}}, "text.format", "cannot be honoured"),
    ({"text": {"format": {}}}, "text.format", "cannot be honoured"),
    ({"text": {"verbosity": 1}}, "text.verbosity", "must be a string"),
    ({"reasoning": "high"}, "reasoning", "must be an object"),
    ({"reasoning": {"effort": 1}}, "reasoning.effort", "must be a string"),
    ({"reasoning": {"summary": True}}, "reasoning.summary", "must be a string"),
    ({"include": "x"}, "include", "must be a list"),
    ({"include": [1]}, "include", "must be a string"),
    ({"store": 1}, "store", "must be true or false"),
    ({"stream": "true"}, "stream", "must be true or false"),
    ({"stream_options": []}, "stream_options", "must be an object"),
    ({"truncation": "middle"}, "truncation", "auto or disabled"),
    ({"truncation": []}, "truncation", "auto or disabled"),
    ({"service_tier": 1}, "service_tier", "must be a string"),
    ({"metadata": []}, "metadata", "must be an object"),
    ({"metadata": {"a": 1}}, "metadata", "must map to strings"),
    ({"metadata": {"a": "x" * 513}}, "metadata", "512 characters or fewer"),
    ({"metadata": {str(k): "x" for k in range(17)}}, "metadata", "16 entries or fewer"),
]


def body_of(added: Any) -> Any:
    """The whole body of a row."""
    return {"model": "m", "input": [HI]} | added if isinstance(added, dict) else added
