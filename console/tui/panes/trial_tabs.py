"""The trial page's rows: title, tabs, the text of a tab with what is to be said about it, and the side."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from console.state.lines import trial_name
from console.state.sanitize import sanitize
from console.tui.event_log import Entry
from console.tui.feed import Feed
from console.tui.panes import detail, tokens
from console.tui.panes.detail import Subject
from console.tui.picture import Scene
from console.tui.text import Line, Span, cell, fit, line, spread

TABS = (
    ("transcript", "Transcript", "Transcript"),
    ("verifier", "Verifier", "Verifier output"),
    ("tokens", "Tokens", "Captured tokens"),
    ("log", "Log", "Log"),
    ("result", "Result", "Result"),
    ("why", "Why", "Why this outcome"),
)
"""Id, which is its action too, and name in short and in full."""
_WIDE = 100
_NOTHING = {
    "transcript": "no turn yet",
    "verifier": "the verifier has written nothing yet",
    "tokens": "no call was captured yet",
    "log": "the log is empty so far",
    "result": "there is no result yet",
}


def title(scene: Scene, subject: Subject, position: str, cells: int) -> Line:
    """Where it belongs, which trial it is, and where in its text the window stands."""
    name = trial_name(subject.group, subject.trial)
    left = line(Span(" Run > ", "muted"), Span(f"{name} ", "title"))
    tail = line(
        Span(f" {position} " if position else "", "muted"),
        Span("" if scene.bench else f" step {subject.step} ", "muted"),
    )
    room = cells - len(name) - len(position) - 24
    task = cell(subject.task, max(1, min(60, room))).rstrip()
    return spread((*left, *line(f"{task} " if task else "")), tail, cells, scene.marks.rule, "rule")


def tab_row(chosen: str, cells: int, key_of: Callable[[str], str]) -> Line:
    """The tabs with their keys, which `key_of` gives by action."""
    spans: list[Span] = []
    for tab, short, full in TABS:
        key = key_of(tab)
        name = full if cells >= _WIDE else short
        here = tab == chosen
        spans += [Span(f" {key} ", "key"), Span(f" {name} " if here else name, "title+reverse" if here else "")]
        if cells >= _WIDE:
            spans.append(Span("  "))
    return fit(spans, cells)


def body(feed: Feed, cells: int, rows: int, extra: str = "", running: bool = False) -> list[Line]:
    """The window on the feed's text, `rows` in all, with what is to be said about it beneath; `running`: its try."""
    top: list[Line] = []
    if feed.kind == "tokens" and feed.call >= 0:
        which = (Span(" "), *tokens.summary(feed.tokens, feed.call, feed.calls, feed.more))
        top.append(spread(which, (*tokens.legend(), Span(" ")), cells))
        top += [tokens.table_head()] if feed.table else []
    bottom = [fit(one, cells) for one in _notes(feed, extra, running)]
    window = feed.text.window(cells, max(1, rows - len(top) - len(bottom)))
    filler: list[Line] = [()] * (rows - len(top) - len(bottom) - len(window))
    return [*top, *window, *filler, *bottom]


def _notes(feed: Feed, extra: str, running: bool) -> list[Line]:
    out: list[Line] = []
    early = running and feed.asked and not feed.calls and not feed.text.total
    if feed.text.first:
        out.append(line(Span(f" {feed.text.first:,} earlier lines were let go", "limit")))
    if feed.error:
        out.append(line(Span(f" not answered: {feed.error}; it is asked again", "infra")))
    elif early and feed.kind == "tokens":
        out.append(line(Span(" no calls yet", "muted")))
    elif feed.note:
        out.append(line(Span(f" {sanitize(feed.note, limit=300)}", "muted")))
    elif not feed.text.total:
        out.append(line(Span(f" {_NOTHING[feed.kind] if feed.asked else 'being asked for ...'}", "muted")))
    if extra:
        out.append(line(Span(f" {extra}", "limit")))
    return out


def side(scene: Scene, subject: Subject, entries: Sequence[Entry], cells: int, rows: int) -> list[Line]:
    """Why the outcome was given, beside the text."""
    known = detail.why(scene, subject, entries, cells - 2)
    bar = Span(f"{scene.marks.bar} ", "rule")
    known += [()] * (rows - len(known))
    return [fit((bar, *row), cells) for row in known[:rows]]
