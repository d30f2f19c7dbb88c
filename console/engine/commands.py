"""What the engine does with an operator's commands. Doing one twice is harmless."""

from __future__ import annotations

import inspect
from collections.abc import Callable

from console.control.commands import Command
from console.engine import alarm_commands, run_commands, trial_commands, tune_command
from console.engine.operable import Operable
from console.engine.plans import Plan, refuse
from console.errors import QuarterdeckError

WHILE_ENDING = ("stop_now", "ack", "shelve", "note")
"""What still makes sense when the run is ending."""


class EngineCommands:
    """Implements the command table for a training run."""

    def __init__(self, engine: Operable) -> None:
        self._engine = engine
        self._plans: dict[str, Callable[[Command], Plan]] = {
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
            "ack": lambda command: alarm_commands.ack(engine, command),
            "shelve": lambda command: alarm_commands.shelve(engine, command),
            "note": lambda command: alarm_commands.note(engine, command),
        }

    def describe(self, command: Command) -> tuple[bool, str]:
        """Whether the command can be done now, and what it would do or why not."""
        plan = self._plan(command)
        return plan.possible, plan.text

    async def execute(self, command: Command) -> tuple[bool, str]:
        """Do it; return whether, and what happened. A checkpoint is waited for."""
        plan = self._plan(command)
        if not plan.possible or plan.act is None:
            return plan.possible, plan.text
        try:
            said = plan.act()
            return True, await said if inspect.isawaitable(said) else said
        except QuarterdeckError as error:
            return False, str(error)

    def _plan(self, command: Command) -> Plan:
        if self._engine.ending and command.command not in WHILE_ENDING:
            return refuse("the run is ending")
        return self._plans[command.command](command)
