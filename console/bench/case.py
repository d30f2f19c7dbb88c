"""What the rules of triage look at: one trial, its job as far as it is known, and its texts."""

from __future__ import annotations

import re
from functools import cached_property

import msgspec

from console.bench.model import Confidence, Evidence
from console.bench.texts import EXCEPTION, RESULT, TrialTexts
from console.bench.verifying import Fault, find_fault
from console.outcomes.classes import OutcomeClass
from console.outcomes.rewards import Reward, RewardPolicy, read_reward
from console.outcomes.text import bounded
from console.records.harbor.activity import Activity, activity
from console.records.harbor.model import JobRecord, RecordedError, TrialRecord

_ORDER = ("environment", "setup", "agent", "verify")
_FRAMES = (
    ("verify", re.compile(r"_verify_with_timeout|_run_shared_verifier|/verifier/\w+\.py")),
    ("agent", re.compile(r"_run_agent_phase|_execute_agent")),
    ("setup", re.compile(r"_setup_agent\b|_setup_user_agent|_run_step_setup|_upload_step_workdir")),
    ("environment", re.compile(r"_setup_agent_environment|_setup_environment|run_healthcheck|_prepare_step")),
)
"""Functions of Harbor that a traceback names, and the phase in which they run; in this order, deepest last."""


class Decision(msgspec.Struct, frozen=True, kw_only=True):
    """A verdict on a trial before its notes are added."""

    outcome: OutcomeClass
    cause: str = ""
    rule: str = ""
    evidence: Evidence = Evidence()
    confidence: Confidence = Confidence.HIGH
    notes: dict[str, str] = {}


class Case:
    """One trial as the rules see it.

    Attributes:
        trial, job: as read; `job` None when nobody has looked at it.
        policy: which of the rewards is the trial's, and how large it may be. Nothing is trained, so that no capture is
            asked for.
    """

    def __init__(self, trial: TrialRecord, job: JobRecord | None, reward_key: str = "reward") -> None:
        self.trial, self.job = trial, job
        self.policy = RewardPolicy(reward_key=_key(trial, reward_key), require_samples=False)
        self.texts = TrialTexts(trial)

    @property
    def error(self) -> RecordedError | None:
        """The exception that counts: the trial's own, else its first step's."""
        return self.trial.errors[0] if self.trial.errors else None

    @cached_property
    def reward(self) -> Reward:
        """What the verifier said."""
        return read_reward(self.trial.rewards, self.policy)

    @cached_property
    def activity(self) -> Activity:
        """What the agent's trajectory tells of its work."""
        return activity(self.trial.path)

    @property
    def agent_seconds(self) -> float | None:
        """Time in the agent's phase; None when unknown, and for several steps, each of which has a limit of its own."""
        phase = self.trial.phases.get("agent")
        return phase.seconds if phase is not None and not self.trial.steps else None

    @cached_property
    def phase(self) -> str | None:
        """The phase in which the exception happened, None when nothing tells.

        By the time at which it was recorded; by the functions in its traceback where that is unknown, and with steps,
        which repeat their phases; else the agent's phase of a step, or the last phase that began.
        """
        error = self.error
        if error is None:
            return None
        began = {name: phase.began for name, phase in self.trial.phases.items() if phase.began is not None}
        if error.at is not None and began and not self.trial.steps and error.at >= min(began.values()):
            return max((at, _ORDER.index(name), name) for name, at in began.items() if at <= error.at)[2]
        for name, frames in _FRAMES:
            if frames.search(error.traceback):
                return name
        if self.trial.steps and "agent" in began:
            return "agent"
        return next((name for name in reversed(_ORDER) if name in began), None)

    @property
    def after_the_end(self) -> bool:
        """Whether the exception came when the verifier had ended and its rewards were there.

        An exception of the verification itself is written down after its end, too, but leaves no rewards.
        """
        error, verify = self.error, self.trial.phases.get("verify")
        if error is None or error.at is None or error.step or verify is None or verify.ended is None:
            return False
        return self.trial.rewards is not None and self.phase == "verify" and error.at >= verify.ended

    @cached_property
    def verifier_fault(self) -> Fault | None:
        """What kept the verifier from its work."""
        return find_fault(self.texts)

    def rewards_line(self) -> Evidence:
        """The line of the result that has the reward, else the one that says that there is none."""
        found = self.texts.key(RESULT, '"verifier_result"', '"rewards"', f'"{self.policy.reward_key}"')
        found = found or self.texts.key(RESULT, '"verifier_result"')
        return found.evidence() if found else Evidence(file=RESULT, text=self.reward.evidence)

    def said(self, line: str) -> Evidence:
        """Where the exception says `line`, which is one line as the rules give it; the exception when it does not."""
        error = self.error
        if error is None:
            return Evidence(text=bounded(line))
        # The rules cut a long line, and set the bare type before a message that the file has behind its module.
        wanted = line.strip("…").strip()
        for fragment in (wanted, wanted.removeprefix(f"{error.type}: ")):
            found = None if error.step or len(fragment) < 4 else self.texts.find(EXCEPTION, fragment)
            if found is not None:
                return found.evidence()
        return self._recorded(error, line)

    def raised(self) -> Evidence:
        """The line that names the exception."""
        error = self.error
        if error is None:
            return Evidence()
        for fragment in (f"{error.type}:", error.type):
            found = None if error.step else self.texts.find(EXCEPTION, fragment)
            if found is not None:
                return found.evidence()
        first = next((line for line in error.message.splitlines() if line.strip()), "")
        return self._recorded(error, f"{error.type}: {first}" if first else error.type)

    def _recorded(self, error: RecordedError, text: str) -> Evidence:
        keys = [f'"step_name": "{error.step}"'] if error.step else []
        found = self.texts.key(error.file, *keys, f'"{error.type}"') if error.file.endswith(".json") else None
        return Evidence(file=error.file, line=found.number if found else None, text=bounded(text))


def _key(trial: TrialRecord, wanted: str) -> str:
    """The reward's key: the one that was asked for, or the only one there is."""
    rewards = trial.rewards or {}
    return next(iter(rewards)) if wanted not in rewards and len(rewards) == 1 else wanted
