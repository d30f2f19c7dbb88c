"""The commands an engine takes: one table for the console's keys, for `ctl`, and for the help of both."""

from __future__ import annotations

import msgspec

from console.errors import UsageError
from console.journal.events import Scalars


class CommandSpec(msgspec.Struct, kw_only=True, frozen=True):
    """One command.

    Attributes:
        name: as journal and socket spell it; `ctl` uses the same with dashes.
        help: one line; cost: what is lost, for the confirmation, empty when nothing is.
        target: none, group, trial, or optional (a trial, a group, or all).
        destructive: the console asks before it sends it.
    """

    name: str
    help: str
    target: str = "none"
    cost: str = ""
    destructive: bool = False


COMMANDS: dict[str, CommandSpec] = {
    spec.name: spec
    for spec in (
        CommandSpec(
            name="cancel_trial",
            help="cancel one trial; its group trains without it if two scored trials remain",
            target="trial",
            cost="the trial's work is lost",
            destructive=True,
        ),
        CommandSpec(
            name="cancel_group",
            help="cancel a group; the step trains on the others",
            target="group",
            cost="the group's trials are lost, scored ones too",
            destructive=True,
        ),
        CommandSpec(
            name="retry",
            help="try infrastructure failures again: one trial, a group's, or all that are held",
            target="optional",
        ),
        CommandSpec(
            name="stop_after_step", help="stop when the current step is trained and saved; again to take it back"
        ),
        CommandSpec(
            name="stop_now",
            help="cancel every trial, save nothing more, end the run",
            cost="the current step is lost",
            destructive=True,
        ),
    )
}


class Command(msgspec.Struct, kw_only=True):
    """A request to the engine.

    Attributes:
        id: chosen by the sender; the same id twice is one command (idempotent).
        args: `group` and `trial` as indices from 0; for stop_after_step `on` (default True, False takes it back).
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
