"""The relay of a sandbox: what one sandbox may take of the process that carries its connections."""

from __future__ import annotations

import asyncio
import os
import socket

from console.trials.relay import CONNECTIONS, Relay, Target


async def test_connections_beyond_the_limit_are_closed_and_cost_no_descriptors():
    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(100):
            writer.write(data)
        writer.close()

    far = await asyncio.start_server(echo, "127.0.0.1", 0)
    relay = Relay(Target.parse(f"http://127.0.0.1:{far.sockets[0].getsockname()[1]}"))
    listener = socket.create_server(("127.0.0.1", 0))
    place = listener.getsockname()
    await relay.start(listener)
    ours = [await asyncio.open_connection(*place) for _ in range(CONNECTIONS)]
    for reader, writer in ours:
        writer.write(b"x")
        assert await reader.readexactly(1) == b"x"
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(200):
        reader, writer = await asyncio.open_connection(*place)
        try:
            assert await asyncio.wait_for(reader.read(1), 20) == b""
        except ConnectionResetError:
            pass
        writer.close()
    assert len(os.listdir("/proc/self/fd")) <= before + 2
    reader, writer = ours.pop()
    writer.close()
    await writer.wait_closed()
    while True:  # there is room again, as soon as the relay has noticed
        reader, writer = await asyncio.open_connection(*place)
        try:
            writer.write(b"y")
            if await reader.read(1) == b"y":
                break
        except ConnectionResetError:
            await asyncio.sleep(0.01)
        finally:
            writer.close()
    relay.stop()
    far.close()
    for _, writer in ours:
        writer.close()
