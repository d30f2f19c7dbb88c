"""The one way out of a sandbox: a port on its own loopback that leads to the capture gateway.

The listening socket belongs to the sandbox's network, the accepting and dialling is done by this process in the host's:
inside, nothing else can be reached, whatever a process there tries.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import socket
from dataclasses import dataclass
from urllib.parse import urlsplit

CONNECTIONS = 96
"""Carried at once from one sandbox. Each is two descriptors of a process that serves other trials too."""

_DIAL_LIMIT = 10.0
_PIECE = 1 << 16


@dataclass(frozen=True)
class Target:
    """Where a relay leads, and how the same URL is made to work inside.

    Attributes:
        host, port: dialled from the host.
        address: IPv4 address to listen on inside.
        alias: host name that the sandbox's /etc/hosts must give that address, None when the URL has an address.
    """

    host: str
    port: int
    address: str
    alias: str | None

    @classmethod
    def parse(cls, url: str) -> Target:
        """From an http or https URL.

        Raises:
            ValueError: not such a URL; the message says how one looks.
        """
        parts = urlsplit(url)
        try:
            port = parts.port or {"http": 80, "https": 443}.get(parts.scheme)
        except ValueError:
            port = None
        if parts.scheme not in ("http", "https") or not parts.hostname or port is None:
            raise ValueError(f"relay: {url!r} is not an http URL such as http://127.0.0.1:8080")
        try:
            address = ipaddress.ip_address(parts.hostname)
        except ValueError:
            return cls(parts.hostname, port, "127.0.0.1", parts.hostname)
        if address.version != 4:
            raise ValueError(f"relay: {url!r}: give the gateway's IPv4 address or its name")
        return cls(parts.hostname, port, parts.hostname, None)


class Relay:
    """Carries connections from a sandbox's listening socket to the target."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self._server: asyncio.Server | None = None
        self._carrying: set[asyncio.Task[None]] = set()

    async def start(self, listener: socket.socket) -> None:
        self._server = await asyncio.start_server(self._carry, sock=listener)

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        if len(self._carrying) >= CONNECTIONS:
            writer.transport.abort()
            return
        self._carrying.add(task)
        ends = [writer]
        try:
            dial = asyncio.open_connection(self._target.host, self._target.port)
            far_reader, far_writer = await asyncio.wait_for(dial, _DIAL_LIMIT)
            ends.append(far_writer)
            await asyncio.gather(_pump(reader, far_writer), _pump(far_reader, writer))
        except (OSError, TimeoutError):
            pass  # closing below is how the client inside learns of it
        finally:
            self._carrying.discard(task)
            for end in ends:
                end.close()

    def stop(self) -> None:
        """Close the listener and every connection."""
        if self._server is not None:
            self._server.close()
            self._server = None
        for task in self._carrying:
            task.cancel()


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Until end of file, which is passed on; the other direction goes on."""
    while piece := await reader.read(_PIECE):
        writer.write(piece)
        await writer.drain()
    with contextlib.suppress(OSError):
        writer.write_eof()
