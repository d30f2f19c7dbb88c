"""Scales of the plots: round, exact, and steady."""

from __future__ import annotations

import math
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from console.tui.scale import log_scale, tick_texts, x_scale, x_ticks, y_scale

STEPS = st.integers(0, 10**7)
VALUES = st.floats(-1e12, 1e12, allow_nan=False)


@given(
    first=STEPS, more=st.integers(0, 10**5), cells=st.integers(2, 200), fine=st.sampled_from([1, 2]), g=st.booleans()
)
def test_dots_and_steps_agree(first: int, more: int, cells: int, fine: int, g: bool) -> None:
    x = x_scale(first, first + more, cells, fine, g)
    assert x.dot(first) == 0
    assert x.dot(first + more) <= x.dots - 1 and (g or not more or x.dot(first + more) == x.dots - 1)
    for step in {first, first + more // 3, first + more}:
        dot = x.dot(step)
        assert x.start(dot) <= step < x.start(dot + 1)
        assert x.dot(x.start(dot)) >= dot > x.dot(x.start(dot) - 1) or dot == 0


def test_a_growing_scale_leaves_room_and_uses_it_up() -> None:
    spans = [x_scale(0, last, 60, 2, True).span for last in range(1, 10_001)]
    assert spans == sorted(spans)
    assert all(span >= last for last, span in enumerate(spans, 1))
    assert all(span <= last * 1.34 + 4 for last, span in enumerate(spans, 1))
    assert len(set(spans)) < 45


@given(first=STEPS, more=st.integers(0, 10**5), cells=st.integers(10, 200))
def test_step_labels_do_not_touch(first: int, more: int, cells: int) -> None:
    x = x_scale(first, first + more, cells, 2, True)
    ends = [(min(max(0, c - len(t) // 2), cells - len(t)), len(t)) for c, t in x_ticks(x)]
    assert all(a + size < b for (a, size), (b, _) in pairwise(ends))
    assert all(first <= int(text) <= first + x.span for _, text in x_ticks(x))


@given(low=VALUES, size=st.floats(0, 1e12), rows=st.integers(1, 40), kind=st.sampled_from(["number", "count"]))
def test_a_linear_scale_holds_its_values(low: float, size: float, rows: int, kind) -> None:
    y = y_scale(low, low + size, rows, kind)
    slack = 1e-6 * max(abs(low), abs(low + size)) + 1e-8 * (y.high - y.low)
    assert y.low <= low + slack and y.high >= low + size - slack and y.low < y.high
    assert len(y.ticks) >= 2
    texts = [text for _, text in y.ticks]
    assert len(set(texts)) == len(texts) or size < 1e-6 * max(abs(low), 1)
    assert y.dot(y.high, 40) == 0 and y.dot(y.low, 40) == 39


@given(low=st.floats(1e-88, 1e87), factor=st.floats(1, 1e12), rows=st.integers(1, 40))
def test_a_logarithmic_scale_holds_its_values(low: float, factor: float, rows: int) -> None:
    y = log_scale(low, low * factor, rows)
    assert y.low <= low * 1.0001 and y.high >= low * factor * 0.9999 and 0 < y.low < y.high
    assert y.dot(y.high, 40) == 0 and y.dot(y.low, 40) == 39
    assert y.dot(math.sqrt(y.low) * math.sqrt(y.high), 41) == 20


def test_a_new_value_inside_the_scale_moves_nothing() -> None:
    assert y_scale(0.11, 0.415, 9) == y_scale(0.119, 0.405, 9) == y_scale(0.101, 0.419, 9)
    assert y_scale(0.0, 0.0, 9, floor=0.0).low == 0.0


@pytest.mark.parametrize(
    ("values", "step", "kind", "texts"),
    [
        ([0.0, 0.5, 1.0], 0.5, "number", ["0", ".5", "1.0"]),
        ([-0.002, 0.0, 0.002], 0.002, "number", ["-.002", "0", ".002"]),
        ([0.0, 2e-5, 4e-5], 2e-5, "number", ["0", "2e-5", "4e-5"]),
        ([0.0, 10_000.0, 20_000.0], 10_000.0, "count", ["0", "10.0k", "20.0k"]),
        ([100_000.0, 100_001.0], 1.0, "number", ["100000", "100001"]),
        ([0.0, 900.0, 1800.0, 7200.0], 900.0, "seconds", ["0", "15m", "30m", "2h"]),
        ([0.0, 0.2, 0.4], 0.2, "share", ["0%", "20%", "40%"]),
        ([-1e200, 0.0, 1e200], 1e200, "number", ["-1.0e200", "0.0e0", "1.0e200"]),
    ],
)
def test_tick_labels(values: list[float], step: float, kind, texts: list[str]) -> None:
    assert tick_texts(values, step, kind) == texts
