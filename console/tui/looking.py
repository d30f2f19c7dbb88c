"""What every page can do without the engine: pages, help, themes, the held picture, copies, the mouse, leaving."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING

from console.control.registry import state_dir
from console.errors import ControlError
from console.state.sanitize import sanitize
from console.tui.saving import check_suffix, save

if TYPE_CHECKING:
    from console.tui.desk import Desk

PAINT_RATES = (4.0, 2.0, 1.0, 0.5, 0.25)
"""Paints a second, the most first."""
CLIPBOARD_BYTES = 74_000
"""More than this in base64 and terminals drop the whole."""


class Looking:
    """Handlers of actions of every page."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._mouse = False

    # --- pages ---

    def do_back(self) -> None:
        """To the page before."""
        self._desk.back()

    def do_help(self) -> None:
        """Keys and signs of this page; again to close them."""
        if self._desk.page.id == "help":
            self._desk.back()
        else:
            self._desk.show("help")

    def do_page_run(self) -> None:
        """The run."""
        self._desk.show("run")

    def do_page_trial(self) -> None:
        """The selected trial."""
        if not self._desk.no_run and self._desk.scene().trial is None:
            self._desk.say("no trial is selected")
            return
        self._desk.show("trial")

    def _page_of_trial(self, tab: str) -> None:
        """The selected trial at a tab; the trial page has these keys of its own, so this is how others get there."""
        self.do_page_trial()
        if self._desk.page.id == "trial":
            getattr(self._desk.page, f"do_{tab}")()

    def do_transcript(self) -> None:
        """The selected trial's transcript."""
        self._page_of_trial("transcript")

    def do_verifier(self) -> None:
        """Its verifier output."""
        self._page_of_trial("verifier")

    def do_tokens(self) -> None:
        """Its captured tokens."""
        self._page_of_trial("tokens")

    def do_log(self) -> None:
        """Its log."""
        self._page_of_trial("log")

    def do_why(self) -> None:
        """Why its outcome was given."""
        self._page_of_trial("why")

    def do_page_events(self) -> None:
        """All events."""
        self._desk.show("events")

    def do_page_metrics(self) -> None:
        """Plots."""
        self._desk.show("metrics")

    def do_page_alarms(self) -> None:
        """Alarms."""
        self._desk.show("alarms")

    def do_page_config(self) -> None:
        """What the run was started with."""
        self._desk.show("config")

    def do_page_runs(self) -> None:
        """Live and recorded runs."""
        self._desk.show("runs")

    def do_next_alarm(self) -> None:
        """To what needs the operator: on the run's page, or in a replay along the time."""
        desk = self._desk
        if desk.source.mode == "replay":
            desk.replaying.do_next_alarm()
        else:
            desk.show("run")
            desk.shell.spawn(desk.act("next_alarm"))

    # --- the way out, and who acts ---

    def do_quit(self) -> None:
        """Close the viewer."""
        self._desk.shell.leave()

    do_detach = do_quit

    async def do_watch(self) -> None:
        """Take the watch, or give it back."""
        desk = self._desk
        mine = any(viewer.acts and viewer.you for viewer in desk.source.presence)
        try:
            desk.say(await desk.source.take_watch(back=mine), "pass")
        except ControlError as error:
            desk.say(f"the watch: {error}", "limit")

    # --- the picture ---

    def do_theme(self) -> None:
        """The next theme."""
        self._desk.say(f"theme: {self._desk.shell.next_theme()}")

    def do_freeze(self) -> None:
        """Hold the picture, or catch up."""
        desk = self._desk
        desk.freeze()
        key = desk.keymap.label("freeze")
        desk.say(f"the picture stands still, the run goes on · {key} catches up" if desk.frozen else "caught up")

    def do_faster_paint(self) -> None:
        """Paint more often."""
        self._rate(-1)

    def do_slower_paint(self) -> None:
        """Paint less often."""
        self._rate(1)

    def _rate(self, by: int) -> None:
        desk = self._desk
        at = PAINT_RATES.index(desk.paints_per_second) + by
        desk.paints_per_second = PAINT_RATES[max(0, min(at, len(PAINT_RATES) - 1))]
        rate = desk.paints_per_second
        often = f"{rate:g} times a second" if rate >= 1 else f"every {1 / rate:g} seconds"
        desk.say(f"the screen is painted {'once a second' if rate == 1 else often} at most")

    def do_mouse(self) -> None:
        """Take clicks, or leave them to the terminal."""
        self.use_mouse(not self._mouse)
        on = "clicks select and the wheel moves; hold shift to select text"
        self._desk.say(on if self._mouse else "clicks are the terminal's own again")

    def use_mouse(self, on: bool) -> None:
        """Have clicks reported, or not."""
        self._mouse = on
        self._desk.shell.take_mouse(on)

    # --- copies ---

    def do_yank(self) -> None:
        """Copy what is selected, or the page."""
        desk = self._desk
        chosen = getattr(desk.page, "yank_text", None)
        found = chosen() if chosen is not None else None
        text = sanitize(found, limit=10**6, keep_newlines=True) if found else desk.shell.screen_text()
        fits = len(text.encode()) * 4 // 3 <= CLIPBOARD_BYTES
        if fits:
            desk.shell.copy(text)
        said = f"{len(text)} characters" + (" copied" if fits else ", too many for a terminal's clipboard")
        try:
            desk.say(f"{said}; also in {_keep(text)}")
        except (OSError, ControlError) as error:
            desk.say(f"{said}; not kept in a file: {error}", "limit")

    async def do_export(self) -> None:
        """Write what is shown to a file."""
        desk = self._desk
        name = re.sub(r"[^A-Za-z0-9._-]+", "-", sanitize(desk.state.name or desk.state.run_id or "runs", limit=40))
        default = f"{name}-{desk.page.id}.txt"
        text = await desk.shell.prompt("export to", default, hint=".txt .svg .json .csv", replace=True)
        if text is not None and text.strip():
            await self.export(text.strip())

    async def export(self, name: str) -> None:
        """Write the view to the file `name`, whose suffix says as what; ask before a file is overwritten."""
        desk = self._desk
        path = Path(name).expanduser()
        check_suffix(path)
        shown = sanitize(str(path), limit=200)
        if path.exists() and not await desk.shell.confirm(
            "Overwrite", f"{shown} exists. Its contents will be lost.", "overwrite it"
        ):
            desk.say("export: not done")
            return
        try:
            size = save(desk, path)
        except OSError as error:
            desk.say(f"export: {shown}: {error.strerror or error}", "infra")
            return
        desk.say(f"export: {size} bytes in {shown}", "pass")


def _keep(text: str) -> str:
    """Write the private copy; where it is."""
    path = state_dir() / "yank.txt"
    temporary = path.with_suffix(f".{os.getpid()}")
    with open(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as file:
        file.write(text)
    temporary.replace(path)
    return str(path)
