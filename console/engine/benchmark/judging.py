"""From a trial's directory to the event that tells how it ended: the record and the verdict of `bench triage`."""

from __future__ import annotations

from pathlib import Path

import msgspec

from console.bench.model import Judged
from console.bench.rules.user import UserRules
from console.bench.triage import judge
from console.journal import events as ev
from console.outcomes.classes import OutcomeClass
from console.records.harbor.model import JobRecord
from console.records.harbor.trials import read_trial
from console.state.benchmark import VERIFIED


class Judge:
    """Judges the trials of one job while it runs. `look` reads files and takes milliseconds: not on the event loop."""

    def __init__(self, job_dir: Path, rules: UserRules | None = None) -> None:
        self._job_dir, self._rules = job_dir, rules
        self._job = JobRecord(path=job_dir, name=job_dir.name, running=True)

    def look(self, name: str) -> Judged:
        """The verdict on a trial as its directory is now. Raises nothing for what lies in it."""
        return judge(read_trial(self._job_dir, self._job_dir / name), self._rules, self._job)

    def ended(self, name: str) -> bool:
        """Whether the trial has a result."""
        return (self._job_dir / name / "result.json").is_file()


def finished(judged: Judged, group: int, trial: int, try_: int, *, reused: bool = False) -> ev.TrialFinished:
    """The event of a verdict."""
    record = judged.trial
    seconds = {name: phase.seconds for name, phase in record.phases.items() if phase.seconds is not None}
    if record.began is not None and record.ended is not None:
        # A trial waits for its turn with its clock running: its first phase is where it began.
        first = min((phase.began for phase in record.phases.values() if phase.began is not None), default=record.began)
        seconds["total"] = max(0.0, record.ended - first)
    return ev.TrialFinished(
        step=0,
        group=group,
        trial=trial,
        try_=try_,
        outcome=judged.outcome.value,
        cause=judged.cause,
        rule=judged.rule,
        evidence=judged.evidence.text,
        reward=judged.reward if judged.outcome in VERIFIED else None,
        retryable=judged.outcome is OutcomeClass.INFRASTRUCTURE,
        exception=record.errors[0].type if record.errors else None,
        trial_dir=str(record.path),
        seconds={name: round(value, 3) for name, value in seconds.items()},
        prompt_tokens=record.input_tokens or 0,
        cached_tokens=record.cached_tokens or 0,
        sampled_tokens=record.output_tokens or 0,
        cost_usd=record.cost_usd,
        reused=reused,
    )


def without_result(event: ev.TrialFinished, why: str) -> ev.TrialFinished:
    """The event of a trial that was cut off. Where its exception tells more than that it has no result, that stays."""
    if event.outcome != OutcomeClass.UNREADABLE:
        return event
    return msgspec.structs.replace(
        event,
        outcome=OutcomeClass.INFRASTRUCTURE.value,
        cause="runner",
        rule="bench.incomplete",
        evidence=why,
        retryable=True,
    )
