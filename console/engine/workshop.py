"""What a training run works with: gateway, runner, capture gateway, renderer, and the training thread over them.

Imported late: this is where tinker, torch and the cookbook come in.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import secrets
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from console.capture.address import insecure_allowed
from console.capture.figures import CaptureFigures
from console.capture.settings import Budgets, CallSettings
from console.engine.board import Board
from console.engine.gateway_link import GatewayLink
from console.engine.plumbing import SandboxReport, capture_stats, report_totals
from console.engine.steering import Steering
from console.engine.tasks import settle, spawn
from console.findings import refuse
from console.journal import events as ev
from console.journal.layout import JournalWriteError
from console.outcomes.rewards import RewardPolicy
from console.outcomes.rules import classify
from console.records.sandbox_ledger import LEDGER
from console.training.options import RunOptions
from console.training.preflight import check_sandboxes
from console.training.resume import resume_plan, save_beginning
from console.training.setup import (
    import_heavy,
    make_renderer,
    name_of_renderer,
    register_bundled_tokenizers,
    register_local_tokenizer,
    repair_records,
)
from console.training.trial_config import load_trial_config, substitute
from console.training.trial_context import Totals, TrialContext

if TYPE_CHECKING:
    from console.capture.server import Capture
    from console.training.dataset import HarborGroup
    from console.training.groups import GroupResult
    from console.training.loop import TrainingThread
    from console.training.replay import ResumePlan
    from console.training.trial_run import TrialResult

TASKS_END_SECONDS = 2.0

log = logging.getLogger(__name__)


class Workshop:
    """Makes the parts ready and takes them down.

    Attributes:
        context: what trials share; capture: the capture gateway; gateway: the Tinker gateway in use.

    Args:
        last_alive: when an engine before this one was last alive, Unix seconds, None for no such engine.
    """

    context: TrialContext

    def __init__(
        self,
        options: RunOptions,
        run_dir: Path,
        steering: Steering,
        totals: Totals,
        board: Board,
        last_alive: float | None = None,
    ) -> None:
        self._options, self._run_dir, self._totals, self._board = options, run_dir, totals, board
        self._steering = steering
        self._model_name = str(options.value("config.model_name"))
        self._tasks: set[asyncio.Task[Any]] = set()
        self._pool: Any = None
        self.capture: Capture | None = None
        self.figures = CaptureFigures()
        self._probed = False
        self._released: list[TrialResult] = []
        self._captured_before = msgspec.structs.replace(board.view.state.capture)
        self.gateway = GatewayLink(options, run_dir, board.emit, last_alive, board.clock.ahead)
        self._sandboxes = SandboxReport(run_dir, totals, options.harbor.sandbox_cost_per_hour, board.clock.ahead)

    async def prepare(self) -> None:
        """Everything up to the first trial.

        Raises:
            UsageError: preflight refuses; GatewayLostError: the gateway cannot be started or reached.
        """
        from console.trials.pool import RunnerPool

        options = self._options
        runner_log = self._run_dir / "runner.log"
        self._pool = RunnerPool(
            runners=options.harbor.runners,
            log_path=runner_log,
            root_dir=self._run_dir / "sandboxes",
            ledger=self._run_dir / LEDGER,
        )
        self._totals.sandboxes_left = self._pool.sandboxes_left  # the pool hears of cancelled trials' too
        starting = [asyncio.ensure_future(self._pool.start()), asyncio.ensure_future(self.gateway.start())]
        try:
            # One thread loads, the other core boots gateway and runner; what can be loaded early, is.
            renderer = await asyncio.to_thread(self._load)
            for task in starting:
                await task
        except BaseException:
            for task in starting:
                task.cancel()
            await asyncio.gather(*starting, return_exceptions=True)
            raise
        await self.gateway.meet()
        template = load_trial_config(Path(options.harbor.trial_config))
        refuse(await asyncio.to_thread(check_sandboxes, template))
        repair_records(self._run_dir)
        self.capture = self._make_capture(renderer)
        self.figures = self.capture.figures
        for warning in self.capture.warnings():
            self._board.emit(ev.Note(text=warning, level="warning"))
        await self.capture.start()
        self.context = TrialContext(
            emit=self._board.emit,
            launcher=self._pool,
            capture=self.capture,
            trial_config=lambda task, url, api_key, key: self._trial_config(template, task, url, api_key, key),
            classify=self._classifier(),
            policy=self._steering.policy,
            totals=self._totals,
            dispatch=self._steering.dispatch,
        )

    def _load(self) -> Any:
        """Import the cookbook and make the policy's renderer. Raises `UsageError` as `make_renderer` does."""
        import_heavy()
        register_bundled_tokenizers()
        if self._options.embedded:
            register_local_tokenizer(self._model_name, self.gateway.embedded_model)
        return make_renderer(self._model_name, self._options.value("config.renderer_name"))

    def stats(self) -> ev.CaptureStats:
        """The captured totals of the run so far."""
        return capture_stats(self._totals, self._captured_before, self.figures)

    def watch(self) -> None:
        """Start health probes, totals, and the watch over the embedded gateway."""
        self.gateway.watch(self._tasks)
        spawn(report_totals(self._sandboxes, self.stats, self._board.emit), self._tasks)

    def sandboxes(self) -> ev.SandboxStats:
        """The run's sandboxes now."""
        return self._sandboxes.stats()

    async def resume(self) -> ResumePlan:
        """What the run begins with; written down when it is resumed, with rows that the engine before owed."""
        view = self._board.view
        plan = await asyncio.to_thread(resume_plan, self._options, self._run_dir, list(view.history.rows))
        for row in plan.missing:
            self._board.emit(row)
        if plan.untold.calls:
            self._totals.called(plan.untold.calls, plan.untold.prompt_tokens, plan.untold.sampled_tokens)
            self._board.emit(self.stats())  # before the event from which on nothing older is counted again
        if view.state.engines > 1 or plan.checkpoint:
            self._board.emit(plan.event())
        return plan

    def training(
        self,
        run_group: Callable[..., Coroutine[Any, Any, Any]],
        should_stop: Callable[[int], bool],
        plan: ResumePlan,
    ) -> TrainingThread:
        """The training thread, not started. `plan`: what the run begins with."""
        from console.training.cookbook_config import build_cookbook_config
        from console.training.loop import TrainingThread
        from console.training.runtime import Runtime

        runtime = Runtime(
            main_loop=asyncio.get_running_loop(),
            emit=self._from_training,
            run_group=run_group,
            release_group=self._release,
            should_stop=should_stop,
            quarantined=lambda: self._steering.quarantined,
            policy_version=plan.policy_version if plan.policy_version is not None else plan.step,
            max_steps=self._options.value("config.max_steps"),
            start_step=plan.step,
            plan=plan,
            save_beginning=save_beginning(self._options, plan),
        )
        config = build_cookbook_config(self._options, base_url=self.gateway.base_url, log_path=str(self._run_dir))
        return TrainingThread(runtime, config)

    def sampling_from(self, sampler: Any) -> None:
        """Trials begin to sample from this client; the first one tells what the gateway's log-probs are."""
        if not self._probed and self.capture is not None:
            self._probed = True
            spawn(self._probe(self.capture, sampler), self._tasks)

    async def _probe(self, capture: Capture, sampler: Any) -> None:
        found = await capture.probe(sampler)
        with contextlib.suppress(JournalWriteError):  # the board ends the run
            self._board.emit(
                ev.SamplingProbed(tempered=found.tempered, detail=found.detail, mode=self._options.harbor.sampling)
            )

    async def _release(self, group: HarborGroup) -> GroupResult:
        """The last word on what of a group trains, once its batch is complete."""
        result = await self._steering.groups.release(group)
        self._released += [trial for trial in result.trials if result.kept and not trial.counted]
        return result

    def _from_training(self, event: ev.Event) -> None:
        """An event of the training thread. Between two steps no trial runs: the time to replace a grown runner."""
        if isinstance(event, ev.RunPhase) and self._board.view.state.status == "stopping":
            return  # what the thread still does is part of the end
        with contextlib.suppress(JournalWriteError):  # the board ends the run
            given = isinstance(event, ev.RunPhase) and event.phase == "training"
            if isinstance(event, ev.StepStarted):
                self._released = []  # of a batch that came to nothing
            for trial in self._released if given else ():
                if trial.captured is not None:
                    self._totals.trained(trial.captured)
            self._board.emit(event)
            if given:  # when both are written, a resume counts no token of the batch again, and else all of them
                self._released = []
                self._board.emit(self.stats())
        if isinstance(event, ev.StepFinished):
            spawn(self._pool.recycle(), self._tasks)

    async def close(self) -> None:
        """Runner, capture gateway, embedded gateway, in this order."""
        await settle(self._tasks, TASKS_END_SECONDS)
        for close in (self._close_pool, self._close_capture, self.gateway.close):
            try:
                await close()
            except Exception:  # the others must go all the same
                log.exception("winding up")

    async def _close_pool(self) -> None:
        if self._pool is not None:
            await self._pool.close()

    async def _close_capture(self) -> None:
        if self.capture is not None:
            await self.capture.close()

    # --- trials -----------------------------------------------------------------------------------------------------

    def _make_capture(self, renderer: Any) -> Capture:
        from console.capture.journal import CallJournal
        from console.capture.rendering import PolicyRenderer
        from console.capture.server import Capture

        harbor = self._options.harbor
        return Capture(
            renderer=PolicyRenderer(
                renderer,
                name=name_of_renderer(self._model_name, self._options.value("config.renderer_name")),
                history_thinking=harbor.history_thinking,
            ),
            journal=CallJournal(self._run_dir / "capture"),
            settings=CallSettings(
                model=self._model_name,
                sampling=harbor.sampling,
                max_tokens=int(self._options.value("config.max_tokens")),
                window=self.gateway.window,
                train=harbor.train,
                history_thinking=harbor.history_thinking,
                budgets=Budgets(
                    calls=harbor.max_calls,
                    prompt_tokens=harbor.max_prompt_tokens,
                    sampled_tokens=harbor.max_sampled_tokens,
                    received_bytes=harbor.max_call_bytes,
                ),
                inflight=harbor.max_inflight_calls,
            ),
            listen_host=harbor.listen_host,
            listen_port=harbor.listen_port,
            advertised_host=harbor.advertised_host,
            advertised_url=harbor.advertised_url,
            tls_certificate=harbor.tls_certificate,
            tls_key=harbor.tls_key,
            allow_insecure=insecure_allowed(harbor.allow_insecure, os.environ),
            outage=self.gateway.outage,
            forgotten=self.gateway.forgotten,
        )

    def _classifier(self) -> Callable[[Any], Any]:
        options = self._options.harbor
        policy = RewardPolicy(
            reward_key=options.reward_key,
            reward_limit=options.reward_limit,
            verifier_faults=options.verifier_faults,
        )
        return lambda evidence: classify(evidence, policy)

    def _trial_config(self, template: dict[str, Any], task: Path, url: str, api_key: str, key: str) -> dict[str, Any]:
        """Of one try. Its key is in the name of its directory, so that its files are found while it runs."""
        from console.trials.bwrap_policy import error_policy

        config = substitute(template, url, api_key)
        config["task"] = {"path": str(task)}
        config["trial_name"] = f"{task.name[:32]}__{key}-{secrets.token_hex(3)}"
        config.setdefault("trials_dir", str(self._run_dir / "trials"))
        config["override_error_policy"] = error_policy() | dict(config.get("override_error_policy") or {})
        return config
