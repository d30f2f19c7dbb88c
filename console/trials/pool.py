"""The engine's side of the runner processes: hands out trials and replaces the runners that died or cannot go on."""

from __future__ import annotations

import asyncio
from pathlib import Path

from console.trials.orphans import settle_local
from console.trials.protocol import StartTrial, TrialReport
from console.trials.runner_process import SETTLE_LIMIT, OnProgress, RunnerProcess, RunnerStartError


class RunnerPool:
    """A fixed number of runner processes."""

    def __init__(
        self,
        runners: int = 1,
        log_path: Path = Path("runner.log"),
        root_dir: Path | None = None,
        ledger: Path | None = None,
        rss_limit_mb: float = 1500,
        stop_limit: float = 20.0,
    ) -> None:
        """
        Args:
            runners: how many processes; each runs any number of trials.
            log_path: where their output is appended.
            root_dir: parent of the bubblewrap sandboxes' roots, made when absent; must be this pool's own.
            ledger: the sandbox ledger that the runners keep, None for none.
            rss_limit_mb: a runner larger than this is replaced by `recycle`.
            stop_limit: seconds for a cancelled trial or a closed runner to end before it is ended by force.
        """
        self._log_path, self._root_dir, self._ledger = log_path, root_dir, ledger
        self._rss_limit_mb, self._stop_limit = rss_limit_mb, stop_limit
        self._runners: list[RunnerProcess | None] = [None] * runners
        self._locks = [asyncio.Lock() for _ in range(runners)]
        self._spent: list[RunnerProcess] = []
        self._closed = False
        self.sandboxes_left: list[str] = []
        """Sandboxes that could not be removed, those of cancelled trials too."""

    @property
    def pid(self) -> int | None:
        """Process id of the first runner, None when it is not running."""
        return next(iter(self.pids), None)

    @property
    def pids(self) -> list[int]:
        return [runner.pid for runner in self._runners if runner is not None and runner.alive]

    @property
    def versions(self) -> dict[str, str]:
        """Package versions as the runners reported them."""
        return next((runner.versions for runner in self._runners if runner is not None), {})

    async def start(self) -> None:
        """Start all runners.

        Raises:
            RunnerStartError: one does not come up; none is left running.
        """
        await settle_local(self._ledger, "engine: at its start", SETTLE_LIMIT)
        try:
            async with asyncio.TaskGroup() as group:
                for index in range(len(self._runners)):
                    group.create_task(self._runner(index))
        except ExceptionGroup as errors:
            await self.close()
            raise errors.exceptions[0] from None
        except BaseException:
            await self.close()
            raise

    async def _runner(self, index: int) -> RunnerProcess:
        """The runner of a place that takes trials, started anew if it died or has nothing left to run them with."""
        async with self._locks[index]:
            runner = self._runners[index]
            if self._closed:
                raise RunnerStartError("the runner pool is closed")
            if runner is None or not runner.takes_trials:
                if runner is not None and runner.alive:
                    self._spent = [*(spent for spent in self._spent if not spent.gone), runner]
                runner = self._runners[index] = RunnerProcess(
                    self._log_path, self._root_dir, self._ledger, self._stop_limit, self.sandboxes_left
                )
                await runner.start()
            return runner

    async def run(self, spec: StartTrial, on_progress: OnProgress) -> TrialReport:
        """Run one trial to its report.

        A cancelled caller gets its CancelledError once the trial's sandbox is gone. The death of the runner is a
        report (`RunnerLostError`), not an exception; the next trial gets a fresh runner, also when its
        runner has no memory, threads or descriptors left.

        Args:
            on_progress: called on the event loop for each phase.

        Raises:
            RunnerStartError: the pool is closed.
        """
        try:
            runner = await self._runner(self._least_loaded())
        except RunnerStartError as error:
            if self._closed:
                raise
            return TrialReport(key=spec.key, exception_type="RunnerLostError", exception_message=str(error))
        return await runner.run(spec, on_progress)

    def _least_loaded(self) -> int:
        loads = [len(r.reports) if r is not None and r.takes_trials else 0 for r in self._runners]
        return loads.index(min(loads))

    async def recycle(self) -> list[int]:
        """Between steps: replace the idle runners that have grown beyond the limit.

        Returns:
            Process ids of the runners that were replaced.
        """
        replaced = []
        for index, runner in enumerate(self._runners):
            if runner is not None and runner.alive and not runner.reports and runner.rss_mb() > self._rss_limit_mb:
                await runner.close()
                replaced.append(runner.pid)
                await self._runner(index)
        return replaced

    async def close(self) -> None:
        """Cancel what runs, take down the sandboxes, end the runners. Idempotent."""
        self._closed = True
        running = [*self._spent, *(runner for runner in self._runners if runner is not None)]
        await asyncio.gather(*(runner.close() for runner in running))
