"""Acknowledge, shelve, note: what an operator says about a run without touching it. Also while it is ending."""

from __future__ import annotations

from console.control.commands import Command
from console.engine.operable import Told
from console.engine.plans import Plan, already, by, count, refuse
from console.journal import events as ev
from console.state.sanitize import sanitize

NOTE_LIMIT = 500
MOST_MINUTES = 7 * 24 * 60


def ack(engine: Told, command: Command) -> Plan:
    """One alarm, or all that ask."""
    alarms, now = engine.view.state.alarms, engine.now()
    key = _key(command)
    if "alarm" in command.args:
        if key not in alarms:
            return refuse(f"no alarm {sanitize(key, 80)!r}; {_open(engine)}")
        if alarms[key].acked_by:
            return already(f"{key} is acknowledged already, by {sanitize(alarms[key].acked_by, 60)}")
        keys = [key]
    else:
        keys = [alarm.key for alarm in alarms.values() if alarm.asks(now)]
        if not keys:
            return already("no alarm asks for anybody")

    def act() -> str:
        for each in keys:
            engine.emit(ev.AlarmAcked(key=each, by=by(command)))
        return f"{count(len(keys), 'alarm')} acknowledged"

    shown = ", ".join(sanitize(k, 80) for k in keys[:4]) + (f" and {len(keys) - 4} more" if len(keys) > 4 else "")
    return Plan(True, f"acknowledges {shown}: silent until it opens again", act)


def shelve(engine: Told, command: Command) -> Plan:
    """An alarm is silent for some minutes, or no longer."""
    state, now = engine.view.state, engine.now()
    key, minutes = _key(command), command.args.get("minutes", 60.0)
    shown = sanitize(key, 80)
    if isinstance(minutes, bool) or not isinstance(minutes, int | float) or not 0 <= minutes <= MOST_MINUTES:
        return refuse(f"minutes must be 0 to {MOST_MINUTES}")
    shelved = state.shelf.get(key, 0.0) > now
    if key not in state.alarms and not shelved:
        return refuse(f"no alarm {shown!r}; {_open(engine)}")
    if not minutes and not shelved:
        return already(f"{shown} is not shelved")

    def act() -> str:
        until = engine.now() + minutes * 60 if minutes else 0.0
        engine.emit(ev.AlarmShelved(key=key, until=until, by=by(command)))
        return f"{shown} is silent for {minutes:g} min" if minutes else f"{shown} is back from the shelf"

    text = f"silences {shown} for {minutes:g} min, also when it opens again" if minutes else f"{shown} is heard again"
    return Plan(True, text, act)


def note(engine: Told, command: Command) -> Plan:
    """A line in the journal."""
    text = sanitize(command.args.get("text", ""), NOTE_LIMIT).strip()
    if not text:
        return refuse("the note has nothing that can be shown")

    def act() -> str:
        engine.emit(ev.Note(text=text, source=by(command)))
        return "noted"

    return Plan(True, "adds the note to the journal", act)


def _key(command: Command) -> str:
    return str(command.args.get("alarm", "")).strip()


def _open(engine: Told) -> str:
    keys = list(engine.view.state.alarms)
    return f"there are {', '.join(sanitize(k, 80) for k in keys[:6])}" if keys else "there is none"
