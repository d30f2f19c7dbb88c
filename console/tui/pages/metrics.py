"""The whole run in plots: a grid of them under one cursor, and all figures of the step that it is on."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partialmethod
from typing import TYPE_CHECKING

from console.journal.events import StepFinished
from console.tui.axes import LABEL, Look, area, steps_scale
from console.tui.columns import Columns, columns_of, getter
from console.tui.layout import Box
from console.tui.pages.page import Page, Painted
from console.tui.panes import figures
from console.tui.panes.frame import ruled
from console.tui.panes.plots import MOST_PLOTS, Grid, arrange, fitting_title
from console.tui.picture import ENDED, Scene
from console.tui.plot import DENSE, chart_lines, chart_title, step_at, steps_a_dot, value_text
from console.tui.series import CHARTS, FIGURES, Chart
from console.tui.text import Line, Span, cell, fit, line, wrap

if TYPE_CHECKING:
    from console.tui.desk import Desk

_SMOOTHINGS = (0.0, 0.9, 0.99)
_PLOT_NAMES = tuple(f"plot{n}" for n in range(1, MOST_PLOTS + 1))


class MetricsPage(Page):
    """Plots of the finished steps. The cursor is on one step in all of them, or follows the last one."""

    id = "metrics"
    title = "Metrics"

    def __init__(self, desk: Desk) -> None:
        super().__init__(desk)
        self._focus = CHARTS[0].id
        self._cursor: int | None = None
        self._logs: frozenset[str] = frozenset()
        self._smoothing = 0.0
        self._zoomed = False
        self._table = False
        self._top = 0
        self._filter = ""
        self._grid = Grid((), 1)
        self._shown: dict[str, tuple[Chart, Box]] = {}
        self._names: list[Chart] = []

    def fingerprint(self) -> tuple[object, ...]:
        """All that the operator chose."""
        return (
            self._focus, self._cursor, self._logs, self._smoothing, self._zoomed, self._table, self._top, self._filter
        )  # fmt: skip

    # --- what is shown ---

    def charts(self) -> list[Chart]:
        """The charts that the filter lets through."""
        tests = [_test(word) for word in self._filter.split()]
        return [chart for chart in CHARTS if all(test(chart) for test in tests)]

    def _look(self, scene: Scene, chart: Chart) -> Look:
        return Look(
            cursor=self._cursor,
            policy=scene.state.step,
            log=chart.id in self._logs,
            smoothing=self._smoothing,
            grows=scene.state.status not in ENDED,
            ascii=scene.ascii,
        )

    def paint(self, scene: Scene, region: Box) -> Painted:
        """A line on the cursor, then plots, list and table as the size allows."""
        columns = columns_of(scene.view)
        row = columns.row(self._cursor)
        charts = self.charts()
        focus = self._settle(charts)
        self._shown, self._names = {}, []
        boxes = {"metrics": Box(region.x, region.y, region.width, 1)}
        lines: dict[str, list[Line]] = {}
        body = Box(region.x, region.y + 1, region.width, region.height - 1)
        if self._table:
            boxes["figures"], lines["figures"] = body, self._table_lines(scene, row, body)
        elif focus is None or row is None:
            boxes["plot1"], lines["plot1"] = body, self._nothing(focus is None, body)
        elif self._zoomed:
            self._shown["plot1"] = focus, body
            boxes["plot1"], lines["plot1"] = body, self._plot(scene, columns, focus, body, alone=True)
        else:
            self._paint_grid(scene, columns, charts, focus, body, boxes, lines)
        lines["metrics"] = [self._status(scene, columns, row, charts, region.width)]
        return Painted(boxes, lines)

    def _settle(self, charts: list[Chart]) -> Chart | None:
        found = next((chart for chart in charts if chart.id == self._focus), None)
        if found is None and charts:
            found = charts[0]
            self._focus = found.id
        return found

    def _paint_grid(
        self,
        scene: Scene,
        columns: Columns,
        charts: list[Chart],
        focus: Chart,
        body: Box,
        boxes: dict[str, Box],
        lines: dict[str, list[Line]],
    ) -> None:
        row = columns.row(self._cursor)
        self._grid = grid = arrange(body, len(figures.entries(row)) if row is not None else 0, len(charts))
        first = self._first(charts)
        for name, chart, box in zip(_PLOT_NAMES, charts[first:], grid.plots, strict=False):
            self._shown[name] = chart, box
            boxes[name], lines[name] = box, self._plot(scene, columns, chart, box)
        if grid.names is not None:
            boxes["names"] = grid.names
            lines["names"] = self._name_lines(scene, columns, charts, focus, grid.names)
        if grid.table is not None:
            box = grid.table
            shown = figures.figure_columns(scene, row, box.width, box.height - 1)
            boxes["figures"] = box
            lines["figures"] = ruled(figures.figures_title(row), shown, box.width, box.height, scene.marks, False)

    def _first(self, charts: list[Chart]) -> int:
        """Index of the first chart that is shown: whole pages, so that plots stay where they are."""
        at = next((i for i, chart in enumerate(charts) if chart.id == self._focus), 0)
        size = max(1, len(self._grid.plots))
        return at // size * size

    def _plot(self, scene: Scene, columns: Columns, chart: Chart, box: Box, alone: bool = False) -> list[Line]:
        look = self._look(scene, chart)
        inside = box.width - 1
        rows = box.height - 1 - alone
        shown = chart_lines(columns, chart, look, inside, rows)
        if alone:
            about = ". ".join(f"{FIGURES[id].name}: {FIGURES[id].about}" for id in chart.figures)
            shown = [*shown, line(Span(f" {about}", "muted"))]
        title = fitting_title(*chart_title(columns, chart, look), inside)
        focused = chart.id == self._focus and not alone
        return [fit(one, box.width) for one in ruled(title, shown, inside, box.height, scene.marks, focused)]

    def _name_lines(self, scene: Scene, columns: Columns, charts: list[Chart], focus: Chart, box: Box) -> list[Line]:
        row = columns.row(self._cursor)
        inside = box.width - 1
        about = wrap(focus.main.about, inside - 2, "muted")
        room = box.height - (len(about) + 2 if len(charts) + len(about) + 2 <= box.height else 0)
        at = charts.index(focus)
        top = max(0, min(at - room // 2, len(charts) - room))
        out: list[Line] = []
        self._names = charts[top : top + room]
        for chart in self._names:
            chosen = chart is focus
            value = value_text(chart, row) if row is not None else "--"
            name = cell(chart.title, inside - 3 - len(value))
            sign = scene.marks.cursor if chosen else " "
            out.append(line(Span(f"{sign} {name} {value}", "selected" if chosen else ""), " "))
        if room < box.height:
            out += [(), *((Span(" ", ""), *one) for one in about)]
        return [fit(one, box.width) for one in out]

    def _table_lines(self, scene: Scene, row: StepFinished | None, box: Box) -> list[Line]:
        total = len(figures.entries(row)) if row is not None else 0
        self._top = max(0, min(self._top, total - (box.height - 1)))
        shown = figures.figure_list(scene, row, box.width, box.height - 1, self._top)
        left, right = figures.figures_title(row)
        return ruled((f"{left}  all figures", right), shown, box.width, box.height, scene.marks, True)

    def _nothing(self, filtered: bool, box: Box) -> list[Line]:
        text = (
            "no plot matches the filter; esc clears it"
            if filtered
            else "no step has finished yet: the first point comes when the groups of a step are scored and trained"
        )
        return [(), *(fit((Span(" "), *one), box.width) for one in wrap(text, box.width - 2, "muted"))]

    def _status(
        self, scene: Scene, columns: Columns, row: StepFinished | None, charts: list[Chart], cells: int
    ) -> Line:
        total = len(columns.steps)
        parts = [Span(" Metrics ", "title"), Span(f" {total:,} step{'' if total == 1 else 's'}")]
        if row is not None:
            last = "" if self._cursor is not None else ", the last one"
            where = f"step {row.step} of {columns.steps[0]}..{columns.steps[-1]}{last}"
            parts += [Span(f" {scene.marks.separator} ", "rule"), Span(where)]
        steps, notes = self._steps_a_dot(scene, columns), []
        if self._smoothing:
            notes.append(f"EMA {self._smoothing:g}, raw values lighter")
        elif steps >= DENSE:
            notes.append(f"a dot: mean of {steps:.0f} steps")
        for note in notes:
            parts += [Span(f" {scene.marks.separator} ", "rule"), Span(note, "muted")]
        if self._filter:
            found = f"filter {self._filter}: {len(charts)} of {len(CHARTS)} plots"
            parts += [Span(f" {scene.marks.separator} ", "rule"), Span(found, "limit")]
        return fit(parts, cells)

    def _steps_a_dot(self, scene: Scene, columns: Columns) -> float:
        """Of the first plot that is shown; 0 without one."""
        chart, box = next(iter(self._shown.values()), (None, None))
        if chart is None or box is None:
            return 0.0
        look = self._look(scene, chart)
        return steps_a_dot(steps_scale(columns, look, area(box.width - 1, box.height - 1, LABEL, False)))

    # --- the cursor ---

    def go_to_step(self, step: int) -> None:
        """The cursor to a step, or to the nearest one that finished."""
        columns = self._columns()
        at = columns.at(step)
        if at is not None:
            self._put(at)

    def _columns(self) -> Columns:
        return columns_of(self.desk.scene().view)

    def _put(self, index: int) -> None:
        steps = self._columns().steps
        if steps:
            index = max(0, min(index, len(steps) - 1))
            # On the last step it follows: the step that finishes next is shown then.
            self._cursor = steps[index] if index < len(steps) - 1 else None

    def _move(self, by: int) -> None:
        at = self._columns().at(self._cursor)
        if at is not None:
            self._put(at + by)

    def _stride(self) -> int:
        return max(1, len(self._columns().steps) // 10)

    def do_left(self) -> None:
        """One step back."""
        self._move(-1)

    def do_right(self) -> None:
        """One step on."""
        self._move(1)

    def do_page_up(self) -> None:
        """A tenth of the run back."""
        self._move(-self._stride())

    def do_page_down(self) -> None:
        """A tenth of the run on."""
        self._move(self._stride())

    def do_first(self) -> None:
        """To the first step."""
        self._put(0)

    def do_last(self) -> None:
        """To the last step, and follow it."""
        self._cursor = None

    def click(self, pane: str, row: int, column: int) -> None:
        """Choose a plot, and the step in it that was clicked on."""
        if pane == "names" and row < len(self._names):
            self._focus = self._names[row].id
        if pane not in self._shown:
            return
        chart, box = self._shown[pane]
        self._focus = chart.id
        scene = self.desk.scene()
        rows = box.height - 1 - self._zoomed
        step = step_at(columns_of(scene.view), chart, self._look(scene, chart), box.width - 1, rows, column)
        if step is not None and row > 0:
            self.go_to_step(step)

    # --- plots ---

    def _go(self, by: int, wraps: bool = False) -> None:
        charts = self.charts()
        at = next((i for i, chart in enumerate(charts) if chart.id == self._focus), 0) + by
        if charts:
            self._focus = charts[at % len(charts) if wraps else max(0, min(at, len(charts) - 1))].id

    def _row(self, by: int) -> None:
        if self._table:
            self._top = max(0, self._top + by)
        else:
            self._go(by * (1 if self._zoomed else self._grid.columns))

    def do_up(self) -> None:
        """The plot above; in the table, one row up."""
        self._row(-1)

    def do_down(self) -> None:
        """The plot below; in the table, one row down."""
        self._row(1)

    def do_next_pane(self) -> None:
        """The next plot."""
        self._go(1, wraps=True)

    def do_previous_pane(self) -> None:
        """The plot before."""
        self._go(-1, wraps=True)

    def _pane(self, number: int) -> None:
        charts = self.charts()
        at = self._first(charts) + number - 1
        if number <= len(self._grid.plots) and at < len(charts):
            self._focus = charts[at].id

    do_pane_1 = partialmethod(_pane, 1)
    do_pane_2 = partialmethod(_pane, 2)
    do_pane_3 = partialmethod(_pane, 3)
    do_pane_4 = partialmethod(_pane, 4)
    do_pane_5 = partialmethod(_pane, 5)
    do_pane_6 = partialmethod(_pane, 6)

    def do_zoom(self) -> None:
        """The focused plot alone, and back."""
        self._zoomed, self._table = not self._zoomed, False

    def do_log_scale(self) -> None:
        """A logarithmic y axis for the focused plot, or none."""
        chart = self._settle(self.charts())
        if chart is None:
            return
        if not chart.log:
            self.desk.say(f"{chart.title} has no logarithmic axis", "limit")
            return
        self._logs ^= {chart.id}

    def do_smooth(self) -> None:
        """A moving average, a slower one, none."""
        at = _SMOOTHINGS.index(self._smoothing)
        self._smoothing = _SMOOTHINGS[(at + 1) % len(_SMOOTHINGS)]
        self.desk.say(
            f"exponential moving average, {self._smoothing:g} of the past kept; raw values as dots"
            if self._smoothing
            else "raw values"
        )

    async def do_filter(self) -> None:
        """Only plots about these words."""
        before = self._filter
        text = await self.desk.shell.prompt("filter", before, self._set_filter, "words or regular expressions: kl time")
        self._set_filter(before if text is None else text)

    def _set_filter(self, text: str) -> None:
        self._filter = " ".join(text.split())[:200]
        self.desk.shell.repaint()

    def do_back(self) -> None:
        """Out of the table, of the filter, of the zoom, of the page."""
        if self._table:
            self._table = False
        elif self._filter:
            self._filter = ""
        elif self._zoomed:
            self._zoomed = False
        else:
            self.desk.back()

    # --- the step under the cursor ---

    def do_figures(self) -> None:
        """All figures of the step under the cursor, and back."""
        self._table, self._top = not self._table, 0

    def do_open(self) -> None:
        """In a replay, to the end of the step under the cursor; else its figures."""
        row = self._columns().row(self._cursor)
        seek = getattr(self.desk.source, "seek", None)
        if self.desk.source.mode != "replay" or seek is None or row is None or row.seq <= 0:
            self.do_figures()
            return
        seek(row.seq)
        self._cursor, self._table = None, False
        self.desk.say(f"at the end of step {row.step}")

    def yank_text(self) -> str:
        """The table of the step under the cursor; empty without a step."""
        row = self._columns().row(self._cursor)
        return figures.figures_text(row) if row is not None else ""

    def export_rows(self) -> tuple[list[str], list[list[float | int | None]]]:
        """Step and figures of the charts that the filter lets through, raw: names, and one row a step."""
        charts = self.charts()
        ids = list(dict.fromkeys(id for chart in charts for id in (*chart.figures, chart.std) if id is not None))
        columns = self._columns()
        outcomes = sorted(columns.classes) if any(chart.form == "outcomes" for chart in charts) else []
        gets = [FIGURES[id].get for id in ids] + [getter(f"outcome:{name}") for name in outcomes]
        return (
            ["step", *ids, *(f"outcome_{name}" for name in outcomes)],
            [[row.step, *(get(row) for get in gets)] for row in columns.rows],
        )


def _test(word: str) -> Callable[[Chart], bool]:
    """A word of the filter: a regular expression, or plain text where it is none."""
    try:
        pattern = re.compile(word, re.IGNORECASE)
    except re.error:
        return lambda chart: word.lower() in chart.text
    return lambda chart: pattern.search(chart.text) is not None
