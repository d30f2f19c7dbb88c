"""Every page at two sizes in three themes, as files under `snapshots`. UPDATE_SNAPSHOTS=1 writes them anew.

What a file looks like: `tests/support/screens.py`.
"""

from __future__ import annotations

import re
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from look_jobs import first_job, second_job
from look_stage import app_on, opened, press, reader_of, settle
from screens import THEMES, Cells, Shelf, cells_of

from console.tui.app import ConsoleApp
from console.tui.widgets.dialog import Dialog

SIZES = ((80, 24), (120, 40))
DIRECTORY = Path(__file__).parent / "snapshots"
PAGES = (
    ("versus", ""),
    ("versus-tasks", "G tab j"),
    ("task", "enter"),
    ("triage", "escape escape"),
    ("triage-cause", "j space"),
    ("trials", "enter j space"),
    ("verdict", "enter"),
    ("mop", "R"),
    ("mop-asks", "enter"),
    ("tally", "n escape t"),
    ("help", "escape question_mark"),
)
"""Name and the keys that lead there from the one before."""


@pytest.fixture(scope="module")
def jobs() -> Iterator[Path]:
    """Two jobs in a directory whose name is as long on every machine."""
    path = Path(tempfile.mkdtemp(prefix="qd-", dir="/tmp"))
    first_job(path / "a")
    second_job(path / "b")
    yield path
    shutil.rmtree(path)


@pytest.fixture(scope="module")
def shelf() -> Iterator[Shelf]:
    shelf = Shelf(DIRECTORY)
    yield shelf
    shelf.close()


def cells_in(app: ConsoleApp, place: str) -> Cells:
    """What is shown, with the directory's name in place of the one it has now."""
    cells = cells_of(app.screen._compositor.render_strips())
    for row in cells:
        for found in re.finditer(re.escape(place), "".join(text or "\0" for text, _ in row)):
            for at, char in enumerate("/tmp/qd-00000000", start=found.start()):
                row[at] = (char, row[at][1])
    return cells


@pytest.mark.parametrize("size", SIZES, ids=lambda size: f"{size[0]}x{size[1]}")
async def test_pages(jobs: Path, shelf: Shelf, size: tuple[int, int]) -> None:
    assert len(str(jobs)) == len("/tmp/qd-00000000")
    app = app_on(reader_of([jobs / "a"], [jobs / "b"]))
    async with opened(app, size) as pilot:
        for name, keys in PAGES:
            for key in keys.split():
                await press(app, pilot, key)
            await settle(app, pilot)
            seen = {}
            for theme in (*THEMES[1:], THEMES[0]):
                app.use_theme(theme)
                if isinstance(app.screen, Dialog):
                    app.screen._pane.use(app.palette)
                await pilot.pause(0)
                seen[theme] = cells_in(app, str(jobs))
            shelf.check(f"{name}-{size[0]}x{size[1]}", seen)


def test_there_is_a_file_for_each_page_and_no_other() -> None:
    shelf = Shelf(DIRECTORY)
    assert set(shelf.files()) == {f"{name}-{w}x{h}" for name, _ in PAGES for w, h in SIZES}
    assert shelf.letters_used() == set(shelf.styles.values())
