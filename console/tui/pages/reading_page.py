"""What pages that show a long text have in common: moving in it, following it, searching it."""

from __future__ import annotations

from console.tui.pages.page import Page
from console.tui.reading import LongText
from console.tui.text import Line, plain


class ReadingPage(Page):
    """A page with a text that is read; `text` is the one that keys move in."""

    shown: tuple[Line, ...] = ()
    """The rows painted last, for copying."""

    @property
    def text(self) -> LongText:
        """The text that is shown."""
        raise NotImplementedError

    def moved(self) -> None:
        """The operator moved in the text."""

    def do_up(self) -> None:
        """One row up."""
        self._scroll(-1)

    def do_down(self) -> None:
        """One row down."""
        self._scroll(1)

    def _scroll(self, rows: int) -> None:
        self.text.scroll(rows)
        self.moved()

    def do_page_up(self) -> None:
        """A page up."""
        self.text.page(-1)
        self.moved()

    def do_page_down(self) -> None:
        """A page down."""
        self.text.page(1)
        self.moved()

    def do_first(self) -> None:
        """To the beginning."""
        self.text.to_first()
        self.moved()

    def do_last(self) -> None:
        """To the end."""
        self.text.to_last()

    def do_left(self) -> None:
        """To the left in long lines that are cut."""
        self.sideways(-1)

    def do_right(self) -> None:
        """To the right in long lines that are cut."""
        self.sideways(1)

    def sideways(self, by: int) -> None:
        """To the left or right."""
        self.text.shift(by)

    def do_follow(self) -> None:
        """Follow the end, or stand still."""
        self.text.toggle_follow()

    def do_wrap(self) -> None:
        """Wrap long lines, or cut them."""
        self.text.toggle_wrap()
        self.desk.say("long lines are wrapped" if self.text.wrap else "long lines are cut: ← → move in them")

    # --- searching ---

    async def do_filter(self) -> None:
        """Ask what to look for, and go to the first place from here."""
        before = self.text.needle
        found = await self.desk.shell.prompt("search", before, self.text.search, "n next, N before, esc ends")
        self.text.search(before if found is None else found.strip())
        if found and found.strip():
            self._find(True)
        self.desk.shell.repaint()

    def do_next_match(self) -> None:
        """The next place."""
        self._find(True)

    def do_previous_match(self) -> None:
        """The place before."""
        self._find(False)

    def _find(self, forward: bool) -> None:
        if not self.text.needle:
            self.desk.say("nothing is searched for: / first")
        elif self.text.find(forward):
            self.moved()
        else:
            self.desk.say(f"not found: {self.text.needle}", "limit")

    def do_back(self) -> None:
        """End the search, else back to the page before."""
        if self.text.needle:
            self.text.search("")
        else:
            self.desk.back()

    def yank_text(self) -> str:
        """What is in the window, as plain text."""
        return "\n".join(plain(row).rstrip() for row in self.shown)

    def position(self, grows: bool = True) -> str:
        """Where the window stands, in a few words; of a text that grows, whether it is followed."""
        text = self.text
        parts = []
        if text.needle:
            here, total = text.matches
            parts.append(f"match {here or '-'} of {total}")
        first, last = text.span
        if text.total > last - first + 1:
            parts.append(f"{first}-{last} of {text.total}")
        if text.left:
            parts.append(f"column {text.left + 1}")
        if not grows:
            pass
        elif text.follow:
            parts.append("follows")
        else:
            parts.append(f"stands still, {text.new} new" if text.new else "stands still")
        return ", ".join(parts)
