"""Every action of the console in one table; bindings, key line, help and dispatch are made from it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from console.control.commands import COMMANDS

Kind = Literal["command", "view", "live", "replay"]


@dataclass(frozen=True)
class Action:
    """One thing that a key does.

    Attributes:
        id: as handlers and key maps name it.
        keys: as Textual names them, the first one is shown as `key`.
        label: for the key line, empty when it is not shown there; help: one line.
        kind: command (goes to the engine; refused in a replay), view (this console only), live and replay (only there).
        command: the engine's command, when there is one; `COMMANDS` says whether it asks first.
        rank: order in the key line, lower is more to the left.
    """

    id: str
    keys: tuple[str, ...]
    key: str
    label: str
    help: str
    kind: Kind = "view"
    command: str = ""
    rank: int = 50

    @property
    def confirm(self) -> bool:
        """Whether the console asks before it sends the command."""
        return bool(self.command) and COMMANDS[self.command].destructive


def _engine(id: str, key: str, label: str, command: str, help: str, rank: int) -> Action:
    return Action(id, (key,), key, label, help, "command", command, rank)


ACTIONS: tuple[Action, ...] = (
    Action("help", ("question_mark", "f1"), "?", "help", "this help", rank=0),
    Action("open", ("enter",), "enter", "open", "the selected trial: outcome, cause, evidence, times", rank=5),
    _engine("cancel_group", "x", "cancel", "cancel_group", "cancel the selected group", 10),
    _engine("cancel_trial", "X", "cancel trial", "cancel_trial", "cancel the selected trial", 32),
    _engine(
        "retry", "r", "retry", "retry", "try the selected trial's, or its group's, infrastructure failures again", 11
    ),
    _engine("retry_all", "R", "retry all", "retry", "try all infrastructure failures that wait again", 31),
    _engine(
        "stop_after_step",
        "s",
        "stop after step",
        "stop_after_step",
        "stop when the current step is trained and saved; again to take it back",
        12,
    ),
    Action("detach", ("d",), "d", "detach", "leave; the run goes on", "live", rank=1),
    Action("quit", ("q", "ctrl+q"), "q", "quit", "close the console; a run is never stopped by it", rank=2),
    Action("interrupt", ("ctrl+c",), "ctrl+c", "", "choose: detach, stop after the step, stop now", rank=60),
    Action("up", ("up", "k"), "↑ k", "", "one row up", rank=61),
    Action("down", ("down", "j"), "↓ j", "", "one row down", rank=62),
    Action("page_up", ("pageup", "ctrl+u"), "pgup", "", "a page up", rank=63),
    Action("page_down", ("pagedown", "ctrl+d"), "pgdn", "", "a page down", rank=64),
    Action("first", ("g",), "g", "", "to the first row", rank=65),
    Action("last", ("G",), "G", "", "to the last row", rank=66),
    Action("next_pane", ("tab", "right"), "tab", "pane", "to the next pane: groups, trials, events", rank=30),
    Action("previous_pane", ("shift+tab", "left"), "shift+tab", "", "to the pane before", rank=67),
    Action("next_alarm", ("exclamation_mark",), "!", "", "to the next trial that waits for you", rank=67),
    Action("sort", ("o",), "o", "", "sort groups by attention or by number", rank=68),
    Action("theme", ("T",), "T", "theme", "the next theme", rank=40),
    Action("play", ("space",), "space", "play", "play or pause", "replay", rank=6),
    Action("previous_event", ("left_square_bracket",), "[", "", "one event back", "replay", rank=69),
    Action("next_event", ("right_square_bracket",), "]", "event", "one event on", "replay", rank=8),
    Action("previous_step", ("left_curly_bracket",), "{", "", "to the training step before", "replay", rank=70),
    Action("next_step", ("right_curly_bracket",), "}", "step", "to the next training step", "replay", rank=9),
    Action("slower", ("less_than_sign",), "<", "", "half the speed", "replay", rank=71),
    Action(
        "faster", ("greater_than_sign",), ">", "speed", "double the speed, up to 64x and then max", "replay", rank=7
    ),
    Action("start", ("home",), "home", "", "to the start of the recording", "replay", rank=72),
    Action("end", ("end",), "end", "end", "to the end of the recording", "replay", rank=33),
)

BY_ID: dict[str, Action] = {action.id: action for action in ACTIONS}


def available(action: Action, mode: str, read_only: bool, over: bool) -> bool:
    """Whether the action exists here: commands need a live run that one may act on, replay keys a replay."""
    if action.kind == "command":
        return mode == "live" and not read_only and not over
    return action.kind == "view" or action.kind == mode


def key_labels(mode: str, read_only: bool, over: bool) -> tuple[tuple[str, str], ...]:
    """(key, label) pairs for the key line, the most important first."""
    shown = [a for a in ACTIONS if a.label and available(a, mode, read_only, over)]
    return tuple((a.key, a.label) for a in sorted(shown, key=lambda a: a.rank))


def help_entries(mode: str, read_only: bool, over: bool) -> list[tuple[str, str]]:
    """(keys, help) of everything that can be done here, in order of the table."""
    return [(a.key, a.help) for a in ACTIONS if available(a, mode, read_only, over)]
