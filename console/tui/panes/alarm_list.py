"""Alarms as blocks of rows: what is wrong, since when, what follows, what to do, with which key; what is watched."""

from __future__ import annotations

import time
import typing
from collections.abc import Callable, Iterable
from functools import cache
from typing import NamedTuple

import msgspec

from console.state.model import AlarmState, RunState
from console.state.sanitize import sanitize
from console.state.thresholds import BENCH_MEANINGS, OF_BENCHMARKS, AlarmThresholds
from console.state.words import BENCHMARK
from console.tui.event_log import Entry
from console.tui.text import Line, Span, clock, line, wrap

_NAME = 13


class Block(NamedTuple):
    """Rows that are selected as one. `alarm`: what they are about; a heading cannot be selected."""

    rows: list[Line]
    alarm: AlarmState | None = None
    heading: bool = False


SECTIONS = ("Asking for you", "Acknowledged", "Over, not acknowledged yet", "Shelved")


def sections(state: RunState, now: float) -> list[tuple[str, list[AlarmState]]]:
    """The alarms by what they ask of the operator: critical ones first, of these the oldest first."""
    found: dict[str, list[AlarmState]] = {name: [] for name in SECTIONS}
    for alarm in sorted(state.alarms.values(), key=lambda a: (a.level != "critical", a.since)):
        shelved = alarm.shelved_until > now
        place = 3 if shelved else 2 if not alarm.open else 1 if alarm.acked_by else 0
        found[SECTIONS[place]].append(alarm)
    for key, until in state.shelf.items():
        if key not in state.alarms and until > now:
            found[SECTIONS[3]].append(AlarmState(key=key, level="", text="", shelved_until=until))
    return [(name, alarms) for name, alarms in found.items() if alarms]


def block(alarm: AlarmState, now: float, cells: int, key_of: Callable[[str], str]) -> Block:
    """One alarm. `key_of` gives the key of a command or action, empty for none."""
    critical = alarm.level == "critical"
    mark = Span(" ! ", "alert") if critical else Span(" * ", "limit+bold") if alarm.level else Span(" - ", "muted")
    words = sanitize(alarm.text, limit=400) or f"{sanitize(alarm.key, limit=120)} is silent, should it come"
    first, *more = wrap(words, max(10, cells - 5), "bold")
    rows: list[Line] = [line(mark, " ", *first), *(line("    ", *row) for row in more)]
    facts = [sanitize(alarm.key, limit=120)]
    if alarm.level:
        facts.insert(0, sanitize(alarm.level, limit=20))
    if alarm.since:
        facts.append(f"since {_moment(alarm.since)}, {clock((alarm.cleared or now) - alarm.since)}")
    if alarm.cleared is not None:
        facts.append(f"over for {clock(now - alarm.cleared)}")
    if alarm.acked_by:
        facts.append(f"acknowledged by {sanitize(alarm.acked_by, limit=60)}")
    if alarm.shelved_until > now:
        facts.append(f"shelved until {_moment(alarm.shelved_until)}, for {clock(alarm.shelved_until - now)}")
    rows += [line("    ", *row) for row in wrap(", ".join(facts), max(10, cells - 5), "muted")]
    rows += _labelled("what follows", alarm.consequence, cells)
    rows += _labelled("what to do", alarm.remedy, cells)
    key = key_of(alarm.action) if alarm.action else ""
    if key and alarm.open:
        words = sanitize(alarm.action.replace("_", " "), limit=40)
        rows.append(line("    ", Span(f"{'key':<{_NAME}}", "muted"), Span(key, "key"), f" {words}"))
    return Block(rows, alarm)


def _labelled(name: str, text: str, cells: int) -> list[Line]:
    clean = sanitize(text, limit=600)
    if not clean:
        return []
    first, *rest = wrap(clean, max(10, cells - 5 - _NAME))
    return [
        line("    ", Span(f"{name:<{_NAME}}", "muted"), *first),
        *(line(" " * (4 + _NAME), *row) for row in rest),
    ]


def past(entries: Iterable[Entry], cells: int) -> list[Block]:
    """What happened with alarms, the newest first, a row each or more."""
    out = []
    for entry in entries:
        role = {"error": "infra", "warning": ""}.get(entry.level, "muted")
        first, *rest = wrap(sanitize(entry.text, limit=400), max(10, cells - 11), role)
        when = Span(f" {_moment(entry.ts)} ", "muted")
        out.append(Block([line(when, " ", *first), *(line(" " * 11, *row) for row in rest)]))
    return out


def watched(state: RunState, cells: int) -> list[Block]:
    """The thresholds that the run is judged by, with what they mean; those that were changed stand out."""
    limits, usual = AlarmThresholds.from_state(state.thresholds), AlarmThresholds()
    bench = state.kind == BENCHMARK
    values = {name: getattr(limits, name) for name in meanings() if not bench or name in OF_BENCHMARKS}
    values |= {name: value for name, value in state.thresholds.items() if bench and name in BENCH_MEANINGS}
    out = []
    for name, value in values.items():
        meaning = BENCH_MEANINGS.get(name) or meanings()[name]
        changed = value != getattr(usual, name, value)
        head = f"{name.replace('_', ' ')}"
        role = "limit" if changed else ""
        was = f" (default {getattr(usual, name):g})" if changed else ""
        first, *rest = wrap(f"{meaning}{was}", max(10, cells - 42), "muted")
        out.append(
            Block(
                [
                    line(f" {head:<31.31} ", Span(f"{value:>7g}", role), "  ", *first),
                    *(line(" " * 42, *row) for row in rest),
                ]
            )
            if cells >= 76
            else Block([line(f" {head:<31.31} ", Span(f"{value:>7g}", role))])
        )
    return out


@cache
def meanings() -> dict[str, str]:
    """Name of each threshold to what it means, in order."""
    hints = typing.get_type_hints(AlarmThresholds, include_extras=True)
    out = {}
    for field in msgspec.structs.fields(AlarmThresholds):
        notes = getattr(hints[field.name], "__metadata__", ())
        out[field.name] = next((n.description for n in notes if isinstance(n, msgspec.Meta) and n.description), "")
    return out


def _moment(ts: float) -> str:
    return time.strftime("%H:%M:%S", time.localtime(ts))
