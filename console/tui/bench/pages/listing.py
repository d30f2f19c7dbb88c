"""What pages of `bench look` have in common: the line that says what one looks at, and a list with a cursor."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar, cast

from console.errors import UsageError
from console.state.sanitize import sanitize
from console.tui.bench.reading import Side, job_state, running
from console.tui.filters import Filter, parse
from console.tui.pages.page import Page
from console.tui.text import Line, Span, cell, fit, line, restyle, spread, width

if TYPE_CHECKING:
    from console.tui.bench.desk import BenchDesk


def bench(page: Page) -> BenchDesk:
    """The page's desk, which is one on job directories."""
    return cast("BenchDesk", page.desk)


def top_line(desk: BenchDesk, cells: int) -> Line:
    """Which jobs, how far they are, what is marked; while directories are read how far that is."""
    right: list[Span] = []
    if desk.marks:
        right.append(Span(f" {len(desk.marks):,} marked ", "badge-warn"))
    survey = desk.survey
    if survey is None:
        said = f"reading: {desk.progress:,} trials" if desk.reading else "nothing was read"
        return spread(line(Span(f" {said}", "muted")), right, cells)
    if desk.reading:
        right.insert(0, Span(f"reading again: {desk.progress:,}  ", "muted"))
    elif running(survey.sides):
        right.insert(0, Span(f"{desk.keymap.label('read_again')} reads again  ", "limit"))
    if survey.against is not None and desk.page.id in ("versus", "task"):
        left: list[Span] = []
        for label, side in zip("AB", survey.sides, strict=True):
            left += [Span(f" {label} ", "key"), Span(cell(_jobs(side)[0], cells // 3).rstrip(), "bold")]
        return spread(left, right, cells)
    names, state = _jobs(desk.side or survey.side)
    head = line(Span(f" {'AB'[desk.on_second]}", "key")) if survey.against is not None else ()
    name = cell(names, max(8, cells - width(right) - len(state) - 8)).rstrip()
    return spread((*head, Span(f" {name}", "bold"), Span(f"  {state}", "muted")), right, cells)


def _jobs(side: Side) -> tuple[str, str]:
    names = [sanitize(job.name, limit=80) for job in side.jobs]
    if len(side.jobs) == 1:
        job = side.jobs[0]
        return names[0], job_state(job, side.counts.get(job.path, 0))
    total = sum(side.counts.values())
    return f"{names[0]} and {len(names) - 1} more jobs", f"{total:,} trials"


def trouble_lines(desk: BenchDesk) -> list[Line]:
    """Why the last reading failed, if it did."""
    return [line(Span(f" {sanitize(desk.trouble, limit=300)}", "infra"))] if desk.trouble else []


class ListPage[Row](Page):
    """A list. Which row is selected is remembered by its key, not by its place.

    Subclasses say which rows there are and what the key of one is. `hint`: what the filter takes.
    """

    hint: ClassVar[str] = "words  !not"

    def __init__(self, desk: BenchDesk) -> None:
        super().__init__(desk)
        self.filter = Filter()
        self._chosen: object = None
        self._at = self._top = 0
        self._height = 1
        self._changes = 0

    def rows(self) -> Sequence[Row]:
        """What is in the list now."""
        raise NotImplementedError

    def key(self, row: Row) -> object:
        """By which a row is known."""
        raise NotImplementedError

    def name(self, row: Row) -> str:
        """What `goto` looks for."""
        raise NotImplementedError

    def fingerprint(self) -> tuple[object, ...]:
        """The selected row, the filter, and what was done."""
        return (self._at, self._top, self.filter.text, self._changes)

    def settle(self) -> Sequence[Row]:
        """The rows, with the selection on one that exists."""
        rows = self.rows()
        if not rows:
            self._at = 0
            return rows
        near = [self._at] if self._at < len(rows) else []
        found = next((i for i in (*near, *range(len(rows))) if self.key(rows[i]) == self._chosen), None)
        self._at = found if found is not None else max(0, min(self._at, len(rows) - 1))
        self._chosen = self.key(rows[self._at])
        return rows

    @property
    def row(self) -> Row | None:
        """The selected one."""
        rows = self.settle()
        return rows[self._at] if rows else None

    @property
    def at(self) -> int:
        """Its place, from 0."""
        return self._at

    def window(self, total: int, height: int) -> range:
        """Places of the rows that are shown in so many lines."""
        self._height = max(1, height)
        self._top = max(0, min(max(self._top, self._at - self._height + 1), self._at, max(0, total - self._height)))
        return range(self._top, min(total, self._top + self._height))

    def painted(self, row: Line, place: int, cells: int) -> Line:
        """A row as wide as the list, marked when it is the selected one."""
        return restyle(fit(row, cells), "selected") if place == self._at else fit(row, cells)

    def where(self, total: int) -> str:
        """`/filter  3/40`."""
        wanted = f"/{self.filter.text}  " if self.filter else ""
        return f"{wanted}{self._at + 1}/{total}" if total else wanted

    # --- keys ---

    def choose(self, place: int) -> None:
        """Select the row at a place, or the nearest one."""
        rows = self.rows()
        if rows:
            self._at = max(0, min(place, len(rows) - 1))
            self._chosen = self.key(rows[self._at])

    def _move(self, by: int) -> None:
        self.settle()
        self.choose(self._at + by)

    def do_up(self) -> None:
        """One row up."""
        self._move(-1)

    def do_down(self) -> None:
        """One row down."""
        self._move(1)

    def do_page_up(self) -> None:
        """A page up."""
        self._move(-self._height)

    def do_page_down(self) -> None:
        """A page down."""
        self._move(self._height)

    def do_first(self) -> None:
        """To the first row."""
        self._move(-(10**9))

    def do_last(self) -> None:
        """To the last row."""
        self._move(10**9)

    def click_row(self, row: int) -> None:
        """Select what is in a line of the list."""
        if 0 <= row < self._height and self._top + row < len(self.rows()):
            self.choose(self._top + row)

    def set_filter(self, text: str) -> None:
        """Show what has these words only. A filter that is not finished yet changes nothing."""
        try:
            self.filter = parse(text)
        except UsageError:
            return
        self._changes += 1

    async def do_filter(self) -> None:
        """Ask for words; what they leave is shown while they are typed."""
        before = self.filter
        text = await self.desk.shell.prompt("/", before.text, changed=self.set_filter, hint=self.hint)
        self._changes += 1
        try:
            self.filter = before if text is None else parse(text)
        except UsageError:
            self.filter = before
            raise

    def do_back(self) -> None:
        """Clear the filter, or go back."""
        if self.filter:
            self.set_filter("")
        else:
            self.desk.back()

    async def do_bench_goto(self) -> None:
        """Ask for a row."""
        text = await self.desk.shell.prompt("go to", hint="a number, or the beginning of a name")
        if text is not None and text.strip():
            self.goto(text.strip())

    def goto(self, text: str) -> None:
        """Select the row of that number, from 1, or the next one whose name begins with the text, or has it in it."""
        rows = self.settle()
        if text.isdigit() and 1 <= int(text) <= len(rows):
            self.choose(int(text) - 1)
            return
        wanted = text.casefold()
        order = [*range(self._at + 1, len(rows)), *range(self._at + 1)]
        names = [self.name(rows[i]).casefold() for i in order]
        found = [i for i, name in zip(order, names, strict=True) if name.startswith(wanted)]
        found = found or [i for i, name in zip(order, names, strict=True) if wanted in name]
        if rows and found:
            self.choose(found[0])
        else:
            there = f"there are {len(rows):,} rows" if rows else "the list is empty"
            self.desk.say(f"no row {sanitize(text, limit=40)}: {there}", "limit")
