"""A box in which one of many entries is found by typing."""

from __future__ import annotations

from collections.abc import Sequence

from textual.events import Key, Paste
from textual.fuzzy import FuzzySearch

from console.state.sanitize import sanitize
from console.tui.text import Line, Span, cell, fit, line, restyle
from console.tui.themes import Palette
from console.tui.widgets.dialog import Dialog
from console.tui.widgets.prompt import Prompt

ROWS = 14


class Finder(Dialog[str]):
    """Entries (id, key, text); what is typed narrows them, the best match first. Arrows move, enter chooses."""

    def __init__(self, palette: Palette, ascii_only: bool, title: str, entries: Sequence[tuple[str, str, str]]) -> None:
        super().__init__(palette, ascii_only, title)
        self._entries = [(id, sanitize(key, limit=20), sanitize(text, limit=200)) for id, key, text in entries]
        self._found = list(self._entries)
        self._at = self._first = 0
        self._search = FuzzySearch()
        self._prompt = Prompt(">", self._given, changed=self._narrow)

    def body(self, cells: int) -> list[Line]:
        """What was typed, then the entries."""
        rows = max(1, min(ROWS, self.app.size.height - 6))  # what the frame and the line above leave
        self._first = max(0, min(max(self._first, self._at - rows + 1), self._at))
        out = [self._prompt.lines(cells), ()]
        keys = max((len(key) for _, key, _ in self._entries), default=0)
        for i, (_, key, text) in enumerate(self._found[self._first : self._first + rows], start=self._first):
            row = line(Span(f" {cell(key, keys, right=True)}  ", "key"), Span(text))
            out.append(restyle(fit(row, cells), "selected") if i == self._at else row)
        if not self._found:
            out.append(line(Span(" nothing is called so; backspace, or esc to close", "muted")))
        return out + [()] * (rows + 2 - len(out))

    def footer(self) -> str:
        """How many there are."""
        return f"{len(self._found)} of {len(self._entries)}"

    def on_key(self, event: Key) -> None:
        """Letters are typed, the rest is the list's."""
        event.stop()
        event.prevent_default()
        moves = {"up": -1, "ctrl+p": -1, "down": 1, "ctrl+n": 1, "tab": 1, "shift+tab": -1, "pageup": -ROWS,
                 "pagedown": ROWS}  # fmt: skip
        if event.key in moves:
            self._at = max(0, min(self._at + moves[event.key], len(self._found) - 1))
        else:
            self._prompt.press(event.key, event.character)
        if self.is_current:
            self.paint()

    def on_paste(self, event: Paste) -> None:
        """Text from the clipboard is typed in."""
        event.stop()
        self._prompt.insert(event.text)
        self.paint()

    def _narrow(self, query: str) -> None:
        self._at = 0
        words = query.split()
        scored: list[tuple[float, tuple[str, str, str]]] = []
        for entry in self._entries:
            scores = [self._score(word, entry) for word in words]
            if all(scores):
                scored.append((sum(scores), entry))
        scored.sort(key=lambda pair: -pair[0])
        self._found = [entry for _, entry in scored]

    def _score(self, word: str, entry: tuple[str, str, str]) -> float:
        _, key, text = entry
        if word == key:
            return 1000.0
        name = text.partition(": ")[0].lower()
        word = word.lower()
        whole = 300.0 if name.startswith(word) else 200.0 if word in name else 100.0 if word in text.lower() else 0.0
        return whole + self._search.match(word, text)[0]

    def _given(self, text: str | None) -> None:
        if text is None:
            self.dismiss(None)
        elif self._found:
            self.dismiss(self._found[self._at][0])
