"""A night on watch: trials hang, the gateway slows, a verifier breaks, a disk fills; and an operator reacts.

The night is a process of its own (`night_watch`) in a room with a small disk. What it did is in its diary, what the run
did is in the run's journal, and only these are judged. Times are the journal's own, compared with those of the events
that an alarm follows from, never with a clock of the test.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator
from itertools import pairwise

import pytest
from night_record import BREAKS, CAUSES, DISK_GB, IDLE_SECONDS, LEFT_BYTES, SLOW_MS, Episode, Night, plan, spend
from whole_runs import processes_of

from console.control.audit import read_audit
from console.control.blocking import author
from console.engine.board import ALARM_SECONDS
from console.journal import events as ev
from console.records.run_dir import RunRecord
from console.state.alarm_keeper import AlarmKeeper
from console.state.alarms import alarms
from console.state.lines import trial_name
from console.state.model import decode_state
from console.state.reduce import RunView, apply, fold

pytestmark = pytest.mark.timeout(420)

SLOW_CLEAR, DISK_CLEAR = 30.0, 10.0
"""Seconds for which the trouble must be gone before its alarm is over, as the rules have them."""

OTHERS = {
    "host.loop_lag": "the machine of the tests may be busy with other things",
    "host.memory": "the machine of the tests may be small",
    "stalled": "a trial other than those that hang may really have been idle for so long; this is checked",
}
"""What else may open, and why."""
ORDERS = ["cancel_trial", "cancel_trial", "pause", "resume", "quarantine", "cancel_group", "ack", "pause", "note",
          "resume", "ack", "stop_after_step"]  # fmt: skip


@pytest.fixture(scope="module")
def night(embedded_gateway: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Night]:
    """The night, over."""
    where = tmp_path_factory.mktemp("night")
    yield spend("night_watch.py", plan(where, embedded_gateway))
    assert processes_of(where) == []


# --- which alarms ----------------------------------------


def test_each_trouble_is_told_once_in_the_order_of_the_causes(night):
    assert [e.kind for e in night.troubles] == ["stalled", "stalled", *list(CAUSES)[1:]]
    assert {key for key, count in Counter(e.key for e in night.episodes).items() if count > 1} == set()
    assert [e.key for e in night.episodes if e.closed is None] == []
    causes = [*(line["ts"] for line in night.said("cause")), float("inf")]
    for episode in night.troubles:
        number = [line["name"] for line in night.said("cause")].index(CAUSES[episode.kind])
        assert causes[number] < episode.opened.ts < causes[number + 1]


def test_what_is_told_again_is_news(night):
    for episode in night.troubles:
        told = [(e.level, e.text) for e in episode.told]
        match episode.kind:
            case "held":  # one after the other of its trials joins
                assert len(told) == len(set(told)) <= 3
            case "host.disk":  # a look may come while the file is being written
                assert [level for level, _ in told] in (["critical"], ["warning", "critical"])
            case "gateway.slow":  # its figure may double on a busy machine
                figures = [float(re.findall(r"(\d+) ms", text)[0]) for _, text in told]
                assert {level for level, _ in told} == {"warning"}
                assert all(not 0.55 < b / a < 1.9 for a, b in pairwise(figures))
            case _:
                assert [level for level, _ in told] == ["warning"]


def test_nothing_else_was_told(night):
    others = [e for e in night.episodes if e not in night.troubles]
    assert [e.key for e in others if e.kind not in OTHERS] == []
    for episode in others:
        if episode.kind == "stalled":
            assert night.on_time(episode.opened, _last_word(night, episode) + IDLE_SECONDS)


# --- when ----------------------------------------


def _trial(episode: Episode) -> tuple[int, int]:
    """Group and trial that a `stalled` alarm speaks of."""
    group, trial = (int(name[1:]) - 1 for name in episode.key.removeprefix("stalled.").split("/"))
    return group, trial


def _last_word(night: Night, episode: Episode) -> float:
    """When a trial that stalls was last heard of before the alarm."""
    group, trial = _trial(episode)
    words = night.of(ev.TrialPhase, group=group, trial=trial) + night.of(ev.TrialTurn, group=group, trial=trial)
    return max(e.ts for e in words if e.seq < episode.opened.seq)


def test_a_trial_that_hangs_is_told_when_it_was_silent_for_long_enough(night):
    assert [group for group, _ in night.hung] == [0, 1]
    for group, trial in night.hung:
        (episode,) = [e for e in night.troubles if e.key == f"stalled.{trial_name(group, trial)}"]
        (end,) = night.of(ev.TrialFinished, step=0, group=group, trial=trial)
        assert (end.outcome, end.cause, end.turns) == ("cancelled", "operator", 0)
        assert night.on_time(episode.opened, _last_word(night, episode) + IDLE_SECONDS)
        phases = night.of(ev.TrialPhase, step=0, group=group, trial=trial)
        moved = [e for e in phases if e.seq > episode.opened.seq]  # it is no longer silent when its sandbox is removed
        assert night.on_time(episode.closed, min(e.ts for e in [*moved, end]))


def _slow_spans(night: Night) -> list[tuple[float, float]]:
    """From when until when two of the last three health checks were slow."""
    checks = [e for e in night.of(ev.GatewayHealth) if e.latency_ms is not None]
    spans: list[tuple[float, float]] = []
    begun: float | None = None
    for last in zip(checks, checks[1:], checks[2:], strict=False):
        slow = sum(e.latency_ms >= SLOW_MS for e in last) >= 2
        if slow and begun is None:
            begun = last[-1].ts
        elif begun is not None and not slow:
            spans.append((begun, last[-1].ts))
            begun = None
    return [span for span in spans if span[0] >= night.when("cause", "slow")]


def test_a_slow_gateway_is_told_at_once_and_is_over_when_it_was_fast_for_a_while(night):
    alarm = night.one("gateway.slow")
    spans = [span for span in _slow_spans(night) if span[0] < alarm.closed.ts]
    assert len(spans) >= 2, "it was slow twice"
    assert night.on_time(alarm.opened, spans[0][0])
    assert night.on_time(alarm.closed, spans[-1][1] + SLOW_CLEAR)


def test_a_broken_verifier_is_told_with_its_third_bad_reward_and_held_trials_with_the_first(night):
    bad = night.of(ev.TrialFinished, outcome="bad_reward")
    held = night.of(ev.TrialHeld)
    assert len(bad) == len(held) == 3 and {e.group for e in bad} == {held[0].group}
    group, step = held[0].group, held[0].step
    waits, broken = night.one("held"), night.one("verifier.broken")
    assert (waits.key, broken.key) == (f"held.g{group + 1}", f"verifier.broken.{BREAKS}")
    assert night.on_time(waits.opened, held[0].ts)
    assert night.on_time(broken.opened, bad[2].ts)
    (left_out,) = night.of(ev.TaskQuarantined)
    (given_up,) = night.of(ev.GroupFinished, step=step, group=group)
    assert night.on_time(broken.closed, left_out.ts)
    assert night.on_time(waits.closed, given_up.ts)


def test_a_full_disk_is_told_with_the_first_look_at_it_and_is_over_when_there_was_room_for_a_while(night):
    looks = night.of(ev.HostStats, since=night.when("cause", "disk"))
    full = next(e for e in looks if e.disk_free < DISK_GB * 1e9)
    empty = next(e for e in looks if e.seq > full.seq and e.disk_free > DISK_GB * 1e9)
    alarm = night.one("host.disk")
    assert 0 < min(e.disk_free for e in looks) <= LEFT_BYTES
    assert night.on_time(alarm.opened, full.ts)
    assert night.on_time(alarm.closed, empty.ts + DISK_CLEAR)


# --- what the operator did ----------------------------------------


def test_the_operator_is_in_the_audit(night):
    orders = night.said("order")
    lines = [line for line in read_audit(night.run_dir / "audit.jsonl") if line.command in ORDERS]
    extra = len(orders) - len(ORDERS)  # a trial that was idle all the same was cancelled, too
    assert [line.command for line in lines if line.stage == "intent"] == ["cancel_trial"] * extra + ORDERS
    assert [line.stage for line in lines] == ["intent", "result"] * len(orders)
    for order, intent, result in zip(orders, lines[::2], lines[1::2], strict=True):
        assert (intent.command, intent.reason) == (order["answer"]["command"], order["reason"])
        assert intent.author == result.author == author() and intent.peer == result.peer != ""
        answer = [order["answer"][word] for word in ("id", "status", "text")]
        assert [result.id, result.status, result.text] == answer and result.id == intent.id
        assert (result.status, order["exit_code"]) in (("done", 0), ("refused", 1))
    refused = [o["words"][0] for o in orders if o["exit_code"]]
    assert len(refused) <= extra and set(refused) <= {"cancel-trial"}
    requested = [(e.id, e.reason) for e in night.of(ev.CommandRequested)]
    assert requested == [(line.id, line.reason) for line in lines[::2]]


def test_each_reaction_follows_its_alarm_and_does_what_it_says(night):
    asked = {name: night.of(ev.CommandRequested, command=name) for name in ORDERS}
    first = {name: found[0].seq for name, found in asked.items()}
    for name, kind in [("pause", "gateway.slow"), ("quarantine", "verifier.broken"), ("cancel_group", "held")]:
        assert first[name] > night.one(kind).opened.seq
    for episode in night.troubles[:2]:
        (order,) = [e for e in asked["cancel_trial"] if _trial(episode) == (e.args["group"], e.args["trial"])]
        assert order.seq > episode.opened.seq
    pauses = [night.of(ev.DispatchPaused, paused=on) for on in (True, False)]
    for pause, resume in zip(*pauses, strict=True):
        begun = night.of(ev.TrialPhase, since=pause.ts, phase="create")
        assert pause.by == resume.by == author()
        assert begun and not [e for e in begun if pause.seq < e.seq < resume.seq]
    (left_out,) = night.of(ev.TaskQuarantined)
    assert (left_out.task, left_out.by) == (BREAKS, author())
    assert not night.of(ev.GroupStarted, since=left_out.ts, task=BREAKS)
    assert [(e.key, e.by) for e in night.of(ev.AlarmAcked)] == [
        ("host.disk", author()), (night.one("held").key, author()),
    ]  # fmt: skip
    assert [e.text for e in night.of(ev.Note) if e.source == author()] == [
        "removed a core dump from the disk of the run"
    ]


def test_the_run_ends_as_the_operator_asked(night):
    last = night.events[-1]
    assert isinstance(last, ev.RunFinished)
    assert (last.status, last.exit_code, last.reason) == ("stopped", 3, "stopped by the operator")
    assert [night.said(who)[0][word] for who, word in (("exit", "code"), ("viewer", "exit_code"))] == [3, 3]
    stop = night.of(ev.StopRequested)[-1]
    assert len([e for e in night.of(ev.StepStarted) if e.seq > stop.seq]) <= 1, "one may begin in that moment"
    assert [e.step for e in night.of(ev.StepFinished)] == list(range(last.steps))
    assert night.of(ev.CheckpointSaved)[-1].step == last.steps
    assert night.of(ev.SandboxStats)[-1].live == 0 and not night.of(ev.SandboxStats)[-1].left
    assert not [
        e for e in night.of(ev.TrialFinished) if e.outcome not in ("cancelled", "bad_reward") and e.reward is None
    ]


# --- who tells it ----------------------------------------


def test_a_fresh_reader_sees_each_alarm_from_its_first_to_its_last_event(night):
    for episode in night.episodes:
        record = RunRecord(night.run_dir)
        first, last = episode.opened.seq, episode.closed.seq
        assert episode.key not in record.view_at(seq=first - 1).state.alarms
        alarm = RunRecord(night.run_dir).view_at(seq=first).state.alarms[episode.key]
        assert alarm.open and (alarm.since, alarm.text) == (episode.opened.ts, episode.opened.text)
        assert record.view_at(seq=last - 1).state.alarms[episode.key].open
        after = RunRecord(night.run_dir).view_at(seq=last).state.alarms.get(episode.key)
        assert after is None or (not after.open and after.level == "critical" and not after.acked_by)


def test_what_the_run_says_is_what_its_journal_says(night):
    (seen,) = night.said("view")
    state = decode_state(json.dumps(seen["state"]).encode())
    assert RunRecord(night.run_dir).view_at(seq=state.seq).state == state
    whole = fold(night.events)
    assert RunRecord(night.run_dir).view_at_end() == whole
    assert [row.step for row in whole.history.rows][: len(seen["rows"])] == [row["step"] for row in seen["rows"]]
    assert whole.state.alarms == {}


def test_ctl_tells_the_alarms_of_the_journal(night):
    told = [alarm for line in night.said("alarms") for alarm in line["alarms"]]
    for episode in night.troubles:
        mine = [alarm for alarm in told if alarm["key"] == episode.key]
        assert mine and mine[0]["state"] == "open"
        assert {alarm["since"] for alarm in mine} == {episode.opened.ts}
        assert {(alarm["level"], alarm["text"]) for alarm in mine} <= {(e.level, e.text) for e in episode.told}
    *_, quiet, acked = (line["alarms"] for line in night.said("alarms"))
    assert [(a["key"], a["state"]) for a in quiet] == [(night.one("held").key, "over")], "somebody has to know of it"
    assert acked == []


def test_headless_tells_the_alarms_of_the_journal(night):
    lines = (night.where / "headless.jsonl").read_text().splitlines()
    told = [r for r in map(json.loads, lines) if r["type"] == "alarm" and r["state"] != "acknowledged"]
    written = night.of(ev.AlarmOpened) + night.of(ev.AlarmClosed)
    assert [(r["state"], r["key"], r["ts"]) for r in told] == [
        ("opened" if isinstance(e, ev.AlarmOpened) else "closed", e.key, e.ts)
        for e in sorted(written, key=lambda e: e.seq)
    ]
    assert json.loads(lines[-1])["exit_code"] == 3


def test_the_rules_over_the_replayed_journal_raise_the_same_alarms(night):
    view, keeper, told = RunView(), AlarmKeeper(), list[ev.Event]()
    now = night.events[0].ts
    for event in night.events:
        while now + ALARM_SECONDS < event.ts:
            now += ALARM_SECONDS
            told += keeper.step(alarms(view, now), now)
        apply(view, event)
    for episode in night.troubles:
        mine = [e for e in told if isinstance(e, ev.AlarmOpened | ev.AlarmClosed) and e.key == episode.key]
        ends = [e for e in mine if isinstance(e, ev.AlarmClosed)]
        assert isinstance(mine[0], ev.AlarmOpened) and len(ends) == 1 and mine[-1] is ends[0]
        assert mine[-2].level == episode.told[-1].level


# --- no room at all ----------------------------------------


def test_a_disk_without_any_room_ends_the_run_in_order(embedded_gateway, tmp_path):
    night = spend("night_no_room.py", plan(tmp_path, embedded_gateway))
    code = night.said("exit")[0]["code"]
    assert code in (4, 6, 7), "that of the file that was written first: a trial's, the capture's, the journal's"
    record = RunRecord(night.run_dir)
    assert record.view_at_end() == fold(night.events) and record.damage == []
    assert [e.seq for e in night.events] == list(range(1, len(night.events) + 1))
    assert {e.exit_code for e in night.of(ev.RunFinished)} <= {code}, "there may be room for it, or not"
    told = [e.detail for e in night.of(ev.RunPhase) if e.phase == "stopping"]
    assert all("/disk/run" in detail for detail in told), "the same, and each names its file"
    assert processes_of(tmp_path) == []
