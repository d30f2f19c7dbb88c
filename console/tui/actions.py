"""Every action of the console in one table; key bindings, key line, help, palette and dispatch are made from it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from console.control.commands import COMMANDS

Kind = Literal["command", "view", "live", "replay", "bench"]


@dataclass(frozen=True)
class Action:
    """One thing that a key does.

    Attributes:
        id: as handlers and key maps name it.
        keys: as Textual names them; key: how the first one is shown.
        label: for the key line, empty when it is not shown there; help: one line.
        kind: command (goes to the engine; refused in a replay), view (this console only), live and replay (only there),
            bench (on the pages of `bench look`).
        command: the engine's command, when there is one; `COMMANDS` says whether it asks first.
        rank: order in the key line, lower is more to the left.
        pages: where it exists; empty for everywhere. On one page a key may mean what it means nowhere else.
    """

    id: str
    keys: tuple[str, ...]
    key: str
    label: str
    help: str
    kind: Kind = "view"
    command: str = ""
    rank: int = 50
    pages: tuple[str, ...] = ()

    @property
    def confirm(self) -> bool:
        """Whether the console asks before it sends the command."""
        return bool(self.command) and COMMANDS[self.command].destructive


_RUN = ("run",)
_SELECTED = ("run", "trial")
"""Pages that show which group or trial is selected: on others a key must not act on it."""
_WATCHING = ("run", "trial", "events", "alarms", "metrics")
_FAILURES = ("triage", "trials")
"""Pages of `bench look` on which trials are chosen."""
_BENCH = (*_FAILURES, "verdict", "tally", "versus", "task", "mop")
_LISTS = ("run", "trial", "events", "alarms", "runs", "config", "metrics", "help", *_BENCH)
_TEXTS = ("trial", "events", "config", "verdict", "tally", "mop")


def _engine(
    id: str,
    key: str,
    label: str,
    help: str,
    rank: int,
    command: str = "",
    named: str = "",
    pages: tuple[str, ...] = _WATCHING,
) -> Action:
    return Action(id, (named or key,), key, label, help, "command", command or id, rank, pages)


ACTIONS: tuple[Action, ...] = (
    # --- everywhere ---
    Action("help", ("question_mark", "f1"), "?", "help", "this help", rank=0),
    Action("palette", ("ctrl+p",), "^p", "commands", "find an action by its name", rank=36),
    Action("command_line", ("colon",), ":", "", "type a command: :group 3, :goto 14:01, :set parallel=2", rank=60),
    Action("back", ("escape",), "esc", "back", "clear the filter, else back to the page before", rank=3),
    Action("detach", ("d",), "d", "detach", "leave; the run goes on", "live", rank=1),
    Action("quit", ("q", "ctrl+q"), "q", "quit", "close the console; a run is never stopped by it", rank=2),
    Action("interrupt", ("ctrl+c",), "^c", "", "choose: detach, stop after the step, stop now", rank=60),
    # --- orders to the engine ---
    _engine("cancel_group", "x", "cancel", "cancel the selected group, or the marked ones", 10,
            pages=_SELECTED),
    _engine("cancel_trial", "X", "cancel trial", "cancel the selected trial", 32, pages=_SELECTED),
    _engine("retry", "r", "retry", "try the selected trial's, or its group's, infrastructure failures again", 11,
            pages=_SELECTED),
    _engine("retry_all", "R", "retry all", "try all infrastructure failures that wait again", 31, "retry"),
    _engine("stop_after_step", "s", "stop after", "stop when the current step is trained and saved; again to "
            "take it back", 12),
    _engine("pause", "p", "pause", "begin no new trial, those under way go on; again to go on", 13),
    _engine("checkpoint", "C", "", "save a checkpoint: at once during a rollout, else after the step", 40),
    _engine("tune", "=", "", "change parallelism, hold time-out, tries or budgets", 41, "set", "equals_sign"),
    _engine("quarantine", "Q", "", "leave the selected group's task out of new batches; again to take it in", 42,
            pages=_SELECTED),
    _engine("ack", "a", "ack", "acknowledge the selected alarm, else the most urgent one", 14),
    _engine("ack_all", "A", "", "acknowledge all alarms", 43, "ack"),
    _engine("shelve", "h", "", "silence the selected alarm, else the most urgent one, for a while", 44),
    _engine("note", ";", "", "add a note to the run's journal", 45, named="semicolon"),
    Action("stop_now", (), "", "", "cancel every trial and end the run now (from ctrl+c or the palette)", "command",
           "stop_now", 46),
    Action("watch", ("W",), "W", "watch", "take the watch (the lease to act) over, or give it back", "live", rank=20),
    # --- pages ---
    Action("page_run", ("f2",), "F2", "", "the run", rank=61),
    Action("page_trial", ("f3",), "F3", "", "the selected trial", rank=61),
    Action("page_events", ("f4", "E"), "E", "", "all events", rank=61),
    Action("page_metrics", ("f5", "m"), "m", "metrics", "plots of the whole run", rank=21),
    Action("page_alarms", ("f6", "L"), "L", "", "alarms: open, acknowledged, shelved", rank=61),
    Action("page_config", ("f7", "i"), "i", "", "what the run was started with", rank=61),
    Action("page_runs", ("f8", "u"), "u", "", "live and recorded runs", rank=61),
    Action("open", ("enter",), "enter", "open", "open what is selected", rank=18,
           pages=("run", "alarms", "events", "runs", "metrics", "scrub", *_BENCH)),
    Action("transcript", ("t",), "t", "", "the trial's transcript", rank=62, pages=("run", "trial")),
    Action("verifier", ("v",), "v", "", "the trial's verifier output", rank=62, pages=("run", "trial")),
    Action("tokens", ("c",), "c", "", "the trial's captured tokens and log-probs", rank=62, pages=("run", "trial")),
    Action("log", ("l",), "l", "", "the trial's log", rank=62, pages=("run", "trial")),
    Action("result", ("e",), "e", "", "the trial's result", rank=62, pages=("trial",)),
    Action("why", ("b",), "b", "", "because: why the trial's outcome was given", rank=62, pages=("run", "trial")),
    # --- moving ---
    Action("up", ("up", "k"), "↑ k", "", "one row up", rank=63),
    Action("down", ("down", "j"), "↓ j", "", "one row down", rank=63),
    Action("page_up", ("pageup", "ctrl+u"), "pgup", "", "a page up", rank=63),
    Action("page_down", ("pagedown", "ctrl+d"), "pgdn", "", "a page down", rank=63),
    Action("first", ("g",), "g", "", "to the first row", rank=64),
    Action("last", ("G",), "G", "", "to the last row", rank=64),
    Action("left", ("left",), "←", "", "to the left: the tab, plot cursor or pane before", rank=64),
    Action("right", ("right",), "→", "", "to the right", rank=64),
    Action("next_pane", ("tab",), "tab", "pane", "to the next pane", rank=30),
    Action("previous_pane", ("shift+tab",), "shift+tab", "", "to the pane before", rank=65),
    Action("pane_1", ("1",), "1", "", "to the first pane; 2 to 6 likewise", rank=65),
    *(Action(f"pane_{n}", (str(n),), str(n), "", f"to pane {n}", rank=65) for n in range(2, 7)),
    Action("next_alarm", ("exclamation_mark",), "!", "", "to what needs you: the next alarm; in a replay the next "
           "alarm in time", rank=15),
    Action("previous_trial", ("K",), "K", "", "the trial before", rank=66, pages=("trial", "verdict")),
    Action("next_trial", ("J",), "J", "trial", "the next trial", rank=17, pages=("trial", "verdict")),
    Action("previous_try", ("left_parenthesis",), "(", "", "the try before, of a trial that was tried again", rank=66,
           pages=("trial",)),
    Action("next_try", ("right_parenthesis",), ")", "", "the next try", rank=66, pages=("trial",)),
    Action("previous_call", ("comma",), ",", "", "captured tokens of the model call before", rank=66, pages=("trial",)),
    Action("next_call", ("full_stop",), ".", "", "captured tokens of the next model call", rank=66, pages=("trial",)),
    Action("token_table", ("enter",), "enter", "", "captured tokens as a table, or as text", rank=66,
           pages=("trial",)),
    # --- looking ---
    Action("filter", ("slash",), "/", "filter", "filter a list (git, class:infra, g:3, !not), search a text", rank=35,
           pages=_LISTS),
    Action("next_match", ("n",), "n", "", "the next match", rank=66, pages=_TEXTS),
    Action("previous_match", ("N",), "N", "", "the match before", rank=66, pages=_TEXTS),
    Action("mark", ("space",), "space", "", "mark the group, for x; live runs", "live", rank=66, pages=_RUN),
    Action("sort", ("o",), "o", "", "sort groups by attention, number, reward or task", rank=66, pages=_RUN),
    Action("zoom", ("z",), "z", "", "the focused pane alone, and back", rank=66, pages=("run", "metrics")),
    Action("density", ("D",), "D", "", "one row a group, or its trials beneath it (wide screens)", rank=67, pages=_RUN),
    Action("freeze", ("P",), "P", "", "freeze the screen, the run goes on; again to catch up", "live", rank=67),
    Action("follow", ("f",), "f", "follow", "follow the tail, or stand still", rank=16, pages=("trial", "events")),
    Action("wrap", ("w",), "w", "", "wrap long lines, or cut them", rank=67, pages=("trial", "events", "verdict")),
    Action("figures", ("t",), "t", "figures", "all figures of the step under the cursor", rank=17, pages=("metrics",)),
    Action("log_scale", ("y",), "y", "log", "logarithmic y axis for the focused plot", rank=18, pages=("metrics",)),
    Action("smooth", ("S",), "S", "smooth", "smooth the curves, more, or not", rank=19, pages=("metrics",)),
    Action("yank", ("Y",), "Y", "", "copy what is selected: to the terminal's clipboard and to a file", rank=67),
    Action("export", ("ctrl+e",), "^e", "", "write what is shown to a file: text, SVG, CSV, JSON", rank=68),
    Action("faster_paint", ("plus",), "+", "", "paint more often, up to 4 times a second", rank=68),
    Action("slower_paint", ("minus",), "-", "", "paint less often, down to every 4 seconds", rank=68),
    Action("mouse", ("M",), "M", "", "take mouse clicks, or leave them to the terminal", rank=68),
    Action("theme", ("T",), "T", "theme", "the next theme", rank=40),
    # --- job directories of benchmarks ---
    Action("bench_mark", ("space",), "space", "mark", "mark the trial, or all of the row, for the mop-up; again to "
           "unmark", "bench", rank=5, pages=(*_FAILURES, "verdict", "task")),
    Action("mark_all", ("a",), "a", "all", "mark everything in the list", "bench", rank=6, pages=_FAILURES),
    Action("clear_marks", ("C",), "C", "", "clear all marks", "bench", rank=62, pages=_BENCH),
    Action("mop_up", ("R",), "R", "mop up", "what a mop-up of the marked trials would run, and start it", "bench",
           rank=7, pages=(*_FAILURES, "verdict", "mop")),
    Action("tally", ("t",), "t", "tally", "the figures by each accounting rule", "bench", rank=8, pages=_BENCH),
    Action("versus", ("c",), "c", "compare", "did B beat A", "bench", rank=9, pages=_BENCH),
    Action("previous_pair", ("K",), "K", "", "of several runs the pair before", "bench", rank=66, pages=("versus",)),
    Action("next_pair", ("J",), "J", "", "of several runs the next pair", "bench", rank=66, pages=("versus",)),
    Action("bench_sort", ("o",), "o", "sort", "another order of the list", "bench", rank=19, pages=_FAILURES),
    Action("bench_goto", ("ctrl+g",), "^g", "", "go to a row by its number or name", "bench", rank=62,
           pages=(*_FAILURES, "versus", "task")),
    Action("read_again", ("ctrl+r",), "^r", "read again", "read the directories again: what is new, and what changed",
           "bench", rank=20, pages=_BENCH),
    # --- replay ---
    Action("play", ("space",), "space", "play", "play or pause", "replay", rank=6),
    Action("previous_event", ("left_square_bracket",), "[", "", "one event back", "replay", rank=69),
    Action("next_event", ("right_square_bracket",), "]", "event", "one event on", "replay", rank=8),
    Action("previous_step", ("left_curly_bracket",), "{", "", "to the training step before", "replay", rank=70),
    Action("next_step", ("right_curly_bracket",), "}", "step", "to the next training step", "replay", rank=9),
    Action("slower", ("less_than_sign",), "<", "", "half the speed", "replay", rank=71),
    Action("faster", ("greater_than_sign",), ">", "speed", "double the speed, 64x at most, then max", "replay", rank=7),
    Action("start", ("home",), "home", "", "to the start of the recording", "replay", rank=72),
    Action("end", ("end",), "end", "last", "to the end of the recording", "replay", rank=33),
    Action("goto", ("ctrl+g",), "^g", "", "go to a time, step or event: 14:01, s12, #4711, 50%", "replay", rank=73),
    Action("scrub", ("vertical_line",), "|", "scrub", "scrub along the timeline with the arrows; enter stays, esc goes "
           "back", "replay", rank=34),
    Action("rewind", ("B",), "B", "", "look back: replay this run up to now; again to come back live", rank=74),
)  # fmt: skip

BY_ID: dict[str, Action] = {action.id: action for action in ACTIONS}
