"""What a test sees of a whole run, and how it acts on one."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil

from console.control.commands import Command, CommandResult
from console.journal.reader import Journal
from console.state.reduce import RunView, fold


class Run:
    """A finished run: its exit code, the view at its end, and where it lies."""

    def __init__(self, exit_code: int, view: RunView, run_dir: Path) -> None:
        self.exit_code, self.view, self.run_dir = exit_code, view, run_dir
        self.events = list(Journal(run_dir / "journal").events())

    def of(self, kind: type) -> list[Any]:
        """The events of a type."""
        return [event for event in self.events if isinstance(event, kind)]

    def folded(self) -> RunView:
        """The view of a reader who starts from nothing."""
        return fold(self.events)


async def command(engine: Any, name: str, **args: Any) -> CommandResult:
    """A command through the engine's dispatcher, as the socket would."""
    return await engine.board.dispatcher.submit(Command(id=os.urandom(4).hex(), command=name, args=args, author="test"))


async def until(condition: Callable[[], bool], seconds: float = 60.0) -> None:
    """Wait for a condition, a generous time."""
    async with asyncio.timeout(seconds):
        while not condition():  # noqa: ASYNC110 - conditions of many kinds, none has an event
            await asyncio.sleep(0.02)


def processes_of(run_dir: Path) -> list[str]:
    """Command lines of live processes that name the run directory, this one's left out."""
    found = []
    for process in psutil.process_iter(["pid", "cmdline", "environ", "status"]):
        info = process.info
        if info["pid"] == os.getpid() or info["status"] == psutil.STATUS_ZOMBIE:
            continue
        words = [*(info["cmdline"] or []), *(info["environ"] or {}).values()]
        if any(str(run_dir) in word for word in words):
            found.append(" ".join(info["cmdline"] or []))
    return found
