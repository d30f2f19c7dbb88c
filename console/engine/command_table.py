"""From a command to its plan, and from the plan to what happened; the same for every kind of run."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping

from console.control.commands import Command
from console.engine import alarm_commands
from console.engine.operable import Told
from console.engine.plans import Plan, refuse
from console.errors import QuarterdeckError
from console.state.sanitize import sanitize

type Planner = Callable[[Command], Plan]

WHILE_ENDING = ("stop_now", "ack", "shelve", "note")
"""What still makes sense when the run is ending."""


class CommandTable:
    """Implements the command table; `plans` are those of one kind of run, by name.

    What is only said about a run is the same for all of them.
    """

    def __init__(self, engine: Told, plans: Mapping[str, Planner]) -> None:
        self._told = engine
        self._plans: dict[str, Planner] = {
            **plans,
            "ack": lambda command: alarm_commands.ack(engine, command),
            "shelve": lambda command: alarm_commands.shelve(engine, command),
            "note": lambda command: alarm_commands.note(engine, command),
        }

    def describe(self, command: Command) -> tuple[bool, str]:
        """Whether the command can be done now, and what it would do or why not."""
        plan = self._plan(command)
        return plan.possible, plan.text

    async def execute(self, command: Command) -> tuple[bool, str]:
        """Do it; return whether, and what happened. What takes long, as a checkpoint does, is waited for."""
        plan = self._plan(command)
        if not plan.possible or plan.act is None:
            return plan.possible, plan.text
        try:
            said = plan.act()
            return True, await said if inspect.isawaitable(said) else said
        except QuarterdeckError as error:
            return False, str(error)

    def _plan(self, command: Command) -> Plan:
        if self._told.ending and command.command not in WHILE_ENDING:
            return refuse("the run is ending")
        plan = self._plans.get(command.command)
        if plan is None:
            return refuse(f"{sanitize(command.command, 40)} is not for this kind of run")
        return plan(command)
