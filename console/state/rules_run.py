"""Alarm rules about the run as a whole: progress, checkpoints, budgets, and the machine under it."""

from __future__ import annotations

from collections.abc import Iterator

from console.state.findings import WARNING, Finding, Look, at, clean, level, share, span

HOST_STALE_SECONDS = 300.0
CLOCK_SECONDS, CLOCK_TOLD_SECONDS = 30.0, 900.0
"""A time of day that was set by less is a correction; an alarm about one lasts so long."""
SAVE_EVERY = 20
"""The cookbook's default; a run records only what differs from the defaults."""

_SECONDS = {"rollout": "seconds_rollout", "training": "seconds_train", "saving": "seconds_save"}


def no_progress(look: Look) -> Iterator[Finding]:
    """Nothing has moved for longer than the phase usually takes, and no pause, hold, wait or outage explains it."""
    s, limits = look.state, look.limits
    since = max(s.progress, s.dispatch_since, s.gateway.since if s.gateway.reachable else 0.0)
    quiet = look.now - since
    if look.away or s.gateway.waiting or (look.holding and not look.moving):
        return
    if s.paused and s.phase == "rollout" and not look.moving:
        if quiet >= limits.progress_seconds:
            yield Finding(
                key="run.paused",
                level=WARNING,
                text=f"paused by {clean(s.paused_by) or 'the operator'} since {at(s.dispatch_since)}; no trial runs",
                consequence="nothing moves until dispatch is resumed",
                remedy="resume dispatch",
                action="resume",
            )
        return
    usual = look.usual(_SECONDS.get(s.phase, "seconds_total")) or look.usual("seconds_total") or 0.0
    if quiet >= max(limits.progress_seconds, limits.progress_factor * usual):
        bad = quiet >= max(limits.progress_critical_seconds, limits.progress_critical_factor * usual)
        yield Finding(
            key="run.no_progress",
            level=level(bad),
            text=f"no progress since {at(since)}, in {clean(s.phase)}"
            + (f", which usually takes {span(usual)}" if usual else ""),
            consequence="the run may hang; its time and its sandboxes cost all the same",
            remedy="look at the trials and the log of the engine; stopping now and resuming starts the step again",
            action="stop_now" if bad and s.status == "live" else "",
            basis=s.phase,
        )


def step_slow(look: Look) -> Iterator[Finding]:
    """The running step takes much longer than the ones before it."""
    s = look.state
    if s.step_started is None or s.phase not in _SECONDS or look.away or look.holding or s.paused:
        return
    usual = look.usual("seconds_total", at_least=5)
    taken = look.now - s.step_started
    if usual is not None and taken > look.limits.step_factor * usual and taken - usual > 30.0:
        yield Finding(
            key="step.slow",
            level=WARNING,
            text=f"step {s.step} runs since {at(s.step_started)}, usually a step takes {span(usual)}",
            consequence="the run takes longer",
            remedy="look for trials that lag behind the others",
            basis=f"step {s.step}",
        )


def checkpoint_old(look: Look) -> Iterator[Finding]:
    """Steps were trained, and the last checkpoint lies far back."""
    s = look.state
    last = max([look.began, *(c.ts for c in s.checkpoints[-1:])])
    if not look.rows or look.rows[-1].ts <= last:
        return
    usual = look.usual("seconds_total", at_least=1) or 0.0
    if look.now - last > max(look.limits.checkpoint_seconds, 2.0 * _save_interval(look) * usual):
        yield Finding(
            key="checkpoint.old",
            level=WARNING,
            text=f"no checkpoint since {at(last)}",
            consequence="a crash would cost the steps trained since",
            remedy="save a checkpoint",
            action="checkpoint",
        )


def _save_interval(look: Look) -> int:
    """Steps between two checkpoints as configured; 0 when only the last one is saved."""
    config = look.state.config
    steps = [config.get("config.save_every", SAVE_EVERY), config.get("config.rolling_save_every", 0)]
    return min((n for n in steps if isinstance(n, int) and n > 0), default=0)


def budgets(look: Look) -> Iterator[Finding]:
    """Most of a budget is used, or all of it."""
    s = look.state
    spent = {
        "token_budget": float(s.capture.prompt_tokens + s.capture.sampled_tokens),
        "time_budget": look.now - look.began,
    }
    for name, used in spent.items():
        budget = s.tunables.get(name)
        if budget is None or budget <= 0 or used < look.limits.budget_share * budget:
            continue
        whole = f"{budget:,.0f} tokens" if name == "token_budget" else span(budget)
        over = used >= budget
        yield Finding(
            key=f"budget.{name.partition('_')[0]}",
            level=level(over),
            text=f"the budget of {whole} is used up" if over else f"{share(used / budget)} of {whole} are used",
            consequence="the run stops with this step" if over else "the run stops with the step that reaches it",
            remedy="raise the budget, or let the run stop",
            action="set",
            figure=used,
            basis=f"{budget:g}",
        )


def disk(look: Look) -> Iterator[Finding]:
    """The file system of the run directory fills up."""
    host, limits = look.state.host, look.limits
    if host.disk_free is None or _stale(look):
        return
    free = host.disk_free / 1e9
    part = host.disk_free / host.disk_total if host.disk_total else 1.0
    few = free < limits.disk_plenty_gb
    bad = free < limits.disk_free_gb / 5 or (few and part < limits.disk_free_critical_share)
    if bad or free < limits.disk_free_gb or (few and part < limits.disk_free_share):
        yield Finding(
            key="host.disk",
            level=level(bad),
            text=f"{_room(free)} ({share(part)}) free on the disk of the run directory",
            consequence="when it is full the run ends: its journal cannot be written",
            remedy="free space, or stop after the step",
            action="stop_after_step",
            clear=10.0,
            figure=free,
        )


def _room(free: float) -> str:
    """GB in words; below one, in MB."""
    return f"{free:.1f} GB" if free >= 1 else f"{free * 1000:.0f} MB"


def memory(look: Look) -> Iterator[Finding]:
    """Engine and children hold most of the memory."""
    host, limits = look.state.host, look.limits
    if not host.rss or not host.memory_total or _stale(look):
        return
    part = host.rss / host.memory_total
    if part > limits.memory_share:
        yield Finding(
            key="host.memory",
            level=level(part > limits.memory_critical_share),
            text=f"engine and trials hold {share(part)} of the memory",
            consequence="the system may kill the engine",
            remedy="lower the parallelism, or stop after the step",
            action="set",
            after=10.0,
            clear=30.0,
            figure=part,
        )


def clock(look: Look) -> Iterator[Finding]:
    """The time of day was set while the run went on; its own time goes on as before."""
    host = look.state.host
    if abs(host.stepped) < CLOCK_SECONDS or look.now - host.stepped_at > CLOCK_TOLD_SECONDS:
        return
    ahead = host.stepped < 0
    yield Finding(
        key="host.clock",
        level=WARNING,
        text=f"the time of day was set {'back' if ahead else 'forward'} by {span(abs(host.stepped))}",
        consequence=f"times of this run are {'ahead of' if ahead else 'behind'} the clock until it is started again"
        + ("" if ahead else "; was the machine paused, the gateway may have ended the session"),
        remedy="look at the time service of the machine; keys and certificates go by the time of day",
    )


def loop_lag(look: Look) -> Iterator[Finding]:
    """The engine's main loop is late, again and again. While it loads its libraries that is to be expected."""
    lag, limits = look.state.host.loop_lag, look.limits
    if lag is None or _stale(look) or look.state.phase in ("starting", "connecting"):
        return
    if lag > limits.loop_lag_seconds:
        yield Finding(
            key="host.loop_lag",
            level=level(lag > limits.loop_lag_critical_seconds),
            text=f"the engine's main loop is up to {lag:.1f} s late",
            consequence="agents wait, and the gateway may give up the session",
            remedy="lower the parallelism, or give the engine a processor of its own",
            action="set",
            after=20.0,
            clear=60.0,
            figure=lag,
        )


def _stale(look: Look) -> bool:
    return look.now - look.state.host.reported > HOST_STALE_SECONDS


WHATEVER = (no_progress, disk, memory)
"""Rules that also speak while the run ends."""
WHILE_LIVE = (step_slow, checkpoint_old, budgets, loop_lag, clock)
