"""The commands an engine takes: one table for the console's keys, for `ctl`, and for the help of both."""

from __future__ import annotations

from typing import Literal

import msgspec

from console.errors import UsageError
from console.journal.events import Scalars


class ArgSpec(msgspec.Struct, kw_only=True, frozen=True):
    """One argument besides the target.

    Attributes:
        name: as in `Command.args`; kind: what values it takes: flag (bool), text (bounded), number (finite, above 0),
            budget (a number, or None for no bound), or index (a whole number from 0).
        help: one line; required: the command means nothing without it; default: what is meant when it is left out.
    """

    name: str
    kind: Literal["flag", "text", "number", "budget", "index"]
    help: str
    required: bool = False
    default: float | str | bool | None = None


class CommandSpec(msgspec.Struct, kw_only=True, frozen=True):
    """One command.

    Attributes:
        name: as journal and socket spell it; `ctl` uses the same with dashes.
        help: one line; cost: what is lost, for the confirmation, empty when nothing is.
        target: none, group, trial, or optional (a trial, a group, or all).
        args: further arguments; one_of: at least one of them must be given.
        destructive: the console asks before it sends it; typed: and wants the run's name typed.
    """

    name: str
    help: str
    target: Literal["none", "group", "trial", "optional"] = "none"
    args: tuple[ArgSpec, ...] = ()
    one_of: bool = False
    cost: str = ""
    destructive: bool = False
    typed: bool = False


def _number(name: str, help: str) -> ArgSpec:
    return ArgSpec(name=name, kind="number", help=help)


def _budget(name: str, help: str) -> ArgSpec:
    return ArgSpec(name=name, kind="budget", help=help)


_STEP = ArgSpec(name="step", kind="index", help="the step that is meant: refused when another one runs")

COMMANDS: dict[str, CommandSpec] = {
    spec.name: spec
    for spec in (
        CommandSpec(
            name="cancel_trial",
            help="cancel one trial; its group trains without it if two scored trials remain",
            target="trial",
            args=(_STEP,),
            cost="the trial's work is lost",
            destructive=True,
        ),
        CommandSpec(
            name="cancel_group",
            help="cancel a group; the step trains on the others",
            target="group",
            args=(_STEP,),
            cost="the group's trials are lost, scored ones too",
            destructive=True,
        ),
        CommandSpec(
            name="retry",
            help="try infrastructure failures again: one trial, a group's, or all that are held",
            target="optional",
            args=(_STEP,),
        ),
        CommandSpec(
            name="pause",
            help="begin no new trial; those under way go on",
        ),
        CommandSpec(
            name="resume",
            help="begin trials again after a pause",
        ),
        CommandSpec(
            name="stop_after_step",
            help="stop when the current step is trained and saved; again to take it back",
            args=(ArgSpec(name="on", kind="flag", help="false takes the request back", default=True),),
        ),
        CommandSpec(
            name="stop_now",
            help="cancel every trial, save nothing more, end the run",
            args=(ArgSpec(name="soon", kind="flag", help="within 6 s, as before a kill; do not wait for sandboxes"),),
            cost="the trials under way are lost",
            destructive=True,
            typed=True,
        ),
        CommandSpec(
            name="checkpoint",
            help="save a checkpoint: at once during a rollout, else when the step is trained",
        ),
        CommandSpec(
            name="set",
            help="change parallelism, hold time-out, tries or budgets while the run lasts; of a benchmark, concurrency",
            args=(
                _number("parallel", "trials of one group that run at once"),
                _number("hold_timeout", "seconds a failed trial waits for the operator; also of those that wait now"),
                _number("max_tries", "executions of one trial at most"),
                _budget("token_budget", "captured tokens after which the run stops with its step; none for no bound"),
                _budget("time_budget", "seconds of this engine's life, likewise"),
                _number("concurrency", "of a benchmark: trials at work at once"),
            ),
            one_of=True,
        ),
        CommandSpec(
            name="quarantine",
            help="leave a task out of the batches that begin from now on",
            args=(
                ArgSpec(name="task", kind="text", help="name of the task", required=True),
                ArgSpec(name="on", kind="flag", help="false takes the task in again", default=True),
            ),
        ),
        CommandSpec(
            name="ack",
            help="acknowledge an alarm, or all of them",
            args=(ArgSpec(name="alarm", kind="text", help="key of the alarm; all when left out"),),
        ),
        CommandSpec(
            name="shelve",
            help="silence an alarm for a while",
            args=(
                ArgSpec(name="alarm", kind="text", help="key of the alarm", required=True),
                ArgSpec(name="minutes", kind="budget", help="for how long; 0 takes it back", default=60.0),
            ),
        ),
        CommandSpec(
            name="note",
            help="add a note to the run's journal",
            args=(ArgSpec(name="text", kind="text", help="one line", required=True),),
        ),
    )
}


class Command(msgspec.Struct, kw_only=True):
    """A request to the engine.

    Attributes:
        id: chosen by the sender; the same id twice is one command (idempotent).
        args: `group` and `trial` as indices from 0, and what the command's `ArgSpec`s name.
        author: who, e.g. `ada@host`; reason: why, free text, bounded to 500 characters by the server.
        dry_run: answer what it would do, and do nothing.
    """

    id: str
    command: str
    args: Scalars = {}
    author: str = ""
    reason: str = ""
    dry_run: bool = False


class CommandResult(msgspec.Struct, kw_only=True):
    """The engine's answer: `status` is done, refused or dry_run; `text`: what happened, would happen, or why not."""

    id: str
    status: str
    text: str = ""


def parse_target(text: str) -> Scalars:
    """`g3` or `g3/t5` (counted from 1, as shown) as args. Raises `UsageError` for anything else."""
    group, _, trial = text.strip().lower().partition("/")
    if not (group.startswith("g") and group[1:].isdecimal() and int(group[1:]) > 0):
        raise UsageError(f"target {text!r} is not a group or a trial: write g3 or g3/t5")
    args: Scalars = {"group": int(group[1:]) - 1}
    if trial:
        if not (trial.startswith("t") and trial[1:].isdecimal() and int(trial[1:]) > 0):
            raise UsageError(f"target {text!r} is not a trial: write g3/t5")
        args["trial"] = int(trial[1:]) - 1
    return args
