"""The watch: who attends, who may act, and how that passes on."""

import asyncio
import errno
import json
import os
from contextlib import aclosing

import pytest

from console.control import connection, follow, server
from console.control import watch as watch_module
from console.control.audit import AuditLog, read_audit
from console.control.blocking import read_viewers, send_command
from console.control.client import ControlClient, new_command
from console.control.follow import RunFollower
from console.control.messages import Ask
from console.errors import ControlError
from console.journal.reader import Journal
from console.state.reduce import fold


def passed(engine):
    """The passings of the watch as they lie in the journal: (by, previous)."""
    engine.writer.sync()
    found = []
    for path in sorted((engine.run_dir / "journal").glob("[0-9]*.jsonl")):
        events = [json.loads(line) for line in path.read_bytes().splitlines()]
        found += [(e.get("by", ""), e.get("previous", "")) for e in events if e["type"] == "watch.taken"]
    return found


def audited(engine):
    return [line.text for line in read_audit(engine.run_dir / "audit.jsonl") if line.stage == "watch"]


@pytest.fixture
async def come(engine, until):
    """Opens connections that attend."""
    opened = []

    async def one(author, act=True):
        client = await ControlClient.connect(engine.socket)
        opened.append(client)
        client.attend(author, act)
        await until(lambda: client.presence)
        return client

    yield one
    for client in opened:
        await client.close()


def names(client):
    return [(v.author, v.acts, v.you) for v in client.presence]


async def test_the_first_that_wants_it_gets_it_and_all_are_told(engine, come, until):
    looker = await come("eve@host", act=False)
    assert names(looker) == [("eve@host", False, True)]
    ada = await come("ada@host")
    bob = await come("bob@host")
    wanted = [("eve@host", False), ("ada@host", True), ("bob@host", False)]
    for client, you in ((looker, 0), (ada, 1), (bob, 2)):
        await until(lambda client=client: len(client.presence) == 3)
        assert names(client) == [(*who, index == you) for index, who in enumerate(wanted)]
    assert all(v.since > 1.6e9 for v in ada.presence)
    assert passed(engine) == [("ada@host", "")] and audited(engine) == ["nobody -> ada@host"]
    assert engine.view.state.watch == "ada@host"
    assert fold(Journal(engine.run_dir / "journal").events()).state.watch == "ada@host"


async def test_without_the_watch_a_viewer_may_only_try_dry(engine, come):
    ada, bob, eve = await come("ada@host"), await come("bob@host"), await come("eve@host", act=False)
    refused = await bob.command(new_command("retry"))
    assert (refused.status, refused.text) == ("refused", "ada@host has the watch: take it over first")
    refused = await eve.command(new_command("retry"))
    assert refused.status == "refused" and "only looks" in refused.text
    assert engine.handler.done == []
    assert (await bob.command(new_command("retry", dry_run=True))).status == "dry_run"
    assert (await ada.command(new_command("retry"))).status == "done"
    script = await asyncio.to_thread(send_command, engine.socket, new_command("retry", reason="nightly"))
    assert script.status == "done" and len(engine.handler.done) == 2


async def test_it_passes_by_an_explicit_take_over(engine, come, until):
    ada, bob = await come("ada@host"), await come("bob@host")
    result = await bob.take_watch(from_="ada@host")
    assert (result.status, result.text) == ("done", "you have the watch, before you ada@host")
    assert names(bob) == [("ada@host", False, False), ("bob@host", True, True)]
    await until(lambda: names(ada)[0] == ("ada@host", False, True))
    assert (await ada.command(new_command("retry"))).text.startswith("bob@host has the watch")
    assert passed(engine) == [("ada@host", ""), ("bob@host", "ada@host")]
    assert audited(engine)[-1] == "ada@host -> bob@host" and engine.view.state.watch == "bob@host"
    assert (await bob.take_watch()).text == "you have the watch already" and len(passed(engine)) == 2


async def test_a_take_over_from_somebody_who_no_longer_has_it_is_refused(engine, come):
    ada, bob, cid = await come("ada@host"), await come("bob@host"), await come("cid@host")
    assert (await bob.take_watch(from_="ada@host")).status == "done"
    late = await cid.take_watch(from_="ada@host")
    assert (late.status, late.text) == ("refused", "bob@host has the watch by now: look, then ask again")
    assert (await cid.take_watch(from_="")).status == "refused"
    await bob.take_watch(back=True)
    assert "nobody has the watch by now" in (await cid.take_watch(from_="bob@host")).text
    assert (await ada.take_watch(from_="")).status == "done"
    assert (await cid.take_watch()).status == "done"


async def test_given_back_it_is_free_and_nobody_inherits_it(engine, come, until):
    ada, bob = await come("ada@host"), await come("bob@host")
    assert (await bob.take_watch(back=True)).text == "you do not have the watch"
    assert (await ada.take_watch(back=True)).text == "the watch is free"
    await until(lambda: not any(v.acts for v in bob.presence))
    assert engine.view.state.watch == "" and passed(engine)[-1] == ("", "ada@host")
    # the first viewer that sends a command gets it
    assert (await bob.command(new_command("retry"))).status == "done"
    assert engine.view.state.watch == "bob@host"
    assert (await ada.command(new_command("retry"))).status == "refused"


async def test_a_connection_that_ends_gives_it_back(engine, come, until):
    ada, bob = await come("ada@host"), await come("bob@host")
    await ada.close()
    await until(lambda: len(bob.presence) == 1)
    assert names(bob) == [("bob@host", False, True)]
    assert passed(engine) == [("ada@host", ""), ("", "ada@host")] and audited(engine)[-1] == "ada@host -> nobody"


async def test_a_viewer_that_hangs_on_can_be_relieved(engine, come, until):
    """A half-dead line: its connection is open and silent."""
    ada = await come("ada@host")
    ada._reader._transport.pause_reading()
    back = await come("ada@host")
    assert (await back.command(new_command("retry"))).text == "ada@host has the watch: take it over first"
    assert (await back.take_watch(from_="ada@host")).status == "done"
    assert (await back.command(new_command("retry"))).status == "done"


async def test_what_cannot_be_recorded_does_not_pass(engine, come, monkeypatch):
    ada, bob = await come("ada@host"), await come("bob@host")

    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    for target, name in ((engine.audit, "watch"), (engine.server.watch, "_append")):
        monkeypatch.setattr(target, name, full)
        assert (await bob.take_watch()).status == "refused"
        assert (await ada.take_watch(back=True)).status == "refused"
        assert engine.server.watch.holder.author == "ada@host" and names(bob)[0] == ("ada@host", True, False)
        monkeypatch.undo()
    assert passed(engine) == [("ada@host", "")]


async def test_the_record_comes_before_the_effect(engine, come, monkeypatch):
    seen = []
    append = engine.server.watch._append
    monkeypatch.setattr(
        engine.server.watch, "_append", lambda event: (seen.append(engine.server.watch.holder), append(event))
    )
    await come("ada@host")
    assert seen == [None] and engine.server.watch.holder is not None


async def test_names_are_clean_and_short(engine, come):
    ada = await come("\x1b]0;evil\x07ada\u202e@" + "h" * 500)
    (viewer,) = ada.presence
    assert viewer.author.startswith("ada@hhh") and len(viewer.author) == 120
    assert [v.author for v in (await come(" \x07 ")).presence][-1] == "somebody"


async def test_a_known_command_is_answered_whoever_has_the_watch(engine, come):
    """Its sender lost the line before the answer came, and somebody else took over."""
    ada, bob = await come("ada@host"), await come("bob@host")
    command = new_command("retry")
    await ada.command(command)
    await bob.take_watch()
    assert (await ada.command(command)).status == "done" and len(engine.handler.done) == 1


async def test_the_authors_name_stands_in_for_a_missing_one(engine, come):
    ada = await come("ada@host")
    command = new_command("retry")
    command.author = ""
    await ada.command(command)
    assert engine.handler.done[0].author == "ada@host"


async def test_who_attends_can_be_asked_without_attending(engine, come):
    await come("ada@host")
    viewers = await asyncio.to_thread(read_viewers, engine.socket)
    assert [(v.author, v.acts, v.you) for v in viewers] == [("ada@host", True, False)]
    refused = await (await ControlClient.connect(engine.socket)).take_watch()
    assert refused.status == "refused" and "attends" in refused.text


async def test_attending_twice_or_in_crowds_is_refused(engine, come, monkeypatch, until):
    monkeypatch.setattr(watch_module, "VIEWERS_AT_MOST", 2)
    ada, _ = await come("ada@host"), await come("bob@host")
    third = await ControlClient.connect(engine.socket)
    third.attend("cid@host")
    await until(lambda: third.closed)
    assert "too many viewers" in third.closed
    ada.attend("ada@host")
    await until(lambda: ada.closed)
    assert "attended twice" in ada.closed
    await until(lambda: len(engine.server.watch.viewers) == 1)
    assert engine.server.watch.holder is None


async def test_a_viewer_too_slow_to_read_is_dropped_and_frees_the_watch(engine, come, monkeypatch, until):
    monkeypatch.setattr(connection, "BUFFER_LIMIT", 20_000)
    ada = await come("ada@host")
    ada._reader._transport.pause_reading()
    sock = next(iter(engine.server._connections))._writer.get_extra_info("socket")
    sock.setsockopt(1, 7, 4096)  # SO_SNDBUF
    for number in range(2000):
        engine.server._tell_presence()
        if not engine.server.watch.viewers:
            break
        if number % 20 == 0:
            await asyncio.sleep(0)
    await until(lambda: not engine.server.watch.viewers)
    assert engine.server.watch.holder is None and passed(engine)[-1] == ("", "ada@host")


async def test_the_end_of_the_engine_is_no_hand_over(engine, come):
    await come("ada@host")
    await engine.server.close()
    assert passed(engine) == [("ada@host", "")]


async def test_a_closed_audit_file_writes_into_no_other(tmp_path):
    audit = AuditLog(tmp_path / "audit.jsonl")
    audit.close()
    other = os.open(tmp_path / "other", os.O_RDWR | os.O_CREAT)
    with pytest.raises(OSError, match="Bad file descriptor"):
        audit.watch("ada", "")
    assert os.fstat(other).st_size == 0
    os.close(other)
    audit.close()


async def test_a_follower_attends_again_and_gets_a_free_watch_back(new_engine, until, monkeypatch):
    monkeypatch.setattr(follow, "FIRST_DELAY", 0.01)
    monkeypatch.setattr(server, "CLOSING_SECONDS", 0.1)
    engine = new_engine()
    await engine.server.start()
    engine.begin()
    follower = RunFollower(engine.socket, author="ada@host")
    told = []
    follower.on_presence = told.append

    async def run():
        async with aclosing(follower.items()) as items:
            async for _ in items:
                pass

    task = asyncio.create_task(run())
    try:
        await until(lambda: follower.presence)
        answer = await follower.ask(Ask(id="1", kind="log", step=0, group=0, trial=0))
        assert answer.lines == [] and answer.note
        next(iter(engine.server._connections))._writer.transport.abort()
        await until(lambda: told[-1] == ())
        await until(lambda: follower.presence and follower.presence[0].acts)
        assert passed(engine) == [("ada@host", ""), ("", "ada@host"), ("ada@host", "")]
        assert (await follower.take_watch(back=True)).status == "done"
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    with pytest.raises(ControlError, match="no connection"):
        await follower.take_watch()
    await engine.close()
