"""A layout whose places are given: no style is set and no style sheet asked when a page puts its panes elsewhere."""

from __future__ import annotations

from textual.geometry import NULL_OFFSET, NULL_SPACING, Region, Size
from textual.layout import ArrangeResult, Layout, WidgetPlacement
from textual.widget import Widget

from console.tui.layout import Box


class Places(Layout):
    """Puts each widget into its box.

    Attributes:
        boxes: of the widgets that are shown; the others are not.
    """

    name = "places"

    def __init__(self) -> None:
        self.boxes: dict[Widget, Box] = {}

    def arrange(self, parent: Widget, children: list[Widget], size: Size, greedy: bool = True) -> ArrangeResult:
        """The placements, none for a widget without a box."""
        found = [(widget, self.boxes.get(widget)) for widget in children]
        return [
            WidgetPlacement(Region(box.x, box.y, box.width, box.height), NULL_OFFSET, NULL_SPACING, widget)
            for widget, box in found
            if box is not None
        ]
