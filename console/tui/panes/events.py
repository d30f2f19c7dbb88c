"""The last events, the newest first, and the key line."""

from __future__ import annotations

import time

from console.state.model import EventLine
from console.state.sanitize import sanitize
from console.tui.glyphs import SIGNS, sign_text
from console.tui.picture import Scene
from console.tui.text import Line, Span, fit, line, width

_LEVELS = {"warning": Span("*", "limit+bold"), "error": Span("!", "infra+alert")}


def events_title(scene: Scene) -> tuple[str, str]:
    """Left and right part of the section's title."""
    up = scene.selection.events_up
    return "Events", f"{up} newer above" if up else "newest first"


def event_lines(scene: Scene, cells: int, rows: int) -> list[Line]:
    """`rows` lines, the newest first, from the selection's offset on."""
    lines = scene.state.lines
    end = max(0, len(lines) - scene.selection.events_up)
    shown = lines[max(0, end - rows) : end]
    out = []
    for one in reversed(shown):
        moment = time.strftime("%H:%M:%S", time.localtime(one.ts))
        mark = _mark(one, scene.ascii)
        role = "infra" if one.level == "error" else ""
        out.append(
            fit(line(Span(f" {moment} ", "muted"), mark, Span(f" {sanitize(one.text, limit=400)}", role)), cells)
        )
    return out


def _mark(one: EventLine, ascii_only: bool) -> Span:
    if one.outcome in SIGNS:
        return Span(sign_text(one.outcome, ascii_only), SIGNS[one.outcome].role)
    return _LEVELS.get(one.level, Span(" "))


def key_line(scene: Scene, cells: int) -> Line:
    """The keys that matter now, or what the last action came to."""
    if scene.message:
        return fit((Span(" "), *scene.message), cells)
    spans: list[Span] = [Span(" ")]
    for key, label in scene.keys:
        entry = [Span(key, "key"), Span(f" {label}  ", "muted")]
        if width(spans) + width(entry) > cells + 1:
            break
        spans += entry
    return fit(spans, cells)
