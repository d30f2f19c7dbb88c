"""A relay in front of a real gateway whose line can be cut, or go silent, over real sockets."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from urllib.parse import urlsplit


class Line:
    """The relay's line: `cut` ends every connection and each that comes after; `freeze` lets nothing through."""

    def __init__(self, url: str) -> None:
        self.url, self._cut, self._open = url, False, set[asyncio.StreamWriter]()
        self._frozen = False

    def freeze(self) -> None:
        self._frozen = True

    def cut(self) -> None:
        self._cut = True
        for writer in self._open:
            writer.transport.abort()


@contextlib.asynccontextmanager
async def silent_relay(target: str) -> AsyncIterator[Line]:
    """A line to the gateway at `target`."""
    place = urlsplit(target)

    async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(65536):
                if line._frozen:
                    continue
                writer.write(data)
                await writer.drain()
        writer.close()

    async def accepted(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if line._cut:
            writer.transport.abort()
            return
        far_reader, far_writer = await asyncio.open_connection(place.hostname, place.port)
        both = {writer, far_writer}
        line._open |= both
        await asyncio.gather(pump(reader, far_writer), pump(far_reader, writer))
        line._open -= both

    server = await asyncio.start_server(accepted, "127.0.0.1", 0)
    line = Line(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}")
    try:
        yield line
    finally:
        line.cut()
        server.close()
