"""A recording of a benchmark run: 89 tasks, five attempts each, eight at once until sandboxes fail, then four.

Same seed, same journal. Some trials stood from before, some time out, one is tried again by Harbor.
"""

from __future__ import annotations

import heapq
import random
from dataclasses import dataclass
from pathlib import Path

from make import TASKS, _Recorder

from console.journal import events as ev
from console.state.reduce import RunView

JOB = "/runs/jobs/tb21-full"


@dataclass
class BenchPlan:
    """What it is like. `ended`: trials that end before the recording stops, None for all; `crowded`: so many of the
    trials from the 60th on fail with the sandbox until the limit is halved; `stood`: of the first tasks."""

    tasks: int = 89
    attempts: int = 5
    concurrency: int = 8
    ended: int | None = 120
    crowded: float = 0.6
    stood: int = 12
    seed: int = 11
    over: bool = False


def task_name(number: int) -> str:
    """Of the dataset that it makes up."""
    base = TASKS[number % len(TASKS)]
    return base if number < len(TASKS) else f"{base}-{number // len(TASKS) + 1}"


def make_bench(run_dir: Path, plan: BenchPlan | None = None) -> RunView:
    """Write it; the state at the end."""
    return _Bench(run_dir, plan or BenchPlan()).write()


class _Bench:
    def __init__(self, run_dir: Path, plan: BenchPlan) -> None:
        self.plan, self.out, self.random = plan, _Recorder(run_dir / "journal"), random.Random(plan.seed)
        self.limit, self.ended = plan.concurrency, 0

    def write(self) -> RunView:
        plan, out = self.plan, self.out
        total = plan.tasks * plan.attempts
        out.add(
            ev.RunStarted(
                run_id="tb21-0011", name="tb21-full", run_dir=f"{JOB}.run", pid=0, model="openai/Qwen/Qwen3.8-27B-FP8",
                gateway_url="https://gpu-7.internal:30000/v1", steps=1, groups_per_batch=plan.tasks,
                group_size=plan.attempts, tunables={"concurrency": float(plan.concurrency)}, kind="benchmark",
            )
        )  # fmt: skip
        out.now += 2.0
        out.add(ev.RunPhase(phase="starting", detail="harbor run"))
        out.now += 3.0
        out.add(
            ev.BenchPlanned(
                job_dir=JOB, job_name="tb21-full", harbor="0.26.0", dataset="terminal-bench@2.1", agents=["terminus-2"],
                models=["openai/Qwen/Qwen3.8-27B-FP8"], tasks=plan.tasks, attempts=plan.attempts, trials=total,
                done=plan.stood, concurrency=plan.concurrency,
            )
        )  # fmt: skip
        out.add(ev.StepStarted(step=0, groups=plan.tasks, policy_version=0))
        for number in range(plan.tasks):
            out.add(ev.GroupStarted(step=0, group=number, task=task_name(number), size=plan.attempts))
        out.add(ev.GatewayHealth(reachable=True, latency_ms=41.0))
        out.add(ev.BenchLimited(limit=plan.concurrency))
        queue = [(number, attempt) for attempt in range(plan.attempts) for number in range(plan.tasks)]
        for number, attempt in queue[: plan.stood]:
            self._end(number, attempt, 0, reused=True)
        self._go(queue[plan.stood :])
        if plan.over:
            outcomes = dict(self.out.view.state.bench.finished)
            out.add(ev.StepFinished(step=0, outcomes=outcomes, reward_mean=0.41))
            out.add(ev.RunFinished(status="completed", exit_code=0, steps=1))
        out.writer.close()
        return out.view

    def _go(self, queue: list[tuple[int, int]]) -> None:
        """Begin and end trials in time, until so many have ended."""
        plan, out = self.plan, self.out
        running: list[tuple[float, int, int, int]] = []
        most = plan.ended if plan.ended is not None else 10**9
        while (queue or running) and self.ended < most:
            while queue and len(running) < self.limit:
                number, attempt = queue.pop(0)
                self._begin(number, attempt, 0)
                heapq.heappush(running, (out.now + self.random.uniform(90, 900), number, attempt, 0))
            at, number, attempt, try_ = heapq.heappop(running)
            out.now = max(out.now, at)
            self._end(number, attempt, try_)
            self.ended += 1
            if self.ended == 30:
                out.add(ev.TrialRetried(step=0, group=number, trial=attempt, try_=1))
                self._begin(number, attempt, 1)
                heapq.heappush(running, (out.now + 300.0, number, attempt, 1))
            if self.ended == 84 and plan.crowded:
                self.limit = plan.concurrency // 2
                out.add(
                    ev.BenchLimited(limit=self.limit, why="60 % of the last 20 trials failed for infrastructure's sake")
                )
                running.sort()

    def _begin(self, number: int, attempt: int, try_: int) -> None:
        for phase in ("create", "environment", "setup", "agent"):
            self.out.add(ev.TrialPhase(step=0, group=number, trial=attempt, try_=try_, phase=phase))
            self.out.now += 0.5

    def _end(self, number: int, attempt: int, try_: int, reused: bool = False) -> None:
        out, rng = self.out, self.random
        if not reused:
            out.add(ev.TrialPhase(step=0, group=number, trial=attempt, try_=try_, phase="verify"))
            out.now += 1.0
        took = rng.uniform(90, 900)
        sampled = rng.randint(2_000, 40_000)
        event = ev.TrialFinished(
            step=0, group=number, trial=attempt, try_=try_, outcome="completed", reward=float(rng.random() < 0.45),
            rule="reward", prompt_tokens=9 * sampled, cached_tokens=7 * sampled, sampled_tokens=sampled,
            cost_usd=sampled * 2e-6, seconds={"environment": 8.0, "agent": took - 20.0, "verify": 12.0, "total": took},
            trial_dir=f"{JOB}/{task_name(number)}__{attempt}abcDE", reused=reused,
        )  # fmt: skip
        crowded = 60 <= self.ended < 84 and rng.random() < self.plan.crowded
        if not reused and (crowded or self.ended == 29):
            event.outcome, event.cause, event.rule, event.reward = "infrastructure", "sandbox", "type.sandbox", None
            event.exception, event.evidence = "SandboxError", "SandboxError: sandbox is gone: 503 Service Unavailable"
            event.sampled_tokens = event.prompt_tokens = event.cached_tokens = 0
            event.cost_usd, event.retryable = None, True
        elif rng.random() < 0.12:
            event.outcome, event.cause, event.exception = "agent_timeout", "deadline", "AgentTimeoutError"
            event.reward = 0.0
        out.add(event)
        group = out.view.state.groups[number]
        if all(t.phase == "done" for t in group.trials):
            kept = all(t.outcome != "infrastructure" for t in group.trials)
            out.add(
                ev.GroupFinished(
                    step=0, group=number, kept=kept, reason="" if kept else "not every attempt is graded",
                    reward_mean=group.reward_mean, reward_std=group.reward_std,
                )
            )  # fmt: skip
