"""Whether a pattern that somebody wrote may be searched in text that somebody else controls.

Python's matcher has no limit of time. Two habits make it slow beyond all measure: a repetition inside a repetition, and
a choice inside one. Both are refused; open repetitions in a row cost a power of the text's length each, so there may be
few, and a line is cut to `LINE` characters before it is searched.
"""

from __future__ import annotations

import importlib
import re
from typing import Any

LINE = 500
"""Longest line that a user's pattern is searched in, in characters."""

LONGEST = 500
"""Longest pattern, in characters."""

_OPEN = 100
"""A repetition of more than this counts as one without an end."""

_FEW = 8
"""A repetition of at most this may repeat something that varies."""

_NARROW = 20
"""Ways that are reckoned for an open repetition of a few characters, such as digits: what follows it ends it."""

_MOST_OPEN = 2
_MOST_WORK = 3e6
"""Steps at one place of a line; `LINE` times as many are a few seconds at the very worst."""

_parser: Any = importlib.import_module("re._parser")


def compile_pattern(pattern: str, *, ignore_case: bool = True) -> re.Pattern[str]:
    """The compiled pattern.

    Raises:
        ValueError: it is no regular expression, or one that may take for ever; the message is a phrase that says why
            and what to write instead.
    """
    if not pattern:
        raise ValueError("it is empty")
    if len(pattern) > LONGEST:
        raise ValueError(f"it is longer than {LONGEST} characters")
    flags = re.IGNORECASE if ignore_case else re.NOFLAG
    try:
        compiled = re.compile(pattern, flags)
        parsed = _parser.parse(pattern, flags)
    except (re.error, RecursionError, OverflowError) as error:
        raise ValueError(f"it is no regular expression: {error}") from error
    wide = [0]
    work = _work(parsed, wide)
    if wide[0] > _MOST_OPEN or work > _MOST_WORK:
        raise ValueError(f"it has too many open repetitions ({_MOST_OPEN} of .* may be): write .{{0,80}} for .*")
    if compiled.search("") is not None:
        raise ValueError("it matches nothing at all, so it would match every line")
    return compiled


def _work(parsed: Any, wide: list[int]) -> float:
    """Ways in which the items of a parsed pattern may divide a line between them; counts the wide repetitions."""
    product = 1.0
    for op, argument in parsed:
        name = str(op)
        if name == "GROUPREF":
            raise ValueError("it refers back to a group: write the alternatives out")
        if "REPEAT" in name:
            low, high, body = argument
            if int(high) > _FEW and _varies(body):
                raise ValueError(
                    "it repeats what itself repeats or has alternatives: write it without the outer * or +"
                )
            if int(high) > _OPEN and _is_wide(body):
                wide[0] += 1
            spread = min(int(high), LINE) - min(int(low), LINE) + 1
            product *= spread if _is_wide(body) or int(high) <= _OPEN else _NARROW
            product *= _work(body, wide) ** min(int(high), _FEW)
        else:
            for inner in _inside(argument):
                product *= _work(inner, wide)
    return product


def _inside(argument: Any) -> list[Any]:
    """Parsed patterns inside an item's argument: of groups, alternatives and looks ahead."""
    if isinstance(argument, _parser.SubPattern):
        return [argument]
    if isinstance(argument, tuple | list):
        return [found for part in argument for found in _inside(part)]
    return []


def _varies(parsed: Any) -> bool:
    """Whether it can match in several ways: it repeats, or has alternatives, somewhere inside."""
    for op, argument in parsed:
        name = str(op)
        if name == "BRANCH" or ("REPEAT" in name and argument[0] != argument[1]):
            return True
        if any(_varies(inner) for inner in _inside(argument)):
            return True
    return False


def _is_wide(body: Any) -> bool:
    """Whether what is repeated matches nearly anything, so that it runs over what should end it."""
    for op, argument in body:
        name = str(op)
        if name in ("ANY", "NOT_LITERAL"):
            return True
        if name == "IN" and any(str(kind) == "NEGATE" or "_NOT_" in str(value) for kind, value in argument):
            return True
        if any(_is_wide(inner) for inner in _inside(argument)):
            return True
    return False
