"""What the events pane says: one sentence for each event that a person wants to know of.

Names and texts may come from a policy, its sandbox or a task: each is sanitised by itself before they are joined, so
that one field cannot open a sequence that another closes.
"""

from __future__ import annotations

from console.journal import events as ev
from console.outcomes.classes import SCORED
from console.state.model import EVENTS_KEPT, EventLine, RunState
from console.state.sanitize import sanitize as clean
from console.state.words import BENCHMARK, plural, span

_QUIET = frozenset(
    {ev.TrialTurn, ev.TrialPhase, ev.CaptureStats, ev.SandboxStats, ev.HostStats, ev.StepStarted, ev.GroupStarted}
)


_LOGPROBS = {
    True: "of the tempered distribution: at another temperature than 1, PPO ratios do not start at 1",
    False: "of temperature 1: at another temperature, PPO ratios start at 1 and the samples are off",
    None: "of an unknown distribution: at another temperature than 1, PPO ratios may be wrong",
}


def append_for(state: RunState, event: ev.Event) -> None:
    """Append the event's line, if it has one, to the bounded list."""
    if type(event) in _QUIET:
        return
    line = line_for(state, event)
    if line is not None:
        state.lines.append(line)
        if len(state.lines) > EVENTS_KEPT:
            del state.lines[:-EVENTS_KEPT]


def line_for(state: RunState, event: ev.Event) -> EventLine | None:
    """The event's line. `state` is the state after the event."""
    text, level, outcome = _text(state, event)
    return EventLine(ts=event.ts, text=text, level=level, outcome=outcome) if text else None


def trial_name(group: int, trial: int) -> str:
    """As the screen names it: groups and trials count from 1."""
    return f"g{group + 1}/t{trial + 1}"


def _text(state: RunState, event: ev.Event) -> tuple[str, str, str | None]:
    match event:
        case ev.TrialFinished():
            return _trial_finished(event)
        case ev.TrialHeld():
            return _trial_held(state, event), "warning", None
        case ev.TrialRetried():
            name = trial_name(event.group, event.trial)
            return f"{name} try {event.try_ + 1} granted by {clean(event.by)}", "info", None
        case ev.GroupFinished() if state.kind == BENCHMARK:
            return "", "info", None  # what was not graded was told by its trial
        case ev.StepFinished() if state.kind == BENCHMARK:
            return f"all trials have ended: {_counted(event.outcomes) or 'there was none'}", "info", None
        case ev.BenchPlanned():
            return _planned(event), "info", None
        case ev.BenchLimited():
            if not event.why and event.limit == state.bench.concurrency and event.by == "policy":
                return "", "info", None  # as planned
            why = f": {clean(event.why, 200)}" if event.why else ""
            level = (
                "warning" if event.by == "policy" and event.why and event.limit < state.bench.concurrency else "info"
            )
            return f"trials at once: {event.limit or 'none'}, by {clean(event.by)}{why}", level, None
        case ev.GroupFinished(kept=False):
            return f"g{event.group + 1} dropped: {clean(event.reason) or 'no reason given'}", "warning", None
        case ev.StepFinished():
            return _step_finished(event), "info", None
        case ev.GatewayHealth():
            changed = state.gateway.since == event.ts
            what = "model endpoint" if state.kind == BENCHMARK else "gateway"
            if changed and not event.reachable:
                return f"{what} unreachable: {clean(event.detail)}", "error", None
            return (f"{what} reachable" if changed else ""), "info", None
        case ev.RunStarted(resumed_from=resumed):
            where = f", resumed at step {resumed}" if resumed is not None else ""
            what = "benchmark" if event.kind == BENCHMARK else "run"
            return f"{what} {clean(event.name or event.run_id)} started{where}", "info", None
        case ev.RunResumed():
            return _resumed(event), "warning" if event.why_not else "info", None
        case ev.GatewayProfiled():
            return _profiled(event), "info", None
        case ev.GatewayWaiting():
            if not event.reason:
                return "the wait for the gateway is over", "info", None
            left = f", expected to last {span(event.until - event.ts)}" if event.until > event.ts else ""
            return f"waits for the gateway: {clean(event.reason, 200)}{left}", "warning", None
        case ev.ClockJumped():
            return _clock_jumped(event), "warning", None
        case ev.RunFinished():
            text = f"run {clean(event.status)}, exit {event.exit_code}" + (
                f": {clean(event.reason)}" if event.reason else ""
            )
            return text, "info" if event.exit_code == 0 else "warning", None
        case ev.CheckpointSaved():
            return f"checkpoint {clean(event.name)} saved at step {event.step}", "info", None
        case ev.AlarmOpened():
            alarm = state.alarms.get(event.key)
            if alarm is not None and alarm.told != event.ts:  # the same again, with another consequence or remedy
                return "", "info", None
            return f"alarm: {clean(event.text)}", "error" if event.level == "critical" else "warning", None
        case ev.AlarmClosed():
            return f"alarm over: {clean(event.key)}", "info", None
        case ev.AlarmAcked():
            return f"alarm {clean(event.key)} acknowledged by {clean(event.by) or 'operator'}", "info", None
        case ev.AlarmShelved():
            what = "shelved" if event.until > event.ts else "back from the shelf"
            return f"alarm {clean(event.key)} {what}, by {clean(event.by) or 'operator'}", "info", None
        case ev.DispatchPaused():
            what = "paused: no new trial begins" if event.paused else "resumed"
            return f"dispatch {what}, by {clean(event.by) or 'operator'}", "warning" if event.paused else "info", None
        case ev.RunTuned():
            return (
                f"{clean(event.name)} {_setting(event.old)} -> {_setting(event.new)}, by {clean(event.by)}",
                "info",
                None,
            )
        case ev.TaskQuarantined():
            what = "quarantined: new batches leave it out" if event.on else "out of quarantine"
            return f"task {clean(event.task)} {what}, by {clean(event.by)}", "warning" if event.on else "info", None
        case ev.WatchTaken():
            if not event.by:
                return f"the watch was given back by {clean(event.previous)}", "info", None
            before = f", before {clean(event.previous)}" if event.previous else ""
            return f"{clean(event.by)} has the watch{before}", "info", None
        case ev.CommandRequested():
            return f"{_words(event.command)} requested by {clean(event.author) or 'operator'}", "info", None
        case ev.CommandFinished():
            command = state.commands.get(event.id)
            name = _words(command.command) if command is not None else "command"
            return (
                f"{name} {clean(event.status)}: {clean(event.result)}",
                "info" if event.status == "done" else "warning",
                None,
            )
        case ev.StopRequested():
            if not event.when:
                return "stop request taken back", "info", None
            if state.kind == BENCHMARK and event.when == "after_step":
                return "stop requested: no more trials begin", "warning", None
            return f"stop requested ({_words(event.when)})", "warning", None
        case ev.SamplingProbed():
            return f"the gateway's log-probs: {_LOGPROBS[event.tempered]} ({clean(event.detail)})", "info", None
        case ev.Note():
            return clean(event.text), event.level, None
        case ev.JournalRepaired():
            return f"journal repaired: {event.dropped_bytes} bytes of a torn line dropped", "warning", None
        case _:
            return "", "info", None


def _resumed(e: ev.RunResumed) -> str:
    where = f"resumes from checkpoint {clean(e.checkpoint)}" if e.checkpoint else "resumes from the beginning"
    parts = [f"{where}, step {e.step}"]
    if e.replayed:
        steps = f"steps {e.replayed[0]} to {e.replayed[-1]}" if len(e.replayed) > 1 else f"step {e.replayed[0]}"
        parts.append(f"{steps} applied again from what was captured, without new trials")
    if e.reused:
        again = f", {e.redone} run again" if e.redone is not None else ""
        parts.append(f"{e.reused} finished trials of step {e.step + len(e.replayed)} are used{again}")
    if e.why_not:
        parts.append(clean(e.why_not, 200))
    return "; ".join(parts)


def _profiled(e: ev.GatewayProfiled) -> str:
    said = [f"gateway: {clean(e.profile)}"]
    if e.context_window is not None:
        said.append(f"window {e.context_window:,} tokens")
    if e.lease is not None:
        said.append(f"lease {e.lease:g} s")
    if e.translated:
        said.append(f"takes requests of SDK {clean(e.sdk)}, translated: {clean(', '.join(e.translated), 200)}")
    return ", ".join(said)


def _planned(e: ev.BenchPlanned) -> str:
    which = f"mop-up {e.mop_up} of {clean(e.parent, 120)}: " if e.mop_up else ""
    agents = f", {len(e.agents)} agents" if len(e.agents) > 1 else ""
    stands = f"; {e.done} stand from before" if e.done else ""
    return (
        f"{which}{clean(e.dataset or e.job_name)}: {plural(e.tasks, 'task')}, {plural(e.attempts, 'attempt')} each"
        f"{agents}: {plural(e.trials, 'trial')}, {e.concurrency} at once{stands}"
    )


def _counted(counts: dict[str, int]) -> str:
    return ", ".join(f"{number} {_words(name)}" for name, number in sorted(counts.items(), key=lambda item: -item[1]))


def _clock_jumped(e: ev.ClockJumped) -> str:
    said = []
    if e.slept:
        said.append(f"the machine slept for {span(e.slept)}: the gateway may have ended the session")
    if e.stepped:
        way = "forward" if e.stepped > 0 else "back"
        said.append(f"the time of day was set {way} by {span(abs(e.stepped))}")
    return "; ".join(said)


def _trial_held(state: RunState, e: ev.TrialHeld) -> str:
    """Empty when it is held already: then only its deadline has moved, for all that are held at once."""
    group = state.groups.get(e.group) if state.step == e.step else None
    trial = group.trials[e.trial] if group is not None and 0 <= e.trial < len(group.trials) else None
    if trial is not None and trial.phase == "held" and trial.phase_since != e.ts:
        return ""
    how = " (can be retried)" if trial is not None and trial.retryable else ""
    return f"{trial_name(e.group, e.trial)} held: waits for the operator{how}, or the run stops"


def _trial_finished(e: ev.TrialFinished) -> tuple[str, str, str | None]:
    name = trial_name(e.group, e.trial)
    if e.reused:
        return "", "info", None
    if e.outcome == "completed":
        return "", "info", None
    if e.outcome == "cancelled":
        return f"{name} cancelled by {clean(e.cause) or 'run'}", "info", e.outcome
    if e.outcome in SCORED:
        reward = "--" if e.reward is None else f"{e.reward:.2f}"
        return f"{name} {e.outcome.replace('_', ' ')}, scored r={reward}", "info", e.outcome
    type_ = clean(e.exception or "")
    names = (clean(e.outcome.replace("_", " ")), clean(e.cause.replace("_", " ")))
    # Evidence often begins with the type: it is said once.
    what = " ".join(x for x in (*names, "" if type_ and clean(e.evidence).startswith(type_) else type_) if x)
    detail = f": {clean(e.evidence, 120)}" if e.evidence else ""
    return f"{name} {what}{detail}", "error", e.outcome


def _words(name: str) -> str:
    return clean(name).replace("_", " ")


def _setting(value: float | None) -> str:
    return "none" if value is None else f"{value:g}"


def _step_finished(e: ev.StepFinished) -> str:
    def figure(value: float | None, spec: str) -> str:
        return "--" if value is None else format(value, spec)

    kept = f"{e.groups_kept}/{e.groups_kept + e.groups_dropped} groups"
    if e.recovered:
        return f"step {e.step} was trained and saved by the engine before: reward {figure(e.reward_mean, '.3f')}"
    again = " (applied again)" if e.replayed else ""
    return (
        f"step {e.step} done reward {figure(e.reward_mean, '.3f')} loss {figure(e.ppo_loss, '.4g')} "
        f"{figure(e.seconds_total, '.1f')}s kept {kept}{again}"
    )
