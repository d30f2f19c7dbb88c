"""What the engine does with an operator's commands. Doing one twice is harmless."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from console.control.commands import Command
from console.state.lines import trial_name

if TYPE_CHECKING:
    from console.training.groups import GroupRun
    from console.training.trial_run import TrialRun


class Operable(Protocol):
    """What commands act on: the parts of the engine they need."""

    @property
    def active_groups(self) -> dict[int, GroupRun]:
        """Groups of the current step that run now, by index."""

    @property
    def ending(self) -> bool:
        """Whether the run is ending already."""

    @property
    def stop_after_step(self) -> bool:
        """The latch."""

    def set_stop_after_step(self, on: bool, by: str) -> None: ...

    def stop_now(self, by: str) -> None: ...


class EngineCommands:
    """Implements the command table for a training run."""

    def __init__(self, engine: Operable) -> None:
        self._engine = engine
        self._plans: dict[str, Callable[[Command], tuple[bool, str, Callable[[], str] | None]]] = {
            "cancel_trial": self._cancel_trial,
            "cancel_group": self._cancel_group,
            "retry": self._retry,
            "stop_after_step": self._stop_after_step,
            "stop_now": self._stop_now,
        }

    def describe(self, command: Command) -> tuple[bool, str]:
        """Whether the command can be done now, and what it would do or why not."""
        possible, text, _ = self._plan(command)
        return possible, text

    async def execute(self, command: Command) -> tuple[bool, str]:
        """Do it; return whether, and what happened."""
        possible, text, act = self._plan(command)
        if not possible or act is None:
            return possible, text
        return True, act()

    def _plan(self, command: Command) -> tuple[bool, str, Callable[[], str] | None]:
        if self._engine.ending and command.command != "stop_now":
            return False, "the run is ending", None
        return self._plans[command.command](command)

    def _cancel_trial(self, command: Command) -> tuple[bool, str, Callable[[], str] | None]:
        trial, problem = self._trial(command)
        if trial is None:
            return False, problem, None
        name = trial_name(trial.group, trial.trial)
        if trial.done:
            return False, f"{name} has ended already", None
        if trial.cancelled_by:
            return True, f"{name} is being cancelled already", None

        def act() -> str:
            trial.cancel("operator")
            return f"{name} cancelled"

        return True, f"cancels {name}; its group trains without it if two scored trials remain", act

    def _cancel_group(self, command: Command) -> tuple[bool, str, Callable[[], str] | None]:
        group = self._group(command)
        if group is None:
            return False, f"g{_index(command, 'group') + 1} does not run now: it has ended or does not exist", None
        name = f"g{group.group + 1}"
        if group.cancelled_by:
            return True, f"{name} is being cancelled already", None
        running = group.unfinished
        scored = sum(t.result is not None and t.result.verdict.scored for t in group.trials)
        others = sum(1 for g in self._engine.active_groups.values() if g is not group and not g.cancelled_by)

        def act() -> str:
            group.cancel("operator")
            return f"{name} cancelled: {running} trials stopped, {scored} scored ones discarded"

        text = f"cancels {name} ({group.task}): stops {running} trials, discards {scored} scored ones"
        return True, f"{text}; {others} other groups go on", act

    def _retry(self, command: Command) -> tuple[bool, str, Callable[[], str] | None]:
        wanted = self._trials(command)
        held = [t for t in wanted if t.held is not None]
        ready = [t for t in held if t.held is not None and t.held.verdict.retryable]
        if not ready:
            if held:
                return False, "only infrastructure failures are tried again; scored and faulty ones never are", None
            return False, "no trial is held for a retry", None
        names = ", ".join(trial_name(t.group, t.trial) for t in ready[:4]) + (" ..." if len(ready) > 4 else "")

        def act() -> str:
            count = sum(t.retry() for t in ready)
            return f"{count} trials tried again: {names}"

        return True, f"tries {len(ready)} trials again in fresh sandboxes: {names}", act

    def _stop_after_step(self, command: Command) -> tuple[bool, str, Callable[[], str] | None]:
        on = bool(command.args.get("on", True))
        if on == self._engine.stop_after_step:
            return True, "already asked for" if on else "no stop is asked for", None

        def act() -> str:
            self._engine.set_stop_after_step(on, command.author or "operator")
            return "stops when the step is trained and saved" if on else "goes on"

        return True, "stops when the current step is trained and saved" if on else "takes the stop back", act

    def _stop_now(self, command: Command) -> tuple[bool, str, Callable[[], str] | None]:
        if self._engine.ending:
            return True, "the run is ending already", None
        running = sum(group.unfinished for group in self._engine.active_groups.values())

        def act() -> str:
            self._engine.stop_now(command.author or "operator")
            return f"stopping: {running} trials cancelled"

        return True, f"cancels {running} trials and ends the run; the current step is lost", act

    def _group(self, command: Command) -> GroupRun | None:
        return self._engine.active_groups.get(_index(command, "group"))

    def _trial(self, command: Command) -> tuple[TrialRun | None, str]:
        group, index = self._group(command), _index(command, "trial")
        if group is None or not 0 <= index < len(group.trials):
            return None, f"{trial_name(_index(command, 'group'), index)} does not run now"
        return group.trials[index], ""

    def _trials(self, command: Command) -> list[TrialRun]:
        groups = list(self._engine.active_groups.values())
        if "group" in command.args:
            groups = [g for g in groups if g.group == _index(command, "group")]
        trials = [t for g in groups for t in g.trials]
        if "trial" in command.args:
            trials = [t for t in trials if t.trial == _index(command, "trial")]
        return trials


def _index(command: Command, name: str) -> int:
    value = command.args.get(name, -1)
    return value if isinstance(value, int) else -1
