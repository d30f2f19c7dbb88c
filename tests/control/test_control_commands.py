"""The command path: recorded before it is done, done once, answered to everybody who asks."""

import asyncio
import errno
import os

import pytest

from console.control.audit import AuditLog, read_audit
from console.control.client import ControlClient, new_command, send_command
from console.control.commands import Command
from console.control.dispatch import CommandDispatcher
from console.errors import ControlError
from console.journal import events as ev
from console.journal.reader import Journal


def journalled(engine, kind):
    return [e for e in Journal(engine.run_dir / "journal").events() if isinstance(e, kind)]


def audited(engine):
    return [(line.stage, line.id, line.status) for line in read_audit(engine.run_dir / "audit.jsonl")]


async def test_intent_is_on_disk_before_the_effect_and_the_result_after(engine):
    engine.begin()
    seen = {}

    def effect(command):
        seen["requested"] = journalled(engine, ev.CommandRequested)
        seen["accepted"] = journalled(engine, ev.CommandAccepted)
        seen["finished"] = journalled(engine, ev.CommandFinished)
        seen["audit"] = audited(engine)

    engine.handler.hook = effect
    command = new_command("cancel_group", {"group": 2}, reason="task is broken")
    async with await ControlClient.connect(engine.socket) as client:
        result = await client.command(command)
    assert (result.status, result.text) == ("done", "cancel_group done")
    (requested,) = seen["requested"]
    assert (requested.id, requested.command, requested.args) == (command.id, "cancel_group", {"group": 2})
    assert (requested.author, requested.reason) == (command.author, "task is broken")
    assert [a.effect for a in seen["accepted"]] == ["cancel_group would be done"]
    assert seen["finished"] == [] and seen["audit"] == [("intent", command.id, "")]
    (finished,) = journalled(engine, ev.CommandFinished)
    assert (finished.status, finished.result) == ("done", "cancel_group done")
    assert audited(engine)[1:] == [("result", command.id, "done")]
    assert f"pid {os.getpid()} uid {os.getuid()}" == read_audit(engine.run_dir / "audit.jsonl")[0].peer
    assert engine.view.state.commands[command.id].status == "done"


async def test_an_effect_that_raises_is_recorded_too(engine):
    def effect(command):
        raise RuntimeError("no such\x1b[31m sandbox")

    engine.handler.hook = effect
    result = await engine.dispatcher.submit(new_command("stop_now"))
    assert result.status == "refused" and "no such sandbox" in result.text
    kinds = [type(e).__name__ for e in Journal(engine.run_dir / "journal").events()]
    assert kinds == ["CommandRequested", "CommandAccepted", "CommandFinished"]
    assert [stage for stage, _, _ in audited(engine)] == ["intent", "result"]


async def test_what_cannot_be_recorded_is_not_done(engine, monkeypatch):
    def full(command, peer=""):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(engine.audit, "intent", full)
    result = await engine.dispatcher.submit(new_command("stop_now"))
    assert result.status == "refused" and "nothing was done" in result.text
    assert engine.handler.done == []
    monkeypatch.undo()
    engine.writer.close()
    result = await engine.dispatcher.submit(new_command("stop_now"))
    assert result.status == "refused" and engine.handler.done == []


async def test_the_same_id_is_done_once_for_all_who_send_it(engine, until):
    gate = asyncio.Event()
    engine.handler.hook = lambda command: gate.wait()
    command = new_command("retry")
    async with await ControlClient.connect(engine.socket) as a, await ControlClient.connect(engine.socket) as b:
        tasks = [asyncio.create_task(c.command(command)) for c in (a, b, a)]
        await until(lambda: engine.handler.done)
        gate.set()
        first, *others = await asyncio.gather(*tasks)
        assert others == [first, first] and first.status == "done"
    assert await asyncio.to_thread(send_command, engine.socket, command) == first
    assert len(engine.handler.done) == 1 and len(journalled(engine, ev.CommandRequested)) == 1
    other = Command(id=command.id, command="stop_now")
    assert "used for another command" in (await engine.dispatcher.submit(other)).text


async def test_a_command_goes_on_when_its_sender_is_gone(engine, until):
    gate = asyncio.Event()
    engine.handler.hook = lambda command: gate.wait()
    command = new_command("stop_after_step")
    async with await ControlClient.connect(engine.socket) as client:
        sending = asyncio.create_task(client.command(command))
        await until(lambda: engine.handler.done)
        sending.cancel()
    waiting = asyncio.create_task(engine.dispatcher.submit(command))
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    gate.set()
    assert (await engine.dispatcher.submit(command)).status == "done"
    assert len(engine.handler.done) == 1


async def test_dry_run_leaves_no_trace(engine):
    result = await engine.dispatcher.submit(new_command("cancel_group", {"group": 1}, dry_run=True))
    assert (result.status, result.text) == ("dry_run", "cancel_group would be done")
    result = await engine.dispatcher.submit(new_command("cancel_group", {"group": 9}, dry_run=True))
    assert (result.status, result.text) == ("refused", "there is no group g10")
    assert engine.handler.done == [] and engine.writer.last_seq == 0 and audited(engine) == []


async def test_a_refusal_by_the_engine_is_recorded(engine):
    command = new_command("cancel_group", {"group": 9})
    assert (await engine.dispatcher.submit(command)).text == "there is no group g10"
    assert engine.handler.done == [] and journalled(engine, ev.CommandAccepted) == []
    assert [e.status for e in journalled(engine, ev.CommandFinished)] == ["refused"]
    assert audited(engine) == [("intent", command.id, ""), ("result", command.id, "refused")]


@pytest.mark.parametrize(
    ("name", "args", "why"),
    [
        ("format_disk", {}, "unknown command"),
        ("cancel_group", {}, "needs a target"),
        ("cancel_trial", {"group": 1}, "needs a trial: g2/t1"),
        ("cancel_group", {"group": 1, "trial": 2}, "does not take 'trial'"),
        ("retry", {"trial": 1}, "needs its group"),
        ("cancel_group", {"group": -1}, "index from 0"),
        ("cancel_group", {"group": 1.5}, "index from 0"),
        ("cancel_group", {"group": True}, "index from 0"),
        ("cancel_group", {"group": None}, "index from 0"),
        ("cancel_group", {"group": 1, "step": -1}, "step must be a whole number from 0"),
        ("retry", {"step": True}, "step must be a whole number from 0"),
        ("cancel_trial", {"group": 1, "trial": 0, "step": "4"}, "step must be a whole number from 0"),
        ("stop_now", {"force": 1}, "does not take 'force'"),
        ("stop_after_step", {"on": "no"}, "true or false"),
        ("retry", {"on": True}, "does not take 'on'"),
    ],
)
async def test_a_malformed_command_is_refused_at_the_door(engine, name, args, why):
    result = await asyncio.to_thread(send_command, engine.socket, new_command(name, args))
    assert result.status == "refused" and why in result.text
    assert engine.handler.done == [] and engine.writer.last_seq == 0
    result = await engine.dispatcher.submit(Command(id="\x07" * 3, command="stop_now"))
    assert result.status == "refused" and "id" in result.text


async def test_author_and_reason_are_bounded_and_clean(engine):
    dirty = "\x1b]0;evil\x07ada\u202e\n" + "x" * 10_000
    await engine.dispatcher.submit(Command(id="1", command="retry", author=dirty, reason=dirty))
    (event,) = journalled(engine, ev.CommandRequested)
    for text, limit in ((event.author, 120), (event.reason, 500)):
        assert text.startswith("ada ") and len(text) <= limit and text.isprintable()


async def test_commands_under_way_when_the_engine_ends_are_closed_in_the_record(engine, until):
    engine.handler.hook = lambda command: asyncio.Event().wait()
    task = asyncio.create_task(engine.dispatcher.submit(new_command("retry")))
    await until(lambda: engine.handler.done)
    await engine.dispatcher.close()
    assert (await task).text == "the engine ended first"
    assert [e.status for e in journalled(engine, ev.CommandFinished)] == ["refused"]


def test_a_torn_audit_line_costs_only_itself(tmp_path):
    path = tmp_path / "audit.jsonl"
    log = AuditLog(path)
    log.intent(new_command("retry"))
    log.intent(new_command("retry"))
    log.close()
    path.write_bytes(path.read_bytes()[:-20])
    log = AuditLog(path)
    log.intent(new_command("stop_now"))
    log.close()
    assert [line.command for line in read_audit(path)] == ["retry", "stop_now"]


async def test_no_answer_is_one_line_that_says_so(engine):
    engine.handler.hook = lambda command: asyncio.Event().wait()
    with pytest.raises(ControlError, match="run s did not answer retry within"):
        async with await ControlClient.connect(engine.socket) as client:
            await client.command(new_command("retry"), timeout=0.05)
    with pytest.raises(ControlError, match=r"gave no answer within 0\.05 s"):
        await asyncio.to_thread(send_command, engine.socket, new_command("stop_after_step"), 0.05)


async def test_the_dispatcher_forgets_old_results_only(engine, monkeypatch):
    monkeypatch.setattr("console.control.dispatch.RESULTS_KEPT", 5)
    events = []
    dispatcher = CommandDispatcher(events.append, engine.audit, engine.handler)
    for number in range(20):
        await dispatcher.submit(Command(id=str(number), command="retry"))
    assert list(dispatcher._tasks) == [str(n) for n in range(15, 20)]
