"""What the desk asks of the app around it: questions, a line of text, colours, and the terminal's own means."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol

from console.tui.source import Source


class Shell(Protocol):
    """The app, as far as desk and pages know it."""

    async def confirm(
        self, title: str, text: str, yes: str, typed: str = "", over: Callable[[], bool] | None = None
    ) -> bool:
        """Ask; False unless a fresh yes. With `typed`, that word must be typed in full.

        The question closes by itself, as a no, once `over` says that what it is about is gone.
        """

    async def choose(self, title: str, options: list[tuple[str, str, str]]) -> str:
        """Let the operator choose among (key, label, value); the last option is the harmless one."""

    async def prompt(
        self,
        label: str,
        initial: str = "",
        changed: Callable[[str], None] | None = None,
        hint: str = "",
        complete: Callable[[str], Sequence[str]] | None = None,
        replace: bool = False,
    ) -> str | None:
        """One line of text, at the foot of the screen; None when it was given up. `changed` hears every edit.

        `complete` offers what the line so far may become; `replace`: typing takes the place of `initial`.
        """

    async def find(self, entries: Sequence[tuple[str, str, str]]) -> str | None:
        """Let the operator find one of (id, key, text) by typing; its id."""

    def theme_names(self) -> list[str]:
        """Themes that can be used, in order of name."""

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

    def screen_text(self) -> str:
        """What is shown, as text."""

    def screen_svg(self) -> str:
        """What is shown, as a picture."""

    def copy(self, text: str) -> None:
        """Put clean text on the terminal's clipboard, where the terminal allows it (OSC 52)."""

    def take_mouse(self, on: bool) -> None:
        """Ask the terminal to report clicks, or leave them to it."""

    def ring(self, text: str) -> None:
        """The terminal's bell; clean `text` as a notification too, when the operator asked for that."""
