"""Typed commands (`:group 3`, `:set parallel=2`) and the list of everything that can be done, found by typing."""

from __future__ import annotations

import inspect
import re
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import TYPE_CHECKING

from console.control.commands import parse_target
from console.errors import UsageError
from console.journal.events import Scalars
from console.state.sanitize import sanitize
from console.tui.actions import BY_ID
from console.tui.keymap import NOT_LISTED
from console.tui.pages import PAGES

if TYPE_CHECKING:
    from console.tui.actions import Action
    from console.tui.desk import Desk

NAMED_PAGES = [page for page in PAGES if f"page_{page}" in BY_ID]
"""Pages that can be gone to from anywhere."""
Run = Callable[[str], Awaitable[None] | None]
Offer = Callable[[], Sequence[str]]


@dataclass(frozen=True)
class Typed:
    """A command with words after it. `action`: the action whose rules say whether it can be done now, or empty."""

    usage: str
    run: Run
    action: str = ""
    offer: Offer = tuple
    bare: bool = False
    """It means something without words."""


class CommandLine:
    """Handlers of the command line and of the palette. Every action can be typed by its id, with dashes."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self.typed: dict[str, Typed] = {
            "group": Typed("group 3", self._group, offer=self._groups),
            "trial": Typed("trial 5, trial g3/t5", self._trial),
            "page": Typed("page metrics", self._page, offer=lambda: self.pages),
            "filter": Typed("filter class:infra", self._filter, bare=True),
            "goto": Typed("goto 14:01, goto s12", self._goto, "goto"),
            "speed": Typed("speed 8, speed max", self._speed, "faster"),
            "theme": Typed("theme mono", self._theme, offer=lambda: self._desk.shell.theme_names(), bare=True),
            "set": Typed("set parallel=2 hold_timeout=900", self._set, "tune", self._tunables, bare=True),
            "quarantine": Typed("quarantine TASK", self._quarantine, "quarantine", self._tasks, bare=True),
            "note": Typed("note TEXT", self._note, "note", bare=True),
            "ack": Typed("ack KEY", self._ack, "ack", self._alarms, bare=True),
            "shelve": Typed("shelve KEY 30", self._shelve, "shelve", self._alarms, bare=True),
            "cancel": Typed("cancel g3, cancel g3/t5", self._cancel, "cancel_group", self._groups),
            "retry": Typed("retry g3, retry g3/t5", self._retry, "retry", self._groups, bare=True),
            "export": Typed("export FILE", self._export, bare=True),
        }
        self.pages: Sequence[str] = NAMED_PAGES
        self._short = {"q": "quit", "q!": "quit", "wq": "quit", "h": "help"}

    # --- what keys call ---

    async def do_command_line(self) -> None:
        """Take a typed command."""
        text = await self._desk.shell.prompt(":", hint="tab completes, esc closes", complete=self.complete)
        if text is not None and text.strip():
            await self.run(text)

    async def do_palette(self) -> None:
        """Everything that can be done here, and every page and theme, by name."""
        desk = self._desk
        entries = [(a.id, a.key, f"{_dashed(a.id)}: {a.help or 'end the run'}") for a in self.actions()]
        for name in desk.shell.theme_names():
            entries.append((f"theme {name}", "", f"theme {name}"))
        for name, typed in self.typed.items():
            if not typed.bare and self._why_not(typed) == "":
                entries.append((f":{name} ", ":", f":{typed.usage}"))
        chosen = await desk.shell.find(entries)
        if chosen is None:
            return
        if chosen.startswith(":"):
            text = await desk.shell.prompt(":", chosen[1:], complete=self.complete)
            if text is not None and text.strip():
                await self.run(text)
        elif chosen.startswith("theme "):
            self._theme(chosen.removeprefix("theme "))
        else:
            await desk.act(chosen, by_name=True)

    def actions(self) -> list[Action]:
        """Actions that can be chosen here now, those of moving and the palette itself left out."""
        desk = self._desk
        return [a for a in desk.keymap.actions if self._can(a) and a.id not in NOT_LISTED]

    def _can(self, action: Action) -> bool:
        desk = self._desk
        return desk.available(action) or (action.kind == "command" and not desk.why_not(action))

    # --- what is typed ---

    async def run(self, text: str) -> None:
        """Do what the line says. Raises `UsageError` with one line when it says nothing that is known."""
        desk = self._desk
        name, _, rest = text.strip().removeprefix(":").partition(" ")
        name, rest = name.lower().replace("_", "-"), rest.strip()
        typed = self.typed.get(name)
        if typed is not None and (rest or not typed.bare or typed.action == ""):
            reason = self._why_not(typed)
            if reason:
                raise UsageError(reason)
            if not rest and not typed.bare:
                raise UsageError(f":{name} wants more: {typed.usage}")
            waits = typed.run(rest)
            if inspect.isawaitable(waits):
                await waits
            return
        id = (typed.action if typed is not None else self._short.get(name, name)).replace("-", "_")
        if id in desk.keymap.by_id:
            if rest:
                raise UsageError(f":{name} takes nothing after it")
            await desk.act(id, by_name=True)
            return
        if name in self.pages:
            self._page(name)
            return
        raise UsageError(f"no command :{sanitize(name, limit=40)}{self._close(name)}")

    def _why_not(self, typed: Typed) -> str:
        return self._desk.why_not(self._desk.keymap[typed.action]) if typed.action else ""

    def _close(self, name: str) -> str:
        names = self._names()
        begin = [one for one in names if name and one.startswith(name)]
        close = [*begin, *(x for x in get_close_matches(name, names, n=3, cutoff=0.5) if x not in begin)][:3]
        return f": did you mean {', '.join(f':{one}' for one in close)}?" if close else "; tab lists them"

    def _names(self) -> list[str]:
        actions = [_dashed(a.id) for a in self._desk.keymap.actions if self._can(a)]
        typed = [name for name, one in self.typed.items() if self._why_not(one) == ""]
        return sorted({*typed, *actions, *self.pages, "q"})

    def complete(self, text: str) -> list[str]:
        """Lines that `text` may become."""
        name, space, rest = text.partition(" ")
        if not space:
            return [f"{one} " if one in self.typed else one for one in self._names() if one.startswith(name)]
        typed = self.typed.get(name)
        if typed is None:
            return []
        head, _, last = rest.rpartition(" ")
        lead = f"{name} {head} " if head else f"{name} "
        return [f"{lead}{one}" for one in typed.offer() if one.lower().startswith(last.lower())]

    def _groups(self) -> list[str]:
        return [f"g{group.group + 1}" for group in self._desk.scene().groups]

    def _tasks(self) -> list[str]:
        return sorted({*(group.task for group in self._desk.scene().groups), *self._desk.state.quarantined})

    def _tunables(self) -> list[str]:
        return [f"{name}=" for name in self._desk.state.tunables]

    def _alarms(self) -> list[str]:
        return sorted(self._desk.state.alarms)

    # --- the commands ---

    def _group(self, rest: str) -> None:
        args = _target(rest if rest.lower().startswith("g") else f"g{rest}", rest)
        self._select(_index(args, "group"), None)

    def _trial(self, rest: str) -> None:
        if rest.lower().startswith("g"):
            args = _target(rest, rest)
            self._select(_index(args, "group"), _index(args, "trial"))
            return
        scene = self._desk.scene()
        if scene.group is None:
            raise UsageError("no group is selected")
        args = _target(f"g{scene.group.group + 1}/{rest if rest.lower().startswith('t') else f't{rest}'}", rest)
        self._select(scene.group.group, _index(args, "trial"))

    def _select(self, number: int, trial: int | None) -> None:
        desk = self._desk
        groups = {group.group: group for group in desk.scene().groups}
        group = groups.get(number)
        if group is None:
            there = f"there are {_ranges([g + 1 for g in sorted(groups)])}" if groups else "there is none"
            raise UsageError(f"no group g{number + 1} is shown: {there}")
        if trial is not None and not 0 <= trial < len(group.trials):
            raise UsageError(f"no trial t{trial + 1} in g{number + 1}: it has {len(group.trials)}")
        selection = desk.selection
        selection.group, selection.trial, selection.pinned = number, trial or 0, True
        selection.focus = "groups" if trial is None else "trials"
        desk.shell.repaint()

    def _page(self, rest: str) -> None:
        if rest not in self.pages:
            raise UsageError(f"no page {sanitize(rest, limit=40)}: there are {', '.join(self.pages)}")
        if rest == "trial":
            self._desk.shell.spawn(self._desk.act("page_trial"))
        else:
            self._desk.show(rest)

    def _filter(self, rest: str) -> None:
        set_filter = getattr(self._desk.page, "set_filter", None)
        if set_filter is None:
            raise UsageError(f"the page {self._desk.page.id} has no filter")
        set_filter(rest)
        self._desk.shell.repaint()

    def _goto(self, rest: str) -> None:
        self._desk.source.goto(rest)  # type: ignore[attr-defined]  # a replay's, which `_why_not` has asked for

    def _speed(self, rest: str) -> None:
        from console.tui.replay import parse_speed

        try:
            speed = parse_speed(rest)
        except ValueError:
            raise UsageError(f":speed {sanitize(rest, limit=20)}: give 0.25 to 64, or max") from None
        self._desk.source.speed = speed  # type: ignore[attr-defined]
        self._desk.source.version += 1

    def _theme(self, rest: str) -> None:
        shell = self._desk.shell
        self._desk.say(f"theme: {shell.use_theme(rest) if rest else shell.next_theme()}")

    async def _set(self, rest: str) -> None:
        await self._desk.operating.tune(rest)

    async def _quarantine(self, rest: str) -> None:
        await self._desk.operating.quarantine(rest)

    async def _note(self, rest: str) -> None:
        await self._desk.operating.note(rest)

    async def _ack(self, rest: str) -> None:
        if rest == "all":
            await self._desk.operating.do_ack_all()
        else:
            await self._desk.operating.ack(self._alarm_key(rest))

    async def _shelve(self, rest: str) -> None:
        key, _, minutes = rest.rpartition(" ")
        if key and re.fullmatch(r"[\d.]+", minutes):
            await self._desk.operating.shelve(self._alarm_key(key.strip()), minutes)
        else:
            await self._desk.operating.shelve(self._alarm_key(rest), "")

    def _alarm_key(self, text: str) -> str:
        alarms = self._desk.state.alarms
        if text in alarms:
            return text
        fits = [key for key in alarms if key.startswith(text)]
        if len(fits) != 1:
            names = ", ".join(sanitize(key, limit=40) for key in sorted(alarms))
            there = f"there are {names}" if names else "there is none"
            raise UsageError(f"no alarm {sanitize(text, limit=40)}: {there}")
        return fits[0]

    async def _cancel(self, rest: str) -> None:
        args = _target(rest, rest)
        command = "cancel_trial" if "trial" in args else "cancel_group"
        await self._desk.orders.send(command, args, f"cancel {rest.lower()}")

    async def _retry(self, rest: str) -> None:
        args: Scalars = {} if rest == "all" else _target(rest, rest)
        await self._desk.orders.send("retry", args, f"retry {rest.lower()}")

    async def _export(self, rest: str) -> None:
        if rest:
            await self._desk.looking.export(rest)
        else:
            await self._desk.looking.do_export()


def _dashed(id: str) -> str:
    return id.replace("_", "-")


def _target(text: str, typed: str) -> Scalars:
    """`group` and `trial` as indices from 0."""
    try:
        return parse_target(text)
    except UsageError:
        raise UsageError(f"{sanitize(typed, limit=40)!r} is no group or trial: write g3 or g3/t5") from None


def _index(args: Scalars, name: str) -> int:
    value = args.get(name)
    return value if isinstance(value, int) else 0


def _ranges(numbers: list[int]) -> str:
    """g1 to g4, or g1, g3."""
    if numbers == list(range(numbers[0], numbers[-1] + 1)) and len(numbers) > 2:
        return f"g{numbers[0]} to g{numbers[-1]}"
    return ", ".join(f"g{n}" for n in numbers[:12]) + (" ..." if len(numbers) > 12 else "")
