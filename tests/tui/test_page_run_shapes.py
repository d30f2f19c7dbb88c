"""The run page at every size, with everything that an operator can do to it: whole lines, no gaps, nothing hostile."""

from __future__ import annotations

import random
import re

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from rich.cells import cell_len

from console.control.messages import Viewer
from console.journal import events as ev
from console.state.reduce import RunView, fold
from console.state.sanitize import sanitize
from console.tui import text
from console.tui.compose import PANES, compose, layout_for
from console.tui.filters import parse
from console.tui.layout import LISTS, MANY, PLOTS, Box, arrange
from console.tui.panes import header
from console.tui.panes.alarm import alarm
from console.tui.picture import SORTS, Scene, Selection, ordered
from console.tui.source import Link
from console.tui.text import Line, Span
from console.tui.widgets.pane import to_ascii

HOSTILE = "\x1b]0;PWNED\x07\x1b[2J\u202eRTL\u200b\u0627\u0644\u0639\u0631\u0628\u064a\u0629\r\n\t[red]x\x9b31m"
NAMES = ["short", "a-task-with-quite-a-long-name-" * 3, "日本語の課題" * 50, "e\u0301" * 80, HOSTILE, ""]
SIZES = st.tuples(st.integers(60, 260), st.integers(16, 80))
USUAL = [(60, 16), (80, 24), (110, 30), (120, 40), (159, 36), (160, 36), (200, 60), (260, 80)]
FILTERS = ["", "", "", "git", "class:infra", "!class:pass phase:agent", "g:1-3", "t:2", "nothing-has-this"]


def view_of(rnd: random.Random, groups: int, size: int) -> RunView:
    """A run in the middle of a step, everything in it drawn from `rnd`."""
    events: list[ev.Event] = [
        ev.RunStarted(
            run_id="r", name=rnd.choice(NAMES), steps=rnd.choice([None, 9]), ts=1.0, model=rnd.choice(NAMES),
            tunables={"max_tries": 3.0, "token_budget": rnd.choice([None, 1e6]), "time_budget": 600.0},
        ),
        ev.RunPhase(phase=rnd.choice(["rollout", "training", HOSTILE]), detail=rnd.choice(NAMES)),
    ]  # fmt: skip
    for step in range(rnd.randrange(5)):
        values = [rnd.choice([None, 0.0, -3.25, 1e9, 12345.678, 0.5]) for _ in range(6)]
        events.append(
            ev.StepFinished(
                step=step, reward_mean=values[0], ppo_loss=values[1], entropy=values[2], kl_sample_train_v1=values[3],
                seconds_total=values[4], seconds_rollout=rnd.choice([None, 3.0]), grad_norm=values[5],
                groups_kept=groups, groups_zero_variance=groups // 2, outcomes={"completed": 3, HOSTILE: 1},
            )
        )  # fmt: skip
    if groups:
        events.append(ev.StepStarted(step=4, groups=groups, policy_version=4))
    for group in range(groups):
        events.append(ev.GroupStarted(step=4, group=group, task=rnd.choice(NAMES), size=size))
        for trial in range(size):
            at = {"step": 4, "group": group, "trial": trial}
            events.append(ev.TrialPhase(**at, phase=rnd.choice(["queued", "create", "agent", "verify", "x" * 50])))
            turns = {"turn": rnd.randrange(9999), "prompt_tokens": rnd.randrange(10**8), "sampled_tokens": 7}
            events.append(ev.TrialTurn(**at, **turns))
            if rnd.random() < 0.5:
                outcome = rnd.choice(["completed", "agent_timeout", "infrastructure", "bad_reward", "cancelled", "odd"])
                events.append(
                    ev.TrialFinished(
                        **at, outcome=outcome, reward=rnd.choice([None, 0.0, 0.5, 1.0, -2.0, 1e6]),
                        cause=rnd.choice(NAMES), exception=rnd.choice([None, *NAMES]), rule=rnd.choice(NAMES),
                        evidence=rnd.choice(NAMES) * 5, retryable=rnd.random() < 0.5, trial_dir=rnd.choice(NAMES),
                        seconds={"agent": 3.0, rnd.choice(NAMES): rnd.choice([0.0, 1e9])},
                    )
                )  # fmt: skip
                if rnd.random() < 0.2:
                    events.append(ev.TrialHeld(**at, deadline=rnd.choice([0.0, 1e6])))
        if rnd.random() < 0.2:
            events.append(ev.GroupFinished(step=4, group=group, kept=rnd.random() < 0.5, reason=rnd.choice(NAMES)))
    for key in ("gateway.slow", "stalled.g1/t1", "held.g1", HOSTILE)[: rnd.randrange(5)]:
        events.append(
            ev.AlarmOpened(
                key=key, level=rnd.choice(["warning", "critical"]), text=rnd.choice(NAMES) or "x", remedy="y" * 300,
                consequence=rnd.choice(["", "the run stops", HOSTILE]), action=rnd.choice(["", "pause", "odd", "ack"]),
            )
        )  # fmt: skip
        later = [ev.AlarmAcked(key=key, by="ada"), ev.AlarmClosed(key=key), ev.AlarmShelved(key=key, until=1e7)]
        events += rnd.choice([[], [], [rnd.choice(later)]])
    events += [
        ev.DispatchPaused(paused=rnd.random() < 0.3, by=HOSTILE),
        ev.GatewayHealth(reachable=rnd.random() < 0.8, latency_ms=rnd.choice([None, 3.0, 1e7]), detail=HOSTILE),
        ev.HostStats(disk_free=rnd.choice([None, 10**9, 10**12]), disk_total=rnd.choice([None, 10**13])),
        ev.CaptureStats(calls=3, prompt_tokens=10**9, sampled_tokens=10**7, lost=rnd.randrange(2), inflight=2),
        ev.CheckpointSaved(name=rnd.choice(NAMES), step=3),
        ev.CommandRequested(id="c", command="retry", args={"group": 0}, author=HOSTILE),
    ]
    if rnd.random() < 0.15:
        events.append(ev.RunFinished(status="failed", exit_code=rnd.choice([1, 3]), reason=HOSTILE * 20))
    for seq, event in enumerate(events, start=1):
        event.seq, event.ts = seq, event.ts or float(seq)
    return fold(events)


def scene_of(seed: int, groups: int, size: int) -> Scene:
    """A scene with everything in it drawn from the seed: also what the operator did."""
    rnd = random.Random(seed)
    view = view_of(rnd, groups, size)
    selection = Selection(
        focus=rnd.choice(["groups", "trials", "detail", "events", "capture", "reward"]), sort=rnd.choice(SORTS),
        filter=parse(rnd.choice(FILTERS)), zoom=rnd.choice(["", "", "", *PANES]), tree=rnd.random() < 0.7,
        marked={0, 2, 99}, marked_in=view.state.step, group=rnd.randrange(70), trial=rnd.randrange(70),
        pinned=rnd.random() < 0.7, events_up=rnd.choice([0, 3]), tops={"groups": 30, "tree": 500, "detail": 3},
    )  # fmt: skip
    now = rnd.choice([0.0, 500.0, 1e6])
    shown = ordered(view.state, selection, now)
    view.state.gateway.queues[:] = [1, None, 3]
    return Scene(
        view, Link(rnd.choice(["ok", "stale", "lost", "dead", "replay", "connecting"]), age=rnd.random() * 1e5),  # type: ignore[arg-type]
        now, selection, shown, selection.settle(shown), ascii=rnd.random() < 0.3, frozen=rnd.random() < 0.1,
        presence=(Viewer(author=HOSTILE, acts=True), Viewer(author="me", you=True))[: rnd.randrange(3)],
        keys=(("x", "cancel"), ("q", "quit")), message=rnd.choice([(), (Span("said"),)]),
        tail=rnd.choice([(), ((Span("─ 日本 turn"),), (Span("y" * 500),))]),
    )  # fmt: skip


@settings(deadline=None, max_examples=150)
@given(
    seed=st.integers(0, 10**6),
    size=st.one_of(st.sampled_from(USUAL), SIZES),
    groups=st.integers(0, 64),
    trials=st.integers(1, 70),
)
@example(seed=3, size=(80, 24), groups=64, trials=16)
def test_every_line_is_as_wide_as_its_box(seed: int, size: tuple[int, int], groups: int, trials: int) -> None:
    scene = scene_of(seed, groups, trials if groups < 12 else min(trials, 16) if groups < 30 else 4)
    width, height = size
    rows = [header.header(scene, width), header.plumbing(scene, width), *alarm(scene, width, 1 + (height - 16) // 4)]
    for row in rows:
        assert text.width(row) == width, text.plain(row)
    layout = layout_for(scene, Box(0, len(rows), width, height - 1 - len(rows)))
    painted = list(rows)
    for name, lines in compose(scene, layout).items():
        box = layout.boxes[name]
        assert len(lines) <= box.height, name
        assert all(text.width(line) <= box.width for line in lines), name
        painted += lines
    assert_clean(scene, painted)


def assert_clean(scene: Scene, lines: list[Line]) -> None:
    """No character of a foreign sequence is left; in ASCII every sign of ours has a twin."""
    for line in lines:
        shown = text.plain(line)
        assert shown == sanitize(shown, limit=10**6)
        assert "PWNED" not in shown
        if scene.ascii:
            strange = {c for c in shown if to_ascii(c).strip("?") == "" and c not in "? "}
            assert not {c for c in strange if "\u2190" <= c <= "\u2bff"}, shown


@given(
    size=st.tuples(st.integers(60, 260), st.integers(12, 76)),
    groups=st.integers(0, 64),
    trials=st.integers(0, 64),
    events=st.sampled_from([0, 3, MANY]),
    tree=st.booleans(),
    zoom=st.sampled_from(["", *PANES]),
)
def test_boxes_fill_the_region(
    size: tuple[int, int], groups: int, trials: int, events: int, tree: bool, zoom: str
) -> None:
    width, height = size
    layout = arrange(Box(0, 2, width, height), groups, trials, events, tree, zoom)
    cells = [
        (x, y)
        for box in layout.boxes.values()
        for y in range(box.y, box.y + box.height)
        for x in range(box.x, box.x + box.width)
    ]
    assert len(cells) == len(set(cells)) == width * height
    assert all(0 <= x < width and 2 <= y < height + 2 for x, y in cells)
    assert all(box.height >= 2 for box in layout.boxes.values())
    if zoom in LISTS:
        assert set(layout.boxes) == {zoom}
    elif zoom in PLOTS:
        assert set(layout.boxes) <= set(PLOTS) and "reward" in layout.boxes
    assert all(set(column) <= set(layout.boxes) for column in layout.columns)


@pytest.mark.parametrize("groups", [1, 4, 40])
def test_room_that_events_do_not_need_goes_to_the_lists(groups: int) -> None:
    quiet = arrange(Box(0, 0, 80, 50), groups, 40, events=2).boxes
    busy = arrange(Box(0, 0, 80, 50), groups, 40).boxes
    assert quiet["trials"].height + quiet["groups"].height > busy["trials"].height + busy["groups"].height
    assert quiet["events"].height == 3 < busy["events"].height


def test_a_wide_name_moves_no_column() -> None:
    events: list[ev.Event] = [ev.StepStarted(step=0, groups=len(NAMES), policy_version=0)]
    events += [ev.GroupStarted(step=0, group=i, task=name, size=8) for i, name in enumerate(NAMES)]
    for seq, event in enumerate(events, start=1):
        event.seq, event.ts = seq, 1.0
    view = fold(events)
    for width in (80, 120, 200):
        selection = Selection(tree=False)
        shown = ordered(view.state, selection, 2.0)
        scene = Scene(view, Link("ok"), 2.0, selection, shown, selection.settle(shown))
        lines = compose(scene, layout_for(scene, Box(0, 2, width, 21 if width < 100 else 40)))["groups"]
        rows = [text.plain(line) for line in lines if "0/8" in text.plain(line)]
        assert len(rows) == len(NAMES)
        assert len({cell_len(row[: row.index("0/8")]) for row in rows}) == 1


def step_of(
    groups: int, size: int, *more: ev.Event, now: float = 5.0, tree: bool = False, focus: str = "groups"
) -> Scene:
    """A step that has begun, and what else happened at second 1."""
    events: list[ev.Event] = [ev.StepStarted(step=0, groups=groups, policy_version=0)]
    events += [ev.GroupStarted(step=0, group=i, task=f"task-{i + 1}", size=size) for i in range(groups)]
    for seq, event in enumerate([*events, *more], start=1):
        event.seq, event.ts = seq, 1.0
    view = fold([*events, *more])
    selection = Selection(tree=tree, focus=focus)
    shown = ordered(view.state, selection, now)
    return Scene(view, Link("ok"), now, selection, shown, selection.settle(shown))


def pane(scene: Scene, name: str, width: int = 80, height: int = 21) -> list[str]:
    return [text.plain(line) for line in compose(scene, layout_for(scene, Box(0, 2, width, height)))[name]]


def phase(group: int, trial: int, phase: str = "agent") -> ev.TrialPhase:
    return ev.TrialPhase(step=0, group=group, trial=trial, phase=phase)


def ended(group: int, trial: int, outcome: str = "completed", reward: float | None = 1.0) -> ev.TrialFinished:
    return ev.TrialFinished(step=0, group=group, trial=trial, outcome=outcome, reward=reward)


def test_a_strip_that_does_not_fit_becomes_counts_with_failures_first() -> None:
    outcomes = [ended(0, t) for t in range(40)] + [ended(0, 40, "infrastructure", None), ended(0, 41, reward=0.0)]
    scene = step_of(1, 64, *outcomes, phase(0, 42), phase(0, 43))
    assert "1! 2▸ 40✓ 1o 20·" in pane(scene, "groups")[1]
    assert "✓" * 40 in pane(scene, "groups", 159, 40)[1]


def test_a_long_list_sums_up_what_is_not_in_sight() -> None:
    scene = step_of(40, 2, ended(39, 0, "infrastructure", None), ev.TrialHeld(step=0, group=39, trial=0, deadline=9e9))
    rows = pane(scene, "groups")
    assert rows[1].startswith("> g40 ") and rows[-1].strip() == f"↓ {42 - len(rows)} below: {42 - len(rows)} waiting"
    scene.selection.group, scene.selection.pinned = 20, True
    scene = Scene(scene.view, scene.link, 5.0, scene.selection, scene.groups, scene.view.state.groups[20])
    rows = pane(scene, "groups")
    assert any(row.startswith("> g21 ") for row in rows)
    found = re.fullmatch(r"↑ (\d+) above  ↓ (\d+) below: 1 held · (\d+) waiting", rows[-1].strip())
    assert found is not None
    assert int(found[1]) + int(found[2]) == 1 + int(found[3]) == 42 - len(rows)


def test_the_tree_opens_the_selected_group_and_as_many_as_fit() -> None:
    scene = step_of(4, 8, tree=True)
    rows = pane(scene, "groups", 200, 57)
    assert sum(" t8 " in row for row in rows) == 4
    scene = step_of(20, 16, tree=True)
    rows = pane(scene, "groups", 200, 57)
    assert sum(" t16 " in row for row in rows) == 1 and sum("0/16" in row for row in rows) == 20


@pytest.mark.parametrize(
    ("inflight", "reported", "said"),
    [(2, 1.0, "generating 00:04"), (0, 1.0, "in a tool 00:04"), (1, 1.0, "idle 00:04"), (0, -99.0, "idle 00:04")],
)
def test_what_an_agent_does_is_told_as_far_as_it_is_known(inflight: int, reported: float, said: str) -> None:
    scene = step_of(1, 2, phase(0, 0), phase(0, 1), ev.CaptureStats(calls=1, inflight=inflight))
    scene.state.capture.reported = reported
    assert all(said in row for row in pane(scene, "trials")[1:3])


def test_groups_that_need_the_operator_come_first() -> None:
    scene = step_of(
        6, 1, phase(0, 0, "verify"), ended(1, 0), ev.GroupFinished(step=0, group=1, kept=True),
        ended(2, 0, "infrastructure", None), ended(4, 0, "infrastructure", None),
        ev.TrialHeld(step=0, group=4, trial=0, deadline=9e9), phase(5, 0),
    )  # fmt: skip
    assert [g.group + 1 for g in scene.groups] == [5, 3, 1, 6, 4, 2]
    later = ordered(scene.state, scene.selection, 1000.0)
    assert [g.group + 1 for g in later] == [5, 3, 6, 1, 4, 2]  # the agent of g6 has stalled by then


def test_tries_are_counted_against_what_is_allowed() -> None:
    scene = step_of(1, 1, ev.TrialFinished(step=0, group=0, trial=0, try_=1, outcome="infrastructure", retryable=True))
    scene.state.tunables["max_tries"] = 3.0
    assert "try 2/3  retryable" in pane(scene, "trials")[1]
