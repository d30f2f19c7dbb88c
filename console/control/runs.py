"""Runs as `runs`, `attach` and `ctl` see them: found by id, name or directory, judged live or not, and followed."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator
from contextlib import aclosing
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from console.control.client import greet, read_view
from console.control.follow import Item, LinkDown, RunFollower
from console.control.registry import RunEntry, engine_alive, entries
from console.errors import ControlError, RecordingError, UsageError
from console.journal.reader import Journal
from console.records.run_dir import RunRecord
from console.state.benchmark import infra_excluded
from console.state.reduce import RunView, apply
from console.state.words import BENCHMARK, DAMAGED

POLL_SECONDS = 0.25
LINK_ATTEMPTS = 3
_ENDED = ("finished", "stopped", "failed")


class RunInfo(msgspec.Struct, kw_only=True):
    """A run.

    Attributes:
        state: live, finished, stopped, failed, dead (its engine is gone without a word), damaged (its engine is gone,
            and the end of its journal cannot be read), or gone (its directory is).
        step: the step under way or the last one begun; steps: planned; steps_done: trained; each None while unknown.
        started, heard: Unix seconds of the start and of the last event; entry: what the process check needs.
        reward: mean of the last finished step, of a benchmark its pass rate, infra-excluded; alarms: open ones that
            nobody has acknowledged or shelved.
        kind: training or benchmark; trials, trials_done: of a benchmark's job.
    """

    run_id: str
    run_dir: str
    name: str = ""
    state: str = "dead"
    step: int | None = None
    steps: int | None = None
    steps_done: int | None = None
    started: float | None = None
    pid: int | None = None
    socket: str | None = None
    exit_code: int | None = None
    reason: str = ""
    heard: float | None = None
    reward: float | None = None
    alarms: int = 0
    kind: str = "training"
    trials: int | None = None
    trials_done: int | None = None
    entry: RunEntry

    def alive(self) -> bool:
        """Whether the engine runs now."""
        return engine_alive(self.entry)


def list_runs(*, missing: bool = False) -> list[RunInfo]:
    """The registered runs, newest first; with `missing` also those whose directory is gone."""
    newest = {entry.run_dir: entry for entry in entries()}  # a directory that was used again is the later run's
    found = [info_of(entry) for entry in reversed(newest.values())]
    return [run for run in found if missing or run.state != "gone"]


def info_of(entry: RunEntry, view: RunView | None = None) -> RunInfo:
    """Judge a run by the end of its journal (`view`, when it was read already) and by its engine's process."""
    info = RunInfo(
        run_id=entry.run_id, run_dir=entry.run_dir, name=entry.name, started=entry.started or None,
        pid=entry.pid or None, socket=entry.socket, entry=entry,
    )  # fmt: skip
    try:
        view = view or RunRecord(entry.run_dir).view_at_end()
    except RecordingError:
        if not Path(entry.run_dir).is_dir():
            info.state = "gone"
            return info
    if view is not None and view.state.run_id == entry.run_id:
        state = view.state
        info.step, info.steps, info.steps_done = state.step, state.steps_planned, state.steps_done
        info.started, info.heard = state.started or info.started, state.ts or None
        info.kind = state.kind
        if state.kind == BENCHMARK:
            info.trials, info.trials_done = state.bench.trials or None, state.bench.done
        rows = view.history.rows
        info.reward = rows[-1].reward_mean if rows else None
        if state.kind == BENCHMARK:
            info.reward = infra_excluded(state).value
        info.alarms = sum(alarm.open and alarm.asks(state.ts) for alarm in state.alarms.values())
        if state.status in _ENDED and state.pid == entry.pid:
            info.state, info.exit_code, info.reason = state.status, state.exit_code, state.reason
            return info
    info.state = "live" if engine_alive(entry) else DAMAGED if _end_lost(entry.run_dir) else "dead"
    return info


def _end_lost(run_dir: str) -> bool:
    try:
        return Journal(Path(run_dir) / "journal").end_lost
    except RecordingError:
        return False


def run_at(path: Path) -> RunInfo:
    """The run of a directory, registered or not. Raises `RecordingError` when it is none."""
    record = RunRecord(path)
    directory = str(record.path.absolute())
    view = record.view_at_end()
    state = view.state
    for entry in reversed(entries()):
        if entry.run_id == state.run_id and _same(entry.run_dir, directory):
            return info_of(entry, view)
    entry = RunEntry(
        run_id=state.run_id, run_dir=directory, name=state.name, pid=state.pid, socket=state.socket,
        started=state.started,
    )  # fmt: skip
    return info_of(entry, view)


def find_run(query: str | None = None) -> RunInfo:
    """The run that is meant: by id, name, beginning of the id, or directory; without a query the only live run.

    Raises:
        UsageError: none or several fit; the message lists the candidates.
        RecordingError: the query is a directory without a readable run.
    """
    if query is None or query == "":
        return _only_live()
    if os.sep not in query and query not in (".", ".."):
        known = entries()
        for fits in (
            [e for e in known if e.run_id == query],
            [e for e in known if e.name == query],
            [e for e in known if e.run_id.startswith(query)],
        ):
            if fits:
                return _choose(query, [info_of(e) for e in reversed(fits)])
    path = Path(query).expanduser()
    if path.is_dir():
        return run_at(path)
    raise UsageError(f"no run {query!r}: `quarterdeck runs` lists the known ones, or name a run directory")


def load_view(run: RunInfo) -> RunView:
    """The run's state now: from its engine when it answers, else from its journal.

    Raises:
        RecordingError: there is no readable journal.
    """
    if run.state == "live" and run.socket is not None:
        try:
            return read_view(run.socket, run=run.run_id)
        except ControlError:
            pass
    return RunRecord(run.run_dir).view_at_end()


async def run_items(run: RunInfo) -> AsyncGenerator[Item, None]:
    """The run's stream to its end: over the socket while the engine answers, from the files otherwise and at the end.

    The first item that matters is a `RunView`; events follow it without a hole or a repetition. Ends when the journal
    has its last event, or when no engine is left to write one.

    Raises:
        RecordingError: the journal cannot be read and no engine answers.
    """
    cursor: int | None = None
    if run.socket is not None and await asyncio.to_thread(run.alive):
        follower = RunFollower(run.socket, run=run.run_id, alive=run.alive)
        down = 0
        async with aclosing(follower.items()) as items:
            async for item in items:
                yield item
                cursor = follower.cursor
                down = down + 1 if isinstance(item, LinkDown) else 0
                if down == LINK_ATTEMPTS:
                    break  # an engine that lives and does not answer: its files will do
    async for item in _file_items(run, cursor):
        yield item


def run_behind(socket: Path) -> RunInfo | None:
    """The registered run whose engine answers on a socket; None for one of elsewhere, as a forwarded one is.

    Raises:
        ControlError: nobody answers there.
    """
    hello = greet(socket, timeout=5.0)
    here = [e for e in entries() if e.run_id == hello.run_id and e.socket is not None and _same(e.socket, str(socket))]
    return info_of(here[-1]) if here else None


async def socket_items(socket: Path) -> AsyncGenerator[Item, None]:
    """A run's stream as `run_items` has it, of an engine of which nothing is known but a socket.

    Ends with the run, or when the socket is gone; until then a lost line is waited for.
    """
    follower = RunFollower(socket, alive=socket.exists)
    async with aclosing(follower.items()) as items:
        async for item in items:
            yield item


async def _file_items(run: RunInfo, cursor: int | None) -> AsyncGenerator[Item, None]:
    record = await asyncio.to_thread(RunRecord, run.run_dir)
    if cursor is None:
        view = await asyncio.to_thread(record.view_at_end)
        yield view
    else:
        view = await asyncio.to_thread(record.view_at, cursor)
    if not isinstance(record.journal, Journal):  # a log that nobody writes any more
        return
    follower = record.journal.follow(view.state.seq)
    while True:
        alive = await asyncio.to_thread(run.alive)  # before the poll: what a dying engine wrote last is read
        for _, event in await asyncio.to_thread(follower.poll):
            apply(view, event)
            yield event
        if view.state.status in _ENDED or not alive:
            return
        await asyncio.sleep(POLL_SECONDS)


def _only_live() -> RunInfo:
    runs = list_runs()
    live = [run for run in runs if run.state == "live"]
    if len(live) == 1:
        return live[0]
    if not live:
        last = f"; the last one was {runs[0].run_id} ({runs[0].state})" if runs else ""
        raise UsageError(f"no run is live{last}: name a run or its directory, or start one with `quarterdeck demo`")
    raise UsageError(f"{len(live)} runs are live, name one: {_listed(live)}")


def _choose(query: str, fits: list[RunInfo]) -> RunInfo:
    present = [run for run in fits if run.state != "gone"] or fits
    live = [run for run in present if run.state == "live"]
    for candidates in (live, present):
        if len(candidates) == 1:
            return candidates[0]
    raise UsageError(f"{query!r} means {len(present)} runs, name one by its id: {_listed(live or present)}")


def _listed(runs: list[RunInfo]) -> str:
    def one(run: RunInfo) -> str:
        when = datetime.fromtimestamp(run.started, UTC).strftime(", started %Y-%m-%d %H:%MZ") if run.started else ""
        name = f" ({run.name}{when})" if run.name else (f" ({when[2:]})" if when else "")
        return f"{run.run_id}{name}"

    more = f" and {len(runs) - 5} more" if len(runs) > 5 else ""
    return ", ".join(one(run) for run in runs[:5]) + more


def _same(left: str, right: str) -> bool:
    try:
        return os.path.samefile(left, right)
    except OSError:
        return left == right
