"""The viewer's end of the socket without an event loop: one question, one answer. Also who we are, and the greeting."""

from __future__ import annotations

import getpass
import os
import socket
import time
import uuid
from pathlib import Path

import msgspec

from console.control import messages as m
from console.control.commands import Command, CommandResult
from console.errors import ControlError
from console.journal.events import Scalars
from console.state.model import History, decode_state
from console.state.reduce import RunView


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
                        raise unreachable(connection.run, path, error) from None
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


def ask_content(path: str | os.PathLike[str], ask: m.Ask, timeout: float = 30.0, *, run: str = "") -> m.Content:
    """Content of a trial. Blocking. Raises `ControlError`."""
    with _Blocking(path, run, timeout) as connection:
        connection.send(ask)
        while True:
            match connection.receive():
                case m.Content(id=ask.id) as answer:
                    return answer
                case _:
                    pass


def read_viewers(path: str | os.PathLike[str], *, run: str = "", timeout: float = 5.0) -> list[m.Viewer]:
    """Who attends the run now. Blocking. Raises `ControlError`."""
    with _Blocking(path, run, timeout) as connection:
        connection.send(m.Who())
        while True:
            match connection.receive():
                case m.Presence(viewers=viewers):
                    return viewers
                case _:
                    pass


def read_events(
    path: str | os.PathLike[str], after: int, limit: int, *, run: str = "", timeout: float = 30.0
) -> list[bytes]:
    """At most `limit` journal lines after event `after`, those that exist now. Blocking. Raises `ControlError`."""
    with _Blocking(path, run, timeout) as connection:
        wanted = min(limit, connection.hello.seq - after)
        if wanted <= 0:
            return []
        connection.send(m.Subscribe(cursor=after))
        lines: list[bytes] = []
        while len(lines) < wanted:
            match connection.receive():
                case m.Events(events=events):
                    lines += [bytes(line) for line in events]
                case _:
                    pass
        return lines[:wanted]


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
            self.hello = check_hello(self._line(), self.run)
        except TimeoutError:
            self._socket.close()
            raise silent(self.run, timeout) from None
        except (OSError, ValueError) as error:
            self._socket.close()
            raise unreachable(self.run, path, error) from None
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
            raise unreachable(self.run, self._path, error) from None

    def receive(self) -> m.AnyReply:
        try:
            message = m.decode_reply(self._line())
        except TimeoutError:
            raise ControlError(f"run {self.run} gave no answer within {self._timeout:g} s: it may be busy") from None
        except (OSError, ValueError) as error:
            raise unreachable(self.run, self._path, error) from None
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


def check_hello(line: bytes, run: str) -> m.Hello:
    """The greeting. Raises `ControlError` (another version, refused), OSError or ValueError (no engine of ours)."""
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


def unreachable(run: str, path: str | os.PathLike[str], error: Exception) -> ControlError:
    """The error of a socket that nobody answers."""
    reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return ControlError(
        f"run {run} cannot be reached at {os.fspath(path)} ({reason}): `quarterdeck runs` shows which runs are live"
    )


def silent(run: str, timeout: float) -> ControlError:
    """The error of an engine that does not greet within `timeout` seconds."""
    return ControlError(f"run {run} gave no answer within {timeout:g} s: its engine may be busy or stopped; try again")
