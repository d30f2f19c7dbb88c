"""Checks of JSON fields that come from a sandbox. Each names the field and never repeats what was in it."""

from __future__ import annotations

import math
from collections.abc import Container, Mapping
from typing import Any

from console.capture.encodable import encodable
from console.capture.refusals import bad_request

INTEGER_LIMIT = 2**53
SCHEMA_DEPTH = 64
SCHEMA_VALUES = 50_000
UNKNOWN_FIELDS = 20
UNKNOWN_CHARS = 40


def mapping(value: object, param: str) -> dict[str, Any]:
    """The value, which must be an object."""
    if not isinstance(value, dict):
        raise bad_request(param, "must be an object")
    return value


def listing(value: object, param: str) -> list[Any]:
    """The value, which must be a list."""
    if not isinstance(value, list):
        raise bad_request(param, "must be a list")
    return value


def text(value: object, param: str) -> str:
    """The value, which must be a string; lone surrogates in it are replaced, they cannot be encoded."""
    if not isinstance(value, str):
        raise bad_request(param, "must be a string")
    return encodable(value)


def integer(body: Mapping[str, Any], key: str, *, at_least: int | None = None, prefix: str = "") -> int | None:
    """An optional whole number; 100.0 is one. None when it is missing or null."""
    value = body.get(key)
    if value is None:
        return None
    if isinstance(value, float) and math.isfinite(value) and value.is_integer():
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int):
        raise bad_request(prefix + key, "must be an integer")
    if abs(value) >= INTEGER_LIMIT or (at_least is not None and value < at_least):
        least = "" if at_least is None else f" of {at_least} or more"
        raise bad_request(prefix + key, f"must be an integer{least}")
    return value


def number(body: Mapping[str, Any], key: str, *, prefix: str = "") -> float | None:
    """An optional finite number. None when it is missing or null."""
    value = body.get(key)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise bad_request(prefix + key, "must be a number")
    if (isinstance(value, int) and abs(value) >= INTEGER_LIMIT) or not math.isfinite(value):
        raise bad_request(prefix + key, "must be a finite number")
    return float(value)


def boolean(body: Mapping[str, Any], key: str, *, default: bool = False, prefix: str = "") -> bool:
    """An optional truth value."""
    value = body.get(key)
    if value is None:
        return default
    if not isinstance(value, bool):
        raise bad_request(prefix + key, "must be true or false")
    return value


def neutral(body: Mapping[str, Any], key: str, *allowed: object) -> None:
    """Refuse a parameter that would change what is sampled unless its value says that nothing changes.

    Missing and null are always allowed; `allowed` are the other values that mean nothing.
    """
    value = body.get(key)
    if value is not None and not any(isinstance(value, bool) is isinstance(a, bool) and value == a for a in allowed):
        raise bad_request(key, "cannot be honoured by this gateway; leave it out")


def schema(value: object, param: str) -> dict[str, Any]:
    """A JSON schema, or any other object that is rendered into the prompt: finite, encodable, and not too deep."""
    left = SCHEMA_VALUES

    def clean(part: object, depth: int) -> object:
        nonlocal left
        left -= 1
        if depth > SCHEMA_DEPTH or left < 0:
            raise bad_request(param, "is too deep or too large")
        if isinstance(part, str):
            return encodable(part)
        if isinstance(part, dict):
            return {encodable(str(key)): clean(inner, depth + 1) for key, inner in part.items()}
        if isinstance(part, list):
            return [clean(inner, depth + 1) for inner in part]
        if isinstance(part, float) and not math.isfinite(part):
            raise bad_request(param, "must hold finite numbers only")
        return part

    cleaned = clean(mapping(value, param), 0)
    assert isinstance(cleaned, dict)
    return cleaned


def unknown(body: Mapping[str, Any], known: Container[str]) -> list[str]:
    """`unknown:<name>` for fields neither known nor null, as a record may show them: few, short, printable."""
    names = [key for key, value in body.items() if value is not None and key not in known]
    return [
        "unknown:" + "".join(c if c.isprintable() else "?" for c in encodable(name[:UNKNOWN_CHARS]))
        for name in names[:UNKNOWN_FIELDS]
    ]


def retried(headers: Mapping[str, str]) -> bool:
    """Whether the client says that it sends this request again; SDKs count their tries in a header."""
    count = headers.get("x-stainless-retry-count", "")
    return count.isascii() and count.isdigit() and count.strip("0") != ""
