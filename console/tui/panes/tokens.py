"""Captured tokens of one model call: as running text with the unlikely ones marked, or as a table.

How unlikely a token was shows in attributes (plain, bold, reverse) as well as in colour. A token's text is foreign and
may be half a character: whatever a terminal would not print as itself is spelled out.
"""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Sequence
from typing import NamedTuple

from console.control.messages import Token
from console.state.sanitize import sanitize
from console.tui.glyphs import Marks
from console.tui.text import Line, Span, line

PIECE_LIMIT = 200
ROW_LIMIT = 2_000
"""Characters after which a row of running text is broken, whatever the text says."""
_TEXT = 80
LIKELY, UNLIKELY = 0.5, 0.1
LEVELS = ("", "limit+bold", "infra+reverse")
_ESCAPES = {"\n": "\\n", "\r": "\\r", "\t": "\\t", "\\": "\\\\"}
_UNSEEN = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})


class Totals(NamedTuple):
    """Of the tokens that have a finite log-prob: how many, their mean log-prob and the least likely; and the others."""

    tokens: int
    mean: float | None
    least: float | None
    broken: int


def totals(tokens: Sequence[Token]) -> Totals:
    """Count, mean and minimum of the log-probs."""
    finite = [t.logprob for t in tokens if math.isfinite(t.logprob)]
    mean = math.fsum(finite) / len(finite) if finite else None
    return Totals(len(tokens), mean, min(finite, default=None), len(tokens) - len(finite))


def probability(logprob: float) -> float | None:
    """From a log-prob in nats; None when it is not a log-prob."""
    if not math.isfinite(logprob) or logprob > 1e-3:
        return None
    return math.exp(min(0.0, logprob))


def level(logprob: float) -> str:
    """The role of a token so likely; what is not a log-prob looks as bad as the least likely."""
    p = probability(logprob)
    return LEVELS[2 if p is None or p < UNLIKELY else 1 if p < LIKELY else 0]


def spelled(piece: str, newline: str = "\\n") -> str:
    """A token's text in printable characters only: controls, formats and marks without a base as escapes."""
    if piece.isascii() and piece.isprintable() and "\\" not in piece:
        return piece[:PIECE_LIMIT]
    out: list[str] = []
    marks = 0
    for char in piece[:PIECE_LIMIT]:
        category = unicodedata.category(char)
        if char in _ESCAPES:
            out.append(newline if char == "\n" else _ESCAPES[char])
            marks = 0
        elif category in ("Mn", "Me"):
            marks += 1
            out.append(char if out and marks <= 2 and not "\ufe00" <= char <= "\ufe0f" else _code(char))
        elif category in _UNSEEN:
            out.append(_code(char))
            marks = 0
        else:
            out.append(" " if category == "Zs" else char)
            marks = 0
    return sanitize("".join(out), limit=PIECE_LIMIT * 10, keep_newlines=True)


def _code(char: str) -> str:
    value = ord(char)
    return f"\\x{value:02x}" if value < 0x100 else f"\\u{value:04x}" if value < 0x10000 else f"\\U{value:08x}"


def running_text(tokens: Sequence[Token], marks: Marks, begun: Line = ()) -> list[Line]:
    """Tokens as text, after the row `begun`, which the first line of the result takes in. The last line may go on.

    A line break is shown, and broken at.
    """
    sign = "\\n" if marks.rule == "-" else "↵"
    rows: list[Line] = []
    row: list[Span] = list(begun)
    size = sum(len(span.text) for span in row)
    for token in tokens:
        role = level(token.logprob)
        text = spelled(token.text, "\n") if token.text else f"<{token.id}>"
        *whole, rest = text.split("\n")
        for part in whole:
            row.append(Span(part + sign, role))
            rows.append(tuple(row))
            row, size = [], 0
        if rest:
            if size > ROW_LIMIT:
                rows.append(tuple(row))
                row, size = [], 0
            # Neighbours of one level are one span: there are fewer to paint.
            if row and row[-1].role == role:
                row[-1] = Span(row[-1].text + rest, role)
            else:
                row.append(Span(rest, role))
            size += len(rest)
    return [*rows, tuple(row)]


def table_head() -> Line:
    """Names of the columns."""
    return line(Span(f"{'#':>6} {'id':>7}  {'log-prob':>9} {'prob':>6}  text", "muted"))


def table_rows(tokens: Sequence[Token], begin: int = 0) -> list[Line]:
    """One token a row; `begin` is the index of the first."""
    out = []
    for index, token in enumerate(tokens, begin):
        p = probability(token.logprob)
        shown = f"{token.logprob:9.4f}" if math.isfinite(token.logprob) else f"{token.logprob!s:>9}"
        chance = "    --" if p is None else f"{p:6.3f}"
        text = f"'{spelled(token.text)}'" if token.text else "--"
        role = level(token.logprob)
        out.append(
            line(
                Span(f"{index:>6} ", "muted"),
                Span(f"{token.id:>7}  ", "muted"),
                Span(f"{shown} {chance}", role),
                Span("  "),
                Span(text if len(text) <= _TEXT else text[: _TEXT - 1] + "…"),
            )
        )
    return out


def summary(tokens: Sequence[Token], call: int, calls: int, more: bool) -> Line:
    """Which call it is, and its totals."""
    found = totals(tokens)
    which = f"call {call + 1}" + (f" of {calls}" if calls > call else "")
    parts = [f"{found.tokens:,} tokens" + (" so far" if more else "")]
    if found.mean is not None and found.least is not None:
        parts.append(f"log-prob mean {found.mean:.3f}, least {found.least:.2f}")
    if found.broken:
        parts.append(f"{found.broken} not finite")
    return line(Span(which, "bold"), Span("  " + ", ".join(parts), "infra" if found.broken else ""))


def legend() -> Line:
    """What the attributes mean."""
    return line(
        Span("p>=.5", LEVELS[0]), " ", Span("<.5", LEVELS[1]), " ", Span("<.1", LEVELS[2]),
    )  # fmt: skip
