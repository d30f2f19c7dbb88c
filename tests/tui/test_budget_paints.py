"""What a paint may cost, in counts: layouts and updates a key, pages loaded before the first one, cells sent."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pyte
import pytest
from textual._compositor import ChopsUpdate, CompositorUpdate, LayoutUpdate

from console.resources import themes_dir
from console.tui.app import ConsoleApp
from console.tui.opening import open_record
from console.tui.replay import ReplaySource
from console.tui.screen import PANES
from console.tui.themes import Themes
from console.tui.widgets.tight import tightened

LATER = ("metrics", "trial", "events", "alarms", "config", "runs", "help", "scrub")


class Counting(ConsoleApp):
    """Keeps the updates of the screen, as Textual made them."""

    updates: list[CompositorUpdate]

    def _display(self, screen, renderable) -> None:
        if isinstance(renderable, LayoutUpdate):
            renderable.strips = [list(strips) for strips in renderable.strips]
        if isinstance(renderable, CompositorUpdate):
            self.__dict__.setdefault("updates", []).append(renderable)
        super()._display(screen, renderable)


def app_at_end(recording: Path) -> Counting:
    source = ReplaySource(open_record(recording), at_end=True, clock=lambda: 0.0)
    return Counting(source, Themes(themes_dir()))


async def settled(pilot) -> None:
    for _ in range(3):
        await pilot.pause(0.06)


@pytest.mark.parametrize("size", [(80, 24), (200, 60)])
async def test_a_page_is_laid_out_and_painted_once(recording: Path, size: tuple[int, int]) -> None:
    app = app_at_end(recording)
    async with app.run_test(size=size) as pilot:
        await settled(pilot)
        for key in ("m", "escape", "L", "escape", "i", "escape", "question_mark", "escape"):
            app.updates.clear()
            layouts: list[object] = []
            app.screen.screen_layout_refresh_signal.subscribe(app.screen, layouts.append, immediate=True)
            await pilot.press(key)
            await settled(pilot)
            app.screen.screen_layout_refresh_signal.unsubscribe(app.screen)
            assert len(layouts) == 1, key
            assert [type(update) for update in app.updates].count(LayoutUpdate) == 0, key
            assert 1 <= len(app.updates) <= 2, key  # what is the same pane at the same place may follow by itself
        assert len(app.screen.children) >= PANES and not [p for p in app._main._panes.values() if p in app._main._free]


async def test_nothing_is_painted_when_nothing_changes(recording: Path) -> None:
    app = app_at_end(recording)
    async with app.run_test(size=(120, 40)) as pilot:
        await pilot.pause(1.0)  # the marks of the timeline have come
        app.updates.clear()
        await pilot.pause(0.8)
        assert app.updates == []


async def test_tight_updates_show_the_same_cells_in_fewer_bytes(recording: Path) -> None:
    app = app_at_end(recording)
    async with app.run_test(size=(120, 40)) as pilot:
        await settled(pilot)
        await pilot.press("m")
        await settled(pilot)
        await pilot.press("escape", "j")
        await settled(pilot)
        found = [update for update in app.updates if isinstance(update, LayoutUpdate | ChopsUpdate)]
        assert {LayoutUpdate, ChopsUpdate} <= {type(update) for update in found}
        theirs, ours = pyte.Screen(120, 40), pyte.Screen(120, 40)
        plain, tight = 0, 0
        for update in found:
            wide, narrow = update.render_segments(app.console), tightened(update).render_segments(app.console)
            plain, tight = plain + len(wide), tight + len(narrow)
            pyte.Stream(theirs).feed(wide.replace("\n", "\r\n"))
            pyte.Stream(ours).feed(narrow)
            assert ours.display == theirs.display
            assert len(narrow) <= len(wide)
        assert tight < plain


def test_the_first_paint_waits_for_one_page_only() -> None:
    code = (
        "import sys, console.tui.app, console.tui.live\nfrom console.tui.pages import PAGES\nPAGES['run']\n"
        f"print([p for p in {LATER!r} if f'console.tui.pages.{{p}}' in sys.modules])"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"
