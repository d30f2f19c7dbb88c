"""The newest turns of the selected trial, asked of the source now and then, for the run page's pane."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable

from console.control.messages import Ask, Content
from console.errors import QuarterdeckError
from console.tui.glyphs import Marks
from console.tui.panes.transcript import turn_lines
from console.tui.text import Line

POLL_SECONDS = 1.0
SETTLE_SECONDS = 0.4
"""A selection that moves on sooner is not asked about."""
RETRY_SECONDS = 10.0
ITEMS = 6
KEPT = 120
Target = tuple[int, int, int, int]
"""Step, group, trial, try."""


class Tail:
    """The last lines of one try's transcript.

    Attributes:
        lines: oldest first, at most `KEPT`; version: changes with them.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.lines: tuple[Line, ...] = ()
        self.version = 0
        self._clock = clock
        self._target: Target | None = None
        self._cursor, self._due, self._number = -1, 0.0, 0
        self._asking = self._over = False

    def of(self, target: Target | None) -> tuple[Line, ...]:
        """The lines, when they are `target`'s."""
        return self.lines if target is not None and target == self._target else ()

    def look(self, target: Target | None) -> None:
        """Turn to another try; nothing happens when it is the same."""
        if target != self._target:
            self._target, self.lines, self._cursor, self._over = target, (), -1, False
            self._due = self._clock() + SETTLE_SECONDS
            self.version += 1

    def due(self) -> bool:
        """Whether to call `ask` now."""
        return self._target is not None and not self._asking and not self._over and self._clock() >= self._due

    async def ask(self, source: Callable[[Ask], Awaitable[Content]], marks: Marks) -> None:
        """One question and its answer; without an answer there is just nothing new."""
        target = self._target
        if target is None:
            return
        self._asking, self._number = True, self._number + 1
        step, group, trial, try_ = target
        try:
            content = await source(
                Ask(
                    id=f"tail-{self._number}", kind="transcript", step=step, group=group, trial=trial, try_=try_,
                    cursor=self._cursor, limit=ITEMS,
                )
            )  # fmt: skip
        except QuarterdeckError:
            self._due = self._clock() + RETRY_SECONDS
            return
        finally:
            self._asking = False
        if target != self._target:
            return
        self._cursor, self._over = content.cursor, content.over and not content.more
        self._due = self._clock() + (0.0 if content.more else POLL_SECONDS)
        if content.turns:
            new = [one for turn in content.turns for one in turn_lines(turn, marks) if one]
            self.lines = (*self.lines, *new)[-KEPT:]
            self.version += 1
