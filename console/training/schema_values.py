"""From text or a TOML value to an option's value. Text is read as the cookbook's own command line (chz) reads it."""

from __future__ import annotations

import ast
import math
import shlex
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from console.training.schema import Option

_TRUE, _FALSE = {"t", "true", "True", "1"}, {"f", "false", "False", "0"}


class ValueProblem(Exception):
    """A value does not have its option's type; the message says which type it must have."""


def from_text(option: Option, text: str) -> Any:
    """The value of `key=text`. Raises `ValueProblem`."""
    if not text.isascii() and text != text.encode("utf-8", "replace").decode():
        raise ValueProblem("is not UTF-8; rename the file or directory, or correct the text")
    if option.nullable and text == "None":
        return None
    match option.kind:
        case "bool" if text in _TRUE | _FALSE:
            return text in _TRUE
        case "int" | "float":
            return _number(option, text)
        case "choice" if text in option.choices:
            return text
        case "str" | "path" | "url" | "command":
            return text
        case "dict":
            value = {} if not text else _literal(text)
            if isinstance(value, dict):
                return _checked_dict(option, value)
        case "list":
            return _list(option, text)
        case "any":
            return text
    raise ValueProblem(_wanted(option, text))


def from_toml(option: Option, value: Any) -> Any:
    """The value of a key of a TOML file; `"None"` stands for None, which TOML lacks. Raises `ValueProblem`."""
    if option.nullable and value == "None":
        return None
    match option.kind:
        case "bool" if isinstance(value, bool):
            return value
        case "int" if isinstance(value, int) and not isinstance(value, bool):
            return value
        case "float" if isinstance(value, int | float) and not isinstance(value, bool):
            return _finite(option, float(value))
        case "choice" if isinstance(value, str) and value in option.choices:
            return value
        case "str" | "path" | "url" | "command" if isinstance(value, str):
            return value
        case "dict" if isinstance(value, dict):
            return _checked_dict(option, value)
        case "list" if isinstance(value, list) and all(isinstance(item, str) for item in value):
            return value
        case "any":
            return value
    raise ValueProblem(_wanted(option, value))


def resolve_path(text: str, base: Path) -> str:
    """An absolute path; `~` is the user's home, a relative path starts at `base`."""
    return str((base / Path(text).expanduser()).resolve())


def check_url(text: str) -> None:
    """Raises `ValueProblem` for what is no address that can be asked; the message does not repeat it."""
    try:
        parts = urlsplit(text)
        good = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0 and text.isprintable()
    except ValueError:
        good = False
    if not good or " " in text:
        raise ValueProblem("must be an address such as https://host/path")


def command_words(text: str) -> list[str]:
    """A command line's words, read as a shell reads them. Raises `ValueProblem`; the message does not repeat them."""
    try:
        words = shlex.split(text)
    except ValueError as problem:
        raise ValueProblem(f"cannot be read as a command line: {problem}") from None
    if not words or not words[0]:
        raise ValueProblem("is empty; give a command")
    if "\0" in text:
        raise ValueProblem("holds a null character")
    return words


def _number(option: Option, text: str) -> int | float:
    try:
        return int(text) if option.kind == "int" else _finite(option, float(text))
    except ValueError:
        raise ValueProblem(_wanted(option, text)) from None


def _finite(option: Option, value: float) -> float:
    if not math.isfinite(value):
        raise ValueProblem(_wanted(option, value))
    return value


def _literal(text: str) -> Any:
    """A Python or JSON literal; None when it is neither."""
    import json

    for read in (ast.literal_eval, json.loads):
        try:
            return read(text)
        except (ValueError, SyntaxError, RecursionError, MemoryError):
            continue
    return None


def _list(option: Option, text: str) -> list[str]:
    if text[:1] not in ("[", "("):
        return text.split(",") if text else []
    value = _literal(text)
    if not isinstance(value, list | tuple) or not all(isinstance(item, str) for item in value):
        raise ValueProblem(_wanted(option, text))
    return list(value)


def _checked_dict(option: Option, value: dict[Any, Any]) -> dict[str, Any]:
    """The dict, when JSON can carry it: string keys, and no number that JSON lacks."""
    if not all(isinstance(key, str) for key in value) or not _plain(value):
        raise ValueProblem(f"{_wanted(option, value)}, with text keys and finite numbers")
    return value


def _plain(value: Any) -> bool:
    if isinstance(value, dict):
        return all(isinstance(key, str) and _plain(item) for key, item in value.items())
    if isinstance(value, list):
        return all(map(_plain, value))
    if isinstance(value, float):
        return math.isfinite(value)
    return value is None or isinstance(value, bool | int | str)


_NAMES = {
    "bool": "true or false",
    "int": "a whole number",
    "float": "a finite number",
    "str": "text",
    "path": "a path",
    "url": "an address",
    "command": "a command line",
    "dict": 'a dictionary such as {"name": 0.2}',
    "list": "a list a,b,c",
}


def _wanted(option: Option, value: object) -> str:
    wanted = "one of " + ", ".join(option.choices) if option.kind == "choice" else _NAMES[option.kind]
    if option.nullable:
        wanted += " or None"
    if option.secret:
        return f"must be {wanted}"
    shown = repr(value)
    return f"must be {wanted}, it is {shown if len(shown) < 80 else shown[:77] + '...'}"
