"""One training run from its start to its end: wires the parts, watches them, and names the cause of the end."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import gc
import logging
import os
import signal
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from console.control.registry import register, socket_path
from console.engine.board import Board
from console.engine.cause import COMPLETED, STOPPED, Cause, CauseKeeper, cause_amid, cause_of, one_line
from console.engine.commands import EngineCommands
from console.engine.ending import Ending
from console.engine.notify import Notifier
from console.engine.plumbing import capture_stats
from console.engine.steering import Steering
from console.engine.tasks import settle, spawn
from console.engine.versions import installed
from console.errors import QuarterdeckError
from console.journal import events as ev
from console.records.manifest import Manifest, renew_manifest
from console.training import fingerprints
from console.training.options import RunOptions
from console.training.trial_context import Totals

if TYPE_CHECKING:
    from console.engine.workshop import Workshop
    from console.state.reduce import RunView
    from console.training.checkpoints import Saved
    from console.training.dataset import HarborGroup
    from console.training.groups import GroupResult, GroupRun
    from console.training.loop import LoopResult, TrainingThread

GROUPS_END_SECONDS = 30.0
"""How long trials may take to leave their sandboxes at the end, when there is time."""
THREAD_END_SECONDS = 4.0
BUDGET_SECONDS = 1.0

log = logging.getLogger(__name__)


class Engine:
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
        self._options, self.run_dir, self.run_id, self._owner_fd = options, run_dir, run_id, owner_fd
        self._on_failure = on_failure
        self._name = options.console.name or run_dir.name
        self._causes = CauseKeeper()
        self._end = asyncio.Event()
        self._ending = Ending()
        self._tasks: set[asyncio.Task[Any]] = set()
        self._workshop: Workshop | None = None
        self._thread: TrainingThread | None = None
        self._trained: asyncio.Future[LoopResult] | None = None
        self.board = Board(run_dir, run_id, socket_path(run_id), EngineCommands(self))
        self.board.on_failure = self._journal_failed
        self.board.on_moved = lambda: self.end(self._moved())
        self.board.notifier = Notifier.of(options.console, self.board.emit, self.now)
        before = self.board.view.state
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

    @property
    def view(self) -> RunView:
        """The view of the journal so far."""
        return self.board.view

    def now(self) -> float:
        """The run's time, Unix seconds."""
        return self.board.clock.now()

    def emit(self, event: ev.Event) -> None:
        """Append an event."""
        self.board.emit(event)

    @property
    def ending(self) -> bool:
        """Whether the run is ending."""
        return self._end.is_set()

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

    def stop_now(self, by: str, *, why: str = "", soon: bool = False) -> None:
        """End the run; its trials are cancelled. `soon`: whoever asks will not wait for the sandboxes."""
        self.board.emit(ev.StopRequested(when="now", by=by))
        reason = one_line(f"stopped now by {by}{f': {why}' if why else ''}")
        self.end(Cause(status="stopped", exit_code=STOPPED.exit_code, reason=reason), urgent=soon)

    def end(self, cause: Cause, *, urgent: bool = False) -> None:
        """Begin to end for this cause; the first one counts. `urgent`: whoever asked kills in some seconds."""
        self._causes.give(cause)
        self._ending.begin(urgent=urgent)
        if not self._end.is_set():
            self._end.set()
            with contextlib.suppress(OSError):
                self.board.emit(ev.RunPhase(phase="stopping", detail=one_line(cause.reason, 200)))

    def _journal_failed(self, error: OSError) -> None:
        """What the journal does not hold did not happen, so the run cannot go on."""
        if not self.ending:
            log.error("the run ends: %s", error)
        cause = Cause(status="failed", exit_code=7, reason=one_line(str(error)))
        self.end(self._moved() if self.board.moved else cause)

    def _moved(self) -> Cause:
        reason = f"the run directory {self.run_dir} was moved or removed while the run went on"
        return Cause(status="failed", exit_code=7, reason=one_line(reason))

    def _cause_of(self, error: BaseException) -> Cause:
        """What an error stands for. When the run directory is gone, all else that fails follows from it."""
        if self.board.moved:
            return self._moved()
        if isinstance(error, OSError) and error.errno == errno.ENOSPC and error.filename is None:
            error.filename = str(self.run_dir)  # a failed write names no file; ours and the cookbook's are all in there
        return cause_amid(error, self.board.view.state, self.now())

    # --- the run --------------------------------------------------------------------------------------------------

    async def run(self) -> Cause:
        """The whole run; returns the cause of its end. Never raises for what goes wrong in the run itself."""
        self._watch_signals()
        spawn(self._watch_budgets(), self._tasks)
        try:
            await self._run()
        except asyncio.CancelledError:
            raise
        except QuarterdeckError as error:
            self._causes.give(self._cause_of(error))
        except Exception as error:
            log.exception("the engine failed")
            self._causes.give(self._cause_of(error))
        finally:
            cause = await self._wind_up()
        return cause

    async def start(self) -> None:
        """Bind the socket, write the first event and register the run; until then nothing of it is visible.

        Raises:
            QuarterdeckError, OSError: it cannot be done; what was begun is taken back.
        """
        begun = False
        try:
            await self.board.start()
            versions, config = installed(), self._options.overrides()
            self._manifest = renew_manifest(
                self.run_dir,
                Manifest(run_id=self.run_id, name=self._name, created=time.time(), versions=versions, config=config),
            )
            carried = capture_stats(self._totals, self.board.view.state.capture)
            self.board.emit(self._started(versions, config))
            begun = True
            if carried != ev.CaptureStats():
                self.board.emit(carried)  # a kill before the first report must not make the totals begin anew
            self.steering.check_quarantine()
            register(
                run_id=self.run_id,
                run_dir=self.run_dir,
                name=self._name,
                pid=os.getpid(),
                socket=self.board.server.path,
                started=time.time(),
            )
        except BaseException as error:
            cause = cause_of(error)
            finished = ev.RunFinished(status="failed", exit_code=cause.exit_code, reason=cause.reason)
            await self.board.close(finished if begun else None)
            raise

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

        self._workshop = workshop = Workshop(
            self._options, self.run_dir, self.steering, self._totals, self.board, self._last_alive
        )
        workshop.gateway.on_death = lambda reason: self.end(Cause(status="failed", exit_code=5, reason=reason))
        kept = asyncio.ensure_future(asyncio.to_thread(fingerprints.of, self._options))  # seconds with large tasks
        prepare = asyncio.ensure_future(workshop.prepare())
        if not await self._unless_ending(prepare) or not await self._unless_ending(kept):
            return
        # Before the first trial: a resume is checked against what the run began with.
        renew_manifest(self.run_dir, msgspec.structs.replace(self._manifest, fingerprints=kept.result()))
        gc.collect()
        gc.freeze()  # a full collection over the imported modules stalls every thread for 200 ms
        workshop.watch()
        resume = asyncio.ensure_future(workshop.resume())
        if not await self._unless_ending(resume):
            return
        thread = workshop.training(self.run_group, self._should_stop, resume.result())
        self._thread = thread
        finished = self._trained = thread.start()
        self.board.emit(ev.RunPhase(phase="connecting", detail=workshop.gateway.base_url))
        try:
            await self._unless_ending(finished)
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

    async def _unless_ending(self, work: asyncio.Future[Any]) -> bool:
        """Wait for the work or for the end, whichever comes first; whether the work was done. Raises what it raised."""
        end = asyncio.ensure_future(self._end.wait())
        try:
            await asyncio.wait({work, end}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            end.cancel()
        if work.done():
            work.result()
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
        return 0 if step is None and self.board.view.state.engines else step

    # --- signals and the owner --------------------------------------------------------------------------------------

    def _watch_signals(self) -> None:
        loop = asyncio.get_running_loop()
        for sig, code in ((signal.SIGTERM, 143), (signal.SIGINT, 130), (signal.SIGHUP, 129)):
            cause = Cause(status="stopped", exit_code=code, reason=f"ended by {sig.name}")
            loop.add_signal_handler(sig, self._signalled, sig, cause)
        if self._owner_fd is not None:
            loop.add_reader(self._owner_fd, self._owner_gone)

    def _signalled(self, sig: signal.Signals, cause: Cause) -> None:
        """The first signal ends the run in order, and soon; another one that comes while it ends, at once."""
        if self._ending.urgent:
            log.warning("%s again: the run ends without waiting for its sandboxes", sig.name)
            self._ending.hurry()
        else:
            self.end(cause, urgent=True)

    def _owner_gone(self) -> None:
        assert self._owner_fd is not None
        if os.read(self._owner_fd, 1) == b"":
            asyncio.get_running_loop().remove_reader(self._owner_fd)
            cause = Cause(status="stopped", exit_code=129, reason="the command that owned the run has ended")
            self.end(cause, urgent=True)

    # --- the end ----------------------------------------------------------------------------------------------------

    async def _wind_up(self) -> Cause:
        """Trials first, then what they stand on; the journal last, so that it holds everything."""
        self._end.set()
        self._ending.begin(urgent=False)
        if not await self._ending.within(self._take_down()) and (live := self._totals.sandboxes):
            what = f"{live} sandbox{' is' if live == 1 else 'es are'} still being removed"
            text = f"{what} as the engine ends: `reap` tells what is left"
            log.warning("%s", text)
            with contextlib.suppress(OSError):
                self.board.emit(ev.Note(text=text, level="warning"))
        sandboxes = self._workshop.sandboxes() if self._workshop is not None else ev.SandboxStats()
        left = sorted({*sandboxes.left, *sandboxes.orphaned})
        cause = self._causes.final(left, sandboxes.live)
        with contextlib.suppress(OSError):
            if self._workshop is not None:
                self.board.emit(self._workshop.stats())
            self.board.emit(sandboxes)
            self.board.check_alarms()
        done = self.board.view.state.steps_done
        finished = ev.RunFinished(status=cause.status, exit_code=cause.exit_code, reason=cause.reason, steps=done)
        await self.board.close(finished)
        if cause.exit_code == 7:
            log.error("the run failed: %s", cause.reason)
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
