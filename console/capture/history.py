"""What makes two conversations the same: digests of messages that agents may send back in another spelling.

Agents keep what was said and change how it is written: they re-serialise tool arguments, trim text, drop thoughts,
rename the ids of tool calls. None of that is part of a digest. Thoughts are compared apart (`thoughts`), because they
may be missing and may not be changed.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

import msgspec

from console.capture.chat import ChatMessage, ToolCall, ToolSpec

_BYTES = 16
_EXACT = 2.0**53  # the integers that a float, and with it JavaScript, has exactly

_sorted = msgspec.json.Encoder(order="sorted")
_pack = msgspec.msgpack.Encoder().encode


class Keys:
    """Digests of a request, computed once.

    Attributes:
        tools: of the tools in their order, b"" without any; system: of the system messages that come first, b"" for
            none.
        chain: for each message, of the conversation up to and with it. Its first `PLAIN` bytes leave out system
            messages, wherever they stand.
        request: of all messages.
    """

    PLAIN = _BYTES

    __slots__ = ("_said", "_system", "chain", "messages", "request", "system", "tools")

    def __init__(self, messages: Sequence[ChatMessage], tools: Sequence[ToolSpec]) -> None:
        self.messages = messages
        self.tools = tools_digest(tools)
        self.system = b""
        self.chain: list[bytes] = []
        said, system = hashlib.blake2b(digest_size=_BYTES), hashlib.blake2b(digest_size=_BYTES)
        of_said, of_system = said.digest(), system.digest()
        calls: dict[str, int] = {}
        others = 0
        for message in messages:
            if message.role == "system":
                system.update(_packed((others, message.text)))  # where it stands matters
                of_system = system.digest()
                if not others:
                    self.system = of_system
            else:
                others += 1
                said.update(canonical(message, calls))
                of_said = said.digest()
            self.chain.append(of_said + of_system)
            if message.role == "assistant":
                calls = {call.id: index for index, call in enumerate(message.tool_calls)}
        self._said, self._system = said, of_system
        self.request = of_said + of_system

    def answered(self, text: str, tool_calls: Sequence[ToolCall]) -> bytes:
        """Digest of the conversation after a reply to this request."""
        said = self._said.copy()
        said.update(_said(text, tool_calls))
        return said.digest() + self._system


def canonical(message: ChatMessage, calls: dict[str, int]) -> bytes:
    """A message without what agents change; `calls`: number of each tool call of the assistant's message before."""
    if message.role == "assistant":
        return _said(message.text, message.tool_calls)
    if message.role == "tool":
        # Agents rename ids. Which of the calls a result answers stays the same.
        return _packed(("tool", message.text, message.name, calls.get(message.tool_call_id, -1)))
    return _packed((message.role, message.text))


def content(message: ChatMessage) -> bytes:
    """Digest of one message, wherever it stands."""
    return hashlib.blake2b(canonical(message, {}), digest_size=_BYTES).digest()


def thoughts(reasoning: str) -> int:
    """What tells thoughts apart within this process, 0 for none. litellm says those of Anthropic's streams twice."""
    half = len(reasoning) // 2
    if reasoning[:half] == reasoning[half:]:
        reasoning = reasoning[:half]
    stripped = reasoning.strip()
    return hash(stripped) if stripped else 0


def tools_digest(tools: Sequence[ToolSpec]) -> bytes:
    """Digest of the tools in their order, b"" without any."""
    return hashlib.blake2b(_packed(list(tools)), digest_size=_BYTES).digest() if tools else b""


def arguments(text: str) -> str | bytes:
    """Arguments of a tool call, equal for equal JSON values; text that is no JSON as it stands.

    1.0 and 1 are one number: a JavaScript agent writes what it read as 1.0 as 1.
    """
    if not text.strip():
        return b"{}"
    try:
        return _sorted.encode(_numbers(msgspec.json.decode(text)))
    except (msgspec.MsgspecError, ValueError, OverflowError, RecursionError):
        return text.strip()


def _numbers(value: Any) -> Any:
    if type(value) is float:
        return int(value) if value.is_integer() and abs(value) < _EXACT else value
    if type(value) is dict:
        return {key: _numbers(item) for key, item in value.items()}
    if type(value) is list:
        return [_numbers(item) for item in value]
    return value


def _said(text: str, tool_calls: Sequence[ToolCall]) -> bytes:
    return _packed(("assistant", text.strip(), [(call.name, arguments(call.arguments)) for call in tool_calls]))


def _packed(value: Any) -> bytes:
    """Bytes that no other value has."""
    try:
        return _pack(value)
    except (ValueError, OverflowError, RecursionError):  # a lone surrogate, an integer of more than 64 bits
        return repr(value).encode("utf-8", "backslashreplace")
