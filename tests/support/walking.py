"""The real app walked by keys at a moment of a recording, with a clock that the test turns."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from page_bench import Clock
from textual.events import Key
from textual.pilot import Pilot

from console.control.commands import Command, CommandResult
from console.control.messages import Viewer
from console.records.run_dir import RunRecord
from console.tui.app import ConsoleApp
from console.tui.picture import Selection
from console.tui.replay import ReplaySource
from console.tui.source import Link, LinkStatus
from console.tui.widgets.dialog import Dialog

START = 1_790_000_000.0
"""When the recordings begin, Unix seconds."""
PRINTED = {"space": " ", "slash": "/"}
"""What keys print that are named by a word."""
DRY_RUNS = {
    "cancel_group": "cancels g3 (make-archive): stops 6 running trials, ends 1 that waits, discards 0 scored; "
    "the step goes on with 3 groups",
    "stop_now": "cancels 19 running trials and ends the run; step 12 is not trained, a resume uses its 4 scored trials",
    "set": "parallel 4 -> 2: at most 2 trials of a group run at once; those under way go on",
}
"""What the engine says beforehand."""
DONE = {"checkpoint": "checkpoint 000012 saved in 0.4 s; a resume goes on at step 12"}


class LiveRecording(ReplaySource):
    """A recording that passes for a live run, held at a moment: its link is up, and it takes orders, which do nothing.

    `sent`: those that were no dry runs; `status`: of the link.
    """

    mode = "live"

    def __init__(self, record: RunRecord, clock: Clock, seq: int) -> None:
        super().__init__(record, clock=clock, seq=seq)
        self.acts = True
        self.sent: list[Command] = []
        self.status: LinkStatus = "ok"
        self.presence = (
            Viewer(author="ben@shore", acts=True, you=True, since=START),
            Viewer(author="ada@bridge", since=START),
        )

    def link(self) -> Link:
        return Link(self.status)

    def poll(self) -> None:
        pass

    async def command(self, command: Command) -> CommandResult:
        if command.dry_run:
            text = DRY_RUNS.get(command.command, f"{command.command} would be done")
            return CommandResult(id=command.id, status="dry_run", text=text)
        self.sent.append(command)
        return CommandResult(id=command.id, status="done", text=DONE.get(command.command, ""))


def busy(app: ConsoleApp) -> bool:
    """Whether something that the page has asked for is not there yet."""
    page = app.desk.page
    asker, history, tail = getattr(page, "_asker", None), getattr(page, "_history", None), getattr(page, "_tail", None)
    reads_runs = page.id == "runs" and getattr(page, "_runs", None) is None
    waits = (
        asker is not None and asker.busy,
        history is not None and history._reading,
        tail is not None and tail._asking,
    )
    return reads_runs or any(waits) or not getattr(app.source, "marked", True)


async def press(app: ConsoleApp, pilot: Pilot[None], *keys: str) -> None:
    """Keys as the driver sends them, without Pilot's waiting for an idle process (20 ms and more a key)."""
    for key in keys:
        assert app._driver is not None
        event = Key(key, key if len(key) == 1 else PRINTED.get(key))
        event.set_sender(app)
        app._driver.send_message(event)
        for _ in range(2):  # from the app to the screen, then to what that began
            await pilot.pause(0)
        await answered(app, pilot)


async def answered(app: ConsoleApp, pilot: Pilot[None], over: bool | None = None) -> None:
    """All that was asked is answered, and a dialog is `over` the screen or not, when that is given."""
    async with asyncio.timeout(20):
        while True:
            app._main.tick()
            await pilot.pause(0)
            if not busy(app) and over in (None, isinstance(app.screen, Dialog)):
                return
            await asyncio.sleep(0.002)


async def settle(app: ConsoleApp, pilot: Pilot[None], clock: Clock, over: bool = False) -> None:
    """A second passes, and all that was asked is answered."""
    clock.now += 1.0
    await answered(app, pilot, over)
    app.repaint()
    await pilot.pause(0)


async def home(app: ConsoleApp, pilot: Pilot[None], clock: Clock, seq: int) -> None:
    """Back to the first page and to event `seq`, as if nothing had been done."""
    while isinstance(app.screen, Dialog) or app._main._prompt is not None:
        await press(app, pilot, "escape")
    desk = app.desk
    while len(desk._pages) > 1:
        desk._close(len(desk._pages) - 1)
    desk.selection, desk.frozen, desk._message = Selection(), None, ()
    if desk.page.id == "runs":
        desk.page.set_filter("")  # type: ignore[attr-defined]
    if isinstance(app.source, ReplaySource) and app.source.view.state.seq != seq:
        app.source.seek(seq)
        app.repaint()
        await settle(app, pilot, clock)


@asynccontextmanager
async def opened(app: ConsoleApp, size: tuple[int, int], clock: Clock) -> AsyncIterator[Pilot[None]]:
    """The app under test; its clock is turned by hand."""
    desk = app.desk
    desk.clock = clock
    if desk.page.id == "run":
        desk.page._tail._clock = clock  # type: ignore[attr-defined]
    async with app.run_test(size=size) as pilot:
        yield pilot
