"""Orders that steer a run rather than stop parts of it: tuning, quarantine, alarms, notes."""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING

from console.control.commands import COMMANDS
from console.errors import UsageError
from console.journal.events import BENCH_TUNABLES, TUNABLES, Scalars
from console.state.model import AlarmState
from console.state.sanitize import sanitize

if TYPE_CHECKING:
    from console.tui.desk import Desk

BUDGETS = tuple(arg.name for arg in COMMANDS["set"].args if arg.kind == "budget")
SHELVE_MINUTES = 60
LEAST_MINUTES, MOST_MINUTES = 1, 7 * 24 * 60
"""For how long an alarm can be shelved; the engine has the same upper bound."""
_NONE = ("none", "off", "-")


class Operating:
    """Handlers of actions that go to the engine."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk

    # --- tuning ---

    async def do_tune(self) -> None:
        """Change what may be changed while the run lasts."""
        desk = self._desk
        known = desk.state.tunables
        if not known:
            desk.say("this run says of nothing that it can be changed", "limit")
            return
        before = " ".join(f"{name}={tunable_text(value)}" for name, value in known.items())
        text = await desk.shell.prompt("set", before, complete=self.complete, replace=True)
        if text is not None:
            await self.tune(text)

    async def tune(self, text: str) -> None:
        """Set what `text` changes, after a look at the old values and the new ones."""
        desk = self._desk
        changes = parse_tunables(text, desk.state.tunables)
        if not changes:
            desk.say("set: nothing is changed by that")
            return
        await desk.orders.send("set", dict(changes), f"set {' '.join(changes)}", ask=True)

    def complete(self, text: str) -> list[str]:
        """Names of tunables after the last space."""
        head, _, last = text.rpartition(" ")
        lead = f"{head} " if head else ""
        return [f"{lead}{name}=" for name in self._desk.state.tunables or TUNABLES if name.startswith(last)]

    # --- quarantine ---

    async def do_quarantine(self) -> None:
        """Leave the selected group's task out of new batches, or take it in again."""
        group = self._desk.scene().group
        if group is None:
            self._desk.say("no group is selected", "limit")
            return
        await self.quarantine(group.task)

    async def quarantine(self, task: str) -> None:
        """Leave a task out, or take it in again."""
        on = task not in self._desk.state.quarantined
        key = self._desk.keymap.label("quarantine")
        name = sanitize(task, limit=60)
        title = f"quarantine {name}" if on else f"take {name} in again"
        await self._desk.orders.send("quarantine", {"task": task, "on": on}, title, done=f"{key} takes it back")

    # --- alarms ---

    def _alarm(self) -> AlarmState | None:
        """The one that the page has selected, else the most urgent one that asks."""
        desk = self._desk
        chosen = getattr(desk.page, "selected_alarm", None)
        chosen = chosen() if callable(chosen) else chosen
        if isinstance(chosen, AlarmState):
            return chosen
        if isinstance(chosen, str) and chosen in desk.state.alarms:
            return desk.state.alarms[chosen]
        asking = [alarm for alarm in desk.state.alarms.values() if alarm.asks(desk.source.now())]
        return min(asking, key=lambda a: (a.level != "critical", not a.open, a.since), default=None)

    async def do_ack(self) -> None:
        """Acknowledge an alarm."""
        alarm = self._alarm()
        if alarm is None:
            self._desk.say("no alarm waits to be acknowledged")
            return
        await self.ack(alarm.key)

    async def do_ack_all(self) -> None:
        """Acknowledge all alarms."""
        if not self._desk.state.alarms:
            self._desk.say("there are no alarms")
            return
        await self._desk.orders.send("ack", {}, "acknowledge all")

    async def ack(self, key: str) -> None:
        """Acknowledge the alarm of that key."""
        await self._desk.orders.send("ack", {"alarm": key}, f"acknowledge {sanitize(key, limit=60)}")

    async def do_shelve(self) -> None:
        """Silence an alarm for a while."""
        desk = self._desk
        alarm = self._alarm()
        if alarm is None:
            desk.say("no alarm is there to be shelved")
            return
        label = f"shelve {sanitize(alarm.key, limit=24)} for minutes"
        text = await desk.shell.prompt(label, str(SHELVE_MINUTES), hint="0 takes it back", replace=True)
        if text is not None:
            await self.shelve(alarm.key, text)

    async def shelve(self, key: str, minutes: str) -> None:
        """Silence the alarm of that key for so many minutes. Raises `UsageError` for no such number."""
        value = _number("minutes", minutes.strip() or str(SHELVE_MINUTES), least=0.0)
        if value and not LEAST_MINUTES <= value <= MOST_MINUTES:
            raise UsageError(
                f"shelve: {value:g} minutes: give {LEAST_MINUTES} to {MOST_MINUTES} (7 days), or 0 to take it back"
            )
        title = f"shelve {sanitize(key, limit=60)}" if value else f"unshelve {sanitize(key, limit=60)}"
        said = f"{sanitize(key, limit=60)}: {silent_until(self._desk.source.now(), value)}" if value else ""
        await self._desk.orders.send("shelve", {"alarm": key, "minutes": value}, title, said=said)

    # --- notes ---

    async def do_note(self) -> None:
        """Add a note to the journal."""
        text = await self._desk.shell.prompt("note", hint="one line, for whoever reads the journal")
        if text is not None and text.strip():
            await self.note(text)

    async def note(self, text: str) -> None:
        """Add this note."""
        await self._desk.orders.send("note", {"text": text.strip()}, "note")


def parse_tunables(text: str, known: dict[str, float | None]) -> Scalars:
    """What `a=1 b=none` changes of the known values. Raises `UsageError` with one line."""
    changes: Scalars = {}
    names = BENCH_TUNABLES if BENCH_TUNABLES.keys() & known.keys() else TUNABLES
    for word in text.split():
        name, equals, value = word.partition("=")
        name = name.replace("-", "_")
        if name not in names:
            raise UsageError(f"set: no {sanitize(name, limit=40)!r}; there are {', '.join(names)}")
        if not equals or not value:
            raise UsageError(f"set: {name} wants a value: {name}={tunable_text(known.get(name))}")
        new: float | None = None
        if value.lower() in _NONE:
            if name not in BUDGETS:
                raise UsageError(f"set: {name} wants a number above 0, not {value}")
        else:
            new = _number(f"set: {name}", value)
        if name not in known or new != known[name]:
            changes[name] = new
    return changes


def silent_until(now: float, minutes: float) -> str:
    """Until when an alarm that is shelved now is silent: silent until 14:30 (30 min); on another day with its date."""
    end = now + 60 * minutes
    same_day = time.localtime(now)[:3] == time.localtime(end)[:3]
    moment = time.strftime("%H:%M" if same_day else "%a %d %b %H:%M", time.localtime(end))
    return f"silent until {moment} ({minutes:g} min)"


def tunable_text(value: float | None) -> str:
    """A value as it is typed: none, 4, 0.5."""
    if value is None:
        return "none"
    return str(int(value)) if float(value).is_integer() else repr(float(value))


def _number(name: str, text: str, least: float = math.ulp(0.0)) -> float:
    try:
        value = float(text.replace("_", ""))
    except ValueError:
        value = math.nan
    if not (math.isfinite(value) and value >= least):
        above = "not below 0" if least == 0 else "above 0"
        raise UsageError(f"{name} wants a number {above}, not {sanitize(text, limit=40)}")
    return int(value) if value.is_integer() else value
