import asyncio
import json
import os
import socket
import stat
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest

from console.control import binding, connection, server
from console.control.client import ControlClient, greet, read_view
from console.control.messages import MAX_INCOMING, PROTOCOL
from console.errors import ControlError
from console.journal import events as ev
from console.journal.reader import Journal
from console.state.reduce import RunView, apply, fold


async def take_until(stream, seq, view=None):
    """Fold the stream until event `seq`; returns the view and the events that came."""
    events = []
    if view is not None and view.state.seq >= seq:
        return view, events
    async with asyncio.timeout(10):
        async for item in stream:
            if isinstance(item, RunView):
                view = item
            else:
                events.append(item)
                apply(view, item)
            if view.state.seq >= seq:
                return view, events
    raise AssertionError("the stream ended")


class RawClient:
    """A client that says what it likes."""

    def __init__(self, path):
        self.path = path

    async def __aenter__(self):
        self.reader, self.writer = await asyncio.open_unix_connection(self.path, limit=1 << 26)
        return self

    async def __aexit__(self, *_):
        self.writer.transport.abort()

    async def receive(self):
        async with asyncio.timeout(10):
            line = await self.reader.readline()
        return json.loads(line) if line else None


async def test_subscriber_without_cursor_gets_history_state_and_live_events(engine):
    engine.begin()
    engine.step(0)
    async with await ControlClient.connect(engine.socket) as client:
        assert client.hello.run_id == "run-1" and client.hello.seq == engine.writer.last_seq
        stream = client.subscribe()
        first = await anext(stream)
        assert isinstance(first, RunView)
        assert first == engine.view and len(first.history.rows) == 1
        engine.step(1)
        view, events = await take_until(stream, engine.writer.last_seq, first)
        assert view == engine.view
        assert len(events) == 19 and all(b.seq == a.seq + 1 for a, b in pairwise(events))


async def test_two_clients_see_the_same(engine):
    engine.begin()
    clients = [await ControlClient.connect(engine.socket) for _ in range(2)]
    streams = [c.subscribe() for c in clients]
    views = [await anext(s) for s in streams]
    assert engine.server.clients == 2
    for number in range(3):
        engine.step(number)
        await asyncio.sleep(0)
    engine.finish()
    got = [await take_until(s, engine.writer.last_seq, v) for s, v in zip(streams, views, strict=True)]
    assert got[0] == got[1] and got[0][0] == engine.view == fold(Journal(engine.run_dir / "journal").events())
    for client in clients:
        await client.close()


@pytest.mark.parametrize("tail_bytes", [4 << 20, 1000, 1])
async def test_cursor_gets_exactly_the_missing_events(new_engine, tail_bytes):
    """From memory, from files and memory, and from files alone; over snapshots and sealed chunks."""
    engine = new_engine(chunk_bytes=4000, snapshot_events=30)
    engine.server.tail._limit = tail_bytes
    await engine.server.start()
    engine.begin()
    engine.step(0)
    async with await ControlClient.connect(engine.socket) as client:
        before = await anext(client.subscribe())
    cursor = before.state.seq
    for number in range(1, 5):
        engine.step(number)
    wanted = list(Journal(engine.run_dir / "journal").events(cursor))
    assert any(isinstance(e, ev.Snapshot) for e in wanted)
    async with await ControlClient.connect(engine.socket) as client:
        view, events = await take_until(client.subscribe(cursor), engine.writer.last_seq, before)
        assert [e.seq for e in events] == [e.seq for e in wanted]
        for got, kept in zip(events, wanted, strict=True):
            assert got == kept or (isinstance(got, ev.Snapshot) and bytes(got.state) == b"{}")
        assert view == engine.view
    await engine.close()


async def test_cursor_while_events_go_on(new_engine):
    """Catching up from the files while the engine writes leaves no hole and repeats nothing."""
    engine = new_engine(chunk_bytes=20_000)
    engine.server.tail._limit = 2000
    await engine.server.start()
    engine.begin()
    for number in range(40):
        engine.step(number)
    async with await ControlClient.connect(engine.socket) as client:
        taking = asyncio.create_task(take_until(client.subscribe(0), engine.writer.last_seq + 25 * 19, RunView()))
        for number in range(40, 65):
            engine.step(number)
            await asyncio.sleep(0.002)
        view, events = await taking
    assert [e.seq for e in events] == list(range(1, view.state.seq + 1))
    assert view.state.seq >= 65 * 19
    await engine.close()


async def test_a_cursor_of_another_journal_starts_anew(engine):
    engine.begin()
    async with await ControlClient.connect(engine.socket) as client:
        assert await anext(client.subscribe(999_999)) == engine.view


async def test_a_large_history_comes_in_batches_and_whole(engine):
    engine.begin(steps=1200)
    for number in range(1200):
        engine.writer.append(ev.StepFinished(step=number, reward_mean=0.5, policy_version=number + 1))
    view = await asyncio.to_thread(read_view, engine.socket)
    assert view == engine.view and len(view.history.rows) == 1200


async def test_heartbeats_tell_the_last_event(new_engine, monkeypatch):
    monkeypatch.setattr(server, "HEARTBEAT_SECONDS", 0.02)
    engine = new_engine()
    await engine.server.start()
    engine.begin()
    async with RawClient(engine.socket) as raw:
        assert (await raw.receive())["protocol"] == PROTOCOL
        beats = []
        while len(beats) < 2:
            message = await raw.receive()
            beats += [message] if message["msg"] == "heartbeat" else []
        assert beats[-1]["seq"] == 1 and beats[-1]["ts"] > 1.6e9
    async with await ControlClient.connect(engine.socket) as client:
        heard = client.last_heard
        async with asyncio.timeout(10):
            while client.engine_ts is None:  # noqa: ASYNC110
                await asyncio.sleep(0.005)
        assert client.last_heard > heard and client.engine_seq == 1
    await engine.close()


async def test_a_slow_client_is_dropped_and_the_other_unharmed(engine, monkeypatch):
    monkeypatch.setattr(connection, "BUFFER_LIMIT", 50_000)
    engine.begin()
    async with RawClient(engine.socket) as slow, await ControlClient.connect(engine.socket) as good:
        slow.writer.write(b'{"msg":"subscribe"}\n')
        while (await slow.receive())["msg"] != "state":
            pass
        slow.reader._transport.pause_reading()
        stream = good.subscribe()
        view = await anext(stream)
        note = "x" * 1000
        for _ in range(2000):
            engine.writer.append(ev.Note(text=note))
            if engine.server.clients == 1:
                break
            await asyncio.sleep(0)
        assert engine.server.clients == 1
        view, events = await take_until(stream, engine.writer.last_seq, view)
        assert view == engine.view
        # what it missed it gets by cursor
        async with await ControlClient.connect(engine.socket) as again:
            _, events = await take_until(again.subscribe(1), engine.writer.last_seq, fold([ev.RunStarted(seq=1)]))
            assert [e.seq for e in events] == list(range(2, engine.writer.last_seq + 1))


@pytest.mark.parametrize(
    "line",
    [
        b"nonsense\n",
        b"[]\n",
        b'{"msg":"subscribe","cursor":"x"}\n',
        b'{"msg":"format_disk"}\n',
        b'{"msg":"command","id":"1","command":"stop_now","force":true}\n',
        b"\xff\xfe\n",
        b"\n",
        b'{"msg":"subscribe"}\n{"msg":"subscribe"}\n',
        b'{"msg":"command","id":"1","command":"' + b"x" * MAX_INCOMING + b'"}\n',
        b"[" * 60_000 + b"\n",
    ],
)
async def test_bad_input_gets_one_error_and_harms_nobody(engine, line):
    engine.begin()
    async with await ControlClient.connect(engine.socket) as good, RawClient(engine.socket) as bad:
        stream = good.subscribe()
        view = await anext(stream)
        assert (await bad.receive())["msg"] == "hello"
        bad.writer.write(line)
        kinds = []
        try:
            while message := await bad.receive():
                kinds.append(message["msg"])
                if message["msg"] == "error":
                    assert message["text"] and len(message["text"]) < 400
        except ConnectionError:
            pass
        assert kinds.count("error") == 1 and kinds[-1] == "error"
        engine.step(0)
        view, _ = await take_until(stream, engine.writer.last_seq, view)
        assert view == engine.view
    assert engine.handler.done == []


async def test_half_a_line_is_no_message(engine):
    async with RawClient(engine.socket) as raw:
        await raw.receive()
        raw.writer.write(b'{"msg":"command","id":"1","command":"stop_now"}')
        raw.writer.write_eof()
        assert await raw.receive() is None
    assert engine.handler.done == []


async def test_permissions_and_removal(new_engine, socket_dir):
    engine = new_engine()
    engine.socket = engine.server.path = socket_dir / "private" / "s.sock"
    await engine.server.start()
    assert stat.S_IMODE(engine.socket.stat().st_mode) == 0o600
    assert stat.S_IMODE(engine.socket.parent.stat().st_mode) == 0o700
    assert stat.S_IMODE((engine.run_dir / "audit.jsonl").stat().st_mode) == 0o600
    await engine.close()
    assert not engine.socket.exists()


async def test_another_user_is_refused(engine, monkeypatch):
    assert binding.may_connect((1, os.getuid())) and binding.may_connect((1, 0)) and binding.may_connect(None)
    assert not binding.may_connect((1, os.getuid() + 1))
    monkeypatch.setattr(server, "peer_of", lambda sock: (4242, os.getuid() + 1))
    with pytest.raises(ControlError, match="another user"):
        await ControlClient.connect(engine.socket)
    assert engine.server.clients == 0


@pytest.mark.skipif(sys.platform != "linux", reason="SO_PEERCRED")
def test_the_peer_is_known():
    left, right = socket.socketpair(socket.AF_UNIX)
    with left, right:
        assert binding.peer_of(left) == (os.getpid(), os.getuid())


async def test_a_live_socket_is_never_taken_and_a_stale_one_is(engine, socket_dir):
    with pytest.raises(ControlError, match="another engine listens"):
        binding.listen(engine.socket)
    assert (await asyncio.to_thread(greet, engine.socket)).run_id == "run-1"
    stale = socket_dir / "stale.sock"
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(stale))
    binding.listen(stale).close()
    plain = socket_dir / "plain"
    plain.write_text("mine")
    with pytest.raises(ControlError, match="not a socket"):
        binding.listen(plain)
    assert plain.read_text() == "mine"
    with pytest.raises(ControlError, match="longer than"):
        binding.listen(socket_dir / ("x" * 200))


def test_a_private_directory_is_closed_or_refused(tmp_path):
    open_dir = tmp_path / "open"
    open_dir.mkdir(mode=0o755)
    binding.ensure_private_dir(open_dir)
    assert stat.S_IMODE(open_dir.stat().st_mode) == 0o700
    link = tmp_path / "link"
    link.symlink_to(open_dir)
    with pytest.raises(ControlError, match="not a directory of yours"):
        binding.ensure_private_dir(link)


async def test_closing_hands_out_the_last_event(new_engine):
    engine = new_engine()
    await engine.server.start()
    engine.begin()
    async with await ControlClient.connect(engine.socket) as client:
        stream = client.subscribe()
        view = await anext(stream)
        engine.finish("stopped", 3)
        closing = asyncio.create_task(engine.close())
        view, _ = await take_until(stream, 2, view)
        assert view.state.exit_code == 3
        await closing
        with pytest.raises(ControlError, match="closed the connection"):
            await anext(stream)


ENGINE = Path(__file__).parent / "small_engine.py"


async def test_kill_9_of_the_engine(tmp_path, socket_dir):
    """The client gets one clear error; the journal has everything that the client saw."""
    path = socket_dir / "s.sock"
    process = subprocess.Popen(  # noqa: ASYNC220
        [sys.executable, ENGINE, tmp_path, path, "--steps", "1000", "--interval", "0.01"],
        stdout=subprocess.PIPE,
    )
    try:
        await asyncio.to_thread(process.stdout.readline)
        async with await ControlClient.connect(path, run="run-1") as client:
            stream = client.subscribe()
            view = await anext(stream)
            with pytest.raises(ControlError, match="run run-1"):  # noqa: PT012
                async for item in stream:
                    apply(view, item)
                    if len(view.history.rows) == 3:
                        process.kill()
            assert client.closed
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
    journal = Journal(tmp_path / "journal")
    assert journal.last_seq >= view.state.seq and len(view.history.rows) >= 3
    assert fold(journal.events(until_seq=view.state.seq)) == view
    with pytest.raises(ControlError, match="cannot be reached"):
        await ControlClient.connect(path)
    binding.listen(path).close()  # the dead engine's socket is in nobody's way
