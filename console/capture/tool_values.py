"""Types of a tool call's arguments, from the schema that the request gave for the tool.

Models write arguments as text or as loose JSON; agents expect what their schema says. Schemas come from a sandbox:
nothing in them is taken for granted, and how deep they are followed is bounded.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from typing import Any, NoReturn

from console.capture.chat import ToolSpec
from console.capture.encodable import encodable

NODES = 200
"""Parts of a schema that are looked at for one parameter, references and alternatives among them; beyond that its type
counts as unknown."""

_JSON_TYPES = frozenset({"string", "integer", "number", "boolean", "object", "array", "null"})
_OF_VALUE: dict[type, str] = {
    str: "string",
    bool: "boolean",
    int: "integer",
    float: "number",
    dict: "object",
    list: "array",
    type(None): "null",
}


class Schemas:
    """Parameter types of a request's tools; looked up by name."""

    def __init__(self, tools: Iterable[ToolSpec]) -> None:
        self._tools = {tool.name: tool.parameters for tool in tools}
        self._known: dict[tuple[str, str], frozenset[str]] = {}

    def types(self, tool: str, parameter: str) -> frozenset[str]:
        """What JSON types a parameter may have; empty when nothing is known."""
        key = tool, parameter
        if key not in self._known:
            root = self._tools.get(tool)
            self._known[key] = _Reading(root).parameter(parameter) if isinstance(root, Mapping) else frozenset()
        return self._known[key]

    def from_text(self, tool: str, parameter: str, text: str) -> Any:
        """The value that the text of a parameter stands for.

        A string stays a string whatever it looks like. Where other types are allowed too, text that is JSON of one of
        those is taken as such. Of an unknown parameter only objects and arrays are guessed. All else stays text.
        """
        types = self.types(tool, parameter)
        others = (types or frozenset({"object", "array"})) - {"string"}
        if not others:
            return text
        value = _value(text, words="string" not in types)
        return text if value is _NOTHING else _fitting(value, others, text)

    def from_value(self, tool: str, parameter: str, value: Any) -> Any:
        """A decoded JSON value as the schema wants it, itself where it cannot be made to fit."""
        types = self.types(tool, parameter)
        if not types:
            return value
        fitted = _fitting(value, types, _NOTHING)
        if fitted is not _NOTHING:
            return fitted
        if isinstance(value, str):
            return self.from_text(tool, parameter, value)
        return dumped(value) if "string" in types else value


def dumped(value: Any) -> str:
    """A value as JSON text. Raises ValueError for numbers that JSON has no word for and for too deep a value."""
    try:
        return encodable(json.dumps(value, ensure_ascii=False, allow_nan=False))
    except RecursionError:
        raise ValueError("too deeply nested") from None


def loaded(text: str) -> Any:
    """A JSON text's value. Raises ValueError, also for numbers that JSON has no word for and for too deep a value."""
    try:
        return _DECODER.decode(text)
    except RecursionError:
        raise ValueError("too deeply nested") from None


def loaded_at(text: str, at: int) -> tuple[Any, int]:
    """The JSON value that begins there, and where it ends. Raises ValueError."""
    try:
        return _DECODER.raw_decode(text, at)
    except RecursionError:
        raise ValueError("too deeply nested") from None


def _finite(digits: str) -> float:
    value = float(digits)
    if not math.isfinite(value):
        raise ValueError("number out of range")
    return value


def _no_constant(word: str) -> NoReturn:
    raise ValueError(f"{word} is not JSON")


_DECODER = json.JSONDecoder(parse_float=_finite, parse_constant=_no_constant)
_NOTHING = object()
_WORDS = {"true": True, "false": False, "none": None, "null": None}
"""Some templates write truth values and null as Python does, and models learn it."""


def _value(text: str, *, words: bool) -> Any:
    """What the text is as JSON; `words`: or as a word for a truth value or null, however it is written."""
    bare = text.strip()
    if words and bare.lower() in _WORDS:
        return _WORDS[bare.lower()]
    try:
        return loaded(bare)
    except ValueError:
        return _NOTHING


def _fitting(value: Any, types: frozenset[str], otherwise: Any) -> Any:
    """The value if it is of one of the types, 5.0 as 5 where integers are wanted; else `otherwise`."""
    kind = _OF_VALUE[type(value)]
    if kind in types or (kind == "integer" and "number" in types):
        return value
    if kind == "number" and "integer" in types and value.is_integer():
        return int(value)
    return otherwise


class _Reading:
    """One look through a tool's schema."""

    def __init__(self, root: Mapping[str, Any]) -> None:
        self._root, self._left = root, NODES

    def parameter(self, name: str) -> frozenset[str]:
        """The JSON types of a parameter."""
        properties = self._root.get("properties")
        if isinstance(properties, Mapping) and name in properties:
            return frozenset(self._types(properties[name]))
        return frozenset(self._types(self._root.get("additionalProperties")))

    def _types(self, schema: Any) -> set[str]:
        """What a schema allows; nothing when it does not say."""
        self._left -= 1
        if not isinstance(schema, Mapping) or self._left < 0:
            return set()
        said = schema.get("type")
        words = [said] if isinstance(said, str) else said if isinstance(said, list) else []
        found = {word for word in words if isinstance(word, str) and word in _JSON_TYPES}
        found = found or _of_values(schema) or self._of_others(schema)
        if not found and ("properties" in schema or "additionalProperties" in schema):
            found = {"object"}
        if not found and ("items" in schema or "prefixItems" in schema):
            found = {"array"}
        return found | {"null"} if found and schema.get("nullable") is True else found

    def _of_others(self, schema: Mapping[str, Any]) -> set[str]:
        """Through alternatives and references."""
        found: set[str] = set()
        for key in ("anyOf", "oneOf", "allOf"):
            alternatives = schema.get(key)
            for alternative in alternatives[:NODES] if isinstance(alternatives, list) else ():
                found |= self._types(alternative)
        reference = schema.get("$ref")
        if isinstance(reference, str) and reference.startswith("#/") and len(reference) < NODES:
            target: Any = self._root
            for step in reference[2:].split("/"):
                target = target.get(step.replace("~1", "/").replace("~0", "~")) if isinstance(target, Mapping) else None
            found |= self._types(target)
        return found


def _of_values(schema: Mapping[str, Any]) -> set[str]:
    values = schema.get("enum")
    listed = list(values[:NODES]) if isinstance(values, list) else []
    if "const" in schema:
        listed.append(schema["const"])
    return {_OF_VALUE[type(value)] for value in listed if type(value) in _OF_VALUE}
