"""Records the console playing a run as an asciicast, version 2, which every player of the format reads.

The real app paints on a driver that keeps what it is given; the clock is turned by hand, a paint a quarter of a second,
so that the same recording gives the same file.
"""

from __future__ import annotations

import io
import json
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from rich.console import Console
from textual.drivers.headless_driver import HeadlessDriver

from console.state.sanitize import sanitize
from console.tui.app import ConsoleApp
from console.tui.replay import ReplaySource
from console.tui.screenshot import MARKS_SECONDS, Look
from console.tui.themes import Themes

if TYPE_CHECKING:
    from console.records.run_dir import RunRecord

FRAME_SECONDS = 0.25
LAST_FRAME_SECONDS = 3.0
MARKERS = 400
_BEGIN = "\x1b[?25l\x1b[0m\x1b[2J\x1b[H"
_END = "\x1b[0m\x1b[?25h"
_OSC = re.compile(r"\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)")


class _Keeper(HeadlessDriver):
    """A driver that keeps what would go to the terminal."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.kept: list[str] = []

    @property
    def is_headless(self) -> bool:
        """False: the app shall paint."""
        return False

    def write(self, data: str) -> None:
        """Keep it."""
        self.kept.append(data)

    def take(self) -> str:
        """What was written since, without what is no picture: titles and pointer shapes."""
        text = _OSC.sub("", "".join(self.kept))
        self.kept.clear()
        return text


class _RecordedApp(ConsoleApp):
    """The console without the terminal around it, and without a clock of its own."""

    ticks = False

    def take_signals(self) -> None:
        """There is no terminal to be lost."""

    def ring(self, text: str) -> None:
        """Nobody hears it."""


async def record_cast(
    record: RunRecord,
    look: Look,
    write: Callable[[str], object],
    *,
    speed: float | None = None,
    begin: str = "start",
    end: str = "end",
    idle_limit: float | None = None,
    heard: Callable[[int], object] = lambda seq: None,
) -> None:
    """Play from `begin` to `end` (as ctrl+g takes them) and write the lines of the asciicast.

    Args:
        write: takes one line with its newline; speed: above 0, None for one that makes the recording watchable.
        idle_limit: seconds to which players shall cut a pause, None for as it is; heard: the event reached.

    Raises:
        UsageError: no such moment. RecordingError: the recording cannot be read.
    """
    from console.resources import themes_dir

    turned = [0.0]
    source = ReplaySource(record, speed, clock=lambda: turned[0], seq=1)
    source.read_marks(MARKS_SECONDS)
    source.goto(end)
    until = source.view.state.seq
    source.goto(begin)
    app = _RecordedApp(source, Themes(themes_dir()), look.theme, look.ascii_only)
    app.driver_class = _Keeper
    app.console = Console(
        color_system="truecolor", file=io.StringIO(), markup=True, highlight=False, emoji=False, legacy_windows=False,
        force_terminal=True, safe_box=False, soft_wrap=False, _environ={},
    )  # fmt: skip
    header: dict[str, object] = {
        "version": 2, "width": look.width, "height": look.height, "timestamp": int(source.timeline.first_ts or 0),
        "title": f"quarterdeck {sanitize(source.view.state.name or source.view.state.run_id, limit=80)}".strip(),
        "env": {"TERM": "xterm-256color"},
    }  # fmt: skip
    if idle_limit is not None:
        header["idle_time_limit"] = idle_limit
    write(json.dumps(header) + "\n")

    def put(moment: float, code: str, data: str) -> None:
        write(json.dumps([round(moment, 3), code, data]) + "\n")

    async with app.run_test(headless=False, size=(look.width, look.height)) as pilot:
        app.desk.show(look.page)
        driver = app._driver
        assert isinstance(driver, _Keeper)
        source.toggle()
        moment, markers, steps = 0.0, 0, source.view.state.steps_done
        app.repaint()
        await pilot.pause()
        put(0.0, "o", _BEGIN + driver.take())
        while source.view.state.seq < until and not source.at_end:
            moment += FRAME_SECONDS
            if not source.playing:  # something could not be shown: it says so, and goes on
                source.toggle()
            turned[0] = moment
            source.poll()
            app.repaint()
            await pilot.pause()
            painted = driver.take()
            if painted:
                put(moment, "o", painted)
            if source.view.state.steps_done > steps and markers < MARKERS:
                steps, markers = source.view.state.steps_done, markers + 1
                put(moment, "m", f"step {steps - 1} done")
            heard(source.view.state.seq)
        put(moment + LAST_FRAME_SECONDS, "o", _END)
