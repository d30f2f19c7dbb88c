"""The screens of `bench look` without a terminal: opened, settled, and given keys."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

from textual.pilot import Pilot

from console.bench.rules.user import UserRules
from console.resources import themes_dir
from console.tui.app import ConsoleApp
from console.tui.bench.desk import BenchDesk
from console.tui.bench.main import BenchSource
from console.tui.bench.reading import Reader, Wanted
from console.tui.themes import Themes


def reader_of(paths: Sequence[Path], against: Sequence[Path] = (), rules: UserRules | None = None) -> Reader:
    """Reads without a cache."""
    return Reader(Wanted(tuple(paths), tuple(against), rules, cache=False))


def app_on(reader: Reader, *, ascii_only: bool = False, theme: str = "dark", print_only: bool = False) -> ConsoleApp:
    """The console on what a reader reads."""
    desk = partial(BenchDesk, reader=reader, print_only=print_only)
    return ConsoleApp(BenchSource(reader), Themes(themes_dir()), theme, ascii_only, desk=desk)


def desk_of(app: ConsoleApp) -> BenchDesk:
    """The app's desk."""
    assert isinstance(app.desk, BenchDesk)
    return app.desk


@asynccontextmanager
async def opened(app: ConsoleApp, size: tuple[int, int] = (80, 24)) -> AsyncIterator[Pilot[None]]:
    """The app with everything read and counted."""
    async with app.run_test(size=size) as pilot:
        await until(lambda: desk_of(app).survey is not None)
        await settle(app, pilot)
        yield pilot


async def until(true: Callable[[], object]) -> None:
    """Wait for it."""
    async with asyncio.timeout(30):
        while not true():  # noqa: ASYNC110
            await asyncio.sleep(0.005)


async def settle(app: ConsoleApp, pilot: Pilot[None]) -> None:
    """Wait for all that is under way, and have it painted."""
    desk = desk_of(app)
    for _ in range(3):
        desk.tick()
        await pilot.pause()
        await until(lambda: not desk.reading and not any(later.under_way for later in _under_way(desk)))
        await pilot.pause()
    app.repaint()
    await pilot.pause()


def _under_way(desk: BenchDesk) -> list[Any]:
    page = desk.page
    some = [
        *desk._tallies.values(),
        *desk._pairs.values(),
        getattr(page, "_close", None),
        getattr(page, "_plans", None),
    ]
    return [later for later in some if later is not None]


async def press(app: ConsoleApp, pilot: Pilot[None], *keys: str) -> None:
    """Press keys, each with all that follows from it."""
    for key in keys:
        await pilot.press(key)
        if not app._exit and app._main._prompt is None:  # what is typed into a line changes nothing else
            await settle(app, pilot)
