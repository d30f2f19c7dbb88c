"""Opening the console without naming a run, with other keys, and with clicks, in a real terminal."""

from __future__ import annotations

from pathlib import Path

from console.control.registry import register

CLI = "import sys; from console.cli import main; main(sys.argv[1:])"


def test_attach_without_a_run_opens_the_list(terminal, pty_recording: Path, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setenv("QUARTERDECK_STATE_DIR", str(tmp_path))
    env = {"QUARTERDECK_STATE_DIR": str(tmp_path)}
    term = terminal(CLI, "attach", env=env)
    term.see("No run is known on this machine", "quarterdeck demo")
    register("demo-run", pty_recording, "demo", 2**22 + 1, None, 0.0)
    term.see("0 live, 1 recorded", "enter open")  # it looks again by itself
    term.press("\r")
    term.see("REPLAY paused", "step 6/6 finished, exit 0")
    term.press("q")
    assert term.ends() == 0


def test_other_keys_and_clicks(terminal, pty_recording: Path, tmp_path: Path) -> None:
    keys = tmp_path / "keys.yaml"
    keys.write_text("sort: f9\nquit: Z\n")
    term = terminal(CLI, "replay", str(pty_recording), "--speed", "max", "--keys", str(keys), "--mouse")
    term.see("finished, exit 0", "Z quit")
    assert b"\x1b[?1000h" in term.raw and b"\x1b[?1003h" not in term.raw  # clicks, and no moves
    term.press("\x1b[<65;5;6M")  # the wheel, down
    term.see(">  g2" if ">  g" in term.text else "> g2")
    term.press("q")
    term.pump(0.3)
    assert term.status is None
    term.press("Z")
    assert term.ends() == 0 and not term.damage
    assert term.raw.rfind(b"\x1b[?1000l") > term.raw.rfind(b"\x1b[?1000h")


def test_keys_that_do_not_fit_are_one_line(terminal, pty_recording: Path, tmp_path: Path) -> None:
    keys = tmp_path / "keys.yaml"
    keys.write_text("sort: r\n")
    term = terminal(CLI, "replay", str(pty_recording), "--keys", str(keys))
    assert term.ends() == 2
    assert b"retry and sort are both on r" in term.raw and b"Traceback" not in term.raw
