"""The training thread: the official cookbook loop on a thread and an event loop of its own.

`train.main` blocks for minutes while it connects and for seconds while it prepares a batch; nothing else runs here.
The thread is a daemon: the process ends when the engine says so, whatever the loop waits for.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from typing import Any

import msgspec

from console.errors import QuarterdeckError
from console.training.checkpoints import Saved
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

    def checkpoint_plan(self) -> tuple[bool, str]:
        """Whether a checkpoint can be saved, and when it would be, or why not. Called on the main loop."""
        runtime = self._runtime
        if self._loop is None or runtime.checkpoints is None:
            return False, "there are no weights to save yet: the run is still connecting"
        if runtime.stage == "training":
            return True, f"saves the weights when step {runtime.step} is trained"
        if runtime.stage == "connecting":
            return True, "saves the weights when the rollout begins"
        if runtime.last_saved == runtime.steps_done:
            return True, f"saves nothing: checkpoint {runtime.last_saved_name} has these weights already"
        return True, f"saves the weights of {runtime.steps_done} steps at once; trials go on meanwhile"

    async def checkpoint(self) -> Saved:
        """Have a checkpoint saved, at once or when the step has ended; called on the main loop.

        Raises:
            QuarterdeckError: it was not saved, or the loop has ended.
        """
        if self._loop is None or self._runtime.checkpoints is None:
            raise QuarterdeckError("there are no weights to save yet: the run is still connecting")
        save = self._runtime.saves.save()
        try:
            saved = asyncio.run_coroutine_threadsafe(save, self._loop)
        except RuntimeError:  # the loop is closed
            save.close()
            raise QuarterdeckError("the training loop has ended") from None
        return await asyncio.wrap_future(saved)

    def _run(self) -> None:
        try:
            result = asyncio.run(self._main())
        except BaseException as error:
            result = LoopResult(status="failed", error=error)
        with contextlib.suppress(RuntimeError):  # the engine waited no longer, its loop is closed
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
                await self._runtime.saves.settle()
                await self._save_final()
                result = LoopResult(status="completed")
            except StopAfterStepError:
                await self._runtime.saves.settle()
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

    async def _save_final(self) -> None:
        """The cookbook saves no last checkpoint, which never expires, when a run goes on behind its last step."""
        runtime = self._runtime
        if runtime.checkpoints is not None and runtime.finished_steps == 0 and runtime.owes_final:
            await runtime.checkpoints.save_final_async({"batch": runtime.steps_done})

    async def _save_where_it_stopped(self) -> None:
        runtime = self._runtime
        steps = runtime.finished_steps
        if runtime.checkpoints is not None and steps > 0 and runtime.last_saved != steps:
            await runtime.checkpoints.save_at(steps, "stop")
