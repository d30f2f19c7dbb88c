"""Pause, stop, checkpoint and quarantine: what an operator does to the run as a whole."""

from __future__ import annotations

import difflib
from collections.abc import Callable

from console.control.commands import Command
from console.engine.latch import BUDGETS, OPERATOR, amount
from console.engine.operable import Operable
from console.engine.plans import Plan, already, by, count, refuse
from console.state.sanitize import sanitize


def pause(engine: Operable, command: Command) -> Plan:
    """No new trial begins."""
    dispatch, trials = engine.steering.dispatch, engine.steering.groups.trials
    if dispatch.paused:
        return already(f"paused already, by {sanitize(engine.view.state.paused_by, 60) or 'operator'}")
    running, waiting = sum(t.running for t in trials), sum(t.queued for t in trials)
    finish = f"{running} under way go on" if running != 1 else "1 under way goes on"

    def act() -> str:
        engine.steering.pause(True, by(command))
        return f"paused: {finish}, {waiting} wait"

    return Plan(True, f"begins no new trial until resumed: {finish}, {waiting} wait in the queue", act)


def resume(engine: Operable, command: Command) -> Plan:
    """Trials begin again."""
    steering = engine.steering
    if not steering.dispatch.paused:
        return already("not paused")
    limit = steering.dispatch.parallel
    begin = sum(min(g.slots.waiting, max(0, limit - g.slots.taken)) for g in steering.groups.active.values())

    def act() -> str:
        steering.pause(False, by(command))
        return f"resumed: {count(begin, 'trial')} begun"

    return Plan(True, f"begins {count(begin, 'queued trial')} now, and the others in their turn", act)


def stop_after_step(engine: Operable, command: Command) -> Plan:
    """The latch, set or taken back."""
    latch, steering = engine.steering.latch, engine.steering
    on = bool(command.args.get("on", True))
    if latch.left:
        return already("the run is stopping already") if on else refuse("too late: the step is done, the run is ending")
    budgets = [name for name in BUDGETS if steering.budgets.holds(name)]
    if not on and not latch.holds(OPERATOR) and budgets:
        name = budgets[0]
        return refuse(
            f"the {BUDGETS[name]} of {amount(name, steering.budgets.limits[name])} is used up; "
            f"`set {name}=` raises it, and the run goes on"
        )
    if on == latch.holds(OPERATOR):
        return already("already asked for" if on else "no stop is asked for")

    def act() -> str:
        steering.stop_after_step(on, by(command))
        if on:
            return _when_it_stops(engine)
        return f"the {BUDGETS[budgets[0]]} still stops the run" if budgets else "goes on"

    return Plan(True, _when_it_stops(engine) if on else "takes the stop back; the run goes on", act)


def _when_it_stops(engine: Operable) -> str:
    if engine.view.state.step is None:
        return "stops before the first step"
    text = "stops when the current step is trained and saved"
    waiting = sum(trial.queued for trial in engine.steering.groups.trials)
    if engine.steering.dispatch.paused and waiting:
        text += f"; dispatch is paused, and the step waits for its {count(waiting, 'queued trial')} until it is resumed"
    return text


def stop_now(engine: Operable, command: Command) -> Plan:
    """The end, at once."""
    soon = bool(command.args.get("soon"))
    if engine.ending and not soon:
        return already("the run is ending already")
    trials = engine.steering.groups.trials
    running = sum(t.running for t in trials)
    scored = sum(t.result is not None and t.result.verdict.scored for t in trials)

    def act() -> str:
        engine.stop_now(by(command), why=command.reason, soon=soon)
        return f"stopping: {count(running, 'trial')} cancelled"

    text = f"cancels {count(running, 'running trial')} and ends the run"
    if engine.view.state.step is not None:
        text += f"; step {engine.view.state.step} is not trained, a resume uses its {count(scored, 'scored trial')}"
    return Plan(True, text, act)


def checkpoint(engine: Operable, command: Command) -> Plan:
    """A checkpoint now, or when the step has ended."""
    possible, text = engine.checkpoint_plan()

    async def act() -> str:
        saved = await engine.save_checkpoint()
        where = f"a resume goes on at step {saved.steps}"
        if saved.seconds is None:
            return f"checkpoint {saved.name} has these weights already; {where}"
        return f"checkpoint {saved.name} saved in {saved.seconds:.1f} s; {where}"

    return Plan(possible, text, act if possible else None)


def quarantine(engine: Operable, command: Command) -> Plan:
    """A task left out of later batches, or taken in again."""
    steering = engine.steering
    task, on = str(command.args.get("task", "")).strip(), bool(command.args.get("on", True))
    shown = sanitize(task, 60)
    if not on and task in steering.quarantined:
        return Plan(True, f"takes {shown} into the batches that begin from now on", _quarantines(engine, command, task))
    if task not in steering.tasks:
        close = difflib.get_close_matches(task, steering.tasks, n=3, cutoff=0.5)
        meant = f"did you mean {', '.join(sanitize(c, 60) for c in close)}?" if close else _some(steering.tasks)
        return refuse(f"no task {shown!r} in this run; {meant}")
    if on == (task in steering.quarantined):
        return already(f"{shown} is {'quarantined already' if on else 'not quarantined'}")
    left = [name for name in steering.tasks if name not in steering.quarantined and name != task]
    if not left:
        return refuse(f"{shown} is the last task that is not quarantined; a run needs one")
    names = [f"g{g.group + 1}" for g in steering.groups.active.values() if g.task == task]
    now = f"; {', '.join(names[:4])} of the current step goes on with it" if names else ""
    text = f"leaves {shown} out of the batches that begin from now on: {count(len(left), 'task')} remain{now}"
    return Plan(True, text, _quarantines(engine, command, task))


def _quarantines(engine: Operable, command: Command, task: str) -> Callable[[], str]:
    on = bool(command.args.get("on", True))

    def act() -> str:
        engine.steering.quarantine(task, on, by(command))
        return f"{sanitize(task, 60)} {'left out' if on else 'taken in'} from the next batch on"

    return act


def _some(tasks: list[str]) -> str:
    more = f" and {len(tasks) - 3} more" if len(tasks) > 3 else ""
    return f"tasks are {', '.join(sanitize(t, 60) for t in tasks[:3])}{more}" if tasks else "its tasks cannot be read"
