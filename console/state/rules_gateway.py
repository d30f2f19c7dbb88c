"""Alarm rules about the Tinker gateway: away, slow, full; and what the SDK goes through there without a word."""

from __future__ import annotations

import statistics
from collections.abc import Iterator

from console.state.findings import CRITICAL, WARNING, Finding, Look, at, clean, level, share, span
from console.state.gateway_words import QUEUES, operation

REPORTS_NEEDED = 12
REPORTS_NOW = 3
OVERDUE_SECONDS = 30.0


def gateway_unreachable(look: Look) -> Iterator[Finding]:
    """It has not answered for a while."""
    g = look.state.gateway
    if look.away and look.now - g.since >= look.limits.gateway_down_seconds:
        yield Finding(
            key="gateway.unreachable",
            level=CRITICAL,
            text=f"gateway unreachable since {at(g.since)}: {clean(g.detail, 200) or 'no answer'}",
            consequence="model calls wait for it, then their trials fail as infrastructure",
            remedy="check that the gateway runs and can be reached from here",
            action="" if look.state.paused else "pause",
            basis="",
        )


def gateway_slow(look: Look) -> Iterator[Finding]:
    """Its last answers took much longer than is usual in this run (the lower quartile of the reports kept)."""
    g, limits = look.state.gateway, look.limits
    if look.away or len(g.latencies) < REPORTS_NEEDED:
        return
    usual = statistics.quantiles(g.latencies[:-REPORTS_NOW], n=4)[0]
    now = statistics.median(g.latencies[-REPORTS_NOW:])
    if now >= limits.gateway_slow_ms and now >= limits.gateway_slow_factor * usual:
        yield Finding(
            key="gateway.slow",
            level=level(now >= limits.gateway_slow_critical_factor * usual),
            text=f"gateway slow: it answers in {now:.0f} ms, usually {usual:.0f} ms",
            consequence="steps take longer, and agents may run into their time-outs",
            remedy="look at the gateway's load, or lower the parallelism",
            action="set",
            clear=30.0,
            figure=now,
        )


def gateway_full(look: Look) -> Iterator[Finding]:
    """Its KV cache has no room for more requests."""
    used, limits = look.state.gateway.kv_fraction, look.limits
    if not look.away and used is not None and used > limits.gateway_full_share:
        yield Finding(
            key="gateway.full",
            level=level(used > limits.gateway_full_critical_share),
            text=f"the gateway's KV cache is {share(used)} full",
            consequence="requests wait for each other",
            remedy="lower the parallelism",
            action="set",
            after=60.0,
            clear=60.0,
            figure=used,
        )


def queue_paused(look: Look) -> Iterator[Finding]:
    """It tells those who wait for results that it works on nothing of theirs."""
    g = look.state.gateway
    if look.away or g.queue not in QUEUES:
        return
    reason = f": {clean(g.queue_reason, 120)}" if g.queue_reason else ""
    yield Finding(
        key="gateway.queue",
        level=WARNING,
        text=f"the gateway has paused the queue, {QUEUES[g.queue]}{reason}",
        consequence="what was asked of it waits, and agents may run into their time-outs",
        remedy="wait, or look at the limits of the account and the load of the service",
        after=look.limits.gateway_wait_seconds,
        clear=30.0,
        basis=g.queue,
    )


def back_pressure(look: Look) -> Iterator[Finding]:
    """It refuses samples again and again as too many."""
    if look.away or look.state.gateway.backoff is None:
        return
    yield Finding(
        key="gateway.backoff",
        level=WARNING,
        text="the gateway refuses samples as too many (HTTP 429): they are held back",
        consequence="agents wait for their model, and may run into their time-outs",
        remedy="lower the parallelism",
        action="set",
        after=look.limits.gateway_wait_seconds,
        clear=30.0,
    )


def heartbeat_old(look: Look) -> Iterator[Finding]:
    """The session was not acknowledged for long: the gateway may end it, and with it the model in training."""
    g, limit = look.state.gateway, look.limits.gateway_heartbeat_seconds
    age = g.heartbeat_age
    if look.away or age is None or age < limit:
        return
    over = g.lease is not None and age >= g.lease
    critical = age >= (0.5 * g.lease if g.lease is not None else 4 * limit)
    if over:
        text = f"no heartbeat was acknowledged for {span(age)}: the gateway's lease of {span(g.lease or 0.0)} is over"
    else:
        text = f"no heartbeat was acknowledged for {span(age)}"
    ends = f"{span(g.lease_left)} later" if g.lease_left is not None else "some time later"
    yield Finding(
        key="gateway.heartbeat",
        level=level(critical),
        text=text,
        consequence="the session and its model are gone: the next training pass fails"
        if over
        else f"the gateway ends the session {ends}, and the run with it",
        remedy="stop now and start the command again: it resumes from the last checkpoint"
        if over
        else "look at the engine's load and at the network",
        action="stop_now" if over else "",
        clear=10.0,
        figure=age,
        basis="over" if over else "",
    )


def operation_old(look: Look) -> Iterator[Finding]:
    """An operation at the gateway takes very long; samples are given twice the time."""
    g, limits = look.state.gateway, look.limits
    if look.away or not g.oldest:
        return
    usual = look.usual("seconds_train", at_least=1) or 0.0

    def limit(kind: str) -> float:
        return 2 * limits.gateway_operation_seconds if kind == "sample" else max(
            limits.gateway_operation_seconds, 3 * usual
        )  # fmt: skip

    kind, age = max(g.oldest.items(), key=lambda item: item[1] / max(1e-9, limit(item[0])))
    if age >= limit(kind):
        count = g.pending.get(kind, 1)
        yield Finding(
            key="gateway.operation",
            level=level(age >= 3 * limit(kind)),
            text=f"{operation(kind)} under way at the gateway for {span(age)}"
            + (f", {count} of them in all" if count > 1 else ""),
            consequence="the run waits for it",
            remedy="look at the gateway's log and load; the SDK goes on asking for as long as it takes",
            clear=10.0,
            figure=age,
            basis=kind,
        )


def wait_overdue(look: Look) -> Iterator[Finding]:
    """The run waits for the gateway longer than was expected."""
    g = look.state.gateway
    if g.waiting and g.waiting_until and look.now > g.waiting_until + OVERDUE_SECONDS:
        yield Finding(
            key="gateway.waiting",
            level=WARNING,
            text=f"the run still waits for the gateway: {clean(g.waiting, 200)}; expected until {at(g.waiting_until)}",
            consequence="nothing is trained",
            remedy="look who holds the model slots of the gateway, or restart it: checkpoints survive that",
        )


WHATEVER = (gateway_unreachable,)
"""Rules that also speak while the run ends."""
WHILE_LIVE = (
    gateway_slow, gateway_full, queue_paused, back_pressure, heartbeat_old, operation_old, wait_overdue,
)  # fmt: skip
