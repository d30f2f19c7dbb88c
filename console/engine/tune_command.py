"""`set`: parallelism, hold time-out, tries and budgets while the run lasts."""

from __future__ import annotations

from console.control.commands import Command
from console.engine.latch import BUDGETS, amount
from console.engine.operable import Operable
from console.engine.plans import Plan, already, by, count, refuse
from console.engine.steering import Steering
from console.journal.events import TUNABLES
from console.state.findings import span
from console.state.lines import trial_name

WHOLE = ("parallel", "max_tries", "token_budget")
MOST = {"parallel": 10_000, "max_tries": 1000, "hold_timeout": 30 * 86400.0}
"""Larger values are typing errors."""


def tune(engine: Operable, command: Command) -> Plan:
    """Judge all values; when one does not fit, none is set."""
    steering = engine.steering
    now = steering.tunables
    changes: dict[str, float | None] = {}
    if "concurrency" in command.args:
        return refuse("concurrency is a benchmark's: this run trains, and has parallel")
    for name in TUNABLES:
        if name in command.args:
            value = command.args[name]
            fault = _fault(name, value)
            if fault:
                return refuse(f"{name} {fault}")
            assert not isinstance(value, str)
            if value != now[name]:
                changes[name] = int(value) if value is not None and name in WHOLE else value
    if not changes:
        same = [f"{name} is {amount(name, now[name])} already" for name in TUNABLES if name in command.args]
        return already("; ".join(same))
    if steering.latch.left and changes.keys() & BUDGETS.keys():
        return refuse("too late for a budget: the step is done, the run is ending")
    for name, value in changes.items():
        ends = _ends_the_run(steering, name, value)
        if ends:
            return refuse(ends)

    def act() -> str:
        for name, value in changes.items():
            steering.tune(name, value, by(command))
        return "; ".join(f"{name} is {amount(name, value)}" for name, value in changes.items())

    said = (f"{n} from {amount(n, now[n])} to {amount(n, v)}{_effect(steering, n, v)}" for n, v in changes.items())
    return Plan(True, "; ".join(said), act)


def _fault(name: str, value: object) -> str:
    """Why a value does not fit, empty when it does. Its type was checked before."""
    if value is None:
        return "" if name in BUDGETS else "must be a number"
    if isinstance(value, bool) or not isinstance(value, int | float):
        return "must be a number"
    if name in WHOLE and not float(value).is_integer():
        return "must be a whole number"
    if value <= 0 or (name in WHOLE and value < 1):
        return "must be above 0" + (", or none for no bound" if name in BUDGETS else "")
    if value > MOST.get(name, 1e18):
        return f"must be at most {amount(name, MOST.get(name, 1e18))}"
    return ""


def _ends_the_run(steering: Steering, name: str, value: float | None) -> str:
    """Why a value would end the run by itself, empty when it would not. There are commands that say so and ask."""
    if value is None:
        return ""
    if name in BUDGETS and steering.budgets.used(name) >= value:
        used = amount(name, int(steering.budgets.used(name)))
        return f"{name} {amount(name, value)} is used up already ({used} used): `stop-after-step` stops the run"
    if name == "hold_timeout":
        late = max(steering.groups.trials, key=lambda trial: trial.held_for(), default=None)
        if late is not None and late.held is not None and late.held_for() >= value:
            waited = f"{trial_name(late.group, late.trial)} has waited ({span(late.held_for())})"
            return (
                f"hold_timeout {amount(name, value)} is less than {waited}: the run would stop at once; "
                "cancel or retry it first, or `stop-now`"
            )
    return ""


def _effect(steering: Steering, name: str, value: float | None) -> str:
    """What follows at once, as the end of the sentence."""
    if name in BUDGETS:
        return _budget_effect(steering, name)
    assert value is not None
    groups, trials = steering.groups.active.values(), steering.groups.trials
    if name == "parallel":
        if value < steering.dispatch.parallel:
            full = sum(group.slots.taken >= value for group in groups)
            return f": none is stopped, {count(full, 'group')} begin{'s' if full == 1 else ''} no trial until fewer run"
        begin = sum(min(g.slots.waiting, max(0, int(value) - g.slots.taken)) for g in groups)
        when = "when dispatch is resumed" if steering.dispatch.paused else "at once"
        return f": {count(begin, 'queued trial')} begin{'s' if begin == 1 else ''} {when}"
    held = [trial for trial in trials if trial.held is not None]
    if name == "hold_timeout":
        return f": moves the deadline of {count(len(held), 'held trial')}"
    spent = sum(trial.tries >= value for trial in held)
    return f": {spent} of {count(len(held), 'held trial')} may not be tried again" if held else ""


def _budget_effect(steering: Steering, name: str) -> str:
    used, holds = steering.budgets.used(name), steering.budgets.holds(name)
    text = f": {amount(name, int(used))} used"
    return f"{text}, takes its stop back" if holds else text
