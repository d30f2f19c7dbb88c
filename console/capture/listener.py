"""The socket of the capture gateway: binding it, and holding a connection within bounds before anything is said on it.

Connections that have not shown a trial's token are few and short-lived: when there are too many, the oldest goes, so
that one sandbox which opens thousands does not keep the others out.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
import ssl
from collections.abc import Awaitable, Callable
from typing import Any

from aiohttp import web

from console.capture.address import in_url
from console.capture.refusals import RefusedError, UnforeseenError
from console.capture.routes import Entry
from console.errors import UsageError

BACKLOG = 1024
STRANGERS = 256
"""Connections without a known token that are open at once."""

STRANGER_SECONDS = 20.0
CONNECTIONS_EACH = 64
"""Connections of one trial."""

KEEPALIVE_SECONDS = 600.0
HEADER_BYTES, HEADERS = 16 * 2**10, 64
HANDSHAKE_SECONDS = 10.0
CLOSE_SECONDS = 0.2
_WATCHFUL = {"TCP_KEEPIDLE": 30, "TCP_KEEPINTVL": 10, "TCP_KEEPCNT": 3, "TCP_USER_TIMEOUT": 60_000}

log = logging.getLogger(__name__)

type Handler = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]
type Malformed = Callable[[RefusedError], web.Response]


class Connection(web.RequestHandler):
    """One connection. Nothing that goes wrong on it is answered with anything but JSON, or logged with what it said."""

    __slots__ = ("_entry", "_listener", "_overdue")

    def __init__(self, listener: Listener, server: web.Server, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(
            server,
            loop=loop,
            access_log=None,  # type: ignore[arg-type]
            logger=log,
            keepalive_timeout=KEEPALIVE_SECONDS,
            max_line_size=HEADER_BYTES,
            max_field_size=HEADER_BYTES,
            max_headers=HEADERS,
            auto_decompress=False,
            lingering_time=0,
        )
        self._listener = listener
        self._entry: Entry | None = None
        self._overdue: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """As the protocol has it; it is a stranger's for now."""
        super().connection_made(transport)
        self._strange()

    def connection_lost(self, exc: BaseException | None) -> None:
        """As the protocol has it."""
        self._listener.knows(self)
        if self._overdue is not None:
            self._overdue.cancel()
        if self._entry is not None:
            self._entry.connections.discard(self)
            self._entry = None
        super().connection_lost(exc)

    def belongs_to(self, entry: Entry) -> None:
        """A request on it showed a trial's token. Raises `RefusedError` (busy) when the trial has too many of them."""
        if entry is self._entry:
            return
        if len(entry.connections) >= CONNECTIONS_EACH:
            raise RefusedError("busy", "too many connections of this trial", retry_after=2.0)
        if self._overdue is not None:
            self._overdue.cancel()
        self._listener.knows(self)
        if self._entry is not None:
            self._entry.connections.discard(self)
        entry.connections.add(self)
        self._entry = entry

    def release(self) -> None:
        """Its trial has ended: it is a stranger's again, with a stranger's time to show a token.

        Closing it here would lose the call of another trial, whose client shares it and has just begun to send.
        """
        if self._entry is not None:
            self._entry.connections.discard(self)
            self._entry = None
            self._strange()

    def _strange(self) -> None:
        self._overdue = self._loop.call_later(STRANGER_SECONDS, self.abort)
        self._listener.came(self)

    def abort(self) -> None:
        """Drop it, whatever it is in the middle of."""
        if self.transport is not None:
            self.transport.abort()

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """What is answered to something that is not HTTP, or when answering failed."""
        if request.writer.output_size > 0:
            raise ConnectionError("an answer was begun")
        if status >= 500:
            log.warning("a request could not be answered: %s", type(exc).__name__)
            refusal: RefusedError = UnforeseenError()
        else:
            refusal = RefusedError("request", "this is not valid HTTP, or its headers are too long", status=status)
        response = self._listener.malformed(refusal)
        response.force_close()
        return response

    def log_exception(self, *args: Any, **kw: Any) -> None:
        """Only what kind of error it was: its text and its traceback hold what the client sent."""
        log.warning("a connection failed: %s", type(kw.get("exc_info")).__name__)


class Listener:
    """Listens at one address.

    Args:
        handler: answers a request; malformed: makes the answer to what is not HTTP.
    """

    def __init__(self, handler: Handler, malformed: Malformed) -> None:
        self.malformed = malformed
        self._server = web.Server(handler, handler_cancellation=True)
        self._sockets: list[asyncio.Server] = []
        self._strangers: dict[Connection, None] = {}
        self.port = 0

    async def start(self, host: str, port: int, context: ssl.SSLContext | None) -> None:
        """Listen at every address of a host, on one port.

        Args:
            port: 0 for any that is free; context: for TLS.

        Raises:
            UsageError: naming the option and what to do.
        """
        loop = asyncio.get_running_loop()
        bound = await _bound(host, port)
        self.port = bound[0].getsockname()[1]
        options: dict[str, Any] = {} if context is None else {"ssl_handshake_timeout": HANDSHAKE_SECONDS}
        for sock in bound:
            self._sockets.append(
                await loop.create_server(
                    lambda: Connection(self, self._server, loop), sock=sock, ssl=context, backlog=BACKLOG, **options
                )
            )

    async def close(self) -> None:
        """Release the port, and end every connection."""
        for listening in self._sockets:
            listening.close()
        self._sockets.clear()
        self._server.pre_shutdown()
        await self._server.shutdown(CLOSE_SECONDS)

    def came(self, connection: Connection) -> None:
        """A connection has not shown a token yet; the oldest of those goes when there are too many."""
        self._strangers[connection] = None
        if len(self._strangers) > STRANGERS:
            oldest = next(iter(self._strangers))
            del self._strangers[oldest]
            oldest.abort()

    def knows(self, connection: Connection) -> None:
        """It has, or it is gone."""
        self._strangers.pop(connection, None)


async def check_address(host: str, port: int) -> None:
    """Listen as a start would, and stop at once. Raises UsageError, as `Listener.start`."""
    for sock in await _bound(host, port):
        sock.close()


async def _bound(host: str, port: int) -> list[socket.socket]:
    """Sockets for each address of the host, on the same port."""
    bare = host.strip().strip("[]")
    try:
        found = await asyncio.get_running_loop().getaddrinfo(
            bare, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
    except (OSError, UnicodeError) as problem:
        raise _no_such_address(host, problem) from None
    addresses = list(dict.fromkeys((family, address) for family, _, _, _, address in found))
    bound: list[socket.socket] = []
    problems: list[OSError] = []
    for family, address in addresses:
        try:
            bound.append(_listening(family, (address[0], bound[0].getsockname()[1] if bound else port, *address[2:])))
        except OSError as problem:
            problems.append(problem)
    if bound:
        return bound
    first = problems[0]
    if first.errno == errno.EADDRINUSE:
        raise UsageError(
            f"harbor.listen_port={port}: is in use at {in_url(host)}; choose another, or 0 for any that is free"
        )
    if first.errno in (errno.EACCES, errno.EPERM):
        raise UsageError(f"harbor.listen_port={port}: this user may not listen there; choose one above 1023")
    raise _no_such_address(host, first)


def _listening(family: int, address: tuple[Any, ...]) -> socket.socket:
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.setblocking(False)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, address[0] != "::")
        # What accepted connections inherit: a sandbox that vanished is noticed within a minute, not after two hours.
        for name, value in _WATCHFUL.items():
            if hasattr(socket, name):
                sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
        sock.bind(address)
        sock.listen(BACKLOG)
    except OSError:
        sock.close()
        raise
    return sock


def _no_such_address(host: str, problem: Exception) -> UsageError:
    reason = getattr(problem, "strerror", None) or problem
    return UsageError(
        f"harbor.listen_host={host}: cannot listen there ({reason}); name an address of this machine, or 0.0.0.0"
    )
