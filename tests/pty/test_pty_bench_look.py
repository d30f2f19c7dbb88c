"""The screens of benchmarks in a real terminal: they open, answer keys, leave it clean, and give it to the mop-up."""

from __future__ import annotations

from pathlib import Path

import pytest
from look_jobs import first_job, second_job

CLI = "import sys; from console.cli import main; sys.exit(main())"


@pytest.fixture(autouse=True)
def own_directories(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("QUARTERDECK_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.setenv("QUARTERDECK_CACHE_DIR", str(tmp_path / "cache"))


def test_it_opens_answers_keys_and_leaves_the_terminal_clean(terminal, tmp_path: Path) -> None:
    first_job(tmp_path / "a")
    second_job(tmp_path / "b")
    term = terminal(CLI, "bench", "look", str(tmp_path / "a"), "--against", str(tmp_path / "b"))
    term.see("Did B beat A", "4 warnings: read", "Tasks on which they differ")
    term.press("\x1b")
    term.see("infrastructure/sandbox", "About it")
    term.press(":goto bad\r")
    term.until(lambda: any(row.strip().startswith(">") and "bad_reward" in row for row in term.text.splitlines()))
    term.press("\r")
    term.see("task-17")
    term.press("\r")
    term.see("uvx: command not found", "Evidence: verifier/test-stdout.txt:3")
    term.press("q")
    assert term.ends() == 0 and not term.damage
    assert b"Traceback" not in term.raw and term.said == ""


def test_a_terminal_without_unicode_gets_ascii(terminal, tmp_path: Path) -> None:
    first_job(tmp_path / "a").trial("org/日本-é", 1.0)
    term = terminal(CLI, "bench", "look", str(tmp_path / "a"), "--ascii", env={"COLORTERM": "", "LANG": "C"})
    term.palette = True
    term.see("infrastructure/sandbox")
    for keys in ("\r", "\r", "\x1b", "\x1b", "t", "\x1b", "R"):
        term.press(keys)
        term.settle(quiet=0.1, at_most=1.0)
    term.see("Mop-up")
    term.press("q")
    assert term.ends() == 0 and not term.damage and term.raw.isascii()


def test_the_terminal_is_given_to_the_mop_up(terminal, tmp_path: Path) -> None:
    first_job(tmp_path / "a")
    term = terminal(CLI, "bench", "look", str(tmp_path / "a"))
    term.see("infrastructure/sandbox")
    term.press("R")
    term.see("5 attempts of 5 tasks")
    term.press("\r")
    term.see("This screen closes")
    term.pump(0.5)  # a key that comes sooner is taken for auto-repeat
    term.press("y")
    term.until(lambda: b"to run again: 5 attempts" in term.raw and b"[y/N]" in term.raw)
    assert b"\x1b[?1049l" in term.raw.partition(b"to run again")[0]
    term.press("n\r")
    assert term.ends() == 2, term.text
    assert "nothing was started" in term.text and not (tmp_path / "a-mop-up-1").exists()
