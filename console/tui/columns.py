"""Columns of a run's history, and what they look like at a width: each row is read once, however often one paints."""

from __future__ import annotations

import math
from array import array
from bisect import bisect_left
from collections.abc import Callable
from typing import NamedTuple, cast

from console.journal.events import StepFinished
from console.outcomes.classes import OutcomeClass
from console.state.reduce import RunView
from console.tui.scale import XScale
from console.tui.series import FIGURES, OTHER_CLASS, Getter

_RUNS_KEPT = 2
_PICTURES_KEPT = 96
_KNOWN_CLASSES = frozenset(str(c) for c in OutcomeClass)
NAN = math.nan
_LARGEST = 1e100


class Key(NamedTuple):
    """A column: a figure's id or `outcome:CLASS`; smoothed by so much; only positive values."""

    id: str
    smoothing: float = 0.0
    positive: bool = False


class Buckets:
    """A column at a width: for every dot the least, greatest, first, last and mean of its values, None without any.

    `joined[dot]`: the dot's first row follows a row with a value, so that a curve goes on. A missing value makes a gap.
    """

    __slots__ = ("_count", "_total", "first", "high", "joined", "last", "low", "rows")

    def __init__(self, dots: int) -> None:
        self.low: list[float | None] = [None] * dots
        self.high: list[float | None] = [None] * dots
        self.first: list[float | None] = [None] * dots
        self.last: list[float | None] = [None] * dots
        self.joined = [False] * dots
        self.rows = 0
        self._total = [0.0] * dots
        self._count = [0] * dots

    @property
    def mean(self) -> list[float | None]:
        """By dot."""
        return [total / n if n else None for total, n in zip(self._total, self._count, strict=True)]

    def extend(self, steps: list[int], values: array[float], x: XScale) -> None:
        """Take in the rows that came since."""
        at, total = self.rows, len(values)
        while at < total:
            dot = x.dot(steps[at])
            end = bisect_left(steps, x.start(dot + 1), at + 1, total)
            known = [v for v in values[at:end] if v == v]
            if known:
                least, greatest = min(known), max(known)
                before = self.low[dot]
                if before is None:
                    self.low[dot], self.high[dot], self.first[dot] = least, greatest, known[0]
                    self.joined[dot] = at > 0 and values[at - 1] == values[at - 1] and values[at] == values[at]
                else:
                    self.low[dot], self.high[dot] = min(before, least), max(cast(float, self.high[dot]), greatest)
                self.last[dot] = known[-1]
                self._total[dot] += sum(known)
                self._count[dot] += len(known)
            at = end
        self.rows = total


class Columns:
    """The history of one run by column. Grows by `update`; everything that is made of it is kept until then.

    Attributes:
        rows, steps: the finished steps; classes: outcome classes that occurred, unknown ones as one.
        nonfinite: (step, names) of the steps with figures that were NaN or infinite.
    """

    def __init__(self) -> None:
        self.rows: list[StepFinished] = []
        self.steps: list[int] = []
        self.classes: set[str] = set()
        self.nonfinite: list[tuple[int, frozenset[str]]] = []
        self._columns: dict[Key, array[float]] = {}
        self._weights: dict[Key, tuple[float, float]] = {}
        self._buckets: dict[tuple[Key, XScale], Buckets] = {}
        self._pictures: dict[object, object] = {}

    def update(self, rows: list[StepFinished]) -> None:
        """Become the columns of `rows`: what is new is added, what a resume or a jump in time undid is cut."""
        kept = self.rows
        shared = min(len(kept), len(rows))
        if shared and not _same(kept[shared - 1], rows[shared - 1]):
            low, high = 0, shared - 1  # rows[:low] are shared; once they differ, they differ to the end
            while low < high:
                middle = (low + high) // 2
                low, high = (middle + 1, high) if _same(kept[middle], rows[middle]) else (low, middle)
            shared = low
        if shared == len(kept) == len(rows):
            return
        if shared < len(kept):
            self._cut(shared)
        for row in rows[shared:]:
            self.rows.append(row)
            self.steps.append(row.step)
            if row.nonfinite:
                self.nonfinite.append((row.step, frozenset(row.nonfinite)))
            for name in row.outcomes:
                self.classes.add(name if name in _KNOWN_CLASSES else OTHER_CLASS)
        self._pictures.clear()

    def _cut(self, length: int) -> None:
        del self.rows[length:], self.steps[length:]
        last = self.steps[-1] if self.steps else -1
        self.nonfinite = [pair for pair in self.nonfinite if pair[0] <= last]
        self.classes.clear()
        for row in self.rows:
            self.classes.update(name if name in _KNOWN_CLASSES else OTHER_CLASS for name in row.outcomes)
        for key in [*self._columns]:
            if key.smoothing or key.positive:
                del self._columns[key]
            else:
                del self._columns[key][length:]
        self._weights.clear()
        self._buckets.clear()
        self._pictures.clear()

    def values(self, key: Key) -> array[float]:
        """The column, one value a row, NaN where it is not known."""
        column = self._columns.setdefault(key, array("d"))
        begin = len(column)
        if begin < len(self.rows):
            if key.positive:
                source = self.values(key._replace(positive=False))
                column.extend([v if v > 0 else NAN for v in source[begin:]])
            elif key.smoothing:
                self._smooth(column, key, self.values(Key(key.id))[begin:])
            else:
                get = getter(key.id)
                column.extend([_finite(get(row)) for row in self.rows[begin:]])
        return column

    def _smooth(self, column: array[float], key: Key, values: array[float]) -> None:
        """An exponential moving average that is not drawn to zero at its start; it passes over missing values."""
        keep = key.smoothing
        total, weight = self._weights.get(key, (0.0, 0.0))
        for value in values:
            if value == value:
                total, weight = keep * total + (1.0 - keep) * value, keep * weight + (1.0 - keep)
                column.append(total / weight)
            else:
                column.append(NAN)
        self._weights[key] = total, weight

    def buckets(self, key: Key, x: XScale) -> Buckets:
        """The column at a width."""
        found = self._buckets.get((key, x))
        if found is None:
            if len(self._buckets) >= _PICTURES_KEPT:
                self._buckets.clear()
            found = self._buckets[key, x] = Buckets(x.dots)
        values = self.values(key)
        if found.rows < len(values):
            found.extend(self.steps, values, x)
        return found

    def picture[Made](self, key: object, make: Callable[[], Made]) -> Made:
        """What `make` returns, made once for a key until the rows change."""
        if key not in self._pictures:
            if len(self._pictures) >= _PICTURES_KEPT:
                self._pictures.clear()
            self._pictures[key] = make()
        return cast(Made, self._pictures[key])

    def at(self, step: int | None) -> int | None:
        """Index of the row of a step, or of the nearest one; of the last row for None; None without rows."""
        if not self.steps:
            return None
        if step is None:
            return len(self.steps) - 1
        at = bisect_left(self.steps, step)
        if at == len(self.steps) or (at > 0 and step - self.steps[at - 1] < self.steps[at] - step):
            at -= 1
        return at

    def row(self, step: int | None) -> StepFinished | None:
        """The row of a step, as `at` finds it."""
        at = self.at(step)
        return None if at is None else self.rows[at]


def getter(id: str) -> Getter:
    """How a column's value is read from a row. Raises KeyError for no such figure."""
    kind, _, name = id.partition(":")
    if kind != "outcome":
        return FIGURES[id].get
    if name == OTHER_CLASS:
        return lambda row: float(sum(n for c, n in row.outcomes.items() if c not in _KNOWN_CLASSES and n > 0))
    return lambda row: float(max(0, row.outcomes.get(name, 0)))


def _finite(value: float | None) -> float:
    """What can be drawn of a value: nothing of NaN and infinity, and no more than sums and ratios can bear."""
    return max(-_LARGEST, min(value, _LARGEST)) if value is not None and math.isfinite(value) else NAN


def _same(a: StepFinished, b: StepFinished) -> bool:
    """Whether two rows are the same event, maybe read twice."""
    return a is b or (a.seq > 0 and a.seq == b.seq and a.ts == b.ts and a.step == b.step)


_kept: list[tuple[str, Columns]] = []


def columns_of(view: RunView) -> Columns:
    """The columns of a run, up to date. Those of the last two runs looked at are kept, also across jumps in time."""
    run = view.state.run_id
    found = next((pair for pair in _kept if pair[0] == run), None)
    if found is None:
        found = (run, Columns())
        _kept[:] = [found, *_kept[: _RUNS_KEPT - 1]]
    found[1].update(view.history.rows)
    return found[1]
