"""Keys and signs of the page that it was opened from, made from the registry."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from console.tui.actions import Action
from console.tui.glyphs import SIGNS, sign_text
from console.tui.keymap import key_label
from console.tui.pages.page import Page
from console.tui.pages.text_page import Row, Section, TextPage, labelled
from console.tui.picture import Scene
from console.tui.text import Line, Span, cell, line

if TYPE_CHECKING:
    from console.tui.desk import Desk

_MOVING = {
    "up", "down", "page_up", "page_down", "first", "last", "left", "right", "next_pane", "previous_pane",
    "next_alarm", "previous_trial", "next_trial", "next_match", "previous_match",
}  # fmt: skip
_PANES = tuple(f"pane_{n}" for n in range(1, 7))
_KEYS_WIDE = 14
_OF_RUNS = (
    "queued",
    "building",
    "running",
    "stalled",
    "verifying",
    "retrying",
    "capture_loss",
    "no_logprobs",
    "no_samples",
)
"""Signs that a job directory has no use for."""

SYNONYMS = {
    "ack": "acknowledge seen", "cancel_group": "kill abort stop", "cancel_trial": "kill abort stop",
    "command_line": "vim ex", "detach": "exit leave", "export": "save screenshot write", "filter": "search find",
    "freeze": "hold", "goto": "jump seek", "mouse": "click", "next_alarm": "problem failure", "note": "comment",
    "palette": "menu search find", "pause": "suspend hold resume continue", "quarantine": "exclude skip ban",
    "quit": "exit close leave", "retry": "again rerun restart", "retry_all": "again rerun restart",
    "rewind": "history past", "shelve": "snooze mute silence", "stop_after_step": "end finish",
    "stop_now": "kill abort",
    "theme": "colour color", "tune": "set parallel budget", "watch": "lease take over lock", "yank": "copy clipboard",
    "zoom": "maximise full",
}  # fmt: skip
"""Other words by which an action is looked for."""
LEAVING = (
    ("q, d", "close the console; the run goes on, and so it does when the line drops"),
    ("quarterdeck attach", "opens it again, from any terminal on this machine"),
    ("ctrl+c", "asks: leave, stop after the step, or stop now"),
)
LEAVING_BENCH = (
    ("q, ctrl+c", "close it; nothing was written into any of the directories"),
    ("R, then enter", "start a mop-up: asks first, and then takes this terminal"),
)
COLOURS = (
    ("pass", "healthy: full or part of the reward; a live link"),
    ("zero", "no reward, cancelled: data, not an error"),
    ("limit", "look: a limit was hit, something is stale or will stop"),
    ("infra", "failed, never scored; what may stop the run"),
)


class Entry(NamedTuple):
    """A row of the keys: in which section, which keys (as Textual names them), which actions, and what they do."""

    section: str
    keys: tuple[str, ...]
    actions: tuple[str, ...]
    text: str


def entries(desk: Desk, page: Page) -> list[Entry]:
    """Every key that means something on the page in this mode, and every action without a key."""
    offered = desk.offered(page)
    panes = [a for a in offered if a.id in _PANES]
    out = []
    for action in offered:
        if action in panes:
            if action is panes[0]:
                keys = tuple(key for a in panes for key in a.keys)
                out.append(Entry("Moving", keys, tuple(a.id for a in panes), "to the pane of that number"))
            continue
        out.append(Entry(_section(action, page), action.keys, (action.id,), action.help or "end the run now"))
    order = [f"On the page {page.title}", "Orders to the run", "Replay", "Moving", "Pages", "Everywhere"]
    return sorted(out, key=lambda entry: order.index(entry.section))


def _section(action: Action, page: Page) -> str:
    if action.id in _MOVING:
        return "Moving"
    if action.kind == "command" or action.id == "watch":
        return "Orders to the run"
    if action.kind == "replay" or action.id == "rewind":
        return "Replay"
    if action.pages or getattr(page, f"do_{action.id}", None) is not None:
        return f"On the page {page.title}"
    return "Pages" if action.id.startswith("page_") else "Everywhere"


def keys_text(keys: tuple[str, ...]) -> str:
    """Keys as they are shown in a row."""
    return " ".join(key_label(key) for key in keys)


class HelpPage(TextPage):
    """Opened over another page, it is about that one."""

    id = "help"
    title = "Help"

    def __init__(self, desk: Desk) -> None:
        super().__init__(desk)
        self.about = desk.page

    def heading(self, scene: Scene) -> str:
        """Which page it is about, and how to leave it."""
        keymap = self.desk.keymap
        return f"Help: {self.about.title}  {keymap.label('back')} closes, {keymap.label('filter')} finds"

    def sections(self, scene: Scene, cells: int) -> list[Section]:
        """Keys, typed commands, signs, colours, and how to leave."""
        found: dict[str, list[Row]] = {}
        for entry in entries(self.desk, self.about):
            keys = keys_text(entry.keys) or f":{entry.actions[0].replace('_', '-')}"
            row = labelled(f"{keys} ", [Span(entry.text)], cells, _KEYS_WIDE, "key")
            found.setdefault(entry.section, []).append(row._replace(text=f"{row.text} {_words(entry.actions)}"))
        leaving = [labelled(f"{keys} ", [Span(text)], cells, 20, "key") for keys, text in _leaving(self.desk)]
        out = [Section("Leaving", leaving)]
        out += [Section(section, rows) for section, rows in found.items()]
        typed = [labelled(f":{one.usage}", [], cells, cells) for one in self.desk.commands.values()]
        out.append(Section("Typed commands", typed))
        out.append(Section("Signs of the trials", _signs(scene.ascii, cells, self.desk.bench)))
        colours = [Row(f"{role} {text}", [line(Span(f"{role:<7}", role), text)]) for role, text in COLOURS]
        out.append(Section("Colours", colours))
        return out


def _words(actions: tuple[str, ...]) -> str:
    """What else finds the actions: their ids, as they are and as they are typed, and synonyms."""
    return " ".join(f"{a} {a.replace('_', '-')} {a.replace('_', ' ')} {SYNONYMS.get(a, '')}" for a in actions)


def _leaving(desk: Desk) -> tuple[tuple[str, str], ...]:
    return LEAVING_BENCH if desk.bench else LEAVING


def _signs(ascii_only: bool, cells: int, bench: bool) -> list[Row]:
    left_out = _OF_RUNS if bench else ("ambiguous", "unreadable")
    signs = [(kind, sign) for kind, sign in SIGNS.items() if kind not in left_out]
    columns = 2 if cells >= 72 else 1
    height = -(-len(signs) // columns)
    rows = []
    for y in range(height):
        parts: list[Span] = []
        for kind, sign in signs[y::height]:
            parts += [
                Span(f" {sign_text(kind, ascii_only)} ", sign.role),
                Span(" " + cell(sign.meaning, cells // columns - 5)),
            ]
        painted: Line = tuple(parts)
        rows.append(Row(" ".join(f"{kind} {sign.meaning}" for kind, sign in signs[y::height]), [painted]))
    return rows
