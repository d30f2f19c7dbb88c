"""Styled text in its simplest form: a line is a tuple of spans, a span is a text and the name of a role.

Roles (`pass`, `infra`, `muted`, `title`, ...) become colours in one place, the palette. Widths are terminal cells.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from rich.cells import cell_len, set_cell_size

from console.state.sanitize import sanitize


class Span(NamedTuple):
    """A piece of a line and the role that colours it."""

    text: str
    role: str = ""


Line = tuple[Span, ...]
Part = Span | str


def line(*parts: Part) -> Line:
    """A line from spans and plain strings; empty parts are left out."""
    return tuple(
        part if isinstance(part, Span) else Span(part)
        for part in parts
        if (part if isinstance(part, str) else part.text)
    )


def width(parts: Iterable[Span]) -> int:
    """Cells that the spans take."""
    return sum([len(span.text) if span.text.isascii() else cell_len(span.text) for span in parts])


def plain(parts: Iterable[Span]) -> str:
    """The text without its roles."""
    return "".join(span.text for span in parts)


def fit(parts: Sequence[Span], cells: int) -> Line:
    """Exactly `cells` wide: cut with an ellipsis, or padded with spaces."""
    if cells <= 0:
        return ()
    total = width(parts)
    if total <= cells:
        return (*parts, Span(" " * (cells - total))) if total < cells else tuple(parts)
    kept: list[Span] = []
    left = cells - 1
    for span in parts:
        size = cell_len(span.text)
        if size > left:
            kept.append(Span(set_cell_size(span.text, left) + "…", span.role))
            break
        kept.append(span)
        left -= size
    return tuple(kept)


def spread(left: Sequence[Span], right: Sequence[Span], cells: int, fill: str = " ", role: str = "") -> Line:
    """`left` and `right` at the two ends of `cells`, `fill` between them; `right` goes first when there is no room."""
    gap = cells - width(left) - width(right)
    if gap < 1:
        return fit((*left, Span(fill * max(0, cells - width(left)), role)), cells)
    return (*left, Span(fill * gap, role), *right)


def cell(text: object, cells: int, right: bool = False) -> str:
    """One table cell of foreign text: sanitised, cut with an ellipsis or padded to `cells`."""
    value = sanitize(text, limit=4 * max(cells, 1))
    size = len(value) if value.isascii() else cell_len(value)
    if size > cells:
        return set_cell_size(value, cells - 1) + "…" if cells > 1 else "…"[:cells]
    return " " * (cells - size) + value if right else value + " " * (cells - size)


def restyle(parts: Iterable[Span], role: str) -> Line:
    """The same text with `role` beneath each span's own, which wins (the palette combines `a+b`)."""
    return tuple(Span(span.text, f"{role}+{span.role}" if span.role else role) for span in parts)


def wrap(text: str, cells: int, role: str = "") -> list[Line]:
    """Clean text in lines of at most `cells`, broken at spaces where there are any; at least one line."""
    out: list[Line] = []
    for paragraph in text.split("\n"):
        current = ""
        for word in paragraph.split(" "):
            while cell_len(word) > cells:
                if current:
                    out.append((Span(current, role),))
                    current = ""
                head = set_cell_size(word, cells).rstrip() or word[:1]
                out.append((Span(head, role),))
                word = word[len(head) :]
            joined = f"{current} {word}" if current else word
            if cell_len(joined) > cells:
                out.append((Span(current, role),))
                joined = word
            current = joined
        out.append((Span(current, role),))
    return out


def count(value: float | int | None) -> str:
    """A count in at most five characters: 412, 18.4k, 1.2M; `--` when unknown."""
    if value is None:
        return "--"
    if value < 1000:
        return f"{value:.0f}"
    for unit in ("k", "M", "G", "T"):
        value /= 1000
        if value < 99.95:
            return f"{value:.1f}{unit}"
        if value < 999.5:
            return f"{value:.0f}{unit}"
    return f"{value / 1000:.0f}P"


def clock(seconds: float | None) -> str:
    """A duration as 07:41, 1:02:09 or 3d04h; `--` when unknown. Negative durations (skewed clocks) read as zero."""
    if seconds is None:
        return "--"
    whole = max(0, int(seconds))
    if whole < 3600:
        return f"{whole // 60:02d}:{whole % 60:02d}"
    if whole < 86400:
        return f"{whole // 3600}:{whole % 3600 // 60:02d}:{whole % 60:02d}"
    return f"{whole // 86400}d{whole % 86400 // 3600:02d}h"


def lasted(seconds: float | None) -> str:
    """A duration that is over, as `clock` has it; <1 s is no nothing."""
    return "<1s" if seconds is not None and 0 <= seconds < 1 else clock(seconds)


def short_time(seconds: float | None) -> str:
    """A duration in at most five characters: 41ms, 2.4s, 7m41, 2h40, 3d04."""
    if seconds is None:
        return "--"
    if seconds < 0.9995:
        return f"{max(0.0, seconds) * 1000:.0f}ms"
    if seconds < 99.95:
        return f"{seconds:.1f}s"
    whole = int(seconds)
    if whole < 6000:
        return f"{whole // 60}m{whole % 60:02d}"
    if whole < 86400:
        return f"{whole // 3600}h{whole % 3600 // 60:02d}"
    return f"{whole // 86400}d{whole % 86400 // 3600:02d}"


def number(value: float | None, digits: int = 3) -> str:
    """A measured number: .412, 1.250, 15.84, -.031, 3.2e-5; `--` when unknown."""
    if value is None:
        return "--"
    if value == 0:
        return "0"
    if abs(value) < 10.0**-digits or abs(value) >= 1e5:
        return f"{value:.1e}".replace("e-0", "e-").replace("e+0", "e")
    digits = max(0, digits - max(0, len(str(int(abs(value)))) - 1))
    text = f"{value:.{digits}f}"
    return text.replace("0.", ".", 1) if text.startswith(("0.", "-0.")) else text
