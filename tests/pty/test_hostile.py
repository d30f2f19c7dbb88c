"""Hostile text by every path: of models, sandboxes, gateways, tasks, files, viewers; a terminal obeys none of it.

Every byte is read strictly (`terminal_bytes`), by the fixture `terminal` at the end of each test too, and a picture
that was painted bit by bit must be the one that is painted at once.
"""

from __future__ import annotations

import json
import os
import re
import socket as socketlib
import unicodedata
from collections.abc import Iterable
from pathlib import Path

import hostile
import hostile_run
import pytest
import terminal_bytes

from console.control.registry import register
from console.journal import events as ev
from console.journal.writer import JournalWriter

REPLAY = "import sys; from console.tui.main import replay; sys.exit(replay(sys.argv[1], 0.25))"
HOME, END, PAGE_UP, PAGE_DOWN, ESC, ENTER = "\x1b[H", "\x1b[F", "\x1b[5~", "\x1b[6~", "\x1b", "\r"
TELL = re.compile(r"q[a-z]{3}")

RUN = ["qnam", "qtsk", "qcau", "qexc", "qevi", "qgwd", "qatx", "qaco", "qout", "qend"]
EVENTS = [
    "qnot",
    "qckn",
    "qpau",
    "qtby",
    "qqua",
    "qqby",
    "qwby",
    "qwpr",
    "qack",
    "qrty",
    "qcmd",
    "qaut",
    "qres",
    "qgrs",
]
OTHERS = [
    "qaky",
    "qarm",
    "qmod",
    "qrid",
    "qgwu",
    "qonf",
    "qcfk",
    "qcfv",
    "qvrk",
    "qvrv",
    "qtun",
    "qthr",
    "qoco",
    "qnon",
    "qrul",
    "qdir",
    "qsec",
    "qtph",
]
CONTENT = ["qmsg", "qrpl", "qsto", "qrol", "qver", "qrst", "qraw", "qrax", "qfil", "qtok", "qlog", "qrek", "qrev"]


@pytest.fixture(scope="session")
def hostile_recording(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A recording in which every text is hostile."""
    path = tmp_path_factory.mktemp("hostile") / "run"
    hostile_run.record(path)
    return path


class Visit:
    """What was seen on the way through the pages of a console."""

    def __init__(self, term) -> None:
        self.term, self.seen = term, set[str]()

    def press(self, *keys: str) -> None:
        for key in keys:
            self.term.press(key)
            if key == ESC:
                self.term.pump(0.12)  # or the next key is taken for one with alt
            else:
                self.term.settle()
            self.look()

    def open(self, key: str, text: str) -> None:
        """Press the key of a page, and wait for something of it."""
        self.press(key)
        self.wait(text)

    def type(self, text: str) -> None:
        """Paste a command into the command line."""
        self.press(":")
        self.term.paste(text)
        self.term.settle()
        self.press(ENTER)

    def paste(self, texts: Iterable[str]) -> None:
        """Paste into a line that is open, one text after the other."""
        for text in texts:
            self.term.press("\x15")
            self.term.paste(pasted(text))
            self.term.settle(quiet=0.04)

    def page_through(self, at_most: int, key: str = PAGE_DOWN) -> None:
        """Page until nothing changes."""
        for _ in range(at_most):
            before = self.term.text
            self.term.press(key)
            self.term.settle(at_most=0.6)
            self.look()
            if self.term.text == before:
                return

    def wait(self, text: str) -> None:
        self.term.see(text)
        self.term.settle()  # the rest of the picture may come in another piece
        self.look()

    def look(self) -> None:
        self.seen |= set(TELL.findall(self.term.text))

    def repaint(self) -> None:
        """Nothing is left of what was shown before, and nothing is in the wrong place."""
        self.term.settle(quiet=0.2, at_most=1.0, came=True)
        before = self._timeless()
        self.term.repaint()
        self.look()
        assert self._timeless() == before

    def _timeless(self) -> list[str]:
        return [re.sub(r"\d", "0", row) for row in self.term.lines]

    def missing(self, tells: Iterable[str]) -> set[str]:
        return set(tells) - self.seen


def test_the_corpus_is_large_enough_and_the_reader_refuses_it() -> None:
    assert len(hostile.STRINGS) >= 500 and len(set(hostile.STRINGS)) == len(hostile.STRINGS)
    harmless = 0
    for text in hostile.STRINGS:
        whole = f"\x1b[?1049h\x1b[1;1H\x1b[1mx{text}\x1b[0m\x1b[?1049l".encode("utf-8", "surrogatepass")
        if text.isprintable() and not re.search(r"[\u0300-\u036f\u20dd\ufe0e\ufe0f]|[\U000e0100]", text):
            harmless += 1
            continue
        if "\x1b" not in text and not any(unicodedata.category(c) in ("Cc", "Cf", "Cs", "Co", "Cn") for c in text):
            continue
        if text in _ALSO_OUR_OWN:
            continue
        with pytest.raises(terminal_bytes.Intruder):
            terminal_bytes.read(whole, 200, 60)
    assert harmless < len(hostile.STRINGS) / 6


_ALSO_OUR_OWN = {f"\x1b[?{mode}{how}" for mode in terminal_bytes.MODES for how in "hl"}
"""Sequences that the console uses too: that one came twice is seen from the modes at the end."""


@pytest.mark.parametrize("sequence", sorted(_ALSO_OUR_OWN))
def test_a_mode_that_is_left_behind_is_seen(sequence: str) -> None:
    term = terminal_bytes.read(f"\x1b[?1049h\x1b[?25l\x1b[?25h\x1b[?1049l{sequence}".encode(), 80, 24)
    mode, on = int(sequence[3:-1]), sequence.endswith("h")
    assert term.untouched == (terminal_bytes.MODES[mode] == on)


@pytest.mark.parametrize(("columns", "rows", "steps", "pages"), [(200, 60, 6, 6), (80, 24, 6, 2)])
def test_every_page_of_a_recording(
    terminal, hostile_recording: Path, columns: int, rows: int, steps: int, pages: int
) -> None:
    term = terminal(REPLAY, str(hostile_recording), columns=columns, rows=rows)
    term.until(lambda: "REPLAY" in term.text)
    visit = Visit(term)
    visit.press(" ", HOME, *["}"] * steps)
    visit.press(END)
    visit.open("m", "Metrics")
    visit.press("t")
    visit.repaint()
    visit.press(ESC, ESC)
    visit.open("L", "qatx")
    visit.press(*"jjj")
    visit.repaint()
    visit.press(ESC)
    visit.open("i", "what differs")
    visit.page_through(8)
    visit.press("G", ESC, "E")
    visit.page_through(pages, PAGE_UP)
    visit.repaint()
    visit.press(ESC, "?", ESC)
    visit.type("trial g2/t2")
    for tab in "tvle":
        visit.open(tab, {"t": "qmsg", "v": "qfil", "c": "qtok", "l": "qxcp", "e": "qrek"}[tab])
        visit.press("g")
        visit.page_through(pages)
        visit.press("G")
        visit.page_through(2, PAGE_UP)
    visit.repaint()
    visit.press("c", "g")
    visit.page_through(2)
    visit.press(ENTER, PAGE_DOWN, "b", *"JJJ")
    visit.repaint()
    assert visit.missing(RUN + EVENTS + OTHERS + CONTENT) <= ({"qnon"} if rows == 24 else set())
    term.press("q")
    assert term.ends() == 0 and not term.damage


ATTACH = "import sys; from console.tui.main import attach; sys.exit(attach(sys.argv[1], run_dir=sys.argv[2]))"


def attend(socket: Path, authors: Iterable[str]) -> list[socketlib.socket]:
    """Viewers of these names, as long as the sockets are open."""
    out = []
    for author in authors:
        line = socketlib.socket(socketlib.AF_UNIX)
        line.connect(str(socket))
        line.sendall(json.dumps({"msg": "attend", "author": f"qvwr{author[:9000]}"}).encode("utf-8", "replace") + b"\n")
        out.append(line)
    return out


def test_a_live_run_its_dialogs_prompts_and_viewers(terminal, start_engine) -> None:
    run = start_engine(program=Path(hostile_run.__file__))
    others = attend(run.socket, hostile.STRINGS[::12])
    term = terminal(ATTACH, str(run.socket), str(run.run_dir), columns=120, rows=40)
    term.bells = 3  # critical alarms
    visit = Visit(term)
    visit.wait("watch: qvwr")  # somebody else has it
    visit.press("W")
    visit.wait("you have the watch")
    for key in "xXRpC":
        visit.press(key, ESC)
    visit.repaint()
    visit.press("x")
    visit.wait("qdry")
    visit.repaint()
    term.pump(0.5)  # a fresh yes only
    visit.press("y")
    visit.wait("qdon")
    visit.press("\x10", *"stop-now", ENTER)
    visit.wait("to do it, type")
    visit.paste(hostile.joined_per_family()[::6])
    visit.repaint()
    visit.press(ESC, ESC)
    for opener, every in ((":", 1), ("/", 6), ("\x10", 6), ("\x05", 6)):
        visit.press(opener)
        visit.paste(hostile.joined_per_family()[::every])
        if every == 1:
            visit.repaint()
        visit.press(ESC, ESC)
    for text in ("quarantine q", "ack q", "theme \x9b5m\u202e"):
        visit.press(":")
        term.paste(pasted(text))
        visit.press("\t", "\t", ENTER, ESC)
    visit.type("trial g2/t2")
    for tab in "tvcle":
        visit.open(tab, {"t": "qmsg", "v": "qfil", "c": "qtok", "l": "qxcp", "e": "qrek"}[tab])
        visit.press("g", PAGE_DOWN)
    visit.repaint()
    term.press("\x03")
    term.see("detach")
    term.press("d")
    assert term.ends() == 0 and not term.damage
    assert term.said == "the run stops after step 11, its dispatch is paused: quarterdeck attach qrid"
    assert visit.missing(["qmsg", "qver", "qtok", "qlog", "qrek", "qvwr", "qdry", "qdon", "qqua", "qaky"]) == set()
    for line in others:
        line.close()


def pasted(text: str) -> str:
    """What a terminal lets through to be pasted: no brackets of its own, and characters that have bytes."""
    return re.sub("\x1b\\[20[01]~", "", text).encode("utf-8", "replace").decode()


CLI = """
import sys
from console.cli import run
for line in sys.argv[1:]:
    sys.stdout.write(f"\\nexit {run(line.split(chr(31)))}\\n")
"""


def test_what_the_commands_print_at_a_terminal(terminal, start_engine, hostile_recording: Path) -> None:
    run = start_engine(program=Path(hostile_run.__file__))
    others = attend(run.socket, hostile.STRINGS[::12])
    live, over = str(run.run_dir), str(hostile_recording)
    commands = [
        *(["ctl", "--run", live, view] for view in ("status", "alarms", "groups", "events", "viewers")),
        *(["ctl", "--run", live, "trial", "g2/t2", "--step", "11", "--kind", kind] for kind in KINDS),
        ["ctl", "--run", live, "cancel-group", "g1", "--dry-run"],
        ["ctl", "--run", live, "pause", "--reason", "\x1b]0;PWNED\x07"],
        ["attach", over, "--plain"], ["attach", over, "--headless"], ["runs"],
        ["ctl", "--run", live, "events", "--json"], ["ctl", "--run", live, "status", "--json"],
        ["export", over, "--format", "txt"], ["export", over, "--format", "json"],
        *(["export", over, "--format", "csv", "--what", what] for what in ("steps", "trials", "events")),
        ["export", over, "--format", "json", "--what", "events"], ["export", over, "-o", "/nowhere/x.csv"],
        *([*words, text] for text in ERRORS for words in FRONT),
        *(["ctl", "--run", text, "status"] for text in ERRORS),
        *(["replay", over, "--theme", text] for text in ERRORS),
    ]  # fmt: skip
    term = terminal(CLI, *("\x1f".join(words) for words in commands), columns=200, rows=60)
    assert term.ends(60) == 0 and not term.damage
    text = term.raw.decode()
    assert text.count("\r\nexit ") == len(commands)
    wanted = [
        "qmsg",
        "qver",
        "qtok",
        "qlog",
        "qrek",
        "qnam",
        "qtsk",
        "qatx",
        "qaky",
        "qvwr",
        "qdry",
        "qdon",
        "qnot",
        "qcau",
        "qend",
        "qevi",
    ]
    assert set(wanted) - set(TELL.findall(text)) == set()
    for line in others:
        line.close()


FRONT = (["ctl"], ["replay"], ["attach"], ["export"], ["keys", "--check"], [])
KINDS = ("transcript", "verifier", "tokens", "log", "result")
ERRORS = ("\x1b]0;PWNED\x07", "\x9b5m\u202e", "/tmp/\x1b]52;c;UFdORUQ=\x1b\\\u2028\u200b", "--\x1b[5m")


def test_names_of_files_and_broken_ones(terminal, tmp_path: Path, monkeypatch) -> None:
    state, config = tmp_path / "state", tmp_path / "config"
    monkeypatch.setenv("QUARTERDECK_STATE_DIR", str(state))
    (config / "quarterdeck" / "themes").mkdir(parents=True)
    for i, name in enumerate([name for name in hostile.file_names() if pasted(name) == name][::6]):
        where = tmp_path / os.fsencode(f"qdir{name}").decode("utf-8", "surrogateescape")
        with JournalWriter(where / "journal") as journal:
            journal.append(ev.RunStarted(run_id=f"r{i}{name}", name=f"qnam{name}", run_dir=str(where)))
        register(f"r{i}{name}", where, f"qnam{name}", 0, None, float(i))
    for i, name in enumerate(hostile.file_names()[::40]):
        path = config / "quarterdeck" / "themes" / os.fsencode(f"qthm{name}.yaml").decode("utf-8", "surrogateescape")
        path.write_text(f"name: x{i}\n{name}", errors="replace")
    (config / "quarterdeck" / "keys.yaml").write_text('"qkey\\e]0;PWNED\\a": "\\e[5m"\n')
    term = terminal(CHOOSE, columns=200, rows=60, env={"XDG_CONFIG_HOME": str(config)})
    visit = Visit(term)
    visit.wait("qnam")
    assert visit.missing(["qdir", "qkey"]) == set()
    visit.page_through(4)
    visit.repaint()
    visit.press(ENTER)
    visit.wait("REPLAY")
    visit.repaint()
    term.press("q")
    assert term.ends() == 0 and not term.damage


CHOOSE = "import sys; from console.tui.main import choose; sys.exit(choose())"
