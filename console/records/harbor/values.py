"""JSON that Harbor wrote, or that something broke: parsed in bounds, and read without believing its types."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from typing import Any

import msgspec

from console.records.harbor.files import clean
from console.records.redact import HIDDEN, redact

LENIENT_LIMIT = 16 << 20
"""Bytes up to which a document that is no strict JSON is parsed again: it takes ten times its size in memory."""

VALUES = 1_000_000
"""Values of a document, keys counted, that are built at most: each may take ninety bytes."""

OBJECTS = 500_000
"""Objects that a typed document may have at most: each may become a row of what is decoded."""

type Scalar = str | int | float | bool | None
"""What a decoder takes for a plain value: a list or an object in its place makes the whole document no strict one."""

NOTHING = msgspec.Raw(b"null")
LARGEST = 2**63 - 1
"""Whole numbers beyond it, either way, are none that anything counted, and no format that answers are kept in has them.
"""
TEXT = 300
DEPTH = 8
ITEMS = 200


class CorruptError(Exception):
    """A document that cannot be parsed; the message is one line and says where."""


def parse(data: bytes, decoder: msgspec.json.Decoder[Any] | None = None, objects: int = OBJECTS) -> Any:
    """The document's value: by `decoder` when its types fit, else as plain values, with NaN and Infinity as numbers.

    Bytes that are no UTF-8 become U+FFFD; of a key that is given twice the last value counts, as for Harbor. A document
    of more than `objects` objects for the decoder, or of more than `VALUES` plain values, is not read.

    Raises:
        CorruptError: it is no JSON, or would take too much memory.
    """
    data = data.removeprefix(b"\xef\xbb\xbf")
    if decoder is None:
        _bound([data])
    elif len(data) > objects and data.count(b"{") > objects:
        raise CorruptError(f"holds more than {objects:,} objects, more than are read")
    try:
        return decoder.decode(data) if decoder else msgspec.json.decode(data)
    except RecursionError:
        raise CorruptError("is nested too deeply") from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        reason = str(error)
    if not data.strip():
        raise CorruptError("is empty")
    if len(data) > LENIENT_LIMIT or _are_many([data]):
        raise CorruptError(f"is no strict JSON ({reason}) and too large to be read otherwise")
    try:
        return json.loads(data.decode("utf-8", "replace"), parse_int=_integer)
    except json.JSONDecodeError as error:
        said = error.msg.lower().removesuffix(" at")
        raise CorruptError(f"is no JSON: {said} at line {error.lineno} of {_lines(data)}") from None
    except RecursionError:
        raise CorruptError("is nested too deeply") from None


def built(parts: Sequence[msgspec.Raw]) -> list[Any]:
    """The plain values of parts of one document. Raises CorruptError where they have more than `VALUES` together."""
    _bound(parts)
    return [parse(bytes(part)) for part in parts]


def _bound(parts: Sequence[bytes | msgspec.Raw]) -> None:
    if _are_many(parts):
        raise CorruptError(f"holds more than {VALUES:,} values, more than are read")


def _are_many(parts: Sequence[bytes | msgspec.Raw]) -> bool:
    """Whether parts of a document may have more than `VALUES` values and keys.

    In front of each but the first stands one of four characters, which are counted within texts, too.
    """
    views = [memoryview(part) for part in parts]
    left = VALUES
    if sum(view.nbytes for view in views) <= left:
        return False
    for view in views:
        for at in range(0, view.nbytes, 1 << 20):
            piece = bytes(view[at : at + (1 << 20)])
            left -= sum(piece.count(mark) for mark in (b",", b":", b"[", b"{"))
            if left < 0:
                return True
    return False


def _integer(text: str) -> int | float:
    return int(text) if len(text) < 400 else float(text)


def _digits(value: int) -> str:
    try:
        return str(value)
    except ValueError:  # more digits than Python converts
        return "inf" if value > 0 else "-inf"


def _lines(data: bytes) -> int:
    return data.count(b"\n") + 1


def table(value: object) -> dict[str, Any]:
    """The value when it is an object, else an empty one."""
    return value if isinstance(value, dict) else {}


def text(value: object, limit: int = TEXT) -> str:
    """The value when it is a text, cut to `limit` characters, else ""."""
    return clean(value[:limit]) if isinstance(value, str) else ""


def number(value: object) -> float | None:
    """The value when it is a finite number, else None."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        return float(value) if math.isfinite(value) else None
    except OverflowError:
        return None


def count(value: object, most: int = LARGEST) -> int | None:
    """The value when it is a whole number from 0 to `most`, else None."""
    if not isinstance(value, int | float) or number(value) is None or value != int(value):
        return None
    found = int(value)
    return found if 0 <= found <= most else None


def both_ends(value: object, limit: int) -> str:
    """The value when it is a text; of one longer than `limit` characters, its beginning and its end."""
    if not isinstance(value, str):
        return ""
    if len(value) > limit:
        half = (limit - 3) // 2
        value = f"{value[:half]}\n…\n{value[-half:]}"
    return clean(value)


def public(value: object, name: str = "") -> Any:
    """The value without what looks like a secret, and bounded.

    Texts are cut to 300 characters, lists and objects to 200 items and eight levels; numbers that are not finite become
    "nan", "inf" or "-inf", whole ones beyond `LARGEST` their digits as a text.
    """
    return redact(_bounded(value, DEPTH), name)


def environment_names(value: object) -> tuple[str, ...]:
    """Names of environment variables, given as an object or as a list of NAME=VALUE."""
    if isinstance(value, list):
        names = [item.partition("=")[0].strip() for item in value[:ITEMS] if isinstance(item, str)]
    else:
        names = list(table(value))[:ITEMS]
    return tuple(text(name) for name in names)


def without_environments(value: object) -> Any:
    """As `public`, with the values of everything called `env` hidden, which may be secrets of any shape."""
    return _hide(public(value))


def public_arguments(value: object) -> list[str]:
    """A command's arguments without the values of NAME=VALUE, and what follows an option, whose name is a secret's."""
    shown: list[str] = []
    for argument in value[:ITEMS] if isinstance(value, list) else []:
        last = shown[-1] if shown else ""
        hidden = last.startswith("--") and "=" not in last and _is_secret(last)
        shown.append(HIDDEN if hidden else _argument(public(str(argument))))
    return shown


def _argument(argument: str) -> str:
    parts = argument.split("=")
    for at, name in enumerate(parts[:-1]):
        if _is_secret(name):
            return "=".join([*parts[: at + 1], HIDDEN])
    return argument


def _is_secret(name: str) -> bool:
    return name.lower().strip("-") == "token" or redact("x", name) == HIDDEN


def _hide(value: Any) -> Any:
    if isinstance(value, list):
        return [_hide(item) for item in value]
    if not isinstance(value, dict):
        return value
    return {
        key: dict.fromkeys(environment_names(item), HIDDEN) if key == "env" else _hide(item)
        for key, item in value.items()
    }


def _item(key: str, value: object, depth: int) -> Any:
    # Elsewhere `token` is a word of the field; among options it is a key.
    return HIDDEN if key.lower() == "token" and isinstance(value, str) else _bounded(value, depth)


def _bounded(value: object, depth: int) -> Any:
    """The depth is bounded by the argument, so that nothing that was parsed can exhaust the stack."""
    if isinstance(value, str):
        return text(value)
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, int) and abs(value) > LARGEST:
        return text(_digits(value))
    if isinstance(value, dict | list) and not depth:
        return "…"
    if isinstance(value, dict):
        return {text(key): _item(key, item, depth - 1) for key, item in list(value.items())[:ITEMS]}
    if isinstance(value, list):
        return [_bounded(item, depth - 1) for item in value[:ITEMS]]
    return value if isinstance(value, bool | int | float) else None
