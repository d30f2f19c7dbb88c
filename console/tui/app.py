"""The Textual application: it owns themes, dialogs and the way out. What is shown and done is decided elsewhere."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

from rich.console import RenderableType
from textual.app import App
from textual.screen import Screen

from console.errors import UsageError
from console.state.sanitize import sanitize
from console.tui.crash import write_crash
from console.tui.desk import Desk
from console.tui.keymap import Keymap
from console.tui.screen import MainScreen
from console.tui.signals import Signals
from console.tui.source import Source
from console.tui.themes import DEFAULT_THEME, Palette, ThemeFile, Themes
from console.tui.widgets.dialog import Choice, Confirm, ConfirmTyped, Dialog
from console.tui.widgets.finder import Finder
from console.tui.widgets.prompt import Complete, Prompt
from console.tui.widgets.tight import tightened

THEME_SECONDS = 2.0
"""How often the file of the theme in use is looked at."""
CLICKS_ON, CLICKS_OFF = "\x1b[?1000h\x1b[?1006h", "\x1b[?1000l\x1b[?1006l"
"""Presses and the wheel only. Textual's own mouse support has every move of the mouse reported."""


class ConsoleApp(App[None], inherit_bindings=False):
    """One console on one source."""

    ENABLE_COMMAND_PALETTE = False
    CSS = "MainScreen { background: $background; color: $foreground; }"
    TITLE = "quarterdeck"
    ticks = True
    """Whether the screen looks for news by a clock of its own."""

    def __init__(
        self,
        source: Source,
        themes: Themes,
        theme: str = DEFAULT_THEME,
        ascii_only: bool = False,
        read_only: bool = False,
        leave_after: float | None = None,
        notice: str = "",
        keymap: Keymap | None = None,
        notify: bool = False,
        mouse: bool = False,
        desk: Callable[..., Desk] = Desk,
    ) -> None:
        """`leave_after`: seconds after the run's end at which the console closes by itself, None for never.

        `keymap`: other keys than the default ones; `notify`: the terminal's notifications (OSC 9) beside its bell;
        `mouse`: take clicks from the start; `desk`: makes the desk, for one that shows something else than a run.
        """
        super().__init__()
        self.source = self.begun_with = source
        self._live: Source | None = None
        self._notify, self._mouse = notify, mouse
        self.themes = themes
        self.palette = Palette(themes.loaded[theme])
        self.desk = desk(source, self, read_only, ascii_only, keymap=keymap)
        self.crash_file: Path | None = None
        self.crash = ""
        self.takes_mouse = False
        self._ascii = ascii_only
        self._leave_after, self._leaving = leave_after, False
        self._main = MainScreen(self.desk, self.palette, ascii_only)
        self._signals = Signals(self)
        self._work: set[asyncio.Task[None]] = set()
        self._histories: dict[str, list[str]] = {}
        for one in themes.loaded.values():
            self.register_theme(one.textual())
        self.theme = theme
        notices = [x for x in (notice, *themes.failed) if x]
        if notices:
            self.desk.say("; ".join(notices), "limit", seconds=30.0)

    def get_default_screen(self) -> Screen[None]:
        """The run screen is the first one: no empty screen before it."""
        return self._main

    def on_mount(self) -> None:
        """Signals now, the source after the first paint."""
        if not self.is_headless:
            self.take_signals()
        self.set_interval(0.5, self._check_over)
        self.set_interval(THEME_SECONDS, self._check_theme)
        self.call_after_refresh(self._start)

    def take_signals(self) -> None:
        """Handle signals, and watch over the terminal."""
        self._signals.install()

    async def _start(self) -> None:
        if self._mouse:
            self.desk.looking.use_mouse(True)
        await self.source.start()

    async def on_unmount(self) -> None:
        """Let go of the run."""
        await self.source.close()

    def _check_over(self) -> None:
        if getattr(self.begun_with, "failure", None) is not None:
            self.exit()
        over = self.desk.over and self.source is self.begun_with
        if over and not self._leaving and self._leave_after is not None:
            self._leaving = True
            self.set_timer(self._leave_after, self._leave_if_still_there)

    def _leave_if_still_there(self) -> None:
        if self.source is self.begun_with:
            self.exit()

    def _check_theme(self) -> None:
        """Take a theme file that was saved anew; a broken one is told of, once, and the colours stay."""
        try:
            changed = self.themes.reload(self.theme)
        except ValueError as error:
            self.desk.say(str(error), "limit")
            return
        if changed is not None:
            self._load(changed)
            self.desk.say(f"theme {changed.title}: read again")

    def _display(self, screen: Screen[object], renderable: RenderableType | None) -> None:
        """Updates go out cell by cell."""
        super()._display(screen, tightened(renderable))  # type: ignore[arg-type]

    def _set_pointer_shape(self, shape: str) -> None:
        """The mouse is the terminal's own; some take the sequence for a title."""

    def _handle_exception(self, error: Exception) -> None:
        self.crash_file = write_crash(error)
        super()._handle_exception(error)

    def _fatal_error(self) -> None:
        """Textual's own report prints local variables, where secrets may be; the crash file has what is needed."""
        error = sys.exc_info()[1]
        kind = type(error).__name__ if error is not None else "error"
        kept = f" Details: {self.crash_file}" if self.crash_file is not None else ""
        going_on = " The run is not affected." if self.source.mode == "live" else ""
        self.crash = f"the console crashed ({kind}).{going_on}{kept}"
        self._exit_renderables = []
        self._close_messages_no_wait()

    def panic(self, *renderables: RenderableType) -> None:
        """What Textual gives up for is a crash as any other."""
        self._fatal_error()

    # --- what the desk asks for ---

    async def confirm(
        self, title: str, text: str, yes: str, typed: str = "", over: Callable[[], bool] | None = None
    ) -> bool:
        """A question whose default is no."""
        if typed:
            return await self._ask(ConfirmTyped(self.palette, self._ascii, title, text, yes, typed)) is True
        return await self._ask(Confirm(self.palette, self._ascii, title, text, yes, over=over)) is True

    async def choose(self, title: str, options: list[tuple[str, str, str]]) -> str:
        """A choice whose default is the last option."""
        return await self._ask(Choice(self.palette, self._ascii, title, options)) or options[-1][2]

    async def find(self, entries: Sequence[tuple[str, str, str]]) -> str | None:
        """An entry found by typing."""
        return await self._ask(Finder(self.palette, self._ascii, "Commands", entries))

    async def prompt(
        self,
        label: str,
        initial: str = "",
        changed: Callable[[str], None] | None = None,
        hint: str = "",
        complete: Complete | None = None,
        replace: bool = False,
    ) -> str | None:
        """A line of text at the foot of the screen. Each label has a history of its own."""
        answer: asyncio.Future[str | None] = asyncio.get_running_loop().create_future()

        def take(text: str | None) -> None:
            self._main.end_edit(line)  # at once: the next key is not for it
            if not answer.done():
                answer.set_result(text)

        history = self._histories.setdefault(label, [])
        line = Prompt(label, take, initial, changed, hint, history, complete, replace)
        self._main.edit(line)
        return await answer

    async def _ask[Answer](self, dialog: Dialog[Answer]) -> Answer | None:
        answer: asyncio.Future[Answer | None] = asyncio.get_running_loop().create_future()

        def take(value: Answer | None) -> None:
            if not answer.done():
                answer.set_result(value)

        self.push_screen(dialog, take)
        return await answer

    def theme_names(self) -> list[str]:
        """Loaded ones, and those whose file has come since."""
        for theme in self.themes.scan():
            self.register_theme(theme.textual())
        return sorted(self.themes.loaded)

    def next_theme(self) -> str:
        """The theme after the present one, in order of name."""
        names = self.theme_names()
        return self.use_theme(names[(names.index(self.theme) + 1) % len(names)])

    def use_theme(self, name: str) -> str:
        """Switch to a loaded theme; its title."""
        names = self.theme_names()
        if name not in names:
            raise UsageError(f"no theme {sanitize(name, limit=40)!r}: there are {', '.join(names)}")
        self._load(self.themes.loaded[name])
        return self.themes.loaded[name].title

    def _load(self, theme: ThemeFile) -> None:
        self.register_theme(theme.textual())
        if self.theme == theme.name:
            self.refresh_css(animate=False)
        self.theme = theme.name
        self.palette = Palette(theme)
        self._main.use(self.palette)

    def switch(self, source: Source) -> None:
        """Show another run, or this one from another source."""
        before, self.source = self.source, source
        if before.mode == "live":
            self._live = before
        self.desk.use(source)
        self.spawn(self._change(before, source))

    async def _change(self, before: Source, after: Source) -> None:
        await before.close()
        await after.start()

    def leave(self) -> None:
        """Close the viewer. The run goes on."""
        self.exit()

    def spawn(self, work: Awaitable[None]) -> None:
        """Run it beside the message loop; its crash is the app's."""

        async def guarded() -> None:
            try:
                await work
            except Exception as error:
                self._handle_exception(error)

        task = asyncio.get_running_loop().create_task(guarded())
        self._work.add(task)
        task.add_done_callback(self._work.discard)

    def repaint(self) -> None:
        """Show what changed, now."""
        if self._main.is_mounted:
            self._main.paint()

    def last_run(self) -> Source:
        """What was looked at last; for a look back at a live run that run, as it was seen last."""
        looks_back = getattr(self.source, "live", None) is not None
        return self._live if looks_back and self._live is not None else self.source

    # --- the terminal's own means ---

    def screen_text(self) -> str:
        """What is shown, as text."""
        return self._main.text()

    def screen_svg(self) -> str:
        """What is shown, as a picture."""
        from console.tui.screenshot import offline

        return offline(self.export_screenshot(title="quarterdeck"))

    def copy(self, text: str) -> None:
        """OSC 52."""
        self.copy_to_clipboard(text)

    def lend_terminal(self) -> None:
        """Leave the terminal as it was, for a while."""
        if self._driver is not None:
            if self.takes_mouse:
                self._driver.write(CLICKS_OFF)
            self._driver.suspend_application_mode()

    def take_terminal(self) -> None:
        """Have it again, and paint everything."""
        if self._driver is not None:
            self._driver.resume_application_mode()
            self.take_mouse(self.takes_mouse)
            self.screen.refresh(layout=True)

    def take_mouse(self, on: bool) -> None:
        """Ask for presses, or for nothing."""
        self.takes_mouse = on
        if self._driver is not None:
            self._driver.write(CLICKS_ON if on else CLICKS_OFF)

    def ring(self, text: str) -> None:
        """BEL, and OSC 9 when it is wanted."""
        self.bell()
        if self._notify and self._driver is not None and not self.is_headless:
            self._driver.write(f"\x1b]9;{sanitize(text, limit=200)}\x07")
