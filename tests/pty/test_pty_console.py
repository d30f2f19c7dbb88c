"""The console in a real terminal: first paint, leaving, signals, size, bytes, hostile text, and no terminal at all."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from console.journal import events as ev

ROOT = Path(__file__).resolve().parents[2]
ENGINE = ROOT / "tests" / "control" / "small_engine.py"
REPLAY = "import sys; from console.tui.main import replay; sys.exit(replay(sys.argv[1], float(sys.argv[2])))"
ATTACH = "import sys; from console.tui.main import attach; sys.exit(attach(sys.argv[1], run_dir=sys.argv[2]))"
GUARDED = """
import sys
from console.errors import QuarterdeckError
from console.tui.main import replay
try:
    sys.exit(replay(sys.argv[1]))
except QuarterdeckError as error:
    sys.stderr.write(f"quarterdeck: {error}\\n")
    sys.exit(error.exit_code)
"""
GUARDED_ATTACH = GUARDED.replace("replay", "attach")


def test_replay_paints_plays_to_the_end_and_leaves(terminal, pty_recording: Path) -> None:
    term = terminal(REPLAY, str(pty_recording), "0")
    term.see("REPLAY")
    term.see("step 6/6 finished, exit 0")
    assert "Groups" in term.text and "Events" in term.text
    term.press("q")
    assert term.ends() == 0 and not term.damage
    assert b"Traceback" not in term.raw


SGR = re.compile(rb"\x1b\[([0-9;]*)m")


def test_no_color_is_readable_and_has_no_colour(terminal, pty_recording: Path) -> None:
    term = terminal(REPLAY, str(pty_recording), "0", env={"NO_COLOR": "1"})
    term.see("step 6/6 finished, exit 0")
    for key in ("\r", "\x1b"):
        term.press(key)
        term.pump(0.3)
    cells = [cell for row in term.screen.buffer.values() for cell in row.values() if cell.data.strip()]
    assert len(cells) > 300
    assert {(cell.fg, cell.bg) for cell in cells} == {("default", "default")}
    # Neither does any byte set one: attributes and the terminal's own two colours only.
    codes = {code for sequence in SGR.findall(term.raw) for code in sequence.split(b";")}
    assert codes <= {b"", b"0", b"1", b"2", b"4", b"7", b"39", b"49"}, codes
    term.press("q")
    assert term.ends() == 0


def test_no_bytes_when_nothing_changes_and_few_when_something_does(terminal, pty_recording: Path) -> None:
    term = terminal(REPLAY, str(pty_recording), "4", columns=120, rows=40)
    term.see("REPLAY")
    term.pump(0.5)
    playing = term.pump(2.0)
    term.press(" ")
    term.see("REPLAY paused")
    term.pump(1.0)
    assert term.pump(2.0) == 0
    print(f"bytes a second while playing at 4x: {playing / 2:.0f}")


def test_resize_up_and_down_keeps_painting(terminal, pty_recording: Path) -> None:
    term = terminal(REPLAY, str(pty_recording), "0", columns=200, rows=60)
    term.see("PPO loss")
    for columns, rows, shows in ((60, 15, "terminal 60x15"), (80, 24, "Steps"), (120, 40, "Gateway & capture")):
        term.resize(columns, rows)
        term.see(shows)
    term.press("q")
    assert term.ends() == 0


def test_sigterm_restores_the_terminal(terminal, pty_recording: Path) -> None:
    term = terminal(REPLAY, str(pty_recording), "1")
    term.see("REPLAY")
    term.pump(0.3)
    term.signal(signal.SIGTERM)
    assert term.ends() == 143 and not term.damage


def test_a_crash_restores_the_terminal_and_keeps_no_secret(terminal, pty_recording: Path, tmp_path: Path) -> None:
    code = (
        "import sys\nfrom console.tui import main, panes\nfrom console.tui.panes import events\n"
        "def boom(scene, cells, rows):\n    password = 'hunter2'\n    raise RuntimeError('key tml-abcdefghijklmnop')\n"
        "import console.tui.compose as c\n"
        "c._SECTIONS['events'] = (c._SECTIONS['events'][0], boom)\n"
        "sys.exit(main.replay(sys.argv[1], 0))\n"
    )
    term = terminal(code, str(pty_recording), env={"TMPDIR": str(tmp_path), "MY_API_KEY": "RuntimeSecret"})
    assert term.ends() == 7
    assert b"the console crashed (RuntimeError)" in term.raw and b"hunter2" not in term.raw
    assert b"Traceback" not in term.raw
    files = list(tmp_path.glob("quarterdeck-crash-*.txt"))
    assert len(files) == 1 and files[0].stat().st_mode & 0o777 == 0o600
    kept = files[0].read_text()
    assert "RuntimeError: key ***" in kept and "hunter2" not in kept


@pytest.fixture
def live_engine(tmp_path: Path):
    """The engine of a run, a process of its own, one step every second."""
    with tempfile.TemporaryDirectory(prefix="qd-") as short:
        socket = Path(short) / "s.sock"
        process = subprocess.Popen(
            [sys.executable, str(ENGINE), str(tmp_path / "run"), str(socket), "--steps", "60", "--interval", "1"],
            stdout=subprocess.PIPE,
            stdin=subprocess.DEVNULL,
            cwd=ROOT,
            start_new_session=True,
        )
        assert process.stdout is not None and process.stdout.readline() == b"ready\n"
        yield process, socket, tmp_path / "run"
        process.kill()
        process.wait()
        process.stdout.close()


def test_attach_survives_a_killed_console_and_leaves_the_run_alone(terminal, live_engine) -> None:
    process, socket, run_dir = live_engine
    first = terminal(ATTACH, str(socket), str(run_dir))
    first.see(" LIVE ")
    first.signal(signal.SIGKILL)
    assert first.ends() == -signal.SIGKILL
    dropped = terminal(ATTACH, str(socket), str(run_dir))
    dropped.see(" LIVE ")
    os.close(dropped.fd)  # the line drops
    dropped.fd = os.open(os.devnull, os.O_RDONLY)
    _, status = os.waitpid(dropped.pid, 0)
    dropped.status = os.waitstatus_to_exitcode(status)
    assert dropped.status in (-signal.SIGHUP, 129)
    again = terminal(ATTACH, str(socket), str(run_dir))
    again.see(" LIVE ")
    again.press("q")
    assert again.ends() == 0 and not again.damage
    assert "the run goes on: quarterdeck attach run-1" in again.raw.decode(errors="replace")
    assert process.poll() is None


def test_a_killed_engine_is_dead_and_can_still_be_looked_at(terminal, live_engine) -> None:
    process, socket, run_dir = live_engine
    term = terminal(ATTACH, str(socket), str(run_dir))
    term.see(" LIVE ")
    process.kill()
    process.wait()
    term.see(" DEAD ")
    term.press("q")
    assert term.ends() == 0
    assert b"the engine is gone: quarterdeck train with the same options resumes it" in term.raw
    assert b"the run goes on" not in term.raw
    code = "import sys; from console.tui.main import attach; sys.exit(attach(sys.argv[1]))"
    after = terminal(code, str(run_dir))
    after.see("the engine is gone: this is the recording up to its end")
    after.press("q")
    assert after.ends() == 0


def test_hostile_text_changes_nothing_of_the_terminal(terminal, tmp_path: Path) -> None:
    from console.journal.writer import JournalWriter

    hostile = "\x1b]0;PWNED\x07\x1b]52;c;aGk=\x07\x1bc\x1b[?1049l\x1b[2J\x9b2J\x1bP+q\x1b\\\x1b[?1000h\x05\u202eabc"
    with JournalWriter(tmp_path / "journal") as writer:
        for event in (
            ev.RunStarted(run_id=hostile, name=hostile, steps=1),
            ev.StepStarted(step=0, groups=1, policy_version=0),
            ev.GroupStarted(step=0, group=0, task=hostile, size=2),
            ev.TrialFinished(
                step=0, group=0, trial=0, outcome="infrastructure", cause=hostile, evidence=hostile, exception=hostile,
                trial_dir=hostile,
            ),
            ev.Note(text=hostile, level="error"),
            ev.AlarmOpened(key="k", level="critical", text=hostile, remedy=hostile),
        ):  # fmt: skip
            writer.append(event)
    term = terminal(REPLAY, str(tmp_path), "0", columns=120, rows=40)
    term.see("g1/t1 infrastructure")
    term.press("\r")
    term.see("Evidence")
    assert "PWNED" not in term.screen.title and "PWNED" not in term.screen.icon_name
    for bad in (b"\x1b]0;", b"\x1b]52", b"\x1bc", b"\x1b[2J\xc2", b"\xc2\x9b", b"\x1bP+q", b"\x05", "\u202e".encode()):
        assert bad not in term.raw, bad
    assert b"PWNED" not in term.raw and term.raw.count(b"\x1b[?1049l") == 0
    term.press("\x1b")
    term.pump(0.5)
    term.press("q")
    assert term.ends() == 0 and not term.damage


@pytest.mark.parametrize("variables", [{"TERM": "dumb"}, {"TERM": ""}])
def test_a_terminal_that_cannot_be_painted_on_is_refused(
    terminal, pty_recording: Path, variables: dict[str, str]
) -> None:
    term = terminal(GUARDED, str(pty_recording), env=variables)
    assert term.ends() == 2
    assert b"set TERM" in term.raw and b"--headless" not in term.raw and b"\x1b[?1049h" not in term.raw


@pytest.mark.parametrize("streams", [{"stdin": subprocess.DEVNULL}, {"stdout": subprocess.PIPE}, {}])
def test_no_terminal_is_one_line_and_exit_2(pty_recording: Path, streams: dict[str, int]) -> None:
    options: dict[str, int] = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, **streams}
    done = subprocess.run(
        [sys.executable, "-c", GUARDED, str(pty_recording)], cwd=ROOT, stderr=subprocess.PIPE, timeout=30, **options
    )
    assert done.returncode == 2
    assert done.stderr.count(b"\n") == 1 and b"needs a terminal" in done.stderr
    assert b"--headless" not in done.stderr  # a replay has no such option
    assert not done.stdout


@pytest.mark.parametrize(("code", "says"), [(GUARDED, b"no such directory"), (GUARDED_ATTACH, b"no such socket")])
def test_a_missing_run_is_said_before_the_missing_terminal(tmp_path: Path, code: str, says: bytes) -> None:
    assert says in _without_terminal(code, tmp_path / "nothing")


def test_attach_without_a_terminal_names_what_it_has_instead(pty_recording: Path) -> None:
    assert b"use --headless or --plain" in _without_terminal(GUARDED_ATTACH, pty_recording)


def _without_terminal(code: str, target: Path) -> bytes:
    done = subprocess.run(
        [sys.executable, "-c", code, str(target)], cwd=ROOT, stdin=subprocess.DEVNULL, capture_output=True, timeout=30
    )
    assert not done.stdout and done.stderr.count(b"\n") == 1
    return done.stderr
