"""Alarm rules of benchmarks: crowded sandboxes, one failure everywhere, cut-off and idle agents, a lost endpoint."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator

from console.outcomes.classes import SCORED
from console.state.benchmark import WINDOW, at_work
from console.state.findings import CRITICAL, WARNING, Finding, Look, at, clean, level, name_of, share, span
from console.state.model import TrialBrief
from console.state.words import plural

FEWEST = 8
"""Tries that must have ended at a limit before its share of infrastructure failures is judged."""
INFRA_SHARE, INFRA_CRITICAL_SHARE = 0.25, 0.5
SAME_FEWEST, SAME_ROW = 4, 8
"""Failures in a row: when nothing else has ended, and else."""
DOWN_SECONDS = 30.0
"""The endpoint is asked each 15 s: one answer that is missing is no outage."""
STALL_SECONDS, QUIET_SECONDS, QUIET_FACTOR = 1800.0, 3600.0, 3.0
"""Without a model call to be seen, a long agent is silent, and well."""
IDLE_SECONDS, IDLE_SLACK, IDLE_FEWEST = 600.0, 15.0, 2
"""When hosted sandboxes take away what seems idle, as by default."""
SLOWEST, SLOW_FEWEST = 1.0, 2
"""Sampled tokens a second of the agent's time below which a time-out is no hard task."""
FAULTS_FEWEST, FAULTS_SHARE = 5, 0.25
CROWDED = frozenset({"sandbox", "api", "network"})
"""Causes that fewer trials at once may cure."""
_NAMED = 3
_VARIABLE = re.compile(r"\b(?:0x)?[0-9a-f]*\d[0-9a-f]*\b|\d+", re.IGNORECASE)
_VOID = "the trials say nothing about the agent: a figure made of them is void"


def fewer(limit: int) -> int:
    """Trials at once that are advised in place of `limit`."""
    return max(1, limit // 2)


def infrastructure(look: Look) -> Iterator[Finding]:
    """Many of the tries that ended at the present limit failed for infrastructure's sake."""
    s, b = look.state, look.state.bench
    window = max(1, round(s.thresholds.get("bench_infra_window", WINDOW)))
    last = [one for one in _ended(look) if one.ts > b.limit_since][-window:]
    failed = [one for one in last if one.outcome == "infrastructure"]
    part = len(failed) / len(last) if last else 0.0
    if len(last) < min(FEWEST, window) or part < s.thresholds.get("bench_infra_share", INFRA_SHARE) or not failed:
        return
    kinds = Counter(clean(one.exception or one.cause or "unknown") for one in failed)
    most = ", ".join(f"{name} {number}" for name, number in kinds.most_common(_NAMED))
    crowded = 2 * sum(one.cause in CROWDED for one in failed) >= len(failed)
    limit = b.limit or b.concurrency
    if crowded and limit > 1:
        remedy = f"lower concurrency to {fewer(limit)}: `set concurrency={fewer(limit)}`"
    elif crowded:
        remedy = "one trial at a time is no crowd: look at the state and the limits of the sandboxes' provider"
    else:
        remedy = "look at what they say: to run fewer at once does not cure this"
    yield Finding(
        key="bench.infrastructure",
        level=level(part >= INFRA_CRITICAL_SHARE),
        text=f"{share(part)} of the last {len(last)} trials are infrastructure failures ({most})",
        consequence="they are left out of the figures until a mop-up runs them again",
        remedy=remedy,
        action="set" if crowded and limit > 1 else "",
        figure=part,
        basis=remedy,
    )


def same_failure(look: Look) -> Iterator[Finding]:
    """The last tries all failed in the same way, and of more than one task: the job is wrong, not the agent."""
    ended = _ended(look)[-SAME_ROW:]
    if len(ended) < SAME_FEWEST or (len(ended) < SAME_ROW and look.state.bench.stood):
        return
    if any(one.outcome in SCORED for one in ended) or len({_alike(one) for one in ended}) > 1:
        return
    if len({one.task for one in ended}) == 1 and look.state.bench.tasks > 1:
        return
    one = ended[-1]
    what = " ".join(clean(word.replace("_", " ")) for word in (one.outcome, one.cause, one.exception) if word)
    said = f": {clean(one.evidence, 120)}" if one.evidence else ""
    yield Finding(
        key="bench.same_failure",
        level=CRITICAL,
        text=f"the last {len(ended)} trials all failed the same way, {what}{said}",
        consequence=_VOID,
        remedy="renew the key, see that it reaches the side that calls the model, then begin again with one task"
        if one.outcome == "configuration" and one.cause == "key"
        else "stop the job, cure what the text says, and begin again with one task",
        action="stop_now",
        basis=what,
    )


def _alike(one: TrialBrief) -> tuple[str, ...]:
    """What is the same in failures that are the same: the text without what differs from trial to trial."""
    text = one.evidence.replace(one.task, "*") if len(one.task) > 3 else one.evidence
    return one.outcome, one.cause, one.rule, one.exception, _VARIABLE.sub("#", text)[:160]


def idle_killed(look: Look) -> Iterator[Finding]:
    """Sandboxes went away while their agents worked, as if they were idle."""
    failed = [one for one in _ended(look) if one.outcome == "infrastructure"]
    told = [one for one in failed if one.rule == "bench.idle_killed"]
    near = [
        one
        for one in failed
        if one.cause in CROWDED and one.agent is not None and abs(one.agent - IDLE_SECONDS) <= IDLE_SLACK
    ]
    found = told if told else near if len(near) >= IDLE_FEWEST else []
    if not found:
        return
    why = "their logs say that they were idle" if told else f"after {IDLE_SECONDS:.0f} s of the agent's time"
    yield Finding(
        key="bench.idle_killed",
        level=WARNING,
        text=f"{plural(len(found), 'sandbox', 'es')} went away while the agent worked, {why}",
        consequence="long trials are cut off, short ones are not: what is left is not a fair sample",
        remedy="give the sandbox a longer idle limit than the agent's time-out (hf-sandbox: --ek job_timeout=2h)",
        figure=float(len(found)),
    )


def runaway(look: Look) -> Iterator[Finding]:
    """Agents that timed out with hardly a token: one endless thought, or an endpoint that does not stream."""
    slow = [
        one
        for one in _ended(look)
        if one.outcome == "agent_timeout" and one.sampled and one.agent and one.sampled / one.agent < SLOWEST
    ]
    if len(slow) < SLOW_FEWEST:
        return
    last = slow[-1]
    yield Finding(
        key="bench.runaway",
        level=WARNING,
        text=f"{len(slow)} trials timed out with hardly any output, {clean(last.task)}: {last.sampled:,} tokens in "
        f"{span(last.agent or 0.0)}",
        consequence="the model may think without end: such time-outs say little about the tasks",
        remedy="switch thinking off or bound it where the model is served (SGLang: enable_thinking false), and look "
        "for reasoning tokens in a trajectory",
        figure=float(len(slow)),
    )


def timed_out(look: Look) -> Iterator[Finding]:
    """Many trials end at the agent's time-out."""
    limits, ended = look.limits, _ended(look)
    found = [one for one in ended if one.outcome == "agent_timeout"]
    if len(ended) < limits.trials_needed or len(found) < max(1.0, limits.limit_share * len(ended)):
        return
    part = len(found) / len(ended)
    yield Finding(
        key="limit.agent_timeout",
        level=level(part >= limits.limit_critical_share),
        text=f"{len(found)} of the last {len(ended)} trials ended at the agent's time-out",
        consequence="they are results and stand: the model is judged by its speed",
        remedy="for another run, a higher agent_timeout_multiplier, or less reasoning effort",
        figure=part,
    )


def verifiers(look: Look) -> Iterator[Finding]:
    """Verifiers that could not do their work."""
    ended = _ended(look)
    found = [one for one in ended if one.outcome == "bad_reward"]
    tasks = sorted({clean(one.task, 30) for one in found})
    graded = len(found) + sum(one.outcome in SCORED for one in ended)
    if len(found) < FAULTS_FEWEST or len(found) < FAULTS_SHARE * graded or len(tasks) < 2:
        return
    yield Finding(
        key="bench.verifiers",
        level=WARNING,
        text=f"no usable reward in {len(found)} of {graded} trials, first {', '.join(tasks[:_NAMED])}",
        consequence="they are no answer of the agent's, and are left out",
        remedy="see that verifiers reach what they download (package mirrors, uv, pypi)",
        figure=float(len(found)),
    )


def stalled(look: Look) -> Iterator[Finding]:
    """Trials that stay long in a phase of the sandbox or of the verifier."""
    found = [
        f"{name_of(group, trial)} ({trial.phase})"
        for group, trial in look.trials
        if trial.phase in ("create", "environment", "setup", "verify", "teardown")
        and look.now - trial.phase_since >= STALL_SECONDS
    ]
    if found:
        more = f" and {len(found) - _NAMED} more" if len(found) > _NAMED else ""
        yield Finding(
            key="stalled.many" if len(found) > 1 else f"stalled.{found[0].partition(' ')[0]}",
            level=WARNING,
            text=f"for more than {span(STALL_SECONDS)} in one phase: {', '.join(found[:_NAMED])}{more}",
            consequence="each holds a place that another trial could have",
            remedy="Harbor ends it at its own time-out; look at its log and its sandbox",
            figure=float(len(found)),
        )


def endpoint(look: Look) -> Iterator[Finding]:
    """The model's endpoint does not answer."""
    g = look.state.gateway
    if look.away and look.now - g.since >= DOWN_SECONDS:
        yield Finding(
            key="gateway.unreachable",
            level=CRITICAL,
            text=f"model endpoint unreachable since {at(g.since)}: {clean(g.detail, 200) or 'no answer'}",
            consequence="trials fail as infrastructure until it is back; served jobs end without a word",
            remedy="see that the model is still served, and at this URL; pause meanwhile",
            action="" if look.state.paused else "pause",
            basis="",
        )


def quiet(look: Look) -> Iterator[Finding]:
    """Nothing has moved for long: nothing is at work though something could be, or all of it longer than any before."""
    s, b, limits = look.state, look.state.bench, look.limits
    since = max(s.progress, s.dispatch_since)
    for_long = look.now - since
    busy = at_work(s)
    if s.paused and s.phase == "rollout" and not busy:
        if for_long >= limits.progress_seconds:
            yield Finding(
                key="run.paused",
                level=WARNING,
                text=f"paused by {clean(s.paused_by) or 'the operator'} since {at(s.dispatch_since)}; no trial runs",
                consequence="nothing moves until it is resumed",
                remedy="resume",
                action="resume",
            )
        return
    if look.away:
        return
    longest = max((one.seconds or 0.0 for one in s.recent), default=0.0)
    limit = max(QUIET_SECONDS, QUIET_FACTOR * longest) if busy else limits.progress_seconds
    if for_long >= limit:
        text = f"{plural(busy, 'trial')} at work, and none" if busy else "no trial is at work, and none"
        yield Finding(
            key="run.no_progress",
            level=level(not busy and b.done < b.trials and for_long >= limits.progress_critical_seconds),
            text=f"{text} has begun, ended or changed its phase since {at(since)}",
            consequence="the job may hang; its time and its sandboxes cost all the same",
            remedy="look at harbor.log in the run directory; after a stop, what has ended stands",
            basis="busy" if busy else "idle",
        )


def _ended(look: Look) -> list[TrialBrief]:
    """The last tries that ended by themselves."""
    return [one for one in look.state.recent if one.outcome != "cancelled"]


WHATEVER = (endpoint, quiet)
WHILE_LIVE = (infrastructure, same_failure, idle_killed, runaway, timed_out, verifiers, stalled)
