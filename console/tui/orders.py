"""What the operator orders of the engine. An order asks first when it destroys something, and says what came of it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from console.control.client import new_command
from console.control.commands import COMMANDS, Command, CommandResult
from console.errors import ControlError
from console.journal.events import Scalars
from console.state.lines import trial_name
from console.state.sanitize import sanitize
from console.state.words import BENCHMARK
from console.tui.picture import held_trials, stop_text
from console.tui.text import Line, Span, line

if TYPE_CHECKING:
    from console.tui.desk import Desk

STOP_SECONDS = 20.0
_REST = re.compile(r"; the step (?:goes on with (\d+) groups?|has no group left and trains nothing)$")
"""What the engine says of the step without one group; of several it is said once."""


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
        lives = desk.source.mode == "live" or getattr(desk.source, "live", None) is not None
        goes_on = lives and not (desk.no_engine or desk.no_run)
        options = [("d", "detach: leave, the run goes on" if goes_on else "leave", "detach")]
        if not desk.why_not(desk.keymap["stop_after_step"]):
            label = f"take it back: {self._later()}" if desk.latched else self._later()
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
        """Cancel the marked groups, or else the selected one."""
        scene = self._desk.scene()
        marked = sorted(scene.selection.marked & {group.group for group in scene.groups})
        if scene.selection.marked_in is not None and scene.selection.marked_in != scene.state.step:
            marked = []
        if len(marked) > 1:
            await self._cancel_groups(marked)
            return
        group = marked[0] if marked else scene.group.group if scene.group is not None else None
        if group is None:
            self._desk.say("no group is selected", "limit")
            return
        await self.send("cancel_group", {"group": group}, f"cancel g{group + 1}")

    async def _cancel_groups(self, groups: list[int]) -> None:
        """One question for all of them, then one command each."""
        desk = self._desk
        names = ", ".join(f"g{group + 1}" for group in groups)
        step = self._step()
        args: list[Scalars] = [{"group": group, **_of_step(step)} for group in groups]
        if self._over(step):
            self._too_late("cancel_group", step)
            return
        try:
            texts, possible = [], []
            for one in args:
                dry = await desk.source.command(new_command("cancel_group", one, dry_run=True))
                if dry.status == "dry_run":
                    possible.append(one)
                texts.append(f"{target_text(one).strip()}: {sanitize(dry.text, keep_newlines=True)}")
            if not possible:
                desk.say(f"cancel {names}: {'; '.join(texts)}", "limit")
                return
            yes = f"cancel {len(possible)} group{'' if len(possible) == 1 else 's'}"
            text = "\n".join(summed(texts))
            if not await desk.shell.confirm(f"Cancel {names}", text, yes, over=lambda: self._over(step)):
                if self._over(step):
                    self._too_late("cancel_group", step)
                else:
                    desk.say(f"cancel {names}: not done")
                return
            refused = []
            for one in possible:
                name = target_text(one).strip()
                result = await self._request(new_command("cancel_group", one), f"cancel {name}")
                if result.status != "done":
                    refused.append(f"{name} {result.status}: {result.text}")
        except ControlError as error:
            desk.say(f"cancel {names}: {error}", "infra")
            return
        finally:
            self._sent = None
        desk.selection.marked.clear()
        done = f"cancel {', '.join(target_text(one).strip() for one in possible)}: done"
        desk.say("; ".join(refused) or done, "limit" if refused else "pass")

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
            go, every = self._desk.keymap.label("next_alarm"), self._desk.keymap.label("retry_all")
            here = f"nothing waits in g{scene.group.group + 1}"
            self._desk.say(f"{here}: {names} does; {go} goes there, {every} retries all", "limit")
            return
        await self.send("retry", args, f"retry {target_text(args).strip()}")

    async def do_retry_all(self) -> None:
        """Retry everything that waits."""
        await self.send("retry", {}, "retry all")

    async def do_pause(self) -> None:
        """Pause the dispatch of trials, or go on."""
        if self._desk.state.paused:
            await self.send("resume", {}, "resume dispatch")
        else:
            key = self._desk.keymap.label("pause")
            await self.send("pause", {}, "pause dispatch", done=f"{key} goes on")

    async def do_checkpoint(self) -> None:
        """Save a checkpoint now."""
        await self.send("checkpoint", {}, "checkpoint")

    async def do_stop_after_step(self) -> None:
        """Latch the stop, or take it back."""
        on = not self._desk.latched
        await self.send("stop_after_step", {"on": on}, self._later() if on else "take the stop back")

    def _later(self) -> str:
        bench = self._desk.state.kind == BENCHMARK
        return "begin no more trials, let those at work end" if bench else "stop after this step"

    async def send(
        self, command: str, args: Scalars, title: str, ask: bool | None = None, done: str = "", said: str = ""
    ) -> None:
        """Send a command and say what came of it; ask first, in the engine's own words, when it destroys something.

        A command with a target goes with the step that the operator saw: the same numbers are other tasks in the next.

        Args:
            ask: ask first (by default when the table of commands says so).
            done: added to what the engine says when it was done, e.g. how to take it back; said: in place of that.
        """
        desk, spec = self._desk, COMMANDS[command]
        step = self._step() if "group" in args else None
        if self._over(step):
            self._too_late(command, step)
            return
        task = self._task(args)
        args = {**args, **_of_step(step)}
        try:
            if spec.destructive if ask is None else ask:
                dry = await desk.source.command(new_command(command, args, dry_run=True))
                if dry.status != "dry_run":
                    self._result(title, dry)
                    return
                heading = f"{title[0].upper()}{title[1:]}{task}"
                typed = (desk.state.name or desk.state.run_id) if spec.typed else ""
                text = sanitize(dry.text, keep_newlines=True)
                if not await desk.shell.confirm(heading, text, title, typed, over=lambda: self._over(step)):
                    if self._over(step):
                        self._too_late(command, step)
                    else:
                        desk.say(f"{title}: not done")
                    return
            request = new_command(command, args)
            result = await self._request(request, title)
            if result.status == "done" and said:
                self._sent = None
                desk.say(said, "pass")
            else:
                self._result(title, result, request, done)
        except ControlError as error:
            self._sent = None
            desk.say(f"{title}: {error}", "infra")

    def _step(self) -> int | None:
        """The step that is on the screen, which may be older than the one that runs."""
        desk = self._desk
        return desk.scene().state.step if desk.seen_step is None else desk.seen_step

    def _over(self, step: int | None) -> bool:
        """Whether the run has left that step meanwhile."""
        return step is not None and self._desk.state.step != step

    def _too_late(self, command: str, step: int | None) -> None:
        what = "tried again" if command == "retry" else "cancelled"
        self._desk.say(f"step {step} is over: nothing was {what}", "limit")

    def _task(self, args: Scalars) -> str:
        """The task of the group that the command names, after a space; empty without one."""
        number = args.get("group")
        group = self._desk.scene().state.groups.get(number) if isinstance(number, int) else None
        return f" {sanitize(group.task, limit=60)}" if group is not None else ""

    async def _request(self, request: Command, title: str) -> CommandResult:
        self._sent = request.id
        self._desk.say(f"{title}: requested ...", "bold", seconds=None)
        return await self._desk.source.command(request)

    def _result(self, title: str, result: CommandResult, request: Command | None = None, done: str = "") -> None:
        self._sent = None
        desk = self._desk
        if request is not None and request.command == "stop_after_step" and result.status == "done":
            # It is asked for with one key and without a question: what it does must not be overlooked.
            if request.args["on"]:
                key = desk.keymap.label("stop_after_step")
                desk.say(f"the run {stop_text(desk.state)} · {key} takes it back", "limit+reverse", STOP_SECONDS)
            else:
                desk.say("the stop is taken back: the run goes on", "pass")
            return
        text = f"{title}: {result.status}{': ' + result.text if result.text else ''}"
        if result.status == "done" and done:
            text = f"{result.text or f'{title}: done'} · {done}"
        desk.say(text, "pass" if result.status == "done" else "limit")


def summed(texts: list[str]) -> list[str]:
    """What is lost with each of several groups, and what becomes of the step without all of them."""
    found = [_REST.search(text) for text in texts]
    left = [int(match[1] or 0) for match in found if match is not None]
    if not left:
        return texts
    least = min(left)  # as told of a group that would train; of others the step has one more left
    rest = max(0, least + 1 - left.count(least))
    end = f"the step goes on with {rest} group{'' if rest == 1 else 's'}" if rest else (
        "the step has no group left and trains nothing")  # fmt: skip
    return [*(_REST.sub("", text) for text in texts), end]


def _of_step(step: int | None) -> Scalars:
    return {} if step is None else {"step": step}


def target_text(args: Scalars) -> str:
    """The group or trial that a command names, as the screen does, with a space after it; empty for none."""
    group, trial = args.get("group"), args.get("trial")
    if not isinstance(group, int):
        return ""
    return (trial_name(group, trial) if isinstance(trial, int) else f"g{group + 1}") + " "
