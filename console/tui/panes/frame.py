"""Titles and frames of the panes: a rule line on narrow screens, borders that neighbours share on wide ones."""

from __future__ import annotations

from collections.abc import Sequence

from console.tui.glyphs import Marks
from console.tui.text import Line, Span, fit, line, spread


def _heading(text: str, focused: bool) -> Line:
    name, _, rest = text.partition("  ")
    return line(Span(f" {name} ", "title+reverse" if focused else "title"), f" {rest} " if rest else "")


def ruled(
    title: tuple[str, str], body: Sequence[Line], cells: int, rows: int, marks: Marks, focused: bool
) -> list[Line]:
    """A section under one rule line."""
    left, right = title
    head = _heading(left, focused)
    tail = line(Span(f" {right} ", "muted")) if right else ()
    out = [spread(head, tail, cells, marks.rule, "rule")]
    out += [fit(one, cells) for one in body[: rows - 1]]
    return out


def framed(
    title: tuple[str, str],
    body: Sequence[Line],
    cells: int,
    rows: int,
    marks: Marks,
    focused: bool,
    first: bool,
    last: bool,
) -> list[Line]:
    """A pane of a column: the first one opens the frame, the last one closes it."""
    inner = cells - 2
    left, right = title
    head = line(Span(marks.rule, "rule"), *_heading(left, focused))
    tail = line(Span(f" {right} ", "muted"), Span(marks.rule, "rule")) if right else ()
    corners = (marks.top_left, marks.top_right) if first else (marks.left, marks.right)
    out: list[Line] = [
        line(Span(corners[0], "rule"), *spread(head, tail, inner, marks.rule, "rule"), Span(corners[1], "rule"))
    ]
    space = rows - 1 - (1 if last else 0)
    for i in range(space):
        content = fit(body[i], inner) if i < len(body) else fit((), inner)
        out.append((Span(marks.bar, "rule"), *content, Span(marks.bar, "rule")))
    if last:
        out.append((Span(marks.bottom_left + marks.rule * inner + marks.bottom_right, "rule"),))
    return out
