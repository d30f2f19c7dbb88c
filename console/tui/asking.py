"""Asks a run for content of its trials, one question at a time, and lays the answers out."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from console.control.messages import Ask, Content
from console.errors import ControlError, RecordingError
from console.records.content import TrialContent
from console.records.manifest import read_manifest
from console.state.sanitize import sanitize
from console.tui.feed import Feed, weight

if TYPE_CHECKING:
    from console.tui.desk import Desk

ANSWER_SECONDS = 20.0
THREAD_FROM = 16_000
"""Characters of an answer from which it is laid out on a thread: sanitising much text takes longer than a key may."""


class Asker:
    """Keeps feeds filled. `busy`: a question is under way; `answers`: how many questions came to an end."""

    def __init__(self, desk: Desk, idle: Callable[[], None]) -> None:
        """`idle` is called when a question has come to its end and the next one may be asked."""
        self._desk, self._idle = desk, idle
        self.busy = False
        self.answers = 0
        self._disk: TrialContent | None = None

    def begin(self, feed: Feed, wanted: Callable[[], bool], ended: Callable[[], bool]) -> None:
        """Ask for what is new when it is time to, and nothing else is being asked.

        Args:
            wanted: whether the feed is still what is shown: as long as there is more, it is asked for at once.
            ended: whether the try is over.
        """
        if not self.busy and feed.due(self._desk.clock()):
            self.busy = True
            self._desk.shell.spawn(self._fetch(feed, wanted, ended))

    async def _fetch(self, feed: Feed, wanted: Callable[[], bool], ended: Callable[[], bool]) -> None:
        try:
            while await self._ask_once(feed, ended) and wanted():
                self.answers += 1
        finally:
            self.busy = False
            self.answers += 1
        self._idle()

    async def _ask_once(self, feed: Feed, ended: Callable[[], bool]) -> bool:
        """One question; whether the next one should follow at once."""
        ask = feed.ask()
        try:
            content = await asyncio.wait_for(self._answer(ask), ANSWER_SECONDS)
        except (ControlError, TimeoutError) as error:
            why = sanitize(str(error), limit=200) or f"no answer in {ANSWER_SECONDS:.0f} s"
            feed.failed(why, self._desk.clock())
            return False
        if weight(content) > THREAD_FROM:
            lines = await asyncio.to_thread(feed.lines_of, content)
        else:
            lines = feed.lines_of(content)
        feed.take(ask, content, lines, self._desk.clock(), ended())
        return feed.due(self._desk.clock())

    async def _answer(self, ask: Ask) -> Content:
        """From the source; from the disk when the engine is gone and its files are here."""
        try:
            return await self._desk.source.ask(ask)
        except ControlError:
            run_dir, run_id = self._desk.state.run_dir, self._desk.state.run_id
            if not run_dir or not self._desk.no_engine:
                raise
            found = await asyncio.to_thread(self._on_disk, run_dir, run_id)
            if found is None:
                raise
            return await asyncio.to_thread(found.answer, ask)

    def _on_disk(self, run_dir: str, run_id: str) -> TrialContent | None:
        if self._disk is None:
            try:
                same = read_manifest(Path(run_dir)).run_id == run_id
            except (RecordingError, OSError):
                return None
            self._disk = TrialContent(run_dir) if same else None
        return self._disk
