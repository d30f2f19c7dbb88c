"""A runner pool that is told to stop while it starts leaves no process."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path

import psutil
import pytest

from console.trials.pool import RunnerPool


@pytest.mark.parametrize("delay", [0.0, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3])
async def test_a_start_that_is_cut_off_leaves_nothing(tmp_path: Path, delay: float) -> None:
    pool = RunnerPool(log_path=tmp_path / "runner.log", root_dir=tmp_path / "roots")
    start = asyncio.ensure_future(pool.start())
    await asyncio.sleep(delay)
    start.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await start
    await pool.close()
    left = [p.cmdline() for p in psutil.Process().children() if "console.trials.runner" in " ".join(p.cmdline())]
    assert left == []
