"""Boxes over the screen: a question, a choice, a text to read. Keys only, focus on the harmless answer."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from textual.app import ComposeResult
from textual.await_complete import AwaitComplete
from textual.events import Key, Paste, Resize
from textual.screen import ModalScreen

from console.state.sanitize import sanitize
from console.tui.glyphs import marks
from console.tui.panes.frame import framed
from console.tui.text import Line, Span, line, wrap
from console.tui.themes import Palette
from console.tui.widgets.pane import Pane
from console.tui.widgets.prompt import Prompt

OVER_SECONDS = 0.25
"""How often a question looks whether what it is about is still there."""
FRESH_SECONDS = 0.4
"""A confirming key within so many seconds of the one before it, or of the question, is auto-repeat and ignored."""


_SCROLL = {"up": -1, "down": 1, "pageup": -10, "pagedown": 10}


class Dialog[Result](ModalScreen[Result], inherit_bindings=False):
    """A framed box in the middle; subclasses say what is in it and what keys do."""

    DEFAULT_CSS = "Dialog { background: transparent; }"

    def __init__(self, palette: Palette, ascii_only: bool, title: str) -> None:
        super().__init__()
        self._palette, self._ascii, self._heading = palette, ascii_only, title
        self._pane = Pane(palette, ascii_only)
        self._top = 0
        self._answered = False

    def dismiss(self, result: Result | None = None) -> AwaitComplete:
        """Once: a second key may come before the box is gone, and must close nothing else."""
        if self._answered:
            return AwaitComplete()
        self._answered = True
        return super().dismiss(result)

    def compose(self) -> ComposeResult:
        """The one pane."""
        yield self._pane

    def on_mount(self) -> None:
        """First paint."""
        self.paint()

    def on_resize(self, event: Resize) -> None:
        """Stay in the middle."""
        self.paint()

    def body(self, cells: int) -> list[Line]:
        """The lines inside the frame."""
        raise NotImplementedError

    def foot(self, cells: int) -> list[Line]:
        """Lines beneath the body that stay when it is scrolled."""
        return []

    def footer(self) -> str:
        """What the frame's title says on the right."""
        return ""

    def paint(self) -> None:
        """Place the box and show its lines."""
        screen = self.app.size
        width = max(20, min(screen.width - 4, 92))
        body, foot = self.body(width - 4), self.foot(width - 4)
        height = max(4, min(len(body) + len(foot) + 2, screen.height - 2))
        foot = foot[-(height - 2) :]
        rows = height - 2 - len(foot)
        self._top = max(0, min(self._top, len(body) - rows))
        shown = [line(Span(" "), *one) for one in (*body[self._top : self._top + rows], *foot)]
        more = f"{self._top + rows}/{len(body)}" if len(body) > rows else ""
        title = (self._heading, " ".join(x for x in (more, self.footer()) if x))
        styles = self._pane.styles
        styles.width, styles.height = width, height
        styles.offset = (max(0, (screen.width - width) // 2), max(0, (screen.height - height) // 2))
        self._pane.show(framed(title, shown, width, height, marks(self._ascii), False, True, True))

    def scroll_by(self, rows: int) -> None:
        """Move through a text that is longer than the box."""
        self._top += rows
        self.paint()

    def on_key(self, event: Key) -> None:
        """Every key is the dialog's own."""
        event.stop()
        event.prevent_default()
        self.press(event.key)

    def press(self, key: str) -> None:
        """One key."""
        raise NotImplementedError


class Confirm(Dialog[bool]):
    """Yes needs a fresh press of `y`; everything that closes it otherwise means no."""

    def __init__(
        self,
        palette: Palette,
        ascii_only: bool,
        title: str,
        text: str,
        yes: str,
        clock: Callable[[], float] = time.monotonic,
        over: Callable[[], bool] | None = None,
    ) -> None:
        """`over`: whether what it asks about is gone, so that it closes."""
        super().__init__(palette, ascii_only, title)
        self._text, self._yes, self._clock, self._over = text, yes, clock, over
        self._last = clock()

    def on_mount(self) -> None:
        """First paint; from then on look whether there is still something to ask."""
        super().on_mount()
        if self._over is not None:
            self.set_interval(OVER_SECONDS, self.check)

    def check(self) -> bool:
        """Close as a no when it is over; whether it was."""
        over = self._over is not None and self._over()
        if over:
            self.dismiss(False)
        return over

    def body(self, cells: int) -> list[Line]:
        """What it will do."""
        return wrap(self._text, cells)

    def foot(self, cells: int) -> list[Line]:
        """The two answers."""
        return [(), line(Span("y", "key"), Span(f" {self._yes}      "), Span(" n  no, back ", "bold+reverse"))]

    def press(self, key: str) -> None:
        """`y` when fresh; n, escape, enter, q and ctrl+c are no; arrows move through a long text."""
        if self.check():
            return
        if key in _SCROLL:
            self.scroll_by(_SCROLL[key])
        elif key == "y":
            now = self._clock()
            fresh = now - self._last >= FRESH_SECONDS
            self._last = now
            if fresh:
                self.dismiss(True)
        elif key in ("n", "escape", "enter", "q", "ctrl+c"):
            self.dismiss(False)


class ConfirmTyped(Dialog[bool]):
    """Yes needs a word typed in full, and a fresh enter after it; everything else that closes it means no."""

    def __init__(
        self,
        palette: Palette,
        ascii_only: bool,
        title: str,
        text: str,
        yes: str,
        typed: str,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(palette, ascii_only, title)
        self._text, self._yes, self._typed, self._clock = text, yes, sanitize(typed, limit=200), clock
        self._last = clock()
        self._prompt = Prompt(">", self._given)

    def body(self, cells: int) -> list[Line]:
        """What it will do."""
        return wrap(self._text, cells)

    def foot(self, cells: int) -> list[Line]:
        """What is to be typed, and what has been."""
        right = self._prompt.text == self._typed
        last = line(Span("enter", "key"), Span(f" {self._yes}")) if right else line(
            Span(" enter, esc: no, back ", "bold+reverse"))  # fmt: skip
        return [
            (),
            line(Span("to do it, type  "), Span(self._typed, "bold")),
            self._prompt.lines(cells),
            (),
            last,
        ]

    def on_key(self, event: Key) -> None:
        """Letters are typed; enter and escape close."""
        event.stop()
        event.prevent_default()
        now = self._clock()
        fresh, self._last = now - self._last >= FRESH_SECONDS, now
        if event.key == "enter" and self._prompt.text == self._typed and not fresh:
            return  # part of what was pasted, or auto-repeat
        if event.key in _SCROLL:
            self.scroll_by(_SCROLL[event.key])
            return
        self._prompt.press(event.key, event.character)
        if self.is_current:
            self.paint()

    def on_paste(self, event: Paste) -> None:
        """Text from the clipboard is typed in."""
        event.stop()
        self._last = self._clock()
        self._prompt.insert(event.text)
        self.paint()

    def _given(self, text: str | None) -> None:
        self.dismiss(text == self._typed)


class Choice(Dialog[str]):
    """One of several answers, each with its key; the last one is the harmless one and the default."""

    def __init__(self, palette: Palette, ascii_only: bool, title: str, options: Sequence[tuple[str, str, str]]) -> None:
        """`options`: key, label, value."""
        super().__init__(palette, ascii_only, title)
        self._options = tuple(options)
        self._at = len(self._options) - 1

    def body(self, cells: int) -> list[Line]:
        """One line an answer."""
        out: list[Line] = []
        for i, (key, label, _) in enumerate(self._options):
            role = "bold+reverse" if i == self._at else ""
            out.append(line(Span(f"{key}", "key"), Span("  "), Span(f" {label} ", role)))
        return out

    def press(self, key: str) -> None:
        """Arrows move, enter chooses, letters choose at once."""
        if key in ("up", "k", "shift+tab"):
            self._at = (self._at - 1) % len(self._options)
        elif key in ("down", "j", "tab"):
            self._at = (self._at + 1) % len(self._options)
        elif key == "enter":
            self.dismiss(self._options[self._at][2])
            return
        elif key in ("escape", "q", "ctrl+c"):
            self.dismiss(self._options[-1][2])
            return
        for letter, _, value in self._options:
            if key == letter:
                self.dismiss(value)
                return
        self.paint()
