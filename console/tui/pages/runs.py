"""Live and recorded runs, those that need attention first; enter opens one."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING

from console.control.runs import RunInfo
from console.errors import QuarterdeckError, UsageError
from console.state.bench_words import INFRA_EXCLUDED
from console.state.sanitize import sanitize
from console.state.words import BENCHMARK
from console.tui.filters import Filter, parse
from console.tui.layout import Box
from console.tui.opening import source_of_directory
from console.tui.pages.page import Page, Painted
from console.tui.panes.frame import ruled
from console.tui.picture import Scene
from console.tui.run_list import RunList
from console.tui.source import wall_clock
from console.tui.text import Line, Span, cell, fit, line, number, restyle, short_time

if TYPE_CHECKING:
    from console.tui.desk import Desk

REFRESH_SECONDS = 2.0
_ROLES = {
    "live": "pass",
    "dead": "infra",
    "damaged": "infra",
    "failed": "infra",
    "stopped": "limit",
    "finished": "muted",
}
_TEACHING = (
    ("quarterdeck demo", "the whole chain, in about a minute"),
    ("quarterdeck train FILE.toml", "your tasks, your gateway"),
    ("quarterdeck train FILE.toml --detach", "in the background; it shows up here"),
)


class RunsPage(Page):
    """A list; which run is selected is remembered by its id, not by its place."""

    id = "runs"
    title = "Runs"

    def __init__(self, desk: Desk) -> None:
        super().__init__(desk)
        self._list = RunList()
        self._runs: list[RunInfo] | None = None
        self._trouble = ""
        self._read_at: float | None = None
        self._task: asyncio.Task[None] | None = None
        self._filter = Filter()
        self._chosen = ""
        self._at = self._top = 0
        self._rows = 1

    def fingerprint(self) -> tuple[object, ...]:
        """The runs as last read."""
        ages = int(wall_clock()) // 10
        return (self._read_at, self._chosen, self._at, self._filter.text, self._trouble, ages)

    # --- reading ---

    def tick(self) -> None:
        """Read the registry on a thread, now and then."""
        now = self.desk.clock()
        due = self._read_at is None or now - self._read_at >= REFRESH_SECONDS
        if due and (self._task is None or self._task.done()):
            self._task = asyncio.get_running_loop().create_task(self._read())

    async def _read(self) -> None:
        try:
            self._runs, self._trouble = await asyncio.to_thread(self._list.read), ""
        except (QuarterdeckError, OSError) as error:
            self._runs, self._trouble = self._runs or [], str(error)
        self._read_at = self.desk.clock()

    def closed(self) -> None:
        """Nobody waits for the thread any more."""
        if self._task is not None:
            self._task.cancel()

    # --- painting ---

    def _shown(self) -> list[RunInfo]:
        found = [run for run in self._runs or [] if self._filter.matches(_fields(run))]
        at = next((i for i, run in enumerate(found) if run.run_id == self._chosen), None)
        self._at = at if at is not None else max(0, min(self._at, len(found) - 1))
        if found:
            self._chosen = found[self._at].run_id
        return found

    def paint(self, scene: Scene, region: Box) -> Painted:
        """One row a run."""
        runs = self._shown()
        everything = self._runs or []
        live = sum(run.state == "live" for run in everything)
        self._rows = max(1, region.height - 2)
        self._top = max(0, min(max(self._top, self._at - self._rows + 1), self._at, len(runs) - 1))
        if self._runs is None:
            body = [line(Span(" reading ...", "muted"))]
        elif runs:
            body = [_heading(region.width)]
            for i, run in enumerate(runs[self._top : self._top + self._rows], start=self._top):
                row = _row(run, region.width, scene.marks.cursor if i == self._at else " ")
                body.append(restyle(fit(row, region.width), "selected") if i == self._at else row)
        elif everything:
            body = [line(Span(" no run has these words; esc clears the filter", "muted"))]
        else:
            body = _teach(self.desk.no_run, self.desk.keymap.label("quit"))
        if self._trouble:
            body = [line(Span(f" {sanitize(self._trouble, limit=200)}", "infra")), *body]
        wanted = f"/{self._filter.text}  " if self._filter else ""
        where = f"{self._at + 1}/{len(runs)}" if runs else ""
        counts = f"  {live} live, {len(everything) - live} recorded" if everything else ""
        if any(run.kind == BENCHMARK for run in everything):
            counts += f"; of a benchmark: {INFRA_EXCLUDED}"
        title = (f"Runs{counts}", f"{wanted}{where}")
        out = ruled(title, body, region.width, region.height, scene.marks, True)
        return Painted({"runs": region}, {"runs": out})

    def yank_text(self) -> str:
        """The directory of the selected run."""
        runs = self._shown()
        return runs[self._at].run_dir if runs else ""

    # --- keys ---

    async def do_open(self) -> None:
        """Show the selected run: live, or its recording at the end."""
        runs = self._shown()
        if not runs:
            self.desk.say("there is no run to open")
            return
        run = runs[self._at]
        if run.run_id == self.desk.state.run_id and not self.desk.no_run and self.desk.source.mode == "live":
            self.desk.show("run")
            return
        name = sanitize(run.name or run.run_id, limit=60)
        self.desk.say(f"opening {name} ...", seconds=None)
        try:
            source, notice = await asyncio.to_thread(
                source_of_directory, Path(run.run_dir), act=not self.desk.read_only
            )
        except QuarterdeckError as error:
            self.desk.say(str(error).replace(run.run_dir, name), "infra")
            return
        self.desk.shell.switch(source)
        self.desk.say(notice or f"this is {name}", "limit" if notice else "")

    def set_filter(self, text: str) -> None:
        """Show runs with these words only. A filter that is not finished yet changes nothing."""
        try:
            self._filter = parse(text)
        except UsageError:
            return

    async def do_filter(self) -> None:
        """Ask for words; what they leave is shown while they are typed."""
        before = self._filter
        text = await self.desk.shell.prompt("/", before.text, changed=self.set_filter, hint="status:live  name:demo")
        self._filter = before if text is None else parse(text)

    def do_back(self) -> None:
        """Clear the filter, or go back."""
        if self._filter:
            self.set_filter("")
        else:
            self.desk.back()

    def _move(self, by: int) -> None:
        runs = self._shown()
        if runs:
            self._at = max(0, min(self._at + by, len(runs) - 1))
            self._chosen = runs[self._at].run_id

    def click(self, pane: str, row: int, column: int) -> None:
        """Select the run of that row."""
        at = self._top + row - 2  # under the title and the names of the columns
        if 0 <= at < len(self._shown()):
            self._move(at - self._at)

    def do_up(self) -> None:
        """One run up."""
        self._move(-1)

    def do_down(self) -> None:
        """One run down."""
        self._move(1)

    def do_page_up(self) -> None:
        """A page up."""
        self._move(-self._rows)

    def do_page_down(self) -> None:
        """A page down."""
        self._move(self._rows)

    def do_first(self) -> None:
        """To the first run."""
        self._move(-(10**9))

    def do_last(self) -> None:
        """To the last run."""
        self._move(10**9)


def _fields(run: RunInfo) -> dict[str, str]:
    return {"run": run.run_id, "name": run.name or run.run_id, "status": run.state, "text": run.run_dir}


def _widths(cells: int) -> tuple[int, int]:
    """Cells of the name and of the directory."""
    name = 20 if cells < 100 else 32
    return name, max(8, cells - name - 39)


def _heading(cells: int) -> Line:
    name, _ = _widths(cells)
    titles = f"   {'run':<{name}}  {'state':<9} {'step':>7} {'reward':>7} {'age':>6}  directory"
    return line(Span(titles, "muted"))


def _row(run: RunInfo, cells: int, cursor: str) -> Line:
    name, where = _widths(cells)
    bench = run.kind == BENCHMARK  # what its trials are, a training's steps are
    ended, planned = (run.trials_done, run.trials) if bench else (run.steps_done, run.steps)
    steps = f"{'--' if ended is None else ended}/{'?' if planned is None else planned}"
    age = short_time(wall_clock() - run.started) if run.started else "--"
    rate = "--" if run.reward is None else f"{100 * run.reward:.1f} %" if bench else number(run.reward)
    alarm = Span("!", "alert") if run.state == "live" and run.alarms else Span(" ")
    return line(
        f"{cursor}", alarm, " ",
        Span(cell(run.name or run.run_id, name), "bold"),
        "  ", Span(cell(run.state, 9), _ROLES.get(run.state, "")),
        f" {cell(steps, 7, right=True)} {cell(rate, 7, right=True)} {cell(age, 6, right=True)}  ",
        Span(_tail(run.run_dir, where), "muted"),
    )  # fmt: skip


def _tail(path: str, cells: int) -> str:
    """The end of a path tells more than its beginning."""
    clean = sanitize(path, limit=1000)
    return cell(clean if len(clean) <= cells else f"…{clean[len(clean) - cells + 1 :]}", cells)


def _teach(no_run: bool, quit_key: str) -> list[Line]:
    rows: list[Line] = [()]
    rows += [line(Span(" No run is known on this machine. Start one, here or in another terminal:", "bold")), ()]
    rows += [line(Span(f"   {command:<38}", "key"), Span(text)) for command, text in _TEACHING]
    rows += [(), line(Span(" On another machine: forward its socket, then quarterdeck attach --socket PATH", "muted"))]
    rows.append(line(Span(" A directory that was copied here: quarterdeck replay DIR", "muted")))
    if no_run:
        rows += [(), line(Span(f" {quit_key} ", "key"), Span("leaves. This list looks again every two seconds."))]
    return rows
