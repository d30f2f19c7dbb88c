"""A small engine for tests: a real journal, a real reducer, a real socket, and a handler that records what it did.

As a program it is the engine process of a run: `python small_engine.py RUN_DIR SOCKET --steps N --interval S`.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

from console.control.audit import AuditLog
from console.control.commands import Command
from console.control.dispatch import CommandDispatcher
from console.control.past import PastLines
from console.control.registry import register
from console.control.server import ControlServer
from console.journal import events as ev
from console.journal.writer import JournalWriter
from console.state.model import encode_state
from console.state.reduce import RunView, apply


class Handler:
    """Does what it is told; `group` 9 does not exist, and `hook` runs inside the effect."""

    def __init__(self) -> None:
        self.done: list[Command] = []
        self.hook: Callable[[Command], object] | None = None

    def describe(self, command: Command) -> tuple[bool, str]:
        if command.args.get("group") == 9:
            return False, "there is no group g10"
        return True, f"{command.command} would be done"

    async def execute(self, command: Command) -> tuple[bool, str]:
        self.done.append(command)
        if self.hook is not None:
            result = self.hook(command)
            if asyncio.iscoroutine(result):
                await result
        return True, f"{command.command} done"


class SmallEngine:
    def __init__(self, run_dir: Path, socket: Path, run_id: str = "run-1", **writer_options) -> None:
        self.run_dir, self.socket, self.run_id = run_dir, socket, run_id
        self.view = RunView()
        self.writer = JournalWriter(
            run_dir / "journal",
            snapshot=lambda: (encode_state(self.view.state), self.view.state.steps_done),
            **writer_options,
        )
        self.handler = Handler()
        self.audit = AuditLog(run_dir / "audit.jsonl")
        self.dispatcher = CommandDispatcher(self.writer.append, self.audit, self.handler)
        self.writer.subscribe(lambda line, event: apply(self.view, event))
        self.server = ControlServer(
            socket,
            run_id=self.run_id,
            run_dir=run_dir,
            view=lambda: self.view,
            past=PastLines(run_dir / "journal"),
            dispatcher=self.dispatcher,
        )
        self.writer.subscribe(self.server.publish)

    def begin(self, steps: int = 3, pid: int = 1) -> None:
        self.writer.append(
            ev.RunStarted(
                run_id=self.run_id, name="first", run_dir=str(self.run_dir), pid=pid, socket=str(self.socket),
                steps=steps, groups_per_batch=2, group_size=2,
            )
        )  # fmt: skip

    def step(self, number: int) -> None:
        """A whole step of 2 groups of 2 trials: 19 events."""
        append = self.writer.append
        append(ev.StepStarted(step=number, groups=2, policy_version=number))
        for group in range(2):
            append(ev.GroupStarted(step=number, group=group, task=f"task-{group}", size=2))
            for trial in range(2):
                at = {"step": number, "group": group, "trial": trial}
                append(ev.TrialPhase(**at, phase="agent"))
                append(ev.TrialTurn(**at, turn=1, prompt_tokens=10, sampled_tokens=5))
                append(ev.TrialFinished(**at, outcome="completed", reward=0.5 * trial, turns=1, sampled_tokens=5))
            append(ev.GroupFinished(step=number, group=group, kept=True, reward_mean=0.25, reward_std=0.25))
        append(ev.CaptureStats(calls=4 * (number + 1), sampled_tokens=20 * (number + 1)))
        append(
            ev.StepFinished(
                step=number, reward_mean=0.25 + number / 10, outcomes={"completed": 4}, groups_kept=2,
                policy_version=number + 1, ppo_loss=-0.5,
            )
        )  # fmt: skip

    def finish(self, status: str = "completed", exit_code: int = 0, reason: str = "") -> None:
        steps = self.view.state.steps_done
        self.writer.append(ev.RunFinished(status=status, exit_code=exit_code, reason=reason, steps=steps))

    async def close(self) -> None:
        await self.server.close()
        await self.dispatcher.close()
        self.writer.close()
        self.audit.close()


async def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("run_dir", type=Path)
    parser.add_argument("socket", type=Path)
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--interval", type=float, default=0.0)
    parser.add_argument("--no-socket", action="store_true")
    parser.add_argument("--registered", action="store_true")
    args = parser.parse_args()
    engine = SmallEngine(args.run_dir, args.socket)
    stop = asyncio.Event()
    engine.handler.hook = lambda command: stop.set() if command.command == "stop_now" else None
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    if not args.no_socket:
        await engine.server.start()
    engine.begin(args.steps, pid=os.getpid())
    if args.registered:
        register("run-1", args.run_dir, "first", os.getpid(), args.socket, time.time())
    os.write(1, b"ready\n")
    for number in range(args.steps):
        engine.step(number)
        try:
            await asyncio.wait_for(stop.wait(), args.interval)
            break
        except TimeoutError:
            pass
    if stop.is_set():
        engine.finish("stopped", 3, "stopped by the operator")
    else:
        engine.finish()
    await engine.close()
    os._exit(0)  # as the engine itself: the loop's end would undo its signal handlers, and one may still be on its way


if __name__ == "__main__":
    asyncio.run(main())
