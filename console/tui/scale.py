"""Scales of the plots. Pure functions of the data: the same history gives the same picture, whatever was shown before.

An x scale leaves room to the right that is used up before it changes, a y scale ends on round values, so that a new
step moves nothing until it leaves the scale.
"""

from __future__ import annotations

import math
from typing import Literal, NamedTuple

from console.tui.text import count, short_time

Kind = Literal["number", "share", "count", "seconds"]

_ROOMS = (10, 12, 15, 20, 25, 30, 40, 50, 60, 80)
_SECONDS = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 21600, 43200, 86400)
_LARGEST = 1e100


class XScale(NamedTuple):
    """Steps over dots: step `first` is dot 0, step `first + span` is the last dot of `cells` cells of `fine` dots."""

    first: int
    span: int
    cells: int
    fine: int

    @property
    def dots(self) -> int:
        """Dots in a row."""
        return self.cells * self.fine

    def dot(self, step: int) -> int:
        """The dot of a step, inside the scale."""
        at = ((step - self.first) * 2 * (self.dots - 1) + self.span) // (2 * self.span)
        return max(0, min(at, self.dots - 1))

    def cell(self, step: int) -> int:
        """The cell of a step."""
        return self.dot(step) // self.fine

    def start(self, dot: int) -> int:
        """The first step that belongs to a dot or to a later one (the inverse of `dot`, exact)."""
        return self.first - (-((2 * dot - 1) * self.span) // (2 * (self.dots - 1)))

    def middle(self, cell: int) -> int:
        """The step nearest to the middle of a cell."""
        return self.first + round((cell * self.fine + (self.fine - 1) / 2) * self.span / (self.dots - 1))


def x_scale(first: int, last: int, cells: int, fine: int, grows: bool) -> XScale:
    """The scale for steps `first` to `last` on at least two dots; one that grows has room for more steps."""
    span = max(last - first, 1)
    return XScale(first, _room(span) if grows else span, cells, fine)


def _room(span: int) -> int:
    for small in (4, 5, 6, 8, 10):
        if span <= small:
            return small
    power: int = 10 ** (len(str(span)) - 2)
    return next((r * power for r in _ROOMS if r * power >= span), 100 * power)


def x_ticks(x: XScale) -> list[tuple[int, str]]:
    """(cell, label) of round steps, as many as have room for their labels."""
    wide = len(str(x.first + x.span)) + 3
    wanted = max(1, x.cells // max(wide, 6))
    step = max(1, math.ceil(nice(x.span / wanted)))
    begin = -(-x.first // step) * step
    out: list[tuple[int, str]] = []
    free = 0
    for value in range(begin, x.first + x.span + 1, step):
        cell, label = x.cell(value), str(value)
        left = min(max(0, cell - len(label) // 2), x.cells - len(label))
        if left >= free:
            out.append((cell, label))
            free = left + len(label) + 1
    return out


class YScale(NamedTuple):
    """Values over dots, `low` at the bottom. `ticks` are (value, label); on a `log` scale low and high are positive."""

    low: float
    high: float
    ticks: tuple[tuple[float, str], ...]
    log: bool = False

    def dot(self, value: float, dots: int) -> int:
        """The dot of a value, 0 at the top, inside the scale."""
        if self.log:
            part = math.log(max(value, self.low) / self.low) / math.log(self.high / self.low)
        else:
            part = (value - self.low) / (self.high - self.low)
        return max(0, min(dots - 1, round((1.0 - part) * (dots - 1))))


def y_scale(low: float, high: float, rows: int, kind: Kind = "number", floor: float | None = None) -> YScale:
    """A linear scale that holds `low` to `high`, with round ticks, for `rows` rows. `floor`: no value is below it.

    Its ends are round too, at fifths of a tick, so that they stay where they are while values move inside.
    """
    low, high = max(-_LARGEST, min(low, _LARGEST)), max(-_LARGEST, min(high, _LARGEST))
    if high - low <= max(1e-12 * max(abs(low), abs(high)), 1 / _LARGEST):
        pad = abs(high) * 0.1 or (1.0 if kind in ("count", "seconds") else 0.5)
        low, high = low - pad if floor is None else floor, high + pad
    wanted = max(1, min(5, (rows - 1) // 2))
    step = _time_step((high - low) / wanted) if kind == "seconds" else nice((high - low) / wanted)
    step = max(1.0, step) if kind == "count" else step
    parts = 3 if kind == "seconds" else 1 if kind == "count" and step < 5 else 5
    bottom, top = math.floor(low * parts / step + 1e-9), math.ceil(high * parts / step - 1e-9)
    ticks = [i * step for i in range(-(-bottom // parts), top // parts + 1)]
    if len(ticks) < 2:
        first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
        ticks = [i * step for i in range(first, max(last, first + 1) + 1)]
        bottom, top = first * parts, max(last, first + 1) * parts
    return YScale(
        bottom * step / parts, top * step / parts, tuple(zip(ticks, tick_texts(ticks, step, kind), strict=True))
    )


def log_scale(low: float, high: float, rows: int) -> YScale:
    """A logarithmic scale around the positive values `low` to `high`; it ends on 1, 2 or 5 times a power of ten."""
    low, high = (max(1 / _LARGEST, min(v, _LARGEST)) for v in (low, high))
    points = [
        m * 10.0**p for p in range(math.floor(math.log10(low)) - 1, math.ceil(math.log10(high)) + 2) for m in (1, 2, 5)
    ]
    bottom = max(p for p in points if p <= low * (1 + 1e-9))
    top = min(p for p in points if p > bottom * 1.5 and p >= high * (1 - 1e-9))
    inside = [p for p in points if bottom * (1 - 1e-9) <= p <= top * (1 + 1e-9)]
    decades = [p for p in inside if math.isclose(p, 10.0 ** round(math.log10(p)))]
    ticks = decades if len(decades) > 2 else inside
    every = math.ceil(len(ticks) / max(2, rows // 2))
    return YScale(bottom, top, tuple((p, _power_text(p)) for p in ticks[::every]), log=True)


def _power_text(value: float) -> str:
    if 1e-3 * 0.99 < value < 0.99:
        return f"{value:.3f}".rstrip("0").removeprefix("0")
    if 0.99 <= value < 1e15:
        return count(round(value)).replace(".0", "")
    return _exponent(value, 0)


def nice(value: float) -> float:
    """The least of 1, 2 and 5 times a power of ten that is not below `value`; 1 for nothing to divide."""
    if not value > 0:
        return 1.0
    power = 10.0 ** math.floor(math.log10(value))
    return next(m * power for m in (1.0, 2.0, 5.0, 10.0) if m * power >= value * (1 - 1e-9))


def _time_step(seconds: float) -> float:
    if seconds <= 0.5:
        return nice(seconds)
    return next((float(s) for s in _SECONDS if s >= seconds * (1 - 1e-9)), 86400.0 * nice(seconds / 86400.0))


def tick_texts(values: list[float], step: float, kind: Kind) -> list[str]:
    """Labels of evenly spaced values: all with the same decimals, so that they differ and read as a scale."""
    if kind == "share":
        return [f"{v * 100:.{_decimals(step * 100)}f}%" for v in values]
    if kind == "seconds":
        return ["0" if v == 0 else short_time(v).removesuffix("00").replace(".0s", "s") for v in values]
    largest = max(abs(v) for v in values)
    if largest >= 1e14:
        return [_exponent(v, 1) for v in values]
    if largest >= 1e4:
        short = [count(v) if v >= 0 else f"-{count(-v)}" for v in values]
        return short if len(set(short)) == len(short) else [f"{v:.7g}" for v in values]
    if step < 1e-6 * largest:
        return [f"{v:.7g}" for v in values]
    if largest < 5e-4:
        exponent = math.floor(math.log10(step) + 1e-9)
        digits = max(0, math.floor(math.log10(largest)) - exponent)
        return ["0" if abs(v) < step / 2 else _exponent(v, digits) for v in values]
    decimals = _decimals(step)
    texts = [f"{v:.{decimals}f}" for v in values]
    return [
        "0" if abs(v) < step / 2 else t.replace("0.", ".", 1) if t.startswith(("0.", "-0.")) else t
        for v, t in zip(values, texts, strict=True)
    ]


def _decimals(step: float) -> int:
    return max(0, -math.floor(math.log10(step) + 1e-9))


def _exponent(value: float, digits: int) -> str:
    return f"{value:.{digits}e}".replace("e-0", "e-").replace("e+0", "e").replace("e+", "e")
