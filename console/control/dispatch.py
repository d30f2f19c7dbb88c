"""A command's whole way, without a socket: check, record, accept, do, record.

Intent is on the disk, in the journal and in the audit file, before anything is done; what cannot be recorded is not
done. The journal syncs a request with the event that answers it, and the audit file is synced at the same time.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable
from contextlib import suppress
from typing import Protocol

import msgspec

from console.control.audit import AuditLog
from console.control.commands import COMMANDS, ArgSpec, Command, CommandResult, CommandSpec
from console.journal.events import CommandAccepted, CommandFinished, CommandRequested, Event, Scalars
from console.state.sanitize import sanitize

REASON_LIMIT = 500
AUTHOR_LIMIT = 120
ID_LIMIT = 64
RESULTS_KEPT = 1000
ENDED_FIRST = "the engine ended first"

_log = logging.getLogger(__name__)
_TARGETS: dict[str, tuple[str, ...]] = {
    "none": (),
    "group": ("group",),
    "trial": ("group", "trial"),
    "optional": ("group", "trial"),
}


class CommandHandler(Protocol):
    """What the engine does with commands. Texts are shown to the operator: one sentence."""

    def describe(self, command: Command) -> tuple[bool, str]:
        """Whether it can be done now, and what would happen or why not. Without effect."""

    async def execute(self, command: Command) -> tuple[bool, str]:
        """Do it; return whether it was done, and what happened. Doing it again must be harmless."""


class CommandDispatcher:
    """Takes commands from any number of senders; each id is done once.

    Attributes:
        append_event, audit: where everything that an operator does is written first; the watch uses them too.
    """

    def __init__(self, append_event: Callable[[Event], object], audit: AuditLog, handler: CommandHandler) -> None:
        """`append_event` must have an accepted or finished command, and its request, on the disk when it returns."""
        self.append_event = append_event
        self.audit = audit
        self._handler = handler
        self._tasks: dict[str, tuple[bytes, asyncio.Task[CommandResult]]] = {}

    async def submit(self, command: Command, peer: str = "") -> CommandResult:
        """The command's result. It is carried out to its end even if the caller goes away.

        The same id again waits for, or repeats, the same result; the same id with other content is refused.
        """
        fault = fault_of(command)
        command = _cleaned(command)
        if fault:
            return CommandResult(id=command.id, status="refused", text=fault)
        if command.dry_run:
            done, text = self._describe(command)
            return CommandResult(id=command.id, status="dry_run" if done else "refused", text=text)
        content = msgspec.json.encode([command.command, command.args], order="deterministic")
        known = self._tasks.get(command.id)
        if known is None:
            known = (content, asyncio.create_task(self._carry_out(command, peer)))
            self._tasks[command.id] = known
            self._forget_old()
        elif known[0] != content:
            return CommandResult(id=command.id, status="refused", text=f"id {command.id} was used for another command")
        return await asyncio.shield(known[1])

    def knows(self, command_id: str) -> bool:
        """Whether a command of this id was taken already: sending it again only asks for its result."""
        return command_id in self._tasks

    async def close(self) -> None:
        """Cancel what is under way; each such command is recorded as refused because the engine ended."""
        tasks = [task for _, task in self._tasks.values() if not task.done()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _carry_out(self, command: Command, peer: str) -> CommandResult:
        try:
            self.append_event(
                CommandRequested(
                    id=command.id, command=command.command, args=command.args, author=command.author,
                    reason=command.reason,
                )
            )  # fmt: skip
            audited = _aside(self.audit.intent, command, peer)
            possible, text = self._describe(command)
            if possible:
                self.append_event(CommandAccepted(id=command.id, effect=text))
            await asyncio.shield(audited)  # meanwhile whoever watches sees that it was accepted
            if not possible:
                return await self._finish(command, peer, "refused", text)
        except asyncio.CancelledError:
            return await self._finish(command, peer, "refused", ENDED_FIRST)
        except Exception as error:
            _log.exception("command %s was not recorded, so not done", command.command)
            text = f"it could not be recorded ({_short(error)}), so nothing was done"
            return await self._finish(command, peer, "refused", text)
        try:
            done, text = await self._handler.execute(command)
        except asyncio.CancelledError:
            return await self._finish(command, peer, "refused", ENDED_FIRST)
        except Exception as error:
            _log.exception("command %s failed", command.command)
            return await self._finish(command, peer, "refused", f"it failed: {_short(error)}")
        return await self._finish(command, peer, "done" if done else "refused", text)

    async def _finish(self, command: Command, peer: str, status: str, text: str) -> CommandResult:
        """Record the end. A full disk must not hide from the sender what was done."""
        result = CommandResult(id=command.id, status=status, text=sanitize(text, REASON_LIMIT))
        audited = _aside(self.audit.result, command, result, peer)
        try:
            self.append_event(CommandFinished(id=command.id, status=status, result=result.text))
        except Exception:
            _log.exception("the result of command %s (%s) is not in the journal", command.command, status)
        while not audited.done():
            with suppress(asyncio.CancelledError):  # the engine ends: it waits for this, too
                await asyncio.wait({audited})
        if audited.exception() is not None:
            _log.error("the result of command %s (%s) is not in the audit file: %s", command.command, status,
                       audited.exception())  # fmt: skip
        return result

    def _describe(self, command: Command) -> tuple[bool, str]:
        try:
            return self._handler.describe(command)
        except Exception as error:
            _log.exception("command %s cannot be judged", command.command)
            return False, f"it cannot be judged now: {_short(error)}"

    def _forget_old(self) -> None:
        excess = len(self._tasks) - RESULTS_KEPT
        for known in [i for i, (_, task) in self._tasks.items() if task.done()][: max(0, excess)]:
            del self._tasks[known]


def _aside[**P](work: Callable[P, None], *args: P.args, **kwargs: P.kwargs) -> asyncio.Task[None]:
    """Do it on a thread: a file is synced there while the journal is synced here, and the disk takes both at once."""
    task = asyncio.create_task(asyncio.to_thread(work, *args, **kwargs))
    task.add_done_callback(lambda done: done.cancelled() or done.exception())  # whoever waits for it hears of it
    return task


def fault_of(command: Command) -> str:
    """What is wrong with the command's form, empty when nothing is. Whether it can be done is the engine's to say."""
    spec = COMMANDS.get(command.command)
    if not command.id or sanitize(command.id, ID_LIMIT) != command.id:
        return f"a command needs an id of 1 to {ID_LIMIT} printable characters"
    if spec is None:
        return f"unknown command {sanitize(command.command, 40)!r}: choose from {', '.join(COMMANDS)}"
    unknown = sorted(set(command.args) - {*_TARGETS[spec.target], *(arg.name for arg in spec.args)})
    if unknown:
        return f"{spec.name} does not take {', '.join(repr(sanitize(u, 40)) for u in unknown)}"
    return _target_fault(spec.name, spec.target, command.args) or _args_fault(spec, command.args)


def _target_fault(name: str, target: str, args: Scalars) -> str:
    for key in ("group", "trial"):
        value = args.get(key)
        if key in args and not _is_index(value):
            return f"{name}: {key} must be an index from 0"
    if target in ("group", "trial") and "group" not in args:
        return f"{name} needs a target: {'g3' if target == 'group' else 'g3/t5'}"
    if target == "trial" and "trial" not in args:
        return f"{name} needs a trial: g{args['group'] + 1}/t1, for example"  # type: ignore[operator]
    if "trial" in args and "group" not in args:
        return f"{name}: a trial needs its group"
    return ""


def _args_fault(spec: CommandSpec, args: Scalars) -> str:
    for arg in spec.args:
        if arg.name in args:
            fault = _value_fault(arg, args[arg.name])
            if fault:
                return f"{spec.name}: {arg.name} {fault}"
        elif arg.required:
            return f"{spec.name} needs {arg.name}: {arg.help}"
    if spec.one_of and not any(arg.name in args for arg in spec.args):
        return f"{spec.name} needs one of {', '.join(arg.name for arg in spec.args)}"
    return ""


def _is_index(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 31


def _value_fault(arg: ArgSpec, value: float | int | str | bool | None) -> str:
    number = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    match arg.kind:
        case "flag":
            return "" if isinstance(value, bool) else "must be true or false"
        case "text":
            fits = isinstance(value, str) and len(value.strip()) > 0 and len(value) <= REASON_LIMIT
            return "" if fits else f"must be 1 to {REASON_LIMIT} characters"
        case "number":
            return "" if number and value > 0 else "must be a number above 0"  # type: ignore[operator]
        case "budget":
            fits = value is None or (number and value >= 0)  # type: ignore[operator]
            return "" if fits else "must be a number from 0, or none"
        case "index":
            return "" if _is_index(value) else "must be a whole number from 0"


def _cleaned(command: Command) -> Command:
    return msgspec.structs.replace(
        command,
        id=sanitize(command.id, ID_LIMIT),
        author=sanitize(command.author, AUTHOR_LIMIT),
        reason=sanitize(command.reason, REASON_LIMIT),
    )


def _short(error: Exception) -> str:
    return f"{type(error).__name__}: {sanitize(str(error), 200)}"
