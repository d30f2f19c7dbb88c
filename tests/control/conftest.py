"""Fixtures around the small engine of `small_engine.py`."""

from __future__ import annotations

import asyncio
import sys
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from small_engine import SmallEngine


@pytest.fixture
def socket_dir():
    """A short private directory: a socket's path is limited to about 100 bytes."""
    with tempfile.TemporaryDirectory(prefix="qd-") as path:
        yield Path(path)


@pytest.fixture
async def engine(tmp_path: Path, socket_dir: Path) -> AsyncIterator[SmallEngine]:
    small = SmallEngine(tmp_path, socket_dir / "s.sock")
    await small.server.start()
    yield small
    await small.close()


@pytest.fixture
def new_engine(tmp_path: Path, socket_dir: Path):
    """Makes engines with options; the test closes them."""
    return lambda **options: SmallEngine(tmp_path, socket_dir / "s.sock", **options)


@pytest.fixture
def until():
    """Waits until a condition holds."""

    async def wait(condition, seconds=10):
        async with asyncio.timeout(seconds):
            while not condition():  # noqa: ASYNC110
                await asyncio.sleep(0.002)

    return wait
