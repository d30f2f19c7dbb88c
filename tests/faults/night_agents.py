"""The night's agent, for the runner to import by path."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field

from console.trials.agent import TerminalAgent, TerminalAgentOptions

HANG_SECONDS = 3600


class HangingOptions(TerminalAgentOptions):
    fuses: str = Field(description="A directory with an entry for each task of which a trial is to hang.")


class Hanging(TerminalAgent):
    """The first trial of each task that has a fuse hangs in a command, without a model call, and takes the fuse."""

    options_model = HangingOptions

    async def run(self, instruction, environment, context):
        fuses = Path(self.options.fuses)
        try:
            (fuses / environment.environment_name).rename(fuses / environment.session_id)
        except FileNotFoundError:
            await super().run(instruction, environment, context)
        else:
            await environment.exec(f"sleep {HANG_SECONDS}", timeout_sec=HANG_SECONDS)
