"""What a console has of one kind of content of a trial: asked for piece by piece, kept as lines that can be read."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass

from console.control.messages import Ask, Content, ContentKind, Token
from console.tui.glyphs import Marks
from console.tui.panes import tokens as token_lines
from console.tui.panes.transcript import output_lines, result_lines, turn_lines
from console.tui.reading import LongText
from console.tui.text import Line

POLL_SECONDS = 1.0
"""Between two questions for the same content."""
NOTHING_SECONDS = 0.25
"""When there is said to be more, but none came: the engine still looks for it."""
RETRY_SECONDS = (2.0, 4.0, 8.0)
ITEMS = 200
TOKENS_KEPT = 20_000
_FOLLOWED = ("transcript", "verifier", "log")


@dataclass(frozen=True)
class Target:
    """The try that is looked at; indices from 0, `try_` -1 for the last one."""

    step: int
    group: int
    trial: int
    try_: int = -1


class Feed:
    """One kind of content of one try.

    Attributes:
        text: what is read; note: what the answers said; error: why the last question had no answer, empty when it had.
        asked: questions that were answered; over: nothing more will come; more: there is more already.
        tried: which try the answer was about; calls: captured calls of it.
        call: the one whose tokens these are, -1 for none yet.
        newest: of kind tokens: shows the last call, and the next one when there is one.
        table: of kind tokens: as a table.
    """

    def __init__(self, kind: ContentKind, target: Target, marks: Marks) -> None:
        self.kind, self.target, self._marks = kind, target, marks
        self.text = LongText(follow=kind in _FOLLOWED)
        self.note = self.error = ""
        self.asked = self.calls = self.tried = 0
        self.over = self.more = False
        self.call, self.newest, self.table = -1, True, False
        self.tokens: list[Token] = []
        self._cursor = self._failures = 0
        self._due = 0.0
        self._wanted = -1

    @property
    def grows(self) -> bool:
        """Whether it is read from its end by default."""
        return self.kind in _FOLLOWED

    # --- asking ---

    def due(self, now: float) -> bool:
        """Whether to ask at `now` (monotonic seconds)."""
        return not self.over and now >= self._due

    def ask(self) -> Ask:
        """The next question."""
        t = self.target
        return Ask(
            id=uuid.uuid4().hex, kind=self.kind, step=t.step, group=t.group, trial=t.trial, try_=t.try_,
            cursor=self._cursor, limit=ITEMS, call=self._wanted,
        )  # fmt: skip

    def failed(self, why: str, now: float) -> None:
        """There was no answer; the next question waits longer each time."""
        self.error = why
        self._due = now + RETRY_SECONDS[min(self._failures, len(RETRY_SECONDS) - 1)]
        self._failures += 1

    def lines_of(self, content: Content) -> list[Line]:
        """The answer as lines; reads nothing that changes, so that it may run on a thread. Not for tokens."""
        if self.kind == "transcript":
            return [one for turn in content.turns for one in turn_lines(turn, self._marks)]
        return result_lines(content.lines) if self.kind == "result" else output_lines(content.lines)

    def take(self, ask: Ask, content: Content, lines: Sequence[Line], now: float, ended: bool) -> None:
        """Add an answer. `ended`: the try itself is over, so no further call will come."""
        self.error, self._failures = "", 0
        # More at once, but never in a circle with an engine that gives nothing.
        moved = content.cursor != ask.cursor
        self._due = now + (POLL_SECONDS if not content.more else 0.0 if moved else NOTHING_SECONDS)
        if ask.cursor != self._cursor or ask.call != self._wanted:
            self._due = now
            return  # the operator turned to another call meanwhile
        self.asked += 1
        self.note, self.calls, self.tried = content.note, content.calls, content.try_
        self._cursor, self.more = content.cursor, content.more
        if self.kind != "tokens":
            self.text.append(lines)
            self.over = content.over and not content.more
            return
        self.call = content.call if content.call >= 0 else self.call
        self._add_tokens(content.tokens)
        if self.newest and not content.more and content.calls - 1 > self.call >= 0:
            self._restart(-1)
            self._due = now + (POLL_SECONDS if ask.call < 0 and ask.cursor == 0 else 0.0)
        else:
            self.over = content.over and not content.more and (ended or not self.newest)

    # --- tokens ---

    def _add_tokens(self, tokens: Sequence[Token]) -> None:
        tokens = tokens[: max(0, TOKENS_KEPT - len(self.tokens))]
        begin = len(self.tokens)
        self.tokens += tokens
        if not tokens:
            return
        if self.table:
            self.text.append(token_lines.table_rows(tokens, begin))
        else:
            begun = self.text.pop() if self.text.total else ()
            self.text.append(token_lines.running_text(tokens, self._marks, begun))

    def turn_table(self) -> None:
        """As a table, or as running text."""
        self.table = not self.table
        self.text.clear()
        tokens, self.tokens = self.tokens, []
        self._add_tokens(tokens)

    def turn_call(self, by: int) -> bool:
        """To another call; False when there is none."""
        wanted = self.call + by
        if self.call < 0 or not 0 <= wanted < max(self.calls, self.call + 1):
            return False
        self._restart(wanted)
        self.newest = False
        return True

    def turn_newest(self) -> None:
        """To the last call, and on with the ones that come."""
        if not self.newest or self.call < self.calls - 1:
            self.newest = True
            self._restart(-1)

    def stay(self) -> None:
        """Keep the call that is shown: it is being read."""
        self.newest = False

    def _restart(self, call: int) -> None:
        self._wanted, self._cursor, self._due = call, 0, 0.0
        self.over = self.more = False
        self.tokens, self.call = [], call
        self.text.clear()
        self.text.to_first()


def weight(content: Content) -> int:
    """Characters of an answer, by which its cost is judged."""
    return sum(len(turn.text) for turn in content.turns) + sum(map(len, content.lines))
