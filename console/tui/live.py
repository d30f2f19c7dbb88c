"""The live source: a run's engine behind its socket, followed through lost connections."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from typing import Literal

from console.control.client import author as this_user
from console.control.commands import Command, CommandResult
from console.control.follow import LinkDown, LinkUp, RunFollower
from console.control.messages import Ask, Content, Viewer
from console.errors import ControlError, QuarterdeckError
from console.journal.events import RunFinished
from console.state.reduce import RunView, apply
from console.state.sanitize import sanitize
from console.tui.source import EventListener, Link, LiveAddress, engine_gone, wall_clock

HEARTBEAT_SECONDS = 2.0
"""The engine says something at least so often."""
STALE_AFTER = 3 * HEARTBEAT_SECONDS
ONE_CLOCK = 2.0
"""Seconds by which two clocks may differ that are one, heard over a slow line."""
_ENDED = ("finished", "stopped", "failed")


def viewer_name() -> str:
    """`user@host:pts/3`: two consoles of one user are told apart by terminal, or process where there is none."""
    for fd in (0, 1, 2):
        try:
            return f"{this_user()}:{os.ttyname(fd).removeprefix('/dev/')}"
        except OSError:
            continue
    return f"{this_user()}:{os.getpid()}"


class LiveSource:
    """A `Source` over the engine's socket. The link is judged here, never taken from the run's last known state."""

    mode: Literal["live", "replay"] = "live"

    def __init__(
        self,
        socket: str,
        run: str = "",
        view: RunView | None = None,
        local: bool = True,
        ready: Callable[[], object] | None = None,
        author: str | None = None,
        act: bool = True,
    ) -> None:
        """`view` is painted until the engine answers; `local`: the engine's process is on this machine.

        `ready` is called on a thread before the first connection; what it raises ends up in `failure`. The console
        attends as `author` (this user at this terminal by default); without `act` it only looks. `taken_by`: who took
        the watch from it, until that was told.
        """
        self._ready = ready
        self.failure: QuarterdeckError | None = None
        self.view = view if view is not None else RunView()
        self.version = 0
        self.listener: EventListener | None = None
        self._local, self._act = local, act
        self.address = LiveAddress(socket, run, local, author, act)
        self._follower = RunFollower(socket, run=run, alive=self._alive, author=author or viewer_name(), act=act)
        self._follower.on_presence = self._presence_changed
        self._mine = False
        self.taken_by = ""
        self._task: asyncio.Task[None] | None = None
        self._up = False
        self._over = False
        self._why = self._told = ""
        self._ahead = 0.0

    @property
    def presence(self) -> tuple[Viewer, ...]:
        """Who attends, this console included; empty while the link is down."""
        return self._follower.presence

    @property
    def acts(self) -> bool:
        """Whether commands go through: this console holds the watch, or would get it because nobody does."""
        holder = next((viewer for viewer in self.presence if viewer.acts), None)
        return self._act and (holder is None or holder.you)

    async def start(self) -> None:
        """Begin to follow."""
        self._task = asyncio.create_task(self._follow())

    def poll(self) -> None:
        """Nothing to advance: events arrive by themselves."""

    def link(self) -> Link:
        """Judged by what was heard, and by the engine's process when it is on this machine."""
        silence = self._follower.silence
        if self.view.state.status in _ENDED:
            return Link("ended")
        if self._up:
            age = silence or 0.0
            return Link("stale", age=age) if age > STALE_AFTER else Link("ok", age=age)
        if silence is None and not self._why:
            return Link("connecting")
        if self._over or (self._local and engine_gone(self.view.state.pid)):
            return Link("dead", age=silence or 0.0, detail=self._told)
        return Link("lost", age=silence or 0.0, detail=self._why)

    def now(self) -> float:
        """The run's time, as the engine tells it: the clock of this machine may be another, or may have been set."""
        wall, told = wall_clock(), None if self._follower.client is None else self._follower.client.run_time
        if told is not None:
            self._ahead = told - wall
        return wall + self._ahead if abs(self._ahead) > ONE_CLOCK else wall

    async def command(self, command: Command) -> CommandResult:
        """Send it over the open connection. Raises `ControlError` when there is none."""
        if self.view.state.status in _ENDED:
            raise ControlError("the run is over: there is nothing left to command")
        return await self._follower.command(command)

    async def ask(self, ask: Ask) -> Content:
        """Content of a trial, from the engine. Raises `ControlError` without a connection or an answer."""
        return await self._follower.ask(ask)

    async def take_watch(self, back: bool = False) -> str:
        """Take the watch from whoever this console believes to have it, or give it back; what came of it.

        Raises:
            ControlError: it was refused, for instance because somebody else has it by now; or no answer.
        """
        holder = next((viewer.author for viewer in self.presence if viewer.acts), "")
        # Before anybody has told who looks, nothing is believed.
        result = await self._follower.take_watch(back, from_=holder if self.presence else None)
        text = sanitize(result.text, limit=200)
        if result.status != "done":
            raise ControlError(text)
        return text

    async def close(self) -> None:
        """Close the connection; the run goes on."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    def _presence_changed(self, viewers: tuple[Viewer, ...]) -> None:
        holder = next((viewer for viewer in viewers if viewer.acts), None)
        mine = holder is not None and holder.you
        if holder is not None:
            self.taken_by = holder.author if self._mine and not mine else ""
        self._mine = mine
        self.version += 1

    def _alive(self) -> bool:
        if self.view.state.status in _ENDED:
            return False
        return not (self._local and engine_gone(self.view.state.pid))

    async def _follow(self) -> None:
        if self._ready is not None:
            try:
                await asyncio.to_thread(self._ready)
            except QuarterdeckError as error:
                self.failure, self._why, self._over = error, sanitize(str(error), limit=200), True
                self.version += 1
                return
        async for item in self._follower.items():
            match item:
                case LinkUp():
                    self._up, self._why, self._told = True, "", ""
                case LinkDown(reason=reason, told=told, retry_in=retry):
                    self._told = sanitize(told, limit=400) or self._told
                    self._up, self._why, self._over = False, sanitize(reason, limit=200), retry is None
                case RunView():
                    self.view = item
                    self._tell(None)
                case _:
                    apply(self.view, item)
                    self._tell(item)
                    if isinstance(item, RunFinished):
                        self._up = False
            self.version += 1
        self._up, self._over = False, True
        self.version += 1

    def _tell(self, event: object) -> None:
        if self.listener is not None:
            self.listener(event)  # type: ignore[arg-type]
