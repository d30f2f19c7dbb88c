"""What `quarterdeck ctl` shows of a run: status, groups, alarms, viewers, events. For people, and with --json."""

from __future__ import annotations

import argparse
import json
import time
from datetime import UTC, datetime
from itertools import islice
from typing import Any

import msgspec

from console.commands.parsing import say
from console.commands.runs import run_record
from console.control.blocking import greet, read_events, read_viewers
from console.control.messages import Viewer
from console.control.runs import RunInfo, load_view
from console.errors import ControlError, UsageError
from console.headless.status import status_lines, status_record
from console.journal.codec import encode_event
from console.journal.events import Snapshot
from console.outcomes.classes import SCORED
from console.records.run_dir import RunRecord
from console.state.lines import trial_name
from console.state.model import AlarmState, RunState, TrialState
from console.state.reduce import RunView
from console.state.sanitize import sanitize
from console.state.words import BENCHMARK

EVENTS_SHOWN, EVENTS_AT_MOST = 1000, 10_000
LAST_EVENTS = 50
LINE = 240


def show_status(run: RunInfo, words: list[str], args: argparse.Namespace) -> int:
    """`ctl status`."""
    view = load_view(run)
    state, now = view.state, time.time()
    moment = max(now, state.ts) if run.state == "live" else None  # as the console beside it
    alarms = [_alarm_record(alarm, now) for alarm in state.alarms.values()]
    if args.json:
        say(json.dumps({**run_record(run), **status_record(view, moment), **_operation(state), "alarms": alarms}))
        return 0
    bare = RunView(msgspec.structs.replace(state, alarms={}, stop_requested="", paused=False), view.history)
    lines = [*status_lines(run.state, bare, moment), *_operation_lines(state)]
    counts = {name: sum(a["state"] == name for a in alarms) for name in ("open", "acknowledged", "shelved", "over")}
    if alarms:
        lines.append("alarms   " + ", ".join(f"{count} {name}" for name, count in counts.items() if count))
    lines += [f"         {_alarm_line(alarm, now)}" for alarm in _by_weight(state, now)]
    say("\n".join(sanitize(line, LINE) for line in lines))
    return 0


def _operation(state: RunState) -> dict[str, Any]:
    """How the run is being operated."""
    return {
        "paused": state.paused,
        "paused_by": sanitize(state.paused_by, 120) or None,
        "tunables": state.tunables,
        "quarantined": [sanitize(task, 200) for task in state.quarantined],
        "watch": sanitize(state.watch, 120) or None,
    }


def _operation_lines(state: RunState) -> list[str]:
    lines = []
    if state.stop_requested:
        lines.append(f"stop     requested ({state.stop_requested.replace('_', ' ')})")
    if state.paused:
        lines.append(f"paused   no new trial begins, by {sanitize(state.paused_by, 120) or 'operator'}")
    settings = ", ".join(f"{name} {_setting(value)}" for name, value in state.tunables.items())
    if settings:
        lines.append(f"set      {settings}")
    if state.quarantined:
        lines.append(f"skipped  {', '.join(sanitize(task, 60) for task in state.quarantined)}")
    lines.append(f"watch    {sanitize(state.watch, 120) or 'nobody has it'}")
    return lines


def _setting(value: float | None) -> str:
    return "none" if value is None else f"{value:g}"


# --- alarms ----------------------------------------


def show_alarms(run: RunInfo, words: list[str], args: argparse.Namespace) -> int:
    """`ctl alarms`."""
    state, now = load_view(run).state, time.time()
    if args.json:
        alarms = [_alarm_record(alarm, now) for alarm in _by_weight(state, now)]
        say(json.dumps({"v": 1, "type": "alarms", "run_id": run.run_id, "alarms": alarms}))
    else:
        say("\n".join(_alarm_line(alarm, now) for alarm in _by_weight(state, now)) or "no alarms")
    return 0


def _alarm_condition(alarm: AlarmState, now: float) -> str:
    if alarm.shelved_until > now:
        return "shelved"
    if not alarm.open:
        return "over"
    return "acknowledged" if alarm.acked_by else "open"


def _by_weight(state: RunState, now: float) -> list[AlarmState]:
    """Those that ask for attention first, critical ones before others, older before newer."""
    return sorted(state.alarms.values(), key=lambda a: (not a.asks(now), a.level != "critical", a.since))


def _alarm_record(alarm: AlarmState, now: float) -> dict[str, Any]:
    return {
        "key": sanitize(alarm.key, 120),
        "level": alarm.level,
        "state": _alarm_condition(alarm, now),
        "text": sanitize(alarm.text),
        "consequence": sanitize(alarm.consequence),
        "remedy": sanitize(alarm.remedy),
        "action": alarm.action or None,
        "since": alarm.since or None,
        "over_since": alarm.cleared,
        "acknowledged_by": sanitize(alarm.acked_by, 120) or None,
        "shelved_until": alarm.shelved_until or None,
    }


def _alarm_line(alarm: AlarmState, now: float) -> str:
    condition = _alarm_condition(alarm, now)
    if condition == "acknowledged":
        condition = f"acked by {sanitize(alarm.acked_by, 60)}"
    elif condition == "shelved":
        condition = f"shelved until {_clock(alarm.shelved_until)}"
    parts = [f"{sanitize(alarm.level, 20):<8}", condition, sanitize(alarm.key, 120), f"{sanitize(alarm.text, 200)}"]
    line = "  ".join(parts)
    if alarm.consequence:
        line += f"; {sanitize(alarm.consequence, 120)}"
    return line + (f" ({sanitize(alarm.remedy, 120)})" if alarm.remedy else "")


# --- viewers ----------------------------------------


def show_viewers(run: RunInfo, words: list[str], args: argparse.Namespace) -> int:
    """`ctl viewers`."""
    if run.state != "live" or run.socket is None:
        raise ControlError(f"run {run.run_id} is not live ({run.state}): nobody attends it")
    viewers = read_viewers(run.socket, run=run.run_id, timeout=args.timeout)
    if args.json:
        said = [{"author": sanitize(v.author, 120), "since": v.since, "acts": v.acts} for v in viewers]
        say(json.dumps({"v": 1, "type": "viewers", "run_id": run.run_id, "viewers": said}))
    else:
        say("\n".join(_viewer_line(viewer) for viewer in viewers) or "nobody attends the run")
    return 0


def _viewer_line(viewer: Viewer) -> str:
    return f"{'watch' if viewer.acts else 'looks'}  {sanitize(viewer.author, 120)}  since {_clock(viewer.since)}"


# --- groups ----------------------------------------


def show_groups(run: RunInfo, words: list[str], args: argparse.Namespace) -> int:
    """`ctl groups`."""
    state = load_view(run).state
    if args.json:
        groups = [
            {
                "group": f"g{index + 1}",
                "task": sanitize(group.task, 200),
                "kept": group.kept,
                "reason": sanitize(group.reason, 200) or None,
                "reward_mean": group.reward_mean,
                "reward_std": group.reward_std,
                "trials": [_trial_record(index, trial) for trial in group.trials],
            }
            for index, group in sorted(state.groups.items())
        ]
        say(json.dumps({"v": 1, "type": "groups", "run_id": run.run_id, "step": state.step, "groups": groups}))
        return 0
    lines = []
    for index, group in sorted(state.groups.items()):
        kept, dropped = ("graded", "not graded") if state.kind == BENCHMARK else ("kept", "dropped")
        how = {None: "runs", True: kept, False: f"{dropped}: {sanitize(group.reason, 80)}"}[group.kept]
        mean = "--" if group.reward_mean is None else f"{group.reward_mean:.2f}"
        lines.append(f"g{index + 1:<4} {sanitize(group.task, 60)}  {how}  reward {mean}")
        lines += [f"  {trial_name(index, trial.trial):<8} {_trial_words(trial)}" for trial in group.trials]
    say("\n".join(lines) or "no groups yet")
    return 0


def _trial_record(group: int, trial: TrialState) -> dict[str, Any]:
    return {
        "trial": trial_name(group, trial.trial),
        "try": trial.try_ + 1,
        "phase": trial.phase,
        "outcome": trial.outcome,
        "scored": trial.outcome in SCORED if trial.outcome else None,
        "cause": sanitize(trial.cause, 120) or None,
        "exception": sanitize(trial.exception, 120) if trial.exception else None,
        "evidence": sanitize(trial.evidence, 300) or None,
        "reward": trial.reward,
        "retryable": trial.retryable,
        "reused": trial.reused,
        "turns": trial.turns,
        "tokens": {"prompt": trial.prompt_tokens, "cached": trial.cached_tokens, "sampled": trial.sampled_tokens},
        "cost_usd": trial.cost_usd,
        "hold_deadline": trial.hold_deadline,
    }


def _trial_words(trial: TrialState) -> str:
    parts = [trial.phase if trial.outcome is None or trial.phase != "done" else ""]
    parts += [(trial.outcome or "").replace("_", " "), trial.cause, trial.exception or ""]
    parts = [sanitize(part, 80) for part in parts]
    if trial.reward is not None:
        parts.append(f"reward {trial.reward:.2f}")
    if trial.turns:
        parts.append(f"{trial.turns} turns")
    if trial.try_:
        parts.append(f"try {trial.try_ + 1}")
    if trial.reused:
        parts.append("reused")
    return "  ".join(part for part in parts if part)


# --- events ----------------------------------------


def show_events(run: RunInfo, words: list[str], args: argparse.Namespace) -> int:
    """`ctl events`: journal events after a cursor, as many as there are now, at most `--limit`."""
    limit = EVENTS_SHOWN if args.limit is None else args.limit
    if not 1 <= limit <= EVENTS_AT_MOST:
        raise UsageError(f"--limit {limit}: give 1 to {EVENTS_AT_MOST}")
    lines = _events(run, args.after, limit, args.timeout)
    more, lines = len(lines) > limit, lines[:limit]
    cursor = json.loads(lines[-1])["seq"] if lines else (args.after or 0)
    if args.json:
        # In ASCII, as all JSON here: a terminal obeys some of what JSON need not escape.
        events = ",".join(json.dumps(json.loads(line), separators=(",", ":")) for line in lines)
        head = {"v": 1, "type": "events", "run_id": run.run_id, "cursor": cursor, "more": more}
        say(f'{json.dumps(head)[:-1]}, "events": [{events}]}}')
        return 0
    for line in lines:
        say(_event_words(json.loads(line)))
    if more:
        say(f"more: go on with --after {cursor}")
    elif not lines:
        say("no events after that one")
    return 0


def _events(run: RunInfo, after: int | None, limit: int, timeout: float) -> list[bytes]:
    """Journal lines, one more than `limit` when there are more; without a cursor the last few."""
    live = run.socket if run.state == "live" else None
    if live is not None:
        try:
            start = after
            if start is None:
                start = max(0, greet(live, run=run.run_id, timeout=timeout).seq - min(LAST_EVENTS, limit))
            return read_events(live, start, limit + 1, run=run.run_id, timeout=timeout)
        except ControlError:
            pass  # it may have ended in this very moment; its files have everything
    journal = RunRecord(run.run_dir).journal
    after = max(0, journal.last_seq - min(LAST_EVENTS, limit)) if after is None else after
    found = []
    for event in islice(journal.events(after), limit + 1):
        if isinstance(event, Snapshot):
            event.state = msgspec.Raw(b"{}")
        found.append(encode_event(event))
    return found


def _event_words(event: dict[str, Any]) -> str:
    fields = {key: value for key, value in event.items() if key not in ("type", "seq", "ts")}
    said = " ".join(f"{sanitize(key, 40)}={_field(value)}" for key, value in fields.items())
    return sanitize(f"{event.get('seq')}  {_clock(event.get('ts') or 0.0)}  {event.get('type')}  {said}", LINE)


def _field(value: Any) -> str:
    return sanitize(value if isinstance(value, str) else json.dumps(value), 80)


def _clock(ts: float) -> str:
    try:
        return datetime.fromtimestamp(ts, UTC).strftime("%Y-%m-%d %H:%M:%SZ")
    except (ValueError, OverflowError, OSError):
        return "--"
