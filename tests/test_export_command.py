"""`quarterdeck export`: formats, moments, files that are there whole or not at all."""

from __future__ import annotations

import asyncio
import csv
import io
import json
import re
import stat
import sys
from pathlib import Path
from typing import Any

import pyte
import pytest

from console import cli
from console.records.run_dir import RunRecord

sys.path.insert(0, str(Path(__file__).parent / "recordings"))
from made_bench import BenchPlan, make_bench
from make import Plan, make


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("export") / "run"
    make(path, Plan(steps=4, groups=2, size=4, operated=True))
    return path


@pytest.fixture
def export(capfd: pytest.CaptureFixture[str]):
    """Runs the command; (exit code, stdout, stderr)."""

    def go(*argv: str | Path) -> tuple[int, str, str]:
        code = cli.run(["export", *map(str, argv)])
        out, err = capfd.readouterr()
        return code, out, err

    return go


def test_the_view_is_one_object(run: Path, export) -> None:
    code, out, _ = export(run)
    body = json.loads(out)
    state = RunRecord(run).view_at_end().state
    assert code == 0 and body["state"]["seq"] == body["seq"] == state.seq and len(body["history"]) == 4
    assert body["missing"] == [] and body["time"].endswith("Z")
    early = json.loads(export(run, "--at", "s1")[1])
    assert early["state"]["steps_done"] == 2 and len(early["history"]) == 2


def test_events_are_those_of_the_journal(run: Path, export) -> None:
    code, out, _ = export(run, "--format", "json", "--what", "events", "--at", "#40")
    rows = [json.loads(line) for line in out.splitlines()]
    assert code == 0 and [row["seq"] for row in rows] == list(range(1, 41)) and rows[0]["type"] == "run.started"


def test_tables(run: Path, export) -> None:
    def table(*argv: str) -> list[dict[str, str]]:
        code, out, _ = export(run, "--format", "csv", *argv)
        assert code == 0
        return list(csv.DictReader(io.StringIO(out)))

    assert [row["step"] for row in table()] == ["0", "1", "2", "3"]
    rows = table("--what", "trials")
    assert len(rows) == 4 * 2 * 4 and {row["outcome"] for row in rows} >= {"completed"}
    assert len(table("--what", "trials", "--at", "s0")) == 8
    assert len(table("--what", "events", "--at", "50%")) < len(table("--what", "events"))


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("export") / "bench"
    make_bench(path, BenchPlan(tasks=12, attempts=2, ended=20, stood=2))
    return path


def test_a_benchmark_is_a_row_a_trial(bench: Path, export, tmp_path: Path) -> None:
    code, out, _ = export(bench, "-o", tmp_path / "t.csv")
    rows = list(csv.DictReader((tmp_path / "t.csv").open()))
    state = RunRecord(bench).view_at_end().state
    assert (code, out) == (0, "") and len(rows) == state.bench.done == 22
    wanted = {"task", "attempt", "class", "cause", "rule", "reward", "seconds", "cost_usd", "trial_dir"}
    assert wanted <= rows[0].keys() and "ppo_loss" not in rows[0] and "step" not in rows[0]
    assert {(r["trial"], r["class"]) for r in rows} == {
        (f"g{g.group + 1}/t{t.trial + 1}", t.outcome) for g in state.groups.values() for t in g.trials if t.outcome
    }
    assert sum(r["stood"] == "true" for r in rows) == 2 and float(rows[0]["seconds"]) > 0
    assert rows[0]["attempt"] == "1" and rows[0]["trial_dir"].startswith("/runs/jobs/")
    assert export(bench, "-o", tmp_path / "t.jsonl")[0] == 0
    lines = [json.loads(line) for line in (tmp_path / "t.jsonl").read_text().splitlines()]
    assert [one["trial"] for one in lines] == [r["trial"] for r in rows] and lines[0]["stood"] is True
    assert export(bench, "--format", "json", "--what", "trials")[1] == (tmp_path / "t.jsonl").read_text()
    early = export(bench, "--format", "csv", "--at", "50%")[1]
    assert 2 < early.count("\n") < 22
    assert json.loads(export(bench)[1])["state"]["kind"] == "benchmark"


def test_trials_as_json_are_of_benchmarks(run: Path, export) -> None:
    code, out, err = export(run, "--format", "json", "--what", "trials")
    assert (code, out) == (2, "") and "--format csv has the trials of a training" in err


def test_the_screen_as_text_and_picture(run: Path, export, tmp_path: Path) -> None:
    code, out, _ = export(run, "--format", "txt", "--size", "80x24", "--at", "s2", "--ascii")
    lines = out.splitlines()
    assert code == 0 and len(lines) == 24 and max(map(len, lines)) <= 80 and out.isascii()
    assert "REPLAY" in lines[0] and "step 3/4" in lines[0]
    first, second = tmp_path / "a.svg", tmp_path / "b.svg"
    for target in (first, second):
        assert export(run, "-o", target, "--size", "100x30", "--theme", "light", "--page", "run")[0] == 0
    assert first.read_text() == second.read_text() and "<svg" in first.read_text()
    links = set(re.findall(r"https?://[^\s\"')]+", first.read_text()))  # names of formats and of tools, nothing to load
    assert links == {"http://www.w3.org/2000/svg", "https://www.textualize.io"} and "url(http" not in first.read_text()


def pictures(events: list[list[Any]]) -> dict[float, list[str]]:
    """What a terminal of 90x28 shows after each moment of a cast. How many writes a picture took does not matter."""
    screen = pyte.Screen(90, 28)
    stream = pyte.Stream(screen)
    shown: dict[float, list[str]] = {}
    for moment, code, data in events:
        if code == "o":
            stream.feed(data)
            shown[moment] = [line.rstrip() for line in screen.display]
    return shown


def test_the_cast_plays_to_the_same_screen(run: Path, export, tmp_path: Path) -> None:
    first, second = tmp_path / "a.cast", tmp_path / "b.cast"
    for target in (first, second):
        code, _, err = export(run, "-o", target, "--speed", "8", "--size", "90x28", "--idle", "2", "--theme", "mono")
        assert code == 0, err
    header, *events = [json.loads(line) for line in first.read_text().splitlines()]
    assert pictures(events) == pictures([json.loads(line) for line in second.read_text().splitlines()][1:])
    assert (header["version"], header["width"], header["height"], header["idle_time_limit"]) == (2, 90, 28, 2.0)
    times = [moment for moment, _, _ in events]
    assert times == sorted(times) and {code for _, code, _ in events} == {"o", "m"}
    assert [data for _, code, data in events if code == "m"] == [f"step {n} done" for n in range(4)]
    assert not any("\x1b]" in data for _, _, data in events)
    played = list(pictures(events).values())[-1]
    shown = export(run, "--format", "txt", "--size", "90x28", "--theme", "mono")[1].splitlines()
    assert played == shown


def test_files_are_whole_and_never_overwritten_unasked(run: Path, export, tmp_path: Path) -> None:
    target = tmp_path / "trials.csv"
    assert export(run, "-o", target, "--what", "trials") == (0, "", "")
    assert stat.S_IMODE(target.stat().st_mode) & 0o600 == 0o600
    target.write_text("mine")
    code, _, err = export(run, "-o", target)
    assert code == 2 and "--force" in err and target.read_text() == "mine" and err.count("\n") == 1
    assert export(run, "-o", target, "--force")[0] == 0 and target.read_text().startswith("step,")
    code, _, err = export(run, "-o", tmp_path / "no" / "where.csv")
    assert code == 2 and "cannot be written" in err
    assert sorted(p.name for p in tmp_path.iterdir()) == ["trials.csv"]


def test_a_failure_leaves_nothing_behind(run: Path, export, tmp_path: Path) -> None:
    code, _, err = export(run, "-o", tmp_path / "x.svg", "--at", "s99")
    assert code == 2 and "s99" in err and not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("argv", "why"),
    [
        (["--format", "csv", "--what", "view"], "steps, trials, events"),
        (["--format", "svg", "--what", "steps", "-o", "-"], "takes no --what"),
        (["-o", "run.xyz"], "tells no format"),
        (["--format", "txt", "--size", "12"], "write columns and rows"),
        (["--format", "txt", "--size", "10x5"], "from 60x16"),
        (["--format", "txt", "--theme", "pink"], "there are"),
        (["--format", "txt", "--page", "help"], "there are run"),
        (["--format", "txt", "--speed", "2"], "for --format cast"),
        (["--format", "cast", "-o", "-", "--speed", "max"], "0.25 to 64"),
        (["--format", "cast", "-o", "-", "--idle", "0"], "above 0"),
        (["--format", "cast", "-o", "-", "--from", "90%", "--at", "10%"], "--from 90% (event"),
        (["--format", "cast", "-o", "-", "--from", "teatime"], "--from"),
        (["--at", "teatime"], "write one of"),
        (["--format", "csv", "-o", "/dev/full"], "-o /dev/full: cannot be written (No space left"),
        (["--format", "xml"], "invalid choice"),
    ],
)
def test_mistakes_get_one_line(run: Path, export, argv: list[str], why: str) -> None:
    code, out, err = export(run, *argv)
    assert (code, out) == (2, "") and why in err and err.count("\n") == 1


def test_what_a_damaged_journal_lacks_is_said(export, tmp_path: Path) -> None:
    damaged = tmp_path / "damaged"
    make(damaged, Plan(steps=12))
    chunk = next((damaged / "journal").glob("*.jsonl.zst"))
    data = bytearray(chunk.read_bytes())
    second = data.index(b"\x28\xb5\x2f\xfd", 100)
    data[second + 40 : second + 60] = b"\x00" * 20
    chunk.write_bytes(bytes(data))
    hole = json.loads(export(damaged)[1])["missing"][0]
    for words in (["csv"], ["txt"], ["svg"], ["json", "--what", "events"]):
        code, out, err = export(damaged, "--format", *words)
        assert code == 0 and out and err.count("\n") == 1
        assert f"the journal is damaged: events {hole['first_seq']}-{hole['last_seq']} are missing" in err
    assert export(damaged, "--format", "csv", "--at", f"#{hole['first_seq'] - 1}")[2] == ""


def test_what_is_no_run_is_said(export, tmp_path: Path) -> None:
    assert export(tmp_path)[0] == 10
    assert export("no-such-run")[0] == 2


def test_a_cookbook_log_is_exported_too(export, tmp_path: Path) -> None:
    (tmp_path / "metrics.jsonl").write_text('{"step": 0, "env/all/reward/total": 0.5, "grad_norm": NaN}\n')
    rows = list(csv.DictReader(io.StringIO(export(tmp_path, "--format", "csv")[1])))
    assert [(row["step"], row["reward_mean"], row["grad_norm"], row["nonfinite"]) for row in rows] == [
        ("0", "0.5", "", "grad_norm")
    ]
    assert "NaN" not in export(tmp_path)[1]


def test_the_help_teaches_with_commands_that_exist(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        cli.run(["export", "--help"])
    text = capsys.readouterr().out
    from console.commands.export import _parser

    known = {option for action in _parser()._actions for option in action.option_strings}
    for line in re.findall(r"^  (quarterdeck export .*?)(?: \||$)", text, re.MULTILINE):
        assert set(re.findall(r"(?<=\s)-{1,2}[a-z]+", line)) <= known
    assert "export" in cli.HELP


def test_nothing_is_left_running(run: Path) -> None:
    """Rendering in one process, several times over, leaves no loop behind."""
    from console.tui.opening import open_record
    from console.tui.screenshot import Look, render_text

    texts = {asyncio.run(render_text(open_record(run), Look(80, 24), "end")) for _ in range(2)}
    assert len(texts) == 1
