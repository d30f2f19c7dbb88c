"""Alarm rules about captured calls: whether they can be trained, and at what price."""

from __future__ import annotations

from collections.abc import Iterator

from console.outcomes.classes import SCORED
from console.state.findings import CRITICAL, WARNING, Finding, Look, clean, share
from console.state.model import TrialBrief

REASONS = {
    "rewritten": "the agent rewrote its history",
    "tools": "its tools changed",
    "system": "its system prompt changed",
    "compacted": "its history was compacted",
    "truncated": "the reply before was cut off",
    "renderer": "the renderer has no bridge",
    "template": "the template drops earlier thoughts",
}
MANY_SEGMENTS, FEW_CALLS = 4, 2
"""Segments per trial from which on, and calls per segment below which, agents hardly ever go on with a conversation."""
NOT_REFUSED = frozenset({"auth", "early", "sealed", "not_found", "method", "busy", "cancelled"})
"""Kinds of refusals that say nothing about what agents ask for: from outside a trial, to be tried again, or unheard."""


def captured(look: Look) -> Iterator[Finding]:
    """Calls that cannot be trained because their record is not whole."""
    c = look.state.capture
    if c.lost:
        yield Finding(
            key="capture.lost",
            level=CRITICAL,
            text=f"{c.lost} captured calls lost",
            consequence="their trials cannot be trained",
            remedy="check the disk of the run directory",
            action="stop_after_step",
            figure=float(c.lost),
        )
    if c.no_logprobs:
        yield Finding(
            key="capture.no_logprobs",
            level=CRITICAL,
            text=f"{c.no_logprobs} samples without usable log-probs",
            consequence="their trials cannot be trained",
            remedy="the gateway must return log-probs with every sample",
            action="stop_after_step",
            figure=float(c.no_logprobs),
        )


def unbridged(look: Look) -> Iterator[Finding]:
    """Most calls that continue a conversation do not extend what was sampled before."""
    c, limits = look.state.capture, look.limits
    reasons = {reason: count for reason, count in c.unbridged.items() if reason != "first"}
    rate = c.bridge_rate
    if rate is None or c.bridged + sum(reasons.values()) < limits.bridge_calls or rate >= limits.bridge_share:
        return
    worst = max(reasons, key=lambda reason: reasons[reason])
    yield Finding(
        key="capture.unbridged",
        level=WARNING,
        text=f"{share(rate)} of the continuing calls extend the call before; mostly {REASONS.get(worst, clean(worst))}",
        consequence="prompts are trained and stored again and again, at many times the cost",
        remedy="look at how the agent sends its history; keep harbor.history_thinking=keep",
        figure=rate,
        basis=worst,
    )


def refused(look: Look) -> Iterator[Finding]:
    """Agents ask for what they do not get. They go on somehow, so that nothing else shows it."""
    c, limits = look.state.capture, look.limits
    kinds = {kind: count for kind, count in c.refusals.items() if kind not in NOT_REFUSED and count > 0}
    refusals = sum(kinds.values())
    requests = c.calls + refusals
    if not kinds or requests < limits.bridge_calls or refusals / requests < limits.refused_share:
        return
    worst = max(kinds, key=lambda kind: kinds[kind])
    yield Finding(
        key="capture.refused",
        level=WARNING,
        text=f"{refusals} of {requests} requests were refused; mostly {clean(worst)} ({kinds[worst]})",
        consequence="the agent does not get what it asks for; its trials score as they are",
        remedy="look at a trial's transcript: the refusal names the field",
        figure=refusals / requests,
        basis=worst,
    )


def scattered(look: Look) -> Iterator[Finding]:
    """Agents begin a new conversation each turn. `unbridged` speaks when they should have gone on, and then alone."""
    scored = _scored(look)
    segments, calls = sum(brief.segments for brief in scored), sum(brief.calls for brief in scored)
    if len(scored) < look.limits.trials_needed or segments < MANY_SEGMENTS * len(scored):
        return
    if calls >= FEW_CALLS * segments or any(unbridged(look)):
        return
    yield Finding(
        key="capture.scattered",
        level=WARNING,
        text=f"the last {len(scored)} scored trials made {segments} segments of {calls / segments:.1f} calls each",
        consequence="prompts are trained and stored again and again, at many times the cost",
        remedy="let the agent go on with one conversation: each request repeats the messages and replies before it",
        figure=segments / len(scored),
    )


def single_calls(look: Look) -> Iterator[Finding]:
    """Many scored trials made one model call: an agent that gives up at once looks like that, and its reward counts."""
    scored = _scored(look)
    alone = sum(brief.calls == 1 for brief in scored)
    if alone and len(scored) >= look.limits.trials_needed and alone / len(scored) >= look.limits.limit_share:
        yield Finding(
            key="capture.one_call",
            level=WARNING,
            text=f"{alone} of the last {len(scored)} scored trials made one model call only",
            consequence="if their agent gave up, what trains is its first answer",
            remedy="look at the transcript and the log of such a trial",
            figure=alone / len(scored),
        )


def _scored(look: Look) -> list[TrialBrief]:
    return [brief for brief in look.state.recent if brief.outcome in SCORED]


def temperature(look: Look) -> Iterator[Finding]:
    """Agents sample at another temperature than 1, at which the trainer computes its probabilities."""
    c = look.state.capture
    if c.temperature_low is None or c.temperature_high is None or c.temperature_low == c.temperature_high == 1.0:
        return
    low, high = c.temperature_low, c.temperature_high
    at = f"{low:g}" if low == high else f"{low:g} to {high:g}"
    yield Finding(
        key="sampling.temperature",
        level=WARNING,
        text=f"agents sample at temperature {at}; {_LOGPROBS[c.tempered]}",
        consequence=_RATIOS[c.tempered],
        remedy="let the agent sample at temperature 1, or set harbor.sampling=force",
        basis=f"{at} {c.tempered}",
    )


_LOGPROBS = {
    True: "the gateway's log-probs are those of that distribution",
    False: "the gateway's log-probs are those of temperature 1",
    None: "it is not known of which distribution the gateway's log-probs are",
}
_RATIOS = {
    True: "PPO ratios start away from 1: likely tokens look over-sampled and rare ones are clipped",
    False: "PPO ratios start at 1, but the samples come from another distribution than they are weighted by",
    None: "PPO ratios may be wrong from the first step on",
}
WHATEVER = (captured,)
WHILE_LIVE = (unbridged, scattered, refused, single_calls, temperature)
