"""Where a run is: one line for the log, a few lines for a person, one object for a script."""

from __future__ import annotations

from collections import Counter
from typing import Any

from console.headless.benchmark import bench_lines, bench_record, progress_line
from console.headless.output import to_step_record
from console.state.gateway_words import minutes, operations, profile, session, troubles
from console.state.model import AlarmState, GatewayState, ResumeState, RunState
from console.state.reduce import RunView
from console.state.sanitize import sanitize
from console.state.words import BENCHMARK, DAMAGED, END_LOST


def status_line(state: RunState, now: float | None = None) -> str:
    """Step, phase, trials, and what is wrong; of a benchmark the time left at `now`, by default the last event's."""
    bench = state.kind == BENCHMARK
    if bench:
        parts = [progress_line(state, state.ts if now is None else now)]
    else:
        parts = [f"step {_or_dashes(state.step)} of {_or_dashes(state.steps_planned)}, {_phase(state)}"]
        if state.groups:
            parts.append("trials " + _counted(trial_phases(state)))
    if state.stop_requested:
        parts.append(f"stops {state.stop_requested.replace('_', ' ')}")
    if state.gateway.reachable is False:
        parts.append("model endpoint unreachable" if bench else "gateway unreachable")
    parts += [f"gateway: {one.text}" for one in troubles(state, state.ts)]
    if state.paused:
        parts.append("dispatch paused")
    if alarms := open_alarms(state):
        parts.append(f"{len(alarms)} alarms open")
    return "; ".join(parts)


def status_lines(condition: str, view: RunView, now: float | None = None) -> list[str]:
    """What `ctl status` prints.

    Args:
        condition: live, finished, stopped, failed, dead or damaged.
        now: Unix seconds by which time left is told, None for those of the last event.
    """
    s = view.state
    end = f", exit {s.exit_code}: {s.reason}" if s.exit_code is not None and condition != "live" else ""
    if condition == DAMAGED:
        end = f": {END_LOST}"
    if s.kind == BENCHMARK:
        return [sanitize(line, 200) for line in _bench_lines(condition, end, s, s.ts if now is None else now)]
    lines = [
        f"run      {s.name or s.run_id} ({s.run_id}), {condition}{end}",
        f"step     {_or_dashes(s.step)} of {_or_dashes(s.steps_planned)}, {_phase(s)} {s.phase_detail}".rstrip(),
    ]
    if s.resumed is not None:
        lines.append(f"resumed  {_resumed(s.resumed)}")
    if s.groups:
        lines.append(f"trials   {_counted(trial_phases(s))}; outcomes {_counted(trial_outcomes(s)) or '--'}")
    if view.history.rows:
        row = view.history.rows[-1]
        lines.append(f"reward   {_figure(row.reward_mean)} at step {row.step}, loss {_figure(row.ppo_loss)}")
    reachable = {True: "reachable", False: f"unreachable: {s.gateway.detail}", None: "not probed yet"}
    latency = "" if s.gateway.latency_ms is None else f", {s.gateway.latency_ms:.0f} ms"
    lines.append(f"gateway  {reachable[s.gateway.reachable]}{latency}")
    details = (profile(s.gateway), session(s.gateway), operations(s.gateway))
    lines += [f"         {text}" for text in (*(one.text for one in troubles(s, s.ts)), *details) if text]
    lines.append(f"boxes    {_sandboxes(s)}")
    bridged = s.capture.bridge_rate
    rate = "" if bridged is None else f", {100 * bridged:.0f} % of continuing calls bridged"
    lines.append(f"capture  {s.capture.sampled_tokens} tokens sampled, {s.capture.lost} calls lost{rate}")
    if s.stop_requested:
        lines.append(f"stop     requested ({s.stop_requested.replace('_', ' ')})")
    if s.paused:
        lines.append(f"dispatch paused by {s.paused_by or 'the operator'}: no new trial begins")
    lines += [f"alarm    {_alarm(a)}" for a in open_alarms(s)]
    return [sanitize(line, 200) for line in lines]


def _bench_lines(condition: str, end: str, s: RunState, now: float) -> list[str]:
    phase = f"{s.phase} {s.phase_detail}".rstrip()
    lines = [f"run      {s.name or s.run_id} ({s.run_id}), benchmark, {condition}{end}", f"phase    {phase}"]
    lines += bench_lines(s, now)
    g = s.gateway
    answers = {True: "answers", False: f"unreachable: {g.detail}", None: "not asked"}[g.reachable]
    latency = "" if g.latency_ms is None else f", {g.latency_ms:.0f} ms"
    lines.append(f"endpoint {s.gateway_url or '--'}: {answers}{latency}")
    lines.append(f"boxes    {_sandboxes(s)}")
    if s.stop_requested:
        lines.append(f"stop     requested ({s.stop_requested.replace('_', ' ')})")
    if s.paused:
        lines.append(f"dispatch paused by {s.paused_by or 'the operator'}: no new trial begins")
    return lines + [f"alarm    {_alarm(a)}" for a in open_alarms(s)]


def status_record(view: RunView, now: float | None = None) -> dict[str, Any]:
    """The same for a script. A value that is not known is null."""
    s = view.state
    bench = {"benchmark": bench_record(s, s.ts if now is None else now)} if s.kind == BENCHMARK else {}
    return {
        "name": s.name,
        "kind": s.kind,
        **bench,
        "phase": s.phase,
        "steps_done": s.steps_done,
        "stop_requested": s.stop_requested or None,
        "exit_code": s.exit_code,
        "reason": sanitize(s.reason),
        "trials": dict(trial_phases(s)),
        "outcomes": dict(trial_outcomes(s)),
        "gateway": _gateway_record(s.gateway),
        "sandboxes": _sandboxes_record(s),
        "resumed": None if s.resumed is None else _resumed_record(s.resumed),
        "replaying": s.replaying,
        "capture": {
            "calls": s.capture.calls,
            "failed": s.capture.failed,
            "tokens": {
                "prompt": s.capture.prompt_tokens,
                "sampled": s.capture.sampled_tokens,
                "trained": s.capture.trained_tokens,
            },
            "lost": s.capture.lost,
            "no_logprobs": s.capture.no_logprobs,
            "inflight": s.capture.inflight,
            "bridged": s.capture.bridged,
            "unbridged": s.capture.unbridged,
            "refusals": s.capture.refusals,
            "untrained": s.capture.excluded,
            "temperatures": [s.capture.temperature_low, s.capture.temperature_high],
            "logprobs_tempered": s.capture.tempered,
        },
        "paused": s.paused,
        "alarms": [
            {
                "key": sanitize(a.key),
                "level": a.level,
                "text": sanitize(a.text),
                "consequence": sanitize(a.consequence),
                "remedy": sanitize(a.remedy),
                "since": a.since,
                "acknowledged_by": sanitize(a.acked_by) or None,
            }
            for a in open_alarms(s)
        ],
        "last_step": to_step_record(view.history.rows[-1]) if view.history.rows else None,
    }


def _phase(state: RunState) -> str:
    return state.phase + (" (applied again)" if state.replaying and state.exit_code is None else "")


def _resumed(r: ResumeState) -> str:
    parts = [f"from {r.checkpoint or 'the beginning'}, step {r.step}"]
    if r.replayed:
        last = f" to {r.replayed[-1]}" if len(r.replayed) > 1 else ""
        parts.append(f"step{'s' if last else ''} {r.replayed[0]}{last} applied again")
    if r.reused:
        parts.append(f"{r.reused} finished trials used")
    if r.redone:
        parts.append(f"{r.redone} trials run again")
    if r.why_not:
        parts.append(r.why_not)
    return ", ".join(parts)


def _resumed_record(r: ResumeState) -> dict[str, Any]:
    return {
        "checkpoint": sanitize(r.checkpoint) or None,
        "step": r.step,
        "replayed": r.replayed,
        "reused": r.reused,
        "redone": r.redone,
        "why_not": sanitize(r.why_not) or None,
    }


def _gateway_record(g: GatewayState) -> dict[str, Any]:
    return {
        "reachable": g.reachable,
        "latency_ms": g.latency_ms,
        "detail": sanitize(g.detail, 200) or None,
        "profile": sanitize(g.profile, 40) or None,
        "sdk": sanitize(g.sdk, 20) or None,
        "translated": [sanitize(text, 200) for text in g.translated],
        "context_window": g.context_window,
        "max_rank": g.max_rank,
        "slots": g.slots,
        "lease": g.lease,
        "waiting": sanitize(g.waiting, 200) or None,
        "waiting_until": g.waiting_until or None,
        "queued": g.queued,
        "running": g.running,
        "kv_fraction": g.kv_fraction,
        "queue": sanitize(g.queue, 40) or None,
        "queue_reason": sanitize(g.queue_reason, 200) or None,
        "backoff": g.backoff,
        "heartbeat_age": g.heartbeat_age,
        "lease_left": g.lease_left,
        "pending": {sanitize(kind, 40): count for kind, count in g.pending.items()},
        "oldest": {sanitize(kind, 40): age for kind, age in g.oldest.items()},
    }


def _sandboxes(s: RunState) -> str:
    b = s.sandboxes
    parts = [f"{s.sandboxes_live} live"]
    for count, word in ((b.creating, "being created"), (len(s.sandboxes_left), "left"), (len(b.orphaned), "orphaned")):
        if count:
            parts.append(f"{count} {word}")
    if b.oldest is not None:
        parts.append(f"the oldest for {minutes(s.ts - b.oldest)}")
    if b.hours is not None:
        parts.append(f"{b.hours:.2f} sandbox hours")
    if b.cost is not None:
        parts.append(f"about ${b.cost:.2f}")
    return ", ".join(parts)


def _sandboxes_record(s: RunState) -> dict[str, Any]:
    return {
        "live": s.sandboxes_live,
        "creating": s.sandboxes.creating,
        "left": [sanitize(name, 120) for name in s.sandboxes_left],
        "orphaned": [sanitize(name, 120) for name in s.sandboxes.orphaned],
        "oldest": s.sandboxes.oldest,
        "hours": s.sandboxes.hours,
        "cost": s.sandboxes.cost,
    }


def open_alarms(state: RunState) -> list[AlarmState]:
    """Alarms that hold now, the critical ones first; those that only wait to be acknowledged are over."""
    found = [alarm for alarm in state.alarms.values() if alarm.open]
    return sorted(found, key=lambda alarm: (alarm.level != "critical", alarm.since))


def _alarm(alarm: AlarmState) -> str:
    seen = f", seen by {alarm.acked_by}" if alarm.acked_by else ""
    follows = f"; {alarm.consequence}" if alarm.consequence else ""
    return f"{alarm.level}: {alarm.text}{follows}" + (f" ({alarm.remedy})" if alarm.remedy else "") + seen


def trial_phases(state: RunState) -> Counter[str]:
    """Trials of the current step by phase."""
    return Counter(t.phase for group in state.groups.values() for t in group.trials)


def trial_outcomes(state: RunState) -> Counter[str]:
    """Finished trials of the current step by outcome class."""
    return Counter(t.outcome for group in state.groups.values() for t in group.trials if t.outcome)


def _counted(counter: Counter[str]) -> str:
    return ", ".join(f"{n} {name.replace('_', ' ')}" for name, n in counter.most_common())


def _figure(value: float | None) -> str:
    return "--" if value is None else f"{value:.4g}"


def _or_dashes(value: int | None) -> str:
    return "--" if value is None else str(value)
