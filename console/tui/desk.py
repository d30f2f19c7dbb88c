"""The console without its screen: a stack of pages, the selection they share, and what becomes of a key."""

from __future__ import annotations

import inspect
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace

from console.errors import QuarterdeckError
from console.journal import events as ev
from console.state.model import History, RunState, decode_state, encode_state
from console.state.reduce import RunView
from console.state.sanitize import sanitize
from console.state.words import BENCHMARK
from console.tui.actions import Action
from console.tui.bell import Bell
from console.tui.commandline import CommandLine
from console.tui.empty import EmptySource
from console.tui.event_log import EventLog
from console.tui.keymap import Keymap, keymap_of
from console.tui.looking import Looking
from console.tui.operating import Operating
from console.tui.orders import Orders
from console.tui.pages import PAGES
from console.tui.pages.page import Page
from console.tui.picture import ENDED, Scene, Selection, ordered
from console.tui.refused import HELP, LABELS, REFUSED, refusal
from console.tui.replaying import Replaying
from console.tui.shell import Shell
from console.tui.source import Link, Source
from console.tui.text import Line, Span, line

MESSAGE_SECONDS = 8.0
HOME, NO_RUN_HOME = "run", "runs"
_RUNLESS = ("runs", "help")
"""Pages that need no run."""
_NEEDS_RUN = ("rewind", "next_alarm", *(f"page_{page}" for page in PAGES if page not in _RUNLESS))
Handler = Callable[[], Awaitable[None] | None]


@dataclass(frozen=True)
class Frozen:
    """The picture that the operator holds: the view as it was, the time by which its ages are told, and since when."""

    view: RunView
    now: float
    since: float


class Desk:
    """What is shown and done. Actions go to the page on top first, then to the handlers that every page has.

    Attributes:
        source, shell: the run and the app; selection, log: shared by the pages; keymap: which key means what.
        commands: typed ones by name; frozen: the picture that is held, None while the screen follows.
        paints_per_second: at most, besides the answer to a key; seen_step: the step that was painted last.
        pages, runless: pages by id, and those that need no run; bench: it is on job directories, not on a run.
        formats: suffix to what writes a file of it, beside those that every console has.
    """

    pages: Mapping[str, type[Page]] = PAGES
    runless: tuple[str, ...] = _RUNLESS
    bench = False
    formats: Mapping[str, Callable[[Desk], bytes]] = {}

    def __init__(
        self,
        source: Source,
        shell: Shell,
        read_only: bool = False,
        ascii_only: bool = False,
        clock: Callable[[], float] = time.monotonic,
        keymap: Keymap | None = None,
    ) -> None:
        self.source, self.shell = source, shell
        self.selection, self.log = Selection(), EventLog()
        self.read_only, self.ascii, self.clock = read_only, ascii_only, clock
        self.keymap = keymap if keymap is not None else keymap_of()
        self.frozen: Frozen | None = None
        self.paints_per_second = 4.0
        self.seen_step: int | None = None
        self._told_end = ""
        self._message: Line = ()
        self._message_until: float | None = None
        self._bell = Bell(self)
        self.looking, self.orders, self.operating = Looking(self), Orders(self), Operating(self)
        self.replaying, self.typing = Replaying(self), CommandLine(self)
        self.commands = self.typing.typed
        self._handlers: tuple[object, ...] = (self.looking, self.orders, self.operating, self.replaying, self.typing)
        self._pages: list[Page] = []
        self._begin(source)

    def _begin(self, source: Source) -> None:
        self._close(0)
        self._pages = [self.pages[self.home()](self)]
        self.page.opened()
        source.listener = self._heard

    # --- pages ---

    def home(self) -> str:
        """Id of the first page."""
        return NO_RUN_HOME if self.no_run else HOME

    @property
    def page(self) -> Page:
        """The page on top."""
        return self._pages[-1]

    def show(self, page_id: str) -> Page:
        """Bring a page to the top; one that is in the stack already is gone back to."""
        if self.no_run and page_id not in self.runless:
            self.say("no run is open: choose one and press enter", "limit")
            return self.page
        if self.page.id == "help" and page_id != "help":
            self._close(len(self._pages) - 1)
        for at, page in enumerate(self._pages):
            if page.id == page_id:
                self._close(at + 1)
                page.opened()
                return page
        page = self.pages[page_id](self)
        self._pages.append(page)
        page.opened()
        return page

    def back(self) -> None:
        """To the page before, if there is one."""
        if len(self._pages) > 1:
            self._close(len(self._pages) - 1)
            self.page.opened()

    def _close(self, down_to: int) -> None:
        while len(self._pages) > down_to:
            self._pages.pop().closed()

    def use(self, source: Source) -> None:
        """Look at another source, from its first page on."""
        self.source.listener = None
        self.source = source
        self.selection, self._message, self.frozen, self.seen_step = Selection(), (), None, None
        self.log.jumped(source.view.state)
        self._begin(source)

    # --- what is known ---

    @property
    def state(self) -> RunState:
        """The open state of the run, as it is now."""
        return self.source.view.state

    @property
    def no_run(self) -> bool:
        """Whether there is no run to look at yet."""
        return isinstance(self.source, EmptySource)

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
        if self.frozen is not None:
            return self.frozen.now
        status = (link or self.source.link()).status
        return self.state.ts if status == "dead" else self.source.now()

    def freeze(self) -> None:
        """Hold the picture, or let it go."""
        if self.frozen is not None:
            self.frozen = None
            return
        view = self.source.view
        kept = RunView(decode_state(encode_state(view.state)), History(rows=list(view.history.rows)))
        self.frozen = Frozen(kept, self.now(), self.clock())

    def scene(self) -> Scene:
        """What there is to paint now."""
        link = self.source.link()
        now = self.now(link)
        view = self.frozen.view if self.frozen is not None else self.source.view
        groups = ordered(view.state, self.selection, now)
        group = self.selection.settle(groups)
        return Scene(
            view=view,
            link=link,
            now=now,
            selection=self.selection,
            groups=groups,
            group=group,
            ascii=self.ascii,
            message=self.orders.progress() or self._message,
            keys=self.key_labels(),
            page=self.page.id,
            presence=self.source.presence,
            acts=self.source.acts and not self.read_only,
            labels=self.keymap.labels,
            frozen=self.frozen is not None,
            held=0.0 if self.frozen is None else self.clock() - self.frozen.since,
        )

    def fingerprint(self) -> tuple[object, ...]:
        """Changes whenever a new paint would differ."""
        link = self.source.link()
        age = 0 if link.status == "dead" else int(link.age)
        if self.frozen is not None:
            moving: tuple[object, ...] = ("frozen", int(self.clock() - self.frozen.since), self.orders.progress())
        else:
            moving = (self.source.version, int(self.now(link)))
        seen = (*moving, link.status, age, self._message, self.source.presence)
        return *seen, self.page.id, *self.page.fingerprint()

    def painted(self) -> None:
        """What there is has just been painted: an order is about the step of this picture."""
        self.seen_step = (self.frozen.view if self.frozen is not None else self.source.view).state.step

    # --- messages ---

    def say(self, text: str, role: str = "", seconds: float | None = MESSAGE_SECONDS) -> None:
        """Show one line in place of the keys, for a while or until the next one."""
        self._message = line(Span(f" {sanitize(text, limit=300)}", role))
        self._message_until = None if seconds is None else self.clock() + seconds
        self.shell.repaint()

    def tick(self) -> None:
        """A few times a second: take a message back when its time is over, ring for what is new, let the page work."""
        if self._message and self._message_until is not None and self.clock() >= self._message_until:
            self._message, self._message_until = (), None
        self._tell_changes()
        self._bell.tick()
        if self.frozen is None:
            self.page.tick()

    def _tell_changes(self) -> None:
        """Say at once that somebody took the watch, or that the live run ended while one looks back."""
        source = self.source
        taken_by = getattr(source, "taken_by", "")
        if taken_by:
            source.taken_by = ""  # type: ignore[attr-defined]  # a live source's
            name, key = sanitize(taken_by, limit=60), self.keymap.label("watch")
            self.say(
                f"{name} took the watch: your orders do not go through; {key} takes it back", "limit+reverse", 20.0
            )
        ended = getattr(source, "ended", "")
        if ended and ended != self._told_end:
            self.say(f"{ended}; {self.keymap.label('rewind')} goes there", "limit+reverse", 20.0)
        self._told_end = ended

    def _heard(self, event: ev.Event | None) -> None:
        if event is None:
            self.log.jumped(self.state)
            if self.source.mode == "live":
                self.shell.repaint()
            return
        self.log.note(event, self.state)
        self._bell.heard(event)

    # --- keys and actions ---

    async def press(self, key: str) -> None:
        """Do what a key means here, or say why it cannot be done."""
        action = self.meant(key)
        if action is not None:
            await self.act(action.id)

    def meant(self, key: str) -> Action | None:
        """What a key means here: the first of its actions that can be done, else the first that is here, else any."""
        found = [self.keymap[i] for i in self.keymap.by_key.get(key, ())]
        here = [action for action in found if self.is_here(action)]
        return next((action for action in here if self.available(action)), None) or next(iter(here or found), None)

    def is_here(self, action: Action, page: Page | None = None) -> bool:
        """Whether the page (the one on top by default) has the action."""
        page = page or self.page
        return (not action.pages or page.id in action.pages) and self._handler(action.id, page) is not None

    def available(self, action: Action) -> bool:
        """Whether the action can be done here and now."""
        return self.is_here(action) and not self.why_not(action)

    def offered(self, page: Page | None = None) -> list[Action]:
        """The actions that a page has in this mode, whether or not there is something to do them on just now."""
        found = [a for a in self.keymap.actions if self.is_here(a, page) and not self._wrong_mode(a)]
        if self.state.kind != BENCHMARK:
            return found
        return [replace(a, help=HELP[a.id]) if a.id in HELP else a for a in found]

    def why_not(self, action: Action) -> str:
        """Why the action cannot be done in this mode, one line; empty when it can."""
        action = self.keymap[action.id]
        reason = self._wrong_mode(action)
        if not reason and action.kind == "command":
            reason = self._no_commands()
        elif not reason and action.id == "watch":
            reason = self._no_engine()
        name = action.label or action.id.replace("_", " ")
        return f"{action.key} ({name}){reason}" if action.key and reason else f"{name}{reason}" if reason else ""

    def _wrong_mode(self, action: Action) -> str:
        mode = self.source.mode
        if action.kind == "replay" and mode != "replay":
            return " works in a replay only"
        if action.kind == "live" and mode != "live":
            return " works on a live run only"
        if self.no_run and (action.kind in ("command", "live") or action.id in _NEEDS_RUN):
            return ": no run is open"
        if self.state.kind == BENCHMARK and action.id in REFUSED:
            return refusal(action.id, self.keymap.label("stop_after_step"))
        if action.kind != "command":
            return ""
        if mode == "replay":
            return ": this is a recording, it takes no commands"
        return ": this console is read-only" if self.read_only else ""

    def _no_engine(self) -> str:
        if self.over:
            return ": the run is over"
        return ": the engine is gone, nobody takes commands" if self.no_engine else ""

    def _no_commands(self) -> str:
        gone = self._no_engine()
        if not gone and not self.source.acts:
            holder = next((viewer.author for viewer in self.source.presence if viewer.acts), "somebody else")
            return f": {sanitize(holder, limit=60)} has the watch; {self.keymap.label('watch')} takes it over"
        return gone

    def key_labels(self) -> tuple[tuple[str, str], ...]:
        """(key, label) pairs for the key line, the most important first."""
        shown = [a for a in self.keymap.actions if a.label and a.key and self.available(a) and self._useful(a)]
        told = LABELS if self.state.kind == BENCHMARK else {}
        taken_back = {"stop_after_step": self.latched and "take stop back", "pause": self.state.paused and "resume"}
        shown.sort(key=lambda a: a.rank)
        return tuple((a.key, taken_back.get(a.id) or told.get(a.id, a.label)) for a in shown)

    def _useful(self, action: Action) -> bool:
        if action.id == "ack":
            return any(alarm.asks(self.source.now()) for alarm in self.state.alarms.values())
        if action.id == "detach":
            return not self.no_engine
        if action.id == "back":
            return len(self._pages) > 1
        if action.id == "watch":
            return len(self.source.presence) > 1 or not self.source.acts
        return True

    async def act(self, action_id: str, by_name: bool = False) -> None:
        """Do the action, or say why it cannot be done here.

        `by_name`: the operator named it, so that it may be an order on a page that does not show what it is about.
        """
        action = self.keymap[action_id]
        reason = self.why_not(action)
        here = self.is_here(action) or (by_name and action.kind == "command")
        handler = self._handler(action_id, self.page) if here else None
        if reason or handler is None:
            self.say(reason or self._not_here(action), "limit")
            return
        self._message = ()
        try:
            waits = handler()
        except QuarterdeckError as error:
            self.say(str(error), "infra")
            return
        if inspect.isawaitable(waits):
            self.shell.spawn(self._guarded(waits))

    async def _guarded(self, work: Awaitable[None]) -> None:
        try:
            await work
        except QuarterdeckError as error:
            self.say(str(error), "infra")
        self.shell.repaint()

    def _not_here(self, action: Action) -> str:
        name = action.key or action.id.replace("_", " ")
        if action.kind != "command":
            return f"{name} does nothing on this page"
        back = self.keymap.label("back")
        label = action.label or action.id.replace("_", " ")
        return f"{name} ({label}) works where the run is shown: {back} goes back"

    def _handler(self, action_id: str, page: Page) -> Handler | None:
        for owner in (page, *self._handlers):
            found: Handler | None = getattr(owner, f"do_{action_id}", None)
            if found is not None:
                return found
        return None
