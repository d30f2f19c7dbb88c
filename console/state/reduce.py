"""The one reducer: `apply(view, event)`. Live view, attach, replay, headless and tests all come through here.

It never fails on an event that decodes: an event that does not fit the state (a turn of an unknown trial) is ignored,
since a journal may start in the middle. It uses no clock but the events' own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from console.journal import events as ev
from console.state import lines, reduce_bench, reduce_plumbing, reduce_trials
from console.state.bench_model import BenchState
from console.state.model import (
    CAPTURE_TOTALS,
    COMMANDS_KEPT,
    SHELF_KEPT,
    AlarmState,
    CaptureState,
    CommandState,
    History,
    HostState,
    ResumeState,
    RunState,
    decode_state,
)


class RunView:
    """State and history together: what a reader of a journal has.

    Attributes:
        state: the open state; history: the finished steps.
    """

    __slots__ = ("history", "state")

    def __init__(self, state: RunState | None = None, history: History | None = None) -> None:
        self.state = state if state is not None else RunState()
        self.history = history if history is not None else History()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, RunView) and self.state == other.state and self.history == other.history

    __hash__ = None  # type: ignore[assignment]


def fold(events: Iterable[ev.Event], view: RunView | None = None) -> RunView:
    """Apply all events to a new (or the given) view and return it."""
    view = view if view is not None else RunView()
    for event in events:
        apply(view, event)
    return view


def apply(view: RunView, event: ev.Event) -> None:
    """Apply one event in place. Events at or before the state's `seq` were applied already and are ignored."""
    state = view.state
    if event.seq and event.seq <= state.seq:
        return
    state.seq, state.ts = event.seq, event.ts
    handler = _HANDLERS.get(type(event))
    if handler is None:
        return
    handler(view, event)
    if type(event) in _PROGRESS:
        state.progress = event.ts
    lines.append_for(state, event)


def state_of(snapshot: ev.Snapshot) -> RunState | None:
    """The state that a snapshot holds, as of the snapshot's own `seq`; None when it does not fit its place."""
    try:
        state = decode_state(snapshot.state)
    except (ValueError, RecursionError):
        return None
    if state.seq != snapshot.seq - 1:
        return None
    state.seq, state.ts = snapshot.seq, snapshot.ts
    return state


# --- handlers ----------------------------------------


def _run_started(view: RunView, e: ev.RunStarted) -> None:
    s = view.state
    s.run_id, s.name, s.run_dir, s.pid, s.socket = e.run_id, e.name, e.run_dir, e.pid, e.socket
    s.model, s.gateway_url, s.versions, s.config = e.model, e.gateway_url, e.versions, e.config
    s.kind, s.bench = e.kind, BenchState()
    s.steps_planned = e.steps if e.steps is not None else s.steps_planned
    s.groups_per_batch, s.group_size = e.groups_per_batch, e.group_size
    s.on_failure, s.hold_timeout, s.owned = e.on_failure, e.hold_timeout, e.owned
    s.tunables, s.tunables_at_start, s.thresholds = dict(e.tunables), dict(e.tunables), dict(e.thresholds)
    s.paused, s.paused_by, s.watch, s.recent, s.progress = False, "", "", [], e.ts
    s.host = HostState()
    s.started, s.engine_started, s.dispatch_since = s.started or e.ts, e.ts, 0.0
    s.engines += 1
    s.status, s.exit_code, s.reason, s.stop_requested = "live", None, "", ""
    s.groups, s.alarms, s.step, s.step_started = {}, {}, None, None
    s.sandboxes_live, s.gateway.reachable = 0, None
    s.gateway.waiting, s.gateway.waiting_until, s.resumed, s.replaying = "", 0.0, None, False
    # What the last engine's SDK went through at the gateway ended with it.
    s.gateway.heartbeat_age = s.gateway.lease_left = s.gateway.backoff = None
    s.gateway.queue, s.gateway.queue_reason, s.gateway.pending, s.gateway.oldest = "", "", {}, {}
    # Totals are the run's. The rest the new engine counts from zero: no rate between its first report and the last's.
    s.capture = CaptureState(**{name: getattr(s.capture, name) for name in CAPTURE_TOTALS})
    for command in s.commands.values():
        if command.finished is None:
            command.status, command.finished, command.result = "refused", e.ts, "the engine ended first"
    if e.resumed_from is not None:
        history = view.history
        history.rows = [row for row in history.rows if row.step < e.resumed_from]
        s.steps_done = s.policy_version = e.resumed_from
    _phase(view, ev.RunPhase(phase="starting", ts=e.ts))


def _phase(view: RunView, e: ev.RunPhase) -> None:
    s = view.state
    # A step begins with its rollout, so a rollout that is told again, after a save, is still the same one.
    began = s.step_started if e.phase == "rollout" else None
    s.phase, s.phase_detail, s.phase_since = e.phase, e.detail, began if began is not None else e.ts
    if e.phase == "stopping" and s.status == "live":
        s.status = "stopping"


def _resumed(view: RunView, e: ev.RunResumed) -> None:
    view.state.resumed = ResumeState(
        checkpoint=e.checkpoint, step=e.step, replayed=e.replayed, reused=e.reused, redone=e.redone, why_not=e.why_not
    )


def _planned(view: RunView, e: ev.RunPlanned) -> None:
    view.state.steps_planned = e.steps


def _run_finished(view: RunView, e: ev.RunFinished) -> None:
    s = view.state
    s.status = e.status if e.status in ("stopped", "failed") else "finished"  # type: ignore[assignment]
    s.exit_code, s.reason, s.phase, s.phase_since, s.phase_detail = e.exit_code, e.reason, "ended", e.ts, ""
    c, s.capture.inflight = s.capture, 0
    c.sampled_per_second = c.prompt_per_second = c.trained_per_second = None


def _step_started(view: RunView, e: ev.StepStarted) -> None:
    s = view.state
    s.step, s.step_started, s.policy_version = e.step, e.ts, e.policy_version
    s.weights, s.replaying = e.weights, e.replayed
    s.groups = {}
    s.phase, s.phase_detail, s.phase_since = "rollout", "", e.ts


def _step_finished(view: RunView, e: ev.StepFinished) -> None:
    s = view.state
    s.steps_done, s.policy_version, s.weights = e.step + 1, e.policy_version, e.weights
    view.history.add(e)


def _alarm_opened(view: RunView, e: ev.AlarmOpened) -> None:
    """An alarm that was over opens anew: what was seen of the old one does not count for it."""
    known = view.state.alarms.get(e.key)
    again = known is not None and known.open
    view.state.alarms[e.key] = AlarmState(
        key=e.key, level=e.level, text=e.text, remedy=e.remedy, consequence=e.consequence, action=e.action,
        since=known.since if known is not None and again else e.ts,
        acked_by=known.acked_by if known is not None and again and known.level == e.level else "",
        shelved_until=view.state.shelf.get(e.key, 0.0),
        told=known.told if known is not None and again and (known.level, known.text) == (e.level, e.text) else e.ts,
    )  # fmt: skip


def _alarm_closed(view: RunView, e: ev.AlarmClosed) -> None:
    """Over. A critical alarm that nobody has seen stays until it is acknowledged, or somebody would never know."""
    alarm = view.state.alarms.get(e.key)
    if alarm is None:
        return
    if alarm.level == "critical" and alarm.asks(e.ts):
        alarm.cleared = e.ts
    else:
        del view.state.alarms[e.key]


def _alarm_acked(view: RunView, e: ev.AlarmAcked) -> None:
    alarm = view.state.alarms.get(e.key)
    if alarm is None:
        return
    alarm.acked_by = e.by or "operator"
    if not alarm.open:
        del view.state.alarms[e.key]


def _alarm_shelved(view: RunView, e: ev.AlarmShelved) -> None:
    shelf = view.state.shelf
    shelf.pop(e.key, None)
    if e.until > e.ts:
        shelf[e.key] = e.until
        while len(shelf) > SHELF_KEPT:
            del shelf[next(iter(shelf))]
    alarm = view.state.alarms.get(e.key)
    if alarm is not None:
        alarm.shelved_until = shelf.get(e.key, 0.0)


def _dispatch(view: RunView, e: ev.DispatchPaused) -> None:
    s = view.state
    if s.paused != e.paused:
        s.dispatch_since = e.ts
    s.paused, s.paused_by = e.paused, e.by if e.paused else ""


def _tuned(view: RunView, e: ev.RunTuned) -> None:
    if e.name in ev.TUNABLES or e.name in ev.BENCH_TUNABLES:
        view.state.tunables[e.name] = e.new
        if e.name == "hold_timeout":
            view.state.hold_timeout = e.new


def _quarantined(view: RunView, e: ev.TaskQuarantined) -> None:
    tasks = [task for task in view.state.quarantined if task != e.task]
    view.state.quarantined = [*tasks, e.task] if e.on else tasks


def _watch(view: RunView, e: ev.WatchTaken) -> None:
    view.state.watch = e.by


def _command_requested(view: RunView, e: ev.CommandRequested) -> None:
    commands = view.state.commands
    commands[e.id] = CommandState(
        id=e.id, command=e.command, args=e.args, author=e.author, reason=e.reason, requested=e.ts
    )
    while len(commands) > COMMANDS_KEPT:
        del commands[next(iter(commands))]


def _command_accepted(view: RunView, e: ev.CommandAccepted) -> None:
    command = view.state.commands.get(e.id)
    if command is not None and command.finished is None:
        command.status, command.effect = "accepted", e.effect


def _command_finished(view: RunView, e: ev.CommandFinished) -> None:
    command = view.state.commands.get(e.id)
    if command is not None:
        command.status, command.result, command.finished = e.status, e.result, e.ts


def _stop_requested(view: RunView, e: ev.StopRequested) -> None:
    view.state.stop_requested = e.when


def _note(view: RunView, e: ev.Note) -> None:
    pass


def _repaired(view: RunView, e: ev.JournalRepaired) -> None:
    view.state.repaired_bytes += e.dropped_bytes


def _snapshot(view: RunView, e: ev.Snapshot) -> None:
    """A snapshot restates the state. After a gap it heals it, and so a seek and a full fold agree on any journal."""
    restated = state_of(e)
    if restated is not None:
        for name in RunState.__struct_fields__:
            setattr(view.state, name, getattr(restated, name))


def _unknown(view: RunView, e: ev.UnknownEvent) -> None:
    view.state.unknown_events += 1


_PROGRESS = frozenset(
    {
        ev.RunStarted, ev.RunPhase, ev.StepStarted, ev.StepFinished, ev.GroupStarted, ev.GroupFinished, ev.TrialPhase,
        ev.TrialTurn, ev.TrialFinished, ev.TrialRetried, ev.CheckpointSaved, ev.RunFinished, ev.BenchPlanned,
    }
)  # fmt: skip
"""Events that show that the run moves. Health, totals, alarms and commands come from a run that hangs, too."""

_HANDLERS: dict[type[ev.Event], Callable[[RunView, Any], None]] = {
    ev.RunStarted: _run_started,
    ev.RunResumed: _resumed,
    ev.RunPhase: _phase,
    ev.RunPlanned: _planned,
    ev.RunFinished: _run_finished,
    ev.StepStarted: _step_started,
    ev.StepFinished: _step_finished,
    **reduce_trials.HANDLERS,
    **reduce_plumbing.HANDLERS,
    **reduce_bench.HANDLERS,
    ev.AlarmOpened: _alarm_opened,
    ev.AlarmClosed: _alarm_closed,
    ev.AlarmAcked: _alarm_acked,
    ev.AlarmShelved: _alarm_shelved,
    ev.DispatchPaused: _dispatch,
    ev.RunTuned: _tuned,
    ev.TaskQuarantined: _quarantined,
    ev.WatchTaken: _watch,
    ev.CommandRequested: _command_requested,
    ev.CommandAccepted: _command_accepted,
    ev.CommandFinished: _command_finished,
    ev.StopRequested: _stop_requested,
    ev.Note: _note,
    ev.JournalRepaired: _repaired,
    ev.Snapshot: _snapshot,
    ev.UnknownEvent: _unknown,
}
