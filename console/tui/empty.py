"""No run at all: what the console stands on until one is chosen from the list."""

from __future__ import annotations

import time
from typing import Literal

from console.control.commands import Command, CommandResult
from console.control.messages import Ask, Content, Viewer
from console.errors import ControlError
from console.state.reduce import RunView
from console.tui.source import EventListener, Link

_NO_RUN = "no run is open"


class EmptySource:
    """A `Source` of nothing."""

    mode: Literal["live", "replay"] = "live"

    def __init__(self) -> None:
        self.view = RunView()
        self.version = 0
        self.listener: EventListener | None = None
        self.presence: tuple[Viewer, ...] = ()
        self.acts = False

    async def start(self) -> None:
        """Nothing to begin."""

    def poll(self) -> None:
        """Nothing to advance."""

    def link(self) -> Link:
        """Nothing will come."""
        return Link("ended")

    def now(self) -> float:
        """The wall clock."""
        return time.time()

    async def command(self, command: Command) -> CommandResult:
        """Refused."""
        raise ControlError(_NO_RUN)

    async def ask(self, ask: Ask) -> Content:
        """Refused."""
        raise ControlError(_NO_RUN)

    async def take_watch(self, back: bool = False) -> str:
        """Refused."""
        raise ControlError(_NO_RUN)

    async def close(self) -> None:
        """Nothing is held open."""
