"""Columns of a history: what is kept, what a resume cuts, and that decimation never loses an extreme."""

from __future__ import annotations

import math

from hypothesis import example, given
from hypothesis import strategies as st

from console.journal.events import RunStarted, StepFinished
from console.state.reduce import RunView, apply
from console.tui.columns import Columns, Key, columns_of, getter
from console.tui.scale import x_scale

LOSS = Key("ppo_loss")


def row(step: int, loss: float | None = None, **more) -> StepFinished:
    return StepFinished(step=step, ppo_loss=loss, seq=1 + step * 7, ts=1e9 + step, **more)


def filled(losses: list[float | None]) -> Columns:
    columns = Columns()
    columns.update([row(i, loss) for i, loss in enumerate(losses)])
    return columns


LOSSES = st.lists(
    st.one_of(st.none(), st.floats(-1e90, 1e90), st.sampled_from([math.nan, math.inf])), min_size=1, max_size=200
)


@example(losses=[9.0, 3.0, 1.0, 2.0, None, 5.0, 1.0], cells=2, cut=1, grows=False)
@example(losses=[0.0, 3.0, 9.0, 2.0, None, 5.0, 1.0], cells=2, cut=1, grows=False)
@given(losses=LOSSES, cells=st.integers(2, 5) | st.integers(2, 40), cut=st.integers(0, 40), grows=st.booleans())
def test_decimation_keeps_extremes_and_gaps(losses: list[float | None], cells: int, cut: int, grows: bool) -> None:
    columns = Columns()
    rows = [row(i, loss) for i, loss in enumerate(losses)]
    x = x_scale(0, len(losses), cells, 2, grows)
    columns.update(rows[:cut])
    columns.buckets(LOSS, x)  # grown in two pieces, it must be as if it had been made at once
    columns.update(rows)
    found = columns.buckets(LOSS, x)
    whole = Columns()
    whole.update(rows)
    once = whole.buckets(LOSS, x)
    for name in ("low", "high", "first", "last", "joined"):
        assert getattr(found, name) == getattr(once, name), name
    known = [(i, v) for i, v in enumerate(losses) if v is not None and math.isfinite(v)]
    lows, highs = [v for v in found.low if v is not None], [v for v in found.high if v is not None]
    assert (min(lows), max(highs)) == (min(v for _, v in known), max(v for _, v in known)) if known else not lows
    for i, value in known:
        dot = x.dot(i)
        assert found.low[dot] <= value <= found.high[dot]
    drawn = {x.dot(i) for i, _ in known}
    assert drawn == {dot for dot, v in enumerate(found.low) if v is not None}
    for dot in drawn:
        first = next(i for i in range(len(losses)) if x.dot(i) == dot)
        unbroken = all(math.isfinite(columns.values(LOSS)[i]) for i in (first - 1, first)) if first else False
        assert found.joined[dot] == unbroken


def test_a_resume_cuts_the_steps_that_it_undid() -> None:
    view = RunView()
    apply(view, RunStarted(run_id="resumed", name="r", run_dir="/r", seq=1))
    for step in range(10):
        apply(view, StepFinished(step=step, ppo_loss=float(step), seq=2 + step, ts=100.0 + step))
    columns = columns_of(view)
    smooth = Key("ppo_loss", 0.9)
    x = x_scale(0, 20, 10, 2, False)
    columns.values(smooth), columns.buckets(LOSS, x)
    apply(view, RunStarted(run_id="resumed", name="r", run_dir="/r", resumed_from=6, seq=20))
    for step in (6, 7):
        apply(view, StepFinished(step=step, ppo_loss=-1.0, nonfinite=["grad_norm"], seq=21 + step, ts=200.0 + step))
    assert columns_of(view) is columns
    assert columns.steps == list(range(8))
    assert list(columns.values(LOSS)) == [0.0, 1.0, 2.0, 3.0, 4.0, 5.0, -1.0, -1.0]
    assert [step for step, _ in columns.nonfinite] == [6, 7]
    assert max(v for v in columns.buckets(LOSS, x).high if v is not None) == 5.0
    fresh = Columns()
    fresh.update(view.history.rows)
    assert list(columns.values(smooth)) == list(fresh.values(smooth))


def test_a_history_read_again_is_recognised_and_another_one_is_not() -> None:
    columns = filled([1.0, 2.0, 3.0, 4.0])
    kept = columns.values(LOSS)
    made = columns.picture("x", object)
    columns.update([row(i, v) for i, v in enumerate([1.0, 2.0, 3.0, 4.0])])
    assert columns.picture("x", object) is made  # the same events, decoded again
    columns.update([row(0, 1.0), row(1, 2.0)])
    assert list(kept) == [1.0, 2.0] and columns.picture("x", object) is not made
    columns.update([StepFinished(step=0, ppo_loss=9.0, seq=3, ts=5.0)])
    assert list(columns.values(LOSS)) == [9.0]


def test_rows_are_read_once(monkeypatch) -> None:
    calls = []
    monkeypatch.setattr("console.tui.columns.getter", lambda id: lambda r: (calls.append(r.step), 1.0)[1])
    columns = filled([1.0] * 500)
    for size in range(500, 505):
        columns.update([row(i, 1.0) for i in range(size)])
        columns.values(LOSS), columns.buckets(LOSS, x_scale(0, size, 40, 2, True))
    assert calls == list(range(504))


@given(st.lists(st.one_of(st.none(), st.floats(-100, 100)), max_size=60), st.sampled_from([0.5, 0.9]))
def test_the_moving_average_is_the_weighted_mean_of_the_past(losses: list[float | None], keep: float) -> None:
    columns = filled(losses)
    for i, value in enumerate(columns.values(Key("ppo_loss", keep))):
        past = [v for v in losses[: i + 1] if v is not None]
        if losses[i] is None:
            assert math.isnan(value)
            continue
        weights = [keep ** (len(past) - 1 - n) for n in range(len(past))]
        wanted = sum(w * v for w, v in zip(weights, past, strict=True)) / sum(weights)
        assert math.isclose(value, wanted, rel_tol=1e-6, abs_tol=1e-6)


def test_steps_are_found_by_number_or_nearest() -> None:
    columns = Columns()
    columns.update([row(3), row(5), row(9)])
    assert [columns.steps[columns.at(s)] for s in (None, 0, 3, 5, 6, 8, 99)] == [9, 3, 3, 5, 5, 9, 9]
    assert Columns().at(None) is None and Columns().row(4) is None


def test_unknown_outcome_classes_are_one_class() -> None:
    columns = Columns()
    columns.update([row(0, outcomes={"completed": 3, "\x1b[2Jevil": 2, "new": 1, "infrastructure": -4})])
    assert columns.classes == {"completed", "infrastructure", "other"}
    assert [getter(f"outcome:{name}")(columns.rows[0]) for name in ("completed", "infrastructure", "other")] == [
        3,
        0,
        3,
    ]
