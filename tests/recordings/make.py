"""Writes a plausible run directory through the real journal writer: `python tests/recordings/make.py DIR`.

Same seed, same journal. Times are the recording's own; nothing waits.
"""

from __future__ import annotations

import argparse
import heapq
import itertools
import math
import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from console.journal import events as ev
from console.journal.writer import JournalWriter
from console.records.manifest import Manifest, write_manifest
from console.state.model import encode_state
from console.state.reduce import RunView, apply

START = 1_790_000_000.0
HOME = "/runs/demo"
"""Where the recording says that it was made."""
TASKS = (
    "find-largest-file", "count-errors", "fix-permissions", "sort-and-dedupe", "extract-column", "rename-by-date",
    "merge-configs", "make-archive", "word-frequency", "repair-json", "clean-temp-files", "replace-in-tree",
)  # fmt: skip


TUNABLES: dict[str, float | None] = {
    "parallel": 8.0, "hold_timeout": 600.0, "max_tries": 3.0, "token_budget": None, "time_budget": None
}  # fmt: skip
OPTIONS: ev.Scalars = {
    "config.model_name": "quarterdeck/midshipman", "config.lora_rank": 8, "console.on_failure": "hold",
    "harbor.trial_config.agent.import_path": "console.trials.agent:TerminalAgent",
    "harbor.trial_config.agent.env.OPENAI_API_KEY": "[redacted]",
}  # fmt: skip
VERSIONS = {"quarterdeck": "1.0.0", "harbor": "0.26.0", "tinker": "0.9.0", "python": "3.13.1"}
"""Made up: what is recorded here does not depend on what is installed."""
THRESHOLDS = {"disk_free_gb": 8.0, "progress_seconds": 600.0}


@dataclass
class Plan:
    """What the recorded run is like. Rates are per trial; `held` parks that trial of step `held_step` for a while.

    `operated`: two operators watch it. The machine is reported on, alarms open, are acknowledged and shelved, dispatch
    is paused and goes on, a setting changes, a task is quarantined, a note is made. Its steps are those without it.
    `content`: what the held trial said and did is there too, as captured calls and as Harbor's files; more options.
    """

    steps: int = 15
    planned: int | None = None
    groups: int = 4
    size: int = 8
    seed: int = 7
    timeouts: float = 0.03
    overflows: float = 0.01
    infra: float = 0.01
    held_step: int | None = 12
    open_step: bool = False
    pace: float = 1.0
    on_failure: str = "hold"
    name: str = "demo"
    operated: bool = False
    content: bool = False

    @property
    def held(self) -> tuple[int, int]:
        """Group and trial that wait in step `held_step`."""
        return min(2, self.groups - 1), 4


@dataclass
class _Recorder:
    """Applies what it writes, so that snapshots are those of the reducer."""

    directory: Path
    now: float = START
    view: RunView = field(default_factory=RunView)

    def __post_init__(self) -> None:
        self.writer = JournalWriter(self.directory, snapshot=self._snapshot, clock=lambda: self.now)

    def _snapshot(self) -> tuple[bytes, int]:
        return encode_state(self.view.state), self.view.state.steps_done

    def add(self, event: ev.Event) -> None:
        apply(self.view, self.writer.append(event))


class _Run:
    """One recorded run: trials of all groups interleaved in time."""

    def __init__(self, run_dir: Path, plan: Plan) -> None:
        self.plan, self.run_dir = plan, run_dir
        self.random = random.Random(plan.seed)
        self.out = _Recorder(run_dir / "journal")
        self.calls = self.prompt = self.sampled = 0
        self.live = 0
        self._order = itertools.count()

    def write(self) -> RunView:
        """Write it all; the state at the end."""
        plan, out = self.plan, self.out
        out.add(
            ev.RunStarted(
                run_id=f"{plan.name}-{plan.seed:04d}", name=plan.name, run_dir=HOME, pid=0,
                model="tiny-terminal", gateway_url="http://127.0.0.1:8741", steps=None, groups_per_batch=plan.groups,
                group_size=plan.size, on_failure=plan.on_failure, hold_timeout=600.0,
                config={
                    "config.learning_rate": 0.0005, "harbor.group_size": plan.size,
                    **(OPTIONS if plan.content else {}),
                },
                tunables=TUNABLES if plan.operated else {}, versions=VERSIONS if plan.content else {},
                thresholds=THRESHOLDS if plan.content else {},
            )
        )  # fmt: skip
        out.add(ev.RunPhase(phase="connecting", detail="embedded gateway"))
        out.now += 1.4 * plan.pace
        out.add(ev.GatewayHealth(reachable=True, latency_ms=3.1, queued=0, running=0, kv_fraction=0.0))
        out.add(ev.RunPlanned(steps=plan.planned or plan.steps, tasks=len(TASKS)))
        for step in range(plan.steps):
            self._step(step)
        if plan.open_step:
            self._rollout(plan.steps, cut=0.55)
        else:
            out.add(ev.RunPhase(phase="stopping"))
            out.now += 0.2
            out.add(ev.SandboxStats(live=0))
            out.add(ev.RunFinished(status="completed", exit_code=0, steps=plan.steps))
        out.writer.close(seal=not plan.open_step)
        return out.view

    def _skill(self, step: int) -> float:
        return 0.32 + 0.62 * (1 - math.exp(-step / 4.5))

    def _step(self, step: int) -> None:
        out, rnd, pace = self.out, self.random, self.plan.pace
        began = out.now
        if self.plan.operated:
            self._before_step(step)
        self._rollout(step)
        rollout = out.now - began
        out.add(ev.RunPhase(phase="training"))
        train = rnd.uniform(0.7, 1.0) * pace
        out.now += train
        save = rnd.uniform(0.05, 0.12) * pace
        out.add(ev.RunPhase(phase="saving"))
        out.now += save
        if step % 5 == 4:
            out.add(ev.CheckpointSaved(name=f"{step + 1:06d}", step=step, path=f"tinker://run/{step + 1:06d}"))
        state = out.view.state
        trials = [t for g in state.groups.values() for t in g.trials]
        rewards = [t.reward for t in trials if t.reward is not None]
        mean = sum(rewards) / len(rewards) if rewards else None
        spread = math.sqrt(sum((r - (mean or 0)) ** 2 for r in rewards) / len(rewards)) if rewards else None
        outcomes: dict[str, int] = {}
        for trial in trials:
            outcomes[str(trial.outcome)] = outcomes.get(str(trial.outcome), 0) + 1
        fade = math.exp(-step / 6)
        trained = sum(t.sampled_tokens for t in trials if t.reward is not None)
        out.add(
            ev.StepFinished(
                step=step, reward_mean=mean, reward_std=spread, outcomes=outcomes,
                groups_kept=sum(g.kept is True for g in state.groups.values()),
                groups_dropped=sum(g.kept is False for g in state.groups.values()),
                groups_zero_variance=sum(g.zero_variance for g in state.groups.values()),
                ppo_loss=14.0 * fade * rnd.uniform(0.7, 1.25) - 1.2, clip_fraction=0.03 * fade + rnd.uniform(0, 0.008),
                kl_sample_train_v1=0.0021 + rnd.uniform(-0.001, 0.0016), kl_sample_train_v2=0.0013,
                kl_sample_train_k3=0.0014, entropy=0.28 + 0.5 * fade + rnd.uniform(-0.02, 0.02),
                grad_norm=0.5 + fade * rnd.uniform(0.5, 1.4), learning_rate=5e-4, tokens_prompt=self.prompt,
                tokens_sampled=self.sampled, tokens_trained=trained,
                seconds_rollout=rollout, seconds_train=train, seconds_save=save, seconds_total=out.now - began,
                policy_version=step + 1,
            )
        )  # fmt: skip

    def _before_step(self, step: int) -> None:
        """What operators and the machine do while one step ends and the next begins."""
        add, gb = self.out.add, 10**9
        add(
            ev.HostStats(
                disk_free=(40 - 5 * step) * gb if step < 7 else 36 * gb, disk_total=200 * gb,
                rss=(2 + step % 3) * gb, memory_total=16 * gb, loop_lag=0.004 + 0.001 * (step % 5),
            )
        )  # fmt: skip
        match step:
            case 1:
                add(ev.WatchTaken(by="ada@bridge"))
                add(ev.Note(text="taking the first watch", source="ada@bridge"))
            case 2:
                add(
                    ev.AlarmOpened(
                        key="gateway.slow", level="warning", text="the gateway is slow: p95 1.2 s, usually 0.2 s",
                        consequence="steps take longer", remedy="lower parallelism", action="tune",
                    )
                )  # fmt: skip
            case 3:
                self._command("set", {"parallel": 4.0}, "parallel 8 -> 4", "fewer calls at once")
                add(ev.RunTuned(name="parallel", old=8.0, new=4.0, by="ada@bridge"))
            case 4:
                add(ev.AlarmClosed(key="gateway.slow"))
                self._command("pause", {}, "no new trial begins")
                add(ev.DispatchPaused(paused=True, by="ada@bridge"))
                self.out.now += 3.0 * self.plan.pace
                add(ev.DispatchPaused(paused=False, by="ada@bridge"))
            case 5:
                add(
                    ev.AlarmOpened(
                        key="disk.low", level="warning", text="15 GB free of 200 GB on the run's disk",
                        consequence="the run stops when the disk is full", remedy="make room", action="",
                    )
                )  # fmt: skip
            case 6:
                add(
                    ev.AlarmOpened(
                        key="disk.low", level="critical", text="4 GB free of 200 GB on the run's disk",
                        consequence="the run stops when the disk is full", remedy="make room",
                    )
                )  # fmt: skip
                add(ev.AlarmAcked(key="disk.low", by="ada@bridge"))
            case 7:
                add(ev.AlarmClosed(key="disk.low"))
                add(ev.WatchTaken(by="ben@shore", previous="ada@bridge"))
            case 8:
                self._command("quarantine", {"task": TASKS[2], "on": True}, f"{TASKS[2]} is left out of new batches")
                add(ev.TaskQuarantined(task=TASKS[2], on=True, by="ben@shore"))
            case 9:
                add(ev.AlarmOpened(key="learning.flat", level="warning", text="no signal in 3 of 4 groups"))
                add(ev.AlarmShelved(key="learning.flat", until=self.out.now + 3600, by="ben@shore"))

    def _command(self, command: str, args: ev.Scalars, effect: str, reason: str = "") -> None:
        id = f"op-{self.out.view.state.seq}"
        author = self.out.view.state.watch
        self.out.add(ev.CommandRequested(id=id, command=command, args=args, author=author, reason=reason))
        self.out.add(ev.CommandAccepted(id=id, effect=effect))
        self.out.add(ev.CommandFinished(id=id, status="done", result=effect))

    def _rollout(self, step: int, cut: float | None = None) -> None:
        plan, out, rnd = self.plan, self.out, self.random
        out.add(ev.StepStarted(step=step, groups=plan.groups, policy_version=step))
        tasks = rnd.sample(TASKS, plan.groups) if plan.groups <= len(TASKS) else rnd.choices(TASKS, k=plan.groups)
        for group, task in enumerate(tasks):
            out.add(ev.GroupStarted(step=step, group=group, task=task, size=plan.size))
        queue: list[tuple[float, int, Iterator[float]]] = []
        for group in range(plan.groups):
            for trial in range(plan.size):
                begin = out.now + (trial // 4) * rnd.uniform(0.6, 1.0) * plan.pace + rnd.uniform(0, 0.2) * plan.pace
                heapq.heappush(queue, (begin, next(self._order), self._trial(step, group, trial, queue)))
        total, stats = len(queue), 0.0
        finished = 0
        while queue:
            moment, _, run = heapq.heappop(queue)
            out.now = max(out.now, moment)
            wait = next(run, None)
            if wait is not None:
                heapq.heappush(queue, (out.now + wait, next(self._order), run))
            else:
                finished += 1
                if cut is not None and finished >= total * cut:
                    self._stats()
                    return
            if out.now - stats >= 1.0:
                stats = out.now
                self._stats()
        self._stats()

    def _stats(self) -> None:
        out, rnd = self.out, self.random
        out.add(
            ev.CaptureStats(
                calls=self.calls, prompt_tokens=self.prompt, sampled_tokens=self.sampled, inflight=min(self.live, 9),
                trained_tokens=self.sampled * 3 // 4, bridged=self.calls * 2 // 3, excluded={"aux": self.calls // 40},
                unbridged={"first": self.calls // 4, "rewritten": self.calls // 40},
                refusals={"busy": self.calls // 300}, temperature_low=1.0, temperature_high=1.0,
            )
        )  # fmt: skip
        out.add(
            ev.GatewayHealth(
                reachable=True, latency_ms=rnd.uniform(2.2, 9.0), queued=rnd.randrange(0, 5), running=min(self.live, 9),
                kv_fraction=0.2 + rnd.random() * 0.1,
            )
        )  # fmt: skip
        out.add(ev.SandboxStats(live=self.live))

    def _trial(
        self, step: int, group: int, trial: int, queue: list[tuple[float, int, Iterator[float]]]
    ) -> Iterator[float]:
        """The trial's life; yields seconds to its next event."""
        rnd, add, pace = self.random, self.out.add, self.plan.pace
        at: dict[str, int] = {"step": step, "group": group, "trial": trial}
        hold = self.plan.held_step == step and (group, trial) == self.plan.held
        for attempt in range(2):
            began = self.out.now
            self.live += 1
            for phase, low, high in (("create", 0.02, 0.05), ("environment", 0.1, 0.25), ("setup", 0.05, 0.1)):
                add(ev.TrialPhase(**at, phase=phase, try_=attempt))
                yield rnd.uniform(low, high) * pace
            add(ev.TrialPhase(**at, phase="agent", try_=attempt))
            turns, prompt, sampled = rnd.randint(2, 5), 180, 0
            for turn in range(1, turns + 1):
                yield (seconds := rnd.uniform(0.15, 0.6) * pace)
                said = rnd.randint(12, 48)
                prompt, sampled = prompt + said + 60, sampled + said
                self.calls, self.prompt, self.sampled = self.calls + 1, self.prompt + prompt, self.sampled + said
                add(
                    ev.TrialTurn(
                        **at, turn=turn, try_=attempt, prompt_tokens=prompt, sampled_tokens=said, seconds=seconds
                    )
                )
                if hold and attempt == 0 and turn == 2:
                    break
            fate = self._fate(step, hold and attempt == 0)
            if fate["outcome"] in ("completed", "agent_timeout"):
                add(ev.TrialPhase(**at, phase="verify", try_=attempt))
                yield rnd.uniform(0.05, 0.2) * pace
            self.live -= 1
            total = self.out.now - began
            agent = total - 0.4 * pace
            add(
                ev.TrialFinished(
                    **at, **fate, try_=attempt, turns=turns, prompt_tokens=prompt, sampled_tokens=sampled,
                    trial_dir=f"{HOME}/trials/s{step}-g{group}-t{trial}{'-again' if attempt else ''}",
                    seconds={"environment": 0.2 * pace, "agent": agent, "verify": 0.1 * pace, "total": total},
                    segments=1 + turns // 4, bridged=max(0, turns - 1 - turns // 4),
                    excluded={"aux": 1} if turns else {},
                    unbridged={"first": 1, "rewritten": turns // 4} if turns > 3 else {"first": 1} if turns else {},
                )
            )  # fmt: skip
            if not (hold and attempt == 0):
                break
            add(ev.TrialHeld(**at, deadline=self.out.now + 600, try_=attempt))
            if self.plan.content:
                add(
                    ev.AlarmOpened(
                        key=f"held.g{group + 1}", level="critical",
                        text=f"g{group + 1}/t{trial + 1} infrastructure sandbox SandboxError: held",
                        consequence="the run stops when its time is over", remedy="retry, or cancel the group",
                        action="retry",
                    )
                )  # fmt: skip
            yield 4.0 * pace
            args: ev.Scalars = {"group": group, "trial": trial}
            add(ev.CommandRequested(id="c1", command="retry", args=args, author="ada@bridge"))
            add(ev.CommandAccepted(id="c1", effect=f"tries g{group + 1}/t{trial + 1} again in a fresh sandbox"))
            add(ev.TrialRetried(**at, try_=attempt + 1, by="ada@bridge"))
            if self.plan.content:
                add(ev.AlarmClosed(key=f"held.g{group + 1}"))
            add(ev.CommandFinished(id="c1", status="done", result=f"g{group + 1}/t{trial + 1} is tried again"))
            yield 0.2
        found = self.out.view.state.groups[group]
        if all(t.phase == "done" for t in found.trials):
            rewards = [t.reward for t in found.trials if t.reward is not None]
            flat = len(set(rewards)) <= 1
            add(
                ev.GroupFinished(
                    step=step, group=group, kept=len(rewards) >= 2, reward_mean=found.reward_mean,
                    reward_std=found.reward_std, zero_variance=flat,
                    reason="" if len(rewards) >= 2 else "fewer than two scored trials",
                )
            )  # fmt: skip

    def _fate(self, step: int, fails: bool) -> dict[str, object]:
        rnd, plan = self.random, self.plan
        if fails or rnd.random() < plan.infra:
            return {
                "outcome": "infrastructure", "cause": "sandbox", "rule": "type.sandbox", "exception": "SandboxError",
                "evidence": "SandboxError: the sandbox stopped answering after 601917 ms", "retryable": True,
            }  # fmt: skip
        if rnd.random() < plan.timeouts:
            return {"outcome": "agent_timeout", "rule": "type.allowed", "reward": 0.0, "exception": "AgentTimeoutError"}
        if rnd.random() < plan.overflows:
            return {"outcome": "context_overflow", "rule": "calls.overflow_last", "reward": 0.0}
        skill = self._skill(step)
        reward = 1.0 if rnd.random() < skill else rnd.choice([0.0, 0.0, 0.0, 0.5])
        return {"outcome": "completed", "rule": "end.clean", "reward": reward}


def make(run_dir: Path, plan: Plan | None = None) -> RunView:
    """Write the run directory; the state at its end."""
    plan = plan or Plan()
    run_dir.mkdir(parents=True, exist_ok=True)
    view = _Run(run_dir, plan).write()
    write_manifest(run_dir, Manifest(run_id=view.state.run_id, name=plan.name, created=START))
    if plan.content and plan.held_step is not None:
        from made_content import write_content

        write_content(run_dir, plan.held_step, *plan.held)
    return view


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("directory", type=Path)
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--steps", type=int, default=15)
    parser.add_argument("--groups", type=int, default=4)
    parser.add_argument("--size", type=int, default=8)
    parser.add_argument("--operated", action="store_true", help="with alarms, commands, notes and the machine's state")
    parser.add_argument("--open", action="store_true", help="end in the middle of a step, as a run that goes on")
    args = parser.parse_args()
    plan = Plan(
        steps=args.steps, seed=args.seed, groups=args.groups, size=args.size, open_step=args.open,
        held_step=args.steps if args.open else 12, planned=args.steps + 5 if args.open else None,
        operated=args.operated,
    )  # fmt: skip
    make(args.directory, plan)
