"""The board when its disk takes nothing more, and after its end."""

from __future__ import annotations

import os
from typing import Any, ClassVar

import pytest

from console.engine.board import Board
from console.engine.commands import EngineCommands
from console.journal import events as ev
from console.journal.layout import JournalWriteError
from console.journal.reader import Journal


class _Nothing:
    active_groups: ClassVar[dict[int, Any]] = {}
    ending = False
    stop_after_step = False


@pytest.fixture
async def board(tmp_path):
    made = Board(tmp_path / "run", "r", tmp_path / "s" / "r.sock", EngineCommands(_Nothing()))
    await made.start()
    made.emit(ev.RunStarted(run_id="r"))
    yield made
    await made.close(None)


async def test_a_full_disk_is_told_once_each_time_and_the_end_still_comes(board, tmp_path):
    told: list[OSError] = []
    board.on_failure = told.append
    full = os.open("/dev/full", os.O_WRONLY)
    os.dup2(full, board._journal._fd)
    os.close(full)
    with pytest.raises(JournalWriteError, match="No space left"):
        board.emit(ev.Note(text="x"))
    assert len(told) == 1 and board.view.state.status == "live"
    await board.close(ev.RunFinished(status="failed", exit_code=7, reason="disk", steps=0))
    assert not board.server.path.exists()
    events = list(Journal(tmp_path / "run" / "journal").events())
    assert [type(event) for event in events] == [ev.RunStarted]


async def test_after_the_last_event_nothing_is_taken(board, tmp_path):
    await board.close(ev.RunFinished(status="finished", exit_code=0, reason="", steps=0))
    board.emit(ev.Note(text="late, from a thread that hangs"))
    events = list(Journal(tmp_path / "run" / "journal").events())
    assert [type(event) for event in events] == [ev.RunStarted, ev.RunFinished]
