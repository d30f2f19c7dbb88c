"""Following a run through lost connections: reconnect by cursor, with back-off, and say what was missed."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncGenerator, Callable

import msgspec

from console.control.client import ControlClient
from console.control.commands import Command, CommandResult
from console.control.messages import Ask, Content, Viewer
from console.errors import ControlError
from console.journal.events import Event, RunFinished, RunStarted
from console.state.reduce import RunView

FIRST_DELAY = 0.2
LONGEST_DELAY = 5.0


class LinkUp(msgspec.Struct, kw_only=True):
    """Connected. `missed`: events that happened while the link was down and come next; `again`: not the first time."""

    missed: int = 0
    again: bool = False


class LinkDown(msgspec.Struct, kw_only=True):
    """Not connected. `retry_in`: seconds to the next attempt, None when there will be none.

    `told`: the engine's own last word, empty when it gave none, or when it was not reached at all.
    """

    reason: str
    told: str = ""
    retry_in: float | None = None


Item = RunView | Event | LinkUp | LinkDown


class RunFollower:
    """A run's stream that survives a lost connection.

    Attributes:
        cursor: `seq` of the last event handed out, None before the first view.
        client: the open connection, None while the link is down.
        presence: who attends, empty while the link is down; on_presence: called whenever it changed.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        run: str = "",
        cursor: int | None = None,
        alive: Callable[[], bool] | None = None,
        connect_timeout: float = 5.0,
        author: str = "",
        act: bool = True,
    ) -> None:
        """`alive` is asked whenever the link is down; once it says False, one more attempt is made, then the end.

        With an `author`, each connection attends under this name; `act`: it takes the watch when that is free.
        """
        self.cursor = cursor
        self.client: ControlClient | None = None
        self._path, self._run, self._alive, self._timeout = path, run, alive, connect_timeout
        self._author, self._act = author, act
        self.presence: tuple[Viewer, ...] = ()
        self.on_presence: Callable[[tuple[Viewer, ...]], object] | None = None
        self._heard: float | None = None

    @property
    def last_heard(self) -> float | None:
        """`time.monotonic()` of the engine's last byte on any connection; it sends one every two seconds at least."""
        return self.client.last_heard if self.client is not None else self._heard

    @property
    def silence(self) -> float | None:
        """Seconds since the engine was heard, None when it never was."""
        heard = self.last_heard
        return None if heard is None else time.monotonic() - heard

    async def items(self) -> AsyncGenerator[Item, None]:
        """`LinkUp`, then a `RunView` (with a cursor: only events), then events, `LinkDown`, `LinkUp`, and so on.

        A `RunView` in mid-stream replaces everything before it. Ends after `RunFinished` once the engine closes the
        connection, or when `alive` says that no engine is left. Closing the iterator closes the connection.
        """
        again, delay, finished, last_try = False, FIRST_DELAY, False, False
        while True:
            told = ""
            try:
                async with await ControlClient.connect(self._path, run=self._run, timeout=self._timeout) as client:
                    self.client, last_try = client, False
                    self._attend(client)
                    missed = 0 if self.cursor is None else max(0, client.hello.seq - self.cursor)
                    yield LinkUp(missed=missed, again=again)
                    async for item in client.subscribe(self.cursor):
                        if not self._take(item):
                            continue
                        finished = _is_over(item, finished)
                        yield item
                        delay = FIRST_DELAY
            except ControlError as error:
                reason = str(error)
            finally:
                if self.client is not None:
                    told = self.client.last_word
                    self._heard, self.client = self.client.last_heard, None
                    self._take_presence(())
            again = True
            if finished:
                return
            if last_try:
                yield LinkDown(reason=reason, told=told)
                return
            last_try = self._alive is not None and not self._alive()
            yield LinkDown(reason=reason, told=told, retry_in=0.0 if last_try else delay)
            if not last_try:
                await asyncio.sleep(delay)
                delay = min(LONGEST_DELAY, delay * 2)

    async def command(self, command: Command, timeout: float = 30.0) -> CommandResult:
        """Send a command on the open connection. Raises `ControlError` when there is none."""
        return await self._open_client().command(command, timeout)

    async def ask(self, ask: Ask, timeout: float = 30.0) -> Content:
        """Content of a trial. Raises `ControlError` without a connection or an answer."""
        return await self._open_client().ask(ask, timeout)

    async def take_watch(self, back: bool = False, from_: str | None = None) -> CommandResult:
        """As `ControlClient.take_watch`. Raises `ControlError` without a connection or an answer."""
        return await self._open_client().take_watch(back, from_)

    def _open_client(self) -> ControlClient:
        if self.client is None:
            raise ControlError(f"run {self._run or self._path}: no connection to the engine now; try again")
        return self.client

    def _attend(self, client: ControlClient) -> None:
        if self._author:
            client.on_presence = self._take_presence
            client.attend(self._author, self._act)

    def _take_presence(self, viewers: tuple[Viewer, ...]) -> None:
        if viewers != self.presence:
            self.presence = viewers
            if self.on_presence is not None:
                self.on_presence(viewers)

    def _take(self, item: RunView | Event) -> bool:
        """Move the cursor. False for an event that was handed out already. After a hole the next view starts anew."""
        if isinstance(item, RunView):
            self.cursor = item.state.seq
            return True
        expected = 1 if self.cursor is None else self.cursor + 1
        if item.seq < expected:
            return False
        if item.seq > expected:
            self.cursor = None
            raise ControlError(f"run {self._run}: events {expected} to {item.seq - 1} are missing from the stream")
        self.cursor = item.seq
        return True


def _is_over(item: RunView | Event, before: bool) -> bool:
    if isinstance(item, RunView):
        return item.state.status in ("finished", "stopped", "failed")
    if isinstance(item, RunFinished):
        return True
    return before and not isinstance(item, RunStarted)
