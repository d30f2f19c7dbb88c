"""The life of one trial: its tries, its route, its classification, and what the policy makes of a failure.

Runs on the engine's main loop. Every try ends with exactly one `trial.finished` event, also one that is cancelled
before it began; a trial that is cancelled while it is held ends with such a try.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from console.capture.base import CallReport, Route
from console.capture.captured import CapturedTrial
from console.errors import QuarterdeckError
from console.journal import events as ev
from console.journal.layout import JournalWriteError
from console.outcomes.classes import OutcomeClass, Verdict
from console.records.try_key import try_key
from console.training.recorded import RecordedTrial
from console.training.slots import Slots
from console.training.trial_context import EVIDENCE_TEXT, PolicyStopError, TrialBrokenError, TrialContext
from console.training.trial_parts import SandboxCounter, evidence_of, without_secret
from console.trials.protocol import StartTrial, TrialProgress, TrialReport


class TrialResult(msgspec.Struct, kw_only=True):
    """The final try of a trial.

    `captured` is None when there was no route; `counted`: a batch was given it before, under an earlier engine.
    """

    trial: int
    try_: int
    verdict: Verdict
    captured: CapturedTrial | None = None
    report: TrialReport | None = None
    counted: bool = False


class TrialRun:
    """One trial of a group, through all its tries.

    Attributes:
        cancelled_by: the operator who cancelled it, by name; cancel_cause: group or run, whichever would end it else.

    Args:
        context: shared; step, group, trial: indices from 0; task: directory of the Harbor task.
        sampler: the policy's sampling client; policy_version: of its weights, None when it is not known.
        slots: the group's places for running trials.
        recorded: how it ended under an earlier engine, None when it runs; first_try: number of the first try, when
            earlier engines had some already.
    """

    def __init__(
        self,
        context: TrialContext,
        *,
        step: int,
        group: int,
        trial: int,
        task: Path,
        sampler: Any,
        slots: Slots,
        policy_version: int | None = None,
        recorded: RecordedTrial | None = None,
        first_try: int = 0,
    ) -> None:
        self._context, self._task, self._sampler, self._slots = context, task, sampler, slots
        self._policy_version = policy_version
        self.step, self.group, self.trial = step, group, trial
        self._recorded = recorded
        self.try_ = self._first_try = recorded.end.try_ if recorded is not None else first_try
        self.result: TrialResult | None = None
        self.cancelled_by: str | None = None
        self.cancel_cause = "run"
        self._turn: asyncio.Task[bool] | None = None
        self._attempt: asyncio.Task[tuple[TrialReport, CapturedTrial]] | None = None
        self._decision: asyncio.Future[str] | None = None
        self._held: TrialResult | None = None
        self._held_since = 0.0
        self._deadline: asyncio.Timeout | None = None
        self._retried_by = "operator"
        self._failed: TrialResult | None = None
        self._given_up: TrialResult | None = None
        self._turns = 0

    # --- what the operator may do -------------------------------------------------------------------------------

    @property
    def done(self) -> bool:
        """Whether the trial has its final outcome."""
        return self.result is not None

    @property
    def held(self) -> TrialResult | None:
        """The failed try that waits for a decision, or None."""
        return self._held

    @property
    def running(self) -> bool:
        """Whether a try is under way."""
        return self._attempt is not None

    @property
    def queued(self) -> bool:
        """Whether it waits for its turn: not begun, or granted another try."""
        return not (self.done or self.running or self.held is not None)

    @property
    def may_score(self) -> bool:
        """Whether it is scored, or may still be."""
        return self.result.verdict.scored if self.result is not None else not self.cancelled_by

    @property
    def tries(self) -> int:
        """Tries so far, the current one included; those of earlier engines do not count."""
        return self.try_ - self._first_try + 1

    @property
    def tries_left(self) -> int:
        """Tries that may follow the current one."""
        return max(0, self._context.policy.max_tries - self.tries)

    def cancel(self, by: str) -> None:
        """End the trial without a score, for the operator `by`. No effect when it is done."""
        if self.done or self.cancelled_by:
            return
        self.cancelled_by = by
        if self._decision is not None and not self._decision.done():
            self._decision.set_result("cancel")
        for task in (self._turn, self._attempt):
            if task is not None:
                task.cancel()

    def retry(self, by: str = "operator") -> bool:
        """Grant a held trial another try; False when it is not held, not retryable, or has no try left."""
        if self._held is None or not self._held.verdict.retryable or not self.tries_left:
            return False
        if self._decision is None or self._decision.done():
            return False
        self._retried_by = by
        self._decision.set_result("retry")
        return True

    def held_for(self) -> float:
        """Seconds for which it has been held, 0 when it is not."""
        return asyncio.get_running_loop().time() - self._held_since if self._held is not None else 0.0

    def move_deadline(self) -> None:
        """The policy's hold time-out has changed: a trial that is held follows it."""
        waits = self._decision is not None and not self._decision.done()
        if waits and self._deadline is not None:
            left = self._context.policy.hold_timeout - self.held_for()
            self._emit(ev.TrialHeld, try_=self.try_, deadline=self._context.clock() + left)
            self._deadline.reschedule(asyncio.get_running_loop().time() + left)

    # --- its life -----------------------------------------------------------------------------------------------

    async def run(self) -> TrialResult:
        """The trial's final result.

        Raises:
            PolicyStopError: its failure ends the run.
            TrialBrokenError: it could not be carried out at all.
        """
        if self._recorded is not None:
            return await self._used(self._recorded)
        try:
            while True:
                result = await self._in_turn()
                if result.verdict.scored or result.verdict.outcome is OutcomeClass.CANCELLED:
                    self.result = result
                    return result
                self._failed = result
                if not await self._granted(result) and not self.cancelled_by:
                    self.result = result
                    exception = result.report.exception_type if result.report is not None else None
                    raise PolicyStopError(self.name, self._task.name, result.verdict, exception)
                self._given_up = result if self.cancelled_by else None
                self.try_ += 1
                self._failed = None
        except asyncio.CancelledError:  # the run ends; a failed try that waited for a decision stays what it was
            self.result = self._failed or self._cancelled()
            raise

    async def _used(self, recorded: RecordedTrial) -> TrialResult:
        """It ended under an earlier engine: what it came to counts as if it had ended now."""
        result = TrialResult(trial=self.trial, try_=self.try_, verdict=recorded.verdict, counted=recorded.counted)
        self.result = result
        self._context.emit(msgspec.structs.replace(recorded.end, reused=True))
        if recorded.path is not None:
            try:
                result.captured = await asyncio.to_thread(recorded.captured)
            except (QuarterdeckError, OSError) as error:
                raise TrialBrokenError(self.name, self._task.name, error) from error
        return result

    async def _in_turn(self) -> TrialResult:
        """One try when there is room for it. Cancelling ends the wait at once, not when a slot is free."""
        waited = False
        if not self.cancelled_by:
            try:
                while not waited or self._context.dispatch.paused:
                    if waited:  # it came with the pause: back into the queue
                        waited = False
                        self._slots.release()
                    self._turn = asyncio.ensure_future(self._slots.acquire())
                    waited = await self._turn
            except asyncio.CancelledError:
                if _ends_with_its_caller():
                    raise
            finally:
                self._turn = None
        self._turns = 0
        try:
            return self._cancelled() if self.cancelled_by else await self._one_try()
        finally:
            if waited:
                self._slots.release()

    @property
    def name(self) -> str:
        """As the screen names it."""
        return f"step {self.step} g{self.group + 1}/t{self.trial + 1}"

    async def _granted(self, result: TrialResult) -> bool:
        """Whether the failed try is followed by another; waits for the operator under `hold`."""
        policy, retryable = self._context.policy, result.verdict.retryable
        by = "policy"
        if policy.on_failure == "retry":
            granted = retryable and self.tries_left > 0
        elif policy.on_failure == "hold":
            granted = await self._hold(result) == "retry"
            by = self._retried_by
        else:
            granted = False
        if granted:
            self._emit(ev.TrialRetried, try_=self.try_ + 1, by=by)
        return granted

    async def _hold(self, result: TrialResult) -> str:
        loop, seconds = asyncio.get_running_loop(), self._context.policy.hold_timeout
        decision: asyncio.Future[str] = loop.create_future()
        self._held, self._decision, self._held_since = result, decision, loop.time()
        self._emit(ev.TrialHeld, try_=self.try_, deadline=self._context.clock() + seconds)
        try:
            async with asyncio.timeout(seconds) as self._deadline:
                await decision
            return decision.result()
        except TimeoutError:
            # The decision may have come in the very moment of the deadline; then it was told to the operator as done.
            return "stop" if decision.cancelled() else decision.result()
        finally:
            self._held = self._decision = None

    async def _one_try(self) -> TrialResult:
        try:
            # At once: a pause that comes from now on is one that this try did not begin in.
            self._emit(ev.TrialPhase, try_=self.try_, phase="create")
            self._attempt = asyncio.ensure_future(self._execute())
            report, captured = await self._attempt
        except asyncio.CancelledError:
            if _ends_with_its_caller():
                raise
            return self._cancelled()
        except Exception as error:
            self.result = self._broken(error)
            raise TrialBrokenError(self.name, self._task.name, error) from error
        finally:
            self._attempt = None
        evidence = evidence_of(report, captured.evidence, "operator" if self.cancelled_by else None)
        return self._finished(self._context.classify(evidence), report, captured)

    async def _execute(self) -> tuple[TrialReport, CapturedTrial]:
        key = try_key((self.step, self.group, self.trial, self.try_))
        totals = self._context.totals
        route = await self._context.capture.open_route(
            key, self._sampler, self._on_call, policy_version=self._policy_version
        )
        live = SandboxCounter(totals)
        try:
            config = self._context.trial_config(self._task, route.url, route.api_key, key)
            report = await self._context.launcher.run(
                StartTrial(key=key, config=config), lambda progress: self._on_progress(progress, route, live)
            )
        finally:
            live.gone()
            captured = await route.seal()
        return without_secret(report, route.api_key), captured

    def _on_progress(self, progress: TrialProgress, route: Route, live: SandboxCounter) -> None:
        if progress.phase == "environment":
            live.started()
        elif progress.phase == "agent":
            route.start()
        elif progress.phase in ("verify", "teardown"):
            route.stop()
        self._emit(ev.TrialPhase, try_=self.try_, phase=progress.phase)

    def _on_call(self, call: CallReport) -> None:
        totals = self._context.totals
        if call.ok:
            self._turns += 1
            totals.called(1, call.prompt_tokens, call.sampled_tokens)
        else:
            totals.failed += 1
        with contextlib.suppress(JournalWriteError):  # the board ends the run; the call itself is what it was
            self._emit(
                ev.TrialTurn,
                try_=self.try_,
                turn=self._turns,
                prompt_tokens=call.prompt_tokens if call.ok else 0,
                sampled_tokens=call.sampled_tokens,
                seconds=round(call.seconds, 4),
                status=call.status,
            )

    def _finished(self, verdict: Verdict, report: TrialReport, captured: CapturedTrial) -> TrialResult:
        self._emit(
            ev.TrialFinished,
            try_=self.try_,
            outcome=verdict.outcome.value,
            cause=verdict.cause,
            rule=verdict.rule,
            evidence=verdict.evidence[:EVIDENCE_TEXT],
            reward=verdict.reward if verdict.scored else None,
            retryable=verdict.retryable,
            exception=report.exception_type,
            trial_dir=report.trial_dir,
            turns=self._turns,
            prompt_tokens=captured.prompt_tokens,
            sampled_tokens=captured.evidence.sampled_tokens,
            segments=len(captured.segments),
            bridged=captured.bridged,
            unbridged=captured.unbridged,
            excluded=captured.excluded,
            refused=captured.refused,
            seconds={name: round(value, 4) for name, value in report.seconds.items()},
        )
        return TrialResult(trial=self.trial, try_=self.try_, verdict=verdict, captured=captured, report=report)

    def _cancelled(self) -> TrialResult:
        """The end of a trial that was cancelled. One that was held keeps what had failed before."""
        said, exception = f"cancelled by {self.cancelled_by or self.cancel_cause}", None
        cause = "operator" if self.cancelled_by else self.cancel_cause
        if self._given_up is not None:
            before, report = self._given_up.verdict, self._given_up.report
            exception = report.exception_type if report is not None else None
            what = " ".join(x for x in (before.outcome.value, before.cause, before.evidence) if x)
            said = f"{said}; before: {what}"[:EVIDENCE_TEXT]
        return self._without_report(
            Verdict(outcome=OutcomeClass.CANCELLED, cause=cause, rule="cancelled", evidence=said), exception
        )

    def _broken(self, error: Exception) -> TrialResult:
        said = f"{type(error).__name__}: {error}"[:EVIDENCE_TEXT]
        verdict = Verdict(outcome=OutcomeClass.INFRASTRUCTURE, cause="engine", rule="engine.error", evidence=said)
        with contextlib.suppress(OSError):  # the journal itself may be what failed
            return self._without_report(verdict)
        return TrialResult(trial=self.trial, try_=self.try_, verdict=verdict)

    def _without_report(self, verdict: Verdict, exception: str | None = None) -> TrialResult:
        self._emit(
            ev.TrialFinished,
            try_=self.try_,
            outcome=verdict.outcome.value,
            cause=verdict.cause,
            rule=verdict.rule,
            evidence=verdict.evidence,
            exception=exception,
            turns=self._turns,
        )
        return TrialResult(trial=self.trial, try_=self.try_, verdict=verdict)

    def _emit(self, event: Callable[..., ev.Event], **fields: Any) -> None:
        self._context.emit(event(step=self.step, group=self.group, trial=self.trial, **fields))


def _ends_with_its_caller() -> bool:
    """Of a CancelledError: whether the running task itself was cancelled, and not only what it waited for."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
