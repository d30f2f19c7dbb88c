"""`quarterdeck demo` beside its run: what it says once that is over."""

from __future__ import annotations

from pathlib import Path

import pytest

from console.cli import run as quarterdeck
from console.commands import demo
from console.journal import events as ev
from console.journal.writer import JournalWriter
from console.training.options import RunOptions


@pytest.fixture(autouse=True)
def ends_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The run is over before it has trained anything."""

    def watch_run(options: RunOptions, *args: object, **kwargs: object) -> int:
        options.log_path.mkdir(parents=True)
        with JournalWriter(options.log_path / "journal") as journal:
            journal.append(ev.RunStarted(run_id="r1"))
            journal.append(ev.RunFinished(status="finished", exit_code=0))
        return 0

    monkeypatch.setenv("QUARTERDECK_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.setattr(demo, "watch_run", watch_run)
    monkeypatch.setattr(demo, "preflight", lambda *_: [])


@pytest.mark.parametrize("where", ["new", "dir", "option", "both"])
def test_it_names_the_directory_in_which_the_run_is(
    where: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = {
        "new": [],
        "dir": [f"--dir={tmp_path / 'D'}"],
        "option": [f"config.log_path={tmp_path / 'D'}"],
        "both": [f"--dir={tmp_path / 'other'}", f"config.log_path={tmp_path / 'D'}"],
    }[where]
    assert quarterdeck(["demo", "--plain", *words]) == 0
    said = capsys.readouterr().err
    made = tmp_path / "D" if words else next((tmp_path / "state/runs").iterdir())
    assert f"The run is kept in {made}. Try next:" in said and f"quarterdeck replay {made}\n" in said


@pytest.mark.parametrize("word", ["--dir={}", "config.log_path={}"])
@pytest.mark.parametrize("held", ["journal/1.jsonl", "notes.txt"])
def test_it_goes_on_with_nothing_however_the_directory_is_named(
    word: str, held: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    taken = tmp_path / "D" / held
    taken.parent.mkdir(parents=True)
    taken.touch()
    assert quarterdeck(["demo", "--plain", word.format(tmp_path / "D")]) == 2
    said = capsys.readouterr().err
    assert word.format(tmp_path / "D").replace("--dir=", "--dir ") in said
    assert ("holds a run already" if "journal" in held else "is not empty") in said
