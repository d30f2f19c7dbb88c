"""What an operator changes while the run lasts: dispatch, tunables, the tasks of later batches, the stop.

On the main loop. The training thread reads `quarantined` and asks `latch.asked`; both are single reads.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from console.engine.latch import OPERATOR, Budgets, StopLatch
from console.engine.step_groups import StepGroups
from console.errors import UsageError
from console.journal import events as ev
from console.training.options import RunOptions
from console.training.slots import Dispatch
from console.training.tasks import find_tasks
from console.training.trial_context import FailurePolicy, Totals


class Steering:
    """Each change is an event first, and then done: what cannot be recorded does not happen.

    Attributes:
        dispatch: when trials begin; policy: what failures do; latch, budgets: when the run stops.
        groups: those of the current step; quarantined: names of the tasks that new batches leave out.

    Args:
        options: of the run; on_failure: stop, hold or retry; totals: captured so far; emit: appends an event.
        quarantined: of an earlier engine of the run.
    """

    def __init__(
        self,
        options: RunOptions,
        on_failure: str,
        totals: Totals,
        emit: Callable[[ev.Event], None],
        quarantined: Collection[str] = (),
    ) -> None:
        self._options, self._emit = options, emit
        self.dispatch = Dispatch(options.harbor.max_parallel_trials_per_group)
        self.policy = FailurePolicy(
            on_failure=on_failure, max_tries=options.harbor.max_tries, hold_timeout=options.console.hold_timeout
        )
        self.latch = StopLatch(emit)
        self.budgets = Budgets(self.latch, totals, options.console.token_budget, options.console.time_budget)
        self.groups = StepGroups()
        self.quarantined = frozenset(quarantined)
        self._tasks: list[str] = []

    @property
    def tunables(self) -> dict[str, float | None]:
        """What may be changed, with its value now."""
        return {
            "parallel": self.dispatch.parallel,
            "hold_timeout": self.policy.hold_timeout,
            "max_tries": self.policy.max_tries,
            **self.budgets.limits,
        }

    def tune(self, name: str, value: float | None, by: str) -> None:
        """Change one of `tunables` to a value that fits; it counts at once."""
        self._emit(ev.RunTuned(name=name, old=self.tunables[name], new=value, by=by))
        if name in self.budgets.limits:
            self.budgets.change(name, value, by)
        elif value is not None and name == "parallel":
            self.dispatch.resize(int(value))
        elif value is not None and name == "max_tries":
            self.policy.max_tries = int(value)
        elif value is not None and name == "hold_timeout":
            self.policy.hold_timeout = value
            for trial in self.groups.trials:
                trial.move_deadline()

    def pause(self, paused: bool, by: str) -> None:
        """Begin no trial any more, or begin those that wait."""
        self._emit(ev.DispatchPaused(paused=paused, by=by))
        self.dispatch.pause(paused)

    def stop_after_step(self, on: bool, by: str) -> None:
        """Set or take back the operator's request."""
        if on:
            self.latch.hold(OPERATOR, by, "stopped by the operator")
        else:
            self.latch.drop(OPERATOR, by)

    @property
    def tasks(self) -> list[str]:
        """Names of the run's tasks; empty when there are none to be found."""
        if not self._tasks:
            try:
                self._tasks = [path.name for path in find_tasks(self._options.tasks_dir)]
            except (UsageError, OSError):
                return []
        return self._tasks

    def quarantine(self, task: str, on: bool, by: str) -> None:
        """Leave a task out of the batches that begin from now on, or take it in again."""
        self._emit(ev.TaskQuarantined(task=task, on=on, by=by))
        self.quarantined = self.quarantined | {task} if on else self.quarantined - {task}

    def check_quarantine(self) -> None:
        """A resumed run may have other tasks than before: a quarantine that leaves none of them is lifted."""
        if self.tasks and self.quarantined.issuperset(self.tasks):
            for task in sorted(self.quarantined):
                self.quarantine(task, False, "engine")
            self._emit(ev.Note(text="the quarantine left no task and was lifted", level="warning"))
