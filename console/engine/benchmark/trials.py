"""What became of the trials of a job, in the words of a run: groups are tasks, trials are attempts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator

from console.bench.model import Judged
from console.engine.benchmark.judging import finished, without_result
from console.journal import events as ev
from console.outcomes.classes import SCORED
from console.state.benchmark import scores_of
from console.state.reduce_trials import mean_and_std
from console.trials.job_plugin_protocol import JobPlanned, PlannedTrial


class TrialRun:
    """One attempt.

    Attributes:
        name: Harbor's; group, trial: its place; try_: the last try that began, -1 before the first.
        at_work: a try has begun and not ended, or Harbor is about to try once more; told: its last known end.
        final: its end is known and Harbor will not try it again.
    """

    __slots__ = ("at_work", "final", "group", "name", "told", "trial", "try_")

    def __init__(self, name: str, group: int, trial: int) -> None:
        self.name, self.group, self.trial, self.try_ = name, group, trial, -1
        self.at_work = self.final = False
        self.told: ev.TrialFinished | None = None


class Trials:
    """Writes the events of a step, its groups and its trials.

    Args:
        emit: appends an event; plan: of the job.
    """

    def __init__(self, emit: Callable[[ev.Event], None], plan: JobPlanned) -> None:
        self._emit = emit
        self._by_name: dict[str, TrialRun] = {}
        self._groups: list[list[TrialRun]] = []
        self._open: list[int] = []
        self._tasks: list[str] = []
        self._known: dict[tuple[str, str, str], int] = {}
        self._place(plan.trials)

    def _place(self, planned: list[PlannedTrial]) -> None:
        several = len({(trial.agent, trial.model) for trial in planned}) > 1
        known = self._known
        for one in planned:
            group = known.setdefault((one.task, one.agent, one.model), len(known))
            if group == len(self._groups):
                self._groups.append([])
                who = " ".join(part for part in (one.agent, one.model) if part)
                self._tasks.append(f"{one.task} ({who})" if several else one.task)
            trial = self._by_name[one.name] = TrialRun(one.name, group, len(self._groups[group]))
            self._groups[group].append(trial)
        self._open = [len(trials) for trials in self._groups]

    def __iter__(self) -> Iterator[TrialRun]:
        return iter(self._by_name.values())

    def __len__(self) -> int:
        return len(self._by_name)

    @property
    def groups(self) -> int:
        """Number of tasks, once for each agent and model."""
        return len(self._groups)

    def start(self) -> None:
        """The step begins, with all its groups."""
        self._emit(ev.StepStarted(step=0, groups=len(self._groups), policy_version=0))
        for index, (task, trials) in enumerate(zip(self._tasks, self._groups, strict=True)):
            self._emit(ev.GroupStarted(step=0, group=index, task=task, size=len(trials)))

    def get(self, name: str) -> TrialRun | None:
        """A trial by Harbor's name."""
        return self._by_name.get(name)

    @property
    def at_work(self) -> int:
        """Trials that began and are not at their end."""
        return sum(trial.at_work for trial in self)

    @property
    def left(self) -> int:
        """Trials whose end is not known."""
        return sum(not trial.final for trial in self)

    @property
    def tasks(self) -> int:
        """Number of tasks."""
        return len({task for task, _, _ in self._known})

    @property
    def begun(self) -> bool:
        """Whether any trial has begun."""
        return any(trial.try_ >= 0 for trial in self)

    # --- what happens ----------------------------------------

    def began(self, trial: TrialRun, try_: int) -> None:
        """A try passed the gate."""
        trial.try_, trial.at_work = try_, True
        self.phase(trial, try_, "create")

    def phase(self, trial: TrialRun, try_: int, phase: str) -> None:
        """A try entered a phase."""
        self._emit(ev.TrialPhase(step=0, group=trial.group, trial=trial.trial, try_=try_, phase=phase))

    def ended(
        self, trial: TrialRun, try_: int, judged: Judged, *, again: bool = False, reused: bool = False, lost: str = ""
    ) -> None:
        """A try was judged. `again`: Harbor tries once more; `reused`: it stood before this run; `lost`: why it has no
        result, empty for one that has."""
        event = finished(judged, trial.group, trial.trial, try_, reused=reused)
        self.tell(trial, without_result(event, lost) if lost else event, again=again)

    def tell(self, trial: TrialRun, event: ev.TrialFinished, *, again: bool = False) -> None:
        """A try ended as the event says."""
        self._emit(event)
        trial.told = event
        if again:
            self._emit(ev.TrialRetried(step=0, group=trial.group, trial=trial.trial, try_=event.try_ + 1, by="harbor"))
            return
        trial.at_work = False
        if not trial.final:
            trial.final = True
            self._open[trial.group] -= 1
            if not self._open[trial.group]:
                self._close(trial.group)

    def _close(self, group: int) -> None:
        told = [trial.told for trial in self._groups[group] if trial.told is not None]
        failed = Counter(event.outcome for event in told if event.outcome not in SCORED)
        mean, std = mean_and_std(scores_of(told))
        self._emit(
            ev.GroupFinished(
                step=0,
                group=group,
                kept=not failed,
                reason=", ".join(f"{count} {outcome}" for outcome, count in failed.most_common()),
                reward_mean=mean,
                reward_std=std,
                zero_variance=std == 0,
            )
        )

    def finish(self, seconds: float) -> None:
        """The step is over, every trial has its end. `seconds`: since its start."""
        told = [trial.told for trial in self if trial.told is not None]
        mean, std = mean_and_std(scores_of(told))
        kept = sum(all(t.told is not None and t.told.outcome in SCORED for t in group) for group in self._groups)
        self._emit(
            ev.StepFinished(
                step=0,
                reward_mean=mean,
                reward_std=std,
                outcomes=dict(Counter(event.outcome for event in told)),
                groups_kept=kept,
                groups_dropped=len(self._groups) - kept,
                tokens_prompt=sum(event.prompt_tokens for event in told),
                tokens_sampled=sum(event.sampled_tokens for event in told),
                seconds_rollout=round(seconds, 3),
                seconds_total=round(seconds, 3),
            )
        )
