"""What a captured call said, as text, for whoever watches: no tokenizer is needed to read it again.

The texts stand in the call log beside the numbers that are trained on, and nothing depends on them.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextvars import ContextVar
from typing import Any

import msgspec

from console.records.calls import CallMessage

MESSAGE_CHARS = 16_000
CALL_CHARS = 64_000
"""Characters of a message, and of all new messages of a call, that are written down."""
MESSAGES_AT_MOST = 200
BRANCHES_KEPT = 2
"""Conversations of a trial that are remembered: an agent may keep one beside its main one."""

asked: ContextVar[Sequence[Any]] = ContextVar("asked", default=())
"""The chat messages of the current request, as they were rendered."""


class CallText(msgspec.Struct, kw_only=True):
    """The text of a call; fields as in `records.calls.CallLine`."""

    messages: list[CallMessage] = []
    kept: int = 0
    reply: str = ""
    reply_cut: int = 0
    pieces: list[str] = []


class ListeningRenderer:
    """The policy's renderer, which notes the messages that it renders for the current request."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def build_generation_prompt(self, messages: Sequence[Any], *args: Any, **kwargs: Any) -> Any:
        """As the renderer's own."""
        asked.set(messages)
        return self._inner.build_generation_prompt(messages, *args, **kwargs)


class Decoder:
    """Texts of sampled ids. Each id is decoded once."""

    def __init__(self, renderer: Any) -> None:
        """A renderer without a tokenizer gives no texts."""
        self._tokenizer = getattr(renderer, "tokenizer", None)
        self._stops = {stop for stop in renderer.get_stop_sequences() if isinstance(stop, int)}
        self._pieces: dict[int, str] = {}

    def reply(self, tokens_T: Sequence[int]) -> str:
        """The sampled text without the token that ended it."""
        if self._tokenizer is None:
            return ""
        end = len(tokens_T) - (1 if tokens_T and tokens_T[-1] in self._stops else 0)
        return str(self._tokenizer.decode(list(tokens_T[:end])))

    def pieces(self, tokens_T: Sequence[int]) -> list[str]:
        """The text of each token; a token that is part of a character has a replacement character."""
        if self._tokenizer is None:
            return []
        for token in tokens_T:
            if token not in self._pieces:
                self._pieces[token] = str(self._tokenizer.decode([token]))
        return [self._pieces[token] for token in tokens_T]


class _Branch(msgspec.Struct):
    """A conversation so far: hashes of its messages, and the reply that followed them."""

    hashes: list[int]
    reply: str


class Conversation:
    """One try's messages: tells those that are new in a request from those that an earlier one had."""

    def __init__(self, secret: str) -> None:
        """`secret` is never written down, not even when the agent repeats it."""
        self._secret = secret
        self._branches: list[_Branch] = []

    def text_of(self, messages: Sequence[Any], tokens_T: Sequence[int], decoder: Decoder) -> CallText:
        """The text of a call that was answered with `tokens_T`."""
        texts = [(str(message.get("role", "")), _text(message)) for message in messages]
        hashes = [hash(text) for text in texts]
        branch, known = self._longest(hashes)
        new = texts[known:]
        if branch is not None and known == len(branch.hashes) and new and _repeats(new[0], branch.reply):
            new = new[1:]
        reply = decoder.reply(tokens_T)
        extends = branch is not None and known == len(branch.hashes)
        others = [other for other in self._branches if not (extends and other is branch)]
        self._branches = [*others[1 - BRANCHES_KEPT :], _Branch(hashes, reply[:MESSAGE_CHARS])]
        new = new[-MESSAGES_AT_MOST:]
        pieces = decoder.pieces(tokens_T)
        if self._secret in reply:
            pieces = []
        shown = self._clean(reply)
        return CallText(
            messages=self._bounded(new),
            kept=len(texts) - len(new),
            reply=shown[:MESSAGE_CHARS],
            reply_cut=max(0, len(shown) - MESSAGE_CHARS),
            pieces=[_encodable(piece) for piece in pieces],
        )

    def _longest(self, hashes: list[int]) -> tuple[_Branch | None, int]:
        best: tuple[_Branch | None, int] = (None, 0)
        for branch in reversed(self._branches):
            length = 0
            for ours, theirs in zip(hashes, branch.hashes):
                if ours != theirs:
                    break
                length += 1
            if length > best[1]:
                best = branch, length
        return best

    def _bounded(self, texts: list[tuple[str, str]]) -> list[CallMessage]:
        left = CALL_CHARS
        messages = []
        for role, text in texts:
            text = self._clean(text)
            shown = text[: min(MESSAGE_CHARS, left)]
            left -= len(shown)
            messages.append(CallMessage(role=_encodable(role)[:40], text=shown, cut=len(text) - len(shown)))
        return messages

    def _clean(self, text: str) -> str:
        return _encodable(text.replace(self._secret, "[redacted]"))


def _text(message: Any) -> str:
    """A message's text; parts that are not text are named, tool calls stand behind it."""
    content = message.get("content") or ""
    parts = [content] if isinstance(content, str) else [_part(part) for part in content]
    for call in message.get("tool_calls") or ():
        function = getattr(call, "function", None)
        name, arguments = getattr(function, "name", "?"), getattr(function, "arguments", "")
        parts.append(f"[tool call {name}] {arguments}")
    return "\n".join(part for part in parts if part)


def _part(part: Any) -> str:
    if not isinstance(part, dict):
        return str(part)
    kind = str(part.get("type", "part"))
    text = part.get("text", part.get(kind))
    return text if isinstance(text, str) else f"[{kind}]"


def _repeats(message: tuple[str, str], reply: str) -> bool:
    """Whether an agent only sends back the reply that it got, perhaps without its thoughts or its tool calls."""
    role, text = message
    said = text.partition("[tool call ")[0].strip()
    return role == "assistant" and said[:MESSAGE_CHARS] in reply


def _encodable(text: str) -> str:
    """`text` without lone surrogates, which JSON cannot carry."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode("utf-8")
