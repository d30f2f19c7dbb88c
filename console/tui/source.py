"""Where the console's run comes from: the engine's socket or a recording, behind one protocol."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, NamedTuple, Protocol

from console.control.commands import Command, CommandResult
from console.control.messages import Ask, Content, Viewer
from console.journal import events as ev
from console.state.reduce import RunView

if TYPE_CHECKING:
    from console.records.timeline import Timeline

LinkStatus = Literal["connecting", "ok", "stale", "lost", "dead", "replay", "ended"]

EventListener = Callable[[ev.Event | None], None]
"""Called after each event was applied, and with None when the view jumped."""


@dataclass(frozen=True)
class Link:
    """How far what is shown can be trusted.

    Attributes:
        status: ok: news arrive; stale: connected, but silent for too long; lost: not connected, trying again; dead:
            the engine is gone without a last word; replay: a recording; ended: the run is over, nothing more will come.
        age: seconds since the last sign of life; detail: why, in a few words; of a dead engine, its last word.
        playing, speed, fraction: of a replay; speed 0 is as fast as it goes.
        timeline: of a replay, with the marks gathered so far; scrub: the time that the operator looks for on it, Unix
            seconds, None when nobody scrubs; behind: seconds behind a run that goes on, None for a recording.
        news: what a replay has to say beneath its timeline: missing events, an alarm of the live run, or its end;
            urgent: it must not be overlooked.
    """

    status: LinkStatus
    age: float = 0.0
    detail: str = ""
    playing: bool = False
    speed: float = 1.0
    fraction: float = 0.0
    timeline: Timeline | None = None
    scrub: float | None = None
    behind: float | None = None
    news: str = ""
    urgent: bool = False


class LiveAddress(NamedTuple):
    """What a live source was made with, so that another one can be made later; `local`: the engine is on this host."""

    socket: str
    run: str
    local: bool
    author: str | None = None
    act: bool = True


class Source(Protocol):
    """What the console asks of a run. All methods are called from the event loop of the console.

    Attributes:
        mode: live or replay; view: the run as far as it is known; version: changes with every change of view or link.
        listener: told of every event after it was applied.
    """

    mode: Literal["live", "replay"]
    view: RunView
    version: int
    listener: EventListener | None

    @property
    def presence(self) -> tuple[Viewer, ...]:
        """Who else looks, as far as the engine said."""
        ...

    @property
    def acts(self) -> bool:
        """Whether this console holds the watch, so that commands go through.

        True too while nobody attends, since the first command takes it.
        """
        ...

    async def start(self) -> None:
        """Begin; called after the first paint. Raises nothing: trouble shows in `link`."""
        ...

    def poll(self) -> None:
        """Advance; called a few times a second."""
        ...

    def link(self) -> Link:
        """The state of the link, now."""
        ...

    def now(self) -> float:
        """The Unix time by which ages are told."""
        ...

    async def command(self, command: Command) -> CommandResult:
        """Send a command. Raises `ControlError` when nobody can take it."""
        ...

    async def ask(self, ask: Ask) -> Content:
        """Content of a trial: transcript, verifier, tokens, log, result. Raises `ControlError` without an answer."""
        ...

    async def take_watch(self, back: bool = False) -> str:
        """Take the watch over (or give it back); one sentence of what came of it. Raises `ControlError`."""
        ...

    async def close(self) -> None:
        """Let go of sockets and tasks; the run goes on."""
        ...


def engine_gone(pid: int) -> bool:
    """Whether no process of this number exists on this machine (False when the number is not known)."""
    if pid <= 0:
        return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        return False
    return _is_zombie(pid)


def _is_zombie(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return file.read().rpartition(b")")[2].split()[0] == b"Z"
    except (OSError, IndexError):
        return False


wall_clock: Callable[[], float] = time.time
