"""Requests of the Anthropic dialect: what is honoured, what is refused, and what is known to have no effect."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from console.capture.chat import ChatRequest, Sampling, ToolSpec
from console.capture.dialects import fields
from console.capture.dialects.messages_content import Notes, parse_messages, parse_system
from console.capture.encodable import encodable
from console.capture.refusals import RefusedError, bad_request, shown

STOPS = 16
STOP_CHARS = 1000
MODEL_CHARS = 256
TOOL_NAME = re.compile(r"[A-Za-z0-9_.:-]{1,128}")
UNKNOWN_FIELDS = 20
UNKNOWN_CHARS = 40

HONOURED = frozenset({
    "messages", "model", "system", "tools", "tool_choice", "max_tokens", "temperature", "top_p", "top_k",
    "stop_sequences", "stream",
})  # fmt: skip

REFUSED: dict[str, tuple[object, ...]] = {
    "container": (),
    "mcp_servers": ([],),
    "output_format": (),
    "prefill": (),
}
"""Parameters that would change what is sampled or run, with the values that mean "as usual" (null always does)."""

NEUTRALISED = frozenset({
    "thinking", "output_config", "context_management", "metadata", "service_tier", "speed", "cache_control", "betas",
    "diagnostics", "inference_geo", "user_profile_id", "workspace_id", "fallbacks", "anthropic_version",
})  # fmt: skip
"""Parameters of known meaning that have no effect here."""

SERVER_TOOLS = re.compile(
    r"(?:web_search|web_fetch|code_execution|tool_search_tool|advisor|mcp_toolset)[a-z0-9_]{0,40}"
)
"""Types of tools that the API's own servers run. Without them the model is as it is in an account that lacks them."""

TOOL_HONOURED = frozenset({"name", "description", "input_schema", "type", "cache_control"})


def parse_request(body: object, headers: Mapping[str, str], *, counting: bool = False) -> ChatRequest:
    """The request in a decoded JSON body; `counting`: of `count_tokens`, where nothing is sampled.

    Raises:
        RefusedError: kind `request`, naming the field.
    """
    given = fields.mapping(body, "body")
    notes = Notes()
    for key, allowed in REFUSED.items():
        fields.neutral(given, key, *allowed)
    messages = parse_system(given.get("system"), notes) + parse_messages(given.get("messages"), notes)
    if messages[-1].role == "assistant" and not counting:
        last = f"messages[{len(given['messages']) - 1}]"
        raise bad_request(
            f"{last}.role", "cannot be 'assistant': prefill is not supported, the conversation must end with a user's"
        )
    tools = _tools(given, notes)
    _tool_choice(given, notes, counting)
    thinking, output = given.get("thinking"), given.get("output_config")
    if thinking is not None:
        fields.text(fields.mapping(thinking, "thinking").get("type"), "thinking.type")
    if output is not None and fields.mapping(output, "output_config").get("format") is not None:
        raise bad_request("output_config.format", "cannot be honoured by this gateway; leave it out")
    model = given.get("model")
    request = ChatRequest(
        dialect="messages",
        model="" if model is None else fields.text(model, "model")[:MODEL_CHARS],
        messages=messages,
        tools=[] if _no_tools(given) else tools,
        sampling=_sampling(given, counting),
        stream=fields.boolean(given, "stream"),
        retry=fields.retried(headers),
        echo={"thinking": not (isinstance(thinking, dict) and thinking["type"] == "disabled")},
    )
    for key in sorted(key for key in NEUTRALISED if given.get(key) is not None):
        notes.add(key)
    if headers.get("anthropic-beta"):
        notes.add("anthropic-beta")
    request.neutralised = notes.names() + _unknown(given)
    return request


def _sampling(given: Mapping[str, Any], counting: bool) -> Sampling:
    if given.get("max_tokens") is None and not counting:
        raise RefusedError("request", "max_tokens: Field required", param="max_tokens")
    return Sampling(
        max_tokens=fields.integer(given, "max_tokens", at_least=1),
        temperature=fields.number(given, "temperature"),
        top_p=fields.number(given, "top_p"),
        top_k=fields.integer(given, "top_k"),
        stop=_stops(given.get("stop_sequences")),
    )


def _stops(value: object) -> tuple[str, ...]:
    if value is None:
        return ()
    words = fields.listing(value, "stop_sequences")
    if len(words) > STOPS:
        raise bad_request("stop_sequences", f"must have {STOPS} strings or fewer")
    stops = tuple(fields.text(word, f"stop_sequences[{index}]") for index, word in enumerate(words))
    if not all(0 < len(word) <= STOP_CHARS for word in stops):
        raise bad_request("stop_sequences", f"must have strings of 1 to {STOP_CHARS} characters")
    return stops


def _tools(given: Mapping[str, Any], notes: Notes) -> list[ToolSpec]:
    value = given.get("tools")
    tools: list[ToolSpec] = []
    names: set[str] = set()
    for index, item in enumerate([] if value is None else fields.listing(value, "tools")):
        param = f"tools[{index}]"
        tool = _tool(fields.mapping(item, param), param, notes)
        if tool is None:
            continue
        if tool.name in names:
            raise bad_request(f"{param}.name", "must be unique among the tools")
        names.add(tool.name)
        tools.append(tool)
    return tools


def _tool(tool: dict[str, Any], param: str, notes: Notes) -> ToolSpec | None:
    """A tool that the agent runs; None for one that the API's servers would run."""
    kind = tool.get("type")
    if isinstance(kind, str) and SERVER_TOOLS.fullmatch(kind):
        notes.add(f"tools.{kind}")
        return None
    if kind is not None and kind != "custom":
        raise bad_request(f"{param}.type", f"cannot be {shown(kind)}; describe the tool with an input_schema")
    name = fields.text(tool.get("name"), f"{param}.name")
    if TOOL_NAME.fullmatch(name) is None:
        raise bad_request(f"{param}.name", "must be 1 to 128 letters, digits, '_', '.', ':' or '-'")
    description = tool.get("description")
    if any(value is not None and key not in TOOL_HONOURED for key, value in tool.items()):
        notes.add("tools.options")
    return ToolSpec(
        name=name,
        description="" if description is None else fields.text(description, f"{param}.description"),
        parameters=fields.schema(tool.get("input_schema"), f"{param}.input_schema"),
    )


def _tool_choice(given: Mapping[str, Any], notes: Notes, counting: bool) -> None:
    value = given.get("tool_choice")
    if value is None:
        return
    choice = fields.mapping(value, "tool_choice")
    kind = choice.get("type")
    if kind not in ("auto", "none") and not (counting and kind in ("any", "tool")):
        raise bad_request("tool_choice", "cannot be forced by this gateway; use type 'auto' or 'none'")
    if fields.boolean(choice, "disable_parallel_tool_use", prefix="tool_choice."):
        notes.add("tool_choice.disable_parallel_tool_use")
    if _no_tools(given) and given.get("tools"):
        notes.add("tools")


def _no_tools(given: Mapping[str, Any]) -> bool:
    """Whether the model is not to use the tools: it does not see them then."""
    choice = given.get("tool_choice")
    return isinstance(choice, dict) and choice.get("type") == "none"


def _unknown(given: Mapping[str, Any]) -> list[str]:
    found: list[str] = []
    for key, value in given.items():
        if value is not None and not (key in HONOURED or key in REFUSED or key in NEUTRALISED):
            name = "".join(c if c.isprintable() else "?" for c in encodable(key[:UNKNOWN_CHARS]))
            found.append(f"unknown:{name}")
            if len(found) == UNKNOWN_FIELDS:
                break
    return found
