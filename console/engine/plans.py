"""What judging a command comes to: whether it can be done, what it would do, and how."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import NamedTuple

from console.control.commands import Command


class Plan(NamedTuple):
    """`text`: what it would do or why not, one sentence; `act`: does it and says what happened, None for nothing."""

    possible: bool
    text: str
    act: Callable[[], str | Awaitable[str]] | None = None


def refuse(text: str) -> Plan:
    """It cannot be done."""
    return Plan(False, text)


def already(text: str) -> Plan:
    """There is nothing to do."""
    return Plan(True, text)


def by(command: Command) -> str:
    """Who asks."""
    return command.author or "operator"


def count(number: int, noun: str) -> str:
    """`1 trial`, `2 trials`."""
    return f"{number} {noun}" + ("" if number == 1 else "s")


def index(command: Command, name: str) -> int:
    """An index among the arguments, -1 when it is missing."""
    value = command.args.get(name, -1)
    return value if isinstance(value, int) else -1
