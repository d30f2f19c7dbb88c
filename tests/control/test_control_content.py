"""Content over the socket: read beside the loop, in order, and never the reason that a client is dropped."""

import asyncio
import threading

import pytest
from capture_files import CallsFile

from console.control import connection
from console.control import messages as m
from console.control.blocking import ask_content, read_events
from console.control.client import ControlClient, new_command
from console.errors import ControlError
from console.journal import events as ev


def ask(id="q", kind="transcript", **fields):
    return m.Ask(id=id, kind=kind, step=0, group=0, trial=0, **fields)


def capture(engine, calls, reply="x"):
    file = CallsFile(engine.run_dir)
    for _ in range(calls):
        file.call(reply=reply)


async def test_a_transcript_comes_over_the_socket_as_it_grows(engine):
    engine.begin()
    async with await ControlClient.connect(engine.socket) as client:
        empty = await client.ask(ask())
        assert (empty.turns, empty.over) == ([], False) and empty.note
        capture(engine, 2, "first")
        got = await client.ask(ask("2"))
        assert [t.text for t in got.turns] == ["first", "first"] and got.calls == 2
        assert (await client.ask(ask("3", cursor=got.cursor))).turns == []
    assert (await asyncio.to_thread(ask_content, engine.socket, ask())).turns == got.turns


async def test_the_loop_goes_on_while_files_are_read(engine):
    """A disk that hangs holds up the question, and nothing else."""
    engine.begin()
    gate = threading.Event()
    engine.server._content = lambda question: (gate.wait(20), m.Content(id=question.id, kind=question.kind))[1]
    async with await ControlClient.connect(engine.socket) as client:
        asking = [asyncio.create_task(client.ask(ask(str(number)))) for number in range(5)]
        await asyncio.sleep(0)
        assert (await client.command(new_command("retry"))).status == "done"
        assert not any(task.done() for task in asking)
        gate.set()
        assert [answer.id for answer in await asyncio.gather(*asking)] == ["0", "1", "2", "3", "4"]


async def test_one_question_of_a_connection_is_read_at_a_time(engine):
    running, most = 0, 0
    lock = threading.Lock()

    def slow(question):
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        threading.Event().wait(0.01)
        with lock:
            running -= 1
        return m.Content(id=question.id, kind=question.kind)

    engine.server._content = slow
    async with await ControlClient.connect(engine.socket) as client:
        await asyncio.gather(*(client.ask(ask(str(number))) for number in range(8)))
    assert most == 1


async def test_too_many_questions_at_once_end_the_connection(engine, until):
    gate = threading.Event()
    engine.server._content = lambda question: (gate.wait(20), m.Content(id=question.id, kind=question.kind))[1]
    client = await ControlClient.connect(engine.socket)
    tasks = [asyncio.create_task(client.ask(ask(str(number)))) for number in range(connection.ASKS_AT_ONCE + 2)]
    await until(lambda: client.closed)
    gate.set()
    results = await asyncio.gather(*tasks, return_exceptions=True)
    assert all(isinstance(r, ControlError) for r in results) and "questions at once" in str(results[0])
    await client.close()


async def test_what_cannot_be_read_is_said(engine):
    def broken(question):
        raise RuntimeError("bad\x1b[31m disk")

    engine.server._content = broken
    async with await ControlClient.connect(engine.socket) as client:
        assert "cannot be read: RuntimeError: bad disk" in (await client.ask(ask())).note
        assert (await client.command(new_command("retry"))).status == "done"


async def test_large_answers_get_no_healthy_client_dropped(engine, monkeypatch):
    """One whose line is slow takes large answers and the stream as well; nothing of either is lost."""
    monkeypatch.setattr(connection, "BUFFER_LIMIT", 400_000)
    engine.begin()
    capture(engine, 60, "\x00" * 16_000)
    async with await ControlClient.connect(engine.socket) as client:
        transport = client._reader._transport
        stream = client.subscribe()
        view = await anext(stream)
        asking = [asyncio.create_task(client.ask(ask(str(number)))) for number in range(12)]
        seqs = []

        async def follow():
            async for event in stream:
                seqs.append(event.seq)

        following = asyncio.create_task(follow())
        transport.pause_reading()
        for _ in range(60):
            engine.writer.append(ev.Note(text="n" * 500))
            await asyncio.sleep(0.002)
        assert sum(task.done() for task in asking) < 12
        transport.resume_reading()
        answers = await asyncio.gather(*asking)
        assert all(answer.more and len(answer.turns) >= 2 for answer in answers)
        async with asyncio.timeout(10):
            while not seqs or seqs[-1] < engine.writer.last_seq:  # noqa: ASYNC110
                await asyncio.sleep(0.002)
        assert seqs == list(range(view.state.seq + 1, engine.writer.last_seq + 1)) and client.closed is None
        following.cancel()


async def test_a_message_that_takes_its_time_is_a_sign_of_life(engine, until):
    client = await ControlClient.connect(engine.socket)
    heard = client.last_heard
    writer = next(iter(engine.server._connections))._writer
    writer.write(b'{"msg":"heartbeat",')
    await until(lambda: client.last_heard > heard)
    assert client.engine_ts is None
    await client.close()


async def test_questions_of_a_client_that_left_are_not_answered(engine, until):
    gate = threading.Event()
    engine.server._content = lambda question: (gate.wait(20), m.Content(id=question.id, kind=question.kind))[1]
    client = await ControlClient.connect(engine.socket)
    task = asyncio.create_task(client.ask(ask()))
    await until(lambda: engine.server._connections and next(iter(engine.server._connections))._asking)
    await client.close()
    with pytest.raises(ControlError):
        await task
    await until(lambda: engine.server.clients == 0)
    gate.set()


async def test_events_can_be_pulled_from_a_cursor(engine):
    engine.begin()
    for number in range(3):
        engine.step(number)
    lines = await asyncio.to_thread(read_events, engine.socket, 5, 10)
    assert [m.seq_of(line) for line in lines] == list(range(6, 16))
    last = engine.writer.last_seq
    assert len(await asyncio.to_thread(read_events, engine.socket, last - 2, 100)) == 2
    assert await asyncio.to_thread(read_events, engine.socket, last + 7, 100) == []
