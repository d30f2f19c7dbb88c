"""Charts of a run's steps: curves in Braille dots (in ASCII one mark a cell), with spread, gaps and several series.

Series differ in dash and mark as well as in colour. However many steps a dot stands for, its extremes are drawn.
"""

from __future__ import annotations

from console.journal.events import StepFinished
from console.tui.axes import Area, Cells, Look, area, empty, label_width, steps_scale, surround
from console.tui.bars import bar_chart, bar_scales
from console.tui.columns import Buckets, Columns, Key
from console.tui.glyphs import marks
from console.tui.scale import XScale, YScale, log_scale, y_scale
from console.tui.series import FIGURES, Chart
from console.tui.text import Line, Span, line

SMALLEST = (16, 3)
"""Cells and rows below which nothing is drawn."""

_DOTS = ((0x01, 0x02, 0x04, 0x40), (0x08, 0x10, 0x20, 0x80))
_LEFT = [sum(_DOTS[0][y] for y in range(4) if bits >> y & 1) for bits in range(16)]
_RIGHT = [sum(_DOTS[1][y] for y in range(4) if bits >> y & 1) for bits in range(16)]
_ROLES = ("accent", "limit", "text")
_ASCII_MARKS = "*+x"
_DASHES = ((1, 1), (6, 3), (4, 1))
"""Of each series: period in dots, and how many of them are drawn."""
_SAMPLES = ("⠤⠤⠤", "⠤⠄⠤", "⠄⠄⠄")
_RAW, _RAW_ASCII = "muted", ":"
_BAND, _BAND_ASCII = "rule", "."
_NONFINITE = "!"
DENSE = 4
"""From so many steps a dot on, the curve is their mean, and their extremes are light dots around it."""

Masks = list[int]
"""One number a dot column; bit `y` is the dot `y` from the top."""


def chart_lines(columns: Columns, chart: Chart, look: Look, cells: int, rows: int) -> list[Line]:
    """The chart in `rows` lines of at most `cells`; empty when that is too small. Made once until the rows change."""
    if cells < SMALLEST[0] or rows < SMALLEST[1]:
        return []
    return columns.picture(
        ("chart", chart.id, look, cells, rows),
        lambda: (curves if chart.form == "curve" else bar_chart)(columns, chart, look, cells, rows),
    )


def curves(columns: Columns, chart: Chart, look: Look, cells: int, rows: int) -> list[Line]:
    """A chart of curves."""
    if not columns.steps:
        return empty(cells, rows, "no step has finished yet")
    log = look.log and chart.log
    scales = curve_scales(columns, chart, look, cells, rows)
    if scales is None:
        return empty(cells, rows, "no value above zero" if log and _known(columns, chart) else "no values")
    place, x, y = scales
    keys = [Key(id, look.smoothing, log) for id in chart.figures]
    down = 1 if look.ascii else 4
    size = place.body * down
    band = None
    if chart.band is not None and not log and not look.smoothing:
        edges = [columns.buckets(Key(id), x) for id in chart.band]
        band = _between(edges[0], edges[1], y, size, sparse=not look.ascii)
    layers: list[tuple[Masks, str, str]] = []
    dense = steps_a_dot(x) >= DENSE
    for n, key in enumerate(keys):
        found = columns.buckets(key, x)
        masks = _curve(found, y, size, dense)
        if n and not look.ascii:
            period, drawn = _DASHES[n]
            masks = [m if dot % period < drawn or _lonely(found, dot) else 0 for dot, m in enumerate(masks)]
        layers.append((masks, _ROLES[n], _ASCII_MARKS[n]))
    if dense or look.smoothing:
        for id in chart.figures:
            layers.append((_extremes(columns.buckets(Key(id, 0.0, log), x), y, size), _RAW, _RAW_ASCII))
    if band is not None:
        layers.append((band, _BAND, _BAND_ASCII))
    body = _body(layers, place, look.ascii)
    _zero_line(body, y, down, look)
    _mark_nonfinite(body, columns, chart, x)
    return surround(body, place, x, y, look, _legend(columns, chart, look), down)


def steps_a_dot(x: XScale) -> float:
    """How many steps a dot of the curves stands for."""
    return x.span / (x.dots - 1)


def curve_scales(
    columns: Columns, chart: Chart, look: Look, cells: int, rows: int
) -> tuple[Area, XScale, YScale] | None:
    """Where the parts of a chart of curves go, and its scales; None without a value that could be drawn."""
    log = look.log and chart.log
    y = _y(columns, chart, [Key(id, 0.0, log) for id in chart.figures], rows, log)
    if y is None:
        return None
    place = area(cells, rows, label_width(y), look.legend and len(chart.figures) > 1)
    return place, steps_scale(columns, look, place), y


def step_at(columns: Columns, chart: Chart, look: Look, cells: int, rows: int, column: int) -> int | None:
    """The step that a chart of that size shows in a column of its cells; None outside of it."""
    if not columns.steps:
        return None
    make = curve_scales if chart.form == "curve" else bar_scales
    scales = make(columns, chart, look, cells, rows)
    if scales is None:
        return None
    place, x, _ = scales
    cell = column - place.label - 1
    return x.middle(cell) if 0 <= cell < place.cells else None


def skipped(columns: Columns, chart: Chart) -> int:
    """How many values a logarithmic axis cannot show."""
    return columns.picture(
        ("skipped", chart.id), lambda: sum(v <= 0 for id in chart.figures for v in columns.values(Key(id)))
    )


def _known(columns: Columns, chart: Chart) -> bool:
    return any(v == v for id in chart.figures for v in columns.values(Key(id)))


def _y(columns: Columns, chart: Chart, keys: list[Key], rows: int, log: bool) -> YScale | None:
    """The scale that holds every raw value; a spread only when the scale has no bounds of its own."""

    def measure() -> tuple[float, float] | None:
        known = [v for key in keys for v in columns.values(key) if v == v]
        return (min(known), max(known)) if known else None

    span = columns.picture(("span", *keys), measure)
    if span is None:
        return None
    low, high = span
    if log:
        return log_scale(low, high, rows)
    bounded = chart.low is not None and chart.high is not None and chart.low <= low and high <= chart.high
    if chart.band is not None and not bounded:
        edges = [v for id in chart.band for v in columns.values(Key(id)) if v == v]
        low, high = min(low, *edges, low), max(high, *edges, high)
    low = low if chart.low is None else min(low, chart.low)
    high = high if chart.high is None else max(high, chart.high)
    return y_scale(low, high, max(1, rows - 3), chart.main.kind, chart.low)


# --- dots ----------------------------------------


def _run(a: int, b: int) -> int:
    """The dots from `a` to `b`, in either order."""
    if a > b:
        a, b = b, a
    return ((1 << (b - a + 1)) - 1) << a


def _curve(found: Buckets, y: YScale, size: int, dense: bool) -> Masks:
    """All values in their order, or, `dense`, the mean of each dot."""
    low, high, first, last = [found.mean] * 4 if dense else (found.low, found.high, found.first, found.last)
    masks = [0] * len(low)
    before = -1
    for dot, least in enumerate(low):
        if least is None:
            continue
        masks[dot] |= _run(y.dot(least, size), y.dot(_value(high[dot]), size))
        if found.joined[dot] and before >= 0:
            _join(masks, before, y.dot(_value(last[before]), size), dot, y.dot(_value(first[dot]), size))
        before = dot
    _thicken(masks, found, size)
    return masks


def _value(value: float | None) -> float:
    assert value is not None
    return value


def _join(masks: Masks, x0: int, y0: int, x1: int, y1: int) -> None:
    """A straight line between two dots; steep pieces are split between the two columns that they join."""
    wide = x1 - x0
    for step in range(wide):
        a, b = round(y0 + (y1 - y0) * step / wide), round(y0 + (y1 - y0) * (step + 1) / wide)
        middle = (a + b) // 2 if abs(a - b) > 1 else a
        masks[x0 + step] |= _run(a, middle)
        masks[x0 + step + 1] |= _run(b if abs(a - b) <= 1 else middle, b)


def _lonely(found: Buckets, dot: int) -> bool:
    """Whether a dot has a value and no curve leads to it or away from it."""
    if found.low[dot] is None or found.joined[dot]:
        return False
    following = next((d for d in range(dot + 1, len(found.low)) if found.low[d] is not None), None)
    return following is None or not found.joined[following]


def _thicken(masks: Masks, found: Buckets, size: int) -> None:
    """A value without neighbours is one dot, too faint to be seen: make it a square."""
    for dot, low in enumerate(found.low):
        if low is not None and masks[dot].bit_count() == 1 and _lonely(found, dot) and size > 4:
            more = masks[dot] | (masks[dot] << 1 if masks[dot] << 1 < 1 << size else masks[dot] >> 1)
            masks[dot] = more
            masks[dot + 1 if dot + 1 < len(masks) else dot - 1] |= more


def _extremes(found: Buckets, y: YScale, size: int) -> Masks:
    """The least and the greatest of each dot, every other dot between them."""
    pattern = int("01" * ((size + 1) // 2), 2)
    masks: Masks = []
    for low, high in zip(found.low, found.high, strict=True):
        if low is None or high is None:
            masks.append(0)
            continue
        bottom, top = y.dot(low, size), y.dot(high, size)
        masks.append(_run(bottom, top) & pattern | 1 << bottom | 1 << top)
    return masks


def _between(lower: Buckets, upper: Buckets, y: YScale, size: int, sparse: bool) -> Masks:
    """The area between two columns, in a light pattern; straight between steps."""
    masks = [0] * len(lower.low)
    before = -1
    for dot, low in enumerate(lower.low):
        high = upper.high[dot]
        if low is None or high is None:
            continue
        masks[dot] |= _run(y.dot(low, size), y.dot(high, size))
        if lower.joined[dot] and upper.joined[dot] and before >= 0:
            low0, high0 = y.dot(_value(lower.last[before]), size), y.dot(_value(upper.last[before]), size)
            low1, high1 = y.dot(_value(lower.first[dot]), size), y.dot(_value(upper.first[dot]), size)
            for at in range(before + 1, dot):
                part = (at - before) / (dot - before)
                masks[at] |= _run(round(low0 + (low1 - low0) * part), round(high0 + (high1 - high0) * part))
        before = dot
    if not sparse:
        return masks
    pattern = int("01" * ((size + 1) // 2), 2)
    return [m & pattern if dot % 2 == 0 else 0 for dot, m in enumerate(masks)]


def _body(layers: list[tuple[Masks, str, str]], place: Area, ascii_only: bool) -> Cells:
    """Cells of all layers: the first layer with dots in a cell gives it its colour, curves share their dots."""
    rows: Cells = []
    for row in range(place.body):
        cells: list[tuple[str, str]] = []
        for cell in range(place.cells):
            cells.append(_ascii_cell(layers, row, cell) if ascii_only else _dots_cell(layers, row * 4, cell * 2))
        rows.append(cells)
    return rows


def _ascii_cell(layers: list[tuple[Masks, str, str]], row: int, cell: int) -> tuple[str, str]:
    for masks, role, mark in layers:
        if masks[cell] >> row & 1:
            return mark, role
    return " ", ""


def _dots_cell(layers: list[tuple[Masks, str, str]], shift: int, dot: int) -> tuple[str, str]:
    bits, role = 0, ""
    for masks, colour, _ in layers:
        if bits and colour in (_RAW, _BAND):
            break
        found = _LEFT[masks[dot] >> shift & 15] | _RIGHT[masks[dot + 1] >> shift & 15]
        if found:
            bits, role = bits | found, role or colour
    return (chr(0x2800 + bits), role) if bits else (" ", "")


def _zero_line(body: Cells, y: YScale, down: int, look: Look) -> None:
    if y.log or not y.low < 0 < y.high:
        return
    row = body[y.dot(0.0, len(body) * down) // down]
    rule = marks(look.ascii).rule
    for at, (char, _) in enumerate(row):
        if char == " ":
            row[at] = (rule, "rule")


def _mark_nonfinite(body: Cells, columns: Columns, chart: Chart, x: XScale) -> None:
    """Steps with a figure of the chart that was NaN or infinite: a mark at the top, since the curve has a gap there."""
    for step, names in columns.nonfinite:
        if names & chart.sources:
            body[0][x.cell(step)] = (_NONFINITE, "infra")


def _legend(columns: Columns, chart: Chart, look: Look) -> Line:
    row = columns.row(look.cursor)
    parts: list[Span] = []
    for n, (id, label) in enumerate(zip(chart.figures, chart.labels, strict=False)):
        sample = _ASCII_MARKS[n] if look.ascii else _SAMPLES[n]
        value = FIGURES[id].text(row) if row is not None else "--"
        parts += [Span(f"{'  ' if n else ''}{sample}", _ROLES[n]), Span(f" {label} ", "muted"), Span(value)]
    return line(*parts)


# --- titles ----------------------------------------


def chart_title(columns: Columns, chart: Chart, look: Look) -> tuple[str, str]:
    """Left and right part of the title: what it is, and what it reads at the cursor (the last step without one)."""
    notes = [chart.note, "log" if look.log and chart.log else ""]
    if look.log and chart.log and (count := skipped(columns, chart)):
        notes.append(f"{count} not above 0")
    if look.smoothing and chart.form == "curve":
        notes.append(f"EMA {look.smoothing:g}".replace("0.", ".", 1))
    left = chart.title + "".join(f"  {note}" if i == 0 else f", {note}" for i, note in enumerate(filter(None, notes)))
    return left, reading(columns, chart, look)


def reading(columns: Columns, chart: Chart, look: Look) -> str:
    """The values at the cursor: `step 412  .612 ± .210`."""
    row = columns.row(look.cursor)
    if row is None:
        return ""
    text = value_text(chart, row)
    if chart.std is not None and text[-1].isdigit():
        spread = FIGURES[chart.std].text(row)
        text += f" {'+-' if look.ascii else '±'} {spread}" if spread != "--" else ""
    if chart.form == "outcomes":
        text += " completed"
    return f"step {row.step}  {text}" if look.cursor is not None else text


def value_text(chart: Chart, row: StepFinished) -> str:
    """The chart's main value of a step, short."""
    if row.nonfinite and chart.sources & set(row.nonfinite):
        return "not finite"
    text = chart.main.text(row)
    if chart.form == "outcomes":
        return f"{row.outcomes.get('completed', 0)}/{text}"
    return f"{text}/s" if chart.main.unit.endswith("/s") and text[-1:].isalnum() else text
