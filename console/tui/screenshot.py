"""Renders the console from a recording, without a terminal: as SVG or as text.

The README's picture is made by it: quarterdeck export RUN_DIR --format svg -o themes/console.svg
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from console.errors import UsageError
from console.tui.layout import MIN_HEIGHT, MIN_WIDTH

if TYPE_CHECKING:
    from console.records.run_dir import RunRecord
    from console.tui.app import ConsoleApp
    from console.tui.replay import ReplaySource

MARKS_SECONDS = 60.0
PLAYED_EVENTS = 400_000
"""Up to so many events the moment is reached by playing, so that recent readings are all there; else by a seek."""
PAGES_SHOWN = ("run", "metrics", "events", "alarms", "config")
"""Pages that need no choice of the operator's."""

_FONT_FACE = re.compile(r"\s*@font-face\s*\{[^}]*\}")


@dataclass(frozen=True)
class Look:
    """How the screen is made: cells, theme, ASCII only, and the id of the page."""

    width: int = 120
    height: int = 40
    theme: str = "dark"
    ascii_only: bool = False
    page: str = "run"


def checked_look(size: str, theme: str, ascii_only: bool, page: str) -> Look:
    """The look that somebody wrote down. Raises `UsageError` for a size, theme or page that there is not."""
    from console.resources import themes_dir
    from console.tui.themes import Themes

    width, _, height = size.lower().partition("x")
    if not (width.isdigit() and height.isdigit() and len(size) <= 9):
        raise UsageError(f"--size {size}: write columns and rows, as 120x40")
    if not (MIN_WIDTH <= int(width) <= 500 and MIN_HEIGHT <= int(height) <= 200):
        raise UsageError(f"--size {size}: from {MIN_WIDTH}x{MIN_HEIGHT} to 500x200")
    known = sorted(Themes(themes_dir()).loaded)
    if theme not in known:
        raise UsageError(f"--theme {theme}: there are {', '.join(known)}")
    pages = shown_pages()
    if page not in pages:
        raise UsageError(f"--page {page}: there are {', '.join(pages)}")
    return Look(int(width), int(height), theme, ascii_only, page)


def shown_pages() -> list[str]:
    """Ids of the pages that can be rendered."""
    from console.tui.pages import PAGES

    return [page for page in PAGES_SHOWN if page in PAGES]


@asynccontextmanager
async def screen_at(record: RunRecord, look: Look, at: str = "end") -> AsyncIterator[tuple[ConsoleApp, ReplaySource]]:
    """The app on a paused replay at the moment `at` (as ctrl+g takes it). Raises `UsageError`, `RecordingError`."""
    from console.resources import themes_dir
    from console.tui.app import ConsoleApp
    from console.tui.replay import ReplaySource
    from console.tui.themes import Themes

    source = ReplaySource(record, speed=1.0, clock=lambda: 0.0, seq=1)  # time stands still
    source.read_marks(MARKS_SECONDS)
    app = ConsoleApp(source, Themes(themes_dir()), look.theme, look.ascii_only)
    async with app.run_test(size=(look.width, look.height)) as pilot:
        source.goto(at)
        seq, moment = source.view.state.seq, source.now()
        if seq <= PLAYED_EVENTS:
            source.jump(to_end=False)
            source.play_to(seq)
            source.seek_clock(moment)
        app.desk.show(look.page)
        app.repaint()
        await pilot.pause()
        yield app, source


async def render(record: RunRecord, look: Look, at: str = "end", title: str = "quarterdeck") -> str:
    """The screen as an SVG document."""
    async with screen_at(record, look, at) as (app, _):
        return offline(app.export_screenshot(title=title))


def offline(svg: str) -> str:
    """The same picture without the web fonts of Textual's template: opening it makes no network traffic.

    A viewer takes its own monospaced font then; every run of cells has its length written on it.
    """
    return _FONT_FACE.sub("", svg)


async def render_text(record: RunRecord, look: Look, at: str = "end") -> str:
    """The screen as lines of text."""
    async with screen_at(record, look, at) as (app, _):
        strips = app.screen._compositor.render_strips()
        lines = ("".join(segment.text for segment in strip).rstrip() for strip in strips)
        return "\n".join(lines) + "\n"
