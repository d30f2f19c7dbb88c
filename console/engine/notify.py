"""Telling people who do not look: a command, a webhook, and a dead-man's ping. The engine never waits for any of them.

Addresses and commands may hold tokens: no message, note or log line of ours repeats them.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import os
import shlex
import signal
import socket
import ssl
import time
from collections.abc import Callable
from typing import Any, Protocol

import httpx
import msgspec

from console.engine.notices import Announcer, Notice
from console.engine.tasks import settle, spawn
from console.journal import events as ev
from console.journal.layout import JournalWriteError
from console.state.model import RunState
from console.training.options import ConsoleOptions

SEND_SECONDS = 10.0
END_SECONDS = 5.0
"""How long messages about the end of a run may take, once its journal is closed."""
RETRY_SECONDS = (2.0, 10.0)
"""Pauses before a webhook is tried again; a command is run once."""
QUEUE_LIMIT = 100
DUE_SECONDS = 5.0

log = logging.getLogger(__name__)


class DeliveryError(Exception):
    """A message could not be delivered; the text says why, without address or command."""


class Channel(Protocol):
    """One way to tell."""

    name: str
    pauses: tuple[float, ...]

    async def send(self, data: bytes) -> None:
        """Deliver one JSON object. Raises `DeliveryError`, in bounded time."""


class CommandChannel:
    """Runs a command with the object on stdin; its output goes nowhere."""

    name = "console.notify_command"
    pauses: tuple[float, ...] = ()

    def __init__(self, argv: list[str]) -> None:
        self._argv = argv

    async def send(self, data: bytes) -> None:
        """As the protocol says."""
        nowhere = asyncio.subprocess.DEVNULL
        try:
            process = await asyncio.create_subprocess_exec(
                *self._argv, stdin=asyncio.subprocess.PIPE, stdout=nowhere, stderr=nowhere, start_new_session=True
            )
        except (OSError, ValueError) as problem:
            reason = problem.strerror if isinstance(problem, OSError) else None
            raise DeliveryError(f"cannot be run ({reason or type(problem).__name__})") from None
        try:
            async with asyncio.timeout(SEND_SECONDS):
                await process.communicate(data)
        except TimeoutError:
            raise DeliveryError(f"took longer than {SEND_SECONDS:g} s, and was killed") from None
        finally:
            if process.returncode is None:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.killpg(process.pid, signal.SIGKILL)
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(process.wait(), 1.0)
        if process.returncode:
            raise DeliveryError(f"ended with exit code {process.returncode}")


class WebhookChannel:
    """Posts the object. Redirects are not followed; proxies and certificates are those of the environment."""

    name = "console.notify_webhook"

    def __init__(self, url: str) -> None:
        self._url = url
        self.pauses: tuple[float, ...] = RETRY_SECONDS

    async def send(self, data: bytes) -> None:
        """As the protocol says."""
        await _request("POST", self._url, data)


@functools.cache
def _certificates() -> ssl.SSLContext:
    """Loaded once: it takes the main loop tens of milliseconds."""
    return httpx.create_ssl_context(trust_env=True)


async def _request(method: str, url: str, data: bytes | None = None) -> None:
    """One request of its own: hours may lie between two. Raises `DeliveryError`."""
    try:
        async with asyncio.timeout(SEND_SECONDS):
            async with httpx.AsyncClient(
                verify=_certificates(), trust_env=True, follow_redirects=False, timeout=SEND_SECONDS
            ) as client:
                headers = {"content-type": "application/json"} if data is not None else {}
                async with client.stream(method, url, content=data, headers=headers) as response:
                    status = response.status_code
    except TimeoutError:
        raise DeliveryError(f"no answer within {SEND_SECONDS:g} s") from None
    except Exception as problem:  # httpx, ssl, a strange proxy: whatever it is, it must not repeat the address
        raise DeliveryError(f"cannot be reached ({type(problem).__name__})") from None
    if not 200 <= status < 300:
        raise DeliveryError(f"answers with HTTP {status}")


class Notifier:
    """Sends what the announcer decides, over each channel in turn, and pings.

    A channel that fails is told of once, as a note in the journal; later failures are counted. The ping says that this
    engine lives: it ends with the run, whichever way, and only a run that failed sends one more, to `/fail` below the
    address. A run that completed or was stopped just falls silent; the message about its end says why.

    Attributes:
        failures: messages and pings that did not arrive, by channel.
    """

    def __init__(
        self,
        channels: list[Channel],
        announcer: Announcer,
        emit: Callable[[ev.Event], None],
        ping_url: str | None = None,
        ping_interval: float = 60.0,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.failures: dict[str, int] = {}
        self._announcer, self._emit, self._clock = announcer, emit, clock
        self._ping_url, self._ping_interval = ping_url, ping_interval
        self._queues: list[tuple[Channel, asyncio.Queue[Notice | None]]] = [(c, asyncio.Queue()) for c in channels]
        self._state: RunState | None = None
        self._tasks: set[asyncio.Task[Any]] = set()
        self._senders: set[asyncio.Task[Any]] = set()
        self._closing = asyncio.Event()
        self._failed = False

    @classmethod
    def of(
        cls, options: ConsoleOptions, emit: Callable[[ev.Event], None], clock: Callable[[], float] = time.time
    ) -> Notifier | None:
        """The notifier of a run whose time `clock` tells; None when nobody wants to be told."""
        channels: list[Channel] = []
        if options.notify_command:
            channels.append(CommandChannel(shlex.split(options.notify_command)))
        if options.notify_webhook:
            channels.append(WebhookChannel(options.notify_webhook))
        if not channels and not options.ping_url:
            return None
        announcer = Announcer(options.notify_level, options.notify_every)
        return cls(channels, announcer, emit, options.ping_url, options.ping_interval, clock)

    def start(self) -> None:
        """Begin to send and to ping."""
        for channel, queue in self._queues:
            spawn(self._send(channel, queue), self._senders)
        if self._queues:
            spawn(self._watch_due(), self._tasks)
        if self._ping_url is not None:
            spawn(self._ping(self._ping_url), self._tasks)

    def see(self, event: ev.Event, state: RunState) -> None:
        """Take an event that was written; `state` is the state after it. Never waits, never raises."""
        self._state = state
        if isinstance(event, ev.RunFinished):
            self._failed = event.status == "failed"
        try:
            self._put(self._announcer.see(event, state))
        except Exception:
            log.exception("a notification was not made")

    async def close(self) -> None:
        """Send what is left, in bounded time, and end. Never raises."""
        self._closing.set()
        await settle(self._tasks, 1.0)
        for _, queue in self._queues:
            queue.put_nowait(None)
        last = set(self._senders)
        if self._failed and self._ping_url is not None:
            last.add(spawn(self._ping_once(_below(self._ping_url, "fail")), self._senders))
        if last:
            await asyncio.wait(last, timeout=END_SECONDS)
        await settle(self._senders, 1.0)

    def _put(self, notices: list[Notice]) -> None:
        for notice in notices:
            for channel, queue in self._queues:
                if queue.qsize() >= QUEUE_LIMIT:
                    self._count(channel.name, "more messages than it takes")
                else:
                    queue.put_nowait(msgspec.structs.replace(notice, host=socket.gethostname()))

    async def _watch_due(self) -> None:
        while True:
            await asyncio.sleep(DUE_SECONDS)
            if self._state is not None:
                self._put(self._announcer.due(self._state, self._clock()))

    async def _send(self, channel: Channel, queue: asyncio.Queue[Notice | None]) -> None:
        while (notice := await queue.get()) is not None:
            for pause in (*channel.pauses, None):
                try:
                    await channel.send(msgspec.json.encode(notice))
                    break
                except DeliveryError as problem:
                    if pause is None or await self._closes_within(pause):
                        self._count(channel.name, str(problem))
                        break

    async def _closes_within(self, seconds: float) -> bool:
        """Wait, but not beyond the run's end; whether it has come."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._closing.wait(), seconds)
        return self._closing.is_set()

    async def _ping(self, url: str) -> None:
        while True:
            await self._ping_once(url)
            await asyncio.sleep(self._ping_interval)

    async def _ping_once(self, url: str) -> None:
        try:
            await _request("GET", url)
        except DeliveryError as problem:
            self._count("console.ping_url", str(problem))

    def _count(self, name: str, why: str) -> None:
        """Count a failure; the first one of a channel is told."""
        self.failures[name] = self.failures.get(name, 0) + 1
        if self.failures[name] == 1:
            with contextlib.suppress(JournalWriteError):
                self._emit(ev.Note(text=f"{name} {why}; further failures are only counted", level="warning"))


def _below(url: str, name: str) -> str:
    """The address with one more part of its path; what follows the path stays."""
    parsed = httpx.URL(url)
    return str(parsed.copy_with(path=f"{parsed.path.rstrip('/')}/{name}"))
