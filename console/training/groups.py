"""One group on the engine's main loop: its trials side by side, and what of them may train."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

import msgspec

from console.journal import events as ev
from console.outcomes.classes import OutcomeClass
from console.state.reduce_trials import mean_and_std
from console.training.dataset import HarborGroup
from console.training.recorded import RecordedGroup
from console.training.trial_context import PolicyStopError, TrialBrokenError, TrialContext
from console.training.trial_run import TrialResult, TrialRun

MIN_SCORED = 2
"""A group of fewer scored trials has no advantage to speak of and is dropped."""

ZERO_VARIANCE = 1e-8


class GroupResult(msgspec.Struct, kw_only=True):
    """How a group ended. `kept`: it trains; `trials`: the scored ones, in order; `outcomes`: class to count of all."""

    group: int
    kept: bool
    reason: str = ""
    trials: list[TrialResult] = []
    outcomes: dict[str, int] = {}
    zero_variance: bool = False

    @property
    def rewards(self) -> list[float]:
        """Rewards of the scored trials."""
        return [t.verdict.reward for t in self.trials if t.verdict.reward is not None]


class GroupRun:
    """Runs the trials of one group, as many at once as the run's dispatch allows.

    Attributes:
        cancelled_by: the operator who cancelled it, by name; slots: its places for running trials.
        result: how it ended, None before that. It may still be discarded until the batch is assembled.

    Args:
        context: what all trials share; group: the cookbook's builder, with what is recorded of it; sampler: the
            policy, unused when all of it is recorded; policy_version: of its weights, None when it is not known.
    """

    def __init__(
        self, context: TrialContext, group: HarborGroup, sampler: Any, policy_version: int | None = None
    ) -> None:
        self._context = context
        self.step, self.group, self.task = group.step, group.group, group.task.name
        recorded = self._recorded = group.recorded or RecordedGroup()
        self.cancelled_by: str | None = recorded.cancelled_by or None
        self.result: GroupResult | None = None
        slots = self.slots = context.dispatch.slots()
        self.trials = [
            TrialRun(
                context,
                step=group.step,
                group=group.group,
                trial=i,
                task=group.task,
                sampler=sampler,
                slots=slots,
                policy_version=policy_version,
                recorded=recorded.trials.get(i),
                first_try=recorded.tries.get(i, 0),
            )
            for i in range(group.size)
        ]

    @property
    def unfinished(self) -> int:
        """Trials without a final outcome."""
        return sum(not trial.done for trial in self.trials)

    @property
    def needed(self) -> int:
        """Scored trials without which it is dropped."""
        return min(MIN_SCORED, len(self.trials))

    @property
    def may_score(self) -> int:
        """Trials that are scored, or may still be."""
        return sum(trial.may_score for trial in self.trials)

    @property
    def may_train(self) -> bool:
        """Whether the step may still train on it."""
        return self.result.kept if self.result is not None else not self.cancelled_by and self.may_score >= self.needed

    def cancel(self, by: str) -> None:
        """Cancel the group: it does not train, not even on what is scored already. `by`: the operator's name."""
        if self.cancelled_by or (self.result is not None and not self.result.kept):
            return
        self.cancelled_by = by
        for trial in self.trials:
            trial.cancel(by)
        if self.result is not None:
            self._finish(self._result())

    async def run(self) -> GroupResult:
        """All trials to their end.

        Raises:
            PolicyStopError: a trial's failure ends the run; the group's other trials were cancelled first.
            TrialBrokenError: the same for a trial that could not be carried out.
        """
        self._context.emit(ev.GroupStarted(step=self.step, group=self.group, task=self.task, size=len(self.trials)))
        for trial in self.trials if self.cancelled_by else ():
            trial.cancel(self.cancelled_by or "operator")
        try:
            async with asyncio.TaskGroup() as tasks:
                for trial in self.trials:
                    tasks.create_task(self._run_trial(trial))
        except BaseExceptionGroup as errors:
            cause = next((e for e in errors.exceptions if isinstance(e, PolicyStopError)), errors.exceptions[0])
            self._abandon(str(cause))
            raise cause from None
        except asyncio.CancelledError:
            self._abandon("run ended")
            raise
        return self._finish(self._result())

    def _abandon(self, reason: str) -> None:
        with contextlib.suppress(OSError):  # a journal that takes nothing more ends the run by itself
            self._finish(GroupResult(group=self.group, kept=False, reason=reason, outcomes=self._outcomes()))

    async def _run_trial(self, trial: TrialRun) -> None:
        try:
            await trial.run()
        except (PolicyStopError, TrialBrokenError):
            for sibling in self.trials:
                sibling.cancel_cause = "group"
            raise

    def _result(self) -> GroupResult:
        results = [trial.result for trial in self.trials if trial.result is not None]
        scored = [r for r in results if r.verdict.scored and r.captured is not None]
        outcomes = self._outcomes()
        ended = self._recorded.ended
        if ended is not None and not ended.kept:
            return GroupResult(group=self.group, kept=False, reason=ended.reason, outcomes=outcomes)
        if self.cancelled_by:
            return GroupResult(
                group=self.group, kept=False, reason=f"cancelled by {self.cancelled_by}", outcomes=outcomes
            )
        if len(scored) < self.needed:
            reason = f"{len(scored)} scored of {len(self.trials)} trials, {self.needed} needed"
            return GroupResult(group=self.group, kept=False, reason=reason, outcomes=outcomes)
        result = GroupResult(group=self.group, kept=True, trials=scored, outcomes=outcomes)
        result.zero_variance = max(result.rewards) - min(result.rewards) <= ZERO_VARIANCE
        return result

    def _outcomes(self) -> dict[str, int]:
        counts: dict[str, int] = {}
        for trial in self.trials:
            outcome = trial.result.verdict.outcome if trial.result is not None else OutcomeClass.CANCELLED
            counts[outcome.value] = counts.get(outcome.value, 0) + 1
        return counts

    def _finish(self, result: GroupResult) -> GroupResult:
        mean, std = mean_and_std(result.rewards)
        self._context.emit(
            ev.GroupFinished(
                step=self.step,
                group=self.group,
                kept=result.kept,
                reason=result.reason,
                reward_mean=mean,
                reward_std=std,
                zero_variance=result.zero_variance,
            )
        )
        self.result = result
        return result
