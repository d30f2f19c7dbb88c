"""What the engine of a training run does with an operator's commands. Doing one twice is harmless."""

from __future__ import annotations

from console.engine import run_commands, trial_commands, tune_command
from console.engine.command_table import CommandTable, Planner
from console.engine.operable import Operable


class EngineCommands(CommandTable):
    """Implements the command table for a training run."""

    def __init__(self, engine: Operable) -> None:
        plans: dict[str, Planner] = {
            "cancel_trial": lambda command: trial_commands.cancel_trial(engine.steering, command),
            "cancel_group": lambda command: trial_commands.cancel_group(engine.steering, command),
            "retry": lambda command: trial_commands.retry(engine.steering, command),
            "pause": lambda command: run_commands.pause(engine, command),
            "resume": lambda command: run_commands.resume(engine, command),
            "stop_after_step": lambda command: run_commands.stop_after_step(engine, command),
            "stop_now": lambda command: run_commands.stop_now(engine, command),
            "checkpoint": lambda command: run_commands.checkpoint(engine, command),
            "quarantine": lambda command: run_commands.quarantine(engine, command),
            "set": lambda command: tune_command.tune(engine, command),
        }
        super().__init__(engine, plans)
