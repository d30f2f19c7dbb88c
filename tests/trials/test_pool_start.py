"""A runner pool that is told to stop while it starts leaves no process."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path
from typing import Any

import psutil
import pytest

from console.trials.pool import RunnerPool


def runners() -> list[list[str]]:
    """Command lines of runner processes that are children of this one."""
    lines = [p.cmdline() for p in psutil.Process().children()]
    return [line for line in lines if "console.trials.runner" in " ".join(line)]


@pytest.mark.parametrize("delay", [0.0, 0.01, 0.3])
async def test_a_start_that_is_cut_off_leaves_nothing(tmp_path: Path, delay: float) -> None:
    pool = RunnerPool(log_path=tmp_path / "runner.log", root_dir=tmp_path / "roots")
    start = asyncio.ensure_future(pool.start())
    await asyncio.sleep(delay)
    start.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await start
    await pool.close()
    assert runners() == []


async def test_a_start_that_is_cut_off_right_after_the_spawn_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pool = RunnerPool(log_path=tmp_path / "runner.log", root_dir=tmp_path / "roots")
    connect = asyncio.open_connection

    async def cut_off(*args: Any, **kwargs: Any) -> Any:
        start.cancel()
        await asyncio.sleep(0.01)
        return await connect(*args, **kwargs)

    monkeypatch.setattr(asyncio, "open_connection", cut_off)
    start = asyncio.ensure_future(pool.start())
    with contextlib.suppress(asyncio.CancelledError):
        await start
    await pool.close()
    assert runners() == []
