"""One trial: its verdict, the deciding line with those around it, its phases, and where its files are."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from console.state.sanitize import sanitize
from console.tui.bench.aside import Later
from console.tui.bench.close_up import close_up, place
from console.tui.bench.evidence import Close, look_close
from console.tui.bench.pages.framed import FramedPage
from console.tui.bench.pages.listing import bench
from console.tui.bench.reading import Seen
from console.tui.layout import Box
from console.tui.pages.page import Painted
from console.tui.picture import Scene
from console.tui.reading import LongText
from console.tui.text import Line, Span, line

if TYPE_CHECKING:
    from console.tui.bench.desk import BenchDesk


class VerdictPage(FramedPage):
    """Read on a thread when it is opened: the trial's files may be large, or on a slow disk."""

    id = "verdict"
    title = "Verdict"

    def __init__(self, desk: BenchDesk) -> None:
        super().__init__(desk)
        self._text = LongText(follow=False)
        self._path = ""
        self._around: tuple[str, ...] = ()
        self._cells, self._reading = 80, 0
        self._close: Later[Close] | None = None
        self._made: tuple[object, ...] = ()

    @property
    def text(self) -> LongText:
        """Everything about the trial."""
        return self._text

    def use(self, path: str, around: tuple[str, ...]) -> None:
        """Show the trial in this directory; `around`: those before and after it."""
        self._around = around
        if path != self._path:
            self._path, self._close, self._made = path, None, ()
            self._text.clear()
            self._text.to_first()
        self.tick()

    @property
    def seen(self) -> Seen | None:
        """The trial, None when it is gone."""
        return bench(self).seen(self._path)

    def tick(self) -> None:
        """Have it read."""
        desk, seen = bench(self), self.seen
        if seen is None or desk.survey is None:
            return
        if self._close is None or self._reading != desk.readings:
            self._reading = desk.readings
            jobs = [job for side in desk.survey.sides for job in side.jobs]
            job = next((job for job in jobs if str(job.path) == seen.row.job), None)
            rules = desk.reader.wanted.rules
            self._close = later = Later(lambda: look_close(seen, job, rules))
            self._sync()

            async def come() -> None:
                await later.come()
                self._sync()
                desk.changed()
                desk.shell.repaint()

            desk.shell.spawn(come())
        self._sync()

    def _sync(self) -> None:
        """Lay out what there is."""
        cells = self._cells
        desk, seen, close = bench(self), self.seen, self._close
        if seen is None:
            wanted: tuple[object, ...] = ("gone",)
            lines: list[Line] = [line(Span(" the trial's directory is gone; esc goes back", "limit"))]
        elif close is None or close.value is None:
            trouble = sanitize(close.trouble, limit=300) if close is not None else ""
            wanted = ("waiting", trouble)
            lines = [line(Span(f" {trouble or 'reading ...'}", "infra" if trouble else "muted"))]
        else:
            marked = seen.path in desk.marks
            wanted = (self._path, self._reading, marked, cells)
            if wanted != self._made:
                lines = close_up(seen, close.value, desk.scene().marks, desk.ascii, marked, cells)
        if wanted != self._made:
            self._made = wanted
            self._text.replace(lines)

    def fingerprint(self) -> tuple[object, ...]:
        """Which trial, and where one reads."""
        return (self._path, self._text.version, self._made)

    def paint(self, scene: Scene, region: Box) -> Painted:
        """Jobs and the text."""
        seen = self.seen
        self._cells = region.width
        self._sync()
        name = sanitize(seen.task, limit=80) if seen is not None else "?"
        which = f"{self._around.index(self._path) + 1}/{len(self._around)}" if self._path in self._around else ""
        return self.framed(scene, region, f"Trial  {name}", which)

    # --- keys ---

    def _turn(self, by: int) -> None:
        at = self._around.index(self._path) + by if self._path in self._around else -1
        if 0 <= at < len(self._around):
            self.use(self._around[at], self._around)
        else:
            self.desk.say("there is no further trial in the list")

    def do_next_trial(self) -> None:
        """The next trial of the list that it was opened from."""
        self._turn(1)

    def do_previous_trial(self) -> None:
        """The one before."""
        self._turn(-1)

    def do_bench_mark(self) -> None:
        """Mark it, or take its mark away."""
        seen = self.seen
        if seen is not None:
            on = bench(self).toggle([seen])
            self.desk.say("marked" if on else "no longer marked")

    def do_open(self) -> None:
        """Say which file to open, and copy it."""
        seen = self.seen
        if seen is not None:
            where = sanitize(place(seen), limit=2000)
            self.desk.shell.copy(where)
            self.desk.say(f"copied: {where}")

    def yank_text(self) -> str:
        """The directory, and everything that is there to read."""
        return f"{Path(self._path)}\n{self._text.text()}"

    def listed(self) -> list[Seen]:
        """The trial, for a file."""
        return [self.seen] if self.seen is not None else []
