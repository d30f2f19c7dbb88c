"""What the operator orders of the engine. An order asks first when it destroys something, and says what came of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from console.control.client import new_command
from console.control.commands import COMMANDS, Command, CommandResult
from console.errors import ControlError
from console.journal.events import Scalars
from console.state.lines import trial_name
from console.state.sanitize import sanitize
from console.tui.actions import BY_ID
from console.tui.picture import held_trials, stop_text
from console.tui.text import Line, Span, line

if TYPE_CHECKING:
    from console.tui.desk import Desk

STOP_SECONDS = 20.0


class Orders:
    """Handlers of the actions that go to the engine."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._sent: str | None = None

    def progress(self) -> Line:
        """How far the order that was sent last has come, from the journal; empty without one under way."""
        command = self._desk.state.commands.get(self._sent or "")
        if command is None or command.finished is not None:
            return ()
        text = f" {command.command.replace('_', ' ')} {target_text(command.args)}{command.status}"
        detail = f": {sanitize(command.effect, limit=200)}" if command.effect else " ..."
        return line(Span(text, "bold"), Span(detail))

    async def do_interrupt(self) -> None:
        """Ctrl+C."""
        desk = self._desk
        options = [("d", "leave" if desk.no_engine else "detach: leave, the run goes on", "detach")]
        if desk.available(BY_ID["stop_after_step"]):
            label = "take the stop after this step back" if desk.latched else "stop after this step"
            options += [("s", label, "stop_after_step"), ("c", "stop now: cancel every trial", "stop_now")]
        options.append(("b", "back", "back"))
        match await desk.shell.choose("Leave or stop?", options):
            case "detach":
                desk.shell.leave()
            case "stop_after_step":
                await self.do_stop_after_step()
            case "stop_now":
                await self.do_stop_now()

    async def do_stop_now(self) -> None:
        """Stop the run now."""
        await self.send("stop_now", {}, "stop the run now")

    async def do_cancel_group(self) -> None:
        """Cancel the selected group."""
        group = self._desk.scene().group
        if group is None:
            self._desk.say("no group is selected", "limit")
            return
        await self.send("cancel_group", {"group": group.group}, f"cancel g{group.group + 1}")

    async def do_cancel_trial(self) -> None:
        """Cancel the selected trial."""
        scene = self._desk.scene()
        if scene.group is None or scene.trial is None:
            self._desk.say("no trial is selected", "limit")
            return
        args: Scalars = {"group": scene.group.group, "trial": scene.trial.trial}
        await self.send("cancel_trial", args, f"cancel {trial_name(scene.group.group, scene.trial.trial)}")

    async def do_retry(self) -> None:
        """Retry the selected trial when it waits, else the waiting ones of the selected group."""
        scene = self._desk.scene()
        if scene.group is None:
            self._desk.say("no group is selected", "limit")
            return
        args: Scalars = {"group": scene.group.group}
        if scene.selection.focus == "trials" and scene.trial is not None:
            args["trial"] = scene.trial.trial
        waiting = held_trials(scene.state)
        if waiting and not any(g.group == scene.group.group for g, _ in waiting):
            names = ", ".join(trial_name(g.group, t.trial) for g, t in waiting[:3])
            self._desk.say(
                f"nothing waits in g{scene.group.group + 1}: {names} does; ! goes there, R retries all", "limit"
            )
            return
        await self.send("retry", args, f"retry {target_text(args).strip()}")

    async def do_retry_all(self) -> None:
        """Retry everything that waits."""
        await self.send("retry", {}, "retry all")

    async def do_pause(self) -> None:
        """Pause the dispatch of trials, or go on."""
        paused = self._desk.state.paused
        await self.send("resume" if paused else "pause", {}, "resume dispatch" if paused else "pause dispatch")

    async def do_checkpoint(self) -> None:
        """Save a checkpoint now."""
        await self.send("checkpoint", {}, "checkpoint")

    async def do_stop_after_step(self) -> None:
        """Latch the stop, or take it back."""
        on = not self._desk.latched
        await self.send("stop_after_step", {"on": on}, "stop after this step" if on else "take the stop back")

    async def send(self, command: str, args: Scalars, title: str) -> None:
        """Ask first when it destroys something, in the engine's own words; then send it and say what came of it."""
        desk = self._desk
        try:
            if COMMANDS[command].destructive:
                dry = await desk.source.command(new_command(command, args, dry_run=True))
                if dry.status != "dry_run":
                    self._result(title, dry)
                    return
                heading = title[0].upper() + title[1:]
                if not await desk.shell.confirm(heading, sanitize(dry.text, keep_newlines=True), title):
                    desk.say(f"{title}: not done")
                    return
            request = new_command(command, args)
            self._sent = request.id
            desk.say(f"{title}: requested ...", "bold", seconds=None)
            self._result(title, await desk.source.command(request), request)
        except ControlError as error:
            desk.say(f"{title}: {error}", "infra")

    def _result(self, title: str, result: CommandResult, request: Command | None = None) -> None:
        self._sent = None
        desk = self._desk
        if request is not None and request.command == "stop_after_step" and result.status == "done":
            # It is asked for with one key and without a question: what it does must not be overlooked.
            if request.args["on"]:
                desk.say(f"the run {stop_text(desk.state)} · s takes it back", "limit+reverse", STOP_SECONDS)
            else:
                desk.say("the stop is taken back: the run goes on", "pass")
            return
        text = f"{title}: {result.status}{': ' + result.text if result.text else ''}"
        desk.say(text, "pass" if result.status == "done" else "limit")


def target_text(args: Scalars) -> str:
    """The group or trial that a command names, as the screen does, with a space after it; empty for none."""
    group, trial = args.get("group"), args.get("trial")
    if not isinstance(group, int):
        return ""
    return (trial_name(group, trial) if isinstance(trial, int) else f"g{group + 1}") + " "
