"""What `quarterdeck bench` prints for people: whose words stand with whose evidence, and nothing cut that counts."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from harbor_jobs import HarborJob, put
from rich.cells import cell_len

from console.bench.cache import DIRECTORY_VARIABLE
from console.bench.figures.modes import MODES
from console.bench.figures.tables import Column, Kind, Table, to_text
from console.cli import run
from console.commands import (
    bench_cache,
    bench_compare_text,
    bench_tally,
    bench_text,
    bench_triage,
    bench_triage_text,
)
from console.commands.bench_text import laid_out
from console.outcomes.meaning import rule_meaning

DEAD = ("SandboxError", "the sandbox was not found")
LATE = ("AgentTimeoutError", "Agent execution timed out after 900.0 seconds")
PASSED = {"verifier/test-stdout.txt": "== 3 passed in 0.1s ==\n"}

Shell = Callable[..., str]


@pytest.fixture
def shell(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Shell:
    """Runs a command line of `bench` that answers, in a terminal of so many columns: its standard output."""
    monkeypatch.setenv(DIRECTORY_VARIABLE, str(tmp_path / "cache"))

    def call(*argv: object, width: int = 80) -> str:
        for module in (bench_compare_text, bench_tally, bench_text, bench_triage_text):
            monkeypatch.setattr(module, "columns", lambda: width)
        capsys.readouterr()
        assert run(["bench", *map(str, argv)]) == 0
        return capsys.readouterr().out

    return call


# --- triage -----------------------------------------------------------------------------------------------------------


def test_the_reason_is_of_the_rule_that_the_example_was_judged_by(shell: Shell, tmp_path: Path) -> None:
    job = HarborJob(tmp_path / "a")
    job.trial("org/one", error=DEAD)
    for at in range(3):
        job.trial(f"org/early{at}", 0.0, error=LATE, seconds={"agent": 5})
    job.write()
    found = [json.loads(line) for line in shell("triage", job.path, "--json").splitlines()]
    assert {(row["class"], row["cause"]) for row in found} == {("infrastructure", "sandbox")}
    rules = {row["evidence"]["text"]: row["rule"] for row in found}
    assert len(set(rules.values())) == 2
    out = shell("triage", job.path)
    said = " ".join(out.split())
    (text,) = [text for text in rules if f"> {text}" in said]
    (other,) = set(rules.values()) - {rules[text]}
    number = sum(row["rule"] == other for row in found)
    assert f"4 trials of 4 tasks {rule_meaning(rules[text])} > {text}" in said
    assert f"and {number} by other rules: {rule_meaning(other)} ({number})" in said


def test_one_trial_is_one_trial(shell: Shell, tmp_path: Path) -> None:
    job = HarborJob(tmp_path / "a")
    job.trial("org/x", 1.0, files=PASSED)
    job.write()
    assert "1 of 1 planned trial, finished" in shell("triage", job.path)
    assert "1 attempt of 1 planned, 0 missing; 1 trial on disk" in " ".join(shell("tally", job.path).split())
    (job.path / "result.json").unlink()
    for name in ("lock.json", "config.json"):
        (job.path / name).unlink(missing_ok=True)
    assert "  1 trial, " in shell("triage", job.path)


def test_the_evidence_of_an_override_is_the_rule_file_wherever_one_stands(
    shell: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = HarborJob(tmp_path / "a")
    job.trial("org/x", 1.0, files=PASSED)
    job.write()
    put(tmp_path / "r.toml", '[[override]]\ntrial = "*"\nclass = "infrastructure"\ncause = "sandbox"\nwhy = "power"\n')
    monkeypatch.chdir(tmp_path)
    (row,) = [json.loads(line) for line in shell("triage", "a", "--json", "--rules", "r.toml").splitlines()]
    assert row["evidence"] == {"file": str(tmp_path / "r.toml"), "line": None, "text": "power"}
    shown = shell("triage", "a", "--rules", "r.toml", width=2000).splitlines()
    assert f"    {tmp_path / 'r.toml'}" in shown


def test_help_does_not_promise_what_an_early_timeout_breaks() -> None:
    assert "is never among them" not in bench_triage._EPILOG
    assert "AgentTimeoutError is a result unless it came long before its limit" in bench_triage._EPILOG


# --- narrow terminals -------------------------------------------------------------------------------------------------


def test_a_table_that_does_not_fit_is_a_block_a_row_with_nothing_cut() -> None:
    columns = (Column("task", "task"), Column("score", "score", Kind.SHARE), Column("why", "why"))
    rows = (("a-long-name-of-a-task-one", 0.5, ""), ("a-long-name-of-a-task-two", 0.25, "word " * 12))
    lines = to_text([Table(name="t", title="T", columns=columns, rows=rows, notes=("n.",))], 40).splitlines()
    assert lines[:5] == ["T", f"task: {rows[0][0]}", "  score: 50.00 %", f"task: {rows[1][0]}", "  score: 25.00 %"]
    assert lines[5].startswith("  why: word") and lines[6].startswith("    word") and lines[-1] == "  n."
    assert " ".join(lines).count("word") == 12 and max(map(cell_len, lines)) <= 40
    wide = to_text([Table(name="t", title="T", columns=columns, rows=rows)], 60).splitlines()
    assert wide[1].split() == ["task", "score", "why"] and wide[3].endswith("…") and rows[1][0] in wide[3]


@pytest.mark.parametrize("width", [20, 40, 60])
def test_no_number_and_no_name_is_cut_however_narrow_the_terminal(shell: Shell, tmp_path: Path, width: int) -> None:
    for name, every in (("a", 2), ("b", 3)):
        job = HarborJob(tmp_path / name)
        for at in range(12):
            lost = at == 11
            reward = None if lost else float(at % every == 0)
            job.trial(f"org/some-task-{at:02}", reward, error=DEAD if lost else None, files=PASSED)
        job.write()
    whole = shell("compare", tmp_path / "a", tmp_path / "b", width=120)
    narrow = shell("compare", tmp_path / "a", tmp_path / "b", width=width)
    (line,) = [line for line in whole.splitlines() if line.startswith("infra-excluded ")]
    *_, low, to, high, p = line.split()
    assert to == "to" and "…" not in narrow
    flat = " ".join(narrow.split())
    assert f"{low} to {high}" in flat and f"p: {p}" in flat
    table = [line for line in whole.splitlines() if line.startswith(("mode ", *(f"{mode} " for mode in MODES)))]
    barely = shell("compare", tmp_path / "a", tmp_path / "b", width=max(map(len, table)) - 1)
    assert "…" not in barely and f"{low} to {high}" in barely
    tally = " ".join(shell("tally", tmp_path / "a", "--table", "tasks", width=width).split())
    assert all(f"some-task-{at:02}" in tally for at in range(12))
    triage = shell("triage", tmp_path / "a", "--trials", width=width).splitlines()
    (row,) = [line for line in triage if line.startswith("completed")]
    assert row.split()[1:4] == ["11", "6", "5"]
    assert "1 trial of 1 task" in " ".join(" ".join(triage).split())
    trial = next((tmp_path / "a").glob("some-task-11__*")).name
    assert triage[-1].endswith(trial[-14:]) and "some-task-11  1.1  infrastructure/sandbox" in triage[-2]


def test_paths_in_a_column_keep_their_end_and_get_a_line_where_there_is_no_room() -> None:
    rows = [("A", "PATH"), ("x", "/a/long/way/to/the/end")]
    assert list(laid_out(rows, 23, flexible=1, path=True)) == ["A  PATH", "x  ..ong/way/to/the/end"]
    rows = [("A" * 30, "PATH"), ("x" * 30, "/a/long/way/to/the/end")]
    assert list(laid_out(rows, 40, flexible=1, path=True)) == [
        "A" * 30, "    PATH", "x" * 30, "    /a/long/way/to/the/end",
    ]  # fmt: skip


# --- the rest ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("files", "size", "said"),
    [(0, 0, "0 files, 0 KB"), (1, 34_000, "1 file, 34 KB"), (2, 999_400, "2 files, 999 KB"),
     (3, 999_999, "3 files, 1.0 MB"), (4, 12_345_678, "4 files, 12.3 MB")],
)  # fmt: skip
def test_the_cache_is_told_in_files_and_in_a_unit_that_fits(
    shell: Shell, monkeypatch: pytest.MonkeyPatch, files: int, size: int, said: str
) -> None:
    monkeypatch.setattr(bench_cache, "held", lambda: (files, size))
    assert shell("cache").startswith(f"{said}, in ")


@pytest.mark.parametrize("closed", [">&-", "2>&-", ">&- 2>&-"])
@pytest.mark.parametrize("command", ["triage", "tally", "--help"])
def test_a_closed_stream_is_no_traceback(tmp_path: Path, closed: str, command: str) -> None:
    job = HarborJob(tmp_path / "a")
    job.trial("org/x", 1.0, files=PASSED)
    job.write()
    argv = f'exec "{sys.executable}" -m console bench {command} "{job.path}" {closed}'
    env = {DIRECTORY_VARIABLE: str(tmp_path / "cache"), "HOME": str(tmp_path)}
    found = subprocess.run(["sh", "-c", argv], capture_output=True, text=True, env=env)
    assert (found.returncode, found.stderr) == (0, "")
