"""The last events, the newest first, and the key line."""

from __future__ import annotations

import time

from console.control.commands import COMMANDS
from console.state.model import EventLine
from console.state.sanitize import sanitize
from console.tui.glyphs import SIGNS, sign_text
from console.tui.picture import Scene
from console.tui.text import Line, Span, fit, line, plain, width, wrap

_LEVELS = {"warning": Span("*", "limit+bold"), "error": Span("!", "infra+alert")}
_OLD = 20 * 3600.0
"""Seconds after which a time of day alone does not tell the day."""


def events_title(scene: Scene) -> tuple[str, str]:
    """Left and right part of the section's title."""
    up = scene.selection.events_up
    return "Events", f"{up} newer above" if up else "newest first"


def event_lines(scene: Scene, cells: int, rows: int) -> list[Line]:
    """`rows` lines, the newest first, from the selection's offset on."""
    lines = scene.state.lines
    end = max(0, len(lines) - scene.selection.events_up)
    shown = lines[max(0, end - rows) : end]
    dated = bool(shown) and scene.now - shown[0].ts > _OLD
    out = []
    for one in reversed(shown):
        moment = time.localtime(one.ts)
        when = time.strftime("%H:%M:%S", moment)
        if dated:
            when = time.strftime("%a %H:%M", moment) if scene.now - one.ts > _OLD else f"{when} "
        role = "infra" if one.level == "error" else ""
        text = Span(f" {sanitize(one.text, limit=400)}", role)
        out.append(fit(line(Span(f" {when} ", "muted"), _mark(one, scene), text), cells))
    return out


def _mark(one: EventLine, scene: Scene) -> Span:
    """Outcomes have their sign; alarms and commands one of their own; the rest that of its level."""
    if one.outcome in SIGNS:
        return Span(sign_text(one.outcome, scene.ascii), SIGNS[one.outcome].role)
    first, _, rest = one.text.partition(" ")
    if first == "alarm:":
        return Span(scene.marks.alarm, "infra+bold" if one.level == "error" else "limit+bold")
    if first == "alarm":
        return Span(scene.marks.alarm, "muted")
    if first in COMMANDS and rest.startswith(_OF_COMMANDS):
        return Span(scene.marks.order, "limit+bold" if one.level == "warning" else "key")
    return _LEVELS.get(one.level, Span(" "))


_OF_COMMANDS = ("requested", "done", "refused", "accepted", "failed")


def foot(scene: Scene, cells: int) -> list[Line]:
    """The key line; a message that it has no room for in two rows."""
    if width(scene.message) + 1 <= cells:
        return [key_line(scene, cells)]
    role = next((span.role for span in reversed(scene.message) if span.text.strip()), "")
    first, *rest = wrap(plain(scene.message).strip(), cells - 3, role)
    if not rest:
        return [key_line(scene, cells)]
    second = " ".join(plain(row) for row in rest)
    return [fit((Span("  "), *first), cells), fit((Span("  "), Span(second, role)), cells)]


def key_line(scene: Scene, cells: int) -> Line:
    """The keys that matter now, or what the last action came to."""
    if scene.message:
        return fit((Span(" "), *scene.message), cells)
    spans: list[Span] = []
    for key, label in scene.keys:
        entry = [Span("  " if spans else " "), Span(key, "key"), Span(f" {label}", "muted")]
        if width(spans) + width(entry) > cells:
            break
        spans += entry
    return fit(spans, cells)
