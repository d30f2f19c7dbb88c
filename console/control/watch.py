"""The watch: who looks at the run, and which one of them may act (the lease).

A viewer that attends acts only with the watch. The first one that wants it gets it; it passes on by an explicit
take-over, and is free once its holder gives it back or its connection ends. Nobody inherits it: a free watch goes to
the next viewer that attends or sends a command. Senders that do not attend (scripts) need none.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

import msgspec

from console.control import messages as m
from console.control.audit import AuditLog
from console.journal.events import Event, WatchTaken
from console.state.sanitize import sanitize

AUTHOR_LIMIT = 120
VIEWERS_AT_MOST = 64

_log = logging.getLogger(__name__)


class Attendant(msgspec.Struct, kw_only=True, eq=False):
    """A connection that attends. `act`: it wants to act; `since`: Unix seconds; `peer`: pid and uid."""

    author: str
    act: bool
    since: float
    peer: str = ""

    @classmethod
    def of(cls, author: str, act: bool, peer: str = "") -> Attendant:
        """One that comes now; names are made clean and short."""
        name = sanitize(author, AUTHOR_LIMIT).strip() or "somebody"
        return cls(author=name, act=act, since=time.time(), peer=sanitize(peer, AUTHOR_LIMIT))


class Watch:
    """Viewers and the lease. Belongs to the engine's loop.

    Attributes:
        viewers: in the order of their coming; holder: the one with the watch, None while it is free.
    """

    def __init__(
        self, append_event: Callable[[Event], object], audit: AuditLog, on_change: Callable[[], object]
    ) -> None:
        """`append_event` as of the dispatcher; `on_change` is called after viewers or holder changed."""
        self.viewers: list[Attendant] = []
        self.holder: Attendant | None = None
        self._append, self._audit, self._on_change = append_event, audit, on_change
        self._closed = False

    def attend(self, viewer: Attendant) -> bool:
        """A viewer comes; it gets a free watch if it wants to act. False when there are too many."""
        if len(self.viewers) >= VIEWERS_AT_MOST:
            return False
        self.viewers.append(viewer)
        if viewer.act and self.holder is None:
            self._pass(viewer)
        self._on_change()
        return True

    def leave(self, viewer: Attendant) -> None:
        """A viewer's connection has ended; its watch is free."""
        self.viewers.remove(viewer)
        if self.holder is viewer and not self._pass(None):
            self.holder = None  # nobody is there to keep it
        if not self._closed:
            self._on_change()

    def refusal(self, viewer: Attendant) -> str:
        """Why a viewer's command is not taken, empty when it is. A free watch goes to a viewer that may act."""
        if self.holder is viewer:
            return ""
        if not viewer.act:
            return "this viewer only looks: open one that may act"
        if self.holder is not None:
            return f"{self.holder.author} has the watch: take it over first"
        if not self._pass(viewer):
            return "the watch could not be recorded, so nothing was done"
        self._on_change()
        return ""

    def take(self, viewer: Attendant, from_: str | None = None) -> tuple[bool, str]:
        """The watch passes to the viewer, unless somebody other than `from_` has it. Whether, and what happened."""
        if not viewer.act:
            return False, "this viewer only looks: open one that may act"
        if self.holder is viewer:
            return True, "you have the watch already"
        previous = self.holder.author if self.holder is not None else ""
        if from_ is not None and from_ != previous:
            return False, f"{previous or 'nobody'} has the watch by now: look, then ask again"
        if not self._pass(viewer):
            return False, "the watch could not be recorded, so it did not pass"
        self._on_change()
        return True, f"you have the watch{f', before you {previous}' if previous else ''}"

    def give_back(self, viewer: Attendant) -> tuple[bool, str]:
        """The viewer's watch is free. Whether, and what happened."""
        if self.holder is not viewer:
            return True, "you do not have the watch"
        if not self._pass(None):
            return False, "the watch could not be recorded, so you still have it"
        self._on_change()
        return True, "the watch is free"

    def presence(self, you: Attendant | None) -> m.Presence:
        """The viewers, as `you` sees them."""
        viewers = [m.Viewer(author=v.author, since=v.since, acts=v is self.holder, you=v is you) for v in self.viewers]
        return m.Presence(viewers=viewers)

    def close(self) -> None:
        """The run's record is about to be closed: what happens from now on is no longer written, and nobody is told."""
        self._closed = True

    def _pass(self, to: Attendant | None) -> bool:
        """Record that the watch passes, then let it. False, and no effect, when that cannot be recorded."""
        if self._closed:
            return False
        by = to.author if to is not None else ""
        previous = self.holder.author if self.holder is not None else ""
        peer = to.peer if to is not None else self.holder.peer if self.holder is not None else ""
        try:
            self._audit.watch(by, previous, peer)
            self._append(WatchTaken(by=by, previous=previous))
        except Exception:
            _log.exception("the watch (%s -> %s) was not recorded", previous or "nobody", by or "nobody")
            return False
        self.holder = to
        return True
