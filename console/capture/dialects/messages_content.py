"""Messages of the Anthropic dialect, as agents send them back, to `ChatMessage`.

One message of the API can become several: tool results and text stand side by side in a user's message there. An
assistant's blocks always become one.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from console.capture import ids
from console.capture.chat import ChatMessage, ToolCall
from console.capture.dialects.fields import listing, mapping, schema, text
from console.capture.encodable import encodable
from console.capture.refusals import RefusedError, bad_request, shown

BILLING = "x-anthropic-billing-header:"
"""Begins a line of claude-code's system prompt that differs from call to call: with it, no prompt extends another."""


NOT_SHOWN = {"image": "could not process image", "document": "could not process pdf"}
"""Blocks that are no text, with the words by which claude-code knows that they cannot be read: it goes on without them,
and gives up at others. Of those that come from a tool the policy is told that they were there, and nothing is refused:
a policy that looks at a picture would end its trial with agents that have no such words."""


PLACEHOLDERS = frozenset({"[System: Empty message content sanitised to satisfy protocol]", "(no content)"})
"""What litellm and claude-code put in the place of a text that is empty."""


class Notes:
    """What was understood and has no effect, each named once."""

    def __init__(self) -> None:
        self._named: dict[str, None] = {}

    def add(self, name: str) -> None:
        """Name one."""
        self._named[name] = None

    def names(self) -> list[str]:
        """All of them, in the order in which they came up."""
        return list(self._named)


def parse_system(value: object, notes: Notes) -> list[ChatMessage]:
    """The request's `system`: a string, or a list of text blocks. No message when nothing is said in it."""
    if value is None:
        return []
    blocks = [encodable(value)] if isinstance(value, str) else _texts(value, "system", notes)
    said = joined(_without_billing(block, notes) for block in blocks)
    return [ChatMessage(role="system", text=said)] if said else []


def parse_messages(value: object, notes: Notes) -> list[ChatMessage]:
    """The request's `messages`, in order, system messages where they stand.

    Messages of an assistant that follow each other are one, as the API has it, unless they name different samples.

    Raises:
        RefusedError: kind `request`, naming the field.
    """
    parsed: list[ChatMessage] = []
    pieces: list[ChatMessage] = []
    called: dict[str, str] = {}
    named = ""
    for index, item in enumerate(listing(value, "messages")):
        param = f"messages[{index}]"
        given = mapping(item, param)
        role, content = given.get("role"), given.get("content")
        if not isinstance(role, str):
            raise bad_request(f"{param}.role", "must be a string")
        param = f"{param}.content"
        if role == "assistant":
            message = _assistant(content, param, called, notes)
            if message.node and named not in ("", message.node):
                parsed += _one(pieces)
                pieces, named = [], ""
            pieces.append(message)
            named = named or message.node
            continue
        parsed += _one(pieces)
        pieces, named = [], ""
        if role == "user":
            parsed += _user(content, param, called, notes)
        elif role == "system":
            said = content if isinstance(content, str) else joined(_texts(content, param, notes))
            parsed.append(ChatMessage(role="system", text=encodable(said)))
        else:
            raise bad_request(f"messages[{index}].role", f"cannot be {shown(role)}; use user, assistant or system")
    parsed += _one(pieces)
    if not parsed:
        raise RefusedError("request", "messages: at least one message is required", param="messages")
    return parsed


def joined(parts: Iterable[str]) -> str:
    """Texts of blocks that follow each other. Two never run into one line: models see blocks apart."""
    said = ""
    for part in parts:
        apart = not said or not part or said.endswith("\n") or part.startswith("\n")
        said += part if apart else "\n" + part
    return said


def _without_billing(block: str, notes: Notes) -> str:
    if not block.startswith(BILLING):
        return block
    notes.add("system.billing_header")
    return block.partition("\n")[2]


def _one(pieces: list[ChatMessage]) -> list[ChatMessage]:
    """The message that an assistant's pieces make, none of none."""
    if len(pieces) < 2:
        return pieces
    return [
        ChatMessage(
            role="assistant",
            text="".join(piece.text for piece in pieces),
            reasoning="".join(piece.reasoning for piece in pieces),
            tool_calls=[call for piece in pieces for call in piece.tool_calls],
            node=next((piece.node for piece in pieces if piece.node), ""),
        )
    ]


def _texts(value: object, param: str, notes: Notes, *, results: bool = False) -> list[str]:
    """Texts of blocks, which must be text blocks; `results`: of a tool, where others are named."""
    said: list[str] = []
    for index, item in enumerate(listing(value, param)):
        block = mapping(item, f"{param}[{index}]")
        if block.get("type") == "tool_reference":
            # the tool that a search found; the agent puts it among the request's tools
            notes.add("tool_reference")
            said.append(text(block.get("tool_name"), f"{param}[{index}].tool_name"))
        else:
            said.append(_text_of(block, f"{param}[{index}]", notes if results else None))
    return said


def _text_of(block: dict[str, Any], param: str, notes: Notes | None = None) -> str:
    """Text of a block; with `notes`, of one that comes from a tool."""
    kind = block.get("type")
    if kind == "text":
        return text(block.get("text"), f"{param}.text")
    problem = NOT_SHOWN.get(kind, "") if isinstance(kind, str) else ""
    if problem and notes is not None:
        notes.add(f"{kind}")
        return f"[{kind} not shown: this model reads text only]"
    raise bad_request(f"{param}.type", f"cannot be {shown(kind)}: {problem or 'this gateway takes text only'}")


def _user(content: object, param: str, called: dict[str, str], notes: Notes) -> list[ChatMessage]:
    """Tool results as messages of their own, and text, in the order of the blocks."""
    if isinstance(content, str):
        return [ChatMessage(role="user", text=encodable(content))]
    messages: list[ChatMessage] = []
    said: list[str] = []
    blocks = [mapping(item, f"{param}[{index}]") for index, item in enumerate(listing(content, param))]
    # claude-code puts what its tools read beside their results
    results = any(block.get("type") == "tool_result" for block in blocks)
    for index, block in enumerate(blocks):
        here = f"{param}[{index}]"
        if block.get("type") != "tool_result":
            said.append(_text_of(block, here, notes if results else None))
            continue
        if said:
            messages.append(ChatMessage(role="user", text=joined(said)))
            said = []
        messages.append(_tool_result(block, here, called, notes))
    if said or not messages:
        messages.append(ChatMessage(role="user", text=joined(said)))
    return messages


def _tool_result(block: dict[str, Any], param: str, called: dict[str, str], notes: Notes) -> ChatMessage:
    call_id = text(block.get("tool_use_id"), f"{param}.tool_use_id")
    if not call_id:
        raise bad_request(f"{param}.tool_use_id", "must not be empty")
    content = block.get("content")
    if content is None:
        said = ""
    elif isinstance(content, str):
        said = encodable(content)
    else:
        said = joined(_texts(content, f"{param}.content", notes, results=True))
    failed = block.get("is_error")
    if failed is not None and not isinstance(failed, bool):
        raise bad_request(f"{param}.is_error", "must be true or false")
    # what went wrong stands in the text of every agent's errors; only an empty one says nothing
    return ChatMessage(
        role="tool", text=said or ("error" if failed else ""), tool_call_id=call_id, name=called.get(call_id, "")
    )


def _assistant(content: object, param: str, called: dict[str, str], notes: Notes) -> ChatMessage:
    """One message of an assistant's blocks; `called` collects the names of tools by call id, for the results."""
    if isinstance(content, str):
        return ChatMessage(role="assistant", text=encodable(content))
    said, thoughts, calls, named = "", "", list[ToolCall](), set[str]()
    for index, item in enumerate(listing(content, param)):
        here = f"{param}[{index}]"
        block = mapping(item, here)
        kind = block.get("type")
        if kind == "thinking":
            thoughts += text(block.get("thinking"), f"{here}.thinking")
            named.add(ids.node_of(block.get("signature")))
        elif kind == "redacted_thinking":
            named.add(ids.node_of(block.get("data")))
            notes.add("redacted_thinking")
        elif kind == "tool_use":
            calls.append(_tool_use(block, here))
            named.add(ids.node_of(calls[-1].id))
        else:
            said += _text_of(block, here)
    called.update((call.id, call.name) for call in calls)
    named.discard("")
    node = named.pop() if len(named) == 1 else ""  # a message that names two samples is neither
    if node and said in PLACEHOLDERS:
        said = ""
    return ChatMessage(role="assistant", text=said, reasoning=thoughts, tool_calls=calls, node=node)


def _tool_use(block: dict[str, Any], param: str) -> ToolCall:
    call_id, name = text(block.get("id"), f"{param}.id"), text(block.get("name"), f"{param}.name")
    for key, word in (("id", call_id), ("name", name)):
        if not word:
            raise bad_request(f"{param}.{key}", "must not be empty")
    given = schema(block.get("input"), f"{param}.input")
    try:
        arguments = json.dumps(given, ensure_ascii=False)
    except ValueError:  # Python writes no integers of more than some thousand digits
        raise bad_request(f"{param}.input", "must hold finite numbers only") from None
    return ToolCall(id=call_id, name=name, arguments=arguments)
