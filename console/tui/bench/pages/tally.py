"""The figures by each accounting rule: numerator, denominator, interval, and what is left out."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

from console.bench.figures.report import heading, notice_table, tables
from console.bench.figures.tables import Table, to_text
from console.bench.figures.tally import Tally
from console.state.sanitize import sanitize
from console.tui.bench.pages.framed import FramedPage
from console.tui.bench.pages.listing import bench
from console.tui.layout import Box
from console.tui.pages.page import Painted
from console.tui.picture import Scene
from console.tui.reading import LongText
from console.tui.text import Line, Span, line

if TYPE_CHECKING:
    from console.tui.bench.desk import BenchDesk

_SHOWN = ("figures", "excluded", "errors", "pass_at", "outcomes", "usage", "notices", "tasks")
_WIDEST = 120


class TallyPage(FramedPage):
    """What `bench tally` says, table after table; each agent, model and dataset apart."""

    id = "tally"
    title = "Tally"

    def __init__(self, desk: BenchDesk) -> None:
        super().__init__(desk)
        self._text = LongText(follow=False, wrap=False)
        self._made: tuple[object, ...] = ()

    @property
    def text(self) -> LongText:
        """All tables."""
        return self._text

    def tick(self) -> None:
        """Have it counted."""
        bench(self).tally()

    def opened(self) -> None:
        """Have it counted, now."""
        self.tick()

    def do_left(self) -> None:
        """The first run."""
        bench(self).turn_side(False)

    def do_right(self) -> None:
        """The run that it is compared with."""
        bench(self).turn_side(True)

    def fingerprint(self) -> tuple[object, ...]:
        """Where one reads."""
        return (self._text.version, self._made)

    def paint(self, scene: Scene, region: Box) -> Painted:
        """Jobs and the tables."""
        self._sync(region.width)
        return self.framed(scene, region, "Tally  each figure with its rule")

    def _sync(self, cells: int) -> None:
        later = bench(self).tally()
        if later is None:
            wanted: tuple[object, ...] = ("reading",)
        elif later.value is None:
            wanted = ("counting", later.trouble)
        else:
            wanted = (bench(self).readings, bench(self).on_second, cells)
        if wanted == self._made:
            return
        self._made = wanted
        if later is None or later.value is None:
            trouble = sanitize(later.trouble, limit=300) if later is not None else ""
            said = trouble or ("counting ..." if later is not None else "reading ...")
            self._text.replace([line(Span(f" {said}", "infra" if trouble else "muted"))])
        else:
            self._text.replace(list(tally_lines(later.value, min(cells - 2, _WIDEST))))


def tally_lines(tally: Tally, cells: int) -> Iterator[Line]:
    """Every table, in lines of at most `cells` and a blank in front."""
    for group in tally.groups:
        yield line(Span(f" {sanitize(heading(group), limit=300)}", "bold"))
        for job in group.jobs[:6]:
            yield line(Span(f"   {sanitize(os.fspath(job), limit=300)}", "muted"))
        found = tables(group)
        for name in _SHOWN:
            if name in found:
                yield ()
                yield from _table(found[name], cells)
        yield ()
    if tally.notices:
        yield from _table(notice_table(tally.notices), cells)
        yield ()
    yield line(Span(f" merged by {tally.merge}: {tally.merge_rule}", "muted"))


def _table(table: Table, cells: int) -> Iterator[Line]:
    title, *rest = to_text([table], cells).split("\n")
    yield line(Span(f" {title}", "title"))
    for at, text in enumerate(rest):
        role = "muted" if at == 0 or text.startswith("  ") else ""
        yield line(Span(f" {text}", role))
