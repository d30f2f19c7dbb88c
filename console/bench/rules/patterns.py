"""Whether a pattern that somebody wrote may be searched in text that somebody else controls.

Python's matcher has no limit of time. A repetition inside a repetition, or a choice inside one, may take for ever, so
both are refused. Repetitions behind each other multiply: the ways in which they can divide a line are reckoned, and
there may be as many as two of `.*` have. A line is cut to `LINE` characters before it is searched.
"""

from __future__ import annotations

import importlib
import re
from typing import Any

LINE = 500
"""Longest line that a user's pattern is searched in, in characters."""

LONGEST = 500
"""Longest pattern, in characters."""

_FEW = 8
"""A repetition of at most this may repeat something that varies."""

_MOST_WORK = LINE * LINE
"""Ways to divide a line, from one place of it: two open repetitions. `LINE` places take a fifth of a second."""

_parser: Any = importlib.import_module("re._parser")
_CATEGORIES = {
    "DIGIT": frozenset("0123456789"),
    "SPACE": frozenset(" \t\n\r\f\v"),
    "WORD": frozenset(char for char in map(chr, range(128)) if char.isalnum() or char == "_"),
}
_ASCII = frozenset(map(chr, range(128)))

type _Items = list[tuple[str, Any]]


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
    if _work(_flat(parsed)) > _MOST_WORK:
        raise ValueError("it has too many open repetitions (two of .* may be): write .{0,20} for .*")
    if compiled.search("") is not None:
        raise ValueError("it matches nothing at all, so it would match every line")
    return compiled


def _flat(parsed: Any) -> _Items:
    """Items in a row, with plain groups opened."""
    items: _Items = []
    for op, argument in parsed:
        name = str(op)
        if name == "SUBPATTERN":
            items += _flat(argument[-1])
        elif name == "ATOMIC_GROUP":
            items += _flat(argument)
        else:
            items.append((name, argument))
    return items


def _work(items: _Items, *, inner: bool = False) -> float:
    """Ways in which these items may divide a line between them. `inner`: something stands behind the last of them."""
    ways = 1.0
    for at, (name, argument) in enumerate(items):
        if name.startswith("GROUPREF"):
            raise ValueError("it refers back to a group: write the alternatives out")
        if "REPEAT" in name:
            low, high, body = int(argument[0]), int(argument[1]), _flat(argument[2])
            if high > _FEW and _varies(body):
                raise ValueError(
                    "it repeats what itself repeats or has alternatives: write it without the outer * or +"
                )
            if high > low and not _ends_itself(body, items[at + 1 :], inner):
                ways *= min(high, LINE) - min(low, LINE) + 1
            ways *= _work(body, inner=True) ** min(high, _FEW)
        elif name == "BRANCH":
            ways *= sum(_work(_flat(branch), inner=True) for branch in argument[1])
        elif name in ("ASSERT", "ASSERT_NOT"):
            ways *= _work(_flat(argument[1]), inner=True)
        if ways > _MOST_WORK:
            break
    return ways


def _varies(items: _Items) -> bool:
    """Whether it can match in several ways: it repeats, has alternatives or looks around, somewhere inside."""
    return any(
        name in ("BRANCH", "ASSERT", "ASSERT_NOT")
        or ("REPEAT" in name and (argument[0] != argument[1] or _varies(_flat(argument[2]))))
        for name, argument in items
    )


def _ends_itself(body: _Items, behind: _Items, inner: bool) -> bool:
    """Whether a repetition can end in one place only: nothing has to match behind it, or nothing that it matches."""
    if not behind:
        return not inner
    own, following = _characters(body), _characters(behind[:1])
    return bool(own) and bool(following) and not own & following


def _characters(items: _Items) -> frozenset[str]:
    """The ASCII characters that a single item matches; none for what is more than a single character."""
    if len(items) != 1:
        return frozenset()
    name, argument = items[0]
    if name == "LITERAL":
        return frozenset({chr(argument).lower(), chr(argument).upper()})
    if name == "NOT_LITERAL":
        return _ASCII - {chr(argument)}
    if name == "ANY":
        return _ASCII
    if name != "IN":
        return frozenset()
    found: set[str] = set()
    negated = False
    for op, value in argument:
        kind = str(op)
        if kind == "NEGATE":
            negated = True
        elif kind == "LITERAL":
            found |= {chr(value).lower(), chr(value).upper()}
        elif kind == "RANGE":
            found |= {char for char in _ASCII if value[0] <= ord(char.lower()) <= value[1]}
            found |= {char for char in _ASCII if value[0] <= ord(char.upper()) <= value[1]}
        else:
            category = str(value).removeprefix("CATEGORY_")
            known = _CATEGORIES.get(category.removeprefix("NOT_"), _ASCII)
            found |= _ASCII - known if category.startswith("NOT_") else known
    return _ASCII - found if negated else frozenset(found)
