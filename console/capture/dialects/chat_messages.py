"""Messages of Chat Completions, as agents send them back, to `ChatMessage`."""

from __future__ import annotations

from typing import Any

from console.capture import ids
from console.capture.chat import ChatMessage, Role, ToolCall
from console.capture.dialects.fields import listing, mapping, text
from console.capture.encodable import encodable
from console.capture.refusals import bad_request, shown

ROLES: dict[str, Role] = {
    "system": "system",
    "developer": "system",
    "user": "user",
    "assistant": "assistant",
    "tool": "tool",
}
THOUGHTS = ("reasoning_content", "reasoning", "reasoning_details", "thinking_blocks")
"""Where clients put an assistant's thoughts when they send them back, in the order in which we look: clients that send
several send the same thoughts in each."""


def parse_messages(value: object) -> list[ChatMessage]:
    """The request's messages, in order.

    Messages of an assistant that follow each other and name the same sample are one reply, sent back in pieces.

    Raises:
        RefusedError: kind `request`, naming the field.
    """
    turns: list[list[ChatMessage]] = []
    called: dict[str, str] = {}
    for index, item in enumerate(listing(value, "messages")):
        message = _message(mapping(item, f"messages[{index}]"), f"messages[{index}]", called)
        last = turns[-1][0] if turns else None
        if last is not None and message.node and last.role == message.role and last.node == message.node:
            turns[-1].append(message)
        else:
            turns.append([message])
    if not turns:
        raise bad_request("messages", "must not be empty")
    return [_joined(pieces) for pieces in turns]


def _joined(pieces: list[ChatMessage]) -> ChatMessage:
    """One message of its pieces."""
    whole = pieces[0]
    if len(pieces) > 1:
        whole.text = "".join(piece.text for piece in pieces)
        whole.reasoning = "".join(piece.reasoning for piece in pieces)
        whole.tool_calls = [call for piece in pieces for call in piece.tool_calls]
    return whole


def _message(item: dict[str, Any], param: str, called: dict[str, str]) -> ChatMessage:
    """One message; `called` collects the names of tools by call id, for the results that follow."""
    word = item.get("role")
    if not isinstance(word, str):
        raise bad_request(f"{param}.role", "must be a string")
    role = ROLES.get(word)
    if role is None:
        raise bad_request(f"{param}.role", f"cannot be {shown(word)}; use system, developer, user, assistant or tool")
    if role == "assistant":
        return _assistant(item, param, called)
    content = item.get("content")
    if role == "tool":
        call_id = text(item.get("tool_call_id"), f"{param}.tool_call_id")
        if not call_id:
            raise bad_request(f"{param}.tool_call_id", "must not be empty")
        own = item.get("name")
        name = called.get(call_id) or (encodable(own) if isinstance(own, str) else "")
        said = "" if content is None else _content(content, f"{param}.content")
        return ChatMessage(role=role, text=said, tool_call_id=call_id, name=name)
    return ChatMessage(role=role, text=_content(content, f"{param}.content"))


def _assistant(item: dict[str, Any], param: str, called: dict[str, str]) -> ChatMessage:
    for key in ("function_call", "audio"):
        if item.get(key) is not None:
            raise bad_request(f"{param}.{key}", "is not supported; tools are called with tool_calls")
    content, refusal = item.get("content"), item.get("refusal")
    said = "" if content is None else _content(content, f"{param}.content", assistant=True)
    if not said and refusal is not None:
        said = text(refusal, f"{param}.refusal")
    reasoning, named = _thoughts(item, param)
    given = item.get("tool_calls")
    calls = [] if given is None else _tool_calls(given, f"{param}.tool_calls")
    called.update((call.id, call.name) for call in calls)
    named |= {ids.node_of(call.id) for call in calls} | {ids.node_of(item.get("id"))}
    named.discard("")
    node = named.pop() if len(named) == 1 else ""  # a message that names two samples is neither
    return ChatMessage(role="assistant", text=said, reasoning=reasoning, tool_calls=calls, node=node)


def _content(value: object, param: str, *, assistant: bool = False) -> str:
    """Text of a content, which is a string or a list of parts that are text."""
    if isinstance(value, str):
        return encodable(value)
    if not isinstance(value, list):
        raise bad_request(param, "must be a string or a list of text parts")
    said: list[str] = []
    for index, part in enumerate(value):
        here = f"{param}[{index}]"
        kind = mapping(part, here).get("type")
        if kind == "text":
            said.append(text(part.get("text"), f"{here}.text"))
        elif kind == "refusal" and assistant:
            said.append(text(part.get("refusal"), f"{here}.refusal"))
        else:
            raise bad_request(f"{here}.type", f"cannot be {shown(kind)}; this gateway takes text only")
    return "".join(said)


def _tool_calls(value: object, param: str) -> list[ToolCall]:
    calls: list[ToolCall] = []
    for index, item in enumerate(listing(value, param)):
        here = f"{param}[{index}]"
        call = mapping(item, here)
        kind = call.get("type")
        if kind is not None and kind != "function":
            raise bad_request(f"{here}.type", f"cannot be {shown(kind)}; only function calls are supported")
        function = mapping(call.get("function"), f"{here}.function")
        name = text(function.get("name"), f"{here}.function.name")
        call_id = text(call.get("id"), f"{here}.id")
        if not name or not call_id:
            raise bad_request(f"{here}.{'id' if name else 'function.name'}", "must not be empty")
        arguments = function.get("arguments")
        said = "" if arguments is None else text(arguments, f"{here}.function.arguments")
        calls.append(ToolCall(id=call_id, name=name, arguments=said if said.strip() else "{}"))
    return calls


def _thoughts(item: dict[str, Any], param: str) -> tuple[str, set[str]]:
    """An assistant's thoughts, and the samples that signatures in them name."""
    named: set[str] = set()
    thoughts = ""
    for key in THOUGHTS:
        value = item.get(key)
        if value is None:
            continue
        if isinstance(value, str):
            said = encodable(value)
        elif isinstance(value, list):
            said = "".join(_thought(part, f"{param}.{key}[{index}]", named) for index, part in enumerate(value))
        else:
            raise bad_request(f"{param}.{key}", "must be a string or a list of text parts")
        thoughts = thoughts or said
    return thoughts, named


def _thought(part: object, param: str, named: set[str]) -> str:
    """Text of one part of thoughts; parts without text, encrypted ones say, are passed over."""
    if isinstance(part, str):
        return encodable(part)
    fields = mapping(part, param)
    named.add(ids.node_of(fields.get("signature")))
    for key in ("text", "thinking", "summary"):
        if fields.get(key) is not None:
            return text(fields[key], f"{param}.{key}")
    return ""
