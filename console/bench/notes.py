"""What did not decide, but whoever reads the verdict should know."""

from __future__ import annotations

from console.bench.case import Case, Decision
from console.outcomes.classes import OutcomeClass
from console.outcomes.text import bounded, exit_code

SLOWEST = 1.0
"""Output tokens a second of the agent's time below which a timeout is no hard task but something else."""

PENDING_SHARE = 0.5
"""Share of the agent's time from which a single pending call is said to have used it up."""

IDLE_SECONDS, IDLE_SLACK = 600.0, 15.0
"""Idle limit at which hosted sandboxes are taken away by default, and how far from it they are."""

_SCRIPTED = frozenset({"oracle", "nop"})
"""Agents that ask no model, so that nothing is missing when they count no token."""

_SIGKILL = 137
_UNEXPLAINED = frozenset({OutcomeClass.AGENT_FAILURE, OutcomeClass.AMBIGUOUS})
_TIMEOUT = "AgentTimeoutError"
_OUTSIDE = frozenset({OutcomeClass.AGENT_FAILURE, OutcomeClass.AMBIGUOUS, OutcomeClass.CONFIGURATION})


def worked(case: Case) -> bool:
    """Whether the agent has done anything: it counts output tokens, or its trajectory has a tool call."""
    return bool(case.trial.output_tokens) or bool(case.activity.tool_calls)


def notes_of(case: Case, decision: Decision) -> dict[str, str]:
    """Rule id to one line."""
    notes: dict[str, str] = {}
    if any(error.type == _TIMEOUT for error in case.trial.errors):
        notes |= _of_timeout(case)
    if decision.outcome is OutcomeClass.INFRASTRUCTURE and "agent" in case.trial.phases:
        notes |= _of_infrastructure(case, decision)
    if decision.outcome is OutcomeClass.COMPLETED and (case.reward.value or 0) > 0:
        notes |= _of_pass(case)
    unjudged = decision.outcome in _OUTSIDE and case.reward.value == 0
    if unjudged or decision.rule == "type.reward_missing":
        fault = case.verifier_fault
        if fault is not None:
            notes["bench.verifier_fault"] = bounded(f"the verifier failed, too: {fault.evidence.text}")
    if decision.outcome in _UNEXPLAINED and case.error is not None and exit_code(case.error.message) == _SIGKILL:
        notes["bench.exit_137"] = (
            "exit code 137: something killed it, most often because memory ran out; see the sandbox's limit and log"
        )
    if len(case.trial.errors) > 1:
        others = ", ".join(error.type + (f" in {error.step}" if error.step else "") for error in case.trial.errors[1:4])
        notes["bench.more_errors"] = bounded(f"recorded behind it: {others}")
    return notes


def _of_timeout(case: Case) -> dict[str, str]:
    tokens, seconds = case.trial.output_tokens, case.agent_seconds
    if case.trial.agent in _SCRIPTED:
        return {}
    if tokens == 0:
        return {
            "bench.tokens_missing": "it counts no output token: killed agents often report none, so none is believed"
        }
    if tokens is None or not seconds or tokens / seconds >= SLOWEST:
        return {}
    rate = f"{tokens:,} output tokens in {seconds:,.0f} s, {tokens / seconds:.2f} a second"
    agent, done = case.trial.phases["agent"], case.activity
    reasons = []
    if done.last_step is not None and agent.ended is not None:
        pending = agent.ended - done.last_step
        if pending >= PENDING_SHARE * seconds:
            reasons.append(f"one model call was pending for the last {pending:,.0f} s")
    if done.reasoning_tokens:
        reasons.append(f"{done.reasoning_tokens:,} reasoning tokens were counted")
    if not reasons:
        return {"bench.low_output": f"{rate}: the cause is unknown"}
    cure = "if the model thinks without end, switch thinking off at the server and see that reasoning_tokens are 0"
    return {"bench.runaway_thinking": f"{rate}; {'; '.join(reasons)}; {cure}"}


def _of_infrastructure(case: Case, decision: Decision) -> dict[str, str]:
    notes = {}
    if worked(case):
        done = case.activity
        parts = [f"{case.trial.output_tokens:,} output tokens"] if case.trial.output_tokens else []
        parts += [f"{done.tool_calls:,} tool calls"] if done.tool_calls else []
        notes["bench.work_done"] = f"the agent had worked before it failed: {', '.join(parts)}"
    seconds = case.agent_seconds
    near = seconds is not None and abs(seconds - IDLE_SECONDS) <= IDLE_SLACK
    if near and decision.cause in ("sandbox", "network") and decision.rule != "bench.idle_killed":
        notes["bench.idle_suspected"] = (
            f"it failed after {seconds:.0f} s, where hosted sandboxes end what is idle: see the sandbox's own log"
        )
    return notes


def _of_pass(case: Case) -> dict[str, str]:
    if case.trial.agent in _SCRIPTED:
        return {}
    done = case.activity
    if case.trial.output_tokens == 0:
        why = "no output token is counted"
    elif done.tool_calls == 0:
        why = "its trajectory has no tool call"
    elif done.tool_calls is None and done.steps is not None and done.steps < 2:
        why = f"its trajectory has {done.steps} turns"
    else:
        return {}
    return {"bench.idle_pass": f"a pass without real work: {why}; look at what the verifier checks"}
