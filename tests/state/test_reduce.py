"""What each event does to the state."""

from __future__ import annotations

import math
from itertools import count

import msgspec
import pytest

from console.journal import events as ev
from console.state.model import (
    CHECKPOINTS_KEPT,
    COMMANDS_KEPT,
    EVENTS_KEPT,
    CaptureState,
    TrialState,
    decode_state,
    encode_state,
)
from console.state.reduce import RunView, apply, fold, state_of
from console.state.reduce_trials import mean_and_std


class Run:
    """Numbers and dates events one second apart, as a writer would, and reduces them."""

    def __init__(self) -> None:
        self.view = RunView()
        self.state = self.view.state
        self._seq = count(1)

    def put(self, *events: ev.Event) -> float:
        """Apply the events; returns the time of the last."""
        for event in events:
            event.seq = next(self._seq)
            event.ts = 1000.0 + event.seq
            apply(self.view, event)
        return self.state.ts

    def trial(self, group: int = 0, trial: int = 0) -> TrialState:
        return self.state.groups[group].trials[trial]

    @property
    def lines(self) -> list[str]:
        return [line.text for line in self.state.lines]


def in_step(step: int = 3, groups: int = 2, size: int = 2) -> Run:
    run = Run()
    run.put(ev.RunStarted(run_id="r", name="demo", steps=9, groups_per_batch=groups, group_size=size))
    run.put(ev.StepStarted(step=step, groups=groups, policy_version=step))
    run.put(*(ev.GroupStarted(step=step, group=g, task=f"task-{g}", size=size) for g in range(groups)))
    return run


AT = {"step": 3, "group": 0, "trial": 1}


def test_a_run_starts() -> None:
    run = Run()
    ts = run.put(
        ev.RunStarted(
            run_id="r1",
            name="demo",
            run_dir="/runs/r1",
            pid=7,
            socket="/s",
            model="tiny",
            gateway_url="http://gw",
            versions={"a": "1"},
            config={"x": 1},
            steps=4,
            groups_per_batch=2,
            group_size=8,
            on_failure="hold",
            hold_timeout=60.0,
            owned=True,
        )
    )
    s = run.state
    assert (s.run_id, s.name, s.run_dir, s.pid, s.socket, s.model) == ("r1", "demo", "/runs/r1", 7, "/s", "tiny")
    assert (s.gateway_url, s.versions, s.config) == ("http://gw", {"a": "1"}, {"x": 1})
    assert (s.steps_planned, s.groups_per_batch, s.group_size) == (4, 2, 8)
    assert (s.on_failure, s.hold_timeout, s.owned) == ("hold", 60.0, True)
    assert (s.status, s.phase, s.phase_since, s.started, s.engines) == ("live", "starting", ts, ts, 1)
    assert run.lines == ["run demo started"]


def test_phases_and_plan() -> None:
    run = Run()
    run.put(ev.RunStarted(run_id="r"), ev.RunPlanned(steps=12))
    ts = run.put(ev.RunPhase(phase="connecting", detail="gateway"))
    assert (run.state.steps_planned, run.state.phase, run.state.phase_detail) == (12, "connecting", "gateway")
    assert run.state.phase_since == ts and run.state.status == "live"
    run.put(ev.RunPhase(phase="stopping"))
    assert run.state.status == "stopping"


@pytest.mark.parametrize(
    ("status", "code", "shown"), [("completed", 0, "finished"), ("stopped", 3, "stopped"), ("failed", 7, "failed")]
)
def test_a_run_ends(status: str, code: int, shown: str) -> None:
    run = in_step()
    run.put(ev.CaptureStats(sampled_tokens=5, inflight=4))
    run.put(ev.RunFinished(status=status, exit_code=code, reason="because"))
    s = run.state
    assert (s.status, s.exit_code, s.reason, s.phase, s.capture.inflight) == (shown, code, "because", "ended", 0)
    assert run.lines[-1] == f"run {status}, exit {code}: because"
    assert run.state.lines[-1].level == ("info" if code == 0 else "warning")


def test_a_step() -> None:
    run = in_step(step=3)
    run.put(ev.TrialTurn(turn=1, **AT))
    ts = run.put(ev.StepStarted(step=4, groups=1, policy_version=4))
    s = run.state
    assert (s.step, s.step_started, s.policy_version, s.groups, s.phase) == (4, ts, 4, {}, "rollout")
    row = ev.StepFinished(
        step=4,
        reward_mean=0.5,
        ppo_loss=12.3456,
        seconds_total=9.87,
        groups_kept=3,
        groups_dropped=1,
        policy_version=5,
    )
    run.put(row)
    assert (s.steps_done, s.policy_version, run.view.history.rows) == (5, 5, [row])
    assert run.lines[-1] == "step 4 done reward 0.500 loss 12.35 9.9s kept 3/4 groups"
    run.put(ev.StepFinished(step=5))
    assert run.lines[-1] == "step 5 done reward -- loss -- --s kept 0/0 groups"


def test_a_resume_undoes_later_steps_and_what_was_open() -> None:
    run = Run()
    run.put(ev.RunStarted(run_id="r", steps=9))
    started = run.state.started
    run.put(*(ev.StepFinished(step=step, policy_version=step + 1) for step in range(5)))
    run.put(ev.StepStarted(step=5, groups=1, policy_version=5), ev.GroupStarted(step=5, group=0, task="t", size=1))
    run.put(ev.AlarmOpened(key="a", level="critical", text="x"), ev.StopRequested(when="now"))
    run.put(ev.CommandRequested(id="1", command="stop"), ev.CommandRequested(id="2", command="pause"))
    run.put(ev.CommandFinished(id="2", status="done"))
    run.put(ev.CaptureStats(sampled_tokens=900, inflight=3, lost=1), ev.SandboxStats(live=4))
    run.put(ev.GatewayHealth(reachable=True), ev.RunFinished(status="failed", exit_code=7))
    ts = run.put(ev.RunStarted(run_id="r", name="demo", resumed_from=3))
    s = run.state
    assert [row.step for row in run.view.history.rows] == [0, 1, 2]
    assert (s.steps_done, s.policy_version, s.engines, s.started, s.steps_planned) == (3, 3, 2, started, 9)
    assert (s.status, s.exit_code, s.stop_requested, s.groups, s.alarms, s.step) == ("live", None, "", {}, {}, None)
    assert (s.sandboxes_live, s.gateway.reachable, s.capture.inflight, s.capture.lost) == (0, None, 0, 0)
    assert s.capture.sampled_tokens == 900, "a kill before the first report must not make the totals begin anew"
    assert (s.commands["1"].status, s.commands["1"].finished) == ("refused", ts)
    assert s.commands["2"].status == "done"
    assert run.lines[-1] == "run demo started, resumed at step 3"
    run.put(ev.CaptureStats(sampled_tokens=50))
    assert s.capture.sampled_per_second is None
    run.put(ev.StepFinished(step=3, policy_version=4))
    assert [row.step for row in run.view.history.rows] == [0, 1, 2, 3]


def test_a_step_done_again_replaces_its_row() -> None:
    run = Run()
    run.put(*(ev.StepFinished(step=step) for step in (0, 1, 2, 1)))
    assert [(row.step, row.seq) for row in run.view.history.rows] == [(0, 1), (1, 4)]


def test_groups() -> None:
    run = in_step()
    group = run.state.groups[1]
    assert (group.task, group.kept, [t.trial for t in group.trials]) == ("task-1", None, [0, 1])
    assert {t.phase for t in group.trials} == {"queued"}
    run.put(ev.TrialFinished(step=3, group=1, trial=0, outcome="infrastructure"))
    run.put(ev.TrialHeld(step=3, group=1, trial=0, deadline=99.0))
    ts = run.put(ev.GroupFinished(step=3, group=1, kept=False, reason="cancelled", zero_variance=True))
    assert (group.finished, group.kept, group.reason, group.zero_variance) == (ts, False, "cancelled", True)
    assert (group.trials[0].phase, group.trials[0].hold_deadline) == ("done", None)
    assert run.lines[-1] == "g2 dropped: cancelled"
    run.put(ev.GroupFinished(step=3, group=0, kept=True, reward_mean=0.25, reward_std=0.1))
    assert (run.state.groups[0].reward_mean, run.state.groups[0].reward_std) == (0.25, 0.1)
    assert len(run.lines) == 4


def test_a_trial_from_queue_to_reward() -> None:
    run = in_step()
    started = run.put(ev.TrialPhase(phase="create", **AT))
    since = run.put(ev.TrialPhase(phase="agent", **AT))
    last = run.put(
        ev.TrialTurn(turn=1, prompt_tokens=10, sampled_tokens=3, **AT),
        ev.TrialTurn(turn=2, prompt_tokens=20, sampled_tokens=4, **AT),
    )
    t = run.trial(trial=1)
    assert (t.phase, t.phase_since, t.started, t.last_event) == ("agent", since, started, last)
    assert (t.turns, t.prompt_tokens, t.sampled_tokens) == (2, 30, 7)
    end = run.put(
        ev.TrialFinished(
            outcome="completed",
            rule="verifier",
            reward=0.75,
            trial_dir="/t",
            turns=2,
            prompt_tokens=31,
            sampled_tokens=8,
            segments=3,
            seconds={"total": 4.0},
            **AT,
        )
    )
    assert (t.phase, t.outcome, t.rule, t.reward, t.finished) == ("done", "completed", "verifier", 0.75, end)
    assert (t.turns, t.prompt_tokens, t.sampled_tokens, t.seconds) == (2, 31, 8, {"total": 4.0})
    brief = run.state.recent[-1]
    assert (brief.name, brief.seconds, brief.calls, brief.segments) == ("g1/t2", 4.0, 2, 3)
    assert (run.state.groups[0].reward_mean, run.state.groups[0].reward_std) == (0.75, 0.0)
    assert run.lines == ["run demo started"]
    before = msgspec.structs.asdict(t)
    run.put(ev.TrialPhase(phase="teardown", **AT), ev.TrialTurn(turn=3, sampled_tokens=5, **AT))
    assert msgspec.structs.asdict(t) == before, "what arrives after the end is late"


def test_a_save_during_the_rollout_leaves_its_clock_alone() -> None:
    run = in_step()
    began = run.state.step_started
    run.put(ev.RunPhase(phase="saving"))
    assert run.state.phase_since == run.state.ts
    run.put(ev.RunPhase(phase="rollout"))
    assert (run.state.phase, run.state.phase_since) == ("rollout", began)
    ts = run.put(ev.RunPhase(phase="training"))
    assert run.state.phase_since == ts


@pytest.mark.parametrize(("retryable", "how"), [(True, " (can be retried)"), (False, "")])
def test_a_deadline_that_moves_says_nothing_new(retryable: bool, how: str) -> None:
    run = in_step()
    run.put(ev.TrialFinished(outcome="bad_reward", retryable=retryable, **AT))
    held = run.put(ev.TrialHeld(deadline=1600.0, **AT))
    said = list(run.lines)
    assert said[-1] == f"g1/t2 held: waits for the operator{how}, or the run stops"
    run.put(ev.AlarmOpened(key="held.g1", level="critical", text="g1/t2 held", consequence="stops at 1"))
    run.put(ev.TrialHeld(deadline=1900.0, **AT))
    run.put(ev.AlarmOpened(key="held.g1", level="critical", text="g1/t2 held", consequence="stops at 2"))
    assert run.lines == [*said, "alarm: g1/t2 held"]
    assert run.state.alarms["held.g1"].consequence == "stops at 2"
    assert (run.trial(0, 1).phase_since, run.trial(0, 1).hold_deadline) == (held, 1900.0)
    run.put(ev.AlarmOpened(key="held.g1", level="critical", text="g1/t2 and 1 more held"))
    assert run.lines[-1] == "alarm: g1/t2 and 1 more held"


def test_a_held_trial_is_retried_and_starts_afresh() -> None:
    run = in_step()
    run.put(ev.TrialPhase(phase="agent", **AT), ev.TrialTurn(turn=1, sampled_tokens=9, **AT))
    run.put(
        ev.TrialFinished(
            outcome="infrastructure",
            cause="sandbox",
            exception="SandboxException",
            evidence="gone",
            retryable=True,
            trial_dir="/t",
            refused={"request": 3},
            **AT,
        )
    )
    assert run.lines[-1] == "g1/t2 infrastructure sandbox SandboxException: gone"
    assert (run.state.lines[-1].level, run.state.lines[-1].outcome) == ("error", "infrastructure")
    run.put(ev.TrialHeld(deadline=5000.0, **AT))
    t = run.trial(trial=1)
    assert (t.phase, t.hold_deadline, t.outcome, t.refused) == ("held", 5000.0, "infrastructure", {"request": 3})
    run.put(ev.TrialPhase(phase="teardown", **AT))
    assert t.phase == "held"
    ts = run.put(ev.TrialRetried(try_=1, by="ada", **AT))
    assert run.lines[-1] == "g1/t2 try 2 granted by ada"
    assert t == TrialState(trial=1, try_=1, phase="retrying", phase_since=ts, last_event=ts)
    run.put(ev.TrialPhase(phase="agent", try_=1, **AT), ev.TrialTurn(turn=1, try_=1, sampled_tokens=4, **AT))
    # The first try is not quite gone yet.
    run.put(ev.TrialTurn(turn=7, sampled_tokens=100, **AT), ev.TrialPhase(phase="verify", **AT))
    run.put(ev.TrialFinished(outcome="completed", reward=1.0, **AT), ev.TrialHeld(deadline=1.0, **AT))
    run.put(ev.TrialRetried(try_=1, **AT))
    assert (t.try_, t.phase, t.turns, t.sampled_tokens, t.outcome, t.reward) == (1, "agent", 1, 4, None, None)
    run.put(ev.TrialFinished(try_=1, outcome="completed", reward=0.5, **AT))
    assert (t.phase, t.outcome, t.reward, t.exception, t.retryable) == ("done", "completed", 0.5, None, False)


def test_a_later_try_may_announce_itself_by_any_event() -> None:
    run = in_step()
    run.put(ev.TrialPhase(phase="agent", **AT), ev.TrialTurn(turn=4, **AT))
    ts = run.put(ev.TrialPhase(phase="create", try_=1, **AT))
    assert (run.trial(trial=1).try_, run.trial(trial=1).started, run.trial(trial=1).turns) == (1, ts, 0)
    run.put(ev.TrialFinished(try_=2, outcome="cancelled", cause="operator", **AT))
    assert (run.trial(trial=1).try_, run.trial(trial=1).started) == (2, None)
    assert run.lines[-1] == "g1/t2 cancelled by operator" and run.state.lines[-1].level == "info"


@pytest.mark.parametrize(
    "event",
    [
        ev.TrialPhase(step=2, group=0, trial=0, phase="agent"),
        ev.TrialTurn(step=3, group=9, trial=0, turn=1),
        ev.TrialTurn(step=3, group=0, trial=2, turn=1),
        ev.TrialTurn(step=3, group=0, trial=-1, turn=1),
        ev.TrialTurn(step=3, group=0, trial=0, turn=1, try_=1),
        ev.TrialFinished(step=4, group=0, trial=0, outcome="completed", reward=1.0),
        ev.TrialHeld(step=3, group=0, trial=5),
        ev.TrialRetried(step=2, group=0, trial=0),
        ev.GroupFinished(step=3, group=7, kept=True),
        ev.CommandAccepted(id="nobody"),
        ev.CommandFinished(id="nobody", status="done"),
        ev.AlarmClosed(key="none"),
    ],
)
def test_an_event_that_does_not_fit_changes_no_group(event: ev.Event) -> None:
    run = in_step()
    before = encode_state(run.state)
    run.put(event)
    after = msgspec.structs.replace(run.state, seq=run.state.seq - 1, ts=run.state.ts - 1.0)
    after.lines = after.lines[:1]
    after.progress -= 1.0 if after.progress == run.state.ts else 0.0
    after.capture = CaptureState()  # a call is one of the run's, wherever it came from
    assert encode_state(after) == before


def test_an_event_counts_once() -> None:
    run = in_step()
    turn = ev.TrialTurn(turn=1, sampled_tokens=5, **AT)
    run.put(turn)
    apply(run.view, turn)
    apply(run.view, ev.TrialTurn(seq=2, turn=1, sampled_tokens=5, **AT))
    assert run.trial(trial=1).sampled_tokens == 5


def test_the_gateway() -> None:
    run = Run()
    up = run.put(ev.GatewayHealth(reachable=True, latency_ms=5.0, queued=1, running=2, kv_fraction=0.5))
    again = run.put(ev.GatewayHealth(reachable=True, latency_ms=7.0))
    g = run.state.gateway
    assert (g.reachable, g.latency_ms, g.queued, g.since, g.probed) == (True, 7.0, None, up, again)
    down = run.put(ev.GatewayHealth(reachable=False, detail="connection refused"))
    assert (g.reachable, g.since) == (False, down)
    run.put(ev.GatewayHealth(reachable=True))
    assert run.lines == ["gateway reachable", "gateway unreachable: connection refused", "gateway reachable"]
    assert [line.level for line in run.state.lines] == ["info", "error", "info"]


def test_capture_totals_and_rates() -> None:
    run = Run()
    run.put(ev.CaptureStats(calls=1, failed=1, prompt_tokens=100, sampled_tokens=10, lost=2, no_logprobs=3, inflight=4))
    c = run.state.capture
    assert (c.calls, c.failed, c.prompt_tokens, c.sampled_tokens) == (1, 1, 100, 10)
    assert (c.lost, c.no_logprobs, c.inflight) == (2, 3, 4)
    assert (c.sampled_per_second, c.prompt_per_second) == (None, None)
    run.put(ev.Note(text="a second passes"), ev.CaptureStats(prompt_tokens=500, sampled_tokens=50))
    assert (c.sampled_per_second, c.prompt_per_second) == (20.0, 200.0)
    run.put(ev.CaptureStats(prompt_tokens=500, sampled_tokens=50))
    assert (c.sampled_per_second, c.prompt_per_second) == (0.0, 0.0)


def test_what_calls_told_since_the_last_report_counts_until_the_next_one() -> None:
    run = Run()
    run.put(ev.CaptureStats(calls=1, prompt_tokens=100, sampled_tokens=10, trained_tokens=12))
    c = run.state.capture
    run.put(ev.TrialTurn(turn=1, prompt_tokens=30, sampled_tokens=5, status="length", **AT))
    run.put(ev.TrialTurn(turn=1, status="backend", **AT))
    assert (c.calls, c.failed, c.prompt_tokens, c.sampled_tokens) == (2, 1, 130, 15), "as an engine leaves it"
    run.put(ev.CaptureStats(calls=2, failed=1, prompt_tokens=130, sampled_tokens=15))
    assert (c.calls, c.failed, c.prompt_tokens, c.sampled_tokens) == (2, 1, 130, 15), "and not twice"
    assert (c.sampled_per_second, c.prompt_per_second) == (pytest.approx(5 / 3), 10.0), "between the two reports"
    run.put(ev.CaptureStats(calls=2, failed=1, prompt_tokens=130, sampled_tokens=15))
    assert (c.sampled_per_second, c.prompt_per_second) == (0.0, 0.0)


def test_sandboxes_and_checkpoints() -> None:
    run = Run()
    run.put(ev.SandboxStats(live=3, left=["box-1"]))
    assert (run.state.sandboxes_live, run.state.sandboxes_left) == (3, ["box-1"])
    run.put(*(ev.CheckpointSaved(name=f"{n:06d}", step=n, path="p") for n in range(CHECKPOINTS_KEPT + 2)))
    kept = run.state.checkpoints
    assert [c.step for c in kept] == list(range(2, CHECKPOINTS_KEPT + 2)) and kept[-1].ts == run.state.ts
    assert run.lines[-1] == f"checkpoint {CHECKPOINTS_KEPT + 1:06d} saved at step {CHECKPOINTS_KEPT + 1}"


def test_alarms() -> None:
    run = Run()
    since = run.put(ev.AlarmOpened(key="a", level="warning", text="slow", remedy="wait"))
    run.put(
        ev.AlarmOpened(key="a", level="critical", text="slower"), ev.AlarmOpened(key="b", level="warning", text="x")
    )
    alarm = run.state.alarms["a"]
    assert (alarm.level, alarm.text, alarm.since) == ("critical", "slower", since)
    run.put(ev.AlarmClosed(key="a"))
    assert list(run.state.alarms) == ["a", "b"] and not run.state.alarms["a"].open
    run.put(ev.AlarmAcked(key="a", by="ada"))
    assert list(run.state.alarms) == ["b"]
    assert run.lines[:4] == ["alarm: slow", "alarm: slower", "alarm: x", "alarm over: a"]
    assert [line.level for line in run.state.lines][:4] == ["warning", "error", "warning", "info"]


def test_commands() -> None:
    run = Run()
    asked = run.put(ev.CommandRequested(id="1", command="cancel group", args={"group": 1}, author="ada", reason="slow"))
    command = run.state.commands["1"]
    assert (command.status, command.args, command.author, command.reason) == ("requested", {"group": 1}, "ada", "slow")
    assert command.requested == asked
    run.put(ev.CommandAccepted(id="1", effect="2 trials end"))
    assert (command.status, command.effect) == ("accepted", "2 trials end")
    done = run.put(ev.CommandFinished(id="1", status="done", result="cancelled 2"))
    assert (command.status, command.result, command.finished) == ("done", "cancelled 2", done)
    run.put(ev.CommandAccepted(id="1", effect="late"))
    assert command.status == "done"
    assert run.lines == ["cancel group requested by ada", "cancel group done: cancelled 2"]
    run.put(*(ev.CommandRequested(id=f"n{n}", command="x") for n in range(COMMANDS_KEPT + 5)))
    assert len(run.state.commands) == COMMANDS_KEPT and "1" not in run.state.commands


def test_stop_requests_notes_repairs_and_what_is_unknown() -> None:
    run = Run()
    run.put(ev.StopRequested(when="after_step"))
    assert run.state.stop_requested == "after_step" and run.lines[-1] == "stop requested (after step)"
    run.put(ev.StopRequested(when=""))
    assert run.state.stop_requested == "" and run.lines[-1] == "stop request taken back"
    run.put(ev.Note(text="hello", level="warning"))
    assert (run.state.lines[-1].text, run.state.lines[-1].level) == ("hello", "warning")
    run.put(ev.JournalRepaired(dropped_bytes=12), ev.JournalRepaired(dropped_bytes=5))
    assert run.state.repaired_bytes == 17
    assert run.lines[-1] == "journal repaired: 5 bytes of a torn line dropped"
    lines = len(run.lines)
    run.put(ev.UnknownEvent(original="x.y"))
    assert run.state.unknown_events == 1 and len(run.lines) == lines


@pytest.mark.parametrize(
    ("outcome", "reward", "text"),
    [
        ("completed", 1.0, None),
        ("agent_timeout", 0.5, "g1/t2 agent timeout, scored r=0.50"),
        ("context_overflow", None, "g1/t2 context overflow, scored r=--"),
        ("bad_reward", None, "g1/t2 bad reward: " + "e" * 119 + "…"),
    ],
)
def test_the_line_of_an_outcome(outcome: str, reward: float | None, text: str | None) -> None:
    run = in_step()
    run.put(ev.TrialFinished(outcome=outcome, reward=reward, evidence="e" * 500 if reward is None else "", **AT))
    assert run.lines[1:] == ([text] if text is not None else [])


def test_the_lines_are_bounded() -> None:
    run = Run()
    run.put(*(ev.Note(text=str(n)) for n in range(EVENTS_KEPT + 30)))
    assert len(run.lines) == EVENTS_KEPT and run.lines[-1] == str(EVENTS_KEPT + 29)


def test_the_state_survives_its_own_encoding() -> None:
    run = in_step()
    run.put(ev.TrialFinished(outcome="completed", reward=1 / 3, seconds={"agent": 0.1}, **AT))
    run.put(ev.GatewayHealth(reachable=True), ev.CommandRequested(id="1", command="x", args={"a": None, "b": 1.0}))
    assert decode_state(encode_state(run.state)) == run.state
    with pytest.raises(ValueError, match="run_id"):
        decode_state(b'{"run_id":5}')


def test_a_snapshot_restates_the_state_where_it_fits() -> None:
    whole = in_step()
    snapshot = ev.Snapshot(seq=whole.state.seq + 1, ts=5000.0, state=msgspec.Raw(encode_state(whole.state)))
    late = fold([snapshot])
    apply(whole.view, snapshot)
    assert late.state == whole.view.state and late.state.seq == snapshot.seq and late.state.ts == 5000.0
    assert state_of(snapshot) == late.state
    for wrong in (
        ev.Snapshot(seq=snapshot.seq + 1, state=snapshot.state),
        ev.Snapshot(seq=snapshot.seq, state=msgspec.Raw(b'{"seq":"x"}')),
    ):
        assert state_of(wrong) is None
        assert fold([wrong]).state.run_id == ""


def test_mean_and_std() -> None:
    assert mean_and_std([]) == (None, None)
    assert mean_and_std([2.0]) == (2.0, 0.0)
    mean, std = mean_and_std([0.0, 1.0, 1.0, 1.0])
    assert mean == 0.75 and std is not None and math.isclose(std, math.sqrt(3) / 4)
