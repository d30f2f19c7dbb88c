"""What each alarm rule says at its threshold, below it, and where it must be silent."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from console.journal import events as ev
from console.state.alarms import alarms
from console.state.findings import Finding, Look
from console.state.model import (
    CheckpointState,
    GatewayState,
    GroupState,
    HostState,
    TrialBrief,
    TrialState,
)
from console.state.reduce import RunView
from console.state.rules_capture import scattered

NOW = 1_700_000_000.0
GB = 1_000_000_000
Change = Callable[[RunView], None]


def live(*changes: Change) -> RunView:
    """A healthy run in its seventh step: six equal steps behind it, one group of two agents at work."""
    view = RunView()
    s = view.state
    s.status, s.phase, s.on_failure = "live", "rollout", "retry"
    s.started = s.engine_started = NOW - 700.0
    s.step, s.step_started, s.progress, s.steps_done = 6, NOW - 50.0, NOW - 1.0, 6
    s.gateway = GatewayState(reachable=True, since=NOW - 9e4, probed=NOW, latencies=[100.0] * 20, latency_ms=100.0)
    s.groups = {0: GroupState(group=0, task="t", trials=[agent(0), agent(1)])}
    s.host = HostState(disk_free=50 * GB, disk_total=100 * GB, rss=GB, memory_total=100 * GB, loop_lag=0.01)
    s.host.reported = NOW - 5.0
    for step in range(6):
        view.history.add(row(step))
    for change in changes:
        change(view)
    return view


def agent(trial: int, **more: Any) -> TrialState:
    values = {"phase": "agent", "phase_since": NOW - 40.0, "last_event": NOW - 1.0} | more
    return TrialState(trial=trial, **values)


def row(step: int, **more: Any) -> ev.StepFinished:
    values: dict[str, Any] = {
        "reward_mean": 0.5, "reward_std": 0.2, "groups_kept": 4, "groups_zero_variance": 1, "clip_fraction": 0.05,
        "kl_sample_train_v1": 0.004, "entropy": 1.0, "grad_norm": 2.0, "seconds_rollout": 80.0, "seconds_train": 15.0,
        "seconds_save": 5.0, "seconds_total": 100.0,
    }  # fmt: skip
    return ev.StepFinished(step=step, ts=NOW - 700.0 + 100.0 * (step + 1), **values | more)


def state(**values: Any) -> Change:
    return lambda view: [setattr(view.state, name, value) for name, value in values.items()] and None


def part(name: str, **values: Any) -> Change:
    def change(view: RunView) -> None:
        for key, value in values.items():
            setattr(getattr(view.state, name), key, value)

    return change


def rows(*changed: dict[str, Any], base: int = 6) -> Change:
    """`base` usual steps, then these."""

    def change(view: RunView) -> None:
        view.history.rows = [row(n, **({} if n < base else changed[n - base])) for n in range(base + len(changed))]

    return change


def trials(*found: TrialState) -> Change:
    return lambda view: view.state.groups[0].trials.__setitem__(slice(None), list(found))


def ended(*outcomes: str, task: str = "t", exception: str = "", cause: str = "") -> list[TrialBrief]:
    return [
        TrialBrief(task=task, outcome=o, exception=exception if o != "completed" else "", cause=cause) for o in outcomes
    ]


def recent(*briefs: list[TrialBrief]) -> Change:
    return state(recent=[b for group in briefs for b in group])


def spread(outcome: str, count: int, total: int = 20) -> list[TrialBrief]:
    """`count` of `total` trials, of two tasks, ended so; never two in a row."""
    found = ended(*["completed"] * total)
    for n in range(count):
        found[2 * n] = TrialBrief(task=f"t{n % 2}", outcome=outcome, exception=f"Error{n}")
    return found


def tune(**values: float) -> Change:
    return state(thresholds=values)


def phase(name: str, seconds: float, trial: int = 0, last: float | None = None) -> TrialState:
    return agent(trial, phase=name, phase_since=NOW - seconds, last_event=NOW - (seconds if last is None else last))


def levels(view: RunView, now: float = NOW) -> dict[str, str]:
    return {key: finding.level for key, finding in alarms(view, now).items()}


def one(view: RunView, key: str) -> Finding:
    return alarms(view, NOW)[key]


def test_a_healthy_run_has_no_alarm() -> None:
    assert alarms(live(), NOW) == {}


W, C = "warning", "critical"
DOWN = part("gateway", reachable=False, since=NOW - 10.0, detail="refused")
HOLD = [phase("held", 60.0), phase("done", 1.0, 1)]
CASES: list[tuple[str, str, str | None, tuple[Change, ...]]] = [
    # --- gateway ---
    ("down", "gateway.unreachable", C, (DOWN,)),
    ("down, not for long", "gateway.unreachable", None, (part("gateway", reachable=False, since=NOW - 9.9),)),
    ("down, own bound", "gateway.unreachable", None, (DOWN, tune(gateway_down_seconds=10.1))),
    ("not probed", "gateway.unreachable", None, (part("gateway", reachable=None, since=0.0),)),
    ("slow", "gateway.slow", W, (part("gateway", latencies=[200.0] * 17 + [600.0] * 3),)),
    ("slow, just not", "gateway.slow", None, (part("gateway", latencies=[200.1] * 17 + [600.0] * 3),)),
    ("slow, one answer", "gateway.slow", None, (part("gateway", latencies=[200.0] * 19 + [6000.0]),)),
    ("very slow", "gateway.slow", C, (part("gateway", latencies=[200.0] * 17 + [2000.0] * 3),)),
    ("slow for one so fast", "gateway.slow", None, (part("gateway", latencies=[5.0] * 17 + [499.0] * 3),)),
    ("slow, few reports", "gateway.slow", None, (part("gateway", latencies=[200.0] * 8 + [900.0] * 3),)),
    ("slow, then down", "gateway.slow", None, (part("gateway", latencies=[200.0] * 17 + [900.0] * 3), DOWN)),
    ("slow for long is still slow", "gateway.slow", W, (part("gateway", latencies=[200.0] * 20 + [900.0] * 40),)),
    ("full", "gateway.full", W, (part("gateway", kv_fraction=0.91),)),
    ("not full", "gateway.full", None, (part("gateway", kv_fraction=0.90),)),
    ("quite full", "gateway.full", C, (part("gateway", kv_fraction=0.96),)),
    ("full, but down", "gateway.full", None, (part("gateway", kv_fraction=0.96), DOWN)),
    ("queue paused", "gateway.queue", W, (part("gateway", queue="paused_capacity", queue_reason="full"),)),
    ("queue paused by a limit", "gateway.queue", W, (part("gateway", queue="paused_rate_limit"),)),
    ("queue active", "gateway.queue", None, (part("gateway", queue="active"),)),
    ("queue unheard of", "gateway.queue", None, (part("gateway", queue="paused_for_tea"),)),
    ("queue paused, then down", "gateway.queue", None, (part("gateway", queue="paused_capacity"), DOWN)),
    ("held back", "gateway.backoff", W, (part("gateway", backoff=2.0),)),
    ("held back, then down", "gateway.backoff", None, (part("gateway", backoff=2.0), DOWN)),
    ("heartbeat", "gateway.heartbeat", W, (part("gateway", heartbeat_age=30.0),)),
    ("heartbeat, young", "gateway.heartbeat", None, (part("gateway", heartbeat_age=29.9),)),
    ("heartbeat, old", "gateway.heartbeat", C, (part("gateway", heartbeat_age=120.0),)),
    ("heartbeat, less than half the lease", "gateway.heartbeat", W,
     (part("gateway", heartbeat_age=149.0, lease=300.0, lease_left=151.0),)),
    ("heartbeat, half the lease", "gateway.heartbeat", C,
     (part("gateway", heartbeat_age=150.0, lease=300.0, lease_left=150.0),)),
    ("heartbeat, own bound", "gateway.heartbeat", W,
     (part("gateway", heartbeat_age=5.0), tune(gateway_heartbeat_seconds=5.0))),
    ("heartbeat, but down", "gateway.heartbeat", None, (part("gateway", heartbeat_age=150.0), DOWN)),
    ("operation", "gateway.operation", W, (part("gateway", oldest={"optim_step": 900.0}, pending={"optim_step": 1}),)),
    ("operation, not long", "gateway.operation", None, (part("gateway", oldest={"optim_step": 899.0}),)),
    ("operation, very long", "gateway.operation", C, (part("gateway", oldest={"optim_step": 2700.0}),)),
    ("operation, as long as ever", "gateway.operation", None,
     (rows(*[{"seconds_train": 301.0}] * 20), part("gateway", oldest={"forward_backward": 900.0}))),
    ("sample", "gateway.operation", W, (part("gateway", oldest={"sample": 1800.0, "optim_step": 5.0}),)),
    ("sample, not long", "gateway.operation", None, (part("gateway", oldest={"sample": 1799.0}),)),
    ("operation, but down", "gateway.operation", None, (part("gateway", oldest={"sample": 9e9}), DOWN)),
    ("waits", "gateway.waiting", None, (part("gateway", waiting="no free slot", waiting_until=NOW - 30.0),)),
    ("waits too long", "gateway.waiting", W, (part("gateway", waiting="no free slot", waiting_until=NOW - 31.0),)),
    ("waits, nobody knows how long", "gateway.waiting", None, (part("gateway", waiting="no free slot"),)),
    # --- progress ---
    ("quiet, waits for the gateway", "run.no_progress", None,
     (state(progress=NOW - 1800.0), part("gateway", waiting="no free slot", waiting_until=NOW + 9.0))),
    ("quiet", "run.no_progress", W, (state(progress=NOW - 600.0),)),
    ("quiet, not long", "run.no_progress", None, (state(progress=NOW - 599.0),)),
    ("quiet, very", "run.no_progress", C, (state(progress=NOW - 1800.0),)),
    ("quiet, long phases", "run.no_progress", None,
     (rows(*[{"seconds_rollout": 900.0}] * 20), state(progress=NOW - 2699.0))),
    ("quiet, longer than long phases", "run.no_progress", W,
     (rows(*[{"seconds_rollout": 900.0}] * 20), state(progress=NOW - 2700.0))),
    ("quiet, six times", "run.no_progress", C,
     (rows(*[{"seconds_rollout": 900.0}] * 20), state(progress=NOW - 5400.0))),
    ("quiet in training, which is short", "run.no_progress", W,
     (rows(*[{"seconds_rollout": 900.0}] * 20), state(progress=NOW - 600.0, phase="training"))),
    ("quiet, two steps tell nothing", "run.no_progress", C,
     (lambda v: v.history.rows.__setitem__(slice(None), [row(0, seconds_rollout=9e3), row(1, seconds_rollout=9e3)]),
      state(progress=NOW - 1800.0))),
    ("quiet, gateway down", "run.no_progress", None, (state(progress=NOW - 1800.0), DOWN)),
    ("quiet, gateway just back", "run.no_progress", None,
     (state(progress=NOW - 1800.0), part("gateway", since=NOW - 10.0))),
    ("quiet, all held", "run.no_progress", None, (state(progress=NOW - 1800.0), trials(*HOLD))),
    ("quiet, one held, one at work", "run.no_progress", C,
     (state(progress=NOW - 1800.0), trials(HOLD[0], agent(1)))),
    ("quiet, paused", "run.no_progress", None,
     (state(progress=NOW - 1800.0, paused=True), trials(phase("queued", 1800.0)))),
    ("paused is said instead", "run.paused", W,
     (state(progress=NOW - 1800.0, paused=True, dispatch_since=NOW - 600.0), trials(phase("queued", 1800.0)))),
    ("paused, not long", "run.paused", None,
     (state(progress=NOW - 1800.0, paused=True, dispatch_since=NOW - 599.0), trials(phase("queued", 1800.0)))),
    ("paused, a trial hangs", "run.no_progress", C, (state(progress=NOW - 1800.0, paused=True),)),
    ("paused, training hangs", "run.no_progress", C,
     (state(progress=NOW - 1800.0, paused=True, phase="training"), trials(phase("done", 1800.0)))),
    ("just resumed", "run.no_progress", None,
     (state(progress=NOW - 1800.0, dispatch_since=NOW - 5.0), trials(phase("queued", 1800.0)))),
    ("the end hangs", "run.no_progress", C, (state(progress=NOW - 1800.0, status="stopping", phase="stopping"),)),
    ("slow step", "step.slow", W, (state(step_started=NOW - 201.0),)),
    ("step not slow", "step.slow", None, (state(step_started=NOW - 200.0),)),
    ("slow step, short steps", "step.slow", None,
     (rows(*[{"seconds_total": 5.0}] * 20), state(step_started=NOW - 35.0))),
    ("slow step, a new run", "step.slow", None,
     (lambda v: v.history.rows.__delitem__(slice(4, None)), state(step_started=NOW - 900.0))),
    ("slow step, held", "step.slow", None, (state(step_started=NOW - 201.0), trials(*HOLD))),
    ("slow step, paused", "step.slow", None, (state(step_started=NOW - 201.0, paused=True),)),
    ("slow step, gateway down", "step.slow", None, (state(step_started=NOW - 201.0), DOWN)),
    ("slow step, applied again ones are no measure", "step.slow", None,
     (rows(*[{"seconds_total": 5.0, "replayed": True}] * 20), state(step_started=NOW - 150.0))),
    ("slow step, nor those that were recovered", "step.slow", None,
     (rows(*[{"seconds_total": 5.0, "recovered": True}] * 20), state(step_started=NOW - 150.0))),
    ("slow step, queue paused", "step.slow", None,
     (state(step_started=NOW - 201.0), part("gateway", queue="paused_capacity"))),
    ("slow step, sandboxes fail", "step.slow", None,
     (state(step_started=NOW - 201.0), recent(ended(*["infrastructure"] * 3)))),
    # --- checkpoints and budgets ---
    ("old checkpoint", "checkpoint.old", W, (state(engine_started=NOW - 7201.0),)),
    ("not old", "checkpoint.old", None, (state(engine_started=NOW - 7200.0),)),
    ("saved meanwhile", "checkpoint.old", None,
     (state(engine_started=NOW - 9e4, checkpoints=[CheckpointState(name="a", step=5, ts=NOW - 7200.0)]),)),
    ("saved long ago", "checkpoint.old", W,
     (state(engine_started=NOW - 9e4, checkpoints=[CheckpointState(name="a", step=5, ts=NOW - 7201.0)]),)),
    ("nothing trained since", "checkpoint.old", None,
     (state(engine_started=NOW - 9e4, checkpoints=[CheckpointState(name="a", step=5, ts=NOW - 8e3)]),
      lambda v: [setattr(r, "ts", NOW - 8500.0) for r in v.history.rows] and None)),
    ("rarely saved", "checkpoint.old", None,
     (rows(*[{"seconds_total": 400.0}] * 20), state(engine_started=NOW - 15999.0))),
    ("more rarely saved", "checkpoint.old", W,
     (rows(*[{"seconds_total": 400.0}] * 20), state(engine_started=NOW - 16001.0))),
    ("saved often by choice", "checkpoint.old", W,
     (rows(*[{"seconds_total": 400.0}] * 20), state(engine_started=NOW - 7201.0, config={"config.save_every": 5}))),
    ("tokens", "budget.token", W,
     (state(tunables={"token_budget": 1000.0}), part("capture", prompt_tokens=700, sampled_tokens=100))),
    ("tokens, enough", "budget.token", None,
     (state(tunables={"token_budget": 1000.0}), part("capture", prompt_tokens=700, sampled_tokens=99))),
    ("tokens, all", "budget.token", C,
     (state(tunables={"token_budget": 1000.0}), part("capture", prompt_tokens=900, sampled_tokens=100))),
    ("tokens, no budget", "budget.token", None,
     (state(tunables={"token_budget": None}), part("capture", prompt_tokens=900))),
    ("time", "budget.time", W, (state(tunables={"time_budget": 875.0}),)),
    ("time, enough", "budget.time", None, (state(tunables={"time_budget": 876.0}),)),
    ("time, all", "budget.time", C, (state(tunables={"time_budget": 700.0}),)),
    ("time of this engine only", "budget.time", None, (state(tunables={"time_budget": 876.0}, started=NOW - 9e5),)),
    # --- host ---
    ("disk, a share", "host.disk", W, (part("host", disk_free=9 * GB),)),
    ("disk, enough", "host.disk", None, (part("host", disk_free=10 * GB),)),
    ("disk, small", "host.disk", W, (part("host", disk_free=4 * GB, disk_total=20 * GB),)),
    ("disk, own bound", "host.disk", W, (part("host", disk_free=40 * GB), tune(disk_free_gb=41.0))),
    ("disk, small share of a great one", "host.disk", None, (part("host", disk_free=101 * GB, disk_total=9000 * GB),)),
    ("disk, nearly full", "host.disk", C, (part("host", disk_free=19 * GB, disk_total=1000 * GB),)),
    ("disk, hardly anything", "host.disk", C, (part("host", disk_free=GB // 2, disk_total=2 * GB),)),
    ("disk, old news", "host.disk", None, (part("host", disk_free=GB // 2, reported=NOW - 301.0),)),
    ("disk, at the end too", "host.disk", C, (part("host", disk_free=GB // 2), state(status="stopping"))),
    ("memory", "host.memory", W, (part("host", rss=81 * GB),)),
    ("memory, enough", "host.memory", None, (part("host", rss=80 * GB),)),
    ("memory, most", "host.memory", C, (part("host", rss=91 * GB),)),
    ("memory unknown", "host.memory", None, (part("host", rss=91 * GB, memory_total=None),)),
    ("clock set back", "host.clock", W, (part("host", stepped=-7200.0, stepped_at=NOW - 900.0),)),
    ("clock set forward", "host.clock", W, (part("host", stepped=31.0, stepped_at=NOW),)),
    ("clock corrected", "host.clock", None, (part("host", stepped=-29.0, stepped_at=NOW),)),
    ("clock set back long ago", "host.clock", None, (part("host", stepped=-7200.0, stepped_at=NOW - 901.0),)),
    ("lag", "host.loop_lag", W, (part("host", loop_lag=0.6),)),
    ("no lag", "host.loop_lag", None, (part("host", loop_lag=0.5),)),
    ("great lag", "host.loop_lag", C, (part("host", loop_lag=5.1),)),
    ("lag while it loads", "host.loop_lag", None, (part("host", loop_lag=5.1), state(phase="connecting"))),
    # --- trials ---
    ("held", "held.g1", C, (trials(*HOLD),)),
    ("held, while it stops", "held.g1", C, (trials(*HOLD), state(status="stopping"))),
    ("infrastructure", "trials.infrastructure", W, (recent(spread("infrastructure", 1)),)),
    ("infrastructure, few trials", "trials.infrastructure", None, (recent(spread("infrastructure", 2, 19)),)),
    ("infrastructure, rare", "trials.infrastructure", None, (recent(spread("infrastructure", 1, 21)),)),
    ("infrastructure, often", "trials.infrastructure", C, (recent(spread("infrastructure", 4)),)),
    ("infrastructure, not that often", "trials.infrastructure", W, (recent(spread("infrastructure", 3)),)),
    ("in a row", "trials.infrastructure", C, (recent(ended("completed", *["infrastructure"] * 3)),)),
    ("two in a row", "trials.infrastructure", None, (recent(ended("completed", *["infrastructure"] * 2)),)),
    ("the row has ended", "trials.infrastructure", None, (recent(ended(*["infrastructure"] * 3, "completed")),)),
    ("a row of one task of several", "trials.infrastructure", None,
     (recent(ended("completed", task="u"), ended(*["infrastructure"] * 3)),)),
    ("cancelled ones are no failures and no cure", "trials.infrastructure", C,
     (recent(ended("infrastructure", "infrastructure", "cancelled", "infrastructure")),)),
    ("the task is in quarantine", "trials.infrastructure", None,
     (recent(ended(*["infrastructure"] * 3)), state(quarantined=["t"]))),
    ("same failure", "task.failing.t", W, (recent(ended(*["agent_failure"] * 3, exception="KeyError")),)),
    ("same failure, twice", "task.failing.t", None, (recent(ended(*["agent_failure"] * 2, exception="KeyError")),)),
    ("same failure, own bound", "task.failing.t", W,
     (recent(ended(*["agent_failure"] * 2, exception="KeyError")), tune(same_failures=2.0))),
    ("different failures", "task.failing.t", None,
     (recent(ended(*["agent_failure"] * 2, exception="KeyError"), ended("agent_failure", exception="OSError")),)),
    ("it worked since", "task.failing.t", None,
     (recent(ended(*["agent_failure"] * 3, "completed", exception="KeyError")),)),
    ("a scored time-out is no failure", "task.failing.t", None,
     (recent(ended(*["agent_timeout"] * 3, exception="AgentTimeoutError")),)),
    ("everybody's failure", "task.failing.t", None,
     (recent(*[ended(*["infrastructure"] * 3, task=task, exception="BoxError") for task in ("t", "u")]),)),
    ("others' other failure", "task.failing.t", W,
     (recent(ended(*["infrastructure"] * 3, task="u", exception="E"), ended(*["agent_failure"] * 3, exception="F")),)),
    ("same failure, in quarantine", "task.failing.t", None,
     (recent(ended(*["agent_failure"] * 3, exception="KeyError")), state(quarantined=["t"]))),
    ("many tasks fail", "task.failing.many", C,
     (recent(*[ended(*["agent_failure"] * 3, task=f"t{n}", exception=f"E{n}") for n in range(4)]),)),
    ("many tasks fail: not one by one", "task.failing.t0", None,
     (recent(*[ended(*["agent_failure"] * 3, task=f"t{n}", exception=f"E{n}") for n in range(4)]),)),
    ("verifier", "verifier.broken.t", W, (recent(ended("bad_reward", "completed", "bad_reward", "bad_reward")),)),
    ("verifier, all trials", "verifier.broken.t", W, (recent(ended("bad_reward", "bad_reward")),)),
    ("verifier, one trial", "verifier.broken.t", None, (recent(ended("bad_reward")),)),
    ("verifier, two of three", "verifier.broken.t", None, (recent(ended("completed", "bad_reward", "bad_reward")),)),
    ("verifier, mended", "verifier.broken.t", None, (recent(ended(*["bad_reward"] * 3, "completed")),)),
    ("verifier, in quarantine", "verifier.broken.t", None,
     (recent(ended(*["bad_reward"] * 3)), state(quarantined=["t"]))),
    ("verify hangs", "stalled.g1/t1", W, (trials(phase("verify", 600.0)),)),
    ("verify, not long", "stalled.g1/t1", None, (trials(phase("verify", 599.0)),)),
    ("environment hangs", "stalled.g1/t2", W, (trials(agent(0), phase("environment", 600.0, 1)),)),
    ("setup, own bound", "stalled.g1/t1", W, (trials(phase("setup", 60.0)), tune(stall_seconds=60.0))),
    ("agent without a call", "stalled.g1/t1", W, (trials(phase("agent", 9000.0, last=1200.0)),)),
    ("agent with calls", "stalled.g1/t1", None, (trials(phase("agent", 9000.0, last=1199.0)),)),
    ("agent without a call, gateway down", "stalled.g1/t1", None, (trials(phase("agent", 9000.0)), DOWN)),
    ("queued for long", "stalled.g1/t1", None, (trials(phase("queued", 9000.0)),)),
    ("many stall", "stalled.many", W, (trials(*[phase("verify", 600.0, n) for n in range(4)]),)),
    ("three stall", "stalled.many", None, (trials(*[phase("verify", 600.0, n) for n in range(3)]),)),
    ("time-outs", "limit.agent_timeout", W, (recent(spread("agent_timeout", 5)),)),
    ("time-outs, some", "limit.agent_timeout", None, (recent(spread("agent_timeout", 4)),)),
    ("time-outs, most", "limit.agent_timeout", C, (recent(spread("agent_timeout", 10)),)),
    ("time-outs, few trials", "limit.agent_timeout", None, (recent(spread("agent_timeout", 9, 19)),)),
    ("time-outs, as the gateway is down", "limit.agent_timeout", None, (recent(spread("agent_timeout", 5)), DOWN)),
    ("overflows", "limit.context_overflow", W, (recent(spread("context_overflow", 5)),)),
    ("output limits", "limit.output_limit", W, (recent(spread("output_limit", 5)),)),
    ("lost", "capture.lost", C, (part("capture", lost=1),)),
    ("no log-probs", "capture.no_logprobs", C, (part("capture", no_logprobs=1),)),
    ("left", "sandbox.left", W, (state(sandboxes_left=["box"]),)),
    ("left at the end", "sandbox.left", W, (state(sandboxes_left=["box"], status="stopping"),)),
    ("orphaned", "sandbox.orphaned", W, (part("sandboxes", orphaned=["box"]),)),
    ("orphaned at the end", "sandbox.orphaned", W, (part("sandboxes", orphaned=["box"]), state(status="stopping"))),
    ("none left", "sandbox.orphaned", None, (part("sandboxes", oldest=NOW - 9e4),)),
    # --- learning ---
    ("no signal", "learning.no_signal", W, (rows(*[{"groups_zero_variance": 2}] * 2),)),
    ("no signal, one step", "learning.no_signal", None, (rows({"groups_zero_variance": 4}),)),
    ("signal", "learning.no_signal", None, (rows(*[{"groups_zero_variance": 1}] * 2),)),
    ("none at all", "learning.no_signal", C, (rows(*[{"groups_zero_variance": 4}] * 3),)),
    ("none at all, two steps", "learning.no_signal", W, (rows(*[{"groups_zero_variance": 4}] * 2),)),
    ("no group kept", "learning.no_signal", None, (rows(*[{"groups_kept": 0, "groups_zero_variance": 0}] * 3),)),
    ("not finite", "learning.nonfinite", C, (rows({"nonfinite": ["entropy"]}),)),
    ("not finite, but that is over", "learning.nonfinite", None, (rows({"nonfinite": ["entropy"]}, {}),)),
    ("kl", "learning.kl", W, (rows(*[{"kl_sample_train_v1": 0.0121}] * 2),)),
    ("kl, one step", "learning.kl", None, (rows({"kl_sample_train_v1": 0.0121}),)),
    ("kl, as ever", "learning.kl", None, (rows(*[{"kl_sample_train_v1": 0.0119}] * 2),)),
    ("kl, a multiple of very little", "learning.kl", None,
     (rows(*[{"kl_sample_train_v1": 0.0001}] * 5, *[{"kl_sample_train_v1": 0.0099}] * 2, base=0),)),
    ("kl, ten times", "learning.kl", C, (rows({"kl_sample_train_v1": 0.041}),)),
    ("kl, great", "learning.kl", C, (rows({"kl_sample_train_v1": 0.11}, base=1),)),
    ("kl, not that great, new run", "learning.kl", None, (rows({"kl_sample_train_v1": 0.1}, base=1),)),
    ("kl, high from the start", "learning.kl", None, (rows(*[{"kl_sample_train_v1": 0.05}] * 9, base=0),)),
    ("kl, the step before unknown", "learning.kl", None,
     (rows({"kl_sample_train_v1": None}, {"kl_sample_train_v1": 0.0121}),)),
    ("kl, unknown", "learning.kl", None, (rows(*[{"kl_sample_train_v1": None}] * 2),)),
    ("clip", "learning.clip", W, (rows(*[{"clip_fraction": 0.21}] * 2),)),
    ("clip, one step", "learning.clip", None, (rows({"clip_fraction": 0.21}),)),
    ("clip, at the bound", "learning.clip", None, (rows(*[{"clip_fraction": 0.2}] * 2),)),
    ("clip, most", "learning.clip", C, (rows({"clip_fraction": 0.51}),)),
    ("entropy falls", "learning.entropy_low", W, (rows(*[{"entropy": 0.49}] * 2),)),
    ("entropy, one step", "learning.entropy_low", None, (rows({"entropy": 0.49}),)),
    ("entropy, at the bound", "learning.entropy_low", None, (rows(*[{"entropy": 0.5}] * 2),)),
    ("entropy collapses", "learning.entropy_low", C, (rows({"entropy": 0.19}),)),
    ("entropy rises", "learning.entropy_high", W, (rows(*[{"entropy": 2.1}] * 2),)),
    ("entropy, not that high", "learning.entropy_high", None, (rows(*[{"entropy": 2.0}] * 2),)),
    ("entropy explodes", "learning.entropy_high", C, (rows({"entropy": 4.1}),)),
    ("entropy, a new run", "learning.entropy_low", None, (rows({"entropy": 0.1}, base=4),)),
    ("gradient", "learning.gradient", W, (rows({"grad_norm": 20.1}),)),
    ("gradient, at the bound", "learning.gradient", None, (rows({"grad_norm": 20.0}),)),
    ("gradient, enormous", "learning.gradient", C, (rows({"grad_norm": 2001.0}),)),
    ("gradient, over", "learning.gradient", None, (rows({"grad_norm": 2001.0}, {}),)),
    ("gradient, a new run", "learning.gradient", None, (rows({"grad_norm": 99.0}, base=4),)),
    ("gradient, unknown now", "learning.gradient", None, (rows({"grad_norm": 99.0}, {"grad_norm": None}),)),
    ("reward falls", "learning.reward_drop", W, (rows(*[{"reward_mean": 0.25}] * 3, base=10),)),
    ("reward, less", "learning.reward_drop", None, (rows(*[{"reward_mean": 0.26}] * 3, base=10),)),
    ("reward, few steps", "learning.reward_drop", None, (rows(*[{"reward_mean": 0.0}] * 3, base=9),)),
    ("reward, as it varies", "learning.reward_drop", None,
     (rows(*[{"reward_mean": r} for r in [0.1, 0.9] * 5], *[{"reward_mean": 0.2}] * 3, base=0),)),
    ("reward rises", "learning.reward_drop", None, (rows(*[{"reward_mean": 1.0}] * 3, base=10),)),
]  # fmt: skip


@pytest.mark.parametrize(("key", "level", "changes"), [c[1:] for c in CASES], ids=[f"{c[1]}: {c[0]}" for c in CASES])
def test_a_rule(key: str, level: str | None, changes: tuple[Change, ...]) -> None:
    view = live(*changes)
    assert levels(view).get(key) == level
    for finding in alarms(view, NOW).values():
        assert finding.text and finding.consequence and finding.remedy, finding


def test_every_rule_is_in_the_table() -> None:
    told = {key.rstrip("0123456789") for _, key, level, _ in CASES if level}
    for name in ("run.paused", "step.slow", "checkpoint.old", "host.disk", "limit.output_limit", "learning.gradient"):
        assert name in told
    assert len({key.split(".")[0] + "." + key.split(".")[1] for key in told if "." in key}) >= 25


@pytest.mark.parametrize("status", ["starting", "finished", "stopped", "failed"])
def test_a_run_that_is_over_or_not_yet_there_has_no_alarms(status: str) -> None:
    view = live(DOWN, part("capture", lost=1), part("host", disk_free=1), state(status=status))
    assert alarms(view, NOW) == {}


def test_a_run_that_ends_gets_no_advice() -> None:
    changes = [part("capture", lost=1), rows({"nonfinite": ["x"]}), trials(phase("verify", 9000.0))]
    assert set(levels(live(*changes, state(status="stopping")))) == {"capture.lost"}


def test_the_texts_of_a_held_trial() -> None:
    held = agent(
        0, phase="held", outcome="infrastructure", cause="sandbox", exception="Box\x1b[31mError", retryable=True
    )
    held.hold_deadline = NOW + 120.0
    finding = one(live(trials(held, *[phase("held", 1.0, n) for n in (1, 2)])), "held.g1")
    assert finding.text.endswith("and 2 more: held")
    held.hold_deadline, later = NOW + 60.0, phase("held", 1.0, 1)
    later.hold_deadline = NOW + 90.0
    finding = one(live(trials(later, held)), "held.g1")
    assert finding.text == "g1/t1 infrastructure sandbox BoxError and 1 more: held"
    assert finding.consequence == "the run stops at 22:14 UTC" and finding.action == "retry"
    told = finding.material
    held.hold_deadline, later.hold_deadline = NOW + 360.0, NOW + 390.0
    moved = one(live(trials(later, held)), "held.g1")
    assert moved.consequence != finding.consequence and moved.material != told, "the new deadline is told"
    held.retryable = False
    assert one(live(trials(held)), "held.g1").action == "cancel_group"


def test_what_infrastructure_failures_lead_to() -> None:
    fails = recent(spread("infrastructure", 4))
    assert one(live(fails, state(on_failure="hold")), "trials.infrastructure").consequence.endswith("the operator")
    finding = one(live(fails), "trials.infrastructure")
    assert finding.action == "pause" and finding.text.startswith("4 of the last 20 trials")
    assert one(live(fails, state(paused=True)), "trials.infrastructure").action == "set"


def test_solved_tasks_are_no_riddle() -> None:
    """Groups agree since every trial succeeds: no alarm while some still learn, and a calm one when none does."""
    agree = {"groups_zero_variance": 3, "reward_mean": 0.95}
    assert levels(live(rows(*[agree] * 4))) == {}
    done = {"groups_zero_variance": 4, "reward_mean": 1.0}
    finding = one(live(rows(*[done] * 4)), "learning.no_signal")
    assert finding.level == "warning" and "solved" in finding.text
    failed = one(live(rows(*[done | {"reward_mean": 0.0}] * 3)), "learning.no_signal")
    assert failed.level == "critical" and "too hard" in failed.remedy


def test_entropy_that_falls_while_rewards_rise_is_learning() -> None:
    low = {"entropy": 0.1}
    assert levels(live(rows(*[low | {"reward_mean": 0.52}] * 4)))["learning.entropy_low"] == "critical"
    assert levels(live(rows(*[low | {"reward_mean": 0.6}] * 4))) == {}
    solved = low | {"reward_mean": 0.9, "groups_zero_variance": 3}
    assert levels(live(rows(*[solved] * 30))) == {}
    assert levels(live(rows(*[solved | {"groups_zero_variance": 0}] * 30)))["learning.entropy_low"] == "critical"
    high = {"entropy": 9.0, "reward_mean": 0.9}
    assert levels(live(rows(*[high] * 4)))["learning.entropy_high"] == "critical"


def test_figures_of_steps_must_stay_good_for_two_steps() -> None:
    assert one(live(rows({"clip_fraction": 0.9})), "learning.clip").clear == 200.0


def test_hostile_names_are_clean_and_bounded() -> None:
    evil = "x\x1b]0;PWNED\x07\u202e" + "y" * 500
    view = live(
        recent(ended(*["bad_reward"] * 3, task=evil), ended(*["agent_failure"] * 3, task=f"b{evil}", exception=evil)),
        state(sandboxes_left=[evil] * 9, paused_by=evil, phase=evil, progress=NOW - 9e3),
        part("gateway", detail=evil),
        rows({"nonfinite": [evil] * 99}),
    )
    for now in (NOW, 1e300, -1e300):
        for key, finding in alarms(view, now).items():
            for text in (key, finding.text, finding.consequence, finding.remedy):
                assert text.isprintable() and len(text) < 600 and "\u202e" not in text
    assert alarms(live(trials(agent(0, phase="held", hold_deadline=1e300))), NOW)["held.g1"].consequence


def test_texts_do_not_count_seconds() -> None:
    """What runs on must not be news each second."""
    view = live(
        state(progress=NOW - 2000.0, step_started=NOW - 900.0, engine_started=NOW - 9e3),
        trials(phase("verify", 700.0)),
    )
    view.history.rows = [row(n) for n in range(6)]
    first, then = alarms(view, NOW), alarms(view, NOW + 77.0)
    assert {"run.no_progress", "step.slow", "stalled.g1/t1", "checkpoint.old"} <= first.keys()
    assert [f.text for f in first.values()] == [f.text for f in then.values()]


def test_calls_that_extend_nothing() -> None:
    few = part("capture", bridged=3, unbridged={"first": 90, "rewritten": 6})
    assert levels(live(few)) == {}
    first = part("capture", bridged=40, unbridged={"first": 900, "rewritten": 20})
    assert levels(live(first)) == {}  # beginnings are no fault
    finding = one(
        live(part("capture", bridged=10, unbridged={"first": 9, "tools": 30, "rewritten": 40})), "capture.unbridged"
    )
    assert finding.text.startswith("12 %") and "rewrote its history" in finding.text


def test_a_temperature_that_the_trainer_does_not_know() -> None:
    one_only = {"temperature_low": 1.0, "temperature_high": 1.0, "tempered": True}
    assert levels(live(part("capture", **one_only))) == {}
    cold = one_only | {"temperature_low": 0.8}
    finding = one(live(part("capture", **cold)), "sampling.temperature")
    assert "0.8 to 1" in finding.text and "start away from 1" in finding.consequence
    assert "start at 1" in one(live(part("capture", **cold | {"tempered": False})), "sampling.temperature").consequence
    assert "may be wrong" in one(live(part("capture", **cold | {"tempered": None})), "sampling.temperature").consequence


def test_trials_of_one_call() -> None:
    many = [TrialBrief(task="t", outcome="completed", calls=4) for _ in range(20)]
    alone = [TrialBrief(task="t", outcome="completed", calls=1) for _ in range(7)]
    failed = [TrialBrief(task="t", outcome="cancelled", calls=1) for _ in range(7)]
    assert levels(live(recent(many, failed))) == {}
    finding = one(live(recent(many, alone)), "capture.one_call")
    assert finding.text.startswith("7 of the last 27 scored trials") and finding.level == "warning"
    assert levels(live(recent(many[:5], alone))) == {}, "too few to tell"


def test_requests_that_are_refused() -> None:
    def refused(calls: int, **kinds: int) -> Change:
        return part("capture", calls=calls, refusals=kinds)

    finding = one(live(refused(60, request=18, overflow=2, busy=900)), "capture.refused")
    assert finding.text == "20 of 80 requests were refused; mostly request (18)" and finding.level == "warning"
    assert "names the field" in finding.remedy and "score as they are" in finding.consequence
    assert levels(live(refused(61, request=20))) == {}, "less than a quarter"
    assert levels(live(refused(61, request=20), tune(refused_share=0.2))) == {"capture.refused": "warning"}
    assert levels(live(refused(0, request=49))) == {}, "too few to tell"
    assert levels(live(refused(0, request=50))) == {"capture.refused": "warning"}
    harmless = dict.fromkeys(("auth", "early", "sealed", "not_found", "method", "busy", "cancelled"), 500)
    assert levels(live(refused(10, **harmless))) == {}
    assert levels(live(refused(0, request=0), tune(bridge_calls=0, refused_share=0))) == {}


def test_agents_that_begin_anew_each_turn() -> None:
    def made(count: int, segments: int, calls: int, outcome: str = "completed") -> list[TrialBrief]:
        return [TrialBrief(task="t", outcome=outcome, calls=calls, segments=segments) for _ in range(count)]

    finding = one(live(recent(made(20, 6, 9), made(9, 1, 30, "cancelled"))), "capture.scattered")
    assert finding.text == "the last 20 scored trials made 120 segments of 1.5 calls each"
    assert finding.level == "warning" and "again and again" in finding.consequence
    assert "one conversation" in finding.remedy
    assert levels(live(recent(made(19, 6, 9)))) == {}, "too few to tell"
    assert levels(live(recent(made(20, 4, 7)))) == {"capture.scattered": "warning"}
    assert levels(live(recent(made(19, 4, 7), made(1, 3, 5)))) == {}, "few segments"
    assert levels(live(recent(made(20, 4, 8)))) == {}, "they go on"
    rewritten = part("capture", bridged=10, unbridged={"rewritten": 90})
    assert levels(live(recent(made(20, 6, 9)), rewritten)) == {"capture.unbridged": "warning"}, "one cause, one alarm"
    assert levels(live(recent(made(20, 0, 2)))) == {}
    assert not [*scattered(Look(live(tune(trials_needed=0)), NOW))], "no trial at all"


def test_a_share_of_no_trials_is_no_share() -> None:
    assert levels(live(recent(), tune(trials_needed=0.0))) == {}


def test_the_texts_of_a_heartbeat_that_is_not_heard() -> None:
    old = one(live(part("gateway", heartbeat_age=200.0, lease=300.0, lease_left=100.0)), "gateway.heartbeat")
    assert old.text == "no heartbeat was acknowledged for 3 min"
    assert old.consequence == "the gateway ends the session 2 min later, and the run with it" and not old.action
    over = one(live(part("gateway", heartbeat_age=400.0, lease=300.0, lease_left=0.0)), "gateway.heartbeat")
    assert over.level == "critical" and over.text.endswith("the gateway's lease of 5 min is over")
    assert over.action == "stop_now" and "resumes from the last checkpoint" in over.remedy
    assert over.material != old.material, "that it is over is told again, whatever the age"


def test_what_the_gateway_says_of_its_queue_is_one_clean_line_and_told_once() -> None:
    said = part("gateway", queue="paused_capacity", queue_reason="no\x1b[2J GPUs\nat all" + "!" * 500)
    finding = one(live(said), "gateway.queue")
    assert finding.text.startswith("the gateway has paused the queue, it has no capacity: no GPUs")
    assert "\x1b" not in finding.text and "\n" not in finding.text and len(finding.text) < 200
    other = one(live(said, part("gateway", queue_reason="3 GPUs are missing")), "gateway.queue")
    assert other.material == finding.material, "a reason with a running number is not told each time"


def test_the_oldest_operation_is_the_one_that_is_longest_over_its_time() -> None:
    late = {"sample": 2000.0, "optim_step": 1500.0, "connect": 3.0}
    finding = one(live(part("gateway", oldest=late, pending={"sample": 9, "optim_step": 2})), "gateway.operation")
    assert finding.text == "optimiser step under way at the gateway for 25 min, 2 of them in all"


def test_sandboxes_that_nobody_uses_name_what_removes_them() -> None:
    names = [f"box\x1b[31m{n}" for n in range(4)]
    view = live(state(run_id="r-1", sandboxes_left=names), part("sandboxes", orphaned=names[:1], cost=0.5))
    left, orphaned = one(view, "sandbox.left"), one(view, "sandbox.orphaned")
    assert left.text == "4 sandboxes could not be removed: box0, box1, box2, ..."
    assert orphaned.text == "1 sandbox left behind by an earlier engine of this run: box0"
    assert left.remedy == orphaned.remedy == "quarterdeck reap r-1 removes them"
    assert left.consequence == orphaned.consequence == "they cost money until they are removed"
    assert "hold memory" in one(live(state(sandboxes_left=["x"])), "sandbox.left").consequence
