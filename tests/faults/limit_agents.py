"""Agents that meet the limits of the policy's context and of their own time, for the runner to import by path."""

from __future__ import annotations

import asyncio

from console.trials.agent import TerminalAgent


class Greedy(TerminalAgent):
    """After one good turn it tells the model more than any window holds."""

    async def _ask(self, messages, context, tally):
        if tally["turns"]:
            messages = [*messages, {"role": "user", "content": "word " * 20_000}]
        return await super()._ask(messages, context, tally)


class Patient(TerminalAgent):
    """Makes one call, says so with a file in its log directory, and makes a second one when the file `go` is there."""

    async def run(self, instruction, environment, context):
        messages = [{"role": "user", "content": instruction}]
        tally = {"turns": 0, "model_seconds": 0.0}
        await self._ask(messages, context, tally)
        (self.logs_dir / "waiting").touch()
        while not (self.logs_dir / "go").exists():  # noqa: ASYNC110 - told from another process
            await asyncio.sleep(0.02)
        await self._ask(messages, context, tally)
