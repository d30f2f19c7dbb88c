"""`quarterdeck bench look` as a shell sees it: what it refuses before a screen is there, and what it leaves behind."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from look_jobs import first_job

from console.cli import run
from console.commands import bench_look
from console.tui.bench import main as look_main
from console.tui.bench.reading import Reader
from console.tui.main import Look

Told = Callable[..., tuple[int, str, str]]


@pytest.fixture
def told(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Told:
    """Runs it: exit code, standard output, standard error."""
    monkeypatch.setattr(bench_look, "require_terminal", lambda instead: None)

    def call(*argv: object) -> tuple[int, str, str]:
        code = run(["bench", "look", *map(str, argv)])
        said = capsys.readouterr()
        return code, said.out, said.err

    return call


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Reader, Look, bool]]:
    """What a screen would have been opened with; it is left for a mop-up at once."""
    seen: list[tuple[Reader, Look, bool]] = []

    def look_at(reader: Reader, look: Look, *, print_only: bool = False) -> tuple[int, tuple[str, ...]]:
        seen.append((reader, look, print_only))
        return 0, ("mop-up", "jobs/a b", "--task", "x y")

    monkeypatch.setattr(look_main, "look_at", look_at)
    return seen


@pytest.mark.parametrize(
    ("argv", "says"),
    [
        (["no/such/dir"], "no/such/dir"),
        (["{job}", "--against", "no/such/other"], "no/such/other"),
        (["{job}", "--theme", "nothing"], "no theme 'nothing'"),
        (["{job}", "--rules", "no.toml"], "no.toml"),
        (["{job}", "--against", ""], "an empty path"),
        ([], "DIR"),
    ],
)
def test_what_does_not_fit_is_one_line(told: Told, tmp_path: Path, argv: list[str], says: str) -> None:
    first_job(tmp_path / "a")
    code, out, err = told(*[part.format(job=tmp_path / "a") for part in argv])
    assert code == 2 and not out and says in err and "Traceback" not in err
    assert err.splitlines()[-1].startswith("quarterdeck")


def test_without_a_terminal_it_names_what_answers_without_one(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    first_job(tmp_path / "a")
    assert run(["bench", "look", str(tmp_path / "a")]) == 2
    said = capsys.readouterr().err
    assert "needs a terminal" in said and "bench triage" in said and said.count("\n") == 1


def test_the_command_is_printed_when_that_was_asked_for(told: Told, opened: list, tmp_path: Path) -> None:
    first_job(tmp_path / "a")
    first_job(tmp_path / "b")
    code, out, _ = told(
        tmp_path / "a", "--against", tmp_path / "b", "--print", "--ascii", "--task", "task-0*", "--no-cache"
    )
    assert code == 0 and out == "quarterdeck bench mop-up 'jobs/a b' --task 'x y'\n"
    ((reader, look, print_only),) = opened
    assert (reader.wanted.against, reader.wanted.tasks, reader.wanted.cache) == ((tmp_path / "b",), ("task-0*",), False)
    assert look.ascii and print_only
    assert len(reader.read().side.trials) == 10


def test_the_command_takes_the_terminal_over(
    told: Told, opened: list, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first_job(tmp_path / "a")
    begun: list[list[str]] = []
    monkeypatch.setattr(os, "execv", lambda program, arguments: begun.append([program, *arguments]))
    told(tmp_path / "a")
    assert begun == [
        [sys.executable, sys.executable, "-P", "-m", "console", "bench", "mop-up", "jobs/a b", "--task", "x y"]
    ]


def test_an_override_that_concerns_nothing_is_told(told: Told, opened: list, tmp_path: Path) -> None:
    first_job(tmp_path / "a")
    rules = tmp_path / "rules.toml"
    rules.write_text('[[override]]\ntrial = "nothing__*"\nclass = "cancelled"\ncause = ""\nwhy = "x"\n')
    code, _, err = told(tmp_path / "a", "--rules", rules, "--print")
    assert code == 0 and "matched no trial" in err


def test_the_help_teaches(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        run(["bench", "look", "--help"])
    said = capsys.readouterr().out
    assert ended.value.code == 0
    for word in ("--against", "--rules", "--theme", "ctrl+r", "mop-up", "examples:"):
        assert word in said
