"""What the capture gateway's record of a trial's model calls says about its end."""

from __future__ import annotations

from console.outcomes.classes import CallEvidence, OutcomeClass, TrialEvidence, Verdict
from console.outcomes.text import bounded

BACKEND_SHARE = 0.2
"""Share of the agent's time lost to backend trouble from which a timeout or crash is not the agent's."""

LIMITS = {
    "overflow": OutcomeClass.CONTEXT_OVERFLOW,
    "output_limit": OutcomeClass.OUTPUT_LIMIT,
    "budget": OutcomeClass.OUTPUT_LIMIT,
}
"""Refusals of the capture gateway that are limits of the model's: scored, also when the agent crashes on them."""

TIMEOUT_SLACK = 0.9
"""An agent that ran for less than this share of its limit did not time out; some inner timeout took its name."""


def integrity(calls: CallEvidence) -> Verdict | None:
    """A verdict when captured data are missing or unusable, else None. It beats every other finding of the trial."""
    if calls.lost:
        return Verdict(
            outcome=OutcomeClass.CAPTURE_LOSS,
            cause="lost",
            rule="calls.lost",
            evidence=f"{calls.lost} of {calls.calls} answered calls have no readable record",
        )
    if calls.no_logprobs:
        return Verdict(
            outcome=OutcomeClass.NO_LOGPROBS,
            cause="logprobs",
            rule="calls.no_logprobs",
            evidence=f"{calls.no_logprobs} samples have missing, wrongly sized or non-finite log-probs",
        )
    return None


def backend_trouble(evidence: TrialEvidence) -> Verdict | None:
    """Infrastructure when the last call failed at the backend, or when such trouble took too much of the agent's time.

    Asked only of trials that timed out or crashed: the others survived whatever happened.
    """
    calls = evidence.calls
    if calls is None:
        return None
    if calls.last_failure == "backend":
        why = f"the last model call failed at the backend: {calls.last_failure_text or 'no text'}"
        return _infrastructure("calls.backend_last", why)
    seconds = evidence.agent_seconds
    if seconds and seconds > 0 and calls.backend_seconds >= BACKEND_SHARE * seconds:
        why = f"backend trouble took {calls.backend_seconds:.0f} s of the agent's {seconds:.0f} s"
        return _infrastructure("calls.backend_share", why)
    return None


def without_samples(calls: CallEvidence) -> Verdict:
    """The verdict of a trial that ended in a scoreable way but has no captured sample to train."""
    if not calls.calls and (calls.last_failure == "backend" or calls.backend_seconds > 0):
        why = f"no model call succeeded, {calls.failed} failed: {calls.last_failure_text or 'backend trouble'}"
        return _infrastructure("calls.backend_only", why)
    if calls.last_failure == "auth":
        return Verdict(
            outcome=OutcomeClass.CONFIGURATION, cause="key", rule="calls.auth", evidence=wrong_key_text(calls)
        )
    if calls.calls:
        why = f"{calls.calls} model calls were answered, and none of them may be trained"
        return Verdict(outcome=OutcomeClass.NO_SAMPLES, cause="excluded", rule="calls.excluded", evidence=bounded(why))
    if calls.failed:
        why = f"no model call succeeded, {calls.failed} failed ({calls.last_failure}): {calls.last_failure_text}"
    else:
        why = "the agent made no model call through the capture gateway"
    cause = calls.last_failure or "no_calls"
    return Verdict(outcome=OutcomeClass.NO_SAMPLES, cause=cause, rule="calls.none", evidence=bounded(why))


def fake_timeout(evidence: TrialEvidence) -> Verdict | None:
    """Infrastructure when `AgentTimeoutError` came long before the agent's limit.

    Harbor gives that name to any `TimeoutError` raised during the agent phase, e.g. by a sandbox's own client. With
    the agent's time known, a missing limit means that there was none to reach. Unknown time proves nothing.
    """
    seconds, limit = evidence.agent_seconds, evidence.agent_timeout
    if seconds is None or (limit is not None and (seconds >= TIMEOUT_SLACK * limit or limit - seconds < 1.0)):
        return None
    shown = "no limit" if limit is None else f"a limit of {limit:g} s"
    return Verdict(
        outcome=OutcomeClass.INFRASTRUCTURE,
        cause="sandbox",
        rule="calls.early_timeout",
        evidence=f"the agent ran for {seconds:.1f} s with {shown}: the timeout was not its own",
        retryable=True,
    )


def survived(calls: CallEvidence) -> tuple[str, ...]:
    """Notes on trouble that did not decide."""
    notes = []
    if calls.failed:
        kind = f", the last one ({calls.last_failure})" if calls.last_failure else ""
        notes.append(f"{calls.failed} model calls failed{kind}; {calls.calls} were answered")
    if calls.backend_seconds > 0:
        notes.append(f"backend trouble took {calls.backend_seconds:.1f} s")
    if calls.truncated:
        notes.append("the last answer ended at its token limit")
    if calls.calls == 1:
        notes.append("the agent made one model call only")
    return tuple(notes)


def wrong_key_text(calls: CallEvidence) -> str:
    """How the gateway refused the agent's key."""
    return bounded(f"the capture gateway refused the agent's key: {calls.last_failure_text or 'unauthorised'}")


def _infrastructure(rule: str, why: str) -> Verdict:
    return Verdict(outcome=OutcomeClass.INFRASTRUCTURE, cause="api", rule=rule, evidence=bounded(why), retryable=True)
