"""The one Textual screen: panes where the frame puts them, painted at most four times a second; keys go to the desk."""

from __future__ import annotations

from textual.events import Key, MouseDown, MouseScrollDown, MouseScrollUp, Paste, Resize
from textual.screen import Screen

from console.tui.desk import Desk
from console.tui.frame import as_text, paint
from console.tui.layout import Box
from console.tui.themes import Palette
from console.tui.widgets.pane import Pane
from console.tui.widgets.prompt import Prompt

PAINTS_PER_SECOND = 4


class MainScreen(Screen[None], inherit_bindings=False):
    """Shows what the desk has."""

    def __init__(self, desk: Desk, palette: Palette, ascii_only: bool) -> None:
        super().__init__()
        self.desk = desk
        self._palette, self._ascii = palette, ascii_only
        self._panes: dict[str, Pane] = {}
        self._placed: dict[str, Box] = {}
        self._seen: tuple[object, ...] = ()
        self._painted = -1e9
        self._prompt: Prompt | None = None

    def on_mount(self) -> None:
        """First paint, then the clock."""
        self.paint()
        self.set_interval(1 / PAINTS_PER_SECOND, self.tick)

    def on_resize(self, event: Resize) -> None:
        """Everything moves."""
        self.paint()

    def tick(self) -> None:
        """Paint when something changed: the run, the link, the page, or the second that ages are told by."""
        desk = self.desk
        desk.source.poll()
        desk.tick()
        now = desk.clock()
        if now - self._painted < 1 / desk.paints_per_second - 0.5 / PAINTS_PER_SECOND:
            return
        seen = desk.fingerprint()
        if seen != self._seen:
            self._seen, self._painted = seen, now
            self.paint()

    def paint(self) -> None:
        """Place the panes, and give each its lines."""
        size = self.app.size
        if size.width <= 0 or size.height <= 0:
            return
        painted = paint(self.desk, size.width, size.height, self._prompt)
        self._place(painted.boxes)
        for name, lines in painted.lines.items():
            self._pane(name).show(lines)

    def _pane(self, name: str) -> Pane:
        """A pane, made when it is shown first."""
        pane = self._panes.get(name)
        if pane is None:
            pane = self._panes[name] = Pane(self._palette, self._ascii, id=name)
            pane.display = False
            self.mount(pane)
        return pane

    def _place(self, boxes: dict[str, Box]) -> None:
        if boxes == self._placed:
            return
        for name in self._panes.keys() - boxes.keys():
            self._panes[name].display = False
        for name, box in boxes.items():
            pane = self._pane(name)
            pane.display = True
            if self._placed.get(name) != box:
                pane.styles.width, pane.styles.height = box.width, box.height
                pane.styles.offset = (box.x, box.y)
        self._placed = dict(boxes)

    def use(self, palette: Palette) -> None:
        """Paint in other colours."""
        self._palette = palette
        for pane in self._panes.values():
            pane.use(palette)

    def text(self) -> str:
        """What is shown, as text."""
        size = self.app.size
        return as_text(paint(self.desk, size.width, size.height), size.width, size.height)

    def edit(self, prompt: Prompt) -> None:
        """Take keys for a line of text from now on. One that is open is given up for it."""
        if self._prompt is not None:
            self._prompt.give_up()
        self._prompt = prompt
        self.paint()

    def end_edit(self, prompt: Prompt) -> None:
        """Keys are the desk's again."""
        if self._prompt is prompt:
            self._prompt = None

    async def on_key(self, event: Key) -> None:
        """Every key is the prompt's while there is one, else the desk's."""
        event.stop()
        event.prevent_default()
        if self._prompt is not None:
            self._prompt.press(event.key, event.character)
        else:
            await self.desk.press(event.key)
        self.paint()

    def on_paste(self, event: Paste) -> None:
        """Text from the clipboard goes into the prompt; without one it is no row of keys."""
        event.stop()
        if self._prompt is not None:
            self._prompt.insert(event.text)
            self.paint()

    async def on_mouse_down(self, event: MouseDown) -> None:
        """A click into a pane is the page's."""
        if self._prompt is not None:
            return
        x, y = int(event.screen_x), int(event.screen_y)
        for name, box in self._placed.items():
            if box.x <= x < box.x + box.width and box.y <= y < box.y + box.height:
                self.desk.page.click(name, y - box.y, x - box.x)
                self.paint()
                return

    async def on_mouse_scroll_up(self, event: MouseScrollUp) -> None:
        """The wheel moves as the arrows do."""
        await self._wheel("up")

    async def on_mouse_scroll_down(self, event: MouseScrollDown) -> None:
        """The wheel moves as the arrows do."""
        await self._wheel("down")

    async def _wheel(self, action: str) -> None:
        if self._prompt is None and self.desk.available(self.desk.keymap[action]):
            await self.desk.act(action)
            self.paint()
