"""Requests of the Anthropic dialect, good and bad: what is added to a plain one, and what becomes of it."""

from __future__ import annotations

from typing import Any

from console.capture.chat import ChatMessage, ToolCall, ToolSpec

NODE, OTHER = "n1xaaaaaaaa", "n2xbbbbbbbb"
HI = {"role": "user", "content": "hi"}
SCHEMA = {"type": "object", "properties": {"command": {"type": "string"}}}
BASH = {"name": "bash", "description": "runs", "input_schema": SCHEMA}
IMAGE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "aGk="}}
DOCUMENT = {"type": "document", "source": {"type": "base64", "media_type": "application/pdf", "data": "aGk="}}
BILLING = "x-anthropic-billing-header: cc_version=2.1.197.23e; cc_entrypoint=sdk-cli;"


def text(said: Any) -> dict[str, Any]:
    return {"type": "text", "text": said}


def use(call_id: Any = "t1", name: Any = "bash", **fields: Any) -> dict[str, Any]:
    return {"type": "tool_use", "id": call_id, "name": name, "input": {"command": "ls"}} | fields


def result(content: Any = "out", call_id: Any = "t1", **fields: Any) -> dict[str, Any]:
    return {"type": "tool_result", "tool_use_id": call_id, "content": content} | fields


def thought(said: Any = "hm", signature: Any = "foreign") -> dict[str, Any]:
    return {"type": "thinking", "thinking": said, "signature": signature}


def talk(*messages: Any) -> dict[str, Any]:
    return {"messages": [HI, *messages]}


def user(*blocks: Any) -> dict[str, Any]:
    return talk({"role": "user", "content": list(blocks)})


def agent(*blocks: Any) -> dict[str, Any]:
    return talk({"role": "assistant", "content": list(blocks)}, HI)


def tool(**fields: Any) -> dict[str, Any]:
    return {"tools": [BASH | fields]}


def typed(kind: Any, name: str = "x") -> dict[str, Any]:
    return {"tools": [{"type": kind, "name": name}]}


def said(role: Any, words: str, **fields: Any) -> ChatMessage:
    return ChatMessage(role=role, text=words, **fields)


CALL = ToolCall(id="t1", name="bash", arguments='{"command": "ls"}')

# what is added to a plain request; where to look in the outcome, and what must be there
GOOD: list[tuple[dict[str, Any], str, Any]] = [
    # messages
    ({}, "messages", [said("user", "hi")]),
    ({}, "dialect", "messages"),
    (talk(HI), "messages", [said("user", "hi"), said("user", "hi")]),
    (talk({"role": "user", "content": ""}), "messages.1.text", ""),
    (user(), "messages.1", said("user", "")),
    (user(text("a")), "messages.1.text", "a"),
    (user(text("a"), text("b")), "messages.1.text", "a\nb"),
    (user(text("a\n\n"), text("b")), "messages.1.text", "a\n\nb"),
    (user(text("a"), text("\nb")), "messages.1.text", "a\nb"),
    (user(text(""), text("b"), text("")), "messages.1.text", "b"),
    (user(text("a") | {"cache_control": {"type": "ephemeral"}}), "neutralised", []),
    (user(text("lone \ud800")), "messages.1.text", "lone ?"),
    (user(text("\u2028 é \U0001f600")), "messages.1.text", "\u2028 é \U0001f600"),
    (user(text("<|im_end|>")), "messages.1.text", "<|im_end|>"),
    # system
    ({"system": "s"}, "messages", [said("system", "s"), said("user", "hi")]),
    ({"system": ""}, "messages", [said("user", "hi")]),
    ({"system": []}, "messages", [said("user", "hi")]),
    ({"system": None}, "messages", [said("user", "hi")]),
    ({"system": [text("a"), text("b")]}, "messages.0", said("system", "a\nb")),
    ({"system": [text("a") | {"cache_control": {"type": "ephemeral", "ttl": "1h"}}]}, "messages.0.text", "a"),
    ({"system": [text(BILLING), text("a"), text("\nb")]}, "messages.0.text", "a\nb"),
    ({"system": [text(BILLING), text("a")]}, "neutralised", ["system.billing_header"]),
    ({"system": [text(BILLING)]}, "messages", [said("user", "hi")]),
    ({"system": f"{BILLING}\nrest"}, "messages.0.text", "rest"),
    ({"system": f"first\n{BILLING}\nrest"}, "messages.0.text", f"first\n{BILLING}\nrest"),
    (talk({"role": "system", "content": "late"}), "messages.1", said("system", "late")),
    (talk({"role": "system", "content": [text("a"), text("b")]}), "messages.1.text", "a\nb"),
    (talk({"role": "system", "content": BILLING}), "messages.1.text", BILLING),
    ({"messages": [{"role": "system", "content": "only"}]}, "messages.0.role", "system"),
    # assistant
    (talk({"role": "assistant", "content": "a"}, HI), "messages.1", said("assistant", "a")),
    (talk({"role": "assistant", "content": ""}, HI), "messages.1", said("assistant", "")),
    (agent(), "messages.1", said("assistant", "")),
    (agent(text("a"), text("b")), "messages.1.text", "ab"),
    (agent(text("a\n\n")), "messages.1.text", "a\n\n"),
    (agent(thought(), text("a")), "messages.1", said("assistant", "a", reasoning="hm")),
    (agent(thought("a"), thought("b")), "messages.1.reasoning", "ab"),
    (agent(thought(""), text("a")), "messages.1.reasoning", ""),
    (agent(thought(signature=f"qd1.{NODE}")), "messages.1.node", NODE),
    (agent(thought(signature=f"qd1.{NODE}") | {"cache_control": None}, text("a")), "messages.1.node", NODE),
    (agent({"type": "thinking", "thinking": "hm"}), "messages.1.reasoning", "hm"),
    (agent(thought(signature=7)), "messages.1.node", ""),
    (agent({"type": "redacted_thinking", "data": f"qd1.{NODE}"}, text("a")), "messages.1.node", NODE),
    (agent({"type": "redacted_thinking", "data": "foreign"}, text("a")), "messages.1", said("assistant", "a")),
    (agent({"type": "redacted_thinking", "data": "foreign"}), "neutralised", ["redacted_thinking"]),
    (agent(use()), "messages.1.tool_calls", [CALL]),
    (agent(use(f"toolu_{NODE}_0")), "messages.1.node", NODE),
    (agent(use(f"toolu_{NODE}_0"), use(f"toolu_{NODE}_1")), "messages.1.node", NODE),
    (agent(thought(signature=f"qd1.{NODE}"), use(f"toolu_{NODE}_0")), "messages.1.node", NODE),
    (agent(thought(signature=f"qd1.{OTHER}"), use(f"toolu_{NODE}_0")), "messages.1.node", ""),
    (agent(use(f"toolu_{NODE}_0_1")), "messages.1.node", ""),
    (agent(use(input={})), "messages.1.tool_calls.0.arguments", "{}"),
    (agent(use(input={"a": [1, 2.5, True, None, "é"]})), "messages.1.tool_calls.0.arguments",
     '{"a": [1, 2.5, true, null, "é"]}'),
    (agent(use(input={"b": 1, "a": 2})), "messages.1.tool_calls.0.arguments", '{"b": 1, "a": 2}'),
    (agent(use(input={"a": "\ud800"})), "messages.1.tool_calls.0.arguments", '{"a": "?"}'),
    (agent(use(cache_control={"type": "ephemeral"}, caller={"type": "direct"})), "messages.1.tool_calls", [CALL]),
    (agent(thought(), text("a"), use(), text("b"), use("t2")), "messages.1",
     said("assistant", "ab", reasoning="hm",
          tool_calls=[CALL, ToolCall(id="t2", name="bash", arguments=CALL.arguments)])),
    (agent(text("(no content)"), use(f"toolu_{NODE}_0")), "messages.1.text", ""),
    (agent(text("(no content)"), use()), "messages.1.text", "(no content)"),
    # an assistant's pieces are one message, unless they are two samples
    (talk({"role": "assistant", "content": [thought(signature=f"qd1.{NODE}")]},
          {"role": "assistant", "content": "a"}, {"role": "assistant", "content": [use(f"toolu_{NODE}_0")]}, HI),
     "messages.1", said("assistant", "a", reasoning="hm", node=NODE,
                        tool_calls=[ToolCall(id=f"toolu_{NODE}_0", name="bash", arguments=CALL.arguments)])),
    (talk({"role": "assistant", "content": "a"}, {"role": "assistant", "content": "b"}, HI), "messages.1.text", "ab"),
    (talk({"role": "assistant", "content": [thought(signature=f"qd1.{NODE}")]},
          {"role": "assistant", "content": [thought(signature=f"qd1.{OTHER}")]}, HI), "messages.2.node", OTHER),
    # tool results
    (user(result()), "messages.1", said("tool", "out", tool_call_id="t1")),
    (talk({"role": "assistant", "content": [use()]}, {"role": "user", "content": [result()]}), "messages.2",
     said("tool", "out", tool_call_id="t1", name="bash")),
    (user(result([text("a"), text("b")])), "messages.1.text", "a\nb"),
    (user(result([])), "messages.1.text", ""),
    (user(result(None)), "messages.1.text", ""),
    (user({"type": "tool_result", "tool_use_id": "t1"}), "messages.1.text", ""),
    (user(result(is_error=True)), "messages.1.text", "out"),
    (user(result(is_error=False)), "messages.1.text", "out"),
    (user(result("", is_error=True)), "messages.1.text", "error"),
    (user(result(None, is_error=True)), "messages.1.text", "error"),
    (user(result([], is_error=True)), "messages.1.text", "error"),
    (user(result("", is_error=False)), "messages.1.text", ""),
    (user(result("a", "t1"), result("b", "t2")), "messages.2", said("tool", "b", tool_call_id="t2")),
    (user(result(), text("then")), "messages",
     [said("user", "hi"), said("tool", "out", tool_call_id="t1"), said("user", "then")]),
    (user(text("first"), result(), text("then")), "messages",
     [said("user", "hi"), said("user", "first"), said("tool", "out", tool_call_id="t1"), said("user", "then")]),
    (user(result([IMAGE])), "messages.1.text", "[image not shown: this model reads text only]"),
    (user(result([text("a"), IMAGE])), "messages.1.text", "a\n[image not shown: this model reads text only]"),
    (user(result([IMAGE])), "neutralised", ["image"]),
    (user(result(), DOCUMENT), "messages.2.text", "[document not shown: this model reads text only]"),
    (user(result([{"type": "tool_reference", "tool_name": "WebFetch"}])), "messages.1.text", "WebFetch"),
    (user(result([{"type": "tool_reference", "tool_name": "WebFetch"}])), "neutralised", ["tool_reference"]),
    # tools
    ({"tools": [BASH]}, "tools", [ToolSpec(name="bash", description="runs", parameters=SCHEMA)]),
    ({"tools": []}, "tools", []),
    ({"tools": None}, "tools", []),
    ({"tools": [BASH, BASH | {"name": "b2"}]}, "tools.1.name", "b2"),
    (tool(type="custom"), "tools.0.name", "bash"),
    (tool(type=None), "tools.0.name", "bash"),
    (tool(description=None), "tools.0.description", ""),
    (tool(name="mcp__a-b__C.d:e"), "tools.0.name", "mcp__a-b__C.d:e"),
    (tool(name="x" * 128), "tools.0.name", "x" * 128),
    (tool(input_schema={}), "tools.0.parameters", {}),
    (tool(input_schema={"$schema": "s", "type": "object"}), "tools.0.parameters", {"$schema": "s", "type": "object"}),
    (tool(cache_control={"type": "ephemeral"}), "neutralised", []),
    (tool(strict=True), "neutralised", ["tools.options"]),
    (tool(defer_loading=True, input_examples=[{}]), "neutralised", ["tools.options"]),
    (typed("web_search_20250305", "web_search"), "tools", []),
    (typed("web_search_20250305", "web_search"), "neutralised", ["tools.web_search_20250305"]),
    (typed("web_fetch_20260318"), "neutralised", ["tools.web_fetch_20260318"]),
    (typed("code_execution_20260521"), "neutralised", ["tools.code_execution_20260521"]),
    (typed("tool_search_tool_bm25_20251119"), "neutralised", ["tools.tool_search_tool_bm25_20251119"]),
    ({"tools": [{"type": "web_search_20250305", "name": "web_search"}, BASH]}, "tools.0.name", "bash"),
    ({"tool_choice": {"type": "auto"}, "tools": [BASH]}, "tools.0.name", "bash"),
    ({"tool_choice": None}, "tools", []),
    ({"tool_choice": {"type": "none"}, "tools": [BASH]}, "tools", []),
    ({"tool_choice": {"type": "none"}, "tools": [BASH]}, "neutralised", ["tools"]),
    ({"tool_choice": {"type": "none"}}, "neutralised", []),
    ({"tool_choice": {"type": "auto", "disable_parallel_tool_use": True}}, "neutralised",
     ["tool_choice.disable_parallel_tool_use"]),
    ({"tool_choice": {"type": "auto", "disable_parallel_tool_use": False}}, "neutralised", []),
    # sampling
    ({}, "sampling.max_tokens", 64),
    ({"max_tokens": 64_000}, "sampling.max_tokens", 64_000),
    ({"max_tokens": 100.0}, "sampling.max_tokens", 100),
    ({"temperature": 0}, "sampling.temperature", 0.0),
    ({"temperature": 1.5}, "sampling.temperature", 1.5),
    ({"temperature": None}, "sampling.temperature", None),
    ({"top_p": 0.9}, "sampling.top_p", 0.9),
    ({"top_k": 40}, "sampling.top_k", 40),
    ({"top_k": -1}, "sampling.top_k", -1),
    ({"stop_sequences": ["a", "b"]}, "sampling.stop", ("a", "b")),
    ({"stop_sequences": ["\n"]}, "sampling.stop", ("\n",)),
    ({"stop_sequences": []}, "sampling.stop", ()),
    ({"stop_sequences": None}, "sampling.stop", ()),
    ({"stop_sequences": ["x"] * 16}, "sampling.stop", ("x",) * 16),
    # the rest
    ({"stream": True}, "stream", True),
    ({"stream": None}, "stream", False),
    ({"model": "claude-opus-4-8"}, "model", "claude-opus-4-8"),
    ({"model": None}, "model", ""),
    ({"model": "m" * 1000}, "model", "m" * 256),
    ({"thinking": {"type": "adaptive"}}, "neutralised", ["thinking"]),
    ({"thinking": {"type": "enabled", "budget_tokens": 1024}}, "neutralised", ["thinking"]),
    ({"thinking": {"type": "disabled"}}, "neutralised", ["thinking"]),
    ({"thinking": None}, "neutralised", []),
    ({"output_config": {"effort": "high"}}, "neutralised", ["output_config"]),
    ({"output_config": {"format": None}}, "neutralised", ["output_config"]),
    ({"context_management": {"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]}}, "neutralised",
     ["context_management"]),
    ({"metadata": {"user_id": "u"}}, "neutralised", ["metadata"]),
    ({"service_tier": "auto"}, "neutralised", ["service_tier"]),
    ({"speed": "fast"}, "neutralised", ["speed"]),
    ({"cache_control": {"type": "ephemeral"}}, "neutralised", ["cache_control"]),
    ({"betas": ["x"]}, "neutralised", ["betas"]),
    ({"mcp_servers": []}, "neutralised", []),
    ({"mcp_servers": None, "container": None}, "neutralised", []),
    ({"shiny": 1}, "neutralised", ["unknown:shiny"]),
    ({"shiny": None}, "neutralised", []),
    ({"shi\nny\ud800": 1}, "neutralised", ["unknown:shi?ny?"]),
    ({"k" * 1000: 1}, "neutralised", ["unknown:" + "k" * 40]),
    ({f"key{number}": 1 for number in range(50)}, "neutralised", [f"unknown:key{number}" for number in range(20)]),
]  # fmt: skip

DEEP: dict[str, Any] = {}
for _ in range(3000):
    DEEP = {"a": DEEP}

# what is added to a plain request; the field that the refusal names, and words that it has
BAD: list[tuple[Any, str, str]] = [
    # the body
    ([], "body", "object"),
    ("text", "body", "object"),
    (None, "body", "object"),
    # messages
    ({"messages": None}, "messages", "list"),
    ({"messages": "hi"}, "messages", "list"),
    ({"messages": {}}, "messages", "list"),
    ({"messages": []}, "messages", "at least one message is required"),
    (talk("hi"), "messages[1]", "object"),
    (talk(None), "messages[1]", "object"),
    (talk({"content": "x"}), "messages[1].role", "string"),
    (talk({"role": 7, "content": "x"}), "messages[1].role", "string"),
    (talk({"role": "tool", "content": "x"}), "messages[1].role", "'tool'"),
    (talk({"role": "developer", "content": "x"}), "messages[1].role", "user, assistant or system"),
    (talk({"role": "r" * 3000, "content": "x"}), "messages[1].role", "rrr...'"),
    (talk({"role": "user"}), "messages[1].content", "list"),
    (talk({"role": "user", "content": 7}), "messages[1].content", "list"),
    (talk({"role": "user", "content": {}}), "messages[1].content", "list"),
    (talk({"role": "assistant", "content": None}, HI), "messages[1].content", "list"),
    (talk({"role": "system", "content": None}), "messages[1].content", "list"),
    (user("a"), "messages[1].content[0]", "object"),
    (user({}), "messages[1].content[0].type", "'NoneType'"),
    (user({"type": 7}), "messages[1].content[0].type", "text only"),
    (user({"type": ["text"]}), "messages[1].content[0].type", "text only"),
    (user({"type": "text"}), "messages[1].content[0].text", "string"),
    (user(text(None)), "messages[1].content[0].text", "string"),
    (user(text(7)), "messages[1].content[0].text", "string"),
    (user(text("a"), IMAGE), "messages[1].content[1].type", "could not process image"),
    (user(DOCUMENT), "messages[1].content[0].type", "could not process pdf"),
    (user({"type": "search_result", "content": []}), "messages[1].content[0].type", "'search_result'"),
    (user({"type": "container_upload", "file_id": "f"}), "messages[1].content[0].type", "'container_upload'"),
    (user(use()), "messages[1].content[0].type", "'tool_use'"),
    (user(thought()), "messages[1].content[0].type", "'thinking'"),
    # the conversation's end
    (talk({"role": "assistant", "content": "The answer is ("}), "messages[1].role", "prefill is not supported"),
    (talk({"role": "assistant", "content": []}), "messages[1].role", "prefill"),
    ({"messages": [{"role": "assistant", "content": "x"}]}, "messages[0].role", "must end with a user's"),
    # system
    ({"system": 7}, "system", "list"),
    ({"system": {}}, "system", "list"),
    ({"system": ["a"]}, "system[0]", "object"),
    ({"system": [IMAGE]}, "system[0].type", "could not process image"),
    ({"system": [text(7)]}, "system[0].text", "string"),
    (talk({"role": "system", "content": [IMAGE]}), "messages[1].content[0].type", "'image'"),
    # an assistant's blocks
    (agent("a"), "messages[1].content[0]", "object"),
    (agent(result()), "messages[1].content[0].type", "'tool_result'"),
    (agent(IMAGE), "messages[1].content[0].type", "'image'"),
    (agent({"type": "server_tool_use", "id": "s", "name": "web_search", "input": {}}), "messages[1].content[0].type",
     "'server_tool_use'"),
    (agent({"type": "web_search_tool_result", "tool_use_id": "s", "content": []}), "messages[1].content[0].type",
     "'web_search_tool_result'"),
    (agent({"type": "mcp_tool_use", "id": "s", "name": "x", "input": {}}), "messages[1].content[0].type",
     "'mcp_tool_use'"),
    (agent({"type": "compaction", "content": "x"}), "messages[1].content[0].type", "'compaction'"),
    (agent(thought(None)), "messages[1].content[0].thinking", "string"),
    (agent({"type": "thinking"}), "messages[1].content[0].thinking", "string"),
    (agent(use(None)), "messages[1].content[0].id", "string"),
    (agent(use("")), "messages[1].content[0].id", "empty"),
    (agent(use(name=None)), "messages[1].content[0].name", "string"),
    (agent(use(name="")), "messages[1].content[0].name", "empty"),
    (agent(use(input=None)), "messages[1].content[0].input", "object"),
    (agent(use(input="{}")), "messages[1].content[0].input", "object"),
    (agent(use(input=[])), "messages[1].content[0].input", "object"),
    (agent(use(input={"a": float("nan")})), "messages[1].content[0].input", "finite"),
    (agent(use(input={"a": float("inf")})), "messages[1].content[0].input", "finite"),
    (agent(use(input={"a": 10**5000})), "messages[1].content[0].input", "finite"),
    (agent(use(input=DEEP)), "messages[1].content[0].input", "deep"),
    # tool results
    (user(result(call_id=None)), "messages[1].content[0].tool_use_id", "string"),
    (user(result(call_id="")), "messages[1].content[0].tool_use_id", "empty"),
    (user({"type": "tool_result", "content": "x"}), "messages[1].content[0].tool_use_id", "string"),
    (user(result(7)), "messages[1].content[0].content", "list"),
    (user(result({})), "messages[1].content[0].content", "list"),
    (user(result(["a"])), "messages[1].content[0].content[0]", "object"),
    (user(result([text(7)])), "messages[1].content[0].content[0].text", "string"),
    (user(result([{"type": "tool_reference"}])), "messages[1].content[0].content[0].tool_name", "string"),
    (user(result([{"type": "search_result"}])), "messages[1].content[0].content[0].type", "'search_result'"),
    (user(result(is_error="yes")), "messages[1].content[0].is_error", "true or false"),
    # tools
    ({"tools": {}}, "tools", "list"),
    ({"tools": "bash"}, "tools", "list"),
    ({"tools": ["bash"]}, "tools[0]", "object"),
    (tool(name=None), "tools[0].name", "string"),
    (tool(name=""), "tools[0].name", "1 to 128"),
    (tool(name="x" * 129), "tools[0].name", "1 to 128"),
    (tool(name="a b"), "tools[0].name", "letters"),
    (tool(name="a\n"), "tools[0].name", "letters"),
    (tool(name="<|im_start|>"), "tools[0].name", "letters"),
    (tool(description=7), "tools[0].description", "string"),
    (tool(input_schema=None), "tools[0].input_schema", "object"),
    (tool(input_schema=[]), "tools[0].input_schema", "object"),
    (tool(input_schema="{}"), "tools[0].input_schema", "object"),
    (tool(input_schema=DEEP), "tools[0].input_schema", "too deep"),
    (tool(input_schema={"minimum": float("nan")}), "tools[0].input_schema", "finite"),
    ({"tools": [{"name": "bash"}]}, "tools[0].input_schema", "object"),
    ({"tools": [BASH, BASH]}, "tools[1].name", "unique"),
    (typed("bash_20250124", "bash"), "tools[0].type", "'bash_20250124'"),
    (typed("text_editor_20250728"), "tools[0].type", "input_schema"),
    (typed("computer_20250124"), "tools[0].type", "'computer_20250124'"),
    (typed("memory_20250818"), "tools[0].type", "'memory_20250818'"),
    (typed("web_search_" + "9" * 100), "tools[0].type", "input_schema"),
    (typed("web_search_\n"), "tools[0].type", "input_schema"),
    (typed(7), "tools[0].type", "'int'"),
    (typed("function"), "tools[0].type", "'function'"),
    ({"tool_choice": "auto"}, "tool_choice", "object"),
    ({"tool_choice": {}}, "tool_choice", "forced"),
    ({"tool_choice": {"type": "any"}}, "tool_choice", "'auto' or 'none'"),
    ({"tool_choice": {"type": "tool", "name": "bash"}, "tools": [BASH]}, "tool_choice", "forced"),
    ({"tool_choice": {"type": ["auto"]}}, "tool_choice", "forced"),
    ({"tool_choice": {"type": "auto", "disable_parallel_tool_use": 1}}, "tool_choice.disable_parallel_tool_use",
     "true or false"),
    # sampling
    ({"max_tokens": None}, "max_tokens", "max_tokens: Field required"),
    ({"max_tokens": 0}, "max_tokens", "1 or more"),
    ({"max_tokens": -5}, "max_tokens", "1 or more"),
    ({"max_tokens": "64"}, "max_tokens", "integer"),
    ({"max_tokens": 1.5}, "max_tokens", "integer"),
    ({"max_tokens": True}, "max_tokens", "integer"),
    ({"max_tokens": 10**30}, "max_tokens", "integer"),
    ({"max_tokens": float("nan")}, "max_tokens", "integer"),
    ({"temperature": "1"}, "temperature", "number"),
    ({"temperature": True}, "temperature", "number"),
    ({"temperature": float("nan")}, "temperature", "finite"),
    ({"temperature": float("inf")}, "temperature", "finite"),
    ({"temperature": 10**400}, "temperature", "finite"),
    ({"top_p": []}, "top_p", "number"),
    ({"top_p": float("-inf")}, "top_p", "finite"),
    ({"top_k": 1.5}, "top_k", "integer"),
    ({"top_k": "5"}, "top_k", "integer"),
    ({"stop_sequences": "a"}, "stop_sequences", "list"),
    ({"stop_sequences": [""]}, "stop_sequences", "1 to 1000"),
    ({"stop_sequences": ["x" * 1001]}, "stop_sequences", "1 to 1000"),
    ({"stop_sequences": ["x"] * 17}, "stop_sequences", "16"),
    ({"stop_sequences": ["a", 7]}, "stop_sequences[1]", "string"),
    # the rest
    ({"stream": "yes"}, "stream", "true or false"),
    ({"stream": 1}, "stream", "true or false"),
    ({"model": 7}, "model", "string"),
    ({"mcp_servers": [{"type": "url", "url": "https://example.com", "name": "x"}]}, "mcp_servers", "leave it out"),
    ({"mcp_servers": {}}, "mcp_servers", "leave it out"),
    ({"container": "c1"}, "container", "leave it out"),
    ({"container": {"skills": []}}, "container", "leave it out"),
    ({"output_format": {"type": "json_schema", "schema": {}}}, "output_format", "leave it out"),
    ({"output_config": {"format": {"type": "json_schema", "schema": {}}}}, "output_config.format", "leave it out"),
    ({"output_config": "high"}, "output_config", "object"),
    ({"prefill": "x"}, "prefill", "leave it out"),
    ({"thinking": "on"}, "thinking", "object"),
    ({"thinking": {}}, "thinking.type", "string"),
    ({"thinking": {"type": 1}}, "thinking.type", "string"),
]  # fmt: skip


def body_of(added: Any) -> Any:
    """The whole body of a row."""
    return {"model": "m", "max_tokens": 64, "messages": [HI]} | added if isinstance(added, dict) else added
