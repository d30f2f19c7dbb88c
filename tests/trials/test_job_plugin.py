"""The watch inside a Harbor job: its gate, what it makes of Harbor's end, and that it never fails a trial."""

from __future__ import annotations

import asyncio
import socket
from types import SimpleNamespace
from typing import Any

import pytest
from harbor.registry.client.base import EmptyDatasetError
from harbor.trial.hooks import TrialEvent

from console.trials import job_plugin
from console.trials.job_plugin import Watch
from console.trials.job_plugin_gate import JobGate
from console.trials.job_plugin_main import failure


async def _turns() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_trials_pass_in_their_order_as_far_as_the_limit_allows() -> None:
    gate, passed = JobGate(), []

    async def trial(name: str) -> None:
        await gate.enter(name, further=False)
        passed.append(name)

    tasks = [asyncio.ensure_future(trial(name)) for name in "abcd"]
    await _turns()
    assert passed == [], "it is closed until it is moved"
    gate.move(2, False)
    await _turns()
    assert passed == ["a", "b"]
    gate.move(1, False)
    gate.leave("a")
    await _turns()
    assert passed == ["a", "b"] and gate.inside("b"), "those above a lower limit stay, and count"
    gate.leave("b")
    await _turns()
    assert passed == ["a", "b", "c"]
    tasks[3].cancel()
    await _turns()
    gate.move(9, False)
    await _turns()
    assert passed == ["a", "b", "c"] and not gate.inside("d")


async def test_a_trial_that_is_cancelled_as_it_passes_takes_no_room() -> None:
    gate = JobGate()
    first = asyncio.ensure_future(gate.enter("a", further=False))
    second = asyncio.ensure_future(gate.enter("b", further=False))
    await _turns()
    gate.move(1, False)
    first.cancel()  # in the same turn in which it was let in
    await asyncio.wait_for(second, 5)
    assert gate.inside("b") and not gate.inside("a")


async def test_a_further_try_passes_a_gate_that_only_lets_trials_end() -> None:
    gate = JobGate()
    gate.move(0, True)
    await asyncio.wait_for(gate.enter("again", further=True), 5)
    waits = asyncio.ensure_future(gate.enter("new", further=False))
    await _turns()
    assert not waits.done()
    waits.cancel()


def _raised(error: BaseException, behind: BaseException | None = None) -> BaseException:
    """An exception as it arrives, raised amid another one."""
    try:
        try:
            raise behind if behind is not None else RuntimeError
        except BaseException:
            raise error from None
    except BaseException as raised:
        return raised


@pytest.mark.parametrize(
    ("error", "kind", "text", "mistake"),
    [
        (FileExistsError("other config"), "FileExistsError", "other config", True),
        (_raised(SystemExit(1), ValueError("no tasks")), "ValueError", "no tasks", True),
        (_raised(SystemExit(1), _raised(SystemExit(1), EmptyDatasetError("org/set"))), "EmptyDatasetError", "", True),
        (SystemExit("bwrap is missing"), "SystemExit", "bwrap is missing", True),
        (ExceptionGroup("g", [OSError(28, "No space left")]), "OSError", "[Errno 28] No space left", False),
        (_raised(SystemExit(1), KeyboardInterrupt()), "KeyboardInterrupt", "", False),
    ],
)
def test_what_made_harbor_give_up_is_found_behind_its_exit(
    error: BaseException, kind: str, text: str, mistake: bool
) -> None:
    told = failure(error)
    assert told.kind == kind and text in told.text and told.mistake is mistake


class _Event(SimpleNamespace):
    pass


async def _watch(monkeypatch: pytest.MonkeyPatch) -> tuple[Watch, socket.socket]:
    """A watch on one end of a socket, without a job."""
    ours, theirs = socket.socketpair()
    watch = Watch(theirs.fileno())
    reader, watch._writer = await asyncio.open_connection(sock=theirs)
    watch._listening = asyncio.ensure_future(watch._listen(reader))
    watch._job = _Event(config=_Event(retry=_Event(max_retries=1, is_retryable=lambda kind: kind == "SandboxError")))  # type: ignore[assignment]
    watch._gate.move(1, False)
    monkeypatch.setattr(job_plugin, "JUDGE_SECONDS", 0.05)
    return watch, ours


def _told(name: str, *kinds: str) -> Any:
    errors = [_Event(exception_type=kind) for kind in kinds]
    return _Event(config=_Event(trial_name=name), result=_Event(recorded_exceptions=lambda: errors))


async def _lines(peer: socket.socket) -> list[str]:
    peer.setblocking(False)
    await asyncio.sleep(0.01)
    return peer.recv(65536).decode().splitlines()


async def test_whether_harbor_tries_again_is_told_as_its_queue_decides(monkeypatch: pytest.MonkeyPatch) -> None:
    watch, peer = await _watch(monkeypatch)
    both = ("KeyError", "SandboxError")
    for kinds, again in ((both[1:], "true"), (both[1:], "false"), ((), "false"), (both, "false")):
        await watch._on(TrialEvent.START, _told("t"))
        await watch._on(TrialEvent.END, _told("t", *kinds))
        assert f'"again":{again}' in (await _lines(peer))[-1]
        if again == "false":
            watch._tries.clear()
    peer.close()


async def test_a_trial_waits_for_the_word_but_not_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    watch, peer = await _watch(monkeypatch)
    monkeypatch.setattr(job_plugin, "JUDGE_SECONDS", 30.0)
    await watch._on(TrialEvent.START, _told("t"))
    ending = asyncio.ensure_future(watch._on(TrialEvent.END, _told("t")))
    await asyncio.sleep(0.05)
    assert not ending.done() and watch._gate.inside("t")
    peer.sendall(b'{"op":"judged","name":"t"}\n')
    await asyncio.wait_for(ending, 10)
    assert not watch._gate.inside("t")
    await watch._on(TrialEvent.START, _told("u"))
    ending = asyncio.ensure_future(watch._on(TrialEvent.END, _told("u")))
    await asyncio.sleep(0.05)
    peer.close()  # the engine is gone: nothing waits
    await asyncio.wait_for(ending, 10)
    monkeypatch.setattr(job_plugin, "JUDGE_SECONDS", 0.01)
    await watch._on(TrialEvent.END, _told("v", "KeyError"))


async def test_what_fails_in_the_watch_never_becomes_the_trials(monkeypatch: pytest.MonkeyPatch) -> None:
    watch, peer = await _watch(monkeypatch)
    broken = _Event(config=_Event(trial_name="t"), result=None)
    for event in TrialEvent:
        await watch._guarded(event)(broken)
    assert not watch._gate.inside("t"), "a trial whose end could not be told keeps its room"
    peer.close()
