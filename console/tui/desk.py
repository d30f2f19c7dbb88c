"""The console without its screen: a stack of pages, the selection they share, and what becomes of a key."""

from __future__ import annotations

import inspect
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Protocol

from console.errors import ControlError, RecordingError
from console.journal import events as ev
from console.state.model import RunState
from console.state.sanitize import sanitize
from console.tui.actions import ACTIONS, BY_ID, Action
from console.tui.event_log import EventLog
from console.tui.orders import Orders
from console.tui.pages import PAGES
from console.tui.pages.page import Page
from console.tui.picture import ENDED, Scene, Selection, Trends, ordered
from console.tui.replaying import Replaying
from console.tui.source import Link, Source
from console.tui.text import Line, Span, line

MESSAGE_SECONDS = 8.0
HOME = "run"


class Shell(Protocol):
    """What the desk asks of the app around it."""

    async def confirm(self, title: str, text: str, yes: str, typed: str = "") -> bool:
        """Ask; False unless a fresh yes. With `typed`, that word must be typed in full."""

    async def choose(self, title: str, options: list[tuple[str, str, str]]) -> str:
        """Let the operator choose among (key, label, value); the last option is the harmless one."""

    async def prompt(
        self,
        label: str,
        initial: str = "",
        changed: Callable[[str], None] | None = None,
        hint: str = "",
        complete: Callable[[str], Sequence[str]] | None = None,
    ) -> str | None:
        """One line of text, at the foot of the screen; None when it was given up. `changed` hears every edit.

        `complete` offers what the line so far may become.
        """

    async def find(self, entries: Sequence[tuple[str, str, str]]) -> str | None:
        """Let the operator find one of (id, key, text) by typing; its id."""

    def next_theme(self) -> str:
        """Switch to the next theme; its title."""

    def use_theme(self, name: str) -> str:
        """Switch to a theme; its title. Raises `UsageError` for no such theme."""

    def switch(self, source: Source) -> None:
        """Show another run, or the same one from another source; the old source is closed."""

    def leave(self) -> None:
        """Close the viewer."""

    def spawn(self, work: Awaitable[None]) -> None:
        """Run something that may wait for the operator or the engine."""

    def repaint(self) -> None:
        """Show what changed."""


class Desk:
    """What is shown and done. Actions go to the page on top first, then to the handlers that every page has.

    Attributes:
        source, shell: the run and the app; selection, trends, log: shared by the pages.
        keymap: key to the ids it may mean.
    """

    def __init__(
        self,
        source: Source,
        shell: Shell,
        read_only: bool = False,
        ascii_only: bool = False,
        clock: Callable[[], float] = time.monotonic,
        keymap: Mapping[str, tuple[str, ...]] | None = None,
    ) -> None:
        self.source, self.shell = source, shell
        self.selection, self.trends, self.log = Selection(), Trends(), EventLog()
        self.read_only, self.ascii, self.clock = read_only, ascii_only, clock
        self.keymap = dict(keymap) if keymap is not None else default_keymap()
        self._message: Line = ()
        self._message_until: float | None = None
        self.orders = Orders(self)
        self._handlers: tuple[object, ...] = (self, self.orders, Replaying(self))
        self._pages: list[Page] = [PAGES[HOME](self)]
        source.listener = self._heard

    # --- pages ---

    @property
    def page(self) -> Page:
        """The page on top."""
        return self._pages[-1]

    def show(self, page_id: str) -> Page:
        """Bring a page to the top; one that is in the stack already is gone back to."""
        for at, page in enumerate(self._pages):
            if page.id == page_id:
                self._close(at + 1)
                page.opened()
                return page
        page = PAGES[page_id](self)
        self._pages.append(page)
        page.opened()
        return page

    def _close(self, down_to: int) -> None:
        while len(self._pages) > down_to:
            self._pages.pop().closed()

    def use(self, source: Source) -> None:
        """Look at another source, from the run page on."""
        self._close(1)
        self.source.listener = None
        self.source = source
        self.selection, self._message = Selection(), ()
        self.trends.clear()
        self.log.jumped(source.view.state)
        source.listener = self._heard

    # --- what is known ---

    @property
    def state(self) -> RunState:
        """The open state of the run."""
        return self.source.view.state

    @property
    def over(self) -> bool:
        """Whether the run has ended."""
        return self.state.status in ENDED

    @property
    def no_engine(self) -> bool:
        """Whether there is nobody left to take commands: the run is over, or its engine is gone."""
        return self.over or self.source.link().status == "dead"

    @property
    def latched(self) -> bool:
        """Whether the run stops after its step."""
        return self.state.stop_requested == "after_step"

    def now(self, link: Link | None = None) -> float:
        """The time by which ages are told: it stands still when nothing can happen any more."""
        status = (link or self.source.link()).status
        return self.state.ts if status == "dead" else self.source.now()

    def scene(self) -> Scene:
        """What there is to paint now."""
        link = self.source.link()
        now = self.now(link)
        groups = ordered(self.state, self.selection, now)
        group = self.selection.settle(groups)
        return Scene(
            view=self.source.view,
            link=link,
            now=now,
            selection=self.selection,
            groups=groups,
            group=group,
            trends=self.trends,
            ascii=self.ascii,
            message=self.orders.progress() or self._message,
            keys=self.key_labels(),
            page=self.page.id,
            presence=self.source.presence,
            acts=self.source.acts and not self.read_only,
        )

    def fingerprint(self) -> tuple[object, ...]:
        """Changes whenever a new paint would differ."""
        link = self.source.link()
        age = 0 if link.status == "dead" else int(link.age)
        seen = (self.source.version, int(self.now(link)), link.status, age, self._message, self.source.presence)
        return *seen, self.page.id, *self.page.fingerprint()

    # --- messages ---

    def say(self, text: str, role: str = "", seconds: float | None = MESSAGE_SECONDS) -> None:
        """Show one line in place of the keys, for a while or until the next one."""
        self._message = line(Span(f" {sanitize(text, limit=300)}", role))
        self._message_until = None if seconds is None else self.clock() + seconds
        self.shell.repaint()

    def expire_message(self) -> None:
        """Take the message back when its time is over."""
        if self._message and self._message_until is not None and self.clock() >= self._message_until:
            self._message, self._message_until = (), None

    def _heard(self, event: ev.Event | None) -> None:
        if event is None:
            self.trends.clear()
            self.log.jumped(self.state)
        else:
            self.trends.note(event, self.state)
            self.log.note(event, self.state)

    # --- keys and actions ---

    async def press(self, key: str) -> None:
        """What a key means here: the first of its actions that can be done, or the reason why none can."""
        found = [BY_ID[i] for i in self.keymap.get(key, ())]
        here = [action for action in found if self.is_here(action)]
        chosen = next((action for action in here if self.available(action)), None) or next(iter(here or found), None)
        if chosen is not None:
            await self.act(chosen.id)

    def is_here(self, action: Action) -> bool:
        """Whether the page on top has the action."""
        return not action.pages or self.page.id in action.pages

    def available(self, action: Action) -> bool:
        """Whether the action can be done here and now."""
        return self.is_here(action) and not self.why_not(action)

    def why_not(self, action: Action) -> str:
        """Why the action cannot be done in this mode, one line; empty when it can."""
        name = f"{action.key} ({action.label or action.id.replace('_', ' ')})"
        mode = self.source.mode
        if action.kind == "replay" and mode != "replay":
            return f"{name} works in a replay only"
        if action.kind == "live" and mode != "live":
            return f"{name} works on a live run only"
        if action.kind != "command":
            return ""
        if mode == "replay":
            return f"{name}: this is a recording, it takes no commands"
        if self.read_only:
            return f"{name}: this console is read-only"
        if self.over:
            return f"{name}: the run is over"
        if self.no_engine:
            return f"{name}: the engine is gone, nobody takes commands"
        if not self.source.acts:
            holder = next((viewer.author for viewer in self.source.presence if viewer.acts), "somebody else")
            return f"{name}: {sanitize(holder, limit=60)} has the watch; W takes it over"
        return ""

    def key_labels(self) -> tuple[tuple[str, str], ...]:
        """(key, label) pairs for the key line, the most important first."""
        shown = [a for a in ACTIONS if a.label and self.available(a)]
        taken_back = {"stop_after_step": self.latched and "take stop back", "pause": self.state.paused and "resume"}
        return tuple((a.key, taken_back.get(a.id) or a.label) for a in sorted(shown, key=lambda a: a.rank))

    async def act(self, action_id: str) -> None:
        """Do the action, or say why it cannot be done here."""
        action = BY_ID[action_id]
        reason = self.why_not(action)
        handler = self._handler(action_id) if self.is_here(action) else None
        if reason or handler is None:
            self.say(reason or f"{action.key} does nothing on this page", "limit")
            return
        self._message = ()
        try:
            waits = handler()
        except RecordingError as error:
            self.say(str(error), "infra")
            return
        if inspect.isawaitable(waits):
            self.shell.spawn(waits)

    def _handler(self, action_id: str) -> Callable[[], Awaitable[None] | None] | None:
        for owner in (self.page, *self._handlers):
            found: Callable[[], Awaitable[None] | None] | None = getattr(owner, f"do_{action_id}", None)
            if found is not None:
                return found
        return None

    # --- actions of every page ---

    def do_back(self) -> None:
        """To the page before."""
        if len(self._pages) > 1:
            self._close(len(self._pages) - 1)
            self.page.opened()

    def do_theme(self) -> None:
        """The next theme."""
        self.say(f"theme: {self.shell.next_theme()}")

    def do_quit(self) -> None:
        """Close the viewer."""
        self.shell.leave()

    do_detach = do_quit

    async def do_watch(self) -> None:
        """Take the watch, or give it back."""
        mine = any(viewer.acts and viewer.you for viewer in self.source.presence)
        try:
            self.say(await self.source.take_watch(back=mine), "pass")
        except ControlError as error:
            self.say(f"the watch: {error}", "limit")

    def do_help(self) -> None:
        """Keys and signs."""
        self.show("help")

    def do_page_run(self) -> None:
        """The run."""
        self.show("run")

    def do_page_trial(self) -> None:
        """The selected trial."""
        if self.scene().trial is None:
            self.say("no trial is selected")
            return
        self.show("trial")

    def do_page_events(self) -> None:
        """All events."""
        self.show("events")

    def do_page_metrics(self) -> None:
        """Plots."""
        self.show("metrics")

    def do_page_alarms(self) -> None:
        """Alarms."""
        self.show("alarms")

    def do_page_config(self) -> None:
        """What the run was started with."""
        self.show("config")

    def do_page_runs(self) -> None:
        """Live and recorded runs."""
        self.show("runs")


def default_keymap() -> dict[str, tuple[str, ...]]:
    """Key to the actions it may mean, in order of the table."""
    found: dict[str, tuple[str, ...]] = {}
    for action in ACTIONS:
        for key in action.keys:
            found[key] = (*found.get(key, ()), action.id)
    return found
