"""Did B beat A, and can it be trusted: the warnings first, then the figures, then the tasks that differ."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from console.bench.compare import Comparison
from console.bench.figures.modes import DEFAULT, MODES
from console.state.sanitize import sanitize
from console.tui.bench.pages.listing import ListPage, bench, top_line, trouble_lines
from console.tui.bench.versus import FlipRow, Pairs, alerts, first_pair, flip_rows, head_lines
from console.tui.filters import Filter
from console.tui.layout import Box
from console.tui.pages.page import Painted
from console.tui.panes.frame import ruled
from console.tui.picture import Scene
from console.tui.reading import LongText
from console.tui.text import Line, Span, cell, line, number, plain, wrap

if TYPE_CHECKING:
    from console.tui.bench.desk import BenchDesk

_LEAST_LIST = 6


class VersusPage(ListPage[FlipRow]):
    """Two panes: the answer, which is read, and the tasks, which are opened. The answer has the keys at first."""

    id = "versus"
    title = "Comparison"
    hint = "words in the task's name  !not"

    def __init__(self, desk: BenchDesk) -> None:
        super().__init__(desk)
        self.mode = DEFAULT
        self._pair: int | None = None
        self._text = LongText(follow=False, wrap=False)
        self._made: tuple[object, ...] = ()
        self._on_answer = True

    # --- what there is ---

    def found(self) -> Pairs | None:
        """Every pair compared, None while that is under way or cannot be."""
        later = bench(self).pairs(self.mode)
        return later.value if later is not None else None

    @property
    def comparison(self) -> Comparison | None:
        """The one that is shown."""
        found, survey = self.found(), bench(self).survey
        if found is None or survey is None:
            return None
        if self._pair is None:
            self._pair = first_pair(found, survey)
        return found.found[min(self._pair, len(found.found) - 1)]

    def rows(self) -> Sequence[FlipRow]:
        """Tasks on which the sides differ."""
        one = self.comparison
        if one is None:
            return []
        return [row for row in flip_rows(one) if not self.filter or self.filter.matches({"task": row.flip.task})]

    def key(self, row: FlipRow) -> object:
        """The task."""
        return row.key

    def name(self, row: FlipRow) -> str:
        """The task."""
        return row.flip.task

    def opened(self) -> None:
        """Have it compared, now."""
        self.tick()

    def tick(self) -> None:
        """Have it compared."""
        bench(self).pairs(self.mode)

    def fingerprint(self) -> tuple[object, ...]:
        """Which pair, by which mode, and where one reads."""
        return (*super().fingerprint(), self.mode, self._pair, self._on_answer, self._text.version)

    # --- painting ---

    def paint(self, scene: Scene, region: Box) -> Painted:
        """The answer above, the tasks below."""
        desk = bench(self)
        head = [top_line(desk, region.width), *trouble_lines(desk)]
        rows = self.settle()
        self._sync(region.width)
        below = max(_LEAST_LIST, min(len(rows) + 2, region.height // 3))
        top = region.height - below
        body = self._text.window(region.width, top - len(head) - 1)
        lines = [*head, *ruled(self._title(), body, region.width, top - len(head), scene.marks, self._on_answer)]
        tasks = [self._heading(region.width)] if rows else [line(Span(f" {self._nothing()}", "muted"))]
        for place in self.window(len(rows), below - 2):
            tasks.append(self.painted(self._line(rows[place], place, region.width, scene), place, region.width))
        title = ("Tasks on which they differ", self.where(len(rows)))
        foot = ruled(title, tasks, region.width, below, scene.marks, not self._on_answer)
        return Painted(
            {"answer": Box(0, region.y, region.width, top), "flips": Box(0, region.y + top, region.width, below)},
            {"answer": lines, "flips": foot},
        )

    def _title(self) -> tuple[str, str]:
        one, found = self.comparison, self.found()
        if one is None or found is None:
            return "Comparison", self.mode
        some = len(alerts(one))
        told = f"  ! {some} warning{'s' if some > 1 else ''}: read first" if some else ""
        which = f"pair {(self._pair or 0) + 1} of {len(found.found)}" if len(found.found) > 1 else ""
        first, last = self._text.span
        more = f"{first}-{last} of {self._text.total}" if self._text.total > last - first + 1 else ""
        # By which mode is never what gives way: the right end of a title does.
        asked = f"Did {one.b.label} beat {one.a.label}  ← {self.mode} →{told}"
        return asked, ", ".join(filter(None, (which, more)))

    def _sync(self, cells: int) -> None:
        one, later = self.comparison, bench(self).pairs(self.mode)
        trouble = later.trouble if later is not None else ""
        wanted = (bench(self).readings, self.mode, self._pair, cells, one is None, trouble, later is None)
        if wanted == self._made:
            return
        self._made = wanted
        if one is not None:
            self._text.replace(head_lines(one, cells))
            self._text.to_first()
        else:
            said = sanitize(trouble, limit=300) or ("comparing ..." if later is not None else "reading ...")
            self._text.replace([line(" ", *row) for row in wrap(said, cells - 2, "limit" if trouble else "muted")])

    def _nothing(self) -> str:
        if self.filter:
            return "no task has these words; esc clears the filter"
        return "no task differs" if self.comparison is not None else ""

    def _heading(self, cells: int) -> Line:
        one = self.comparison
        a, b = (one.a.label, one.b.label) if one is not None else ("A", "B")
        return line(Span(f"   {'task':<{max(8, cells - 34)}} {a:>7} {b:>7}  better", "muted"))

    def _line(self, row: FlipRow, place: int, cells: int, scene: Scene) -> Line:
        one = self.comparison
        ahead = "pass" if one is not None and row.ahead == one.b.label else "limit"
        flip = row.flip
        return line(
            Span(scene.marks.cursor if place == self.at else " "),
            f"  {cell(flip.task, max(8, cells - 34))} {number(flip.a):>7} {number(flip.b):>7}  ",
            Span(row.ahead, f"{ahead}+bold"),
        )

    # --- keys ---

    def do_next_pane(self) -> None:
        """The answer, or the tasks."""
        self._on_answer = not self._on_answer
        self._changes += 1

    do_previous_pane = do_next_pane

    def _move(self, by: int) -> None:
        if not self._on_answer:
            super()._move(by)
        elif abs(by) >= 10**9:
            (self._text.to_first if by < 0 else self._to_end)()
        else:
            self._text.scroll(by)

    def _to_end(self) -> None:
        self._text.to_last()
        self._text.stand()

    def do_page_up(self) -> None:
        """A page up."""
        self._move(-self._text.rows + 1 if self._on_answer else -self._height)

    def do_page_down(self) -> None:
        """A page down."""
        self._move(self._text.rows - 1 if self._on_answer else self._height)

    async def do_filter(self) -> None:
        """Ask for words of tasks."""
        self._on_answer = False
        await super().do_filter()

    def goto(self, text: str) -> None:
        """Select a task."""
        self._on_answer = False
        super().goto(text)

    def do_left(self) -> None:
        """The accounting mode before."""
        self._turn_mode(-1)

    def do_right(self) -> None:
        """The next accounting mode."""
        self._turn_mode(1)

    def _turn_mode(self, by: int) -> None:
        names = list(MODES)
        self.mode = names[(names.index(self.mode) + by) % len(names)]
        self.tick()
        self.desk.say(f"by {self.mode}: {MODES[self.mode].rule}")

    def do_next_pair(self) -> None:
        """The next pair of runs."""
        self._turn_pair(1)

    def do_previous_pair(self) -> None:
        """The pair before."""
        self._turn_pair(-1)

    def _turn_pair(self, by: int) -> None:
        found = self.found()
        if found is None or len(found.found) < 2:
            self.desk.say("there is one pair only")
            return
        self._pair = ((self._pair or 0) + by) % len(found.found)
        self.filter = Filter()
        self._changes += 1

    def click(self, pane: str, row: int, column: int) -> None:
        """Have the keys there; select the task of that row."""
        self._on_answer = pane != "flips"
        if pane == "flips":
            self.click_row(row - 2)
        self._changes += 1

    def do_open(self) -> None:
        """Both sides' trials of the selected task."""
        row, found, one = self.row, self.found(), self.comparison
        if row is None or found is None or one is None:
            self.desk.say("there is no task to open")
            return
        from console.tui.bench.pages.task import TaskPage

        page = self.desk.show("task")
        if isinstance(page, TaskPage):
            page.use(row.flip.task, one.a.label, one.b.label, self.mode)

    def yank_text(self) -> str:
        """The answer."""
        return self._text.text() if self._on_answer or self.row is None else plain(line(self.row.flip.task))
