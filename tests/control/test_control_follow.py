"""Following over lost connections: nothing missed, nothing twice, and it says so."""

import asyncio
from contextlib import aclosing

import pytest

from console.control import follow
from console.control.client import ControlClient, new_command
from console.control.follow import LinkDown, LinkUp, RunFollower
from console.errors import ControlError
from console.journal import events as ev
from console.records.run_dir import RunRecord
from console.state.reduce import RunView, apply


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(follow, "FIRST_DELAY", 0.01)


class Collector:
    """Follows in a task and keeps what came."""

    def __init__(self, follower):
        self.follower, self.items, self.view = follower, [], RunView()
        self.task = asyncio.create_task(self._run())

    async def _run(self):
        async for item in self.follower.items():
            self.items.append(item)
            if isinstance(item, RunView):
                self.view = item
            elif isinstance(item, ev.Event):
                apply(self.view, item)

    def of(self, *kinds):
        return [item for item in self.items if isinstance(item, kinds)]


async def test_a_restarted_server_is_followed_by_cursor(new_engine, until):
    first = new_engine()
    await first.server.start()
    first.begin()
    first.step(0)
    got = Collector(RunFollower(first.socket, run="run-1"))
    await until(lambda: got.of(RunView))
    cursor = got.view.state.seq
    assert got.follower.silence is not None and got.follower.client is not None
    await first.close()
    await until(lambda: got.of(LinkDown))
    with pytest.raises(ControlError, match="no connection"):
        await got.follower.command(new_command("retry"))
    second = new_engine()
    second.view = RunRecord(second.run_dir).view_at_end()
    second.step(1)
    await second.server.start()
    missed = second.writer.last_seq - cursor
    await until(lambda: len(got.view.history.rows) == 2)
    second.finish()
    await second.close()
    async with asyncio.timeout(10):
        await got.task
    up, down, *_, again = got.of(LinkUp, LinkDown)
    assert (up, again) == (LinkUp(), LinkUp(missed=missed, again=True)) and down.retry_in
    assert len(got.of(RunView)) == 1
    assert [e.seq for e in got.of(ev.Event)] == list(range(cursor + 1, second.writer.last_seq + 1))
    assert got.view == second.view == RunRecord(second.run_dir).view_at_end()


async def test_a_hole_starts_anew_with_a_view(engine, until):
    engine.begin()
    engine.step(0)
    items = []
    async with asyncio.timeout(10), aclosing(RunFollower(engine.socket).items()) as stream:
        async for item in stream:
            items.append(item)
            if isinstance(item, RunView) and sum(isinstance(i, RunView) for i in items) == 1:
                live = next(iter(engine.server._connections))
                await until(lambda: live._live)  # noqa: B023
                live._sent += 2  # the server believes that it sent two more
                for _ in range(4):
                    engine.writer.append(ev.Note(text="x"))
            elif isinstance(item, RunView):
                break
    down = next(i for i in items if isinstance(i, LinkDown))
    assert "events 21 to 22 are missing" in down.reason
    assert items[-1] == engine.view


async def test_it_ends_when_no_engine_is_left(new_engine):
    engine = new_engine()
    await engine.server.start()
    engine.begin()
    links = []
    async with asyncio.timeout(10):
        async for item in RunFollower(engine.socket, run="r", alive=lambda: False).items():
            links += [item] if isinstance(item, LinkDown) else []
            if isinstance(item, RunView):
                await engine.close()
    assert [link.retry_in for link in links] == [0.0, None]
    assert "run r" in links[-1].reason


async def test_another_protocol_is_named(engine, monkeypatch):
    monkeypatch.setattr("console.control.messages.PROTOCOL", 2)
    with pytest.raises(ControlError, match="control protocol 1, this version 2: use the version"):
        await ControlClient.connect(engine.socket)


async def test_something_else_listens(socket_dir):
    async def talk(reader, writer):
        writer.write(b"220 smtp ready\n")
        await writer.drain()
        writer.close()

    path = socket_dir / "other"
    server = await asyncio.start_unix_server(talk, path)
    with pytest.raises(ControlError, match="no Quarterdeck engine listens there"):
        await ControlClient.connect(path)
    server.close()


async def test_silence_is_named(socket_dir):
    async def keep(reader, writer):
        await reader.read()
        writer.close()

    server = await asyncio.start_unix_server(keep, socket_dir / "mute")
    with pytest.raises(ControlError, match=r"gave no answer within 0\.05 s"):
        await ControlClient.connect(socket_dir / "mute", timeout=0.05)
    server.close()
