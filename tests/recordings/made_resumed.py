"""A recording of a run whose engine was killed in mid-step, and resumed: it waits for a model slot, applies two steps
again, and goes on with the trials that had ended. The gateway is a Miles gateway that is short of capacity.
"""

from __future__ import annotations

from pathlib import Path

from make import TASKS, Plan, _Recorder, make

from console.journal import events as ev

STEPS, SAVED = 6, 4
"""Finished steps of the killed engine, and the step of its last checkpoint."""
ORPHANED = ["sort-and-dedupe__s6g2t3__env", "make-archive__s6g3t1__env"]
WAITING = "a model slot of the gateway: 1 of its model slots are taken; an engine that crashed holds its own"


def make_resumed(run_dir: Path) -> None:
    """Write it: six steps, the seventh cut, and what the second engine did with that."""
    killed = make(run_dir, Plan(steps=STEPS, planned=15, open_step=True, operated=True, held_step=None))
    batches = {step: killed.history.rows[step] for step in range(SAVED, STEPS)}
    out = _Recorder(run_dir / "journal", now=killed.state.ts + 45.0, view=killed)
    _begin(out)
    for step, row in batches.items():
        _apply_again(out, step, row)
    _interrupted_step(out)
    out.writer.close()


def _begin(out: _Recorder) -> None:
    s = out.view.state
    out.add(
        ev.RunStarted(
            run_id=s.run_id, name=s.name, run_dir=s.run_dir, pid=0, model="Qwen/Qwen3-32B",
            gateway_url="http://gpu-7.internal:8000", groups_per_batch=4, group_size=8, on_failure="hold",
            resumed_from=SAVED, tunables={"parallel": 8.0, "max_tries": 3.0},
        )
    )  # fmt: skip
    out.add(ev.RunPhase(phase="connecting"))
    out.now += 1.0
    out.add(
        ev.GatewayProfiled(
            profile="miles", how="it has engine_load, and takes no fields of today's SDK", sdk="0.26",
            translated=["optimizer_config is left out", "checkpoints are loaded into a model that was created first"],
            losses=["ppo", "importance_sampling"], context_window=65_529, max_rank=16, slots=1, lease=300.0,
            expiring=False,
        )
    )  # fmt: skip
    out.add(ev.GatewayHealth(reachable=True, latency_ms=12.0, queued=0, running=0, kv_fraction=0.01))
    out.add(_boxes(out, live=2, orphaned=ORPHANED, hours=3.6, cost=0.41))
    out.add(ev.GatewayWaiting(reason=WAITING, until=out.now + 265.0))
    out.now += 15.0
    out.add(
        ev.GatewayHealth(
            reachable=True, latency_ms=14.0, queued=0, running=0, kv_fraction=0.01, heartbeat_age=4.0, lease_left=296.0,
            pending={"create_model": 1}, oldest={"create_model": 0.4},
        )
    )  # fmt: skip
    out.now += 180.0
    out.add(ev.GatewayWaiting())
    replayed = list(range(SAVED, STEPS))
    out.add(ev.RunResumed(checkpoint=f"{SAVED:06d}", step=SAVED, replayed=replayed, reused=19, redone=13))
    out.add(ev.RunPlanned(steps=15, tasks=len(TASKS)))


def _boxes(out: _Recorder, **figures: object) -> ev.SandboxStats:
    return ev.SandboxStats(oldest=out.now - 4000.0, **figures)  # type: ignore[arg-type]


def _apply_again(out: _Recorder, step: int, row: ev.StepFinished) -> None:
    out.add(ev.StepStarted(step=step, groups=4, policy_version=step, weights=f"w{step}", replayed=True))
    for group in range(4):
        out.add(ev.GroupStarted(step=step, group=group, task=TASKS[(step + group) % len(TASKS)], size=8))
        for trial in range(8):
            reward = float((trial + group) % 2)
            out.add(
                ev.TrialFinished(step=step, group=group, trial=trial, outcome="completed", reward=reward, reused=True)
            )
        out.add(ev.GroupFinished(step=step, group=group, kept=True, reward_mean=0.5, reward_std=0.5))
    out.add(ev.RunPhase(phase="training"))
    out.now += 9.0
    out.add(
        ev.StepFinished(
            step=step, reward_mean=row.reward_mean, reward_std=row.reward_std, outcomes=row.outcomes, groups_kept=4,
            ppo_loss=row.ppo_loss, entropy=row.entropy, seconds_rollout=0.2, seconds_train=9.0, seconds_total=9.2,
            policy_version=step + 1, weights=f"w{step + 1}", replayed=True,
        )
    )  # fmt: skip


def _interrupted_step(out: _Recorder) -> None:
    """19 trials count again, the others are at work; the gateway pauses the queue."""
    out.add(ev.StepStarted(step=STEPS, groups=4, policy_version=STEPS, weights=f"w{STEPS}"))
    for group, ended in enumerate((8, 6, 5, 0)):
        out.add(ev.GroupStarted(step=STEPS, group=group, task=TASKS[group], size=8))
        for trial in range(ended):
            at = {"step": STEPS, "group": group, "trial": trial}
            if trial == 5:
                out.add(ev.TrialFinished(**at, outcome="cancelled", cause="operator", reused=True))
            else:
                out.add(ev.TrialFinished(**at, outcome="completed", reward=float(trial % 2), turns=9, reused=True))
    for group, ended in enumerate((8, 6, 5, 0)):
        for trial in range(ended, 8):
            out.add(ev.TrialPhase(step=STEPS, group=group, trial=trial, phase="agent"))
    out.now += 30.0
    out.add(
        _boxes(out, live=13, creating=2, left=["repair-json__s5g1t2__env"], orphaned=ORPHANED, hours=3.9, cost=0.44)
    )
    out.add(
        ev.GatewayHealth(
            reachable=True, latency_ms=16.0, queued=7, running=6, kv_fraction=0.61, queue="paused_capacity",
            queue_reason="all engines are being updated", heartbeat_age=41.0, lease_left=259.0, backoff=6.0,
            pending={"sample": 13}, oldest={"sample": 71.0},
        )
    )  # fmt: skip
    out.now += 5.0
    out.add(ev.Note(text="that is how it stands"))
