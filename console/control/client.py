"""The viewer's end of the socket: one connection, its stream and its commands. `follow.py` is what reconnects."""

from __future__ import annotations

import asyncio
import getpass
import os
import socket
import time
import uuid
from collections.abc import AsyncIterator
from pathlib import Path
from types import TracebackType

import msgspec

from console.control import messages as m
from console.control.commands import Command, CommandResult
from console.errors import ControlError
from console.journal.codec import decode_event
from console.journal.events import Event, Scalars
from console.state.model import History, RunState, decode_state
from console.state.reduce import RunView

QUEUED_MESSAGES = 64
"""Stream messages held for a slow reader; beyond it the socket fills, and the server drops the connection."""


class ControlClient:
    """A connection to a running engine.

    Attributes:
        hello: what the engine said of itself.
        last_heard: `time.monotonic()` of the last byte from it.
        engine_seq: the last event it is known to have; engine_ts: its clock at the last heartbeat, Unix seconds.
    """

    def __init__(self, hello: m.Hello, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, run: str) -> None:
        self.hello = hello
        self.last_heard = time.monotonic()
        self.engine_seq = hello.seq
        self.engine_ts: float | None = None
        self._run = run
        self._reader, self._writer = reader, writer
        self._stream: asyncio.Queue[m.AnyReply | None] = asyncio.Queue(QUEUED_MESSAGES)
        self._waiting: dict[str, list[asyncio.Future[CommandResult]]] = {}
        self._closed: str | None = None
        self._task = asyncio.create_task(self._read())

    @classmethod
    async def connect(cls, path: str | os.PathLike[str], *, run: str = "", timeout: float = 5.0) -> ControlClient:
        """Connect and take the greeting. `run` names it in messages.

        Raises:
            ControlError: nobody listens, no greeting within `timeout` seconds, or another protocol version.
        """
        name = run or Path(path).stem
        try:
            async with asyncio.timeout(timeout):
                reader, writer = await asyncio.open_unix_connection(os.fspath(path), limit=m.MAX_OUTGOING)
                try:
                    hello = _check_hello(await reader.readline(), name)
                except BaseException:
                    writer.transport.abort()
                    raise
        except TimeoutError:
            raise _silent(name, timeout) from None
        except (OSError, ValueError) as error:
            raise _unreachable(name, path, error) from None
        return cls(hello, reader, writer, name)

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
        future: asyncio.Future[CommandResult] = asyncio.get_running_loop().create_future()
        waiting = self._waiting.setdefault(command.id, [])
        waiting.append(future)
        try:
            self._send(m.CommandRequest.of(command))
            return await asyncio.wait_for(future, timeout)
        except TimeoutError:
            raise _no_answer(self._run, command, timeout) from None
        finally:
            waiting.remove(future)
            if not waiting:
                self._waiting.pop(command.id, None)

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

    def _send(self, message: m.Request) -> None:
        if self._closed is not None:
            raise ControlError(self._closed)
        self._writer.write(m.encode(message))

    async def _read(self) -> None:
        why = f"run {self._run}: the engine closed the connection"
        try:
            while line := await self._reader.readline():
                self.last_heard = time.monotonic()
                message = m.decode_reply(line)
                if isinstance(message, m.Failure):
                    why = f"run {self._run}: {message.text}"
                elif isinstance(message, m.Heartbeat):
                    self.engine_seq, self.engine_ts = max(self.engine_seq, message.seq), message.ts
                elif isinstance(message, m.Result):
                    self._resolve(message)
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

    def _resolve(self, message: m.Result) -> None:
        result = CommandResult(id=message.id, status=message.status, text=message.text)
        for future in self._waiting.get(message.id, []):
            if not future.done():
                future.set_result(result)

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


# --- without an event loop ----------------------------------------


def new_command(name: str, args: Scalars | None = None, *, reason: str = "", dry_run: bool = False) -> Command:
    """A command with a fresh id, in the name of this user on this host."""
    return Command(id=uuid.uuid4().hex, command=name, args=args or {}, author=author(), reason=reason, dry_run=dry_run)


def author() -> str:
    """`user@host`, for the audit."""
    try:
        user = getpass.getuser()
    except (OSError, KeyError):
        user = str(os.getuid())
    return f"{user}@{socket.gethostname()}"


def greet(path: str | os.PathLike[str], *, run: str = "", timeout: float = 1.0) -> m.Hello:
    """Ask who listens. Blocking. Raises `ControlError` as `ControlClient.connect` does."""
    with _Blocking(path, run, timeout) as connection:
        return connection.hello


def read_view(path: str | os.PathLike[str], *, run: str = "", timeout: float = 5.0) -> RunView:
    """The run's state now. Blocking. Raises `ControlError`."""
    with _Blocking(path, run, timeout) as connection:
        connection.send(m.Subscribe())
        history = History()
        while True:
            match connection.receive():
                case m.HistoryRows(rows=rows):
                    history.rows.extend(rows)
                case m.StateNow(state=raw):
                    try:
                        return RunView(decode_state(bytes(raw)), history)
                    except ValueError as error:
                        raise _unreachable(connection.run, path, error) from None
                case _:
                    pass


def send_command(
    path: str | os.PathLike[str], command: Command, timeout: float = 30.0, *, run: str = ""
) -> CommandResult:
    """Send one command and wait for its result. Blocking. Raises `ControlError`."""
    with _Blocking(path, run, timeout) as connection:
        connection.send(m.CommandRequest.of(command))
        while True:
            match connection.receive():
                case m.Result(id=command.id) as answer:
                    return CommandResult(id=answer.id, status=answer.status, text=answer.text)
                case _:
                    pass


class _Blocking:
    """A connection on a plain socket, greeted; every error becomes a `ControlError`."""

    def __init__(self, path: str | os.PathLike[str], run: str, timeout: float) -> None:
        self.run = run or Path(path).stem
        self._path, self._timeout = path, timeout
        self._deadline = time.monotonic() + timeout
        self._rest = b""
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            self._socket.settimeout(timeout)
            self._socket.connect(os.fspath(path))
            self.hello = _check_hello(self._line(), self.run)
        except TimeoutError:
            self._socket.close()
            raise _silent(self.run, timeout) from None
        except (OSError, ValueError) as error:
            self._socket.close()
            raise _unreachable(self.run, path, error) from None
        except BaseException:
            self._socket.close()
            raise

    def __enter__(self) -> _Blocking:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def send(self, message: m.Request) -> None:
        try:
            self._socket.sendall(m.encode(message))
        except OSError as error:
            raise _unreachable(self.run, self._path, error) from None

    def receive(self) -> m.AnyReply:
        try:
            message = m.decode_reply(self._line())
        except TimeoutError:
            raise ControlError(f"run {self.run} gave no answer within {self._timeout:g} s: it may be busy") from None
        except (OSError, ValueError) as error:
            raise _unreachable(self.run, self._path, error) from None
        if isinstance(message, m.Failure):
            raise ControlError(f"run {self.run}: {message.text}")
        return message

    def _line(self) -> bytes:
        while b"\n" not in self._rest:
            left = self._deadline - time.monotonic()
            if left <= 0:
                raise TimeoutError
            self._socket.settimeout(left)
            data = self._socket.recv(1 << 16)
            if not data:
                raise ConnectionError("the engine closed the connection")
            self._rest += data
            if len(self._rest) > m.MAX_OUTGOING:
                raise ValueError("a line without end")
        line, _, self._rest = self._rest.partition(b"\n")
        return line


def _check_hello(line: bytes, run: str) -> m.Hello:
    if not line:
        raise ConnectionError("the engine closed the connection")
    try:
        head = msgspec.json.decode(line, type=dict[str, object])
    except msgspec.DecodeError:
        raise ValueError("no Quarterdeck engine listens there") from None
    if head.get("msg") == "error":
        raise ControlError(f"run {run}: {head.get('text')}")
    if head.get("protocol") != m.PROTOCOL:
        raise ControlError(
            f"run {run} speaks control protocol {head.get('protocol')}, this version {m.PROTOCOL}: "
            "use the version of quarterdeck that started the run"
        )
    message = m.decode_reply(line)
    if not isinstance(message, m.Hello):
        raise ValueError("no Quarterdeck engine listens there")
    return message


def _unreachable(run: str, path: str | os.PathLike[str], error: Exception) -> ControlError:
    reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return ControlError(
        f"run {run} cannot be reached at {os.fspath(path)} ({reason}): `quarterdeck runs` shows which runs are live"
    )


def _silent(run: str, timeout: float) -> ControlError:
    return ControlError(f"run {run} gave no answer within {timeout:g} s: its engine may be busy or stopped; try again")


def _no_answer(run: str, command: Command, timeout: float) -> ControlError:
    return ControlError(
        f"run {run} did not answer {command.command} within {timeout:g} s: look at the run before sending it again"
    )
