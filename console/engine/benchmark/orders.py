"""What the engine of a benchmark run does with an operator's commands. Doing one twice is harmless."""

from __future__ import annotations

from typing import TYPE_CHECKING

from console.control.commands import Command
from console.engine.command_table import CommandTable, Planner
from console.engine.plans import Plan, already, by, count, refuse
from console.state.sanitize import sanitize

if TYPE_CHECKING:
    from console.engine.benchmark.engine import BenchEngine

_ALONE = "Harbor cannot end a trial of a job alone: its time limit ends it, `stop-now` ends all of them"
_OF_TRAINING = {
    "cancel_trial": _ALONE,
    "cancel_group": _ALONE,
    "checkpoint": "a benchmark has no weights to save: what is done is in Harbor's job directory",
    "quarantine": "a job's tasks are fixed when it begins: leave the task out with exclude_task_names in the next one",
}


class Orders(CommandTable):
    """Implements the command table for a benchmark run."""

    def __init__(self, engine: BenchEngine) -> None:
        self._engine = engine
        plans: dict[str, Planner] = {
            "pause": self._pause,
            "resume": self._resume,
            "stop_after_step": self._stop_after_step,
            "stop_now": self._stop_now,
            "retry": self._retry,
            "set": self._set,
        }
        super().__init__(engine, plans | dict.fromkeys(_OF_TRAINING, _not_here))

    # --- commands ----------------------------------------

    def _pause(self, command: Command) -> Plan:
        dispatch = self._engine.dispatch
        if dispatch.paused:
            return already(f"paused already, by {sanitize(self._engine.view.state.paused_by, 60) or 'operator'}")
        running, waiting = self._running(), self._waiting()
        finish = f"{running} under way go on" if running != 1 else "1 under way goes on"

        def act() -> str:
            dispatch.pause(True, by(command))
            return f"paused: {finish}, {waiting} wait"

        return Plan(True, f"begins no new trial until resumed: {finish}, {waiting} wait", act)

    def _resume(self, command: Command) -> Plan:
        dispatch = self._engine.dispatch
        if not dispatch.paused:
            return already("not paused")
        begin = max(0, min(self._waiting(), dispatch.limit - self._running()))

        def act() -> str:
            dispatch.pause(False, by(command))
            return f"resumed: {count(begin, 'trial')} begun"

        return Plan(True, f"begins {count(begin, 'trial')} now, and the others in their turn", act)

    def _stop_after_step(self, command: Command) -> Plan:
        dispatch, on = self._engine.dispatch, bool(command.args.get("on", True))
        if on == dispatch.draining:
            return already("already asked for" if on else "no stop is asked for")
        text = f"begins no more trials, and ends when {count(self._running(), 'trial')} at work ended"
        waiting = self._waiting()
        if waiting:
            text += f"; {waiting} not begun: bench mop-up runs them"

        def act() -> str:
            dispatch.drain(on, by(command))
            return text if on else "goes on"

        return Plan(True, text if on else "takes the stop back; trials begin again", act)

    def _stop_now(self, command: Command) -> Plan:
        engine, soon = self._engine, bool(command.args.get("soon"))
        if engine.ending and not soon:
            return already("the run is ending already")
        running, waiting = self._running(), self._waiting()

        def act() -> str:
            engine.stop_now(by(command), why=command.reason, soon=soon)
            return f"stopping: {count(running, 'trial')} cancelled"

        text = f"cancels {count(running, 'running trial')} and ends the run"
        return Plan(True, text + (f"; {waiting} never begin" if waiting else ""), act)

    def _retry(self, command: Command) -> Plan:
        where = sanitize(self._engine.options.family_dir, 300)
        return refuse(
            f"Harbor tries no trial again that it is done with: quarterdeck bench mop-up {where}, when it ended"
        )

    def _set(self, command: Command) -> Plan:
        engine, dispatch = self._engine, self._engine.dispatch
        others = [name for name in command.args if name != "concurrency"]
        if others:
            return refuse(f"{sanitize(others[0], 40)} is not for benchmark runs; `set concurrency=` is")
        value = command.args.get("concurrency")
        if isinstance(value, bool) or not isinstance(value, int | float) or value != int(value) or value < 1:
            return refuse("concurrency must be a whole number above 0; `pause` begins none")
        limit = int(value)
        if limit > dispatch.most:
            return refuse(
                f"concurrency {limit} is above the job's own n_concurrent_trials, {dispatch.most}, which Harbor cannot "
                "exceed while it runs; give the next job more"
            )
        if limit == dispatch.limit:
            return already(f"concurrency is {limit} already")
        running = self._running()
        begin = max(0, min(self._waiting(), limit - running)) if not dispatch.paused else 0
        effect = f"none begins until fewer than {limit} run" if running >= limit else f"{count(begin, 'trial')} begun"

        def act() -> str:
            engine.course.limit(limit, by(command))
            return f"concurrency is {limit}: {effect}"

        return Plan(True, f"concurrency from {dispatch.limit} to {limit}: {effect}", act)

    def _running(self) -> int:
        return self._engine.trials.at_work if self._engine.trials is not None else 0

    def _waiting(self) -> int:
        trials = self._engine.trials
        return trials.left - trials.at_work if trials is not None else 0


def _not_here(command: Command) -> Plan:
    return refuse(_OF_TRAINING[command.command])
