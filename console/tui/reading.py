"""A long text that is read while it grows: scrolling, following, wrapping, searching, in bounded memory. Pure.

Only what is seen is wrapped, so that neither a change of width nor a text of many megabytes costs more than a screen.
Lines are clean (sanitised) when they come here. They are counted from the first one ever added; a line keeps its
number when the ones before it are let go.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence

from rich.cells import cell_len

from console.tui.spans import cut_line, highlight, wrap_line
from console.tui.text import Line, fit, plain, restyle

KEPT = 20_000
"""Lines that are kept; the oldest are let go first."""
_SLACK = 1_000
_CACHED = 2_000
_SHIFT = 16
MATCH, HERE = "title+reverse", "badge-warn"


class LongText:
    """The text and the window on it.

    Attributes:
        follow: the window stays at the end as the text grows; wrap: long lines go on in the next row.
        first: number of the first line that is still kept: so many were let go.
        chosen: number of the line that is selected, None when lines are only read.
        version: changes with everything that a window shows.
    """

    def __init__(self, follow: bool = True, wrap: bool = True, kept: int = KEPT) -> None:
        self.follow, self.wrap = follow, wrap
        self.first = self.version = 0
        self._kept = kept
        self._lines: list[Line] = []
        self._cells, self._rows = 80, 20
        self._top, self._row = 0, 0  # number of the line at the top of the window, and which of its rows
        self._left = 0
        self._seen = 0
        self._cache: dict[int, list[Line]] = {}
        self._needle = ""
        self._matches: list[int] = []
        self._here = -1
        self.chosen: int | None = None

    # --- the text ---

    @property
    def total(self) -> int:
        """Lines ever added."""
        return self.first + len(self._lines)

    @property
    def new(self) -> int:
        """Lines that came while the window stood still."""
        return 0 if self.follow else max(0, self.total - self._seen)

    @property
    def lines(self) -> Sequence[Line]:
        """The lines that are kept."""
        return self._lines

    def append(self, lines: Iterable[Line]) -> None:
        """Add lines at the end."""
        begin = self.total
        self._lines.extend(lines)
        if self._needle:
            self._matches += self._found(begin)
        if len(self._lines) > self._kept + (_SLACK if self._kept > _SLACK else 0):
            self._let_go(len(self._lines) - self._kept)
        if self.total != begin:
            self.version += 1

    def pop(self) -> Line:
        """Take the last line back, to be added again when it has grown. Raises `IndexError` without one."""
        last = self._lines.pop()
        self._cache.pop(self.total, None)
        if self._matches and self._matches[-1] == self.total:
            self._matches.pop()
        self.version += 1
        return last

    def replace(self, lines: Sequence[Line]) -> None:
        """Another text in the same place; the window stays where it is as far as that exists."""
        if self.first == 0 and list(lines) == self._lines:
            return
        self._lines, self.first = list(lines), 0
        self._cache.clear()
        self._matches = self._found(0) if self._needle else []
        self.version += 1

    def clear(self) -> None:
        """Empty, and at the end of it again; what was searched for is kept."""
        self._lines.clear()
        self._cache.clear()
        self._matches.clear()
        self.first = self._top = self._row = self._seen = 0
        self._here = -1
        self.version += 1

    def _let_go(self, count: int) -> None:
        del self._lines[:count]
        self.first += count
        del self._matches[: bisect_left(self._matches, self.first)]
        for number in [n for n in self._cache if n < self.first]:
            del self._cache[number]

    def all_seen(self) -> None:
        """What is there now does not count as new."""
        self._seen = self.total

    # --- the window ---

    def window(self, cells: int, rows: int) -> list[Line]:
        """What is seen of it in `rows` of `cells`; fewer rows when the text is shorter."""
        if cells != self._cells:
            self._cells = cells
            self._cache.clear()
            self._row = 0
        self._rows = max(1, rows)
        self._settle()
        out: list[Line] = []
        number, skip = self._top, self._row
        chosen = self.total - 1 if self.follow and self.chosen is not None else self.chosen
        while len(out) < self._rows and number < self.total:
            found = self._shown(number)[skip:]
            out += [restyle(fit(row, cells), "selected") for row in found] if number == chosen else found
            number, skip = number + 1, 0
        return out[: self._rows]

    @property
    def span(self) -> tuple[int, int]:
        """Numbers of the first and last line in the window, from 1; (0, 0) for an empty text."""
        if not self._lines:
            return 0, 0
        number, left = self._top, self._rows + self._row
        while number < self.total:
            left -= self._height(number)
            if left <= 0:
                break
            number += 1
        return self._top + 1, min(number + 1, self.total)

    def scroll(self, rows: int) -> None:
        """Up (negative) or down. Going up stops following; arriving at the end does not begin it."""
        if rows < 0:
            self.stand()
        self._move(rows)
        self.version += 1

    def choose(self, number: int) -> None:
        """Select a line, and bring it into the window; stops following."""
        self.stand()
        self.chosen = number = max(self.first, min(number, self.total - 1))
        first, last = self.span
        if number <= first - 1:
            self._top, self._row = number, 0
        elif number >= last - 1:
            self._top, self._row = number, self._height(number) if self._lines else 0
            self._move(-self._rows)
        self.version += 1

    @property
    def rows(self) -> int:
        """Rows of the window."""
        return self._rows

    def page(self, pages: int) -> None:
        """So many windows up or down, one row less each, so that a row is seen twice."""
        self.scroll(pages * max(1, self._rows - 1))

    def to_first(self) -> None:
        """To the beginning; stops following."""
        self.stand()
        self._top, self._row = self.first, 0
        self.version += 1

    def to_last(self) -> None:
        """To the end, and on with it."""
        self.follow = True
        self.version += 1

    def stand(self) -> None:
        """Stop following."""
        if self.follow:
            self._settle()
            self.follow, self._seen = False, self.total
            if self.chosen is not None:
                self.chosen = max(self.first, self.total - 1)

    def toggle_follow(self) -> None:
        """Follow, or stand still."""
        if self.follow:
            self.stand()
            self.version += 1
        else:
            self.to_last()

    def toggle_wrap(self) -> None:
        """Wrap long lines, or cut them."""
        self.wrap = not self.wrap
        self._left = self._row = 0
        self._cache.clear()
        self.version += 1

    def shift(self, steps: int) -> None:
        """To the left or right, when lines are not wrapped."""
        if not self.wrap:
            lines = [self._lines[n - self.first] for n in self._visible()]
            widest = max((cell_len(plain(spans)) for spans in lines), default=0)
            farthest = max(self._left, widest - 1) if steps > 0 else self._left
            self._left = max(0, min(self._left + steps * _SHIFT, farthest))
            self._cache.clear()
            self.version += 1

    @property
    def left(self) -> int:
        """Cells that are hidden at the left."""
        return self._left

    def _visible(self) -> range:
        return range(self._top, min(self._top + self._rows, self.total))

    def _settle(self) -> None:
        """Keep the top on something that exists: the end when following, never beyond the last full window."""
        self._top = max(self.first, min(self._top, max(self.first, self.total - 1)))
        end = self._end()
        if self.follow or (self._top, self._row) > end:
            self._top, self._row = end
        if self.follow:
            self._seen = self.total

    def _end(self) -> tuple[int, int]:
        """The top of the last full window."""
        number, left = self.total, self._rows
        while number > self.first and left > 0:
            number -= 1
            left -= self._height(number)
        return (number, -left) if left < 0 else (number, 0)

    def _move(self, rows: int) -> None:
        top, row = self._top, self._row + rows
        while row < 0 and top > self.first:
            top -= 1
            row += self._height(top)
        while top < self.total - 1 and row >= (height := self._height(top)):
            row -= height
            top += 1
        self._top, self._row = top, max(0, row)
        self._settle()

    def _height(self, number: int) -> int:
        if not self.wrap:
            return 1
        spans = self._lines[number - self.first]
        if sum(len(s.text) for s in spans) * 2 <= self._cells:  # no character is wider than two cells
            return 1
        return len(self._laid(number))

    def _laid(self, number: int) -> list[Line]:
        found = self._cache.get(number)
        if found is None:
            if len(self._cache) >= _CACHED:
                self._cache.clear()
            spans = self._lines[number - self.first]
            found = wrap_line(spans, self._cells) if self.wrap else [cut_line(spans, self._left, self._cells)]
            self._cache[number] = found
        return found

    def _shown(self, number: int) -> list[Line]:
        if self._needle:
            at = bisect_left(self._matches, number)
            if at < len(self._matches) and self._matches[at] == number:
                role = HERE if number == self._here else MATCH
                spans = highlight(self._lines[number - self.first], self._needle, role)
                return wrap_line(spans, self._cells) if self.wrap else [cut_line(spans, self._left, self._cells)]
        return self._laid(number)

    # --- searching ---

    @property
    def needle(self) -> str:
        """What is searched for, empty for nothing."""
        return self._needle

    @property
    def matches(self) -> tuple[int, int]:
        """Which match is looked at, from 1 (0 for none), and how many lines match."""
        at = bisect_left(self._matches, self._here)
        here = at + 1 if at < len(self._matches) and self._matches[at] == self._here else 0
        return here, len(self._matches)

    def search(self, text: str) -> None:
        """Look for `text` without regard to case; empty to stop looking. The window does not move yet."""
        self._needle, self._here = text.casefold(), -1
        self._matches = self._found(self.first) if text else []
        self.version += 1

    def find(self, forward: bool = True) -> bool:
        """To the next line that matches, or the one before, around the ends; False when none does."""
        if not self._matches:
            return False
        here = self._here if self._here >= self.first else self._top + (-1 if forward else 1)
        at = bisect_right(self._matches, here) if forward else bisect_left(self._matches, here) - 1
        self.stand()
        self._here = self._matches[at % len(self._matches)]
        first, last = self.span
        if not first - 1 <= self._here < last - 1:
            self._top, self._row = self._here, 0
            self._move(-(self._rows // 3))
        self.version += 1
        return True

    def _found(self, begin: int) -> list[int]:
        needle = self._needle
        start = max(begin, self.first)
        return [
            start + i for i, spans in enumerate(self._lines[start - self.first :]) if needle in plain(spans).casefold()
        ]

    def text(self) -> str:
        """Everything that is kept, as plain text."""
        return "\n".join(plain(spans).rstrip() for spans in self._lines)
