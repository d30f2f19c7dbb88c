"""`judge`: from what a trial left on the disk to an outcome class and a cause, with the line that decided.

The order of the rules, first decision wins: what somebody said of this very trial; a user's rules; whether there is a
result; an exception that came after the end; a cancellation; then the rules of training, where they know more than that
something failed; the words of an agent that gave up; a verifier that did not do its work. Class and cause are those of
training; what only a job directory can tell has rules whose ids begin with `bench.`.
"""

from __future__ import annotations

import os
from typing import Any

import msgspec

from console.bench import exits
from console.bench.case import Case, Decision
from console.bench.model import Confidence, Evidence, Judged
from console.bench.notes import notes_of, worked
from console.bench.rules import tables
from console.bench.rules.user import UserRule, UserRules, last_match
from console.bench.texts import LOG
from console.bench.verifying import second_error
from console.outcomes import types
from console.outcomes.classes import SCORED, OutcomeClass, TrialEvidence, Verdict
from console.outcomes.rules import classify
from console.outcomes.text import bounded
from console.records.harbor.model import JobRecord, TrialRecord
from console.records.redact import redact

_CAUSES = {"unreadable": "permission"}
"""Problems of a record that are called otherwise as a cause."""

_SAME_SECONDS, _QUARTER, _ZONES_SECONDS = 5.0, 900.0, 26 * 3600.0
"""Two times that are one; steps of time zones; how far apart two of them are at most."""


def judge(trial: TrialRecord, rules: UserRules | None = None, job: JobRecord | None = None) -> Judged:
    """The verdict on one trial. Reads the ends of its texts; raises nothing for what they hold, and quotes no key.

    Args:
        rules: a user's own; job: the trial's, which tells whether it still runs, and whether it had ended.
    """
    case = Case(trial, job, rules.reward_key if rules else "reward")
    decision = _decide(case, rules)
    notes = decision.notes | {key: note for key, note in notes_of(case, decision).items() if key not in decision.notes}
    evidence = msgspec.structs.replace(decision.evidence, text=redact(decision.evidence.text))  # errors quote keys
    return Judged(
        trial=trial,
        outcome=decision.outcome,
        cause=decision.cause,
        rule=decision.rule,
        reward=case.reward.value,
        evidence=evidence,
        confidence=decision.confidence,
        notes={key: redact(note) for key, note in notes.items()},
    )


def _decide(case: Case, rules: UserRules | None) -> Decision:
    if rules is None:
        return _built_in(case)
    override = rules.override(case.trial.path)
    if override is not None:
        evidence = Evidence(file=os.path.abspath(rules.path), text=bounded(override.why))
        own = Decision(outcome=override.outcome, cause=override.cause, rule="user.override", evidence=evidence)
        return _allowed(case, own) or _refused(_built_in(case), own)
    found = _by_user(case, rules, before=True)
    if found is not None:
        return _allowed(case, found) or _refused(_built_in(case), found)
    decision = _built_in(case)
    if decision.outcome in (OutcomeClass.AMBIGUOUS, OutcomeClass.UNREADABLE) or decision.rule in tables.UNDECIDED:
        found = _by_user(case, rules, before=False)
        if found is not None:
            return _allowed(case, found) or _refused(decision, found)
    return decision


def _allowed(case: Case, own: Decision) -> Decision | None:
    """A user's decision, unless it scores a trial that has no reward to be scored with."""
    return None if own.outcome in SCORED and case.reward.value is None else own


def _refused(decision: Decision, own: Decision) -> Decision:
    note = f"{own.rule} says {own.outcome.value}, but the trial has no usable reward"
    return msgspec.structs.replace(decision, notes=decision.notes | {"bench.no_reward": note})


def _by_user(case: Case, rules: UserRules, *, before: bool) -> Decision | None:
    for rule in rules.rules:
        if rule.before is before and rule.concerns(case.trial.task):
            evidence = _matched(case, rule)
            if evidence is not None:
                return Decision(
                    outcome=rule.outcome,
                    cause=rule.cause,
                    rule=f"user.{rule.name}",
                    evidence=evidence,
                    confidence=Confidence.MEDIUM,
                )
    return None


def _matched(case: Case, rule: UserRule) -> Evidence | None:
    """The line of the trial that a user's rule finds its pattern in."""
    for place in rule.where:
        if place == "exception":
            for error in case.trial.errors:
                match = last_match(rule.pattern, f"{error.type}: {error.message}")
                if match is not None:
                    return case.said(bounded(match.text))
            continue
        names = {"agent": case.texts.agent, "verifier": case.texts.verifier}.get(place)
        for name in names() if names else (LOG,):
            match = last_match(rule.pattern, case.texts.tail(name).text)
            if match is not None:
                return case.texts.line(name, match.line, match.text).evidence()
    return None


def _built_in(case: Case) -> Decision:
    trial = case.trial
    if trial.problem:
        return _without_result(case)
    if case.after_the_end:
        return _ended(case)
    error = case.error
    if error is not None and error.type == types.CANCELLED:
        return _cancelled(case)
    verdict = classify(evidence_of(case), case.policy)
    if exits.is_exit(case, verdict):
        return exits.exited(case, verdict, worked(case))
    return _refined(case, verdict)


def evidence_of(case: Case) -> TrialEvidence:
    """What the rules of training look at, but for the verifier's output, which has more rules here.

    A time without a known limit proves nothing, so it is left out.
    """
    error, trial = case.error, case.trial
    return TrialEvidence(
        exception_type=error.type if error else None,
        exception_message=error.message if error else "",
        exception_phase=case.phase,
        rewards=trial.rewards,
        agent_seconds=case.agent_seconds if trial.agent_timeout is not None else None,
        agent_timeout=trial.agent_timeout,
    )


def _without_result(case: Case) -> Decision:
    """No result that can be read: what exception.txt says of the trial, else what is the matter with it."""
    trial = case.trial
    error = case.error
    if trial.problem == "incomplete" and error is not None and error.type not in types.SCOREABLE:
        told = _told_by_exception(case)
        return msgspec.structs.replace(
            told,
            confidence=Confidence.LOW if told.confidence is Confidence.LOW else Confidence.MEDIUM,
            notes=told.notes | {"bench.no_result": "there is no result.json: this is what exception.txt says"},
        )
    running = trial.problem == "incomplete" and case.job is not None and case.job.running
    cause = "running" if running else _CAUSES.get(trial.problem, trial.problem)
    notes = {}
    if error is not None:
        notes["bench.exception_text"] = bounded(f"exception.txt says {error.type}: {error.message}")
    if trial.reward_file:
        said = ", ".join(f"{key} {value}" for key, value in list(trial.reward_file.items())[:5])
        notes["bench.reward_file"] = bounded(f"the verifier had left a reward: {said}")
    text = "no result.json, and its job runs" if running else trial.problem_text or trial.problem
    return Decision(
        outcome=OutcomeClass.UNREADABLE,
        cause=cause,
        rule=f"bench.{cause}",
        evidence=Evidence(file="result.json", text=bounded(text)),
        notes=notes,
    )


def _told_by_exception(case: Case) -> Decision:
    error = case.error
    assert error is not None
    if error.type == types.CANCELLED:
        return _cancelled(case)
    verdict = classify(evidence_of(case), case.policy)
    return exits.exited(case, verdict, worked(case)) if exits.is_exit(case, verdict) else _refined(case, verdict)


def _ended(case: Case) -> Decision:
    """The verifier was done when the exception came, e.g. while the sandbox was removed: its reward stands."""
    error = case.error
    assert error is not None
    decision = _refined(case, classify(TrialEvidence(rewards=case.trial.rewards), case.policy))
    note = bounded(f"{error.type} came after the verifier had ended: {error.message}")
    return msgspec.structs.replace(decision, notes=decision.notes | {"bench.after_end": note})


def _cancelled(case: Case) -> Decision:
    """Who cancelled it: the operator, unless the job had ended and only its process was still there."""
    if case.job is not None and case.job.finished and _at_the_end(case, case.job):
        return Decision(
            outcome=OutcomeClass.INFRASTRUCTURE,
            cause="runner",
            rule="bench.cancelled_finished",
            evidence=case.raised(),
            confidence=Confidence.MEDIUM,
            notes={
                "bench.lingering": "its job ended in order: the process was killed while it lingered, by nobody's will"
            },
        )
    return Decision(outcome=OutcomeClass.CANCELLED, cause="operator", rule="bench.cancelled", evidence=case.raised())


def _at_the_end(case: Case, job: JobRecord) -> bool:
    """Whether it was cancelled when its job ended or later, and not before somebody went on with the job.

    Harbor writes the job's end in the local time of its machine: where that was another time than ours, it is off by
    whole quarters of an hour.
    """
    error = case.error
    at = error.at if error is not None and error.at is not None else case.trial.ended
    if at is None or job.ended is None or (later := job.ended - at) <= _SAME_SECONDS:
        return True
    return later <= _ZONES_SECONDS and abs(later - _QUARTER * round(later / _QUARTER)) <= _SAME_SECONDS


def _refined(case: Case, verdict: Verdict) -> Decision:
    """Training's verdict with the line that decided, and what a job directory tells beyond it."""
    outcome, error = verdict.outcome, case.error
    if outcome is OutcomeClass.INFRASTRUCTURE and verdict.cause in ("sandbox", "network") and case.phase == "agent":
        idle = exits.idle_killed(case)
        if idle is not None:
            return idle
    invalid = verdict.rule == "phase.verify" and error is not None and error.type == "ValidationError"
    if invalid and tables.REWARD_SHAPE.search(error.message if error else ""):
        return Decision(
            outcome=OutcomeClass.BAD_REWARD, cause="non_numeric", rule="bench.reward_shape", evidence=case.raised()
        )
    if verdict.rule == "reward.missing" or verdict.cause == "verifier_fault" or _zero(case, verdict):
        found = _verifier_fault(case, verdict)
        if found is not None:
            return found
    return Decision(
        outcome=outcome,
        cause=verdict.cause,
        rule=verdict.rule,
        evidence=_line_of(case, verdict),
        confidence=Confidence.MEDIUM if verdict.rule.startswith(("text.", "calls.")) else Confidence.HIGH,
    )


def _zero(case: Case, verdict: Verdict) -> bool:
    return verdict.outcome in SCORED and case.reward.value == 0


def _verifier_fault(case: Case, verdict: Verdict) -> Decision | None:
    """A verifier that failed: as its own output says, or as Harbor's log does of an exception that came second."""
    fault = case.verifier_fault
    second = second_error(case.texts) if verdict.rule == "reward.missing" and case.error else None
    if fault is None and second is None:
        return None
    notes = {}
    if second is not None:
        notes["bench.second_error"] = f"after {case.error.type if case.error else 'its end'} came {second[0]}"
    if fault is not None:
        hit, evidence = fault
        return Decision(
            outcome=OutcomeClass.BAD_REWARD,
            cause="verifier_fault",
            rule=hit.rule.rule,
            evidence=evidence,
            confidence=Confidence.MEDIUM,
            notes=notes,
        )
    assert second is not None
    cause = _cause_of(second[0])
    return Decision(outcome=cause[0], cause=cause[1], rule="bench.second_error", evidence=second[1], notes=notes)


def _cause_of(kind: str) -> tuple[OutcomeClass, str]:
    """What the type of an exception of the verification means; a fault of the verifier where no table has it."""
    rule = types.TYPE_RULES.get(kind)
    if rule is None or rule.outcome not in (OutcomeClass.BAD_REWARD, OutcomeClass.INFRASTRUCTURE):
        return OutcomeClass.BAD_REWARD, "verifier_fault"
    return rule.outcome, rule.cause


def _line_of(case: Case, verdict: Verdict) -> Evidence:
    family = verdict.rule.partition(".")[0]
    if family in ("end", "reward") or (verdict.outcome in SCORED and case.error is None):
        return case.rewards_line()
    if family == "text":
        return case.said(verdict.evidence)
    if family == "calls":
        return Evidence(file="result.json", text=verdict.evidence)
    if family == "phase":
        # The type says little of what failed before the agent ran, or in the verifier.
        return exits.words_of(case) or case.raised()
    if case.error is not None and case.error.message.startswith("Command failed"):
        # The type was read out of a command's output: the line in it says more than the name.
        return exits.words_of(case, verdict.cause) or case.raised()
    return case.raised()


def as_row(judged: Judged, rules: UserRules | None = None) -> dict[str, Any]:
    """The verdict as the keys of `bench triage --json`, in their order; every text can be encoded as UTF-8."""
    trial = judged.trial
    row = {
        "v": 1,
        "trial_dir": _plain(trial.path),
        "task": trial.task,
        "agent": trial.agent,
        "model": trial.model,
        "attempt": judged.attempt,
        "try": judged.try_,
        "class": judged.outcome.value,
        "cause": judged.cause,
        "reward": judged.reward,
        "exception": trial.errors[0].type if trial.errors else None,
        "evidence": {
            "file": _plain(judged.evidence.file),
            "line": judged.evidence.line,
            "text": judged.evidence.text,
        },
        "confidence": judged.confidence.value,
        "notes": judged.notes,
        "rule": judged.rule,
        "job": _plain(trial.job),
        "rules": rules_digest(rules),
    }
    return row


def rules_digest(rules: UserRules | None = None) -> str:
    """Which rules judged: the digest of the built-in tables, and of the user's file behind a plus."""
    return f"{_BUILT_IN}+{rules.digest}" if rules else _BUILT_IN


_BUILT_IN = tables.version()


def _plain(path: os.PathLike[str] | str) -> str:
    return os.fsencode(path).decode("utf-8", "backslashreplace")
