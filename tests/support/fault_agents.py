"""Agents that break things, for the runner to import by path."""

from __future__ import annotations

import asyncio
import os
import resource
import signal
import uuid
from pathlib import Path

from pydantic import Field

from console.trials.agent import TerminalAgent, TerminalAgentOptions


class FaultOptions(TerminalAgentOptions):
    fuse: str = Field(default="", description="A directory that does not exist: made by the one that breaks.")
    fuses: int = Field(default=1, description="How many break.")


def blow(options: FaultOptions) -> bool:
    """True for the first `fuses` callers of all processes."""
    for number in range(options.fuses):
        try:
            os.makedirs(Path(options.fuse) / str(number))
        except FileExistsError:
            continue
        return True
    return False


def kill_init_of(marker: str) -> bool:
    """Kill process 1 of the pid namespace in which a process shows `marker` on its command line."""
    spaces = {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            spaces[entry.name] = (
                os.readlink(entry / "ns/pid"),
                (entry / "cmdline").read_bytes(),
                (entry / "status").read_text(),
            )
        except OSError:
            continue
    space = next((ns for ns, line, _ in spaces.values() if marker.encode() in line and b"sleep" in line), None)
    ours = os.readlink("/proc/self/ns/pid")
    for pid, (ns, _, status) in spaces.items():
        inner = next(line.split()[1:] for line in status.splitlines() if line.startswith("NSpid:"))
        if ns == space != ours and inner[-1] == "1":
            os.kill(int(pid), signal.SIGKILL)
            return True
    return False


class SandboxKiller(TerminalAgent):
    """Kills its own sandbox from outside, while a command runs in it."""

    options_model = FaultOptions

    async def run(self, instruction, environment, context):
        if blow(self.options):
            marker = uuid.uuid4().hex
            sleeper = asyncio.ensure_future(environment.exec(f"exec -a sleep-{marker} sleep 60"))
            for _ in range(200):
                await asyncio.sleep(0.02)
                if kill_init_of(marker):
                    break
            await sleeper
        await super().run(instruction, environment, context)


class RunnerKiller(TerminalAgent):
    """Kills the runner process that it runs in."""

    options_model = FaultOptions

    async def run(self, instruction, environment, context):
        if blow(self.options):
            os.kill(os.getpid(), signal.SIGKILL)
        await super().run(instruction, environment, context)


class RunnerStarver(TerminalAgent):
    """Takes the memory of the runner process that it runs in, all but some MiB."""

    options_model = FaultOptions

    async def run(self, instruction, environment, context):
        if blow(self.options):
            pages = int(Path("/proc/self/statm").read_text().split()[0])
            limit = pages * resource.getpagesize() + (4 << 20)
            resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
            self.eaten = bytearray(3 << 20)
        await super().run(instruction, environment, context)


class Silent(TerminalAgent):
    """Makes no model call."""

    async def run(self, instruction, environment, context):
        await environment.exec("true")


class Sleeper(TerminalAgent):
    """Makes one call, then waits in a long command."""

    async def run(self, instruction, environment, context):
        await self.chat([{"role": "user", "content": instruction}]) if hasattr(self, "chat") else None
        await environment.exec("sleep 300", timeout_sec=300)


class Crasher(TerminalAgent):
    """Fails with an exception that nobody has heard of."""

    async def run(self, instruction, environment, context):
        await super().run(instruction, environment, context)
        raise ZeroDivisionError("an agent's own bug")
