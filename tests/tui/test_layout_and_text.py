"""Layout at every size, and the small text functions: nothing overlaps, nothing is wider than its place."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.cells import cell_len

from console.journal import events as ev
from console.state.model import TrialState
from console.state.reduce import fold
from console.tui import text
from console.tui.compose import PANES, compose, layout_for
from console.tui.glyphs import SIGNS, kind_of, spark
from console.tui.layout import Box, arrange, share
from console.tui.picture import Scene, Selection, attention, ordered
from console.tui.source import Link
from console.tui.text import Span, clock, count, fit, number, short_time, spread, wrap
from console.tui.widgets.pane import changed, to_ascii

REGIONS = st.tuples(st.integers(60, 220), st.integers(12, 70))
USUAL = [(60, 13), (80, 21), (100, 27), (110, 27), (120, 37), (200, 57)]
WIDE_TEXT = st.text(
    st.one_of(st.characters(min_codepoint=32, max_codepoint=126), st.sampled_from("日本✓…é·")), max_size=60
)


@given(size=REGIONS, groups=st.integers(0, 64), trials=st.integers(0, 64))
def test_boxes_fill_the_region_without_overlap(size: tuple[int, int], groups: int, trials: int) -> None:
    width, height = size
    layout = arrange(Box(0, 2, width, height), groups, trials)
    cells = [
        (x, y)
        for box in layout.boxes.values()
        for y in range(box.y, box.y + box.height)
        for x in range(box.x, box.x + box.width)
    ]
    assert len(cells) == len(set(cells)) == width * height
    assert all(0 <= x < width and 2 <= y < height + 2 for x, y in cells)
    assert set(layout.boxes) <= set(PANES)
    assert {"groups", "trials"} <= set(layout.boxes)
    assert all(box.height >= 2 for box in layout.boxes.values())


@given(space=st.integers(11, 70), groups=st.integers(0, 64), trials=st.integers(0, 64))
def test_sections_give_way_in_order(space: int, groups: int, trials: int) -> None:
    got = share(space, groups, trials, steps=3, steps_max=5)
    assert sum(got.values()) == space
    assert got["groups"] >= min(max(1, groups) + 1, 3) and got["trials"] >= min(max(1, trials) + 1, 3)
    assert got["steps"] != 1 and got["events"] != 1
    if got["steps"] < 3:
        assert got["events"] == 0
    if got["events"] > 2:  # the lists had their share
        assert got["groups"] == min(max(1, groups) + 1, max(3, space * 40 // 100))


def scene_of(seed: int, groups: int, size: int) -> Scene:
    """A scene in the middle of a step, everything in it drawn from the seed."""
    rnd = random.Random(seed)
    names = ["short", "a-task-with-quite-a-long-name-" * 2, "日本語の課題", "ümläut"]
    events: list[ev.Event] = [ev.RunStarted(run_id="r", name=rnd.choice(names), steps=9, ts=1.0)]
    for step in range(rnd.randrange(4)):
        values = [rnd.choice([None, 0.0, -3.25, 1e9, 12345.678, 0.5]) for _ in range(7)]
        events.append(
            ev.StepFinished(
                step=step, reward_mean=values[0], ppo_loss=values[1], entropy=values[2], kl_sample_train_v1=values[3],
                clip_fraction=values[4], seconds_total=values[5], grad_norm=values[6], groups_kept=groups,
                groups_zero_variance=groups // 2,
            )
        )  # fmt: skip
    if groups:
        events.append(ev.StepStarted(step=4, groups=groups, policy_version=4))
    phases = ["queued", "create", "agent", "verify", "teardown"]
    outcomes = ["completed", "agent_timeout", "infrastructure", "bad_reward", "cancelled", "no_logprobs", "odd"]
    for group in range(groups):
        events.append(ev.GroupStarted(step=4, group=group, task=rnd.choice(names), size=size))
        for trial in range(size):
            at = {"step": 4, "group": group, "trial": trial}
            events.append(ev.TrialPhase(**at, phase=rnd.choice(phases)))
            events.append(ev.TrialTurn(**at, turn=rnd.randrange(9999), prompt_tokens=rnd.randrange(10**8)))
            if rnd.random() < 0.5:
                reward = rnd.choice([None, 0.0, 0.5, 1.0, -2.0, 1e6])
                events.append(ev.TrialFinished(**at, outcome=rnd.choice(outcomes), reward=reward, cause="c" * 40))
                if rnd.random() < 0.2:
                    events.append(ev.TrialHeld(**at, deadline=rnd.choice([0.0, 1e6])))
    events.append(ev.AlarmOpened(key="a", level="warning", text="x" * 300, remedy="y" * 300))
    for seq, event in enumerate(events, start=1):
        event.seq, event.ts = seq, event.ts or float(seq)
    view = fold(events)
    selection = Selection(focus=rnd.choice(["groups", "trials", "events"]), sort=rnd.choice(["attention", "number"]))
    now = rnd.choice([0.0, 500.0, 1e6])
    shown = ordered(view.state, selection, now)
    link = Link(rnd.choice(["ok", "stale", "lost", "dead", "replay", "connecting"]), age=rnd.random() * 1e5)  # type: ignore[arg-type]
    keys = (("x", "cancel"), ("q", "quit"))
    return Scene(view, link, now, selection, shown, selection.settle(shown), ascii=rnd.random() < 0.3, keys=keys)


@settings(deadline=None, max_examples=120)
@given(
    seed=st.integers(0, 10**6),
    size=st.one_of(st.sampled_from(USUAL), REGIONS),
    groups=st.integers(0, 64),
    trials=st.integers(1, 40),
)
def test_every_line_is_as_wide_as_its_box(seed: int, size: tuple[int, int], groups: int, trials: int) -> None:
    scene = scene_of(seed, groups, trials if groups < 20 else min(trials, 8))
    layout = layout_for(scene, Box(0, 2, *size))
    for name, lines in compose(scene, layout).items():
        box = layout.boxes[name]
        assert len(lines) <= box.height, name
        for line in lines:
            assert text.width(line) <= box.width, (name, text.plain(line))


@given(WIDE_TEXT, st.integers(1, 40))
def test_fit_is_exact(value: str, cells: int) -> None:
    assert text.width(fit((Span(value),), cells)) == cells
    assert cell_len(text.cell(value, cells)) == cells
    assert text.width(spread((Span(value),), (Span("right"),), cells)) == cells


@given(WIDE_TEXT, st.integers(4, 40))
def test_wrapping_loses_nothing_and_stays_within(value: str, cells: int) -> None:
    lines = wrap(value, cells)
    assert all(text.width(line) <= cells for line in lines)
    assert "".join("".join(text.plain(line) for line in lines).split()) == "".join(value.split())


@given(WIDE_TEXT, WIDE_TEXT, st.integers(0, 5))
def test_changed_covers_every_difference(a: str, b: str, split: int) -> None:
    old, new = (Span(a[:split], "x"), Span(a[split:])), (Span(b[:split], "x"), Span(b[split:]))
    covered = {i for first, end in changed(old, new) for i in range(first, end)}
    if all(cell_len(c) == 1 for c in a + b):
        before = [(c, "x" if i < split else "") for i, c in enumerate(a)]
        after = [(c, "x" if i < split else "") for i, c in enumerate(b)]
        differ = {
            i
            for i in range(max(len(a), len(b)))
            if (before[i] if i < len(a) else None) != (after[i] if i < len(b) else None)
        }
        assert differ <= covered
    elif a != b:
        assert covered == set(range(max(cell_len(a), cell_len(b))))


@given(WIDE_TEXT)
def test_ascii_keeps_the_width(value: str) -> None:
    assert to_ascii(value).isascii() and cell_len(to_ascii(value)) == cell_len(value)


@given(st.floats(allow_nan=False, allow_infinity=False, width=32))
def test_figures_are_short(value: float) -> None:
    assert len(number(value)) <= 8
    if value >= 0:
        assert len(short_time(min(value, 8e7))) <= 6
        assert len(clock(min(value, 8e7))) <= 7
        assert len(count(min(value, 9e17))) <= 5


@pytest.mark.parametrize(
    ("made", "expected"),
    [
        (number(0.4123), ".412"), (number(-0.0314), "-.031"), (number(15.84), "15.84"), (number(1234.5), "1234"),
        (number(3.2e-5), "3.2e-5"), (number(None), "--"), (number(0.0), "0"), (clock(461), "07:41"),
        (clock(3729), "1:02:09"), (clock(273600), "3d04h"), (clock(-5), "00:00"), (count(18432), "18.4k"),
        (count(999_960), "1.0M"), (short_time(0.041), "41ms"), (short_time(461), "7m41"),
    ],
)  # fmt: skip
def test_figures_read_well(made: str, expected: str) -> None:
    assert made == expected


def test_sparks_keep_the_newest_and_leave_gaps_empty() -> None:
    assert spark([0.0, None, 1.0], 5, low=0.0, high=1.0) == "  ▁ ▇"
    assert spark([0.0, 0.5, 1.0], 2, low=0.0, high=1.0) == "▄▇"
    assert spark([2.0, 2.0], 2) == "▁▁" and spark([], 3) == "   "


@pytest.mark.parametrize(
    ("trial", "kind"),
    [
        (TrialState(trial=0), "queued"),
        (TrialState(trial=0, phase="agent", last_event=100.0), "running"),
        (TrialState(trial=0, phase="agent", last_event=1.0), "stalled"),
        (TrialState(trial=0, phase="done", outcome="completed", reward=1.0), "pass"),
        (TrialState(trial=0, phase="done", outcome="completed", reward=0.3), "partial"),
        (TrialState(trial=0, phase="done", outcome="completed", reward=0.0), "zero"),
        (TrialState(trial=0, phase="held", outcome="infrastructure"), "infrastructure"),
        (TrialState(trial=0, phase="done", outcome="something new"), "unreadable"),
        (TrialState(trial=0, phase="something new"), "running"),
    ],
)
def test_signs(trial: TrialState, kind: str) -> None:
    assert kind_of(trial, now=390.0) == kind and kind in SIGNS


def test_every_outcome_class_has_a_sign_of_its_own() -> None:
    from console.outcomes.classes import OutcomeClass

    assert {c.value for c in OutcomeClass} - {"completed"} <= set(SIGNS)
    shown = [(sign.ascii, sign.role) for sign in SIGNS.values()]
    assert len({a for a, _ in shown}) == len(shown)
    assert all(sign.ascii.isascii() and cell_len(sign.unicode) == 1 for sign in SIGNS.values())


def test_attention_puts_the_held_first_and_the_done_last() -> None:
    scene = scene_of(3, 12, 6)
    ranks = [attention(group, scene.now) for group in ordered(scene.state, Selection(), scene.now)]
    assert ranks == sorted(ranks)
