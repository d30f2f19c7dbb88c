"""The console in a real terminal: first paint, colours and characters of lesser ones, bytes, and its size."""

from __future__ import annotations

import os
import random
import re
from pathlib import Path

import pytest

REPLAY = "import sys; from console.tui.main import replay; sys.exit(replay(sys.argv[1], float(sys.argv[2])))"
ATTACH = "import sys; from console.tui.main import attach; sys.exit(attach(sys.argv[1], run_dir=sys.argv[2]))"
SGR = re.compile(rb"\x1b\[([0-9;]*)m")


def test_replay_paints_plays_to_the_end_and_leaves(terminal, pty_recording: Path) -> None:
    term = terminal(REPLAY, str(pty_recording), "0")
    term.see("REPLAY")
    term.see("step 6/6 finished, exit 0")
    assert "Groups" in term.text and "Events" in term.text
    term.press("q")
    assert term.ends() == 0 and not term.damage
    assert b"Traceback" not in term.raw


# --- lesser terminals -----------------------------------------------------------------------------------------------


def codes(raw: bytes) -> set[bytes]:
    """Parameters of the attributes that were set."""
    return {code for sequence in SGR.findall(raw) for code in sequence.split(b";")}


def tour(term) -> list:
    """Look at some pages; the cells that show something."""
    term.see("step 6/6 finished, exit 0")
    cells = []
    for keys in ("m", "?"):
        term.press(keys)
        term.settle(quiet=0.05, at_most=0.5)
        cells += [cell for row in term.screen.buffer.values() for cell in row.values() if cell.data.strip()]
    term.press("q")
    term.press("q")
    assert term.ends() == 0 and not term.damage
    assert len(cells) > 1000
    return cells


def test_no_color_is_readable_and_has_no_colour(terminal, pty_recording: Path) -> None:
    term = terminal(REPLAY, str(pty_recording), "0", env={"NO_COLOR": "1"})
    assert {(cell.fg, cell.bg) for cell in tour(term)} == {("default", "default")}
    # Neither does any byte set one: attributes and the terminal's own two colours only.
    assert codes(term.raw) <= {b"", b"0", b"1", b"2", b"4", b"7", b"39", b"49"}


def test_sixteen_colours(terminal, pty_recording: Path) -> None:
    term = terminal(REPLAY, str(pty_recording), "0", env={"TERM": "xterm", "COLORTERM": ""})
    cells = tour(term)
    assert not codes(term.raw) & {b"38", b"48"}
    assert not [cell for cell in cells if cell.fg == cell.bg], "text on its own colour"
    assert len({cell.fg for cell in cells}) >= 4


def test_two_hundred_and_fifty_six_colours(terminal, pty_recording: Path) -> None:
    term = terminal(REPLAY, str(pty_recording), "0", env={"TERM": "xterm-256color", "COLORTERM": ""})
    term.palette = True
    cells = tour(term)
    sequences = SGR.findall(term.raw)
    assert any(b"38;5;" in one for one in sequences) and not any(b"8;2;" in one for one in sequences)
    assert not [cell for cell in cells if cell.fg == cell.bg]


@pytest.mark.parametrize("variables", [{"LANG": "C"}, {"TERM": "linux"}])
def test_a_terminal_without_unicode_gets_ascii(terminal, pty_recording: Path, variables: dict[str, str]) -> None:
    term = terminal(REPLAY, str(pty_recording), "0", env={"COLORTERM": "", **variables})
    term.palette = True
    cells = tour(term)
    assert term.raw.isascii()
    assert {"P", "!", "#"} & {cell.data for cell in cells}


# --- bytes ----------------------------------------------------------------------------------------------------------


def test_no_bytes_when_nothing_changes_and_few_when_something_does(terminal, pty_recording: Path) -> None:
    term = terminal(REPLAY, str(pty_recording), "4", columns=120, rows=40)
    term.see("REPLAY")
    term.pump(0.5)
    painted = len(term.raw)
    term.until(lambda: len(term.raw) > painted)
    term.press(" ")
    term.see("REPLAY paused")
    term.pump(0.7)
    assert term.pump(1.5) == 0


def test_what_no_terminal_sends_does_no_harm(terminal, live_engine) -> None:
    term = terminal(ATTACH, str(live_engine.socket), str(live_engine.run_dir), columns=120, rows=40)
    term.see(" LIVE ", "link ok")
    for noise in (
        b"\xff\xfe\x80",
        b"\xc3",
        b"\x1b[999;999R",
        b"\x1b]11;rgb:1/2/3\x07",
        b"\x1b[<0;999;999M",
        b"\0" * 99,
    ):
        os.write(term.fd, noise)
        term.pump(0.15)
    term.press("\x1b")
    term.pump(0.2)
    os.write(term.fd, b"?")
    term.see("Help")
    term.press("q")
    term.press("q")
    assert term.ends() == 0 and not term.damage


# --- size -----------------------------------------------------------------------------------------------------------


def selected(text: str) -> set[str]:
    """Which group and trial the cursor is on, as the run page shows it."""
    return set(re.findall(r">\s*(g\d+|t\d+)\b", text))


def test_resize_up_and_down_keeps_the_selection(terminal, pty_recording: Path) -> None:
    term = terminal(REPLAY, str(pty_recording), "0", columns=200, rows=60)
    term.see("PPO loss", "step 6/6 finished")
    term.press(":")
    term.paste("trial g3/t5")
    term.press("\r")
    term.until(lambda: {"g3", "t5"} <= selected(term.text))
    before = term.lines
    for columns, rows, shows in ((60, 15, "terminal 60x15"), (200, 60, "PPO loss")):
        term.resize(columns, rows)
        term.see(shows)
    term.until(lambda: term.lines == before)
    for columns, rows in ((80, 24), (120, 40), (60, 16)):
        term.resize(columns, rows)
        term.until(lambda: {"g3", "t5"} <= selected(term.text))
    term.press("q")
    assert term.ends() == 0 and not term.damage


def test_a_walk_of_sizes_while_the_run_goes_on(terminal, start_engine) -> None:
    run = start_engine("--steps", "9000", "--interval", "0.1")
    term = terminal(ATTACH, str(run.socket), str(run.run_dir), columns=200, rows=60)
    term.see(" LIVE ", "PPO loss")
    rnd = random.Random(5)
    pages = ["m", "\x1b", "E", "\x1b", "L", "\x1b", "i", "\x1b", "?", "\x1b", "t", "\x1b", ":", "\x1b", "\x10", "\x1b"]
    for number, key in enumerate(pages):
        columns, rows = rnd.choice([(rnd.randint(20, 240), rnd.randint(5, 70)), (rnd.randint(60, 100), 16), (1, 1)])
        term.resize(columns, rows)
        if number % 3 == 0:
            term.resize(max(2, columns // 2), rows + 1)  # two at once
        term.press(key)
        term.pump(0.1)
    term.press("\x1b")
    term.pump(0.2)
    term.press("\x1b")
    term.pump(0.2)
    term.resize(120, 40)
    term.see(" LIVE ", "link ok", "Groups")
    term.press("P")  # the picture is held, so that both are of the same moment
    term.see("FROZEN")
    term.pump(0.5)
    before = timeless(term)
    term.repaint()
    assert timeless(term) == before
    term.press("q")
    assert term.ends() == 0 and not term.damage


def timeless(term) -> list[str]:
    """The screen without its clocks."""
    return [re.sub(r"\d", "0", row) for row in term.lines]
