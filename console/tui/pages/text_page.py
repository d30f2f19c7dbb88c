"""A page that is read: sections of rows under one title, scrolled and filtered."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from console.errors import UsageError
from console.tui.filters import Filter, parse
from console.tui.layout import Box
from console.tui.pages.page import Page, Painted
from console.tui.panes.frame import ruled
from console.tui.picture import Scene
from console.tui.text import Line, Span, line, plain, wrap

if TYPE_CHECKING:
    from console.tui.desk import Desk

LONGEST = 110
"""Cells of a line; longer ones are hard to read."""


class Row(NamedTuple):
    """What is looked for by the filter, and what is painted."""

    text: str
    lines: Sequence[Line]


class Section(NamedTuple):
    """Rows under a heading; without a row the heading is not shown."""

    heading: str
    rows: Sequence[Row]


class TextPage(Page):
    """Subclasses give sections; this one lays them out."""

    def __init__(self, desk: Desk) -> None:
        super().__init__(desk)
        self._filter = Filter()
        self._top = 0
        self._rows = 1
        self._shown: list[Line] = []

    def sections(self, scene: Scene, cells: int) -> list[Section]:
        """What there is to read, in lines of at most `cells`."""
        raise NotImplementedError

    def heading(self, scene: Scene) -> str:
        """The title of the page."""
        return self.title

    def fingerprint(self) -> tuple[object, ...]:
        """Where it is scrolled to, and what it is filtered by."""
        return (self._top, self._filter.text)

    def paint(self, scene: Scene, region: Box) -> Painted:
        """Whole region, one pane."""
        cells = min(region.width - 2, LONGEST)
        lines: list[Line] = []
        for heading, rows in self.sections(scene, cells):
            found = [row for row in rows if self._filter.matches({"text": f"{heading} {row.text}"})]
            if found:
                lines += [()] if lines else []
                lines.append(line(Span(heading, "title")))
                lines += [one for row in found for one in row.lines]
        if not lines:
            lines = [line(Span("nothing here has these words; esc clears the filter", "muted"))]
        self._rows, self._shown = region.height - 1, lines
        self._top = max(0, min(self._top, len(lines) - self._rows))
        body = [line(" ", *one) for one in lines[self._top : self._top + self._rows]]
        last = min(self._top + self._rows, len(lines))
        where = "" if len(lines) <= self._rows else f"{self._top + 1}-{last} of {len(lines)}"
        wanted = f"/{self._filter.text}" if self._filter else ""
        title = (self.heading(scene), "  ".join(x for x in (wanted, where) if x))
        out = ruled(title, body, region.width, region.height, scene.marks, True)
        return Painted({"text": region}, {"text": out})

    def yank_text(self) -> str:
        """All of it, also what is scrolled away."""
        return "\n".join(plain(one).rstrip() for one in self._shown)

    def set_filter(self, text: str) -> None:
        """Show rows with these words only. A filter that is not finished yet changes nothing."""
        try:
            self._filter, self._top = parse(text), 0
        except UsageError:
            return

    async def do_filter(self) -> None:
        """Ask for words; what they leave is shown while they are typed."""
        before = self._filter
        text = await self.desk.shell.prompt("/", before.text, changed=self.set_filter)
        self._filter = before if text is None else parse(text)

    def do_back(self) -> None:
        """Clear the filter, or go back."""
        if self._filter:
            self.set_filter("")
        else:
            self.desk.back()

    def do_up(self) -> None:
        """One line up."""
        self._top = max(0, self._top - 1)

    def do_down(self) -> None:
        """One line down."""
        self._top += 1

    def do_page_up(self) -> None:
        """A page up."""
        self._top = max(0, self._top - self._rows)

    def do_page_down(self) -> None:
        """A page down."""
        self._top += self._rows

    def do_first(self) -> None:
        """To the first line."""
        self._top = 0

    def do_last(self) -> None:
        """To the last line."""
        self._top = len(self._shown)


def labelled(name: str, parts: Sequence[Span], cells: int, width: int, role: str = "muted") -> Row:
    """A name, and what belongs to it wrapped beside it; `width`: cells of the name's column."""
    text = plain(parts)
    found = f"{name} {text}"
    if len(name) < width and width + len(text) <= cells:
        return Row(found, [line(Span(f"{name:<{width}}", role), *parts)])
    paint = parts[0].role if parts else ""
    wrapped = wrap(text, max(10, cells - width))
    lines = [line(" " * width, *(Span(span.text, paint) for span in one)) for one in wrapped]
    if len(name) < width:
        lines[0] = line(Span(f"{name:<{width}}", role), *lines[0][1:])
    else:
        lines.insert(0, line(Span(name, role)))
    return Row(found, lines)
