"""Texts of a trial as lines: turns of its transcript, output of its verifier, logs, results. All of it is foreign.

Every line is cut to a bound and sanitised on its own; what was left out is said. Colours of terminal output go with
their escape sequences.
"""

from __future__ import annotations

from collections.abc import Iterable

from console.control.messages import Turn
from console.state.sanitize import sanitize
from console.tui.glyphs import Marks
from console.tui.text import Line, Span, count, line, short_time

LINE_LIMIT = 4_000
"""Characters of one line that are shown."""
TURN_LIMIT = 200_000
TURN_LINES = 4_000
_ROLES = {"assistant": "accent", "user": "muted", "system": "muted", "tool": "text"}


def turn_lines(turn: Turn, marks: Marks) -> list[Line]:
    """One turn: a rule that says whose it is, its text, and how much of it is missing."""
    role = sanitize(turn.role, limit=20) or "unknown"
    facts = [f"turn {turn.call + 1}"]
    tokens = [("in", turn.prompt_tokens), ("out", turn.sampled_tokens)]
    if known := [f"{name} {count(value)}" for name, value in tokens if value is not None]:
        facts.append(" ".join(known))
    if turn.seconds is not None:
        facts.append(short_time(turn.seconds))
    if turn.stop_reason:
        facts.append(sanitize(turn.stop_reason, limit=40))
    title = _ROLES.get(role, "text")
    out: list[Line] = [
        line(
            Span(marks.rule * 2, "rule"),
            Span(f" {role} ", f"{title}+bold"),
            Span(f" {marks.dot} ".join(facts) + " ", "muted"),
            Span(marks.rule * 2, "rule"),
        )
    ]
    body, missing = text_lines(turn.text, "" if role in ("assistant", "tool") else "muted")
    out += body
    missing += max(0, turn.cut)
    if missing:
        out.append(line(Span(f"({missing:,} characters are not shown)", "limit")))
    out.append(())
    return out


def text_lines(text: str, role: str = "") -> tuple[list[Line], int]:
    """Foreign text as lines, and how many characters of it are not among them."""
    shown = text[:TURN_LIMIT].rstrip("\n")
    rows = shown.replace("\r\n", "\n").split("\n")
    missing = len(text) - TURN_LIMIT if len(text) > TURN_LIMIT else 0
    if len(rows) > TURN_LINES:
        missing += sum(len(row) + 1 for row in rows[TURN_LINES:])
        rows = rows[:TURN_LINES]
    missing += sum(len(row) - LINE_LIMIT for row in rows if len(row) > LINE_LIMIT)
    return [clean_line(row, role) for row in rows], missing


def clean_line(row: str, role: str = "") -> Line:
    """One foreign line. A longer one than the bound ends in an ellipsis."""
    return line(Span(sanitize(row.replace("\t", "    "), limit=LINE_LIMIT), role))


def output_lines(rows: Iterable[str]) -> list[Line]:
    """Lines of a log or of a verifier; one that holds line breaks becomes several, within the bounds of a turn."""
    out: list[Line] = []
    for row in rows:
        if "\n" in row:
            lines, missing = text_lines(row)
            out += lines
        else:
            out.append(clean_line(row))
            missing = max(0, len(row) - LINE_LIMIT)
        if missing:
            out.append(line(Span(f"({missing:,} characters are not shown)", "limit")))
    return out


def result_lines(rows: Iterable[str]) -> list[Line]:
    """A result, which is JSON that was laid out already: names muted, values plain."""
    return [_json_line(row) for row in rows]


def _json_line(row: str) -> Line:
    body = sanitize(row, limit=LINE_LIMIT)
    name, colon, value = body.partition('": ')
    if not colon or not name.lstrip().startswith('"'):
        return line(Span(body))
    return line(Span(name + '": ', "muted"), Span(value))
