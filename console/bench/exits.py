"""Why an agent that ended with an error did: its message first, then its own logs; of several reasons the last one."""

from __future__ import annotations

from console.bench.case import Case, Decision
from console.bench.model import Confidence, Evidence
from console.bench.rules import tables
from console.bench.texts import LOG
from console.outcomes import text, types
from console.outcomes.classes import OutcomeClass, Verdict
from console.outcomes.text import Hit

_LOG_TAIL = 2_000
"""Characters at the end of an agent's log that are searched: what stands before them is its work, not its end."""

_KILLED = (137, 143)
_NOT_FOUND = (126, 127)
_OWN_LIMIT = 124


def is_exit(case: Case, verdict: Verdict) -> bool:
    """Whether the exception only says that the agent gave up, so that texts have to say why."""
    error = case.error
    if error is None or case.phase in types.SETUP_PHASES or case.phase in types.VERIFIER_PHASES:
        return False
    kind = text.unwrapped(error.type, error.message)
    return (
        kind in types.AGENT_EXITS
        or kind in tables.READ_FROM_OUTPUT
        or (kind not in types.TYPE_RULES and kind not in types.SCOREABLE)
        # The model's own service may say in words that the conversation grew too long, whatever it calls that.
        or (verdict.cause == "api" and text.find(error.message, tables.CONTEXT_RULES) is not None)
    )


def exited(case: Case, verdict: Verdict, worked: bool) -> Decision:
    """The verdict on such a trial.

    Args:
        verdict: what training would say of it, which stands where nothing says more; worked: the agent has called
            tools or a model.
    """
    error = case.error
    assert error is not None
    kind, message = text.unwrapped(error.type, error.message), error.message
    said = text.searchable(kind, message)
    if tables.EXEC_TIMEOUT.match(message):
        return _failure("exec_timeout", "bench.exec_timeout", case.raised(), Confidence.HIGH)
    hit = text.find(said, tables.EXIT_RULES)
    if hit is not None:
        return _from_hit(hit, case.said(hit.evidence), _sure(said, hit))
    if kind in types.TYPE_RULES and kind not in types.AGENT_EXITS:
        return _by_type(case, verdict, said)
    found = _in_logs(case)
    if found is not None:
        return found
    code = text.exit_code(message) if message.startswith("Command failed") or kind in types.AGENT_EXITS else None
    if code in _KILLED:
        return Decision(
            outcome=OutcomeClass.AMBIGUOUS,
            cause="killed",
            rule="bench.killed",
            evidence=case.raised(),
            confidence=Confidence.LOW,
        )
    if code == _OWN_LIMIT:
        return _failure("exec_timeout", "bench.exec_timeout", case.raised(), Confidence.MEDIUM)
    if code in _NOT_FOUND and worked:
        return _failure("crash", "bench.exit_after_work", case.raised(), Confidence.LOW)
    if kind in tables.HARNESS_BUGS:
        return _failure("agent_bug", "bench.agent_bug", case.raised(), Confidence.MEDIUM)
    return Decision(
        outcome=verdict.outcome,
        cause=verdict.cause,
        rule=verdict.rule,
        evidence=case.raised(),
        confidence=Confidence.MEDIUM if verdict.rule == "exit.not_found" else Confidence.LOW,
    )


def _by_type(case: Case, verdict: Verdict, said: str) -> Decision:
    """A type that Harbor read out of the command's output, where no rule finds a reason in what is left of it.

    Where Harbor's word stands in the output, but in no line that looks like an error, or in one about a server of the
    agent's own, it is the agent's work, and nothing tells why the agent ended.
    """
    reported = text.find(said, (tables.REPORTED_WORDS,))
    in_work = text.find(said, (tables.HARBORS_WORDS,)) if reported is None else None
    complete = case.error is not None and "chars truncated]" not in case.error.message
    if in_work is not None and said.startswith(("stdout:", "stderr:")) and complete:
        return Decision(
            outcome=OutcomeClass.AMBIGUOUS,
            cause="output_words",
            rule="bench.output_words",
            evidence=case.said(in_work.evidence),
            confidence=Confidence.LOW,
        )
    return Decision(
        outcome=verdict.outcome,
        cause=verdict.cause,
        rule=verdict.rule,
        evidence=case.raised(),
        confidence=Confidence.MEDIUM,
    )


def _in_logs(case: Case) -> Decision | None:
    """What the end of the agent's newest log says. An error line is believed more than a word."""
    best: tuple[bool, Decision] | None = None
    for name in case.texts.agent():
        ending = case.texts.tail(name).text[-_LOG_TAIL:]
        hit = text.find(ending, tables.EXIT_RULES)
        if hit is None:
            continue
        line = case.texts.find(name, hit.evidence.strip("…").strip())
        evidence = line.evidence() if line else Evidence(file=name, text=hit.evidence)
        sure = Confidence.MEDIUM if hit.rule.guarded else Confidence.LOW
        if best is None or (hit.rule.guarded and not best[0]):
            best = (hit.rule.guarded, _from_hit(hit, evidence, sure))
    return best[1] if best else None


def _sure(said: str, hit: Hit) -> Confidence:
    """Less sure where the text has several reasons."""
    others = [rule for rule in tables.EXIT_RULES if (rule.outcome, rule.cause) != (hit.rule.outcome, hit.rule.cause)]
    return Confidence.LOW if text.find(said, others) is not None else Confidence.MEDIUM


def idle_killed(case: Case) -> Decision | None:
    """The provider's line that it took the sandbox away because nothing had been heard from it."""
    error = case.error
    if error is not None:
        hit = text.find(error.message, (tables.IDLE,))
        if hit is not None:
            return _from_hit(hit, case.said(hit.evidence), Confidence.HIGH)
    for name in (LOG, *case.texts.agent()):
        hit = text.find(case.texts.tail(name).text, (tables.IDLE,))
        if hit is not None:
            line = case.texts.find(name, hit.evidence.strip("…").strip())
            evidence = line.evidence() if line else Evidence(file=name, text=hit.evidence)
            return _from_hit(hit, evidence, Confidence.HIGH)
    return None


def words_of(case: Case, cause: str = "") -> Evidence | None:
    """The line of the exception that says most about its reason, where one does; only for `cause` when one is given."""
    error = case.error
    hit = text.find(text.searchable(error.type, error.message), tables.EXIT_RULES) if error else None
    return case.said(hit.evidence) if hit and cause in ("", hit.rule.cause) else None


def _from_hit(hit: Hit, evidence: Evidence, confidence: Confidence) -> Decision:
    return Decision(
        outcome=hit.rule.outcome,
        cause=hit.rule.cause,
        rule=hit.rule.rule,
        evidence=evidence,
        confidence=confidence,
    )


def _failure(cause: str, rule: str, evidence: Evidence, confidence: Confidence) -> Decision:
    return Decision(
        outcome=OutcomeClass.AGENT_FAILURE, cause=cause, rule=rule, evidence=evidence, confidence=confidence
    )
