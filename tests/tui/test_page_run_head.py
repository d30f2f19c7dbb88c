"""Header, plumbing row and alarm rows: what an operator must see first."""

from __future__ import annotations

import dataclasses
import re

import pytest
from run_scene import T0, scene

from console.control.messages import Viewer
from console.journal import events as ev
from console.tui.panes.alarm import alarm
from console.tui.panes.header import header, percentile, plumbing
from console.tui.picture import Scene, Selection
from console.tui.source import Link
from console.tui.text import plain

YOU, ADA = Viewer(author="me@here", acts=True, you=True), Viewer(author="ada@bridge")


def opened(key: str, level: str = "warning", text: str = "", action: str = "", consequence: str = "") -> ev.AlarmOpened:
    return ev.AlarmOpened(key=key, level=level, text=text or f"{key} is bad", action=action, consequence=consequence)


def held(group: int, deadline: float, trial: int = 1) -> list[ev.Event]:
    at = {"step": 0, "group": group, "trial": trial}
    return [
        ev.TrialFinished(**at, outcome="infrastructure", cause="sandbox", exception="SandboxError", retryable=True),
        ev.TrialHeld(**at, deadline=T0 + deadline),
        opened(f"held.g{group + 1}", "critical"),
    ]


@pytest.mark.parametrize(
    ("made", "said"),
    [
        (scene(), " LIVE "),
        (scene(ev.DispatchPaused(paused=True, by="ada")), " PAUSED "),
        (scene(ev.DispatchPaused(paused=True), link=Link("lost", age=9.0)), " LINK LOST 9.0s   PAUSED "),
        (scene(ev.DispatchPaused(paused=True), link=Link("dead")), " DEAD "),
        (scene(link=Link("stale", age=12.0)), " STALE 12.0s "),
        (scene(frozen=True, held=61.0), " FROZEN 01:01 "),
        (scene(ev.StopRequested(when="after_step")), " STOPPING AFTER STEP "),
        (scene(ev.StopRequested(when="now")), " STOPPING "),
        (scene(link=Link("replay", playing=True, speed=4.0)), " REPLAY 4x "),
        (scene(ev.RunFinished(status="failed", exit_code=7)), " FAILED "),
    ],
)
def test_badges(made: Scene, said: str) -> None:
    shown = plain(header(made, 120))
    assert shown.startswith(f" {said} night "), shown
    assert ("PAUSED" in shown) == ("PAUSED" in said)


def test_silence_is_told_when_it_is_long_and_not_during_a_pause() -> None:
    assert "no progress" not in plain(header(scene(after=60.0), 120))
    assert "no progress 7m00" in plain(header(scene(after=420.0), 120))
    assert "no progress" not in plain(header(scene(ev.DispatchPaused(paused=True), after=420.0), 120))


@pytest.mark.parametrize(
    ("viewers", "said"),
    [((), ""), ((YOU,), ""), ((YOU, ADA), "watch: you of 2"), ((Viewer(author="ada@b", acts=True), ADA), "watch: ada")],
)
def test_the_watch_is_told_when_it_is_not_plain(viewers: tuple[Viewer, ...], said: str) -> None:
    shown = plain(header(scene(presence=viewers), 160))
    assert (said in shown) if said else ("watch" not in shown)


def test_alarms_that_do_not_ask_are_counted_in_the_header() -> None:
    made = scene(
        opened("a"), opened("b"), ev.AlarmAcked(key="b", by="ada"), opened("c"),
        ev.AlarmShelved(key="c", until=T0 + 999), opened("d", "critical"), ev.AlarmClosed(key="d"),
    )  # fmt: skip
    assert "1 alarm 1 acked 1 shelved 1 over" in plain(header(made, 140))
    assert "acked" not in plain(header(scene(opened("a")), 140))
    narrow = plain(header(made, 80))
    assert "1 acked" in narrow and "1 alarm" not in narrow  # the row beneath counts those that ask


def test_the_count_of_alarms_takes_not_both_clock_and_link() -> None:
    events = [e for i in range(12) for e in (opened(f"a{i}"), ev.AlarmAcked(key=f"a{i}", by="ada"))]
    done = [ev.StepFinished(step=0, seconds_total=90.0), ev.StepStarted(step=1, groups=2, policy_version=1)]
    for cells in range(60, 100):
        shown = plain(header(scene(*done, *events, presence=(YOU, ADA), after=400.0), cells))
        assert "12 acked" not in shown or "link ok" in shown or re.search(r" \d\d:\d\d +$", shown), shown


def test_the_narrow_header_keeps_what_matters_most() -> None:
    made = scene(opened("a"), ev.AlarmAcked(key="a"), after=700.0, presence=(YOU, ADA), link=Link("lost", age=44.0))
    shown = plain(header(made, 80))
    assert len(shown) == 80
    assert "LINK LOST" in shown and "step 0/9" in shown and "reconnecting" in shown and "no progress" not in shown
    shown = plain(header(dataclasses.replace(made, link=Link("ok")), 64))
    assert "LIVE" in shown and "step 0/9" in shown and "no progress 11m40" in shown and "watch" not in shown


def test_plumbing_tells_budgets_and_a_full_disk() -> None:
    made = scene(
        ev.CaptureStats(prompt_tokens=850_000, sampled_tokens=50_000, no_logprobs=2),
        ev.HostStats(disk_free=2 * 10**9, disk_total=10**12),
        *(ev.GatewayHealth(reachable=True, latency_ms=float(i), queued=0) for i in range(1, 21)),
        after=50.0,
    )  # fmt: skip
    parts = {span.text: span.role for span in plumbing(made, 140)}
    assert parts["900k/1.0M"] == "limit" and parts["50.0s/1m40"] == ""
    assert parts["2.0GB free"] == "limit" and parts["2"] == "alert" and parts[" p95 20ms"] == "muted"
    assert "2.0GB" in plain(plumbing(made, 80))
    roomy = scene(ev.HostStats(disk_free=500 * 10**9, disk_total=10**13))
    assert "disk" not in plain(plumbing(roomy, 120)) and "disk" in plain(plumbing(roomy, 200))


def test_percentile_is_one_of_the_values() -> None:
    assert percentile([1.0], 0.95) == 1.0 and percentile([float(i) for i in range(100)], 0.95) == 95.0


def rows(made: Scene, cells: int = 120, limit: int = 3) -> list[str]:
    return [plain(row) for row in alarm(made, cells, limit)]


def test_the_least_time_left_comes_first_then_critical_then_old() -> None:
    made = scene(opened("w"), opened("crit", "critical"), *held(1, 600.0), *held(0, 60.0))
    [first] = rows(made)
    assert first.startswith("  4 alarms  g1/t2 SandboxError and 1 more held: the run stops in 00:50")
    assert first.rstrip().endswith("r retry  x cancel group  a ack")
    two = rows(made, limit=7)
    assert len(two) == 2 and "g2/t2" in two[1] and "alarms" not in two[1]
    assert not any("more" in row for row in two) and two[1].rstrip().endswith("! goes there  a ack")


def test_held_trials_are_counted_over_all_groups() -> None:
    more = [event for trial in (0, 1) for event in held(1, 600.0 + trial, trial)]
    assert "SandboxError and 2 more held" in rows(scene(*held(0, 60.0), *more))[0]
    assert "SandboxError +2 held" in rows(scene(*held(0, 60.0), *more), 80)[0]
    first, second = rows(scene(*held(0, 60.0), *more), limit=7)
    assert "more" not in first and "and 1 more held" in second


@pytest.mark.parametrize(
    ("focus", "group", "trial", "marked", "page", "keys"),
    [
        ("groups", 0, 0, (), "run", "r retry  x cancel group  a ack"),
        ("trials", 0, 1, (), "run", "r retry  x cancel group  a ack"),
        ("trials", 0, 1, (), "trial", "r retry  x cancel group  a ack"),
        ("trials", 0, 0, (), "run", "x cancel group  a ack"),  # r would be about a trial that does not wait
        ("groups", 1, 0, (), "run", "! goes there  a ack"),
        ("groups", 0, 0, (1,), "run", "! goes there  a ack"),  # x would be about another group
        ("groups", 0, 0, (), "events", "! goes there  a ack"),  # where r and x do nothing
    ],
)
def test_the_keys_of_the_alarm_act_on_what_it_names(
    focus: str, group: int, trial: int, marked: tuple[int, ...], page: str, keys: str
) -> None:
    made = scene(*held(0, 60.0))
    chosen = Selection(focus=focus, group=group, trial=trial, pinned=True, marked=set(marked))
    made = dataclasses.replace(made, selection=chosen, group=made.state.groups[group], page=page)
    shown = rows(made)[0].rstrip()
    assert shown.endswith(f" {keys}") and ("r retry" in shown) == ("r retry" in keys)


@pytest.mark.parametrize(
    ("key", "action", "group", "hint"),
    [
        ("stalled.g2/t1", "cancel_trial", 1, "X cancel trial"),
        ("stalled.g2/t1", "cancel_trial", 0, "! goes there"),
        ("verifier.broken.task-1", "quarantine", 1, "Q quarantine"),
        ("verifier.broken.task-1", "quarantine", 0, "! goes there"),
        ("verifier.broken.gone", "quarantine", 0, "a ack"),  # no group of this step has the task
    ],
)
def test_an_alarm_offers_an_order_only_where_it_is_about_the_same(key: str, action: str, group: int, hint: str) -> None:
    made = scene(opened(key, action=action))
    chosen = Selection(group=group, pinned=True)
    made = dataclasses.replace(made, selection=chosen, group=made.state.groups[group])
    assert rows(made, 80)[0].rstrip().endswith(f" {hint}")
    assert "crit is bad" in rows(scene(opened("w"), opened("crit", "critical")))[0]


def test_what_was_seen_or_shelved_takes_no_row() -> None:
    assert rows(scene(opened("a"), ev.AlarmAcked(key="a", by="x"))) == []
    assert rows(scene(opened("a"), ev.AlarmShelved(key="a", until=T0 + 60))) == []
    assert len(rows(scene(opened("a"), ev.AlarmShelved(key="a", until=T0 + 5)))) == 1
    assert rows(scene(*held(0, 60.0), ev.AlarmAcked(key="held.g1", by="x"))) == []


def test_an_alarm_says_what_follows_and_which_key_helps() -> None:
    made = scene(opened("a", action="pause", consequence="the run stops"))
    [wide] = rows(made)
    assert "a is bad — the run stops" in wide and wide.rstrip().endswith("p pause  a ack")
    [narrow] = rows(made, 80)
    assert narrow.rstrip().endswith("p pause") and len(narrow) == 80
    [replayed] = rows(dataclasses.replace(made, link=Link("replay")))
    assert "p pause" not in replayed
    [unknown] = rows(scene(opened("a", action="no-such-thing")), 80)
    assert unknown.rstrip().endswith("a ack")


def test_a_critical_alarm_that_is_over_is_not_lost() -> None:
    made = scene(opened("d", "critical"), ev.AlarmClosed(key="d"), after=130.0)
    [row] = alarm(made, 100)
    assert plain(row).startswith(" was: d is bad, over for 02:10") and row[0].role == "muted"
    assert plain(row).rstrip().endswith("a ack")
    assert "w is bad" in rows(scene(opened("d", "critical"), ev.AlarmClosed(key="d"), opened("w")))[0]


HEALTHY = {"reachable": True, "latency_ms": 12.0, "queued": 2}


@pytest.mark.parametrize(
    ("made", "wide", "narrow"),
    [
        (
            scene(ev.GatewayWaiting(reason="a model slot of the gateway: all are taken", until=T0 + 260.0)),
            "gateway waits for a model slot of the gateway: free in 4:10 ", "gw waits 4:10 ",
        ),
        (
            scene(ev.GatewayWaiting(reason="a model slot", until=T0 + 260.0), after=300.0),
            "gateway waits for a model slot ", "gw waits ",
        ),
        (
            scene(ev.GatewayWaiting(reason="its engines", until=T0 + 70.0)),
            "gateway waits for its engines: expected in 1:00 ", "gw waits 1:00 ",
        ),
        (
            scene(ev.GatewayWaiting(reason="a model slot", until=T0 + 70.0), ev.GatewayHealth(reachable=False)),
            "gateway DOWN 00:10", "gw DOWN 00:10",
        ),
        (scene(ev.GatewayWaiting(reason="a slot"), ev.GatewayWaiting()), "gateway unknown", "gw unknown"),
        (
            scene(ev.GatewayHealth(**HEALTHY, queue="paused_rate_limit", queue_reason="too\x1b[2J many")),
            "gateway queue paused, a rate limit is reached", "gw queue paused ",
        ),
        (scene(ev.GatewayHealth(**HEALTHY, queue="active")), "gateway ok 12ms queue 2 ", "gw ok 12ms q2 "),
        (scene(ev.GatewayHealth(**HEALTHY, queue="\x1b[2J")), "gateway ok 12ms queue 2 ", "gw ok 12ms q2 "),
        (
            scene(ev.GatewayHealth(**HEALTHY, backoff=3.0)),
            "gateway samples held back after HTTP 429, for 3 ", "gw held back ",
        ),
        (
            scene(ev.GatewayHealth(**HEALTHY, heartbeat_age=45.0, lease_left=255.0)),
            "gateway no heartbeat acknowledged for 0:45, lease e", "gw heartbeat 0:45 ",
        ),
        (scene(ev.GatewayHealth(**HEALTHY, heartbeat_age=29.0)), "gateway ok 12ms queue 2 ", "gw ok 12ms q2 "),
        (
            scene(ev.GatewayHealth(**HEALTHY, heartbeat_age=45.0), link=Link("dead")),
            "gateway unknown ", "gw unknown ",
        ),
    ],
)  # fmt: skip
def test_what_holds_the_run_up_at_the_gateway_is_said_where_its_health_is(made: Scene, wide: str, narrow: str) -> None:
    for cells, text in ((120, wide), (80, narrow)):
        row = plain(plumbing(made, cells))
        assert row.startswith(" " + text), row
        assert "\x1b" not in row and len(row) <= cells


def test_sandboxes_that_nobody_uses_are_counted_apart() -> None:
    boxes = ev.SandboxStats(live=7, left=["a"], orphaned=["b", "c"], cost=1234.5)
    assert "sandboxes 7, 1 left, 2 orphaned " in plain(plumbing(scene(boxes), 120))
    assert "sandboxes 7, 1 left, 2 orphaned $1,234 " in plain(plumbing(scene(boxes), 200))


def test_a_step_that_is_applied_again_says_so_and_its_time_is_not_usual() -> None:
    rows = [
        ev.StepFinished(step=n, seconds_total=100.0, seconds_rollout=90.0, policy_version=n + 1) for n in range(3)
    ] + [
        ev.StepFinished(step=n, seconds_total=2.0, seconds_rollout=0.1, policy_version=n + 1, replayed=n < 5,
                        recovered=n == 5)
        for n in range(3, 6)
    ]  # fmt: skip
    again = scene(*rows, ev.StepStarted(step=6, groups=2, policy_version=6, replayed=True))
    assert "step 6/9 applied again " in plain(header(again, 120)) and "(p50 90.0s)" in plain(header(again, 120))
    assert "step 6/9 again " in plain(header(again, 80))
    assert "run 4m50" in plain(header(again, 120))
    after = scene(*rows, ev.StepStarted(step=6, groups=2, policy_version=6))
    assert "again" not in plain(header(after, 120))
