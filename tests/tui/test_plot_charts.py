"""Charts as lines of text: whole at every size, true to the rows, and readable without colour."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from console.journal.events import StepFinished
from console.tui.axes import Look
from console.tui.bars import stack
from console.tui.columns import Columns, Key
from console.tui.glyphs import SIGNS
from console.tui.plot import chart_lines, chart_title, curve_scales, step_at
from console.tui.series import CHART, CHARTS, FIGURES, OUTCOME_PARTS, SECONDS_PARTS
from console.tui.text import plain, width

FIGURE = st.one_of(st.none(), st.floats(-1e9, 1e9), st.sampled_from([math.nan, math.inf, 0.0, 1e300, -1e300, 1e-300]))
ROWS = st.lists(
    st.builds(
        StepFinished,
        step=st.integers(0, 10**6),
        reward_mean=FIGURE,
        reward_std=FIGURE,
        ppo_loss=FIGURE,
        kl_sample_train_v1=FIGURE,
        entropy=FIGURE,
        seconds_rollout=FIGURE,
        seconds_total=FIGURE,
        groups_kept=st.integers(0, 9),
        groups_zero_variance=st.integers(0, 9),
        tokens_sampled=st.integers(0, 10**15),
        outcomes=st.dictionaries(st.sampled_from([*SIGNS, "completed", "\x1b]0;x\x07"]), st.integers(-1, 99)),
        nonfinite=st.lists(st.sampled_from(["ppo_loss", "entropy"]), max_size=2),
    ),
    max_size=25,
    unique_by=lambda r: r.step,
)
LOOKS = st.builds(
    Look,
    cursor=st.one_of(st.none(), st.integers(0, 10**6)),
    policy=st.one_of(st.none(), st.integers(0, 10**6)),
    log=st.booleans(),
    smoothing=st.sampled_from([0.0, 0.9]),
    grows=st.booleans(),
    ascii=st.booleans(),
)


def columns_with(rows: list[StepFinished]) -> Columns:
    columns = Columns()
    columns.update(sorted(rows, key=lambda r: r.step))
    return columns


def run_of(losses: list[float | None], **more) -> Columns:
    return columns_with([StepFinished(step=i, ppo_loss=loss, **more) for i, loss in enumerate(losses)])


def drawn(columns: Columns, id: str, look: Look, cells: int = 60, rows: int = 14) -> list[str]:
    return [plain(one) for one in chart_lines(columns, CHART[id], look, cells, rows)]


@settings(max_examples=60)
@given(rows=ROWS, look=LOOKS, cells=st.integers(0, 90), high=st.integers(0, 24))
def test_every_chart_is_whole_at_every_size(rows: list[StepFinished], look: Look, cells: int, high: int) -> None:
    columns = columns_with(rows)
    for chart in CHARTS:
        lines = chart_lines(columns, chart, look, cells, high)
        assert len(lines) in (0, high) and (lines or cells < 16 or high < 3)
        texts = [plain(one) for one in lines]
        assert all(width(one) <= cells for one in lines)
        assert "\x1b" not in "".join(texts)
        assert not look.ascii or "".join(texts).replace("…", ".").isascii()  # the pane does that
        assert all(len(part) < 120 for part in chart_title(columns, chart, look))


def test_the_title_reads_the_row_under_the_cursor() -> None:
    rows = [
        StepFinished(step=s, reward_mean=0.5 + s / 100, reward_std=0.21, ppo_loss=1.5 * s, outcomes={"completed": s})
        for s in range(40)
    ]
    columns = columns_with(rows)
    for step in (0, 12, 39):
        look = Look(cursor=step)
        assert chart_title(columns, CHART["reward"], look)[1] == f"step {step}  .{50 + step}0 ± .210"
        assert chart_title(columns, CHART["outcomes"], look)[1] == f"step {step}  {step}/{step} completed"
        for chart in CHARTS:
            figure = FIGURES[chart.figures[0]]
            assert figure.text(rows[step]) in chart_title(columns, chart, look)[1]
    assert chart_title(columns, CHART["reward"], Look(ascii=True))[1] == ".890 +- .210"
    assert chart_title(Columns(), CHART["reward"], Look())[1] == ""


def test_the_cursor_is_where_its_step_is_and_leads_back_to_it() -> None:
    columns = run_of([float(i % 7) for i in range(50)])
    for step in (0, 17, 49):
        look = Look(cursor=step, grows=False)
        lines = drawn(columns, "loss", look)
        column = next(one.index("▴") for one in lines if "▴" in one)
        found = step_at(columns, CHART["loss"], look, 60, 14, column)
        assert found is not None and abs(found - step) <= 1
    assert step_at(columns, CHART["loss"], Look(), 60, 14, 2) is None


def test_one_spike_among_ten_thousand_steps_is_drawn() -> None:
    losses: list[float | None] = [1.0] * 10_000
    losses[6_123], losses[7_500] = 60.0, -60.0
    columns = run_of(losses)
    for look in (Look(), Look(ascii=True), Look(smoothing=0.99)):  # smoothed, the raw value stays visible
        body = [line[7:] for line in drawn(columns, "loss", look)[:-2]]
        assert len(body[0].split()) == len(body[-1].split()) == 1
        top, bottom = body[0].strip(), body[-1].strip()
        # Up to the last dot, not only into the last cell.
        assert look.ascii or (ord(top) & 0x09 and ord(bottom) & 0xC0)


def test_gaps_stay_gaps() -> None:
    values: list[float | None] = [1.0] * 10 + [None] * 10 + [1.0] * 10
    row = max(drawn(run_of(values), "loss", Look(ascii=True, grows=False), 67, 9), key=lambda one: one.count("*"))
    assert row[7:].split() == ["*" * 19, "*" * 19]


@pytest.mark.parametrize("count", [0, 1, 2])
def test_a_run_of_no_one_or_two_steps(count: int) -> None:
    columns = run_of([2.5, 3.0][:count], reward_mean=0.5, outcomes={"completed": 4}, seconds_total=60.0)
    for chart in CHARTS:
        text = "\n".join(plain(one) for one in chart_lines(columns, chart, Look(), 50, 10))
        assert ("no step has finished yet" in text) == (count == 0)
        if count and chart.id in ("loss", "reward"):
            assert any(0x2800 < ord(c) <= 0x28FF for c in text)
        if count and chart.id in ("outcomes", "time"):
            assert "░" in text or "·" in text


def test_a_logarithmic_axis_leaves_out_what_it_cannot_show_and_says_so() -> None:
    columns = run_of([10.0, 1.0, 0.1, 0.0, -3.0, 0.01])
    look = Look(log=True, ascii=True, grows=False)
    lines = drawn(columns, "loss", look, 47, 14)
    labels = [one[:6].strip() for one in lines if one[:6].strip()]
    assert {"10", "1", ".1", ".01"} <= set(labels)
    assert chart_title(columns, CHART["loss"], look)[0] == "PPO loss  log, 2 not above 0"
    _, _, y = curve_scales(columns, CHART["loss"], look, 47, 14)
    assert y.dot(1.0, 31) == 10 and y.dot(0.1, 31) == 20  # a decade each
    assert "no value above zero" in "\n".join(drawn(run_of([-1.0, 0.0]), "loss", look))
    assert "log" not in chart_title(columns, CHART["reward"], look)[0]


def test_steps_that_were_not_finite_are_marked() -> None:
    rows = [StepFinished(step=i, ppo_loss=None if i == 5 else 1.0 * i, entropy=0.3) for i in range(11)]
    rows[5].nonfinite = ["ppo_loss"]
    columns = columns_with(rows)
    look = Look(cursor=5, grows=False)
    lines = drawn(columns, "loss", look)
    assert lines[0].index("!") == next(one.index("▴") for one in lines if "▴" in one)
    assert chart_title(columns, CHART["loss"], look)[1] == "step 5  not finite"
    assert "!" not in "".join(drawn(columns, "entropy", look))


def test_series_differ_without_colour() -> None:
    rows = [
        StepFinished(step=i, kl_sample_train_v1=0.3, kl_sample_train_v2=0.2, kl_sample_train_k3=0.1) for i in range(60)
    ]
    lines = drawn(columns_with(rows), "kl", Look(grows=False))
    curves = [line[7:].rstrip() for line in lines[:-3] if any(0x2800 < ord(c) < 0x2900 for c in line)]
    empty = [sum(not ord(c) & 0xFF for c in curve.replace(" ", chr(0x2800))) for curve in curves]
    dots = [sum((ord(c) & 0xFF).bit_count() for c in curve if c != " ") for curve in curves]
    assert len(curves) == 3 and empty[0] == 0 < empty[1] < empty[2] and dots[0] > dots[1] > dots[2]
    assert all(name in lines[-1] for name in ("v1 .3000", "v2 .2000", "k3 .1000"))
    marks = "".join(drawn(columns_with(rows), "kl", Look(ascii=True)))
    assert all(mark in marks for mark in "*+x")


def test_the_spread_lies_around_the_mean() -> None:
    rows = [StepFinished(step=i, reward_mean=0.5, reward_std=0.25) for i in range(20)]
    lines = drawn(columns_with(rows), "reward", Look(ascii=True, grows=False), 40, 16)[:-2]
    marks = [line[7:].strip()[:1] for line in lines]
    band = [i for i, mark in enumerate(marks) if mark == "."]
    assert marks.count("*") == 1 and band and min(band) < marks.index("*") < max(band)
    assert len(lines) * 0.4 <= len(band) + 1 <= len(lines) * 0.65


# --- bars ----------------------------------------


def test_parts_of_bars_have_signs_of_their_own() -> None:
    for parts in (OUTCOME_PARTS[:-1], SECONDS_PARTS):
        for ascii_only in (False, True):
            signs = [part.sign(ascii_only) for part in parts]
            assert len(set(signs)) == len(signs) and all(len(sign) == 1 for sign in signs)
            assert not ascii_only or "".join(signs).isascii()
    for part in OUTCOME_PARTS[1:-1]:
        assert part.unicode == SIGNS[part.id].unicode and SIGNS[part.id].role.startswith(part.role)


@given(st.lists(st.floats(0, 1000), min_size=1, max_size=8), st.integers(1, 40), st.booleans())
def test_bars_are_as_high_as_they_should_be(values: list[float], rows: int, each: bool) -> None:
    total = sum(values)
    heights = stack(values, rows, total or 1.0, each)
    assert sum(heights) == (rows if total > 0 else 0) and min(heights) >= 0
    assert all(h == 0 for h, v in zip(heights, values, strict=True) if v == 0)
    seen = sum(v > 0 for v in values)
    if each and seen <= rows:
        assert all(h > 0 for h, v in zip(heights, values, strict=True) if v > 0)
    if not each and total > 0:
        assert all(abs(h - rows * v / total) < 1.001 for h, v in zip(heights, values, strict=True))


def test_a_single_failure_among_thousands_of_trials_has_a_cell() -> None:
    rows = [StepFinished(step=i, outcomes={"completed": 32}) for i in range(5_000)]
    rows[3_333].outcomes = {"completed": 31, "capture_loss": 1}
    text = drawn(columns_with(rows), "outcomes", Look())
    assert "".join(text[:-1]).count("∅") == 1 and text[0].count("∅") == 1
    assert "∅ capture loss 0" in text[-1]


def test_the_slowest_step_of_a_cell_is_shown() -> None:
    rows = [StepFinished(step=i, seconds_rollout=50.0, seconds_total=60.0) for i in range(5_000)]
    rows[1_234].seconds_total, rows[1_234].seconds_save = 600.0, 540.0
    lines = drawn(columns_with(rows), "time", Look(grows=False))
    column = columns_with(rows)
    assert step_at(column, CHART["time"], Look(grows=False), 60, 14, lines[0].index("█")) == pytest.approx(1234, abs=95)
    assert column.values(Key("seconds_other"))[0] == 10.0
