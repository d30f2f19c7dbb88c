"""What a sample says: thoughts, visible text and tool calls.

Samples are the policy's, early in training at its worst: nothing in them is guaranteed. What is not a tool call as the
template has them stays visible text, so that the agent can tell the policy about it; thoughts never become visible.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import msgspec

from console.capture import ids
from console.capture.chat import ToolCall, ToolSpec
from console.capture.encodable import encodable
from console.capture.sampled_text import TokenTexts
from console.capture.tool_values import Schemas, dumped, loaded, loaded_at

THINK, UNTHINK = "<think>", "</think>"
CALL, UNCALL = "<tool_call>", "</tool_call>"

_MARKS = re.compile(f"{re.escape(THINK)}|{re.escape(CALL)}")
_JSON_CALL = re.compile(r"<tool_call>\s*(?=\{)")
_XML_CALL = re.compile(r"<tool_call>\s*<function=([^>\n]+)>\s*")
_PARAMETER = re.compile(r"<parameter=([^>\n]+)>")
_PARAMETER_END = re.compile(r"</parameter>\s*(?=<parameter=[^>\n]+>|</function>\s*</tool_call>)")
_XML_END = re.compile(r"</function>\s*</tool_call>")
_JSON_END = re.compile(r"\s*</tool_call>")
_CALL_BEGINS = re.compile(r"<tool_call>\s*(?:<function=|\{)")


class Parsed(msgspec.Struct, kw_only=True):
    """A sample taken apart.

    Attributes:
        text: what is visible, tool calls that could not be read among it; reasoning: thoughts without their tags.
        tool_calls: complete ones, arguments as JSON objects; malformed: something began as a tool call and is none.
        reasoning_tokens: of the sampled ones, up to the end of the thought.
        raw: the sample decoded, without the token that ended it; pieces: what each sampled token adds to `raw`, "" for
            the token that ended it.
    """

    text: str = ""
    reasoning: str = ""
    tool_calls: list[ToolCall] = []
    malformed: bool = False
    reasoning_tokens: int = 0
    raw: str = ""
    pieces: list[str] = []


class TextForm(msgspec.Struct, frozen=True):
    """How the policy's template begins a reply.

    Attributes:
        prefilled: the prompt ends inside an open thought.
        thinks: a reply may end a thought that it did not begin.
    """

    prefilled: bool
    thinks: bool


class QwenParser:
    """Takes samples of the Qwen families apart: `<think>`, and tool calls as XML or as JSON."""

    def __init__(self, texts: TokenTexts, ends: frozenset[int], form: TextForm) -> None:
        """`ends`: ids that end a reply."""
        self._texts, self._ends, self._form = texts, ends, form

    def parse(self, tokens_T: Sequence[int], tools: Sequence[ToolSpec], node: str, *, truncated: bool) -> Parsed:
        """Take a sample apart; `truncated`: it was cut off by a limit. Raises nothing."""
        raw, pieces = decoded(self._texts, tokens_T, self._ends)
        scan = _Scan(raw, Schemas(tools), truncated)
        scan.run(self._begins_inside(raw))
        return Parsed(
            text=scan.visible(),
            reasoning="\n\n".join(thought for thought in scan.thoughts if thought),
            tool_calls=[
                ToolCall(id=ids.tool_call_id(node, number), name=name, arguments=arguments)
                for number, (name, arguments) in enumerate(scan.calls)
            ],
            malformed=scan.malformed,
            reasoning_tokens=_tokens_within(pieces, scan.thought_spans),
            raw=raw,
            pieces=pieces,
        )

    def _begins_inside(self, raw: str) -> bool:
        if self._form.prefilled:
            return True
        end = raw.find(UNTHINK) if self._form.thinks else -1
        begin = _MARKS.search(raw) if end >= 0 else None
        return end >= 0 and (begin is None or begin.start() > end)


class _Scan:
    """One pass over a sample's text."""

    def __init__(self, raw: str, schemas: Schemas, truncated: bool) -> None:
        self._raw, self._schemas, self._truncated = raw, schemas, truncated
        self._shown: list[str] = []
        self.thoughts: list[str] = []
        self.thought_spans: list[tuple[int, int]] = []
        self.calls: list[tuple[str, str]] = []
        self.malformed = False
        self._spoken = False
        self._last_unthink = raw.rfind(UNTHINK)
        self._words_only = not truncated and not raw.rstrip().endswith(UNCALL)

    def run(self, inside: bool) -> None:
        """Read it all; `inside`: it begins in a thought."""
        raw, at = self._raw, 0
        if inside:
            opening = re.match(r"\s*<think>", raw)
            at = self._thought(0, opening.end() if opening else 0)
        while at < len(raw):
            mark = self._next_mark(at)
            if mark is None:
                self._show(raw[at:])
                break
            self._show(raw[at : mark.start()])
            at = self._thought(mark.start(), mark.end()) if mark[0] == THINK else self._call(mark.start())

    def _next_mark(self, at: int) -> re.Match[str] | None:
        """Where the next thought or tool call begins.

        In a finished reply, a thought that begins behind visible text and that nothing closes is a word: agents whose
        replies are files or keystrokes have it in them, and would lose all that follows it.
        """
        mark = _MARKS.search(self._raw, at)
        while mark is not None and mark[0] == THINK and self._words_only and mark.start() > self._last_unthink:
            self._spoken = self._spoken or bool(self._raw[at : mark.start()].strip())
            if not self._spoken:
                break
            mark = _MARKS.search(self._raw, mark.end())
        return mark

    def visible(self) -> str:
        """The visible text; line breaks that frame thoughts and tool calls are not part of it."""
        if not self.calls and not self.malformed:
            return "".join(self._shown)
        kept = [part.strip("\n") for part in self._shown]
        return "\n\n".join(part for part in kept if part.strip())

    def _show(self, text: str) -> None:
        if self.thoughts and not self._shown:
            text = text.lstrip("\n")
        if text:
            self._shown.append(text)
            self._spoken = self._spoken or not text.isspace()

    def _thought(self, begin: int, at: int) -> int:
        """A thought whose text starts at `at`; where what follows it starts."""
        end = self._raw.find(UNTHINK, at)
        if end >= 0:
            after = end + len(UNTHINK)
        else:
            end = after = self._unclosed_end(at)
        self.thoughts.append(self._raw[at:end].strip("\n"))
        self.thought_spans.append((begin, after))
        return after

    def _unclosed_end(self, at: int) -> int:
        """Where a thought ends that nothing closes: at the tool calls that end a finished reply, else with the reply.

        A model that forgets to close its thought still means the call that it ends with; one that was cut off may have
        been thinking about a call.
        """
        if not self._truncated and self._raw.rstrip().endswith(UNCALL):
            call = _CALL_BEGINS.search(self._raw, at)
            if call is not None:
                return call.start()
        return len(self._raw)

    def _call(self, begin: int) -> int:
        """A tool call that starts at `begin`; where what follows it starts."""
        found = self._json_call(begin) or self._xml_call(begin)
        if found is not None:
            name, arguments, end = found
            self.calls.append((name, arguments))
            return end
        self.malformed = True
        end = self._broken_end(begin)
        self._shown.append(self._raw[begin:end])
        return end

    def _broken_end(self, begin: int) -> int:
        """A call that cannot be read reaches to its closing tag, or to the next call, or to the end."""
        again = self._raw.find(CALL, begin + len(CALL))
        end = again if again >= 0 else len(self._raw)
        close = self._raw.find(UNCALL, begin, end)
        return close + len(UNCALL) if close >= 0 else end

    def _json_call(self, begin: int) -> tuple[str, str, int] | None:
        head = _JSON_CALL.match(self._raw, begin)
        if head is None:
            return None
        try:
            call, at = loaded_at(self._raw, head.end())
        except ValueError:
            return None
        end = _JSON_END.match(self._raw, at)
        name = call.get("name") if isinstance(call, dict) else None
        if end is None or not isinstance(name, str) or not name:
            return None
        arguments = typed_arguments(self._schemas, name, call.get("arguments"))
        return None if arguments is None else (encodable(name), arguments, end.end())

    def _xml_call(self, begin: int) -> tuple[str, str, int] | None:
        head = _XML_CALL.match(self._raw, begin)
        name = head[1].strip() if head else ""
        if head is None or not name:
            return None
        values: dict[str, Any] = {}
        at = head.end()
        # A parameter that is never closed must not take the end of another call's for its own.
        following = _XML_CALL.search(self._raw, at)
        limit = following.start() if following else len(self._raw)
        while (parameter := _PARAMETER.match(self._raw, at)) is not None:
            # Values may hold anything, these tags too: one ends where the next part of the call follows.
            end = _PARAMETER_END.search(self._raw, parameter.end(), limit)
            key = parameter[1].strip()
            if end is None or not key or key in values:
                return None
            value = self._raw[parameter.end() : end.start()]
            values[key] = self._schemas.from_text(name, key, _unframed(value))
            at = end.end()
        close = _XML_END.match(self._raw, at)
        if close is None:
            return None
        try:
            return name, dumped(values), close.end()
        except ValueError:
            return None


def typed_arguments(schemas: Schemas, name: str, arguments: Any) -> str | None:
    """Decoded arguments, or their JSON text, as the tool's schema wants them; None when they are not an object."""
    try:
        if isinstance(arguments, str):
            arguments = loaded(arguments)
        if not isinstance(arguments, dict):
            return None
        return dumped({key: schemas.from_value(name, key, value) for key, value in arguments.items()})
    except ValueError:
        return None


def decoded(texts: TokenTexts, tokens_T: Sequence[int], ends: frozenset[int]) -> tuple[str, list[str]]:
    """The sample's text without the token that ended it, and what each token adds to it."""
    said = tokens_T[:-1] if len(tokens_T) and tokens_T[-1] in ends else tokens_T
    raw = texts.decode(said)
    return raw, texts.pieces(said, raw) + [""] * (len(tokens_T) - len(said))


def _unframed(value: str) -> str:
    """A parameter's text without the line break on each side that belongs to the template."""
    return value.removeprefix("\n").removesuffix("\n")


def _tokens_within(pieces: Sequence[str], spans: Sequence[tuple[int, int]]) -> int:
    """How many tokens begin within the spans of the text."""
    count = at = 0
    left = list(spans)
    for piece in pieces:
        while left and at >= left[0][1]:
            left.pop(0)
        if not left:
            break
        count += at >= left[0][0]
        at += len(piece)
    return count
