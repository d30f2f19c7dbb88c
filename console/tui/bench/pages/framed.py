"""What pages of a benchmark that show one text have in common: the jobs above it, and a frame around it."""

from __future__ import annotations

from console.tui.bench.pages.listing import bench, top_line, trouble_lines
from console.tui.layout import Box
from console.tui.pages.page import Painted
from console.tui.pages.reading_page import ReadingPage
from console.tui.panes.frame import ruled
from console.tui.picture import Scene


class FramedPage(ReadingPage):
    """A text that fills the page under the jobs' line."""

    def framed(self, scene: Scene, region: Box, title: str, place: str = "") -> Painted:
        """The jobs' line, and the text in a frame with this title; `place`: told behind where one reads."""
        desk = bench(self)
        head = [top_line(desk, region.width), *trouble_lines(desk)]
        rows = region.height - len(head)
        body = self.text.window(region.width, rows - 1)
        right = ", ".join(filter(None, (self.position(grows=False), place)))  # only now: as the window stands
        lines = [*head, *ruled((title, right), body, region.width, rows, scene.marks, True)]
        self.shown = tuple(lines)
        return Painted({self.id: region}, {self.id: lines})
