"""What keys do: one handler per action of the registry, working on selection, source and dialogs."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Protocol, cast

from console.control.client import new_command
from console.control.commands import Command, CommandResult
from console.errors import ControlError, RecordingError
from console.journal import events as ev
from console.journal.events import Scalars
from console.state.lines import trial_name
from console.state.sanitize import sanitize
from console.tui.actions import BY_ID, Action, available, key_labels
from console.tui.layout import Layout
from console.tui.picture import ENDED, Scene, Selection, Trends, held_trials, ordered, stop_text
from console.tui.source import Link, Source
from console.tui.text import Line, Span, line

if TYPE_CHECKING:
    from console.tui.replay import ReplaySource

MESSAGE_SECONDS = 8.0
STOP_SECONDS = 20.0
FOCUSABLE = ("groups", "trials", "events")


class Shell(Protocol):
    """What the controller asks of the app around it."""

    async def confirm(self, title: str, text: str, yes: str) -> bool:
        """Ask; False unless a fresh yes."""

    async def choose(self, title: str, options: list[tuple[str, str, str]]) -> str:
        """Let the operator choose; the last option is the harmless one."""

    def read(self, topic: str) -> None:
        """Open the help or the selected trial."""

    def next_theme(self) -> str:
        """Switch to the next theme; its title."""

    def leave(self) -> None:
        """Close the viewer."""

    def spawn(self, work: Awaitable[None]) -> None:
        """Run something that may wait for the operator or the engine."""

    def repaint(self) -> None:
        """Show what changed."""


class Controller:
    """The console without its screen.

    Attributes:
        layout: where the panes are now, set by the screen.
    """

    def __init__(
        self,
        source: Source,
        shell: Shell,
        read_only: bool = False,
        ascii_only: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.source = source
        self.selection = Selection()
        self.trends = Trends()
        self.layout = Layout({})
        self._shell = shell
        self._read_only, self._ascii, self._clock = read_only, ascii_only, clock
        self._message: Line = ()
        self._message_until: float | None = None
        self._sent: str | None = None
        source.listener = self._heard

    # --- what is shown ---

    @property
    def over(self) -> bool:
        """Whether the run has ended."""
        return self.source.view.state.status in ENDED

    @property
    def no_engine(self) -> bool:
        """Whether there is nobody left to take commands: the run is over, or its engine is gone."""
        return self.over or self.source.link().status == "dead"

    @property
    def _latched(self) -> bool:
        return self.source.view.state.stop_requested == "after_step"

    def _now(self, link: Link) -> float:
        """The time by which ages are told: it stands still when nothing can happen any more."""
        return self.source.view.state.ts if link.status == "dead" else self.source.now()

    def scene(self) -> Scene:
        """What there is to paint now."""
        state = self.source.view.state
        link = self.source.link()
        now = self._now(link)
        groups = ordered(state, self.selection.sort, now)
        group = self.selection.settle(groups)
        return Scene(
            view=self.source.view,
            link=link,
            now=now,
            selection=self.selection,
            groups=groups,
            group=group,
            trends=self.trends,
            ascii=self._ascii,
            wide=self.layout.wide,
            message=self._progress() or self._message,
            keys=self._keys(),
        )

    def _keys(self) -> tuple[tuple[str, str], ...]:
        labels = key_labels(self.source.mode, self._read_only, self.no_engine)
        stop = BY_ID["stop_after_step"]
        back = "take stop back" if self._latched else stop.label
        return tuple((key, back if key == stop.key else label) for key, label in labels)

    def fingerprint(self) -> tuple[object, ...]:
        """Changes whenever a new paint would differ."""
        link = self.source.link()
        age = 0 if link.status == "dead" else int(link.age)
        return self.source.version, int(self._now(link)), link.status, age, self._message

    def say(self, text: str, role: str = "", seconds: float | None = MESSAGE_SECONDS) -> None:
        """Show one line in place of the keys, for a while or until the next one."""
        self._message = line(Span(f" {sanitize(text, limit=300)}", role))
        self._message_until = None if seconds is None else self._clock() + seconds

    def expire_message(self) -> None:
        """Take the message back when its time is over."""
        if self._message and self._message_until is not None and self._clock() >= self._message_until:
            self._message, self._message_until = (), None

    def _progress(self) -> Line:
        """How far the command that was sent last has come, from the journal."""
        command = self.source.view.state.commands.get(self._sent or "")
        if command is None or command.finished is not None:
            return ()
        text = f" {command.command.replace('_', ' ')} {_target(command.args)}{command.status}"
        detail = f": {sanitize(command.effect, limit=200)}" if command.effect else " ..."
        return line(Span(text, "bold"), Span(detail))

    def _heard(self, event: ev.Event | None) -> None:
        if event is None:
            self.trends.clear()
        else:
            self.trends.note(event, self.source.view.state)

    # --- actions ---

    async def act(self, action_id: str) -> None:
        """Do the action, or say why it cannot be done here."""
        action = BY_ID[action_id]
        if not available(action, self.source.mode, self._read_only, self.no_engine):
            self.say(self._why_not(action), "limit")
            return
        self._message = ()
        handler: Callable[[], Awaitable[None] | None] = getattr(self, f"do_{action_id}")
        try:
            waits = handler()
        except RecordingError as error:
            self.say(str(error), "infra")
            return
        if waits is not None:
            self._shell.spawn(waits)

    def _why_not(self, action: Action) -> str:
        if action.kind == "replay":
            return f"{action.key} works in a replay only"
        if action.kind == "live":
            return f"{action.key} works on a live run only"
        if self.source.mode == "replay":
            return f"{action.key} ({action.label}): this is a recording, it takes no commands"
        if self._read_only:
            return f"{action.key} ({action.label}): this console is read-only"
        if not self.over:
            return f"{action.key} ({action.label}): the engine is gone, nobody takes commands"
        return f"{action.key} ({action.label}): the run is over"

    def do_help(self) -> None:
        """Keys and signs."""
        self._shell.read("help")

    def do_open(self) -> None:
        """The selected trial."""
        if self.scene().trial is None:
            self.say("no trial is selected")
            return
        self._shell.read("trial")

    def do_theme(self) -> None:
        """The next theme."""
        self.say(f"theme: {self._shell.next_theme()}")

    def do_quit(self) -> None:
        """Close the viewer."""
        self._shell.leave()

    do_detach = do_quit

    async def do_interrupt(self) -> None:
        """Ctrl+C."""
        options = [("d", "leave" if self.no_engine else "detach: leave, the run goes on", "detach")]
        if available(BY_ID["stop_after_step"], self.source.mode, self._read_only, self.no_engine):
            label = "take the stop after this step back" if self._latched else "stop after this step"
            options += [("s", label, "stop_after_step"), ("c", "stop now: cancel every trial", "stop_now")]
        options.append(("b", "back", "back"))
        match await self._shell.choose("Leave or stop?", options):
            case "detach":
                self._shell.leave()
            case "stop_after_step":
                await self.do_stop_after_step()
            case "stop_now":
                await self._send("stop_now", {}, "stop the run now")

    async def do_cancel_group(self) -> None:
        """Cancel the selected group."""
        group = self.scene().group
        if group is None:
            self.say("no group is selected", "limit")
            return
        await self._send("cancel_group", {"group": group.group}, f"cancel g{group.group + 1}")

    async def do_cancel_trial(self) -> None:
        """Cancel the selected trial."""
        scene = self.scene()
        if scene.group is None or scene.trial is None:
            self.say("no trial is selected", "limit")
            return
        args: Scalars = {"group": scene.group.group, "trial": scene.trial.trial}
        await self._send("cancel_trial", args, f"cancel {trial_name(scene.group.group, scene.trial.trial)}")

    async def do_retry(self) -> None:
        """Retry the selected trial when it waits, else the waiting ones of the selected group."""
        scene = self.scene()
        if scene.group is None:
            self.say("no group is selected", "limit")
            return
        args: Scalars = {"group": scene.group.group}
        if scene.selection.focus == "trials" and scene.trial is not None:
            args["trial"] = scene.trial.trial
        waiting = held_trials(scene.state)
        if waiting and not any(g.group == scene.group.group for g, _ in waiting):
            names = ", ".join(trial_name(g.group, t.trial) for g, t in waiting[:3])
            self.say(f"nothing waits in g{scene.group.group + 1}: {names} does; ! goes there, R retries all", "limit")
            return
        await self._send("retry", args, f"retry {_target(args).strip()}")

    async def do_retry_all(self) -> None:
        """Retry everything that waits."""
        await self._send("retry", {}, "retry all")

    async def do_stop_after_step(self) -> None:
        """Latch the stop, or take it back."""
        on = not self._latched
        await self._send("stop_after_step", {"on": on}, "stop after this step" if on else "take the stop back")

    async def _send(self, command: str, args: Scalars, title: str) -> None:
        """Ask first when it destroys something, with the engine's own words; then send it and say what came of it."""
        confirm = any(a.confirm for a in BY_ID.values() if a.command == command) or command == "stop_now"
        try:
            if confirm:
                dry = await self.source.command(new_command(command, args, dry_run=True))
                if dry.status != "dry_run":
                    self._result(title, dry)
                    return
                heading = title[0].upper() + title[1:]
                if not await self._shell.confirm(heading, sanitize(dry.text, keep_newlines=True), title):
                    self.say(f"{title}: not done")
                    self._shell.repaint()
                    return
            request = new_command(command, args)
            self._sent = request.id
            self.say(f"{title}: requested ...", "bold", seconds=None)
            self._shell.repaint()
            self._result(title, await self.source.command(request), request)
        except ControlError as error:
            self.say(f"{title}: {error}", "infra")
            self._shell.repaint()

    def _result(self, title: str, result: CommandResult, request: Command | None = None) -> None:
        self._sent = None
        if request is not None and request.command == "stop_after_step" and result.status == "done":
            # It is asked for with one key and without a question: what it does must not be overlooked.
            if request.args["on"]:
                self.say(
                    f"the run {stop_text(self.source.view.state)} · s takes it back", "limit+reverse", STOP_SECONDS
                )
            else:
                self.say("the stop is taken back: the run goes on", "pass")
            self._shell.repaint()
            return
        self.say(f"{title}: {result.status}{': ' + result.text if result.text else ''}",
                 "pass" if result.status == "done" else "limit")  # fmt: skip
        self._shell.repaint()

    # --- moving ---

    def do_next_alarm(self) -> None:
        """Select the trial that waits for the operator; again for the next one."""
        waiting = held_trials(self.source.view.state)
        if not waiting:
            self.say("no trial waits for you")
            return
        here = (self.selection.group, self.selection.trial)
        names = [(g.group, t.trial) for g, t in waiting]
        at = (names.index(here) + 1) % len(names) if here in names and self.selection.focus == "trials" else 0
        self.selection.group, self.selection.trial = names[at]
        self.selection.focus, self.selection.pinned = "trials", True

    def do_up(self) -> None:
        """One row up."""
        self._move(-1)

    def do_down(self) -> None:
        """One row down."""
        self._move(1)

    def do_page_up(self) -> None:
        """A page up."""
        self._move(-self._page())

    def do_page_down(self) -> None:
        """A page down."""
        self._move(self._page())

    def do_first(self) -> None:
        """To the first row."""
        self._move(-(10**9))

    def do_last(self) -> None:
        """To the last row."""
        self._move(10**9)

    def _page(self) -> int:
        box = self.layout.boxes.get(self.selection.focus)
        return max(1, (box.height if box is not None else 10) - 2)

    def _move(self, rows: int) -> None:
        scene, selection = self.scene(), self.selection
        if selection.focus == "events":
            selection.events_up = max(0, min(selection.events_up + rows, len(scene.state.lines) - 1))
            return
        if scene.group is None:
            return
        selection.pinned = True
        if selection.focus == "trials":
            selection.trial = max(0, min(selection.trial + rows, len(scene.group.trials) - 1))
            return
        at = next(i for i, g in enumerate(scene.groups) if g.group == scene.group.group)
        selection.group = scene.groups[max(0, min(at + rows, len(scene.groups) - 1))].group
        selection.trial = 0
        selection.tops.pop("trials", None)

    def do_next_pane(self) -> None:
        """To the next pane that is shown."""
        self._focus(1)

    def do_previous_pane(self) -> None:
        """To the pane before."""
        self._focus(-1)

    def _focus(self, by: int) -> None:
        shown = [name for name in FOCUSABLE if name in self.layout.boxes] or ["groups"]
        at = shown.index(self.selection.focus) if self.selection.focus in shown else 0
        self.selection.focus = shown[(at + by) % len(shown)]
        self.selection.pinned = self.selection.pinned or self.selection.focus == "trials"
        if self.selection.focus != "events":
            self.selection.events_up = 0

    def do_sort(self) -> None:
        """By attention, or by number."""
        self.selection.sort = "number" if self.selection.sort == "attention" else "attention"

    # --- replay ---

    @property
    def _replay(self) -> ReplaySource:
        return cast("ReplaySource", self.source)  # `act` lets replay actions through in a replay only

    def do_play(self) -> None:
        """Play or pause."""
        self._replay.toggle()

    def do_previous_event(self) -> None:
        """One event back."""
        self._replay.step_event(forward=False)

    def do_next_event(self) -> None:
        """One event on."""
        self._replay.step_event(forward=True)

    def do_previous_step(self) -> None:
        """To the training step before."""
        self._replay.step_training(forward=False)

    def do_next_step(self) -> None:
        """To the next training step."""
        self._replay.step_training(forward=True)

    def do_slower(self) -> None:
        """Half the speed."""
        self._replay.change_speed(faster=False)

    def do_faster(self) -> None:
        """Double the speed."""
        self._replay.change_speed(faster=True)

    def do_start(self) -> None:
        """To the start."""
        self._replay.jump(to_end=False)

    def do_end(self) -> None:
        """To the end."""
        self._replay.jump(to_end=True)


def _target(args: Scalars) -> str:
    group, trial = args.get("group"), args.get("trial")
    if not isinstance(group, int):
        return ""
    return (trial_name(group, trial) if isinstance(trial, int) else f"g{group + 1}") + " "
