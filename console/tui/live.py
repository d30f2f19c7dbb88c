"""The live source: a run's engine behind its socket, followed through lost connections."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Literal

from console.control.commands import Command, CommandResult
from console.control.follow import LinkDown, LinkUp, RunFollower
from console.control.messages import Viewer
from console.errors import ControlError, QuarterdeckError
from console.journal.events import RunFinished
from console.state.reduce import RunView, apply
from console.state.sanitize import sanitize
from console.tui.source import EventListener, Link, engine_gone, wall_clock

HEARTBEAT_SECONDS = 2.0
"""The engine says something at least so often."""
STALE_AFTER = 3 * HEARTBEAT_SECONDS
_ENDED = ("finished", "stopped", "failed")


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
    ) -> None:
        """`view` is painted until the engine answers; `local`: the engine's process is on this machine.

        `ready` is called on a thread before the first connection; what it raises ends up in `failure`.
        """
        self._ready = ready
        self.failure: QuarterdeckError | None = None
        self.view = view if view is not None else RunView()
        self.version = 0
        self.listener: EventListener | None = None
        self.presence: tuple[Viewer, ...] = ()
        self.acts = True
        self._local = local
        self._follower = RunFollower(socket, run=run, alive=self._alive)
        self._task: asyncio.Task[None] | None = None
        self._up = False
        self._over = False
        self._why = ""

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
            return Link("dead", age=silence or 0.0, detail=self._why)
        return Link("lost", age=silence or 0.0, detail=self._why)

    def now(self) -> float:
        """The wall clock."""
        return wall_clock()

    async def command(self, command: Command) -> CommandResult:
        """Send it over the open connection. Raises `ControlError` when there is none."""
        if self.view.state.status in _ENDED:
            raise ControlError("the run is over: there is nothing left to command")
        return await self._follower.command(command)

    async def close(self) -> None:
        """Close the connection; the run goes on."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

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
                    self._up, self._why = True, ""
                case LinkDown(reason=reason, retry_in=retry):
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
