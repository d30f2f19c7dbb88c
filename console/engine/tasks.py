"""Background tasks that are kept, logged when they fail, and ended in a bounded time."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any

log = logging.getLogger(__name__)


def spawn(coroutine: Coroutine[Any, Any, Any], tasks: set[asyncio.Task[Any]]) -> asyncio.Task[Any]:
    """Start a task; it stays in `tasks` until it ends."""
    task = asyncio.ensure_future(coroutine)
    tasks.add(task)
    task.add_done_callback(tasks.discard)
    task.add_done_callback(_log_failure)
    return task


async def settle(tasks: set[asyncio.Task[Any]], seconds: float) -> None:
    """Cancel tasks and wait for them, at most so many seconds."""
    waiting = [task for task in tasks if task is not asyncio.current_task()]
    for task in waiting:
        task.cancel()
    if waiting:
        _, pending = await asyncio.wait(waiting, timeout=seconds)
        for task in pending:
            log.error("still running at the end: %s", task)


def _log_failure(task: asyncio.Task[Any]) -> None:
    if not task.cancelled() and task.exception() is not None:
        log.error("a background task failed", exc_info=task.exception())
