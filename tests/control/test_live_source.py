"""The console's source on a live run: presence, the watch, and questions."""

import asyncio

import pytest

from console.control import follow
from console.control.client import ControlClient, new_command
from console.control.messages import Ask
from console.errors import ControlError
from console.tui.live import LiveSource


@pytest.fixture
async def console(engine, until, monkeypatch):
    monkeypatch.setattr(follow, "FIRST_DELAY", 0.01)
    engine.begin()
    started = []

    async def start(author, act=True):
        source = LiveSource(str(engine.socket), local=False, author=author, act=act)
        started.append(source)
        await source.start()
        await until(lambda: source.presence)
        return source

    yield start
    for source in started:
        await source.close()


async def test_two_consoles_hand_the_watch_over(engine, console, until):
    ada = await console("ada@host")
    version = ada.version
    bob = await console("bob@host")
    await until(lambda: len(ada.presence) == 2)
    assert ada.version > version and (ada.acts, bob.acts) == (True, False)
    assert [(v.author, v.acts, v.you) for v in bob.presence] == [("ada@host", True, False), ("bob@host", False, True)]
    assert "ada@host has the watch" in (await bob.command(new_command("retry"))).text
    assert await bob.take_watch() == "you have the watch, before you ada@host"
    await until(lambda: not ada.acts)
    assert bob.acts
    assert await bob.take_watch(back=True) == "the watch is free"
    assert bob.acts  # the first command would get it


async def test_a_take_over_that_came_too_late_is_an_error(engine, console, until):
    ada, bob = await console("ada@host"), await console("bob@host")
    believed = bob.presence
    async with await ControlClient.connect(engine.socket) as other:
        other.attend("cid@host")
        await other.take_watch()
        await until(lambda: not ada.acts)
        bob._follower.presence = believed
        with pytest.raises(ControlError, match="cid@host has the watch by now"):
            await bob.take_watch()


async def test_a_console_that_has_not_heard_who_looks_takes_it_from_whoever_has_it(engine, console):
    await console("ada@host")
    bob = await console("bob@host")
    bob._follower.presence = ()
    assert await bob.take_watch() == "you have the watch, before you ada@host"


async def test_one_that_only_looks_never_acts(engine, console):
    eve = await console("eve@host", act=False)
    assert not eve.acts
    with pytest.raises(ControlError, match="only looks"):
        await eve.take_watch()
    assert engine.server.watch.holder is None


async def test_a_lost_line_and_a_free_watch(engine, console, until):
    ada = await console("ada@host")
    next(iter(engine.server._connections))._writer.transport.abort()
    await until(lambda: not ada.presence)
    await until(lambda: ada.presence and ada.presence[0].acts)
    assert ada.acts and engine.view.state.watch == "ada@host"


async def test_questions_go_to_the_engine(engine, console, until):
    ada = await console("ada@host")
    answer = await ada.ask(Ask(id="1", kind="transcript", step=0, group=0, trial=0))
    assert answer.turns == [] and "captured" in answer.note
    closing = asyncio.create_task(engine.server.close())
    await until(lambda: not ada.presence)
    with pytest.raises(ControlError):
        await ada.ask(Ask(id="2", kind="transcript", step=0, group=0, trial=0))
    await closing
