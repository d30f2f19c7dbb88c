"""Making text from outside safe for a line of a log, a terminal or an audit file."""

from __future__ import annotations

import unicodedata

_DROPPED = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})
"""Controls, format characters (bidi overrides, zero-width), surrogates, private use, unassigned, line separators."""


def one_line(text: str, limit: int = 500) -> str:
    """The text without control or format characters, runs of white space as one blank, at most `limit` characters."""
    kept = "".join(" " if c in "\t\n\r\v\f\x85\u2028\u2029" else c for c in text[: limit * 8])
    kept = "".join(c for c in kept if unicodedata.category(c) not in _DROPPED)
    kept = " ".join(kept.split())
    return kept if len(kept) <= limit else kept[: limit - 1] + "…"
