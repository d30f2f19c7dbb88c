"""The engine's one truth: it appends events to the journal, keeps the view they reduce to, and serves both.

Everything that happens in a run passes `Board.emit`, on the main loop.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable
from pathlib import Path

from console.control.audit import AuditLog
from console.control.dispatch import CommandDispatcher, CommandHandler
from console.control.past import PastLines
from console.control.server import ControlServer
from console.journal import events as ev
from console.journal.layout import JournalWriteError
from console.journal.writer import JournalWriter
from console.state.alarms import alarms
from console.state.model import encode_state
from console.state.reduce import RunView, apply

ALARM_SECONDS = 1.0

log = logging.getLogger(__name__)


class Board:
    """Journal, view, alarms and socket of one run.

    Attributes:
        on_failure: called when the journal takes an event no more; the run must end, for nothing else is true.

    Args:
        run_dir: the run's directory; run_id: its name in the registry; socket_path: where to listen.
        handler: carries out commands.

    Raises:
        UsageError: another engine writes this journal.
        ControlError: the socket cannot be opened.
    """

    def __init__(self, run_dir: Path, run_id: str, socket_path: Path, handler: CommandHandler) -> None:
        self.run_dir, self.run_id = run_dir, run_id
        journal_dir = run_dir / "journal"
        self.view = RunView()
        if journal_dir.is_dir():
            from console.records.run_dir import RunRecord

            self.view = RunRecord(run_dir).view_at_end()
        self._journal = JournalWriter(journal_dir, snapshot=self._snapshot)
        self._audit = AuditLog(run_dir / "audit.jsonl")
        self.dispatcher = CommandDispatcher(self.emit, self._audit, handler)
        self.server = ControlServer(
            socket_path,
            run_id=run_id,
            run_dir=run_dir,
            view=lambda: self.view,
            past=PastLines(journal_dir),
            dispatcher=self.dispatcher,
        )
        self._journal.subscribe(self._written)
        self._alarm_task: asyncio.Task[None] | None = None
        self._closed = False
        self.on_failure: Callable[[OSError], None] = lambda error: None

    async def start(self) -> None:
        """Bind the socket and begin to watch for alarms."""
        await self.server.start()
        self._alarm_task = asyncio.create_task(self._watch_alarms())

    def emit(self, event: ev.Event) -> None:
        """Append an event; the view has it when this returns. After the last event, nothing is taken any more.

        Raises:
            JournalWriteError: the disk refuses it (an `OSError`); `on_failure` was told.
        """
        if self._closed:
            return
        try:
            self._journal.append(event)
        except OSError as error:
            self.on_failure(error)
            raise

    def _written(self, line: bytes, event: ev.Event) -> None:
        apply(self.view, event)
        self.server.publish(line, event)

    def _snapshot(self) -> tuple[bytes, int]:
        return encode_state(self.view.state), len(self.view.history.rows)

    def check_alarms(self) -> None:
        """Open what holds and is not open, close what is over."""
        wanted = alarms(self.view, time.time())
        known = dict(self.view.state.alarms)
        for key, alarm in wanted.items():
            if key not in known or known[key].text != alarm.text:
                self.emit(ev.AlarmOpened(key=key, level=alarm.level, text=alarm.text, remedy=alarm.remedy))
        for key in known.keys() - wanted.keys():
            self.emit(ev.AlarmClosed(key=key))

    async def _watch_alarms(self) -> None:
        while True:
            await asyncio.sleep(ALARM_SECONDS)
            with contextlib.suppress(JournalWriteError):  # `emit` told of it
                self.check_alarms()
            try:
                self._journal.flush()
            except OSError as error:
                self.on_failure(error)

    async def close(self, finished: ev.RunFinished | None) -> None:
        """Close commands, write the last event if there is one, close the journal, then the socket. Never raises."""
        if self._alarm_task is not None:
            self._alarm_task.cancel()
        await self.dispatcher.close()
        if finished is not None:
            with contextlib.suppress(OSError):
                self.emit(finished)
        self._closed = True
        for what in (self._journal, self._audit):
            try:
                what.close()
            except OSError as error:
                log.error("%s", error)
        try:
            await self.server.close()
        except OSError as error:
            log.error("closing the socket: %s", error)
