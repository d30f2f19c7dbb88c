"""What became of the trials: findings about the job as a whole, then classes and causes with their shares."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from console.outcomes.classes import OutcomeClass
from console.state.sanitize import sanitize
from console.tui.bench.causes import SORTS, CauseRow, cause_rows, said
from console.tui.bench.pages.listing import ListPage, bench, top_line, trouble_lines
from console.tui.bench.reading import Seen
from console.tui.bench.trials import fields
from console.tui.glyphs import SIGNS, sign_text
from console.tui.layout import Box
from console.tui.pages.page import Painted
from console.tui.panes.frame import ruled
from console.tui.picture import Scene
from console.tui.text import Line, Span, cell, line, wrap

if TYPE_CHECKING:
    from console.tui.bench.desk import BenchDesk

_FIGURES = f"{'trials':>8} {'share':>6} {'tasks':>6} {'> 0':>6} {'marked':>7} "
_SIGNS = {"finding": ("!", "alert"), "problem": ("?", "infra+bold"), "note": ("i", "muted")}


class TriagePage(ListPage[CauseRow]):
    """The first page: what needs attention first."""

    id = "triage"
    title = "Triage"
    hint = "words in task and evidence  class:infra  task:git  model:x  status:marked  !not"

    def __init__(self, desk: BenchDesk) -> None:
        super().__init__(desk)
        self._sort = SORTS[0]
        self._made: tuple[object, ...] = ()
        self._rows: list[CauseRow] = []

    def rows(self) -> Sequence[CauseRow]:
        """Made anew when something else was read, or is wanted."""
        desk = bench(self)
        side = desk.side
        if side is None:
            return []
        marks = desk.marks
        wanted = (
            desk.readings,
            desk.on_second,
            self.filter,
            self._sort,
            frozenset(marks) if "status" in self.filter.text else None,
        )
        if wanted != self._made:
            self._made = wanted
            self._rows = cause_rows(side, self.filter, self._sort, lambda seen: fields(seen, seen.path in marks))
        return self._rows

    def key(self, row: CauseRow) -> object:
        """Class and cause, or which finding."""
        return row.key

    def name(self, row: CauseRow) -> str:
        """What it is about."""
        return row.label

    def listed(self) -> list[Seen]:
        """The trials of the selected row, for a file."""
        row = self.row
        return list(row.trials) if row is not None else []

    # --- painting ---

    def paint(self, scene: Scene, region: Box) -> Painted:
        """Jobs, the list, and what there is to say of the selected row."""
        desk = bench(self)
        rows = self.settle()
        foot = min(max(6, region.height // 3), 14)
        top = region.height - foot
        head = [top_line(desk, region.width), *trouble_lines(desk)]
        body: list[Line] = [line(Span(f"   {'class and cause':<{max(0, region.width - len(_FIGURES) - 3)}}", "muted"),
                                 Span(_FIGURES, "muted"))]  # fmt: skip
        if desk.survey is None:
            body = [line(Span(" reading ..." if not desk.trouble else "", "muted"))]
        elif not rows:
            body = [line(Span(" no trial has these words; esc clears the filter", "muted"))]
        for place in self.window(len(rows), top - len(head) - 2):
            body.append(self.painted(self._line(rows[place], region.width, scene), place, region.width))
        orders = f", by {self._sort}" if self._sort != SORTS[0] else ""
        title = (f"Triage{orders}", self.where(len(rows)))
        lines = [*head, *ruled(title, body, region.width, top - len(head), scene.marks, True)]
        about = ruled(("About it", ""), self._about(region.width, foot - 1), region.width, foot, scene.marks, False)
        return Painted(
            {"causes": Box(0, region.y, region.width, top), "about": Box(0, region.y + top, region.width, foot)},
            {"causes": lines, "about": about},
        )

    def _line(self, row: CauseRow, cells: int, scene: Scene) -> Line:
        cursor = scene.marks.cursor if row is self.row else " "
        if row.outcome is not None:
            kind = "pass" if row.outcome is OutcomeClass.COMPLETED else row.outcome.value
            mark, role = sign_text(kind, scene.ascii), SIGNS[kind].role
        else:
            mark, role = _SIGNS[row.kind]
        indent = 2 if row.kind == "cause" else 0
        room = cells - len(_FIGURES) - 3 - indent
        if row.kind == "problem":
            return line(cursor, Span(mark, role), " ", Span(cell(row.label, cells - 4), "infra"))
        label = Span(cell(row.label, max(8, room)), "bold" if row.kind in ("class", "finding") else "")
        marked = sum(seen.path in bench(self).marks for seen in row.trials)
        known = row.count == len(row.trials)  # a finding names only some of its trials
        tasks, positive = (f"{row.tasks:,}", f"{row.positive:,}") if known else ("", "")
        figures = (
            f"{row.count:>8,} {100 * row.share:>4.0f} % {tasks:>6} {positive:>6} "
            f"{(f'{marked:,}' if marked else ''):>7} "
        )
        return line(f"{cursor}", Span(mark, role), " " + " " * indent, label, Span(figures))

    def _about(self, cells: int, rows: int) -> list[Line]:
        row = self.row
        if row is None:
            return []
        out: list[Line] = []
        for name, text in said(row):
            head = f"{name}: " if name else ""
            some = wrap(sanitize(text, limit=600), cells - 2 - len(head))
            out += [line(Span(f" {head if i == 0 else ' ' * len(head)}", "muted"), *one) for i, one in enumerate(some)]
        return out[:rows]

    # --- keys ---

    def click(self, pane: str, row: int, column: int) -> None:
        """Select the row."""
        if pane == "causes":
            self.click_row(row - 3 - len(trouble_lines(bench(self))))

    def do_open(self) -> None:
        """The trials of the selected row."""
        row = self.row
        if row is None or not row.opens:
            self.desk.say("there are no trials behind this row" if row is not None else "there is nothing to open")
            return
        from console.tui.bench.pages.trials import TrialsPage

        page = self.desk.show("trials")
        if isinstance(page, TrialsPage):
            page.use(row.key, row.label, self.filter)

    def do_bench_mark(self) -> None:
        """Mark the trials of the row, or take their marks away."""
        row = self.row
        if row is None or not row.trials:
            self.desk.say("there are no trials behind this row")
            return
        on = bench(self).toggle(row.trials)
        self.desk.say(f"{len(row.trials):,} trials {'marked' if on else 'no longer marked'}")

    do_mark_all = do_bench_mark

    def do_left(self) -> None:
        """The first run."""
        bench(self).turn_side(False)

    def do_right(self) -> None:
        """The run that it is compared with."""
        bench(self).turn_side(True)

    def do_bench_sort(self) -> None:
        """The next order."""
        self._sort = SORTS[(SORTS.index(self._sort) + 1) % len(SORTS)]
        self._changes += 1
        self.desk.say(f"classes by {self._sort}")

    def yank_text(self) -> str:
        """The marked trials' directories, else the selected row."""
        desk = bench(self)
        if desk.marks:
            return "\n".join(seen.path for seen in desk.marked())
        row = self.row
        return "" if row is None else "\n".join([row.label, *(text for _, text in said(row))])
