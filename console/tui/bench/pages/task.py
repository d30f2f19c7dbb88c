"""One task of a comparison: the trials of both sides, side by side."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from console.tui.bench.pages.listing import ListPage, bench, top_line, trouble_lines
from console.tui.bench.pages.trials import open_verdict
from console.tui.bench.reading import Seen
from console.tui.bench.trials import attempt, kind, reward, tokens, took
from console.tui.bench.versus import TaskRow, task_rows
from console.tui.glyphs import SIGNS, sign_text
from console.tui.layout import Box
from console.tui.pages.page import Painted
from console.tui.panes.frame import ruled
from console.tui.picture import Scene
from console.tui.text import Line, Span, cell, fit, line, restyle

if TYPE_CHECKING:
    from console.tui.bench.desk import BenchDesk


class TaskPage(ListPage[TaskRow]):
    """Left and right choose the side, enter opens its trial."""

    id = "task"
    title = "Task"

    def __init__(self, desk: BenchDesk) -> None:
        super().__init__(desk)
        self._task, self._a, self._b, self._mode = "", "A", "B", ""
        self._right = False
        self._left_cells = 40

    def use(self, task: str, a: str, b: str, mode: str) -> None:
        """Show a task of the comparison of two sides, by their labels."""
        if (task, a, b) != (self._task, self._a, self._b):
            self._at, self._top, self._chosen, self._right = 0, 0, None, False
        self._task, self._a, self._b, self._mode = task, a, b, mode

    def tick(self) -> None:
        """Have it compared, when something else was read."""
        bench(self).pairs(self._mode)

    def rows(self) -> Sequence[TaskRow]:
        """Trials side by side."""
        later = bench(self).pairs(self._mode)
        found = later.value if later is not None else None
        if found is None:
            return []
        one = next((x for x in found.found if (x.a.label, x.b.label) == (self._a, self._b)), None)
        return task_rows(found, one, self._task) if one is not None else []

    def key(self, row: TaskRow) -> object:
        """Whose trials they are."""
        return (row.a.path if row.a else "", row.b.path if row.b else "")

    def name(self, row: TaskRow) -> str:
        """The exceptions."""
        return " ".join(seen.row.error for seen in (row.a, row.b) if seen is not None)

    @property
    def seen(self) -> Seen | None:
        """The selected trial."""
        row = self.row
        return None if row is None else row.b if self._right else row.a

    def fingerprint(self) -> tuple[object, ...]:
        """The side."""
        return (*super().fingerprint(), self._right, self._task)

    def listed(self) -> list[Seen]:
        """The trials of both sides, for a file."""
        return [seen for row in self.rows() for seen in (row.a, row.b) if seen is not None]

    # --- painting ---

    def paint(self, scene: Scene, region: Box) -> Painted:
        """Two columns."""
        desk = bench(self)
        rows = self.settle()
        head = [top_line(desk, region.width), *trouble_lines(desk)]
        left = self._left_cells = (region.width - 3) // 2
        right = region.width - 3 - left
        names = [_heading(self._a, left), Span(f" {scene.marks.bar} ", "rule"), _heading(self._b, right)]
        body: list[Line] = [line(*names)] if rows else [line(Span(" no trial of it any more", "muted"))]
        for place in self.window(len(rows), region.height - len(head) - 2):
            row = rows[place]
            sides = [
                self._side(seen, cells, scene, place == self.at and self._right is second)
                for seen, cells, second in ((row.a, left, False), (row.b, right, True))
            ]
            body.append((*sides[0], Span(f" {scene.marks.bar} ", "rule"), *sides[1]))
        title = (f"Task  {cell(self._task, max(10, region.width - 40)).rstrip()}", self.where(len(rows)))
        lines = [*head, *ruled(title, body, region.width, region.height - len(head), scene.marks, True)]
        return Painted({"task": region}, {"task": lines})

    def _side(self, seen: Seen | None, cells: int, scene: Scene, here: bool) -> Line:
        if seen is None:
            out: Line = fit(line(Span("  --", "muted")), cells)
        else:
            sign = SIGNS[kind(seen)]
            role = "" if seen.row.chosen else "muted"
            outcome = seen.row.error or seen.row.kind
            parts = (
                Span(scene.marks.cursor if here else " "),
                Span("*" if seen.path in bench(self).marks else " ", "limit+bold"),
                Span(sign_text(kind(seen), scene.ascii), sign.role),
                Span(f" {attempt(seen):<4}{reward(seen):>6}{took(seen):>7}{tokens(seen):>7} ", role),
                Span(cell(outcome, max(4, cells - 29)), role),
            )
            out = fit(parts, cells)
        return restyle(out, "selected") if here else out

    # --- keys ---

    def do_left(self) -> None:
        """The first side."""
        self._right = False

    def do_right(self) -> None:
        """The second side."""
        self._right = True

    do_next_pane = do_right
    do_previous_pane = do_left

    def click(self, pane: str, row: int, column: int) -> None:
        """Select the trial of that row."""
        self._right = column > self._left_cells
        self.click_row(row - 3 - len(trouble_lines(bench(self))))

    def do_bench_mark(self) -> None:
        """Mark the selected trial, or take its mark away."""
        seen = self.seen
        if seen is not None:
            bench(self).toggle([seen])

    def do_open(self) -> None:
        """The verdict of the selected trial."""
        seen = self.seen
        if seen is None:
            self.desk.say("this side has no trial here")
            return
        rows = self.rows()
        around = [one.path for one in (row.b if self._right else row.a for row in rows) if one is not None]
        open_verdict(bench(self), seen, around)

    def yank_text(self) -> str:
        """The directory of the selected trial."""
        seen = self.seen
        return seen.path if seen is not None else ""


def _heading(label: str, cells: int) -> Span:
    return Span(cell(f" {label} try  reward  agent tokens outcome", cells), "muted")
