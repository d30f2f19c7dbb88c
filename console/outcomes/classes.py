"""Outcome classes and what each allows. The table is the one of the README; nothing else defines a class."""

from __future__ import annotations

from enum import StrEnum

import msgspec


class OutcomeClass(StrEnum):
    """How a trial ended, from the trainer's point of view."""

    COMPLETED = "completed"
    AGENT_TIMEOUT = "agent_timeout"
    CONTEXT_OVERFLOW = "context_overflow"
    OUTPUT_LIMIT = "output_limit"
    INFRASTRUCTURE = "infrastructure"
    BAD_REWARD = "bad_reward"
    AGENT_FAILURE = "agent_failure"
    CAPTURE_LOSS = "capture_loss"
    NO_LOGPROBS = "no_logprobs"
    NO_SAMPLES = "no_samples"
    CONFIGURATION = "configuration"
    CANCELLED = "cancelled"
    AMBIGUOUS = "ambiguous"
    UNREADABLE = "unreadable"


SCORED = frozenset(
    {
        OutcomeClass.COMPLETED,
        OutcomeClass.AGENT_TIMEOUT,
        OutcomeClass.CONTEXT_OVERFLOW,
        OutcomeClass.OUTPUT_LIMIT,
    }
)
"""Classes that carry the verifier's reward into training."""

STOP_EXIT_CODES: dict[OutcomeClass, int] = {
    OutcomeClass.INFRASTRUCTURE: 4,
    OutcomeClass.BAD_REWARD: 4,
    OutcomeClass.AGENT_FAILURE: 4,
    OutcomeClass.NO_SAMPLES: 4,
    OutcomeClass.CAPTURE_LOSS: 6,
    OutcomeClass.NO_LOGPROBS: 6,
    OutcomeClass.CONFIGURATION: 2,
}
"""Exit code when a trial of this class stops the run by policy."""


class CallEvidence(msgspec.Struct, kw_only=True, frozen=True):
    """What the capture gateway saw of a trial's model calls.

    Attributes:
        calls: calls that were answered with a sample; failed: answered with an error.
        sampled_tokens: tokens of the answered calls; trained: answered calls that may be trained, None when nobody has
            looked yet.
        lost: answered calls whose record is missing or unreadable; no_logprobs: samples with missing, wrongly sized,
            non-finite or positive log-probs.
        last_failure: kind of the last call when that one failed: backend, overflow, output_limit, budget, client, auth,
            request; else None. `last_failure_text` is bounded.
        backend_seconds: agent time lost to backend trouble (failed calls and waits for their repetition), in seconds.
        overflowed: some call was refused because prompt and budget exceed the window; truncated: the last answered call
            ended at its token limit.
    """

    calls: int = 0
    failed: int = 0
    sampled_tokens: int = 0
    trained: int | None = None
    lost: int = 0
    no_logprobs: int = 0
    last_failure: str | None = None
    last_failure_text: str = ""
    backend_seconds: float = 0.0
    overflowed: bool = False
    truncated: bool = False


class TrialEvidence(msgspec.Struct, kw_only=True, frozen=True):
    """Everything a rule may look at. All texts are bounded by whoever fills them.

    Attributes:
        exception_type, exception_message, exception_phase: as Harbor recorded them; None, "" and None for a clean end.
        rewards: the verifier's rewards, None without a result; non-finite numbers may arrive as "nan", "inf", "-inf".
        verifier_output: tail of the verifier's output.
        agent_seconds: time in the agent phase; agent_timeout: the limit that applied; both in seconds.
        calls: the capture gateway's record, None when the trial never had a route (then no rule asks for one).
        cancelled_by: operator, group, run or None: who cancelled it, as the engine knows.
    """

    exception_type: str | None = None
    exception_message: str = ""
    exception_phase: str | None = None
    rewards: dict[str, float | str | bool | None] | None = None
    verifier_output: str = ""
    agent_seconds: float | None = None
    agent_timeout: float | None = None
    calls: CallEvidence | None = None
    cancelled_by: str | None = None


class Verdict(msgspec.Struct, kw_only=True, frozen=True):
    """The classification of a try.

    Attributes:
        outcome, cause: class and cause within it; rule: id of the rule that decided, e.g. `type.sandbox`.
        evidence: the text that decided, at most 300 characters, from one place.
        reward: the number to train on; None unless `outcome` is scored.
        retryable: True for infrastructure that a further try may cure.
        notes: findings that did not decide, e.g. trouble that the agent survived.
    """

    outcome: OutcomeClass
    cause: str = ""
    rule: str = ""
    evidence: str = ""
    reward: float | None = None
    retryable: bool = False
    notes: tuple[str, ...] = ()

    @property
    def scored(self) -> bool:
        """Whether the reward may be trained on."""
        return self.outcome in SCORED
