"""What goes on at the gateway, in words, in the log and in `ctl status`."""

from __future__ import annotations

import json

from console.headless.output import to_step_record
from console.headless.status import status_line, status_lines, status_record
from console.journal import events as ev
from console.state.gateway_words import minutes, operations, profile, session, troubles
from console.state.model import GatewayState
from console.state.reduce import RunView, fold

T0 = 1_790_000_000.0
HOSTILE = "a\x1b[31m\nb\x00"


def view(*events: ev.Event) -> RunView:
    start = ev.RunStarted(run_id="r", name="night", steps=9, resumed_from=4)
    for seq, event in enumerate((start, *events), start=1):
        event.seq, event.ts = seq, T0
    return fold((start, *events))


def test_times_to_come_and_gone() -> None:
    assert [minutes(x) for x in (-5.0, 4.9, 250.0, 3599.0, 3601.0, 90_000.0)] == [
        "0:00", "0:04", "4:10", "59:59", "1:00:01", "25:00:00",
    ]  # fmt: skip


def test_nothing_is_said_of_what_is_not_known() -> None:
    assert (operations(GatewayState()), session(GatewayState()), profile(GatewayState())) == ("", "", "")
    assert troubles(view().state, T0) == []


def test_the_worst_comes_first_and_the_rest_is_not_said_of_a_gateway_that_is_away() -> None:
    bad = {"queue": "paused_capacity", "backoff": 2.0, "heartbeat_age": 50.0}
    waits = ev.GatewayWaiting(reason="a model slot: all are taken", until=T0 + 250.0)
    here = view(waits, ev.GatewayHealth(reachable=True, **bad)).state
    assert [one.short for one in troubles(here, T0)] == ["waits 4:10", "queue paused", "held back", "heartbeat 0:50"]
    away = view(waits, ev.GatewayHealth(reachable=False, **bad)).state
    assert [one.text for one in troubles(away, T0)] == ["waits for a model slot: free in 4:10"]


def test_a_run_has_its_own_limit_of_a_heartbeat() -> None:
    state = view(ev.GatewayHealth(reachable=True, heartbeat_age=50.0)).state
    state.thresholds = {"gateway_heartbeat_seconds": 51.0}
    assert troubles(state, T0) == []


def resumed() -> RunView:
    return view(
        ev.GatewayProfiled(profile="miles", sdk="0.26", context_window=65_529, lease=300.0, translated=[HOSTILE]),
        ev.GatewayWaiting(reason=f"a model slot: {HOSTILE}", until=T0 + 70.0),
        ev.GatewayHealth(
            reachable=True, latency_ms=3.0, heartbeat_age=4.0, lease_left=296.0, pending={HOSTILE: 1, "sample": 2},
            oldest={HOSTILE: 9.0, "sample": 60.0}, queue="paused_capacity", queue_reason=HOSTILE,
        ),
        ev.SandboxStats(
            live=3, creating=1, left=[HOSTILE], orphaned=["x", "y"], oldest=T0 - 3700.0, hours=1.5, cost=0.25
        ),
        ev.RunResumed(checkpoint="000004", step=4, replayed=[4, 5], reused=24, redone=8, why_not=HOSTILE),
        ev.StepStarted(step=4, groups=1, policy_version=4, replayed=True),
        ev.GroupStarted(step=4, group=0, task="t", size=1),
        ev.TrialFinished(step=4, group=0, trial=0, outcome="completed", reward=1.0, reused=True),
        ev.StepFinished(step=4, reward_mean=1.0, replayed=True),
    )  # fmt: skip


def test_status_of_a_resumed_run() -> None:
    lines = status_lines("live", resumed())
    assert "step     4 of 9, rollout (applied again)" in lines
    assert (
        "resumed  from 000004, step 4, steps 4 to 5 applied again, 24 finished trials used, 8 trials run again, ab"
        in [line.replace("a b", "ab") for line in lines]
    )
    at = lines.index("gateway  reachable, 3 ms")
    assert lines[at + 1] == "         waits for a model slot: free in 1:10"
    assert lines[at + 2].startswith("         queue paused, it has no capacity: a")
    assert lines[at + 3 : at + 7] == [
        "         miles, SDK 0.26, window 65,529, lease 5:00",
        "         heartbeat 0:04 ago, lease 4:56 left",
        f"         sample 2 (1:00), {lines[at + 5].partition('), ')[2]}",
        "boxes    3 live, 1 being created, 1 left, 2 orphaned, the oldest for 1:01:40, 1.50 sandbox hours, about $0.25",
    ]
    assert all(line.isprintable() for line in lines)
    line = status_line(resumed().state)
    assert line.startswith("step 4 of 9, rollout (applied again); ")
    assert "gateway: waits for a model slot: free in 1:10; gateway: queue paused" in line and "\x1b" not in line


def test_the_same_for_scripts() -> None:
    text = json.dumps(status_record(resumed()))
    assert "\\u001b" not in text and "\\u0000" not in text and "\\n" not in text
    record = json.loads(text)
    gateway = record["gateway"]
    assert gateway["profile"] == "miles" and gateway["waiting"].startswith("a model slot")
    assert gateway["waiting_until"] == T0 + 70.0 and gateway["lease_left"] == 296.0 and gateway["backoff"] is None
    assert gateway["pending"]["sample"] == 2 and gateway["oldest"]["sample"] == 60.0
    assert record["sandboxes"] | {"left": 1} == {
        "live": 3, "creating": 1, "left": 1, "orphaned": ["x", "y"], "oldest": T0 - 3700.0, "hours": 1.5, "cost": 0.25,
    }  # fmt: skip
    assert record["resumed"]["replayed"] == [4, 5] and record["resumed"]["reused"] == 24 and record["replaying"] is True
    assert record["last_step"]["replayed"] is True
    fresh = status_record(view())
    assert (
        fresh["resumed"] is None and fresh["gateway"]["waiting"] is None and fresh["gateway"]["waiting_until"] is None
    )


def test_steps_of_a_resume_are_marked_in_their_records_and_others_are_as_before() -> None:
    plain = to_step_record(ev.StepFinished(step=1))
    assert "replayed" not in plain and "recovered" not in plain
    assert to_step_record(ev.StepFinished(step=1, replayed=True)) == plain | {"replayed": True}
    assert to_step_record(ev.StepFinished(step=1, recovered=True)) == plain | {"recovered": True}


def test_a_trial_that_is_used_again_is_that_until_it_is_tried_anew() -> None:
    trial = resumed().state.groups[0].trials[0]
    assert trial.reused and trial.outcome == "completed"
    again = view(
        ev.StepStarted(step=4, groups=1, policy_version=4),
        ev.GroupStarted(step=4, group=0, task="t", size=1),
        ev.TrialFinished(step=4, group=0, trial=0, outcome="infrastructure", reused=True),
        ev.TrialRetried(step=4, group=0, trial=0, try_=1, by="ada"),
    )
    assert not again.state.groups[0].trials[0].reused
