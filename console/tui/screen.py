"""The one Textual screen: panes where the frame puts them, painted at most four times a second; keys go to the desk."""

from __future__ import annotations

from textual.app import ComposeResult
from textual.events import Key, MouseDown, MouseScrollDown, MouseScrollUp, Paste, Resize
from textual.geometry import Size
from textual.layout import Layout
from textual.reactive import Reactive
from textual.screen import Screen

from console.tui.desk import Desk
from console.tui.frame import as_text, paint
from console.tui.layout import Box
from console.tui.themes import Palette
from console.tui.widgets.pane import Pane
from console.tui.widgets.places import Places
from console.tui.widgets.prompt import Prompt

PAINTS_PER_SECOND = 4
PANES = 20
"""As many as any page shows, and its frame. One more that is mounted later would have the whole screen painted."""


class MainScreen(Screen[None], inherit_bindings=False):
    """Shows what the desk has."""

    virtual_size = Reactive(Size(0, 0), repaint=False)
    """Nothing scrolls here: as with `Pane`, another size is laid out and painted once."""

    def __init__(self, desk: Desk, palette: Palette, ascii_only: bool) -> None:
        super().__init__()
        self.desk = desk
        self._palette, self._ascii = palette, ascii_only
        self._panes: dict[str, Pane] = {}
        self._free = [Pane(palette, ascii_only) for _ in range(PANES)]
        self._placed: dict[str, Box] = {}
        self._places = Places()
        self._seen: tuple[object, ...] = ()
        self._painted = -1e9
        self._prompt: Prompt | None = None

    @property
    def layout(self) -> Layout:
        """Panes lie where the page wants them."""
        return self._places

    def compose(self) -> ComposeResult:
        """All panes; those that no page has placed are not shown."""
        yield from self._free

    def on_mount(self) -> None:
        """First paint, then the clock."""
        self.paint()
        if self.app.ticks:  # type: ignore[attr-defined]
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
        self.desk.painted()
        self._place(painted.boxes)
        for name, pane in self._panes.items():
            pane.show(painted.lines.get(name, ()))

    def _place(self, boxes: dict[str, Box]) -> None:
        if boxes == self._placed:
            return
        for name in self._panes.keys() - boxes.keys():
            self._free.append(self._panes.pop(name))
        self._places.boxes = {self._panes.get(name) or self._take(name): box for name, box in boxes.items()}
        self._placed = dict(boxes)
        self._clear_arrangement_cache()
        self.refresh(repaint=False, layout=True)

    def _take(self, name: str) -> Pane:
        """A pane that is free from now on shows `name`."""
        if self._free:
            pane = self._free.pop()
        else:
            pane = Pane(self._palette, self._ascii)
            self.mount(pane)
        self._panes[name] = pane
        return pane

    def use(self, palette: Palette) -> None:
        """Paint in other colours."""
        self._palette = palette
        for pane in (*self._panes.values(), *self._free):
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
