"""How a console ends, or goes on: what becomes of the run, of the terminal, and with which exit code."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import full_disk
import psutil
import pytest
from socket_relay import Relay

from console.journal.reader import Journal

ROOT = Path(__file__).resolve().parents[2]
ATTACH = "import sys; from console.tui.main import attach; sys.exit(attach(sys.argv[1], run_dir=sys.argv[2]))"
FORWARDED = "import sys; from console.tui.main import attach; sys.exit(attach(sys.argv[1]))"
SHORT_PATIENCE = "import console.tui.live as live; live.STALE_AFTER = 1.5\n"
QUARTERDECK = "from console.cli import main; main()"


def attached(terminal, run, code: str = ATTACH, **options):
    """A console on the run that has seen it."""
    term = terminal(code, str(run.socket), str(run.run_dir), **options)
    term.see(" LIVE ", "link ok" if options.get("columns", 80) >= 100 else "step")
    return term


def seq(run) -> int:
    """The last event that the run has written."""
    return Journal(run.run_dir / "journal").last_seq


def goes_on(run) -> bool:
    """Whether the run writes events."""
    before, end = seq(run), time.monotonic() + 20
    while time.monotonic() < end:
        if run.process.poll() is None and seq(run) > before:
            return True
        time.sleep(0.1)
    return False


def nobody_left(term) -> bool:
    """Whether no process of the terminal's session is alive."""
    end = time.monotonic() + 5
    while time.monotonic() < end:
        if not any(_session(pid) == term.pid for pid in psutil.pids()):
            return True
        time.sleep(0.05)
    return False


def _session(pid: int) -> int:
    try:
        return os.getsid(pid) if psutil.Process(pid).status() != psutil.STATUS_ZOMBIE else -1
    except (OSError, psutil.Error):
        return -1


# --- the line drops -------------------------------------------------------------------------------------------------


def test_a_dropped_line_ends_the_console_at_once_and_not_the_run(terminal, live_engine) -> None:
    term = attached(terminal, live_engine)
    term.drop()
    assert term.ends() in (-signal.SIGHUP, 129)
    assert nobody_left(term) and goes_on(live_engine)


def test_a_console_that_ignores_hang_ups_ends_when_its_terminal_is_gone(terminal, start_engine) -> None:
    run = start_engine("--steps", "9000", "--interval", "0.02")
    term = attached(terminal, run, f"import signal; signal.signal(signal.SIGHUP, signal.SIG_IGN)\n{ATTACH}")
    term.drop()
    assert term.ends() == 129
    assert nobody_left(term) and goes_on(run)


def test_a_killed_console_is_followed_by_another_one_that_has_everything(terminal, live_engine) -> None:
    first = attached(terminal, live_engine)
    first.signal(signal.SIGKILL)
    assert first.ends() == -signal.SIGKILL
    before = Journal(live_engine.run_dir / "journal").last_seq
    again = attached(terminal, live_engine)
    again.press("E")
    again.see("Events")
    again.press("q")
    assert again.ends() == 0 and not again.damage
    assert again.said == "the run goes on: quarterdeck attach run-1"
    assert before > 0 and goes_on(live_engine)


# --- signals and keys -----------------------------------------------------------------------------------------------


def test_sigterm_restores_the_terminal(terminal, live_engine) -> None:
    term = attached(terminal, live_engine)
    term.signal(signal.SIGTERM)
    assert term.ends() == 143 and not term.damage
    assert term.said == "" and nobody_left(term) and goes_on(live_engine)


def test_ctrl_c_asks_and_a_second_one_goes_back(terminal, live_engine) -> None:
    term = attached(terminal, live_engine)
    term.press("\x03")
    term.see("detach: leave", "stop after this step", "stop now")
    term.press("\x03")
    term.until(lambda: "Leave or stop?" not in term.text)
    term.press("\x1a")  # ctrl+z means nothing
    term.press("\x03")
    term.see("Leave or stop?")
    term.press("d")
    assert term.ends() == 0 and not term.damage
    assert "the run goes on" in term.said and goes_on(live_engine)


def test_a_suspended_console_is_right_when_it_is_continued(terminal, start_engine) -> None:
    run = start_engine("--steps", "9000", "--interval", "0.3")
    term = attached(terminal, run, SHORT_PATIENCE + ATTACH, columns=120, rows=40)
    term.press("M")
    term.see("clicks select")
    for how, seconds in ((signal.SIGTSTP, 0.3), (signal.SIGSTOP, 2.0)):
        term.signal(how)
        term.until(lambda: psutil.Process(term.pid).status() == psutil.STATUS_STOPPED)
        term.pump(0.2)
        if how == signal.SIGTSTP:
            assert not term.damage  # the shell has it back
        before, at = seq(run), time.monotonic()
        while time.monotonic() < at + seconds or seq(run) == before:
            time.sleep(0.1)
        term.screen.reset()  # whatever was there
        term.signal(signal.SIGCONT)
        term.see(" LIVE ", "link ok", "Groups", "Events", "Gateway & capture")
        term.until(lambda: step_shown(term.text) >= last_step(run))
        assert "STALE" not in term.text and term.written().modes[1000]
    term.press("?")
    term.see("Help")
    term.press("q")
    term.press("q")
    assert term.ends() == 0 and not term.damage


# --- a terminal that does not read ----------------------------------------------------------------------------------


def test_a_terminal_that_stops_reading_does_not_hold_up_the_run(terminal, start_engine) -> None:
    run = start_engine("--steps", "90000", "--interval", "0.01")
    term = attached(terminal, run, columns=200, rows=60)
    ended = attached(terminal, run, columns=200, rows=60)
    before = seq(run)
    assert term.busy(10.0) < 0.5  # it waits in the middle of a paint, without haste
    assert seq(run) - before > 2000
    ended.signal(signal.SIGTERM)
    other = attached(terminal, run)  # the engine answers others all the while
    other.press("q")
    assert other.ends() == 0
    term.until(lambda: " LIVE " in term.text and "link ok" in term.text, 40)
    now = last_step(run)
    term.until(lambda: step_shown(term.text) >= now)
    term.press("q")
    assert term.ends() == 0 and not term.damage
    assert goes_on(run)
    # SIGTERM ended the other one while its terminal took nothing.
    end = time.monotonic() + 15
    while ended.status is None and time.monotonic() < end:
        time.sleep(0.1)
        ended.reap()
    assert ended.status == 143 and "line discipline" not in ended.damage


def last_step(run) -> int:
    """The last step that the run has finished."""
    return Journal(run.run_dir / "journal").step_rows()[-1].step


def step_shown(text: str) -> int:
    """The step that the header shows."""
    return int(text.partition("step ")[2].partition("/")[0])


# --- no terminal ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("variables", [{"TERM": "dumb"}, {"TERM": ""}, {"TERM": "unknown"}])
def test_a_terminal_that_cannot_be_painted_on_is_refused(terminal, pty_recording: Path, variables) -> None:
    term = terminal(QUARTERDECK, "replay", str(pty_recording), env=variables)
    assert term.ends() == 2 and not term.damage
    out = term.raw.decode().strip()
    assert "set TERM" in out and "\n" not in out and "--headless" not in out


def without(run_dir: Path, command: str, **streams: int) -> subprocess.CompletedProcess[bytes]:
    """A console command of which some streams are no terminal; the others are."""
    master, slave = os.openpty()
    options = {"stdin": slave, "stdout": slave, "stderr": slave, **streams}
    try:
        return subprocess.run(
            [sys.executable, "-c", QUARTERDECK, command, str(run_dir)], cwd=ROOT, timeout=30, **options
        )
    finally:
        os.close(slave)
        os.close(master)


@pytest.mark.parametrize("name", ["stdin", "stdout", "stderr"])
def test_no_terminal_is_one_line_and_exit_2(pty_recording: Path, name: str) -> None:
    streams = {"stdin": subprocess.DEVNULL} if name == "stdin" else {name: subprocess.PIPE}
    if name != "stderr":
        streams["stderr"] = subprocess.PIPE
    done = without(pty_recording, "replay", **streams)
    assert done.returncode == 2
    assert done.stderr.count(b"\n") == 1 and b"needs a terminal" in done.stderr
    assert b"--headless" not in done.stderr  # a replay has no such option
    assert not done.stdout


@pytest.mark.parametrize("command", ["replay", "attach"])
def test_a_missing_run_is_said_before_the_missing_terminal(tmp_path: Path, command: str) -> None:
    done = without(tmp_path / "nothing", command, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE)
    assert done.returncode == 2 and b"no run" in done.stderr and done.stderr.count(b"\n") == 1


def test_attach_without_a_terminal_names_what_it_has_instead(pty_recording: Path) -> None:
    done = without(pty_recording, "attach", stdin=subprocess.DEVNULL, stderr=subprocess.PIPE)
    assert done.returncode == 2 and b"use --headless or --plain" in done.stderr


# --- crashes and full disks -----------------------------------------------------------------------------------------

CRASH = """
from console.tui.desk import Desk
def boom(self):
    password = 'hunter2'
    if self.state.seq and self.source.mode == 'live':
        raise RuntimeError('key tml-abcdefghijklmnop')
    return ()
Desk.key_labels = boom
"""
NO_ROOM = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))\n"


def test_a_crash_restores_the_terminal_and_keeps_no_secret(terminal, live_engine, tmp_path: Path) -> None:
    env = {"TMPDIR": str(tmp_path), "MY_API_KEY": "RuntimeSecret"}
    term = terminal(CRASH + ATTACH, str(live_engine.socket), str(live_engine.run_dir), env=env)
    assert term.ends() == 7 and not term.damage
    files = list(tmp_path.glob("quarterdeck-crash-*.txt"))
    assert len(files) == 1 and files[0].stat().st_mode & 0o777 == 0o600
    said = "quarterdeck: the console crashed (RuntimeError). The run is not affected."
    assert term.said == f"{said} Details: {files[0]}"
    assert b"hunter2" not in term.raw and b"Traceback" not in term.raw
    kept = files[0].read_text()
    assert "RuntimeError: key ***" in kept and "hunter2" not in kept and "RuntimeSecret" not in kept
    assert nobody_left(term) and goes_on(live_engine)


def test_a_crash_on_a_full_disk_is_still_one_line(terminal, live_engine, tmp_path: Path) -> None:
    env = {"TMPDIR": str(tmp_path)}
    term = terminal(NO_ROOM + CRASH + ATTACH, str(live_engine.socket), str(live_engine.run_dir), env=env)
    assert term.ends() == 7 and not term.damage
    assert term.said == "quarterdeck: the console crashed (RuntimeError). The run is not affected."


def test_a_console_on_a_full_disk_goes_on(terminal, live_engine, tmp_path: Path) -> None:
    term = attached(terminal, live_engine, NO_ROOM + ATTACH, columns=120, rows=40)
    term.clipboards = 1
    term.press("Y")
    term.see("not kept in a file: [Errno 27] File too large")
    term.press("\x05")
    term.see("export to")
    term.press("\x15")
    term.paste(str(tmp_path / "view.txt"))
    term.press("\r")
    term.see("view.txt: File too large")
    assert list(tmp_path.glob("*view*")) == []
    term.see(" LIVE ", "link ok")
    term.press("q")
    assert term.ends() == 0 and not term.damage


def test_an_engine_on_a_full_disk_ends_and_its_viewer_says_why(terminal, start_engine) -> None:
    run = start_engine("--bytes", "15000", program=Path(full_disk.__file__))
    term = attached(terminal, run, columns=120, rows=40)
    assert run.process.wait(20) == 7
    term.see(" DEAD ", "the run failed, exit 7: ", "File too large")
    term.press("q")
    assert term.ends() == 0 and not term.damage
    assert term.said.startswith("the run failed, exit 7: ") and "quarterdeck train" in term.said


# --- the engine, and the way to it ----------------------------------------------------------------------------------


def test_a_killed_engine_is_dead_and_can_still_be_looked_at(terminal, live_engine) -> None:
    term = attached(terminal, live_engine)
    live_engine.process.kill()
    live_engine.process.wait()
    term.see(" DEAD ")
    term.press("q")
    assert term.ends() == 0 and not term.damage
    assert "the engine is gone: quarterdeck train with the same options resumes it" in term.said
    assert "the run goes on" not in term.said
    after = terminal(FORWARDED, str(live_engine.run_dir))
    after.see("the engine is gone: this is the recording up to its end")
    after.press("q")
    assert after.ends() == 0


@pytest.fixture
def forwarded(start_engine):
    """A run, and its socket as it arrives elsewhere."""
    run = start_engine("--steps", "9000", "--interval", "0.3")
    line = Relay(run.socket.with_suffix(".fwd"), run.socket)
    yield run, line
    line.close()


def test_a_forwarded_socket_is_cut_and_comes_back(terminal, forwarded) -> None:
    run, relay = forwarded
    term = terminal(FORWARDED, str(relay.path), columns=120, rows=40)
    term.see(" LIVE ", "link ok")
    relay.cut()
    term.see("LINK LOST")
    before = seq(run)
    while seq(run) < before + 20:
        time.sleep(0.1)
    relay.mend()
    term.see(" LIVE ", "link ok")
    now = last_step(run)
    term.until(lambda: step_shown(term.text) >= now)
    term.press("q")
    assert term.ends() == 0 and not term.damage
    assert term.said == "the run goes on: quarterdeck attach run-1"


def test_a_line_that_swallows_everything_is_stale(terminal, forwarded) -> None:
    run, relay = forwarded
    term = terminal(SHORT_PATIENCE + FORWARDED, str(relay.path), columns=120, rows=40)
    term.see(" LIVE ", "link ok")
    relay.swallow = True
    term.see("STALE")
    relay.swallow = False
    term.see(" LIVE ", "link ok")
    now = last_step(run)
    term.until(lambda: step_shown(term.text) >= now)
    term.press("q")
    assert term.ends() == 0 and not term.damage


def test_the_watch_passes_to_a_second_viewer_and_comes_back(terminal, live_engine) -> None:
    first = attached(terminal, live_engine, columns=120, rows=40)
    second = attached(terminal, live_engine, columns=120, rows=40)
    second.press("s")
    second.see("has the watch; W takes it over")
    second.press("W")
    second.see("watch: you of 2")
    first.pump(0.5)
    first.press("s")
    first.see("has the watch; W takes it over")
    second.signal(signal.SIGKILL)  # with the watch
    assert second.ends() == -signal.SIGKILL
    first.until(lambda: "watch:" not in first.text or "watch: nobody" in first.text)
    first.press("s")
    first.see("takes it back")
    first.press("q")
    assert first.ends() == 0 and not first.damage
