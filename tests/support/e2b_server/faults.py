"""Faults of the server, switched on and off while it runs."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections import Counter
from dataclasses import dataclass, field
from typing import Any


class RefusedError(Exception):
    """Answered as E2B answers: a status and a JSON body with `code` and `message`."""

    def __init__(self, status: int, message: str, headers: dict[str, str] | None = None) -> None:
        super().__init__(message)
        self.status, self.message, self.headers = status, message, headers or {}


class CutError(Exception):
    """The connection is closed in the middle of the answer."""


cutter: contextvars.ContextVar[asyncio.Event] = contextvars.ContextVar("cutter")
"""Of the request that is being served: set, its connection is closed."""


@dataclass(kw_only=True)
class Fault:
    """One thing that goes wrong.

    Attributes:
        at: operation: create, kill, timeout, network, list, info, tags, alias, build, status, link, upload, health,
            read, write, start, connect, stat, or run (a process, once it has begun).
        do: `refuse` with status and message; `hang` (never answer); `cut` the connection; `delay` by seconds; `kill`
            the sandbox, as at the end of its lease.
        after: once the effect is there (the sandbox exists, the file is written) instead of before.
        sandbox: only where the sandbox's `session_id` contains this; command: only for commands that contain this.
        seconds: before a delayed answer, or until a `run` is cut or its sandbox killed.
        times: how often, None for always.
    """

    at: str
    do: str = "refuse"
    after: bool = False
    sandbox: str = ""
    command: str = ""
    status: int = 500
    message: str = "Internal server error"
    headers: dict[str, str] = field(default_factory=dict)
    seconds: float = 0.0
    times: int | None = None


def at_capacity(**where: Any) -> Fault:
    """A create refused because the team has as many sandboxes as its plan allows."""
    message = "you have reached the maximum number of concurrent E2B sandboxes (20). If you need more, contact us"
    return Fault(at="create", status=429, message=message, **where)


class Faults:
    """What is switched on. Safe to use from any thread."""

    def __init__(self) -> None:
        self._faults: list[Fault] = []
        self._lock = threading.Lock()
        self.met: Counter[tuple[str, str]] = Counter()
        """(operation, what was done) to how often."""

    def add(self, *faults: Fault) -> None:
        with self._lock:
            self._faults += faults

    def clear(self) -> None:
        """None is on; those that hang stay as they are until their client goes."""
        with self._lock:
            self._faults.clear()

    def take(self, at: str, session: str, command: str = "", *, after: bool = False) -> Fault | None:
        """The first fault that applies; it is used up when it was for one time."""
        with self._lock:
            for fault in self._faults:
                if fault.at != at or fault.after != after:
                    continue
                if fault.sandbox not in session or fault.command not in command:
                    continue
                if fault.times is not None:
                    fault.times -= 1
                    if not fault.times:
                        self._faults.remove(fault)
                self.met[at, fault.do] += 1
                return fault
        return None

    async def meet(self, at: str, session: str, command: str = "", *, after: bool = False) -> None:
        """Suffer what applies here.

        Raises:
            RefusedError, CutError: for the two that end the request.
        """
        fault = self.take(at, session, command, after=after)
        if fault is None:
            return
        if fault.do == "refuse":
            raise RefusedError(fault.status, fault.message, fault.headers)
        if fault.do == "cut":
            raise CutError
        if fault.do == "hang":
            await asyncio.Event().wait()  # until the client goes
        await asyncio.sleep(fault.seconds)
