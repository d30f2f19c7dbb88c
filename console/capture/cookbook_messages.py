"""Chat messages as the cookbook's renderers take them, every text of the agent's veiled."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from console.capture.chat import ChatMessage, ToolCall, ToolSpec
from console.capture.guard import Veil

WRAPPED = "input"
"""The name that an argument gets which came without one: templates write tool calls with named arguments only."""


def conversation(renderer: Any, messages: Sequence[ChatMessage], tools: Sequence[ToolSpec], veil: Veil) -> list[Any]:
    """The messages of a full rendering, tools among them as the renderer's template has them.

    A system message that begins the conversation is joined with the tools; later ones stay where they are.

    Raises:
        NotImplementedError: the renderer's template has no tools.
        RecursionError: a tool's schema is too deep.
    """
    rest = rendered_messages(messages, veil)
    if not tools:
        return rest
    specs = [veil.over_json({"name": t.name, "description": t.description, "parameters": t.parameters}) for t in tools]
    system = ""
    if messages[0].role == "system":
        system = veil.over(messages[0].text)
        rest = rest[1:]
    return [*renderer.create_conversation_prefix_with_tools(specs, system), *rest]


def rendered_messages(messages: Sequence[ChatMessage], veil: Veil) -> list[Any]:
    """One message of the cookbook's for each."""
    names: dict[str, str] = {}
    result = []
    for message in messages:
        if message.role == "tool":
            result.append(_tool_result(message, names, veil))
        elif message.role == "assistant":
            names.update({call.id: call.name for call in message.tool_calls})
            result.append(_reply(message, veil))
        else:
            result.append({"role": message.role, "content": veil.over(message.text)})
    return result


def late_systems_as_users(messages: Sequence[ChatMessage]) -> list[ChatMessage] | None:
    """The messages with system messages behind the first as a user's; None when there are none such."""
    if not any(message.role == "system" for message in messages[1:]):
        return None
    return [
        ChatMessage(role="user", text=message.text) if number and message.role == "system" else message
        for number, message in enumerate(messages)
    ]


def _tool_result(message: ChatMessage, names: dict[str, str], veil: Veil) -> dict[str, Any]:
    # A result is foreign text through and through: nothing in it may look like a part of the template.
    result: dict[str, Any] = {"role": "tool", "content": veil.over(message.text, every=True)}
    if message.tool_call_id:
        result["tool_call_id"] = veil.over(message.tool_call_id, every=True)
    name = message.name or names.get(message.tool_call_id, "")
    if name:
        result["name"] = veil.over(name, every=True)
    return result


def _reply(message: ChatMessage, veil: Veil) -> dict[str, Any]:
    text = veil.over(message.text)
    result: dict[str, Any] = {"role": "assistant", "content": text}
    if message.reasoning:
        thought = {"type": "thinking", "thinking": veil.over(message.reasoning)}
        result["content"] = [thought, {"type": "text", "text": text}] if text else [thought]
    if message.tool_calls:
        result["tool_calls"] = [_call(call, veil) for call in message.tool_calls]
    return result


def _call(call: ToolCall, veil: Veil) -> Any:
    from tinker_cookbook.renderers import ToolCall as RenderedCall

    body = RenderedCall.FunctionBody(name=veil.over(call.name), arguments=_arguments(call.arguments, veil))
    return RenderedCall(id=veil.over(call.id) or None, function=body)


def _arguments(text: str, veil: Veil) -> str:
    """A JSON object as text: templates take its parts out of it, which is why the parts are veiled and not the text."""
    try:
        value = json.loads(text) if text.strip() else {}
        return json.dumps(veil.over_json(value if isinstance(value, dict) else {WRAPPED: value}))
    except (ValueError, RecursionError):
        return json.dumps({WRAPPED: veil.over(text)})
