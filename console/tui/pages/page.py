"""What a page is: it fills the screen between header and key line, and does what keys mean on it."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, NamedTuple

from console.tui.layout import Box
from console.tui.picture import Scene
from console.tui.text import Line

if TYPE_CHECKING:
    from console.tui.desk import Desk


class Painted(NamedTuple):
    """A page as it is to be shown: where each of its panes goes, and the lines in it.

    Boxes are in cells of the whole screen; a pane that is not in `boxes` is hidden. Lines are as wide as their box at
    most; missing ones are blank.
    """

    boxes: dict[str, Box]
    lines: dict[str, list[Line]]


class Page:
    """One page of the console.

    A method `do_<action id>` handles that action while the page is on top, before the desk's own handlers are asked; it
    may return an awaitable, which then runs beside the screen. A page keeps only what the operator did on it (scroll
    position, filter, tab); what it shows comes from the scene.

    Attributes:
        id: as actions name it; title: in the help and in the palette.
    """

    id: ClassVar[str] = ""
    title: ClassVar[str] = ""

    def __init__(self, desk: Desk) -> None:
        self.desk = desk

    def opened(self) -> None:
        """It came to the top, new or again."""

    def closed(self) -> None:
        """It left the stack for good."""

    def tick(self) -> None:
        """Four times a second while it is on top; for what it must ask of the source. Must not wait."""

    def fingerprint(self) -> tuple[object, ...]:
        """What its picture depends on besides the run, the link and the clock; a change leads to a paint."""
        return ()

    def has_plumbing(self) -> bool:
        """Whether the row of gateway, capture and sandboxes is shown under the header."""
        return False

    def click(self, pane: str, row: int, column: int) -> None:
        """A click into a pane; row and column are counted from its corner."""

    def paint(self, scene: Scene, region: Box) -> Painted:
        """The page in `region`, at least 60 cells wide and 12 high. Pure but for scroll positions."""
        raise NotImplementedError
