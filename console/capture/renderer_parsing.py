"""Samples of policies whose form we do not know: the renderer's own parser takes them apart."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any

from console.capture import ids
from console.capture.chat import ToolCall, ToolSpec
from console.capture.encodable import encodable
from console.capture.parsing import THINK, UNTHINK, Parsed, decoded, typed_arguments
from console.capture.sampled_text import TokenTexts
from console.capture.tool_values import Schemas

log = logging.getLogger(__name__)


class RendererParser:
    """Takes samples apart with `renderer.parse_response`."""

    def __init__(self, renderer: Any, texts: TokenTexts, ends: frozenset[int], *, prefilled: bool) -> None:
        """`ends`: ids that end a reply; `prefilled`: the prompt ends inside an open `<think>`."""
        self._renderer, self._texts, self._ends, self._prefilled = renderer, texts, ends, prefilled

    def parse(self, tokens_T: Sequence[int], tools: Sequence[ToolSpec], node: str, *, truncated: bool) -> Parsed:
        """Take a sample apart; `truncated`: it was cut off by a limit. Raises nothing."""
        raw, pieces = decoded(self._texts, tokens_T, self._ends)
        parsed = Parsed(raw=raw, pieces=pieces)
        try:
            # The one for streams takes apart what a cut-off reply has.
            parser = self._renderer._parse_response_for_streaming if truncated else self._renderer.parse_response
            message, _ = parser(list(tokens_T))
            self._fill(parsed, message, Schemas(tools), node)
        except Exception as error:
            log.warning("a sample could not be parsed by its renderer: %s", type(error).__name__)
            parsed.text, parsed.reasoning = self._split(raw)
        parsed.reasoning_tokens = self._thinking(parsed, pieces)
        return parsed

    def _fill(self, parsed: Parsed, message: Mapping[str, Any], schemas: Schemas, node: str) -> None:
        content = message.get("content") or ""
        if isinstance(content, str):
            parsed.text, parsed.reasoning = self._split(content)
        else:
            parsed.reasoning = "".join(part["thinking"] for part in content if part["type"] == "thinking").strip("\n")
            parsed.text = "".join(part["text"] for part in content if part["type"] == "text")
        unread = [str(call.raw_text) for call in message.get("unparsed_tool_calls") or ()]
        calls: list[ToolCall] = []
        for call in message.get("tool_calls") or ():
            arguments = typed_arguments(schemas, call.function.name, call.function.arguments)
            if arguments is None:
                unread.append(f"{call.function.name} {call.function.arguments}")
                continue
            name = encodable(call.function.name)
            calls.append(ToolCall(id=ids.tool_call_id(node, len(calls)), name=name, arguments=arguments))
        parsed.tool_calls = calls
        parsed.malformed = bool(unread)
        for text in unread:
            if text not in parsed.text:
                parsed.text = "\n\n".join(part for part in (parsed.text.rstrip("\n"), text) if part)

    def _split(self, text: str) -> tuple[str, str]:
        """Visible text and thoughts of a text that begins with a thought; no thoughts when it does not."""
        bare = text.lstrip()
        if not self._prefilled and not bare.startswith(THINK):
            return text, ""
        thought, _, visible = bare.removeprefix(THINK).partition(UNTHINK)
        return visible.lstrip("\n"), thought.strip("\n")

    def _thinking(self, parsed: Parsed, pieces: Sequence[str]) -> int:
        """Tokens up to the end of the last thought, as far as the text shows where that is."""
        if not parsed.reasoning:
            return 0
        at = parsed.raw.find(parsed.reasoning)
        end = at + len(parsed.reasoning) if at >= 0 else 0
        count = length = 0
        for piece in pieces:
            if length >= end:
                break
            length += len(piece)
            count += 1
        return count
