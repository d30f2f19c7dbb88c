"""The viewer's end of the socket: one connection, its stream and its commands. `follow.py` is what reconnects."""

from __future__ import annotations

import asyncio
import os
import time
import uuid
from collections.abc import AsyncIterator, Callable, Iterable
from pathlib import Path
from types import TracebackType
from typing import SupportsIndex

from console.control import messages as m
from console.control.blocking import (
    author,
    check_hello,
    greet,
    new_command,
    read_view,
    send_command,
    silent,
    unreachable,
)
from console.control.commands import Command, CommandResult
from console.errors import ControlError
from console.journal.codec import decode_event
from console.journal.events import Event
from console.state.model import History, RunState, decode_state
from console.state.reduce import RunView

__all__ = ["ControlClient", "author", "greet", "new_command", "read_view", "send_command"]

QUEUED_MESSAGES = 64
"""Stream messages held for a slow reader; beyond it the socket fills, and the server drops the connection."""


class _Reader(asyncio.StreamReader):
    """A reader that knows when the last byte came: on a slow line a single message takes many seconds."""

    def __init__(self) -> None:
        super().__init__(limit=m.MAX_OUTGOING, loop=asyncio.get_running_loop())
        self.heard = time.monotonic()

    def feed_data(self, data: Iterable[SupportsIndex]) -> None:
        self.heard = time.monotonic()
        super().feed_data(data)


async def _open(path: str) -> tuple[_Reader, asyncio.StreamWriter]:
    loop, reader = asyncio.get_running_loop(), _Reader()
    protocol = asyncio.StreamReaderProtocol(reader, loop=loop)
    transport, _ = await loop.create_unix_connection(lambda: protocol, path)
    return reader, asyncio.StreamWriter(transport, protocol, reader, loop)


class ControlClient:
    """A connection to a running engine.

    Attributes:
        hello: what the engine said of itself.
        engine_seq: the last event it is known to have; engine_ts: its clock at the last heartbeat, Unix seconds.
        presence: who attends, as the engine said last; on_presence: called with it whenever it changed.
        last_word: why it closes the connection, in its own words, empty when it did not say.
    """

    def __init__(self, hello: m.Hello, reader: _Reader, writer: asyncio.StreamWriter, run: str) -> None:
        self.hello = hello
        self.engine_seq = hello.seq
        self.engine_ts: float | None = None
        self._beat = 0.0
        self.presence: tuple[m.Viewer, ...] = ()
        self.on_presence: Callable[[tuple[m.Viewer, ...]], object] | None = None
        self.last_word = ""
        self._run = run
        self._reader, self._writer = reader, writer
        self._stream: asyncio.Queue[m.AnyReply | None] = asyncio.Queue(QUEUED_MESSAGES)
        self._waiting: dict[str, list[asyncio.Future[m.Result | m.Content]]] = {}
        self._closed: str | None = None
        self._task = asyncio.create_task(self._read())

    @property
    def run_time(self) -> float | None:
        """The run's time now, Unix seconds, by the last heartbeat; None before the first one."""
        return None if self.engine_ts is None else self.engine_ts + time.monotonic() - self._beat

    @classmethod
    async def connect(cls, path: str | os.PathLike[str], *, run: str = "", timeout: float = 5.0) -> ControlClient:
        """Connect and take the greeting. `run` names it in messages.

        Raises:
            ControlError: nobody listens, no greeting within `timeout` seconds, or another protocol version.
        """
        name = run or Path(path).stem
        try:
            async with asyncio.timeout(timeout):
                reader, writer = await _open(os.fspath(path))
                try:
                    hello = check_hello(await reader.readline(), name)
                except BaseException:
                    writer.transport.abort()
                    raise
        except TimeoutError:
            raise silent(name, timeout) from None
        except (OSError, ValueError) as error:
            raise unreachable(name, path, error) from None
        return cls(hello, reader, writer, name)

    @property
    def last_heard(self) -> float:
        """`time.monotonic()` of the last byte from the engine."""
        return self._reader.heard

    @property
    def closed(self) -> str | None:
        """Why the connection is over, None while it is open."""
        return self._closed

    async def subscribe(self, cursor: int | None = None) -> AsyncIterator[RunView | Event]:
        """The stream: with `cursor` None first a `RunView`, then events; with a cursor the events after it.

        A server that does not know the cursor (another journal) also starts with a `RunView`. Once a connection.

        Raises:
            ControlError: the connection ended; its message says why.
        """
        self._send(m.Subscribe(cursor=cursor))
        history = History()
        while (message := await self._stream.get()) is not None:
            match message:
                case m.HistoryRows(rows=rows):
                    history.rows.extend(rows)
                case m.StateNow(state=raw):
                    yield RunView(self._decode_state(bytes(raw)), history)
                    history = History()
                case m.Events(events=lines):
                    for line in lines:
                        yield self._decode_event(bytes(line))
        raise ControlError(self._closed or f"run {self._run}: the connection ended")

    async def command(self, command: Command, timeout: float = 30.0) -> CommandResult:
        """Send a command and wait for its result. Sending the same id again, here or elsewhere, is harmless.

        Raises:
            ControlError: the connection ended or no answer came in time; the command may or may not have been done.
        """
        answer = await self._request(
            command.id, m.CommandRequest.of(command), timeout, _no_answer(self._run, command.command, timeout)
        )
        assert isinstance(answer, m.Result)
        return CommandResult(id=answer.id, status=answer.status, text=answer.text)

    def attend(self, author: str, act: bool = True) -> None:
        """Be a viewer with a name; `act`: take the watch if nobody has it. Once a connection; see `presence`.

        Raises:
            ControlError: the connection has ended.
        """
        self._send(m.Attend(author=author, act=act))

    async def take_watch(self, back: bool = False, from_: str | None = None, timeout: float = 30.0) -> CommandResult:
        """Take the watch over, if it is still `from_` who has it (None: from anybody), or give it back.

        Raises:
            ControlError: the connection ended or no answer came in time.
        """
        request = m.TakeWatch(id=uuid.uuid4().hex, back=back, from_=from_)
        answer = await self._request(request.id, request, timeout, _no_answer(self._run, "about the watch", timeout))
        assert isinstance(answer, m.Result)
        return CommandResult(id=answer.id, status=answer.status, text=answer.text)

    async def ask(self, ask: m.Ask, timeout: float = 30.0) -> m.Content:
        """Content of a trial. The id of `ask` must be new on this connection.

        Raises:
            ControlError: the connection ended or no answer came in time.
        """
        silence = ControlError(
            f"run {self._run} gave no {ask.kind} within {timeout:g} s: its engine may be busy; try again"
        )
        answer = await self._request(ask.id, ask, timeout, silence)
        assert isinstance(answer, m.Content)
        return answer

    async def close(self) -> None:
        """End the connection. The run does not notice."""
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        self._end("the connection was closed")
        self._writer.transport.abort()

    async def __aenter__(self) -> ControlClient:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    # --- inside ----------------------------------------

    async def _request(
        self, id: str, message: m.Request, timeout: float, silence: ControlError
    ) -> m.Result | m.Content:
        future: asyncio.Future[m.Result | m.Content] = asyncio.get_running_loop().create_future()
        waiting = self._waiting.setdefault(id, [])
        waiting.append(future)
        try:
            self._send(message)
            return await asyncio.wait_for(future, timeout)
        except TimeoutError:
            raise silence from None
        finally:
            waiting.remove(future)
            if not waiting:
                self._waiting.pop(id, None)

    def _send(self, message: m.Request) -> None:
        if self._closed is not None:
            raise ControlError(self._closed)
        self._writer.write(m.encode(message))

    async def _read(self) -> None:
        why = f"run {self._run}: the engine closed the connection"
        try:
            while line := await self._reader.readline():
                message = m.decode_reply(line)
                if isinstance(message, m.Failure):
                    self.last_word = message.text
                    why = f"run {self._run}: {message.text}"
                elif isinstance(message, m.Heartbeat):
                    self.engine_seq, self.engine_ts = max(self.engine_seq, message.seq), message.ts
                    self._beat = time.monotonic()
                elif isinstance(message, m.Result | m.Content):
                    self._resolve(message)
                elif isinstance(message, m.Presence):
                    self._take_presence(message)
                elif not isinstance(message, m.Hello):
                    await self._stream.put(message)
        except OSError as error:
            why = f"run {self._run}: the connection broke: {error}"
        except ValueError:
            why = f"run {self._run} sent a message that this version cannot read: use the version that started the run"
        self._end(why)
        await self._stream.put(None)

    def _end(self, why: str) -> None:
        self._closed = self._closed or why
        for future in [f for futures in self._waiting.values() for f in futures]:
            if not future.done():
                future.set_exception(ControlError(self._closed))
                future.exception()  # seen here, so a waiter that was cancelled leaves no warning behind

    def _resolve(self, message: m.Result | m.Content) -> None:
        for future in self._waiting.get(message.id, []):
            if not future.done():
                future.set_result(message)

    def _take_presence(self, message: m.Presence) -> None:
        self.presence = tuple(message.viewers)
        if self.on_presence is not None:
            self.on_presence(self.presence)

    def _decode_state(self, raw: bytes) -> RunState:
        try:
            return decode_state(raw)
        except ValueError:
            raise ControlError(
                f"run {self._run} has a state that this version cannot read: use the version that started the run"
            ) from None

    def _decode_event(self, line: bytes) -> Event:
        try:
            event = decode_event(line)
        except ValueError:
            raise ControlError(
                f"run {self._run} sent an event that this version cannot read: use the version that started the run"
            ) from None
        self.engine_seq = max(self.engine_seq, event.seq)
        return event


def _no_answer(run: str, what: str, timeout: float) -> ControlError:
    return ControlError(
        f"run {run} did not answer {what} within {timeout:g} s: look at the run before sending it again"
    )
