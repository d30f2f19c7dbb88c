"""The trials of a class, a cause or a finding: sorted, filtered, marked, and opened."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from console.bench.detectors import NAMED
from console.tui.bench import trials as listed_trials
from console.tui.bench.causes import cause_rows
from console.tui.bench.pages.listing import ListPage, bench, top_line, trouble_lines
from console.tui.bench.reading import Seen
from console.tui.bench.trials import SORTS, attempt, fields, kind, reward, tokens, took
from console.tui.filters import Filter
from console.tui.glyphs import SIGNS, sign_text
from console.tui.layout import Box
from console.tui.pages.page import Painted
from console.tui.panes.frame import ruled
from console.tui.picture import Scene
from console.tui.text import Line, Span, cell, line

if TYPE_CHECKING:
    from console.tui.bench.desk import BenchDesk

_WIDE = 100


class TrialsPage(ListPage[Seen]):
    """One row a trial."""

    id = "trials"
    title = "Trials"
    hint = "words  class:infra  task:git  status:marked  status:replaced  t:2  !not"

    def __init__(self, desk: BenchDesk) -> None:
        super().__init__(desk)
        self._of: tuple[str, ...] = ()
        self._label = ""
        self._before = Filter()
        self._sort = SORTS[0]
        self._made: tuple[object, ...] = ()
        self._group: tuple[Seen, ...] = ()
        self._rows: list[Seen] = []

    def use(self, key: tuple[str, ...], label: str, before: Filter) -> None:
        """Show the trials of the triage's row of that key, which was made with the filter `before`."""
        if (key, before) != (self._of, self._before):
            self.filter, self._chosen, self._at, self._top = Filter(), None, 0, 0
        self._of, self._label, self._before, self._made = key, label, before, ()

    def rows(self) -> Sequence[Seen]:
        """Made anew when something else was read, or is wanted."""
        desk = bench(self)
        side = desk.side
        if side is None or not self._of:
            return []
        marks = frozenset(desk.marks) if "status" in self.filter.text else None
        wanted = (desk.readings, desk.on_second, self._of, self._before, self.filter, self._sort, marks)
        if wanted != self._made:
            if self._made[:4] != wanted[:4]:
                made = cause_rows(side, self._before, "attention", lambda seen: fields(seen, seen.path in desk.marks))
                self._group = next((row.trials for row in made if row.key == self._of), ())
            self._made = wanted
            self._rows = listed_trials.shown(self._group, self.filter, self._sort, desk.marks)
        return self._rows

    def key(self, row: Seen) -> object:
        """Its directory."""
        return row.path

    def name(self, row: Seen) -> str:
        """Its task."""
        return row.task

    def listed(self) -> list[Seen]:
        """What is in the list, for a file."""
        return list(self.rows())

    # --- painting ---

    def paint(self, scene: Scene, region: Box) -> Painted:
        """Jobs and the list."""
        desk = bench(self)
        rows = self.settle()
        head = [top_line(desk, region.width), *trouble_lines(desk)]
        widths = _widths(region.width)
        body: list[Line] = [_heading(widths)]
        if not rows:
            nothing = "no trial has these words; esc clears the filter" if self.filter else "no such trial any more"
            body = [line(Span(f" {nothing}", "muted"))]
        for place in self.window(len(rows), region.height - len(head) - 2):
            body.append(self.painted(self._line(rows[place], place, widths, scene), place, region.width))
        some = ""
        if self._of[:1] == ("finding",) and len(self._group) == NAMED:
            some = f"  the first {NAMED} that it names"
        title = (
            f"{cell(self._label, max(10, region.width // 2)).rstrip()}{some}  by {self._sort}",
            self.where(len(rows)),
        )
        lines = [*head, *ruled(title, body, region.width, region.height - len(head), scene.marks, True)]
        return Painted({"trials_all": region}, {"trials_all": lines})

    def _line(self, seen: Seen, place: int, widths: tuple[int, int, int], scene: Scene) -> Line:
        task, error, outcome = widths
        sign = SIGNS[kind(seen)]
        marked = seen.path in bench(self).marks
        role = "" if seen.row.chosen else "muted"
        parts = [
            Span(scene.marks.cursor if place == self.at else " "),
            Span("*" if marked else " ", "limit+bold"),
            Span(sign_text(kind(seen), scene.ascii), sign.role),
            Span(f" {cell(seen.task, task)} {attempt(seen):>5} {reward(seen):>6} ", role),
            Span(f"{cell(seen.row.error or '-', error)} {took(seen):>6} {tokens(seen):>6}", role),
        ]
        if outcome:
            parts.append(Span(f"  {cell(seen.row.kind, outcome)}", role))
        return line(*parts)

    # --- keys ---

    def click(self, pane: str, row: int, column: int) -> None:
        """Select the trial of that row."""
        self.click_row(row - 3 - len(trouble_lines(bench(self))))

    def do_open(self) -> None:
        """Its verdict."""
        seen = self.row
        if seen is None:
            self.desk.say("there is nothing to open")
            return
        open_verdict(bench(self), seen, [one.path for one in self.rows()])

    def do_bench_mark(self) -> None:
        """Mark the trial, or take its mark away; and go on to the next one."""
        seen = self.row
        if seen is not None:
            bench(self).toggle([seen])
            self.do_down()

    def do_mark_all(self) -> None:
        """Mark every trial in the list, or take all these marks away."""
        rows = list(self.rows())
        if rows:
            on = bench(self).toggle(rows)
            self.desk.say(f"{len(rows):,} trials {'marked' if on else 'no longer marked'}")

    def do_bench_sort(self) -> None:
        """The next order."""
        self._sort = SORTS[(SORTS.index(self._sort) + 1) % len(SORTS)]
        self._changes += 1
        self.desk.say(f"trials by {self._sort}")

    def yank_text(self) -> str:
        """The marked trials' directories, else that of the selected one."""
        desk = bench(self)
        some = desk.marked() or ([self.row] if self.row is not None else [])
        return "\n".join(seen.path for seen in some)


def open_verdict(desk: BenchDesk, seen: Seen, around: Sequence[str]) -> None:
    """Show one trial; `around`: directories of the trials that its page goes on to."""
    from console.tui.bench.pages.verdict import VerdictPage

    page = desk.show("verdict")
    if isinstance(page, VerdictPage):
        page.use(seen.path, tuple(around))


def _widths(cells: int) -> tuple[int, int, int]:
    """Cells of task, exception, and of class and cause, which only wide screens have."""
    left = cells - 4 - 6 - 7 - 1 - 7 - 7 - 1
    outcome = 30 if cells >= _WIDE else 0
    left -= outcome + 2 if outcome else 0
    error = min(26, left * 2 // 5)
    return max(8, left - error), max(4, error), outcome


def _heading(widths: tuple[int, int, int]) -> Line:
    task, error, outcome = widths
    text = f"    {'task':<{task}} {'try':>5} {'reward':>6} {'exception':<{error}} {'agent':>6} {'tokens':>6}"
    return line(Span(text + (f"  {'class/cause':<{outcome}}" if outcome else ""), "muted"))
