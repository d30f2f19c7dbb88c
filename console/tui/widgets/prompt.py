"""One line of text at the foot of the screen: an editor without a screen, that is given keys and says what to paint."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rich.cells import cell_len

from console.state.sanitize import sanitize
from console.tui.text import Line, Span, fit, line, spread, width

LONGEST = 2000
"""Characters that a line may have."""
HISTORY_KEPT = 100

Complete = Callable[[str], Sequence[str]]
"""Whole lines that the text so far may become."""


class Prompt:
    """A line under edit. `done` is called once: with the text, or with None when it was given up."""

    def __init__(
        self,
        label: str,
        done: Callable[[str | None], None],
        initial: str = "",
        changed: Callable[[str], None] | None = None,
        hint: str = "",
        history: list[str] | None = None,
        complete: Complete | None = None,
        replace: bool = False,
    ) -> None:
        """`history`: lines given before, the newest last; what is given now is added to it.

        `replace`: what is typed first takes the place of `initial`; any other key keeps it.
        """
        self.label, self.hint = sanitize(label, limit=40), sanitize(hint, limit=200)
        self.text = sanitize(initial, limit=LONGEST)
        self.at = len(self.text)
        self._done, self._changed, self._complete = done, changed, complete
        self._history = history if history is not None else []
        self._back = 0  # how far back in the history; 0 is the draft
        self._draft = self.text
        self._offered: list[str] = []
        self._chosen = -1
        self._left = 0
        self._selected = replace and bool(self.text)

    # --- keys ---

    def press(self, key: str, character: str | None = None) -> None:
        """One key; `character` is what it prints, if anything."""
        if key == "tab":
            self._selected = False
            self._next_completion()
            return
        self._offered, self._chosen = [], -1
        handler = _KEYS.get(key)
        if handler is not None:
            self._selected = False
            handler(self)
        elif character is not None and character.isprintable():
            self.insert(character)

    def insert(self, text: str) -> None:
        """Put text in at the cursor, on one line and without what a terminal would obey."""
        clean = sanitize(text.rstrip("\r\n"), limit=LONGEST)
        if clean and self._selected:
            self._selected = False
            self._edit("", 0)
        clean = clean[: max(0, LONGEST - len(self.text))]
        if clean:
            self._edit(self.text[: self.at] + clean + self.text[self.at :], self.at + len(clean))

    def accept(self) -> None:
        """It is as it should be."""
        if self.text.strip() and (not self._history or self._history[-1] != self.text):
            self._history.append(self.text)
            del self._history[:-HISTORY_KEPT]
        self._done(self.text)

    def give_up(self) -> None:
        """Leave everything as it was."""
        self._done(None)

    def _edit(self, text: str, at: int) -> None:
        self.at = at
        if text != self.text:
            self.text, self._back = text, 0
            self._tell()

    def _tell(self) -> None:
        if self._changed is not None:
            self._changed(self.text)

    def _move(self, at: int) -> None:
        self.at = max(0, min(at, len(self.text)))

    def _backspace(self) -> None:
        if self.at:
            self._edit(self.text[: self.at - 1] + self.text[self.at :], self.at - 1)

    def _delete(self) -> None:
        self._edit(self.text[: self.at] + self.text[self.at + 1 :], self.at)

    def _kill_word(self) -> None:
        head = self.text[: self.at].rstrip()
        start = head.rfind(" ") + 1
        self._edit(self.text[:start] + self.text[self.at :], start)

    def _kill_before(self) -> None:
        self._edit(self.text[self.at :], 0)

    def _kill_after(self) -> None:
        self._edit(self.text[: self.at], self.at)

    def _recall(self, by: int) -> None:
        back = max(0, min(self._back + by, len(self._history)))
        if back == self._back:
            return
        if self._back == 0:
            self._draft = self.text
        self._back = back
        self.text = self._draft if back == 0 else self._history[-back]
        self.at = len(self.text)
        self._tell()

    def _next_completion(self) -> None:
        """What the completions have in common first; then one after the other."""
        if not self._offered:
            if self._complete is None or self.at != len(self.text):
                return
            self._offered = [sanitize(one, limit=LONGEST) for one in self._complete(self.text)]
            shared = _shared(self._offered)
            if len(self._offered) == 1 or len(shared) > len(self.text):
                if len(self._offered) == 1:
                    self._offered = []
                self._edit(shared, len(shared))
                return
        if self._offered:
            self._chosen = (self._chosen + 1) % len(self._offered)
            chosen = self._offered[self._chosen]
            self._edit(chosen, len(chosen))

    # --- paint ---

    def lines(self, cells: int) -> Line:
        """Label, text with the cursor in reverse, and what may follow, in `cells`."""
        head = line(Span(f" {self.label} " if self.label not in (":", "/") else f" {self.label}", "key"))
        note = self._note()
        room = max(8, cells - width(head) - 1)
        free = room - cell_len(self.text) - 3
        note = _whole_parts(note, free)
        tail = line(Span(f"{note} ", "muted")) if note else ()
        return spread((*head, *self._window(room)), tail, cells) if tail else fit((*head, *self._window(room)), cells)

    def _note(self) -> str:
        if self._offered:
            return "  ".join(one.rpartition(" ")[2] for one in self._offered[:12])
        return self.hint

    def _window(self, room: int) -> Line:
        """The part of the text around the cursor that fits; it moves as little as it can."""
        text = self.text + " "
        self._left = min(self._left, self.at)
        while cell_len(text[self._left : self.at + 1]) > room:
            self._left += 1
        shown = text[self._left :]
        at = self.at - self._left
        before = shown[:at]
        if self._left and before and cell_len(before[0]) == 1:
            before = f"…{before[1:]}"
        return line(
            Span(before, "reverse" if self._selected else ""), Span(shown[at], "reverse"), Span(shown[at + 1 :])
        )


def _whole_parts(note: str, cells: int) -> str:
    """As many of the parts, which two spaces separate, as fit."""
    parts = note.split("  ")
    while parts and cell_len("  ".join(parts)) > cells:
        parts.pop()
    return "  ".join(parts)


def _shared(lines: Sequence[str]) -> str:
    """What all of them begin with."""
    first, last = min(lines, default=""), max(lines, default="")
    same = next((i for i, (a, b) in enumerate(zip(first, last)) if a != b), min(len(first), len(last)))
    return first[:same]


_KEYS: dict[str, Callable[[Prompt], None]] = {
    "enter": Prompt.accept,
    "escape": Prompt.give_up,
    "ctrl+c": Prompt.give_up,
    "left": lambda p: p._move(p.at - 1),
    "right": lambda p: p._move(p.at + 1),
    "home": lambda p: p._move(0),
    "ctrl+a": lambda p: p._move(0),
    "end": lambda p: p._move(len(p.text)),
    "ctrl+e": lambda p: p._move(len(p.text)),
    "backspace": Prompt._backspace,
    "ctrl+h": Prompt._backspace,
    "delete": Prompt._delete,
    "ctrl+d": Prompt._delete,
    "ctrl+u": Prompt._kill_before,
    "ctrl+k": Prompt._kill_after,
    "ctrl+w": Prompt._kill_word,
    "up": lambda p: p._recall(1),
    "ctrl+p": lambda p: p._recall(1),
    "down": lambda p: p._recall(-1),
    "ctrl+n": lambda p: p._recall(-1),
}
