"""Input items of the Responses API to `ChatMessage`.

The API takes a reply apart: thoughts, text and each call are items of their own. They are put together again by the
sample that their ids name, or, where they name none, because they stand together in the order of a reply.
"""

from __future__ import annotations

import json
from typing import Any

import msgspec

from console.capture import ids
from console.capture.chat import ChatMessage, Role, ToolCall
from console.capture.dialects.fields import listing, mapping, schema, text
from console.capture.dialects.responses_compaction import ASK, summary_message
from console.capture.dialects.responses_tools import custom_arguments, flat_name
from console.capture.refusals import bad_request, shown

ROLES: dict[str, Role] = {"system": "system", "developer": "system", "user": "user", "assistant": "assistant"}
TEXT_PARTS = {"input_text": "text", "output_text": "text", "text": "text", "refusal": "refusal"}
AGENT_PARTS = TEXT_PARTS | {"encrypted_content": "encrypted_content"}
"""Parts of what one agent tells another. The API encrypts what a policy says to another agent, this gateway does not:
what comes back as encrypted is the text itself."""
NOT_SHOWN = {"input_image": "image", "input_audio": "audio", "input_file": "file"}
"""Parts of a tool's output of which the policy is told only that they were there. codex ends its whole turn when they
are refused, and a policy that tries the tool for looking at pictures would end its trial."""

THOUGHTS, TEXT, CALL = 0, 1, 2
"""Order of the items of a reply."""


class Input(msgspec.Struct, kw_only=True):
    """What the items hold. `tools`: field name and value of each list of tools that stands among them; `compaction`: a
    summary is wanted."""

    messages: list[ChatMessage] = []
    compaction: bool = False
    tools: list[tuple[str, object]] = []
    neutralised: list[str] = []


def parse_input(value: object) -> Input:
    """The request's `input`, a string or a list of items.

    Raises:
        RefusedError: kind `request`, naming the field.
    """
    if isinstance(value, str):
        return Input(messages=[ChatMessage(role="user", text=text(value, "input"))])
    if not isinstance(value, list):
        raise bad_request("input", "must be a string or a list of items")
    reader = _Reader()
    for index, item in enumerate(value):
        if reader.found.compaction:
            raise bad_request(f"input[{index}]", "must not follow a compaction_trigger")
        reader.read(mapping(item, f"input[{index}]"), f"input[{index}]")
    reader.join()
    return reader.found


class _Reader:
    """Reads items in order.

    `turn`: the last assistant's message, `last`: kind of its last item, `apart`: what came since then, "" nothing,
    `tools` results only, `more` anything else. `called`: names of tools by call id, for the results that follow.
    `pieces`: the items of assistants' messages of several, by the first one's identity, until they are joined.
    """

    def __init__(self) -> None:
        self.found = Input()
        self.turn: ChatMessage | None = None
        self.last = THOUGHTS
        self.apart = "more"
        self.called: dict[str, str] = {}
        self.pieces: dict[int, list[ChatMessage]] = {}

    def read(self, item: dict[str, Any], param: str) -> None:
        kind = item.get("type")
        match kind:
            case "message":
                self._message(item, param)
            case None if "role" in item:
                self._message(item, param)
            case "reasoning":
                self._reasoning(item, param)
            case "function_call" | "custom_tool_call" | "local_shell_call":
                self._call(item, kind, param)
            case "function_call_output" | "custom_tool_call_output" | "local_shell_call_output":
                self._output(item, param)
            case "agent_message":
                said = _content(item.get("content"), f"{param}.content", AGENT_PARTS)
                self._add(ChatMessage(role="user", text=said), "more")
            case "additional_tools":
                self.found.tools.append((f"{param}.tools", item.get("tools")))
            case "compaction" | "compaction_summary":
                told = summary_message(item.get("encrypted_content"), f"{param}.encrypted_content")
                self._add(ChatMessage(role="user", text=told), "more")
            case "compaction_trigger":
                self.found.compaction = True
                self._add(ChatMessage(role="user", text=ASK), "more")
            case "item_reference":
                raise bad_request(
                    f"{param}.type", "cannot be 'item_reference': this gateway keeps no items; send the item itself"
                )
            case _:
                raise bad_request(
                    f"{param}.type",
                    f"cannot be {shown(kind)}; this gateway takes messages, reasoning, tool calls and their outputs",
                )

    def _add(self, message: ChatMessage, apart: str) -> None:
        self.found.messages.append(message)
        self.apart = "more" if self.apart == "more" else apart

    def _message(self, item: dict[str, Any], param: str) -> None:
        word = item.get("role")
        if not isinstance(word, str):
            raise bad_request(f"{param}.role", "must be a string")
        role = ROLES.get(word)
        if role is None:
            raise bad_request(f"{param}.role", f"cannot be {shown(word)}; use system, developer, user or assistant")
        said = _content(item.get("content"), f"{param}.content", TEXT_PARTS)
        if role == "assistant":
            self._assistant(ChatMessage(role=role, text=said, node=ids.node_of(item.get("id"))), TEXT)
        else:
            self._add(ChatMessage(role=role, text=said), "more")

    def _reasoning(self, item: dict[str, Any], param: str) -> None:
        said = _thoughts(item.get("content"), f"{param}.content", "reasoning_text", "text")
        summary = _thoughts(item.get("summary"), f"{param}.summary", "summary_text")
        signed = item.get("encrypted_content")
        node = _one({ids.node_of(item.get("id")), ids.node_of(signed)})
        if signed is not None and not ids.node_of(text(signed, f"{param}.encrypted_content")):
            self._note("reasoning.encrypted_content")
        if said or summary or node:
            self._assistant(ChatMessage(role="assistant", reasoning=said or summary, node=node), THOUGHTS)

    def _call(self, item: dict[str, Any], kind: str, param: str) -> None:
        call_id = text(item.get("call_id"), f"{param}.call_id")
        if kind == "local_shell_call":
            name, arguments = "local_shell", json.dumps(schema(item.get("action"), f"{param}.action"))
        else:
            name = text(item.get("name"), f"{param}.name")
            if kind == "custom_tool_call":
                arguments = custom_arguments(text(item.get("input"), f"{param}.input"))
            else:
                arguments = text(item.get("arguments"), f"{param}.arguments")
        if not call_id or not name:
            raise bad_request(f"{param}.{'name' if call_id else 'call_id'}", "must not be empty")
        namespace = item.get("namespace")
        if namespace is not None:
            name = flat_name(text(namespace, f"{param}.namespace"), name)
        self.called[call_id] = name
        node = _one({ids.node_of(call_id), ids.node_of(item.get("id"))})
        call = ToolCall(id=call_id, name=name, arguments=arguments if arguments.strip() else "{}")
        self._assistant(ChatMessage(role="assistant", tool_calls=[call], node=node), CALL)

    def _output(self, item: dict[str, Any], param: str) -> None:
        call_id = text(item.get("call_id"), f"{param}.call_id")
        if not call_id:
            raise bad_request(f"{param}.call_id", "must not be empty")
        output = item.get("output")
        if isinstance(output, list):
            output = [self._shown(part) for part in output]
        said = _content(output, f"{param}.output", TEXT_PARTS)
        name = self.called.get(call_id, "")
        self._add(ChatMessage(role="tool", text=said, tool_call_id=call_id, name=name), "tools")

    def _shown(self, part: object) -> object:
        """A part of a tool's output, or a text in its place."""
        kind = part.get("type") if isinstance(part, dict) else None
        if not isinstance(kind, str) or kind not in NOT_SHOWN:
            return part
        self._note(kind)
        return {"type": "text", "text": f"[{NOT_SHOWN[kind]} not shown: this model reads text only]"}

    def _note(self, word: str) -> None:
        if word not in self.found.neutralised:
            self.found.neutralised.append(word)

    def _assistant(self, part: ChatMessage, kind: int) -> None:
        """Put an assistant's item where it belongs: into the last assistant's message, or into one of its own."""
        turn = self.turn
        if turn is None or not self._joins(turn, part, kind):
            self.found.messages.append(part)
            self.turn, self.last, self.apart = part, kind, ""
            return
        self.pieces.setdefault(id(turn), [turn]).append(part)
        turn.node = turn.node or part.node
        self.last = kind

    def join(self) -> None:
        """Put each assistant's message together from its pieces, once: there may be very many."""
        for first, *rest in self.pieces.values():
            pieces = (first, *rest)
            first.text = "".join(piece.text for piece in pieces)
            first.reasoning = "\n\n".join(piece.reasoning for piece in pieces if piece.reasoning)
            first.tool_calls = [call for piece in pieces for call in piece.tool_calls]
        self.pieces.clear()

    def _joins(self, turn: ChatMessage, part: ChatMessage, kind: int) -> bool:
        """Whether both are of one reply. Results may stand between its calls when ids say that they belong together."""
        if turn.node and part.node:
            return turn.node == part.node and self.apart != "more"
        return self.apart == "" and (kind > self.last or kind == self.last != TEXT)


def _one(named: set[str]) -> str:
    """The only sample that ids name; "" when they name none, or two."""
    named.discard("")
    return named.pop() if len(named) == 1 else ""


def _content(value: object, param: str, parts: dict[str, str]) -> str:
    """Text of a content, a string or a list of parts that are text; null is empty.

    Args:
        parts: type of a part to the field that has its text.
    """
    if value is None:
        return ""
    if isinstance(value, str):
        return text(value, param)
    if not isinstance(value, list):
        raise bad_request(param, "must be a string or a list of text parts")
    said: list[str] = []
    for index, item in enumerate(value):
        here = f"{param}[{index}]"
        part = mapping(item, here)
        kind = part.get("type")
        field = parts.get(kind) if isinstance(kind, str) else None
        if field is None:
            raise bad_request(f"{here}.type", f"cannot be {shown(kind)}; this gateway takes text only")
        said.append(text(part.get(field), f"{here}.{field}"))
    return "".join(said)


def _thoughts(value: object, param: str, *kinds: str) -> str:
    """Text of a reasoning item's content or summary; null is empty."""
    said: list[str] = []
    for index, item in enumerate([] if value is None else listing(value, param)):
        part = mapping(item, f"{param}[{index}]")
        if part.get("type") not in kinds:
            raise bad_request(f"{param}[{index}].type", f"must be {kinds[0]}")
        said.append(text(part.get("text"), f"{param}[{index}].text"))
    return "\n\n".join(said)
