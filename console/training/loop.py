"""The training thread: the official cookbook loop on a thread and an event loop of its own.

`train.main` blocks for minutes while it connects and for seconds while it prepares a batch; nothing else runs here.
The thread is a daemon: the process ends when the engine says so, whatever the loop waits for.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from typing import Any

import msgspec

from console.training.runtime import Runtime, StopAfterStepError, install

FINISH_SECONDS = 3.0

log = logging.getLogger(__name__)


class LoopResult(msgspec.Struct, kw_only=True):
    """How the loop ended: completed, stopped (between steps, on request) or failed with `error`."""

    status: str
    error: BaseException | None = None


class TrainingThread:
    """Runs `train.main(config)` once.

    Args:
        runtime: what the loop reports to; config: the cookbook's `Config`.
    """

    def __init__(self, runtime: Runtime, config: Any) -> None:
        self._runtime, self._config = runtime, config
        self._loop: asyncio.AbstractEventLoop | None = None
        self._task: asyncio.Task[None] | None = None
        self._cancelled = False
        self._thread = threading.Thread(target=self._run, name="cookbook", daemon=True)
        self._result: asyncio.Future[LoopResult] = asyncio.get_running_loop().create_future()
        self._main_loop = asyncio.get_running_loop()

    def start(self) -> asyncio.Future[LoopResult]:
        """Start the thread; the future has its result and never raises."""
        install(self._runtime)
        self._thread.start()
        return self._result

    def cancel(self) -> None:
        """Cancel `train.main` as soon as its loop is free; it may be blocked in the SDK, so nobody waits for it."""
        self._cancelled = True
        loop, task = self._loop, self._task
        if loop is not None and task is not None and not loop.is_closed():
            loop.call_soon_threadsafe(task.cancel)

    def _run(self) -> None:
        try:
            result = asyncio.run(self._main())
        except BaseException as error:
            result = LoopResult(status="failed", error=error)
        self._main_loop.call_soon_threadsafe(self._settle, result)

    def _settle(self, result: LoopResult) -> None:
        if not self._result.done():
            self._result.set_result(result)

    async def _main(self) -> LoopResult:
        from tinker_cookbook.rl import train

        from console.training.observe import observed

        self._loop = asyncio.get_running_loop()
        with observed(self._runtime):
            self._task = asyncio.ensure_future(train.main(self._config))
            if self._cancelled:  # before there was anything to cancel
                self._task.cancel()
            try:
                await self._task
                result = LoopResult(status="completed")
            except StopAfterStepError:
                await self._save_where_it_stopped()
                result = LoopResult(status="stopped")
            except (Exception, asyncio.CancelledError) as error:
                result = LoopResult(status="failed", error=error)
            await self._finish_session(result)
        return result

    async def _finish_session(self, result: LoopResult) -> None:
        """Tell the gateway that the session is over, so that it frees the slot now and not when the lease runs out."""
        service = self._runtime.service
        if service is None:
            return
        status = "success" if result.status == "completed" else "interrupted"
        try:
            async with asyncio.timeout(FINISH_SECONDS):
                await service.close(status)
        except Exception as error:  # a gateway without this route, or none any more: the lease does the same
            log.info("the gateway's session was not finished: %s", error)

    async def _save_where_it_stopped(self) -> None:
        runtime = self._runtime
        steps = runtime.finished_steps
        if runtime.checkpoints is not None and steps > 0 and runtime.last_saved != steps:
            await runtime.checkpoints.save_at(steps, "stop")
