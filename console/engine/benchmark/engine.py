"""One benchmark run from its start to its end: Harbor in a process of its own, and the journal of what it does."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from console.bench.running.options import BenchOptions
from console.control.registry import register, socket_path
from console.engine.benchmark.dispatch import Dispatch
from console.engine.benchmark.ends import ended_by_itself, refused
from console.engine.benchmark.harbor import HarborProcess
from console.engine.benchmark.judging import Judge
from console.engine.benchmark.orders import Orders
from console.engine.benchmark.trials import TrialRun, Trials
from console.engine.board import Board
from console.engine.cause import COMPLETED, STOPPED, Cause, CauseKeeper, cause_of, one_line
from console.engine.ending import Ending
from console.engine.tasks import settle, spawn
from console.engine.versions import installed
from console.errors import QuarterdeckError
from console.journal import events as ev
from console.records.manifest import Manifest, renew_manifest
from console.trials.job_plugin_protocol import (
    FromJob,
    Gate,
    JobEnded,
    JobFailed,
    JobPlanned,
    Judged,
    TrialBegan,
    TrialEnded,
    TrialPhased,
)

if TYPE_CHECKING:
    from console.state.reduce import RunView

WATCH_SECONDS = 1.0
JUDGING_END_SECONDS = 10.0

log = logging.getLogger(__name__)


class BenchEngine:
    """Runs one Harbor job.

    Attributes:
        board: the journal and what is made of it; dispatch: how many trials may be at work; trials: what became of
            them, None before Harbor has resolved the job.

    Args:
        run_dir, run_id: where and under which name.
        owner_fd: descriptor that reads EOF when the command that owns the run has ended, None when nobody owns it.
    """

    def __init__(self, options: BenchOptions, run_dir: Path, run_id: str, owner_fd: int | None = None) -> None:
        self.options, self.run_dir, self.run_id, self._owner_fd = options, run_dir, run_id, owner_fd
        self._name = options.name or str(options.job["job_name"])
        self._causes, self._ending, self._end = CauseKeeper(), Ending(), asyncio.Event()
        self._tasks: set[asyncio.Task[Any]] = set()
        self._judging: set[asyncio.Task[Any]] = set()
        self.harbor = HarborProcess(options.job, run_dir, run_id)
        self.trials: Trials | None = None
        self._judge = Judge(Path(options.job_dir))
        self._failed: JobFailed | None = None
        self._job_done = False
        self._listening: asyncio.Future[None] | None = None
        self._began = time.monotonic()
        self.board = Board(run_dir, run_id, socket_path(run_id), Orders(self))
        self.board.on_failure = self._journal_failed
        self.board.on_moved = lambda: self.end(self._moved())
        most = int(options.job.get("n_concurrent_trials") or 4)
        self.dispatch = Dispatch(most, self.emit, self._tell_gate)

    # --- what orders act on ----------------------------------------

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

    def stop_now(self, by: str, *, why: str = "", soon: bool = False) -> None:
        """End the run; Harbor cancels its trials. `soon`: whoever asks will not wait for the sandboxes."""
        self.emit(ev.StopRequested(when="now", by=by))
        reason = one_line(f"stopped now by {by}{f': {why}' if why else ''}")
        self.end(Cause(status="stopped", exit_code=STOPPED.exit_code, reason=reason), urgent=soon)

    def limit(self, limit: int, by: str) -> None:
        """Another number of trials at once, as an operator says."""
        self.emit(ev.RunTuned(name="concurrency", old=self.dispatch.limit, new=limit, by=by))
        self.dispatch.change(limit, by, "set by hand")

    def end(self, cause: Cause, *, urgent: bool = False) -> None:
        """Begin to end for this cause; the first one counts. `urgent`: whoever asked kills in some seconds."""
        self._causes.give(cause)
        self._ending.begin(urgent=urgent)
        if not self._end.is_set():
            self._end.set()
            with contextlib.suppress(OSError):
                self.emit(ev.RunPhase(phase="stopping", detail=one_line(cause.reason, 200)))

    def _journal_failed(self, error: OSError) -> None:
        """What the journal does not hold did not happen, so the run cannot go on."""
        if not self.ending:
            log.error("the run ends: %s", error)
        cause = Cause(status="failed", exit_code=7, reason=one_line(str(error)))
        self.end(self._moved() if self.board.moved else cause)

    def _moved(self) -> Cause:
        reason = f"the run directory {self.run_dir} was moved or removed while the run went on"
        return Cause(status="failed", exit_code=7, reason=one_line(reason))

    def _tell_gate(self, gate: Gate) -> None:
        if self.trials is not None:  # else it is told when the plan comes
            self.harbor.send(gate)

    # --- the run ----------------------------------------

    async def start(self) -> None:
        """Bind the socket, write the first event and register the run; until then nothing of it is visible.

        Raises:
            QuarterdeckError, OSError: it cannot be done; what was begun is taken back.
        """
        begun = False
        try:
            await self.board.start()
            versions, config = installed(), _shown(self.options)
            renew_manifest(
                self.run_dir,
                Manifest(run_id=self.run_id, name=self._name, created=time.time(), versions=versions, config=config),
            )
            self.emit(self._started(versions, config))
            begun = True
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
        job = self.options.job
        models = [str(agent.get("model_name") or "") for agent in job.get("agents") or [] if isinstance(agent, dict)]
        return ev.RunStarted(
            run_id=self.run_id,
            name=self._name,
            run_dir=str(self.run_dir),
            pid=os.getpid(),
            socket=str(self.board.server.path),
            model=", ".join(dict.fromkeys(filter(None, models))),
            gateway_url=self.options.endpoint or None,
            versions=versions,
            config=config,
            steps=1,
            group_size=int(job.get("n_attempts") or 1),
            on_failure="retry" if int((job.get("retry") or {}).get("max_retries") or 0) else "drop",
            resumed_from=0 if self.view.state.engines else None,
            owned=self._owner_fd is not None,
            tunables={"concurrency": self.dispatch.limit},
            kind="benchmark",
        )

    async def run(self) -> Cause:
        """The whole run; returns the cause of its end. Never raises for what goes wrong in the run itself."""
        self._watch_signals()
        try:
            await self._run()
        except asyncio.CancelledError:
            raise
        except (QuarterdeckError, OSError) as error:
            self._causes.give(self._moved() if self.board.moved else cause_of(error))
        except Exception as error:
            log.exception("the engine failed")
            self._causes.give(cause_of(error))
        finally:
            cause = await self._wind_up()
        return cause

    async def _run(self) -> None:
        self.emit(ev.RunPhase(phase="starting", detail="Harbor resolves the job"))
        await self.harbor.start()
        spawn(self._watch(), self._tasks)
        self._listening = listening = asyncio.ensure_future(self._listen())
        end = asyncio.ensure_future(self._end.wait())
        try:
            await asyncio.wait({listening, end}, return_when=asyncio.FIRST_COMPLETED)
            if listening.done():
                listening.result()
                waiting = asyncio.ensure_future(self.harbor.wait())
                await asyncio.wait({waiting, end}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            end.cancel()

    async def _listen(self) -> None:
        while (message := await self.harbor.read()) is not None:
            try:
                await self._take(message)
            except OSError:  # the journal's: the board ends the run
                if not self.ending:
                    raise

    async def _take(self, message: FromJob) -> None:
        match message:
            case JobPlanned():
                await self._planned(message)
            case TrialBegan():
                if (trial := self._trial(message.name)) is not None:
                    assert self.trials is not None
                    self.trials.began(trial, message.try_)
            case TrialPhased():
                if (trial := self._trial(message.name)) is not None:
                    assert self.trials is not None
                    self.trials.phase(trial, message.try_, message.phase)
            case TrialEnded():
                if (trial := self._trial(message.name)) is not None:
                    spawn(self._ended(trial, message.try_, message.again), self._judging)
            case JobEnded():
                self._job_done = True
            case JobFailed():
                self._failed = message

    def _trial(self, name: str) -> TrialRun | None:
        return self.trials.get(name) if self.trials is not None else None

    async def _planned(self, plan: JobPlanned) -> None:
        self.harbor.forget_config()
        self._judge = Judge(Path(plan.job_dir))
        self.trials = trials = Trials(self.emit, plan)
        self.dispatch.planned(plan.concurrency)
        standing = [name for name in plan.trials if name.stands]
        self.emit(
            ev.BenchPlanned(
                job_dir=plan.job_dir,
                job_name=plan.job_name,
                harbor=plan.harbor,
                dataset=plan.dataset,
                agents=list(dict.fromkeys(trial.agent for trial in plan.trials)),
                models=list(dict.fromkeys(trial.model for trial in plan.trials if trial.model)),
                tasks=trials.groups,
                attempts=plan.attempts,
                trials=len(trials),
                done=len(standing),
                concurrency=plan.concurrency,
                parent=self.options.parent,
                mop_up=self.options.mop_up,
            )
        )
        trials.start()
        for one in standing:
            trial = trials.get(one.name)
            assert trial is not None
            trials.ended(trial, 0, await asyncio.to_thread(self._judge.look, one.name), reused=True)
        self._began = time.monotonic()
        self.dispatch.tell()

    async def _ended(self, trial: TrialRun, try_: int, again: bool) -> None:
        """Judge a try; Harbor waits for the word, for it may delete the try."""
        assert self.trials is not None
        try:
            judged = await asyncio.to_thread(self._judge.look, trial.name)
            self.trials.ended(trial, try_, judged, again=again)
        finally:
            self.harbor.send(Judged(name=trial.name))

    async def _watch(self) -> None:
        """What is looked at now and then."""
        while True:
            await asyncio.sleep(WATCH_SECONDS)
            with contextlib.suppress(OSError):  # the board ends the run
                await asyncio.to_thread(self.harbor.trim_log)
                self._check_drained()

    def _check_drained(self) -> None:
        trials = self.trials
        if self.dispatch.draining and not self.ending and (trials is None or not trials.at_work):
            left = trials.left if trials is not None else 0
            if left or trials is None:
                why = f"stopped by the operator; {left} trials had not begun" if left else "stopped by the operator"
                self.end(Cause(status="stopped", exit_code=STOPPED.exit_code, reason=why))

    # --- signals and the owner ----------------------------------------

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

    # --- the end ----------------------------------------

    async def _wind_up(self) -> Cause:
        """Harbor first, then what is known of its trials; the journal last, so that it holds everything."""
        self._end.set()
        self._ending.begin(urgent=False)
        if not await self._ending.within(self.harbor.end()):
            self.harbor.kill()
            text = "Harbor was killed before its sandboxes were gone: quarterdeck reap tells what is left"
            with contextlib.suppress(OSError):
                self.emit(ev.Note(text=text, level="warning"))
        self.harbor.close()
        await settle(self._tasks, 1.0)
        with contextlib.suppress(OSError):
            await self._reconcile()
        cause = self._causes.final([])
        with contextlib.suppress(OSError):
            self.board.check_alarms()
        finished = ev.RunFinished(
            status=cause.status,
            exit_code=cause.exit_code,
            reason=cause.reason,
            steps=self.board.view.state.steps_done,
        )
        await self.board.close(finished)
        if cause.exit_code == 7:
            log.error("the run failed: %s", cause.reason)
        return cause

    async def _reconcile(self) -> None:
        """What Harbor left on the disk is what counts: results that were not told of, and trials without any."""
        if self._listening is not None:
            await asyncio.wait({self._listening}, timeout=JUDGING_END_SECONDS)
        if self._judging:
            await asyncio.wait(set(self._judging), timeout=JUDGING_END_SECONDS)
        trials = self.trials
        if trials is None:
            self._causes.give(refused(self._failed, self.harbor.exit_code))
            return
        for trial in [trial for trial in trials if not trial.final]:
            if trial.try_ >= 0:
                ended = await asyncio.to_thread(self._judge.ended, trial.name)
                judged = await asyncio.to_thread(self._judge.look, trial.name)
                trials.ended(trial, trial.try_, judged, lost="" if ended else self._what_was_lost())
        if not trials.left:
            trials.finish(time.monotonic() - self._began)
            self._causes.give(COMPLETED)
        elif not trials.begun:
            self._causes.give(refused(self._failed, self.harbor.exit_code))
        else:
            self._causes.give(ended_by_itself(self._failed, self.harbor.exit_code, trials.left, self.options.job_dir))

    def _what_was_lost(self) -> str:
        cause = self._causes.cause
        return cause.reason if cause is not None else "Harbor was gone before the trial had ended"


def _shown(options: BenchOptions) -> ev.Scalars:
    """What the run was started with, as far as it is a plain value."""
    job = options.job
    shown: ev.Scalars = {f"job.{key}": value for key, value in job.items() if isinstance(value, str | int | float)}
    shown |= {
        "throttle": options.throttle,
        "early_stop": options.early_stop,
        "endpoint": options.endpoint,
        "job_file": options.job_file,
    }
    return shown
