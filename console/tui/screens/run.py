"""The run screen: panes placed by the layout, filled from the scene, at most four times a second."""

from __future__ import annotations

from textual.app import ComposeResult
from textual.binding import Binding
from textual.events import Resize
from textual.screen import Screen

from console.tui.actions import ACTIONS
from console.tui.compose import PANES, compose, layout_for
from console.tui.controller import Controller
from console.tui.layout import Box, Layout
from console.tui.themes import Palette
from console.tui.widgets.pane import Pane

PAINTS_PER_SECOND = 4


class RunScreen(Screen[None], inherit_bindings=False):
    """Shows what the controller has; every key goes through the registry of actions to the controller."""

    BINDINGS = [  # noqa: RUF012 - Textual's own name
        Binding(",".join(a.keys), f"act('{a.id}')", a.label or a.id, show=False, id=a.id, priority=a.id == "interrupt")
        for a in ACTIONS
    ]

    def __init__(self, controller: Controller, palette: Palette, ascii_only: bool) -> None:
        super().__init__()
        self.controller = controller
        self._palette, self._ascii = palette, ascii_only
        self._panes = {name: Pane(palette, ascii_only, id=name) for name in PANES}
        self._placed: dict[str, Box] = {}
        self._seen: tuple[object, ...] = ()

    def compose(self) -> ComposeResult:
        """All panes; the layout hides those that it has no room for."""
        for pane in self._panes.values():
            pane.display = False
            yield pane

    def on_mount(self) -> None:
        """First paint, then the clock."""
        self.paint()
        self.set_interval(1 / PAINTS_PER_SECOND, self.tick)

    def on_resize(self, event: Resize) -> None:
        """Everything moves."""
        self.paint()

    def tick(self) -> None:
        """Paint when something changed: the run, the link, or the second that ages are told by."""
        controller = self.controller
        controller.source.poll()
        controller.expire_message()
        seen = controller.fingerprint()
        if seen != self._seen:
            self._seen = seen
            self.paint()

    def paint(self) -> None:
        """Place the panes if the layout changed, and give each its lines."""
        size = self.app.size
        scene = self.controller.scene()
        layout = layout_for(scene, size.width, size.height)
        self.controller.layout = layout
        if layout.wide != scene.wide:
            scene = self.controller.scene()
        self._place(layout)
        for name, lines in compose(scene, layout).items():
            self._panes[name].show(lines)

    def _place(self, layout: Layout) -> None:
        if layout.boxes == self._placed:
            return
        for name, pane in self._panes.items():
            box = layout.boxes.get(name)
            pane.display = box is not None
            if box is not None and self._placed.get(name) != box:
                pane.styles.width, pane.styles.height = box.width, box.height
                pane.styles.offset = (box.x, box.y)
        self._placed = dict(layout.boxes)

    def use(self, palette: Palette) -> None:
        """Paint in other colours."""
        self._palette = palette
        for pane in self._panes.values():
            pane.use(palette)

    async def action_act(self, action: str) -> None:
        """Run an action of the registry, then show what it did."""
        await self.controller.act(action)
        self.paint()
