"""A look back at a live run: its journal so far as a replay, and the way back to the present.

On the run's own machine the journal's files are read. Through a forwarded socket the journal is fetched into a
temporary directory first, and goes on being fetched while one looks.
"""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from console.control.client import ControlClient
from console.control.messages import Ask, Content
from console.errors import ControlError, RecordingError
from console.journal.codec import encode_event
from console.journal.events import Event, Snapshot
from console.journal.layout import PLAIN, chunk_name
from console.records.run_dir import RunRecord
from console.state.model import RunState, encode_state
from console.state.reduce import RunView, apply
from console.state.sanitize import sanitize
from console.tui.replay import ReplaySource
from console.tui.source import LiveAddress

if TYPE_CHECKING:
    from console.tui.desk import Desk

FETCH_LIMIT = 512 << 20
"""Bytes of journal lines that are fetched at most."""
TOLD_EVERY = 2000
_KEPT_PAGES = frozenset({"metrics", "events", "alarms", "config"})


class FetchedJournal:
    """A journal that comes over a run's socket, in a temporary directory that `close` removes.

    Attributes:
        directory: laid out as a run directory.
    """

    def __init__(self, address: LiveAddress) -> None:
        self.directory = Path(tempfile.mkdtemp(prefix="quarterdeck-"))
        (self.directory / "journal").mkdir(mode=0o700)
        self._address = address
        self._client: ControlClient | None = None
        self._task: asyncio.Task[None] | None = None
        self._view = RunView()
        self._size = 0

    async def fetch(self, told: Callable[[int, int], None]) -> None:
        """Up to the present; the rest follows by itself. `told` hears how many events of how many are there.

        Raises:
            ControlError: no connection, the journal is too large, or its start is not to be had.
        """
        address = self._address
        self._client = client = await ControlClient.connect(address.socket, run=address.run)
        target = client.hello.seq
        present = asyncio.Event()
        self._task = asyncio.create_task(self._follow(client, target, present, told))
        waiting = asyncio.create_task(present.wait())
        try:
            await asyncio.wait({waiting, self._task}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            waiting.cancel()
        if self._task.done() and not present.is_set():
            self._task.result()  # raises what ended it

    async def _follow(
        self, client: ControlClient, target: int, present: asyncio.Event, told: Callable[[int, int], None]
    ) -> None:
        path = self.directory / "journal" / (chunk_name(1) + PLAIN)
        with path.open("wb") as file:
            if target == 0:
                present.set()
            async for item in client.subscribe(0):
                if isinstance(item, RunView):
                    raise ControlError("the engine cannot send its journal from the start")
                line = encode_event(self._whole(item)) + b"\n"
                self._size += len(line)
                if self._size > FETCH_LIMIT:
                    raise ControlError(
                        f"the journal is larger than {FETCH_LIMIT >> 20} MiB: replay it where the run is"
                    )  # fmt: skip
                file.write(line)
                apply(self._view, item)
                if item.seq >= target:
                    file.flush()
                    present.set()
                elif item.seq % TOLD_EVERY == 0:
                    told(item.seq, target)
                    await asyncio.sleep(0)  # what lies in the queue is had without waiting: let the screen live

    def _whole(self, event: Event) -> Event:
        """A snapshot comes without its state, and gets it back here: it is the fold of everything before it."""
        if not isinstance(event, Snapshot):
            return event
        return Snapshot(
            seq=event.seq, ts=event.ts, steps_done=event.steps_done, state=msgspec.Raw(encode_state(self._view.state))
        )

    async def ask(self, ask: Ask) -> Content:
        """Content of a trial, from the engine. Raises `ControlError`."""
        if self._client is None:
            raise ControlError("there is no connection to the engine")
        return await self._client.ask(ask)

    async def close(self) -> None:
        """Close the connection and remove the directory."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        if self._client is not None:
            await self._client.close()
        await asyncio.to_thread(shutil.rmtree, self.directory, ignore_errors=True)


def local_record(state: RunState) -> RunRecord | None:
    """The run's own directory when it is on this machine and really this run's."""
    if not state.run_dir:
        return None
    try:
        record = RunRecord(state.run_dir)
        found = next(record.journal.events(0), None)
    except RecordingError:
        return None
    return record if found is not None and getattr(found, "run_id", None) == state.run_id else None


async def look_back(desk: Desk) -> None:
    """Switch from the live run to a paused replay of it, at the present. Raises `ControlError`, `RecordingError`."""
    live = desk.source
    address: LiveAddress | None = getattr(live, "address", None)
    seq = desk.state.seq
    if address is None or seq == 0:
        desk.say("there is nothing to look back at yet", "limit")
        return
    record = await asyncio.to_thread(local_record, desk.state) if address.local else None
    held: FetchedJournal | None = None
    try:
        if record is None:
            held = FetchedJournal(address)
            desk.say("fetching the journal ...", seconds=None)
            await held.fetch(lambda done, all_: desk.say(f"fetching the journal: {done / all_:.0%}", seconds=None))
            record = await asyncio.to_thread(RunRecord, held.directory)
        replay = await asyncio.to_thread(ReplaySource, record, seq=seq, live=address, held=held)
        if desk.source is not live:
            raise ControlError("another run was opened meanwhile")
    except BaseException:
        if held is not None:
            await held.close()
        raise
    replay.speed = 1.0
    _switch(desk, replay)
    key = desk.keymap.label("rewind")
    desk.say(f"you look back at the run, which goes on; {key} goes back live", "limit")


async def come_back(desk: Desk, replay: ReplaySource) -> None:
    """Switch from a look back to the live run."""
    from console.tui.live import LiveSource

    address = replay.live
    assert address is not None
    missed = replay.timeline.last_seq - replay.view.state.seq
    view = await asyncio.to_thread(replay.record.again().view_at_end)
    live = LiveSource(
        address.socket, address.run, view, local=address.local, author=address.author, act=address.act
    )  # fmt: skip
    _switch(desk, live)
    desk.say(f"live again, caught up: {sanitize(str(max(0, missed)))} events since then", "pass")


def _switch(desk: Desk, source: ReplaySource | object) -> None:
    """Show another source of the same run, with the same page and selection as far as can be."""
    selection, page = desk.selection, desk.page.id
    desk.shell.switch(source)  # type: ignore[arg-type]
    desk.selection = selection
    if page in _KEPT_PAGES:
        desk.show(page)
