"""One training run from its start to its end: wires the parts, watches them, and names the cause of the end."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import gc
import logging
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from console.engine.cause import COMPLETED, Cause, cause_amid
from console.engine.commands import EngineCommands
from console.engine.life import EngineLife
from console.engine.notify import Notifier
from console.engine.plumbing import capture_stats
from console.engine.steering import Steering
from console.engine.tasks import settle, spawn
from console.errors import QuarterdeckError
from console.journal import events as ev
from console.records.manifest import renew_manifest
from console.training import fingerprints
from console.training.options import RunOptions
from console.training.trial_context import Totals

if TYPE_CHECKING:
    from console.engine.workshop import Workshop
    from console.training.checkpoints import Saved
    from console.training.dataset import HarborGroup
    from console.training.groups import GroupResult, GroupRun
    from console.training.loop import LoopResult, TrainingThread

GROUPS_END_SECONDS = 30.0
"""How long trials may take to leave their sandboxes at the end, when there is time."""
THREAD_END_SECONDS = 4.0
BUDGET_SECONDS = 1.0

log = logging.getLogger(__name__)


class Engine(EngineLife):
    """Runs one training run.

    Attributes:
        board: the journal and what is made of it; steering: what an operator changes while the run lasts.

    Args:
        options: what the user asked for; run_dir, run_id: where and under which name.
        on_failure: stop, hold or retry; owner_fd: descriptor that reads EOF when the command that owns the run has
            ended, None when nobody owns it.
    """

    def __init__(
        self, options: RunOptions, run_dir: Path, run_id: str, on_failure: str, owner_fd: int | None = None
    ) -> None:
        super().__init__(run_dir, run_id, options.console.name or run_dir.name, EngineCommands(self), owner_fd)
        self._options, self._on_failure = options, on_failure
        self._workshop: Workshop | None = None
        self._thread: TrainingThread | None = None
        self._trained: asyncio.Future[LoopResult] | None = None
        self.board.notifier = Notifier.of(options.console, self.board.emit, self.now)
        before = self.view.state
        self._last_alive = before.ts if before.engines else None
        # Totals are the run's, so that a token budget holds over restarts; what was lost is each engine's own alarm.
        self._totals = Totals(
            calls=before.capture.calls,
            failed=before.capture.failed,
            prompt_tokens=before.capture.prompt_tokens,
            sampled_tokens=before.capture.sampled_tokens,
            trained_tokens=before.capture.trained_tokens,
            excluded=dict(before.capture.excluded),
        )
        self.steering = Steering(options, on_failure, self._totals, self.board.emit, before.quarantined)

    # --- what commands act on -------------------------------------------------------------------------------------

    @property
    def active_groups(self) -> dict[int, GroupRun]:
        """Groups of the current step, until its batch is complete."""
        return self.steering.groups.active

    def checkpoint_plan(self) -> tuple[bool, str]:
        """Whether a checkpoint can be saved, and when it would be, or why not."""
        if self._thread is None:
            return False, "there are no weights to save yet: the run is still starting"
        return self._thread.checkpoint_plan()

    async def save_checkpoint(self) -> Saved:
        """Save one, when the weights allow it. Raises `QuarterdeckError` when it was not saved."""
        if self._thread is None:
            raise QuarterdeckError("there are no weights to save yet: the run is still starting")
        return await self._thread.checkpoint()

    # --- the run --------------------------------------------------------------------------------------------------

    def _cause_of(self, error: BaseException) -> Cause:
        if isinstance(error, OSError) and error.errno == errno.ENOSPC and error.filename is None:
            error.filename = str(self.run_dir)  # a failed write names no file; ours and the cookbook's are all in there
        return super()._cause_of(error)

    def _stands_for(self, error: BaseException) -> Cause:
        return cause_amid(error, self.view.state, self.now())

    def _config(self) -> ev.Scalars:
        return self._options.overrides()

    def _begin(self, versions: dict[str, str], config: ev.Scalars) -> None:
        carried = capture_stats(self._totals, self.view.state.capture)
        self.emit(self._started(versions, config))
        if carried != ev.CaptureStats():
            self.emit(carried)  # a kill before the first report must not make the totals begin anew
        self.steering.check_quarantine()

    def _started(self, versions: dict[str, str], config: ev.Scalars) -> ev.RunStarted:
        options = self._options
        return ev.RunStarted(
            run_id=self.run_id,
            name=self._name,
            run_dir=str(self.run_dir),
            pid=os.getpid(),
            socket=str(self.board.server.path),
            model=str(options.value("config.model_name")),
            gateway_url=options.value("config.base_url"),
            versions=versions,
            config=config,
            steps=options.value("config.max_steps"),
            groups_per_batch=options.value("config.dataset_builder.groups_per_batch"),
            group_size=options.value("config.dataset_builder.group_size"),
            on_failure=self._on_failure,
            hold_timeout=options.console.hold_timeout if self._on_failure == "hold" else None,
            resumed_from=self._resume_step(),
            owned=self._owner_fd is not None,
            tunables=self.steering.tunables,
            thresholds=msgspec.to_builtins(options.console.alarms),
        )

    async def _run(self) -> None:
        from console.engine.workshop import Workshop

        spawn(self._watch_budgets(), self._tasks)
        self._workshop = workshop = Workshop(
            self._options, self.run_dir, self.steering, self._totals, self.board, self._last_alive
        )
        workshop.gateway.on_death = lambda reason: self.end(Cause(status="failed", exit_code=5, reason=reason))
        kept = asyncio.ensure_future(asyncio.to_thread(fingerprints.of, self._options))  # seconds with large tasks
        prepare = asyncio.ensure_future(workshop.prepare())
        if not await self._or_cancelled(prepare) or not await self._or_cancelled(kept):
            return
        # Before the first trial: a resume is checked against what the run began with.
        renew_manifest(self.run_dir, msgspec.structs.replace(self._manifest, fingerprints=kept.result()))
        gc.collect()
        gc.freeze()  # a full collection over the imported modules stalls every thread for 200 ms
        workshop.watch()
        resume = asyncio.ensure_future(workshop.resume())
        if not await self._or_cancelled(resume):
            return
        thread = workshop.training(self.run_group, self._should_stop, resume.result())
        self._thread = thread
        finished = self._trained = thread.start()
        self.emit(ev.RunPhase(phase="connecting", detail=workshop.gateway.base_url))
        try:
            await self._or_cancelled(finished)
        finally:
            if not finished.done():
                thread.cancel()
        if not finished.done():
            return
        result = finished.result()
        if result.status == "completed":
            self._causes.give(COMPLETED)
        elif result.status == "stopped":
            self._causes.give(self.steering.latch.cause)
        elif result.error is not None:
            log.error("the training loop failed", exc_info=result.error)
            self._causes.give(self._cause_of(result.error))

    async def _or_cancelled(self, work: asyncio.Future[Any]) -> bool:
        """Whether the work was done before the end came. Raises what it raised; a task that was not done is ended."""
        if await self._unless_ending(work):
            return True
        if isinstance(work, asyncio.Task):
            work.cancel()
            with contextlib.suppress(asyncio.CancelledError, Exception):
                await work
        return False

    async def run_group(self, group: HarborGroup, sampler: Any, policy_version: int) -> GroupResult:
        """Run one group; called from the training thread, runs here.

        Raises:
            QuarterdeckError: a trial's outcome or trouble ends the run; the other groups are being cancelled.
        """
        from console.training.groups import GroupRun

        workshop = self._workshop
        assert workshop is not None
        if self.ending:
            raise asyncio.CancelledError
        assert workshop.capture is not None
        workshop.capture.begin_step(group.step)
        if group.needs_sampler:
            workshop.sampling_from(sampler)
        try:
            result = await self.steering.groups.run(GroupRun(workshop.context, group, sampler, policy_version))
            if result.kept:
                await workshop.capture.sync()
        except QuarterdeckError as error:
            self.end(self._cause_of(error))
            raise
        self.steering.budgets.check()  # before the next step begins, however short this one was
        return result

    def _should_stop(self, step: int) -> bool:
        """Asked by the training thread before each step."""
        return self.steering.latch.asked() or self.ending

    async def _watch_budgets(self) -> None:
        while not self.ending:
            with contextlib.suppress(OSError):  # the board ends the run
                self.steering.budgets.check()
            await asyncio.sleep(BUDGET_SECONDS)

    def _resume_step(self) -> int | None:
        """The step at which the cookbook will go on; None for a new run, 0 for one that has no checkpoint yet."""
        from console.records.cookbook import last_checkpoint_batch

        step = last_checkpoint_batch(self.run_dir)
        return 0 if step is None and self.view.state.engines else step

    # --- the end ----------------------------------------------------------------------------------------------------

    async def _close_down(self) -> Cause:
        """Trials first, then what they stand on."""
        if not await self._ending.within(self._take_down()) and (live := self._totals.sandboxes):
            what = f"{live} sandbox{' is' if live == 1 else 'es are'} still being removed"
            text = f"{what} as the engine ends: `reap` tells what is left"
            log.warning("%s", text)
            with contextlib.suppress(OSError):
                self.emit(ev.Note(text=text, level="warning"))
        sandboxes = self._workshop.sandboxes() if self._workshop is not None else ev.SandboxStats()
        left = sorted({*sandboxes.left, *sandboxes.orphaned})
        cause = self._causes.final(left, sandboxes.live)
        with contextlib.suppress(OSError):
            if self._workshop is not None:
                self.emit(self._workshop.stats())
            self.emit(sandboxes)
        return cause

    async def _take_down(self) -> None:
        await settle(self._tasks, THREAD_END_SECONDS)
        await asyncio.gather(self._leave_gateway(), self.steering.groups.close(GROUPS_END_SECONDS))
        if self._workshop is not None:
            await self._workshop.close()

    async def _leave_gateway(self) -> None:
        """The training thread finishes its session, unless it is blocked inside the SDK."""
        if self._trained is not None:
            await asyncio.wait({self._trained}, timeout=THREAD_END_SECONDS)
