"""`classify`: from a trial's evidence to its outcome.

Order, first decision wins: captured data that are lost or unusable; what failed before the agent ran; the exception's
type, where the type is not on the allow-list (`types.py`); infrastructure behind a timeout; missing samples; the
reward; a verifier that did not work behind a zero. A trial that somebody cancelled is `cancelled` unless it had ended
in a scoreable way before. Infrastructure never becomes a reward, and an unknown exception is never scored.
"""

from __future__ import annotations

from console.outcomes import calls as record
from console.outcomes import text, types
from console.outcomes.classes import CallEvidence, OutcomeClass, TrialEvidence, Verdict
from console.outcomes.rewards import RewardPolicy, read_reward

_CAUSE_OF_PHASE = {"create": "setup", "environment": "sandbox", "setup": "setup"}
_NO_CALLS = CallEvidence()
_KILLED = (137, 143)
_PLAIN = types.TYPE_RULES[types.CANCELLED].rule


def classify(evidence: TrialEvidence, policy: RewardPolicy | None = None) -> Verdict:
    """The verdict on one try. Total: every evidence has one, and each names its rule and the text that decided."""
    policy = policy or RewardPolicy()
    verdict = _decide(evidence, policy)
    cut_off = (evidence.calls or _NO_CALLS).last_failure is not None
    if evidence.cancelled_by and (not verdict.scored or cut_off):
        return Verdict(
            outcome=OutcomeClass.CANCELLED,
            cause=evidence.cancelled_by,
            rule="cancelled.asked",
            evidence=f"cancelled by {evidence.cancelled_by}",
            notes=() if verdict.rule == _PLAIN else (f"otherwise {verdict.outcome.value}: {verdict.evidence}",),
        )
    return verdict


def _decide(evidence: TrialEvidence, policy: RewardPolicy) -> Verdict:
    broken = record.integrity(evidence.calls) if evidence.calls else None
    if broken is not None:
        return broken
    kind = evidence.exception_type
    if kind is not None:
        inner = text.unwrapped(kind, evidence.exception_message)
        kind = kind if inner in types.SCOREABLE else inner  # a message never puts a type on the allow-list
        early = _before_the_agent(kind, evidence)
        if early is not None:
            return early
        if kind not in types.SCOREABLE:
            return _by_type(kind, evidence, policy)
    last = (evidence.calls or _NO_CALLS).last_failure
    if kind is None and last in record.LIMITS:
        return _at_limit(last, evidence, policy)  # an agent that ends in order when it is told so
    return _scoreable(types.SCOREABLE[kind], evidence, policy, rule="type.allowed" if kind else "end.clean")


def _before_the_agent(kind: str, evidence: TrialEvidence) -> Verdict | None:
    """Whatever fails before the agent runs is infrastructure, unless the configuration is at fault."""
    message = evidence.exception_message
    if kind == types.CREATE_REFUSED:
        hit = text.find(message, text.CREATE_RULES)
        return _from_hit(hit) if hit else _from_type(types.TYPE_RULES[kind], kind, message)
    if evidence.exception_phase not in types.SETUP_PHASES or kind == types.CANCELLED:
        return None
    hit = text.find(message, text.IMAGE_RULES)
    if hit:
        return _from_hit(hit)
    rule = types.TYPE_RULES.get(kind)
    if rule and rule.outcome in (OutcomeClass.CONFIGURATION, OutcomeClass.INFRASTRUCTURE):
        return _from_type(rule, kind, message)
    cause = _CAUSE_OF_PHASE[evidence.exception_phase or "setup"]
    return _infrastructure(cause, f"phase.{evidence.exception_phase}", kind, message)


def _by_type(kind: str, evidence: TrialEvidence, policy: RewardPolicy) -> Verdict:
    """The verdict of an exception outside the allow-list."""
    if kind in types.AGENT_EXITS:
        return _agent_exit(kind, evidence, policy)
    message = evidence.exception_message
    calls = evidence.calls or _NO_CALLS
    if kind in types.AUTH and calls.calls and calls.last_failure != "auth":
        # The route's key was good: the agent asked somebody else, or its output only looks like a refusal.
        return record.backend_trouble(evidence) or _crash(kind, message, "the capture gateway accepted the key")
    if kind in types.OUTPUT_DERIVED and _contradicted(calls, message):
        return _crash(kind, message, "no model call failed; Harbor read this in the agent's output")
    rule = types.TYPE_RULES.get(kind)
    if rule is None:
        return _unknown(kind, evidence)
    if kind == "VerifierOutputParseError" and "non-finite" in message.lower():
        rule = rule._replace(cause="non_finite", rule="type.reward_non_finite")
    return _from_type(rule, kind, message)


def _contradicted(calls: CallEvidence, message: str) -> bool:
    quoted = message.startswith("Command failed") and text.searchable("", message).strip()
    return bool(calls.calls and not calls.failed and quoted and text.find(quoted, text.EXIT_RULES) is None)


def _agent_exit(kind: str, evidence: TrialEvidence, policy: RewardPolicy) -> Verdict:
    """An agent that gave up: what its last call met, then what its output says, then its exit code."""
    message = evidence.exception_message
    calls = evidence.calls or _NO_CALLS
    if calls.last_failure in record.LIMITS:
        return _at_limit(calls.last_failure, evidence, policy)
    trouble = record.backend_trouble(evidence)
    if trouble:
        return trouble
    if calls.last_failure == "auth":
        return Verdict(
            outcome=OutcomeClass.CONFIGURATION, cause="key", rule="calls.auth", evidence=record.wrong_key_text(calls)
        )
    hit = text.find(text.searchable(kind, message), text.EXIT_RULES)
    if hit and not (calls.calls and not calls.failed and hit.rule.rule in ("text.rate", "text.api", "text.auth")):
        return _from_hit(hit, notes=record.survived(calls))
    if calls.truncated and not calls.last_failure and text.exit_code(message) not in _KILLED:
        return _scoreable(OutcomeClass.OUTPUT_LIMIT, evidence, policy, rule="calls.truncated_last")
    return _by_exit_code(kind, message, calls)


def _at_limit(failure: str, evidence: TrialEvidence, policy: RewardPolicy) -> Verdict:
    """The capture gateway itself refused the call that ended the agent, so this is a limit and not a crash."""
    return _scoreable(record.LIMITS[failure], evidence, policy, rule=f"calls.{failure}_last")


def _by_exit_code(kind: str, message: str, calls: CallEvidence) -> Verdict:
    code = text.exit_code(message)
    if code in (126, 127) and not calls.calls:
        return _infrastructure("setup", "exit.not_found", kind, message)
    notes = record.survived(calls)
    if code in _KILLED:
        return _failure("killed", "exit.killed", kind, message, notes)
    return _failure("crash", "exit.crash", kind, message, notes)


def _unknown(kind: str, evidence: TrialEvidence) -> Verdict:
    """A name that no table has. It is not scored; where it happened and what it says give it a class."""
    message = evidence.exception_message
    trouble = record.backend_trouble(evidence)
    if trouble:
        return trouble
    if evidence.exception_phase in types.VERIFIER_PHASES:
        hit = text.find(message, text.VERIFY_RULES)
        if hit:
            return _from_hit(hit)
        return _infrastructure("sandbox", f"phase.{evidence.exception_phase}", kind, message)
    hit = text.find(text.searchable(kind, message), text.EXIT_RULES)
    if hit:
        return _from_hit(hit)
    return _failure("crash", "type.unknown", kind, message, record.survived(evidence.calls or _NO_CALLS))


def _scoreable(outcome: OutcomeClass, evidence: TrialEvidence, policy: RewardPolicy, *, rule: str) -> Verdict:
    """A trial that ended in a way that is scored: with samples, a believable reward, and a verifier that worked."""
    if outcome is OutcomeClass.AGENT_TIMEOUT:
        stolen = record.backend_trouble(evidence) or record.fake_timeout(evidence)
        if stolen:
            return stolen
    calls = evidence.calls
    if calls is not None and policy.require_samples and (not calls.calls or calls.trained == 0):
        return record.without_samples(calls)
    reward = read_reward(evidence.rewards, policy)
    if reward.value is None:
        return _bad_reward(reward.fault, f"reward.{reward.fault}", reward.evidence)
    fault = _fault_behind_zero(evidence, policy) if reward.value == 0 else None
    if fault:
        return fault
    if reward.value <= 0 and outcome is OutcomeClass.COMPLETED and calls and calls.last_failure == "backend":
        # The agent ended by itself, but on a failed call and with nothing won: an outage would be scored as zero.
        trouble = record.backend_trouble(evidence)
        if trouble:
            return trouble
    said = evidence.exception_message or f"{policy.reward_key} {reward.value:g}"
    notes = record.survived(calls) if calls else ()
    return Verdict(outcome=outcome, rule=rule, evidence=text.bounded(said), reward=reward.value, notes=notes)


def _fault_behind_zero(evidence: TrialEvidence, policy: RewardPolicy) -> Verdict | None:
    if policy.verifier_faults == "score":
        return None
    hit = text.verifier_fault(evidence.verifier_output)
    return _bad_reward(hit.rule.cause, hit.rule.rule, hit.evidence) if hit else None


def _bad_reward(cause: str, rule: str, why: str) -> Verdict:
    return Verdict(outcome=OutcomeClass.BAD_REWARD, cause=cause, rule=rule, evidence=text.bounded(why))


def _from_type(rule: types.TypeRule, kind: str, message: str) -> Verdict:
    return Verdict(
        outcome=rule.outcome,
        cause=rule.cause,
        rule=rule.rule,
        evidence=_said(kind, message),
        retryable=rule.outcome is OutcomeClass.INFRASTRUCTURE,
    )


def _from_hit(hit: text.Hit, notes: tuple[str, ...] = ()) -> Verdict:
    return Verdict(
        outcome=hit.rule.outcome,
        cause=hit.rule.cause,
        rule=hit.rule.rule,
        evidence=hit.evidence,
        retryable=hit.rule.outcome is OutcomeClass.INFRASTRUCTURE,
        notes=notes,
    )


def _infrastructure(cause: str, rule: str, kind: str, message: str) -> Verdict:
    return Verdict(
        outcome=OutcomeClass.INFRASTRUCTURE, cause=cause, rule=rule, evidence=_said(kind, message), retryable=True
    )


def _failure(cause: str, rule: str, kind: str, message: str, notes: tuple[str, ...]) -> Verdict:
    return Verdict(
        outcome=OutcomeClass.AGENT_FAILURE, cause=cause, rule=rule, evidence=_said(kind, message), notes=notes
    )


def _crash(kind: str, message: str, note: str) -> Verdict:
    return _failure("crash", "calls.contradict", kind, message, (note,))


def _said(kind: str, message: str) -> str:
    """The exception as one bounded line; the end of a long message is the telling part."""
    room = text.LIMIT - len(kind) - 3
    said = " ".join(message.split())
    return text.bounded(f"{kind}: {said if len(said) <= room else '…' + said[-room:]}") if said else kind
