"""What the console can paint on, by variables and on a real pty."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import struct
import subprocess
import sys
import termios
from pathlib import Path

import pytest

from console.doctor import checks_terminal as checks
from console.doctor.case import Case

ON = (True, True, True)


@pytest.mark.parametrize(
    ("check", "env", "level"),
    [
        (checks.kind, {"TERM": "xterm"}, "ok"),
        (checks.kind, {"TERM": "dumb"}, "warning"),
        (checks.kind, {}, "warning"),
        (checks.utf8, {"TERM": "xterm", "LANG": "de_DE.UTF-8"}, "ok"),
        (checks.utf8, {"TERM": "xterm", "LANG": "de_DE"}, "note"),
        (checks.utf8, {"TERM": "xterm", "LANG": "en_US.utf8", "LC_ALL": "C"}, "note"),
        (checks.utf8, {"TERM": "linux", "LANG": "en_US.utf8"}, "note"),
        (checks.utf8, {"TERM": "xterm"}, "ok"),
        (checks.colours, {"TERM": "xterm-256color", "COLORTERM": "truecolor"}, "ok"),
        (checks.colours, {"TERM": "xterm-256color"}, "note"),
        (checks.colours, {"TERM": "xterm"}, "warning"),
        (checks.colours, {"TERM": "dumb"}, "warning"),
        (checks.colours, {"TERM": "dumb", "NO_COLOR": "1"}, "ok"),
    ],
)
def test_variables(host, levels, check, env: dict[str, str], level: str) -> None:
    ((_, told),) = levels(check, host(env=env, terminals=ON))
    assert told == level


@pytest.mark.parametrize(
    ("size", "level"), [((80, 24), "ok"), ((200, 60), "ok"), ((79, 24), "note"), ((80, 23), "note"), (None, "skipped")]
)
def test_sizes(host, levels, size: tuple[int, int] | None, level: str) -> None:
    assert levels(checks.size, host(size=size)) == [("term.size", level)]


def test_streams_that_are_no_terminal_are_named(host) -> None:
    def found(*terminals: bool) -> str:
        (check,) = checks.tty(Case(host=host(terminals=terminals)))
        return f"{check.level}: {check.found}"

    assert found(True, True, True) == "ok: input, output and errors are a terminal"
    assert found(True, False, True) == "note: output is no terminal"
    assert found(False, True, False) == "note: input and error output are no terminal"


def on_a_pty(tmp_path: Path, columns: int, rows: int, **env: str) -> dict[str, str]:
    """Levels by code of `doctor --only term` whose three streams are a terminal of that size."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
    inherited = {
        k: v for k, v in os.environ.items() if k not in ("COLORTERM", "NO_COLOR", "LC_ALL", "LC_CTYPE", "LANG")
    }
    process = subprocess.Popen(
        [sys.executable, "-m", "console", "doctor", "--only", "term", "--json"],
        stdin=theirs, stdout=theirs, stderr=theirs, cwd=tmp_path,
        env=inherited | {"PYTHONPATH": str(Path(__file__).resolve().parents[2])} | env,
    )  # fmt: skip
    os.close(theirs)
    said = b""
    while True:
        try:
            piece = os.read(ours, 65536)
        except OSError:  # the last one has closed the terminal
            break
        if not piece:
            break
        said += piece
    os.close(ours)
    assert process.wait(30) == 0
    return {check["code"]: check["level"] for check in json.loads(said)["checks"]}


def test_a_good_and_a_bad_terminal(tmp_path: Path) -> None:
    good = on_a_pty(tmp_path, 120, 40, TERM="xterm-256color", COLORTERM="truecolor", LANG="C.UTF-8")
    assert set(good.values()) == {"ok"} and len(good) == 5
    bad = on_a_pty(tmp_path, 60, 20, TERM="dumb", LANG="C")
    assert bad == {
        "term.tty": "ok",
        "term.type": "warning",
        "term.utf8": "note",
        "term.colours": "warning",
        "term.size": "note",
    }
