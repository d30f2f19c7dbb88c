"""Cancel and retry: what an operator does to trials and groups of the current step."""

from __future__ import annotations

from typing import TYPE_CHECKING

from console.control.commands import Command
from console.engine.plans import Plan, already, by, count, index, refuse
from console.engine.steering import Steering
from console.state.lines import trial_name
from console.state.sanitize import sanitize

if TYPE_CHECKING:
    from console.training.groups import GroupRun
    from console.training.trial_run import TrialRun

FRESH = "fresh sandbox, fresh route, same policy version"


def cancel_trial(steering: Steering, command: Command) -> Plan:
    """One trial leaves its group."""
    elsewhere = _of_another_step(steering, command)
    if elsewhere:
        return refuse(elsewhere)
    group, at = _group(steering, command), index(command, "trial")
    name = trial_name(index(command, "group"), at)
    if group is None or not 0 <= at < len(group.trials):
        return refuse(f"{name} does not run now")
    trial = group.trials[at]
    if trial.done:
        return refuse(f"{name} has ended already")
    if trial.cancelled_by:
        return already(f"{name} is being cancelled already")

    def act() -> str:
        trial.cancel(by(command))
        return f"{name} cancelled"

    left, named = group.may_score - 1, f"{name} ({sanitize(group.task, 60)})"
    if not group.may_train or left >= group.needed:
        return Plan(True, f"cancels {named}; its group goes on with {count(left, 'trial')}", act)
    scorable = f"g{group.group + 1} keeps {left} of {group.needed} scored trials needed and is dropped"
    return Plan(True, f"cancels {named}; {scorable}; {_rest(steering, group)}", act)


def cancel_group(steering: Steering, command: Command) -> Plan:
    """A whole group leaves its step, also one whose trials have ended, until the batch is complete."""
    elsewhere = _of_another_step(steering, command)
    if elsewhere:
        return refuse(elsewhere)
    group = _group(steering, command)
    name = f"g{index(command, 'group') + 1}"
    if group is None:
        return refuse(f"{name} cannot be cancelled now: it is being trained on, or does not exist")
    if group.cancelled_by:
        return already(f"{name} is being cancelled already")
    if group.result is not None and not group.result.kept:
        return already(f"{name} is dropped already: {sanitize(group.result.reason, 100)}")
    running = sum(trial.running for trial in group.trials)
    waiting = group.unfinished - running
    scored = sum(t.result is not None and t.result.verdict.scored for t in group.trials)
    what = [f"stops {count(running, 'running trial')}"]
    what += [f"ends {waiting} that {'waits' if waiting == 1 else 'wait'}"] if waiting else []
    text = f"{', '.join(what)}, discards {scored} scored"

    def act() -> str:
        group.cancel(by(command))
        return f"{name} cancelled: {running + waiting} trials stopped, {scored} scored ones discarded"

    return Plan(True, f"cancels {name} ({sanitize(group.task, 60)}): {text}; {_rest(steering, group)}", act)


def retry(steering: Steering, command: Command) -> Plan:
    """Held infrastructure failures are tried again."""
    elsewhere = _of_another_step(steering, command)
    if elsewhere:
        return refuse(elsewhere)
    held = [trial for trial in _trials(steering, command) if trial.held is not None]
    retryable = [t for t in held if t.held is not None and t.held.verdict.retryable]
    ready = [t for t in retryable if t.tries_left]
    if not held:
        return refuse("no trial is held for a retry")
    if not retryable:
        return refuse("only infrastructure failures are tried again; scored and faulty ones never are")
    most = steering.policy.max_tries
    if not ready:
        return refuse(f"{_names(retryable)}: try {retryable[0].tries} of {most}; `set max_tries=` raises it")

    def act() -> str:
        done = [t for t in ready if t.retry(by(command))]
        waits = "; they begin when dispatch is resumed" if steering.dispatch.paused else ""
        return f"{count(len(done), 'trial')} tried again: {_names(done)}{waits}"

    numbers = sorted({t.tries + 1 for t in ready})
    tries = f"try {' and '.join(map(str, numbers))} of {most}"
    text = f"{_names(ready)}: {tries}; {FRESH}"
    if len(retryable) > len(ready):
        text += f"; {count(len(retryable) - len(ready), 'other')} had {most} tries, `set max_tries=` raises it"
    if steering.dispatch.paused:
        text += "; waits until dispatch is resumed"
    return Plan(True, text, act)


def _rest(steering: Steering, group: GroupRun) -> str:
    """What becomes of the step without this group."""
    others = sum(g.may_train for g in steering.groups.active.values() if g is not group)
    if others:
        return f"the step goes on with {count(others, 'group')}"
    return "the step has no group left and trains nothing"


def _of_another_step(steering: Steering, command: Command) -> str:
    """Why the command means a step that does not run, empty when it does not. The next step has the same names."""
    meant, runs = command.args.get("step"), steering.groups.step
    if meant is None or meant == runs:
        return ""
    assert isinstance(meant, int)
    if "trial" in command.args:
        what = f"{trial_name(index(command, 'group'), index(command, 'trial'))} of step {meant}"
    else:
        what = f"g{index(command, 'group') + 1} of step {meant}" if "group" in command.args else f"step {meant}"
    if runs is None or meant > runs:
        return f"{what} has not begun yet"
    return f"{what} is over: step {runs} runs now"


def _group(steering: Steering, command: Command) -> GroupRun | None:
    return steering.groups.active.get(index(command, "group"))


def _trials(steering: Steering, command: Command) -> list[TrialRun]:
    """The trials of the target: one, a group's, or all."""
    trials = steering.groups.trials
    if "group" in command.args:
        trials = [t for t in trials if t.group == index(command, "group")]
    if "trial" in command.args:
        trials = [t for t in trials if t.trial == index(command, "trial")]
    return trials


def _names(trials: list[TrialRun]) -> str:
    names = ", ".join(trial_name(t.group, t.trial) for t in trials[:4])
    return names + (f" and {len(trials) - 4} more" if len(trials) > 4 else "")
