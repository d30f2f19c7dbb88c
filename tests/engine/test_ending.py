"""The deadline of a run's end."""

from __future__ import annotations

import asyncio
import logging

import pytest

from console.engine import ending
from console.engine.ending import Ending


async def test_work_that_ends_in_time_is_waited_for():
    end = Ending()
    end.begin(urgent=True)
    assert await end.within(asyncio.sleep(0.01))


async def test_work_that_hangs_is_left_and_goes_on(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(ending, "URGENT_SECONDS", 0.05)
    end, hung = Ending(), asyncio.Event()
    done = asyncio.ensure_future(hung.wait())
    end.begin(urgent=True)
    assert not await end.within(done)
    assert not done.done()
    hung.set()
    assert await done


async def test_a_calm_end_becomes_urgent_and_a_hurried_one_is_over_at_once(monkeypatch: pytest.MonkeyPatch):
    end, hung = Ending(), asyncio.Event()
    end.begin(urgent=False)
    waiting = asyncio.ensure_future(end.within(hung.wait()))
    await asyncio.sleep(0.02)
    assert not waiting.done() and not end.urgent
    calm = end.left
    end.begin(urgent=True)
    assert end.urgent and end.left < calm
    end.begin(urgent=False)  # it never moves away again
    assert end.left <= ending.URGENT_SECONDS
    end.hurry()
    assert not await asyncio.wait_for(waiting, 1)


async def test_what_the_work_raises_is_logged_and_counts_as_done(caplog: pytest.LogCaptureFixture):
    async def fails() -> None:
        raise OSError("no room")

    end = Ending()
    end.begin(urgent=True)
    with caplog.at_level(logging.ERROR):
        assert await end.within(fails())
    assert "no room" in caplog.text
