"""One thread in which prompts are rendered and samples parsed, for all trials.

Rendering a long prompt takes a tenth of a second and more; on the event loop every other request would wait for it. One
thread, because renderers and tokenizers are not made for two, and a second one gains nothing under the interpreter's
lock. Trials take turns: one that sends much waits for itself.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import OrderedDict, deque
from collections.abc import Callable, Hashable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from console.capture.refusals import RefusedError

RETRY_AFTER = 2.0


class Overloaded(RefusedError):
    """The gateway as a whole has too much to do; the trial that is told so is not to blame."""

    def __init__(self) -> None:
        super().__init__("busy", "the capture gateway is overloaded; try again", retry_after=RETRY_AFTER)


class _Job:
    def __init__(self, work: Callable[[], Any], future: asyncio.Future[Any]) -> None:
        self.work, self.future = work, future


class Workers:
    """Runs functions in the thread, one at a time. Belongs to one event loop.

    Args:
        waiting: jobs that may wait altogether; waiting_each: of one trial.
    """

    def __init__(self, *, waiting: int = 512, waiting_each: int = 32) -> None:
        self._waiting, self._waiting_each = waiting, waiting_each
        self._queues: OrderedDict[Hashable, deque[_Job]] = OrderedDict()
        self._queued = 0
        self._busy = False
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="capture-render")

    @property
    def queued(self) -> int:
        """Jobs that wait."""
        return self._queued

    async def run[**P, R](self, trial: Hashable, work: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        """`work(*args, **kwargs)`, in the thread, when it is this trial's turn.

        A job whose caller is cancelled is taken out of the queue; one that runs already runs to its end.

        Raises:
            Overloaded: too many jobs wait; RefusedError: too many of this trial (kind busy); and what `work` raises.
        """
        queue = self._queues.get(trial)
        if queue is not None and len(queue) >= self._waiting_each:
            raise RefusedError("busy", "too many requests of this trial wait", retry_after=RETRY_AFTER)
        if self._queued >= self._waiting:
            raise Overloaded
        job = _Job(lambda: work(*args, **kwargs), asyncio.get_running_loop().create_future())
        self._queues.setdefault(trial, deque()).append(job)
        result: R = await self._result(trial, job)
        return result

    async def finish[**P, R](self, trial: Hashable, work: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        """As `run`, before all that waits, and never refused: for samples, which have been paid for."""
        job = _Job(lambda: work(*args, **kwargs), asyncio.get_running_loop().create_future())
        self._queues.setdefault(trial, deque()).appendleft(job)
        self._queues.move_to_end(trial, last=False)
        result: R = await self._result(trial, job)
        return result

    async def _result(self, trial: Hashable, job: _Job) -> Any:
        self._queued += 1
        self._next()
        try:
            return await job.future
        except asyncio.CancelledError:
            self._forget(trial, job)
            raise

    def close(self) -> None:
        """Take nothing more up; what waits is cancelled."""
        for queue in self._queues.values():
            for job in queue:
                job.future.cancel()
        self._queues.clear()
        self._queued = 0
        self._thread.shutdown(wait=False, cancel_futures=True)

    def _next(self) -> None:
        if self._busy or not self._queues:
            return
        trial, queue = self._queues.popitem(last=False)
        job = queue.popleft()
        if queue:
            self._queues[trial] = queue  # behind the others
        self._queued -= 1
        self._busy = True
        running = asyncio.wrap_future(self._thread.submit(job.work))
        running.add_done_callback(lambda done: self._done(job, done))

    def _done(self, job: _Job, done: asyncio.Future[Any]) -> None:
        self._busy = False
        error = None if done.cancelled() else done.exception()
        if not job.future.done():
            if done.cancelled():
                job.future.cancel()
            elif error is not None:
                job.future.set_exception(error)
            else:
                job.future.set_result(done.result())
        self._next()

    def _forget(self, trial: Hashable, job: _Job) -> None:
        queue = self._queues.get(trial)
        if queue is None:
            return
        with contextlib.suppress(ValueError):
            queue.remove(job)
            self._queued -= 1
        if not queue:
            del self._queues[trial]
